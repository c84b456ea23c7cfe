"""A backup back to where it came from: all of it is checked before anything is touched, nothing overwritten unasked."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from analysis.backup import BRIDGE, CONFIG, STATE
from analysis.state import exclusive
from cluster.errors import ClusterflowError, UserError
from ingest.checkpoint import LOCK, MANIFEST

_RESTORING = ".restoring"


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put in place: files, and where the checkpoint that was there before is now, if there was one."""

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
    moves = dict(_moves(unpacked, state, config))
    bridge = state / BRIDGE
    try:
        with ExitStack() as held:
            held.enter_context(_no_bridge(bridge))
            held.enter_context(exclusive(state))
            in_the_way = [target for target in (*moves.values(), bridge / MANIFEST) if _differs(moves, target)]
            if in_the_way and not force:
                shown = ", ".join(str(path) for path in in_the_way[:3])
                more = f" and {len(in_the_way) - 3} more" if len(in_the_way) > 3 else ""
                raise UserError(f"is there already: {shown}{more}", "--force takes their place")
            for source, target in moves.items():
                _copy_into_place(source, target)
            aside = _replace_checkpoint(unpacked / STATE / BRIDGE, bridge, held)
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


def _differs(moves: dict[Path, Path], target: Path) -> bool:
    """Whether something other than what is restored is at a target."""
    if not os.path.lexists(target):
        return False
    source = next((source for source, one in moves.items() if one == target), None)
    return source is None or not target.is_file() or source.read_bytes() != target.read_bytes()


@contextmanager
def _no_bridge(folder: Path) -> Iterator[None]:
    """Hold the lock that a bridge would hold; UserError if one does."""
    folder.mkdir(parents=True, exist_ok=True)
    _give_to_owner_of(folder.parent, folder)
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"{folder}: a bridge uses this state", "stop it first") from error
        _give_to_owner_of(folder, folder / LOCK)
        yield


def _replace_checkpoint(source: Path, folder: Path, held: ExitStack) -> Path | None:
    """Put the whole checkpoint in place by one rename; return where the one before is now."""
    scratch = folder.with_name(folder.name + _RESTORING)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    _give_to_owner_of(folder, scratch)
    held.enter_context(_no_bridge(scratch))
    for path in sorted(source.glob("*")) if source.is_dir() else ():
        _copy_into_place(path, scratch / path.name)
    aside = folder.with_name(f"{folder.name}.before-restore-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    is_worth_keeping = (folder / MANIFEST).exists()
    folder.rename(aside)
    scratch.rename(folder)
    if is_worth_keeping:
        return aside
    shutil.rmtree(aside)
    return None


def _copy_into_place(source: Path, target: Path) -> None:
    """Put a file where it belongs, at once and durably, for the owner of the folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}{_RESTORING}")
    scratch.unlink(missing_ok=True)
    with (
        source.open("rb") as read,
        os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640), "wb") as out,
    ):
        shutil.copyfileobj(read, out)
        out.flush()
        os.fsync(out.fileno())
    _give_to_owner_of(target.parent, scratch)
    scratch.replace(target)
    for suffix in ("-wal", "-shm"):
        # Of the SQLite file that was there: they would be taken for ours.
        target.with_name(target.name + suffix).unlink(missing_ok=True)


def _give_to_owner_of(folder: Path, path: Path) -> None:
    """Give a file to whom its folder belongs: root restores what a service then writes."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
