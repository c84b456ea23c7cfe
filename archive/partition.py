"""The archive of a Kafka partition on the disk of one worker, whose checkpoint is the partition's transaction.

A partition goes from worker to worker, its files stay where they were written. So each worker that had it has a folder
of it, and readers take them together. The transaction says of each folder how far it goes (`marks`), and hands that on:

- `seal` writes the files, and beside the list for readers the one that the transaction is about to make true;
- the transaction is committed with the marks; `commit` puts the new list in the place of the old.

A transaction whose answer was lost may be committed or not, and the next one says more: its list stays until one of
them is known to be committed. Killed before that, or thrown out of the group, the worker leaves all these lists;
whoever opens the folder next knows by the marks which of them holds. A lock keeps a folder to one process: where
another still has it (thrown out, and it does not know yet; a second worker here), a partition gets another folder
beside it.
"""

import fcntl
import json
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

import polars as pl

from app.log import Log
from archive.manifest import HOUR, MANIFEST, pending_lists, pending_name, write_manifest
from archive.merger import Merger
from archive.writer import Archive
from cluster.model import ArchiveSettings

Marks = Mapping[str, Sequence[int]]
"""How far each folder goes: its id -> files named, rows taken."""

_LOCK = "lock"
_MOST_FOLDERS = 200
_NAMED = re.compile(r"(.*k(\d+))(\.\d+)?")


def partition_of(folder: Path) -> tuple[str, int | None]:
    """Return the shard whose rows a folder has, and the partition if it is one's."""
    named = _NAMED.fullmatch(folder.name)
    return (named[1], int(named[2])) if named else (folder.name, None)


@dataclass(slots=True)
class Claim:
    """A folder that no other process has.

    Attributes:
        folder: where the files are.
        lock: descriptor; None where the disk takes none, or it was given back.
    """

    folder: Path
    lock: int | None

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Claim a folder; BlockingIOError where somebody has it, another OSError where it cannot be."""
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise
        return cls(folder, lock)

    @classmethod
    def of_shard(cls, root: Path, shard: str) -> Self:
        """Claim the first folder of a shard that nobody has."""
        for number in count():
            folder = root / (f"{shard}.{number}" if number else shard)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                return cls.of(folder)
            except BlockingIOError:
                continue
            except OSError:
                # Writing to it says why.
                return cls(folder, None)
        raise AssertionError

    def close(self) -> None:
        """Leave the folder to others."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None


class PartitionArchive:
    """The folder of a partition.

    Args:
        claim: the folder.
        settings: limits of this folder.
        log: for trouble.
        marks: what the partition's last transaction says; None: unknown, and there is one list.
        partitions: of the topic.
        merger: merges for all partitions; None: one of its own.
    """

    def __init__(
        self,
        claim: Claim,
        settings: ArchiveSettings,
        log: Log,
        *,
        marks: Marks | None,
        partitions: int = 0,
        merger: Merger | None = None,
    ) -> None:
        self._claim = claim
        self._folder = claim.folder
        self._log = log
        self._marks = {place: [*mark] for place, mark in (marks or {}).items()}
        self._id = self._place() if claim.lock is not None else ""
        self._archive = Archive(self._folder, settings, log, merger=merger, partitions=partitions)
        self._pending: Path | None = None
        notes = self._settled()
        if notes is not None and marks is not None:
            self._compare(notes)
        self._archive.load(notes)
        self._settle()

    def configure(self, settings: ArchiveSettings) -> None:
        """Go on by other limits of this folder."""
        self._archive.configure(settings)

    def _place(self) -> str:
        """Return the id of this folder, which no copy of its path has."""
        path = self._folder / "id"
        try:
            return path.read_text(encoding="ascii")
        except OSError:
            name = uuid.uuid4().hex
            try:
                path.write_text(name, encoding="ascii")
            except OSError as error:
                self._log.warning("archive_unusable", folder=self._folder, why=str(error))
            return name

    def _settled(self) -> dict[str, Any] | None:
        """Return the list that holds: the last one that the marks reach."""
        holds = _notes(self._folder / MANIFEST)
        marked = self._marks.get(self._id, (0, 0))[0]
        for path in pending_lists(self._folder):
            notes = _notes(path)
            if notes is not None and (holds["next"] if holds else 0) <= notes["next"] <= marked:
                self._pending, holds = path, notes
        return holds

    def _settle(self) -> None:
        """Have the list that holds in its place, for readers and for the next start; a rename needs no room."""
        if not self._archive.is_usable:
            return
        pending = self._pending
        try:
            for path in pending_lists(self._folder):
                if path != pending:
                    path.unlink(missing_ok=True)
            # Last: killed before it, the others are no longer there to be taken for it.
            if pending is not None and self._archive.is_told:
                pending.unlink(missing_ok=True)
            elif pending is not None:
                pending.replace(self._folder / MANIFEST)
            self._pending = None
        except OSError as error:
            self._log.sparse("archive_not_told", why=str(error))

    def _compare(self, notes: dict[str, Any]) -> None:
        """Tell where the folder has less than the transaction says, or more."""
        taken, marked = notes.get("taken", 0), self._marks.get(self._id, (0, 0))[1]
        if taken < marked:
            hour = max((file["last"] for file in notes["files"]), default=0) // HOUR * HOUR
            lost = marked - taken
            notes["lost"].append((hour, hour + HOUR, lost, "the list of the last files was not written"))
            notes["taken"] = marked
            self._archive.counts["lost_rows"] = lost
            self._log.warning("archive_list_lost", folder=self._folder, rows=lost)
        elif taken > marked:
            hint = "what the topic still holds is read again, and is in the archive twice: move the folder away"
            self._log.warning("archive_checkpoint_lost", folder=self._folder, hint=hint)

    def take(self, rows: pl.DataFrame) -> None:
        """Take rows (schema.SCHEMA); they are in the archive with the next transaction."""
        self._archive.take(rows)

    def seal(self, now: float) -> dict[str, list[int]]:
        """Write what was taken; return the marks for the transaction."""
        notes = self._archive.seal(now)
        if notes is not None and self._archive.is_usable:
            name = pending_name(notes)
            try:
                write_manifest(self._folder, notes, name)
                self._pending = self._folder / name
            except OSError as error:
                # Killed before `commit`, the rows are lost: the marks tell how many.
                self._log.sparse("archive_not_told", why=str(error))
            self._marks.pop(self._id, None)
            self._marks[self._id] = [notes["next"], notes["taken"]]
            while len(self._marks) > _MOST_FOLDERS:
                del self._marks[next(iter(self._marks))]
        return self._marks

    def commit(self) -> None:
        """Tell readers: the transaction that holds the marks is committed."""
        self._archive.commit()
        self._settle()

    def tidy(self, now: float) -> None:
        """Merge and delete what is due, of a folder that nobody writes to."""
        self._archive.tidy(now)

    def close(self) -> None:
        """Leave the folder to others."""
        self._archive.close()
        self._claim.close()

    def take_counts(self) -> dict[str, int]:
        """Return what happened since the last time."""
        return self._archive.take_counts()

    @property
    def readings(self) -> dict[str, float]:
        """How things stand, by reason."""
        return self._archive.readings


def tidy_idle(
    root: Path,
    settings: ArchiveSettings,
    log: Log,
    marks: Callable[[int], Marks | None],
    now: float,
    *,
    merger: Merger | None = None,
) -> None:
    """Keep the limits also where partitions have gone to other workers, and settle what killed ones left.

    Args:
        root: where the folders of all shards are.
        settings: limits of one partition.
        log: for trouble.
        marks: of a partition's last transaction; None: not to be had now.
        now: epoch seconds.
        merger: merges for all of them; None: each has one of its own.
    """
    for lock in sorted(root.glob(f"*/{_LOCK}")):
        _, partition = partition_of(lock.parent)
        if partition is None:
            continue
        try:
            claim = Claim.of(lock.parent)
        except BlockingIOError:
            continue
        except OSError as error:
            log.sparse("archive_unusable", folder=lock.parent, why=str(error))
            continue
        with closing(claim):
            is_decided = not pending_lists(lock.parent)
            found = None if is_decided else marks(partition)
            if found is None and not is_decided:
                continue
            try:
                with closing(PartitionArchive(claim, settings, log, marks=found, merger=merger)) as folder:
                    folder.tidy(now)
            except Exception as error:  # noqa: BLE001 - whatever ails one folder, the others need their limits
                log.sparse("archive_not_tidied", folder=lock.parent, why=f"{type(error).__name__}: {error}")


def _notes(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
        return found if isinstance(found["next"], int) and isinstance(found["files"], list) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None
