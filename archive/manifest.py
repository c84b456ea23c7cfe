"""Which files make up an archive: the list that its writer's checkpoint holds, and a copy for readers."""

import json
import os
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from archive.schema import VERSION

MANIFEST = "manifest.json"
FRESH, SORTED = "fresh", "sorted"
"""Folders: files as they come; and files in order, which never change once their hour is over."""

MOST_TOLD = 64_000_000
"""Ranked rows of an hour, at most, of which the writer tells what counts; of more, readers do. Each of its files is
compared with all of them, 0.2 s a million."""

HOUR = 3600
_MOST_NOTED = 2000


@dataclass(frozen=True, slots=True)
class File:
    """One file. Times are epoch seconds, of the records' ends.

    Attributes:
        name: path below the archive's folder.
        hour: begin of the hour of all its rows.
        size: bytes on disk.
        first, last: ends of its rows.
        counted_bytes: sum of the bytes of `counted` rows.
        ranked: rows of which it is asked who counts.
        level: how often it was merged.
        decided: so many ranked rows of its hour were compared to tell which of its own are `counted`; 0: not told.
        tallied: whether its rows are in the tally of its hour.
        copied: whether it is in the bucket.
    """

    name: str
    hour: int
    rows: int
    size: int
    first: int
    last: int
    counted_bytes: int
    ranked: int = 0
    level: int = 0
    decided: int = 0
    tallied: bool = False
    copied: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known already of an hour of which nobody has told what counts: a file of `archive.tally`.

    Attributes:
        name: path below the archive's folder.
        hour: of its rows.
        rows: ranked rows of the files that are `tallied`.
        probe: by which a reader knows whether it numbers conversations in the same way.
        counted_bytes: of ranked rows that count among themselves.
        told_bytes: of the other rows of these files that count.
    """

    name: str
    hour: int
    rows: int
    probe: int
    counted_bytes: int
    told_bytes: int


@dataclass(slots=True)
class Manifest:
    """An archive of one moment.

    Attributes:
        files: that belong to it.
        deleted: hours that made room, with the rows they had.
        lost: rows that could not be written or whose file is gone: first and last hour, rows, why.
        next: number of the next file.
        taken: rows that were ever written.
        partitions: of the topic, where this is one of them.
        tallies: of hours that are not told.
        place: id of this archive in the bucket; empty: it never had one.
    """

    files: list[File] = field(default_factory=list)
    deleted: list[tuple[int, int]] = field(default_factory=list)
    lost: list[tuple[int, int, int, str]] = field(default_factory=list)
    next: int = 0
    taken: int = 0
    partitions: int = 0
    tallies: list[Tally] = field(default_factory=list)
    place: str = ""

    def whole_files(self, over: int) -> list[File]:
        """Return the files of hours before `over` that nothing changes any more."""
        found = []
        for hour, group in groupby(sorted(self.files, key=lambda file: file.hour), key=lambda file: file.hour):
            files = [*group]
            ranked = sum(file.ranked for file in files)
            is_late = any(file.decided not in (0, ranked) for file in files)
            is_told = is_late or ranked > MOST_TOLD or all(file.decided or not file.ranked for file in files)
            if hour < over and is_told and all(file.name.startswith(SORTED) for file in files):
                found += files
        return found

    def ranked(self) -> dict[int, int]:
        """Return the ranked rows of each hour that has any."""
        found: dict[int, int] = {}
        for file in self.files:
            if file.ranked:
                found[file.hour] = found.get(file.hour, 0) + file.ranked
        return found

    def notes(self) -> dict[str, Any]:
        """Return it as plain values."""
        notes = asdict(self)
        for name in ("deleted", "lost"):
            notes[name] = notes[name][-_MOST_NOTED:]
        return {"version": VERSION, **notes}

    @classmethod
    def of(cls, notes: dict[str, Any]) -> Self:
        """Return what `notes` gave; ValueError for another version's."""
        if notes["version"] != VERSION:
            raise ValueError(f"format {notes['version']}, expected {VERSION}")
        return cls(
            [File(**one) for one in notes["files"]],
            [(hour, rows) for hour, rows in notes["deleted"]],
            [(first, last, rows, why) for first, last, rows, why in notes["lost"]],
            notes["next"],
            # Lists of before these were kept.
            notes.get("taken", 0),
            notes.get("partitions", 0),
            [Tally(**one) for one in notes.get("tallies", [])],
            notes.get("place", ""),
        )


def read_manifest(folder: Path) -> Manifest | None:
    """Return a folder's manifest, None without one; ValueError where it is broken or of another version."""
    try:
        return Manifest.of(json.loads((folder / MANIFEST).read_bytes()))
    except FileNotFoundError:
        return None
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError("not a manifest of ours") from error


def pending_name(notes: dict[str, Any]) -> str:
    """Return the name of a list whose transaction is not known to be committed yet; each of several has its own."""
    return f"manifest.pending-{notes['next']}.json"


def pending_lists(folder: Path) -> list[Path]:
    """Return the lists whose transactions are not known to be committed yet, an earlier version's as well."""
    return [*folder.glob("manifest.pending*.json")]


def write_manifest(folder: Path, notes: dict[str, Any], name: str = MANIFEST) -> None:
    """Put the copy for readers in place; OSError."""
    # Of one name, so that one which a full disk cut off is written over.
    scratch = folder / f"{MANIFEST}.new"
    with scratch.open("w", encoding="utf-8") as file:
        json.dump(notes, file)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(folder / name)
