"""A backup back to where it came from: all of it is checked before anything is touched, nothing overwritten unasked."""

import fcntl
import itertools
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from analysis.backup import BRIDGE, CONFIG, STATE
from analysis.state import LOCK, exclusive
from cluster.errors import ClusterflowError, UserError
from ingest.checkpoint import LOCK as BRIDGE_LOCK
from ingest.checkpoint import MANIFEST

_RESTORING = ".restoring"
_SQLITE_LOGS = ("-wal", "-shm")
_STATE_MODE = 0o640


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put in place: files that were not there already; and where the checkpoint before is now, if any."""

    files: tuple[Path, ...]
    aside: Path | None


def put_in_place(unpacked: Path, state: Path, config: Path | None, *, force: bool) -> Restored:
    """Move what `unpack` checked into a state folder, and into cluster.yaml's folder.

    Args:
        unpacked: folder that `analysis.backup.unpack` filled.
        state: `bridge.state`.
        config: folder of cluster.yaml; None leaves the configuration as it is.
        force: take the place of what is there; a checkpoint is moved aside, never removed.

    Raises:
        UserError: a bridge or an analysis runs on that state, or something is in the way.
        ClusterflowError: a file cannot be written.
    """
    bridge = state / BRIDGE
    try:
        with ExitStack() as held:
            held.enter_context(_no_bridge(bridge))
            held.enter_context(exclusive(state))
            _give_to_owner_of(state, state / LOCK)
            moves = {
                source: target for source, target in _moves(unpacked, state, config) if not _is_same(source, target)
            }
            in_the_way = [target for target in (*moves.values(), bridge / MANIFEST) if os.path.lexists(target)]
            if in_the_way and not force:
                shown = ", ".join(str(path) for path in in_the_way[:3])
                more = f" and {len(in_the_way) - 3} more" if len(in_the_way) > 3 else ""
                raise UserError(f"is there already: {shown}{more}", "--force takes their place")
            # All is written before anything is renamed: a folder that cannot be written leaves everything as it was.
            modes = {source: _mode(target) for source, target in moves.items() if (unpacked / CONFIG) in source.parents}
            written = held.enter_context(_written_beside(moves, modes))
            checkpoint = _written_checkpoint(unpacked / STATE / BRIDGE, bridge, held)
            for scratch, target in written.items():
                _put(scratch, target)
            aside = _replace_checkpoint(checkpoint, bridge)
    except OSError as error:
        raise ClusterflowError(f"{error.filename or state}: {error.strerror}") from error
    return Restored((*moves.values(), bridge), aside)


def _moves(unpacked: Path, state: Path, config: Path | None) -> Iterator[tuple[Path, Path]]:
    """Yield source and target of every file but those of the checkpoint, which go together."""
    homes = {STATE: state} | ({CONFIG: config} if config is not None else {})
    for name, home in homes.items():
        for path in sorted((unpacked / name).rglob("*")):
            place = path.relative_to(unpacked / name)
            if path.is_file() and not (name == STATE and place.parts[0] == BRIDGE):
                yield path, home / place


def _is_same(source: Path, target: Path) -> bool:
    """Whether what is restored is at its place already; an SQLite file with a log beside it is more than its bytes."""
    has_log = os.path.lexists(_beside(target, _SQLITE_LOGS[0]))
    return target.is_file() and not has_log and source.read_bytes() == target.read_bytes()


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(target.name + suffix)


def _mode(target: Path) -> int:
    """Return the mode of a file of the configuration: that of the one before; else services can read it."""
    return stat.S_IMODE(target.stat().st_mode) & 0o777 if target.is_file() else 0o644


@contextmanager
def _no_bridge(folder: Path) -> Iterator[None]:
    """Hold the lock that a bridge would hold; UserError if one does."""
    folder.mkdir(parents=True, exist_ok=True)
    _give_to_owner_of(folder.parent, folder)
    with (folder / BRIDGE_LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"{folder}: a bridge uses this state", "stop it first") from error
        _give_to_owner_of(folder, folder / BRIDGE_LOCK)
        yield


def _written_checkpoint(source: Path, folder: Path, held: ExitStack) -> Path:
    """Write the whole checkpoint beside its folder, locked; what is not in place in the end is removed."""
    scratch = folder.with_name(folder.name + _RESTORING)
    shutil.rmtree(scratch, ignore_errors=True)
    held.callback(shutil.rmtree, scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    _give_to_owner_of(folder, scratch)
    held.enter_context(_no_bridge(scratch))
    for path in sorted(source.glob("*")) if source.is_dir() else ():
        _write(path, scratch / path.name, _STATE_MODE)
    return scratch


def _replace_checkpoint(scratch: Path, folder: Path) -> Path | None:
    """Put the whole checkpoint in place by one rename; return where the one before is now."""
    name = f"{folder.name}.before-restore-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    aside = next(path for path in map(folder.with_name, names) if not path.exists())
    is_worth_keeping = (folder / MANIFEST).exists()
    folder.rename(aside)
    scratch.rename(folder)
    if is_worth_keeping:
        return aside
    shutil.rmtree(aside)
    return None


@contextmanager
def _written_beside(moves: dict[Path, Path], modes: dict[Path, int]) -> Iterator[dict[Path, Path]]:
    """Write every source beside its target; yield where -> target. What was not renamed in the end is removed."""
    written: dict[Path, Path] = {}
    try:
        for source, target in moves.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch = target.with_name(f".{target.name}{_RESTORING}")
            scratch.unlink(missing_ok=True)
            written[scratch] = target
            _write(source, scratch, modes.get(source, _STATE_MODE))
        yield written
    finally:
        for scratch in written:
            scratch.unlink(missing_ok=True)


def _write(source: Path, path: Path, mode: int) -> None:
    """Copy to a file that is not there, durably, for the owner of the folder."""
    with (
        source.open("rb") as read,
        os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out,
    ):
        shutil.copyfileobj(read, out)
        out.flush()
        os.fchmod(out.fileno(), mode)
        os.fsync(out.fileno())
    _give_to_owner_of(path.parent, path)


def _put(scratch: Path, target: Path) -> None:
    scratch.replace(target)
    for suffix in _SQLITE_LOGS:
        # Of the SQLite file that was there: they would be taken for ours.
        _beside(target, suffix).unlink(missing_ok=True)


def _give_to_owner_of(folder: Path, path: Path) -> None:
    """Give a file to whom its folder belongs: root restores what a service then writes."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
