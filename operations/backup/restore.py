"""Restore a backup: all of it is checked before anything is changed, nothing overwritten without `--force`."""

import fcntl
import itertools
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from analysis.state import LOCK, exclusive
from app import sqlite_file
from app.errors import FOREIGN, UserError, of_disk
from app.words import some
from ingest.checkpoint import LOCK as BRIDGE_LOCK
from ingest.checkpoint import MANIFEST, RESTORING, without
from operations.backup.backup_file import BRIDGE, CONFIG, DELIVERY, EVENTS, LOGS, SPOOL, SQLITE_FILES, STATE

_OF_ARCHIVE = "archive", "samples"
"""Notes of a checkpoint on files that no backup holds. By these the bridge would delete what the flow archive has had
since, and on another machine wait for a disk that is not there."""
_HINT = f"{FOREIGN}, or name other folders: --state, --delivery-state, --config"
_STATE_MODE = 0o640
_EXECUTABLE = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


@dataclass(frozen=True, slots=True)
class Homes:
    """Where what a backup holds goes.

    Attributes:
        state: `bridge.state`.
        delivery: `delivery.state`.
        config: folder of cluster.yaml; None leaves the configuration as it is.
    """

    state: Path
    delivery: Path
    config: Path | None


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put in place.

    Attributes:
        files: files that were not there already, and folders.
        aside: where what folders held before is now.
        left: what is there of the state, and was not in the backup: it is as it was.
    """

    files: tuple[Path, ...]
    aside: tuple[Path, ...]
    left: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder whose files go together: all of them are exchanged by one rename.

    Attributes:
        name: its first folder in the archive, and its own.
        target: where it goes.
        content: file without which it holds nothing.
        lock: file in it that its service holds.
        service: who that is, for people.
        mode: of the folder itself.
    """

    name: tuple[str, str]
    target: Path
    content: str
    lock: str
    service: str
    mode: int

    def source(self, unpacked: Path) -> Path:
        """Return where it is unpacked."""
        return unpacked.joinpath(*self.name)

    def held_in(self, folder: Path) -> Path | None:
        """Return the file by which a folder is known to hold something; None where it holds nothing."""
        path = folder / self.content
        return path if path.exists() else None


def _folders(homes: Homes) -> tuple[_Folder, ...]:
    bridge, spool = homes.state / BRIDGE, homes.delivery / SPOOL
    return (
        _Folder((STATE, BRIDGE), bridge, MANIFEST, BRIDGE_LOCK, "a bridge", 0o755),
        _Folder((DELIVERY, SPOOL), spool, EVENTS, "lock", "`clusterflow deliver`", 0o750),
    )


def put_in_place(unpacked: Path, homes: Homes, *, force: bool) -> Restored:
    """Move what `unpack` checked to where it belongs. What it does not hold stays as it is.

    Args:
        unpacked: folder that `operations.backup.backup_file.unpack` filled.
        homes: where it belongs.
        force: take the place of what is there; a checkpoint and a spool are moved aside, never removed.

    Raises:
        UserError: a service runs on that state, something is in the way, or a file cannot be written.
        ClusterflowError: there is no room.
    """
    folders = _folders(homes)
    try:
        with ExitStack() as held:
            for folder in folders:
                if (unpacked / folder.name[0]).is_dir():
                    held.enter_context(_without_service(folder, folder.target))
            if (unpacked / STATE).is_dir():
                held.enter_context(exclusive(homes.state))
                _give_to_owner_of(homes.state, homes.state / LOCK)
            # A service whose folder the backup lacks goes on with what it has: an empty one would count things twice.
            whole = [folder for folder in folders if folder.held_in(folder.source(unpacked)) is not None]
            left = tuple(_left(unpacked, homes, [folder for folder in folders if folder not in whole]))
            moves = {source: target for source, target in _moves(unpacked, homes) if not _is_same(source, target)}
            known = [found for folder in whole if (found := folder.held_in(folder.target)) is not None]
            in_the_way = [target for target in (*known, *moves.values()) if os.path.lexists(target)]
            if in_the_way and not force:
                raise UserError(f"is there already: {some([*map(str, in_the_way)], 3)}", "--force takes their place")
            ours = {source: target for source, target in moves.items() if (unpacked / CONFIG) in source.parents}
            if homes.config is not None:
                _check_places(ours.values(), homes.config)
            # All is written before anything is renamed: a folder that cannot be written leaves everything as it was.
            modes = {source: _mode(target) for source, target in ours.items()}
            written = held.enter_context(_written_beside(moves, modes))
            fresh = [(folder, _written_folder(folder, unpacked, held)) for folder in whole]
            for scratch, target in written.items():
                _put(scratch, target)
            aside = [_replace_folder(folder, scratch) for folder, scratch in fresh]
    except OSError as error:
        raise of_disk(error.filename or homes.state, error, _HINT) from error
    restored = (*moves.values(), *(folder.target for folder in whole))
    return Restored(restored, tuple(path for path in aside if path is not None), left)


def _check_places(targets: Iterable[Path], home: Path) -> None:
    """Refuse places that are none of the configuration's: a backup may be forged."""
    for target in targets:
        if not target.parent.resolve().is_relative_to(home.resolve()):
            raise UserError(
                f"{target}: a link leads out of {home}: expected a place in that folder",
                "take the link away, or restore to another folder: --config FOLDER/cluster.yaml",
            )
        if target.is_file() and target.stat().st_mode & _EXECUTABLE:
            raise UserError(
                f"{target}: is a program there: expected a file of the configuration",
                "move it away; if it is none, `chmod a-x` says so; where a mount takes no modes, restore to another "
                "folder: --config FOLDER/cluster.yaml",
            )


def _moves(unpacked: Path, homes: Homes) -> Iterator[tuple[Path, Path]]:
    """Yield source and target of every file but those of folders that go together."""
    places = {STATE: homes.state, DELIVERY: homes.delivery, CONFIG: homes.config}
    whole = [folder.source(unpacked) for folder in _folders(homes)]
    for name, home in places.items():
        if home is None:
            continue
        for path in sorted((unpacked / name).rglob("*")):
            if path.is_file() and path.parent not in whole:
                yield path, home / path.relative_to(unpacked / name)


def _left(unpacked: Path, homes: Homes, folders: Sequence[_Folder]) -> Iterator[Path]:
    """Yield what is there of the state, but not in the backup."""
    for folder in folders:
        if folder.held_in(folder.target) is not None:
            yield folder.target
    for name in (*SQLITE_FILES, *LOGS):
        if (homes.state / name).exists() and not (unpacked / STATE / name).exists():
            yield homes.state / name


def _is_same(source: Path, target: Path) -> bool:
    """Whether what is restored is at its place already; an SQLite file with a log beside it is more than its bytes."""
    has_log = os.path.lexists(_beside(target, sqlite_file.LOGS[0]))
    return target.is_file() and not has_log and source.read_bytes() == target.read_bytes()


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(target.name + suffix)


def _mode(target: Path) -> int:
    """Return the mode of a file of the configuration: that of the one before; else services can read it."""
    return stat.S_IMODE(target.stat().st_mode) & 0o666 if target.is_file() else 0o644


@contextmanager
def _without_service(folder: _Folder, place: Path) -> Iterator[None]:
    """Hold the lock that a folder's service would hold, in the folder or one that takes its place."""
    _make(place, folder.mode)
    with (place / folder.lock).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"{place}: {folder.service} uses this state", "stop it first") from error
        _give_to_owner_of(place, place / folder.lock)
        yield


def _make(folder: Path, mode: int) -> None:
    """Make a folder, and those above it, for whom the one belongs in which they begin."""
    if not folder.is_dir():
        _make(folder.parent, 0o755)
        folder.mkdir(mode, exist_ok=True)
        _give_to_owner_of(folder.parent, folder)


def _written_folder(folder: _Folder, unpacked: Path, held: ExitStack) -> Path:
    """Write a whole folder beside its place, locked; what is not in place in the end is removed."""
    scratch = folder.target.with_name(folder.target.name + RESTORING)
    if scratch.is_symlink():
        # It would be written through.
        scratch.unlink()
    shutil.rmtree(scratch, ignore_errors=True)
    held.callback(shutil.rmtree, scratch, ignore_errors=True)
    held.enter_context(_without_service(folder, scratch))
    for path in sorted(folder.source(unpacked).glob("*")):
        if path.name == MANIFEST:
            path.write_bytes(without(path.read_bytes(), _OF_ARCHIVE))
        _write(path, scratch / path.name, _STATE_MODE)
    return scratch


def _replace_folder(folder: _Folder, scratch: Path) -> Path | None:
    """Put a whole folder in place by one rename; return where the one before is now."""
    name = f"{folder.target.name}.before-restore-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    aside = next(path for path in map(folder.target.with_name, names) if not os.path.lexists(path))
    is_worth_keeping = folder.held_in(folder.target) is not None
    folder.target.rename(aside)
    scratch.rename(folder.target)
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
            scratch = target.with_name(f".{target.name}{RESTORING}")
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
    for suffix in sqlite_file.LOGS:
        # Of the SQLite file that is there: they would be taken for ours, so they go first.
        _beside(target, suffix).unlink(missing_ok=True)
    scratch.replace(target)


def _give_to_owner_of(folder: Path, path: Path) -> None:
    """Give a file to whom its folder belongs: root restores what a service then writes."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
