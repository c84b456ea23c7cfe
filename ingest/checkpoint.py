"""The bridge's memory on disk: input position and the state of every window, all of one moment or none of it.

Frames are Arrow files named by a generation; a manifest names the files that belong together and is replaced by rename.
Files that no manifest names are left-overs of a crash and are removed. The manifest has checksums of the files and of
itself: what a disk has damaged is reported as such, and is given to no parser, which may end the process by it.
"""

import fcntl
import json
import os
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import polars as pl

from app.errors import UserError, of_disk

VERSION = 2
"""Format of the checkpoint; another version refuses to read it."""

MANIFEST = "manifest.json"
LOCK = "lock"
RESTORING = ".restoring"
"""How the folder beside ends that takes the checkpoint's place once a restore has written all of it."""
_HOUR = 3600
_BLOCK = 1 << 20
_CHECK = b', "check": '
"""What stands before the manifest's own checksum, which comes last. Manifests of before there was one have none."""


@dataclass(frozen=True, slots=True, eq=False)
class Later:
    """A frame that is made only when it is written: it stays the same as long as `of` is the same object."""

    of: object
    make: Callable[[], pl.DataFrame]


Frames = dict[str, pl.DataFrame | Later]


def made(frame: pl.DataFrame | Later) -> pl.DataFrame:
    """Return the frame itself."""
    return frame.make() if isinstance(frame, Later) else frame


def check_version(path: Path, found: object) -> None:
    """UserError if a manifest's version is not ours."""
    if found == VERSION:
        return
    if isinstance(found, int) and found > VERSION:
        raise UserError(
            f"{path}: written by a newer clusterflow (format {found}, this one reads {VERSION})",
            "install that version again, or restore a backup of before; nothing was changed",
        )
    raise UserError(
        f"{path}: written by another version (format {found}, expected {VERSION})",
        "finish with that version until the spool is read and stop it, then move the folder away",
    )


def files_of(manifest: dict[str, Any]) -> list[str]:
    """Return the names of the files that belong to a manifest."""
    return sorted({*manifest["files"].values(), *manifest["kept"]})


def without(manifest: bytes, names: Collection[str]) -> bytes:
    """Return a manifest without some of its notes; a broken one as it is: the bridge refuses it."""
    try:
        document = json.loads(manifest)
        notes = {name: note for name, note in document["notes"].items() if name not in names}
        fields = {name: value for name, value in document.items() if name != "check"}
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        return manifest
    return _checked(json.dumps(fields | {"notes": notes}).encode())


def damaged_files(manifest: bytes, files: Mapping[str, IO[bytes]]) -> str | None:
    """Return the name of a file of a checkpoint that is not what it was when it was saved; None if all are.

    Args:
        manifest: its text, which is JSON; one of before there were checksums says nothing.
        files: those that `files_of` names, open; they are read to their ends and rewound.
    """
    sums = json.loads(manifest).get("sums", {})
    if not _is_whole(manifest, sums):
        return MANIFEST
    for name, file in files.items():
        check = _sum_of(file)
        file.seek(0)
        if sums.get(name, check) != check:
            return name
    return None


class Checkpoint:
    """A folder that holds the newest checkpoint.

    Args:
        folder: made if missing; locked until `close`.

    Raises:
        UserError: another process has it, or it cannot be written.
        ClusterflowError: its disk is full.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / LOCK).open("w")
        except OSError as error:
            raise of_disk(folder, error, "set bridge.state to a folder that this user may write") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"{folder}: another bridge uses this state", "stop it, or set bridge.state") from error
        self._generation = 0
        self._files: dict[str, str] = {}
        self._saved: dict[str, object] = {}
        self._kept: dict[str, tuple[int, str]] = {}
        self._sums: dict[str, int] = {}

    def close(self) -> None:
        """Let another bridge have the folder."""
        self._lock.close()

    def load(self) -> tuple[dict[str, pl.DataFrame], dict[str, Any]] | None:
        """Return the newest checkpoint's frames and notes; None if there is none; UserError if damaged or half."""
        path = self.folder / MANIFEST
        try:
            text = path.read_bytes()
            manifest = json.loads(text)
        except FileNotFoundError:
            if (left := self.folder.with_name(self.folder.name + RESTORING)).exists():
                raise UserError(
                    f"{self.folder}: a restore ended in the middle",
                    f"run it again, with --force; or remove {left} to begin with nothing",
                ) from None
            self._sweep()
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(str(error)) from error
        try:
            check_version(path, manifest.get("version"))
            notes = manifest["notes"]
            self._generation, self._files = manifest["generation"], manifest["files"]
            self._kept = {name: (hour, table) for name, (hour, table) in manifest["kept"].items()}
            self._sums = manifest.get("sums", {})
            if not _is_whole(text, self._sums):
                raise self._damaged("the manifest is not what it was")
            frames = {name: self._read(file) for name, file in self._files.items()}
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise self._damaged("the manifest is not one of ours") from error
        self._sweep()
        self._saved = {**frames}
        return frames, notes

    def save(self, frames: Frames, notes: dict[str, Any]) -> None:
        """Make this the newest checkpoint. A frame that is the same object as last time is not written again.

        Raises:
            OSError: the disk is full or broken; the checkpoint before still holds, and the same may be tried again.
        """
        self._generation += 1
        files: dict[str, str] = {}
        fresh: list[tuple[str, pl.DataFrame | Later]] = []
        same = {name: frame.of if isinstance(frame, Later) else frame for name, frame in frames.items()}
        for name, frame in frames.items():
            if self._saved.get(name) is same[name]:
                files[name] = self._files[name]
                continue
            files[name] = f"{name}-{self._generation}.arrow"
            fresh.append((files[name], frame))
        scratch = self.folder / f"{MANIFEST}.new"
        try:
            for name, frame in fresh:
                self._write(name, made(frame))
            named = {*files.values(), *self._kept}
            self._sums = {name: check for name, check in self._sums.items() if name in named}
            manifest = {
                "version": VERSION,
                "generation": self._generation,
                "files": files,
                "kept": self._kept,
                "notes": notes,
                "sums": self._sums,
            }
            with scratch.open("wb") as file:
                file.write(_checked(json.dumps(manifest).encode()))
                _to_disk(file)
            scratch.replace(self.folder / MANIFEST)
        except OSError:
            # What no manifest names would take the room that the next try needs.
            for path in (scratch, *(self.folder / name for name, _ in fresh)):
                path.unlink(missing_ok=True)
            raise
        self._files, self._saved = files, same
        _sync_folder(self.folder)
        self._sweep()

    # -- windows that memory has let go, but which an out-of-order backfill may come back to ---------

    def keep(self, table: str, rows: pl.DataFrame, window: str) -> None:
        """Put rows of evicted windows aside, an hour a file; in force with the next `save`. OSError as there."""
        for (hour,), part in rows.group_by(pl.col(window) // _HOUR):
            name = f"kept-{table}-{hour}-{self._generation}.arrow"
            self._write(name, part)
            self._kept[name] = (int(str(hour)), table)

    def take_back(self, table: str, windows: pl.Series) -> list[pl.DataFrame]:
        """Return the rows put aside for the hours of these windows; they are no longer kept from the next `save` on."""
        hours = set((windows // _HOUR).unique().to_list())
        names = [name for name, (hour, owner) in self._kept.items() if owner == table and hour in hours]
        frames = [self._read(name) for name in names]
        for name in names:
            del self._kept[name]
        return frames

    def _write(self, name: str, frame: pl.DataFrame) -> None:
        # What has dictionaries is in few bytes already: to compress it takes longer than to write it.
        is_dense = any(isinstance(dtype, pl.Enum) for dtype in frame.dtypes)
        with (self.folder / name).open("w+b") as file:
            # Straight there: in memory, records of seconds would take twice their size.
            frame.write_ipc(file, compression="uncompressed" if is_dense else "lz4")
            _to_disk(file)
            file.seek(0)
            self._sums[name] = _sum_of(file)

    def _read(self, name: str) -> pl.DataFrame:
        """Return a file's frame; UserError where it is not what it was."""
        try:
            data = (self.folder / name).read_bytes()
            if self._sums.get(name, zlib.crc32(data)) != zlib.crc32(data):
                raise self._damaged(f"{name} is not what it was")
            return pl.read_ipc(BytesIO(data))
        except (OSError, pl.exceptions.PolarsError) as error:
            raise self._damaged(str(error)) from error

    def _sweep(self) -> None:
        wanted = {*self._files.values(), *self._kept}
        for path in self.folder.glob("*.arrow"):
            if path.name not in wanted:
                path.unlink(missing_ok=True)

    def _damaged(self, why: str) -> UserError:
        return UserError(
            f"{self.folder}: the checkpoint is damaged: {why}",
            "move the folder away: the bridge then starts over from the spool files that are still there",
        )


def _checked(manifest: bytes) -> bytes:
    """Return a manifest with its own checksum as its last entry."""
    return b"%b%b%d}" % (manifest[:-1], _CHECK, zlib.crc32(manifest[:-1]))


def _is_whole(manifest: bytes, sums: Mapping[str, int]) -> bool:
    """Whether a manifest is what it was; one of before there were checksums is believed."""
    if not sums and _CHECK not in manifest:
        return True
    return _checked(manifest.rpartition(_CHECK)[0] + b"}") == manifest


def _sum_of(file: IO[bytes]) -> int:
    """Return the checksum of a file's bytes from here on."""
    check = 0
    while block := file.read(_BLOCK):
        check = zlib.crc32(block, check)
    return check


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
