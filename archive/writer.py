"""The archive of one shard, written along with its checkpoint: what the checkpoint names is in it, nothing else.

`seal` writes what was taken since the last time to files that nobody knows yet; the caller saves the notes that it
returns with its checkpoint; `commit` tells readers, and removes what is no longer named. Killed in between, a restart
finds files that no checkpoint names and removes them: their records are read again.

A process beside merges small files of an hour, and sorts them once the hour is over; it then tells of what several
exporters saw which counts. Its result takes their place with the next checkpoint, in the same way.
"""

import errno
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from threading import Event
from typing import Any

import polars as pl

from app.log import Log
from archive import layout, schema
from archive.bucket import Bucket
from archive.manifest import FRESH, HOUR, MOST_TOLD, SORTED, File, Manifest, Tally, read_manifest, write_manifest
from archive.merger import Merger
from archive.merging import Job, written
from archive.tally import ROW, SUFFIX, is_whole
from cluster.model import ArchiveSettings
from cluster.sections.archive import FREE_SHARE

_HOUR, _SUFFIX = "_hour", ".parquet"
_MERGED = 16
"""Files of a level that become one of the next."""
_MOST_ROWS = 1_000_000
"""Rows of a file, about."""
_MOST_TOGETHER = 1_500_000
"""Rows of an hour that is over which are put in order together, half as many again at most: 0.4 GB of memory."""
_MANY, _MEANWHILE = 2_000_000, 700_000
"""Rows that wait of an hour that is not over, with which they are put in order; and how many together, in 0.2 GB."""
_LARGE = _MOST_ROWS // 8
"""Rows of a file that is merged no more before its hour is sorted."""
_TALLIED = 400_000
"""Ranked rows of an hour for which a tally is worth while; with half as much more it is made anew."""
_MOST_TALLIED = 16_000_000
"""Rows above which a tally is not made anew: it would write 0.5 GB each time."""
_PART_ROWS = 500_000
"""Rows that wait in memory, about 50 MB: a checkpoint makes one file of them, since merging reads each file again."""
_LEAST_FREE = 32 << 20
"""Bytes: a disk with less is full."""
_LATE_SECONDS = 1200
"""How long after its end an hour is taken to be over."""
_AGAIN_SECONDS = 60
"""After which a bucket that failed is tried again, and an hour whose files could not be merged."""


class Archive:
    """The files of one shard.

    Args:
        folder: of this shard alone; made if missing.
        settings: its limits.
        log: for trouble.
        merger: merges for several archives; None: one of its own.
        partitions: of the topic, where this is one of them.

    Attributes:
        counts: what happened since `take_counts`, by reason.

    Raises:
        UserError: the bucket of the settings cannot be used here.
    """

    def __init__(
        self,
        folder: Path,
        settings: ArchiveSettings,
        log: Log,
        *,
        merger: Merger | None = None,
        partitions: int = 0,
    ) -> None:
        self.folder = folder
        self._settings = settings
        self._log = log
        self._manifest = Manifest()
        self._waiting: list[pl.DataFrame] = []
        self._told: dict[str, Any] | None = None
        self._newest = 0
        self._shut = False
        self._kept_notes: dict[str, Any] | None = None
        self._merger = merger or Merger()
        self._is_alone = merger is None
        self._partitions = partitions
        self._merging: tuple[Job, Future[list[File] | Tally]] | None = None
        self._passed_over: dict[int, float] = {}
        self._bucket = Bucket(settings) if settings.bucket else None
        # Of its own: a bucket that is away keeps nobody from merging.
        self._copier = ThreadPoolExecutor(1, "bucket") if self._bucket is not None else None
        self._copying: Future[set[str]] | None = None
        self._stop = Event()
        self._copies = set[str]()
        self._away_since, self._again = 0.0, 0.0
        self._sealed: float | None = None
        self.counts: dict[str, int] = {}

    def close(self) -> None:
        """End what goes on beside; what was merged or copied is done again another time."""
        if self._is_alone:
            self._merger.close()
        self._drop_merging()
        if self._copier is not None:
            self._stop.set()
            self._copier.shutdown(cancel_futures=True)

    def configure(self, settings: ArchiveSettings) -> None:
        """Take other limits."""
        self._settings = settings

    # -- with the checkpoint -----------------------------------------------------------------------

    def load(self, notes: dict[str, Any] | None, *, is_backfill: bool = False) -> None:
        """Begin where a checkpoint stands; without one with what readers know, or as a new backfill with nothing.

        Where the files cannot be had (another version's, a disk that is not mounted) nothing is written or removed, and
        the notes stay as they are: what comes meanwhile is lost to the archive, told and counted.
        """
        try:
            for name in (FRESH, SORTED):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            found = None if is_backfill and notes is None else read_manifest(self.folder)
            self._manifest = Manifest.of(notes) if notes is not None else found or Manifest()
            self._manifest.partitions = self._partitions or self._manifest.partitions
            if self._bucket is not None:
                self._manifest.place = self._manifest.place or uuid.uuid4().hex[:12]
            # What the bucket has may have been let go just before the process was killed.
            here = [file for file in self._manifest.files if not file.copied]
            if here and not any((self.folder / file.name).exists() for file in here):
                raise FileNotFoundError(f"none of its {len(here)} files is there: is its disk mounted?")
            if notes is None and self._manifest.files:
                hint = "what the spool still holds is read again, and is in the archive twice"
                self._log.warning("archive_checkpoint_lost", folder=self.folder, hint=hint)
            self._newest = max((file.last for file in self._manifest.files), default=0)
            self._forget_missing()
            # Before what it no longer names goes: readers have the list of before a crash.
            self.commit()
            self._sweep()
        except (OSError, ValueError) as error:
            # The bridge goes on: what it cannot write here is counted.
            self._shut = True
            self._kept_notes = notes
            hint = "nothing in it is changed; mend it, or move it away and start once with archive.enabled: false"
            self._log.warning("archive_unusable", folder=self.folder, why=str(error), hint=hint)

    def take(self, rows: pl.DataFrame) -> None:
        """Take rows (schema.SCHEMA, texts also as Enums); they are in the archive with the next checkpoint."""
        if self._shut:
            self._count("lost_rows", rows.height)
        elif rows.height:
            self._waiting.append(rows)
            if sum(waiting.height for waiting in self._waiting) >= _PART_ROWS:
                self._write_out()

    def _write_out(self) -> None:
        """Write what waits; nobody knows these files before the next checkpoint."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            rows = layout.joined(waiting)
            self._newest = max(self._newest, int(rows.get_column(schema.END).max() or 0))  # type: ignore[arg-type]
            hours = rows.get_column(schema.END) // HOUR
            if hours.min() == hours.max():
                self._put(rows)
            else:
                for part in rows.with_columns(hours.alias(_HOUR)).partition_by(_HOUR, include_key=False):
                    self._put(part)

    def seal(self, now: float) -> dict[str, Any] | None:
        """Write what was taken; return the notes for the checkpoint.

        A disk that is full, or a limit, costs the oldest hours; where that does not help, what was taken is dropped,
        told and counted.

        Args:
            now: epoch seconds by which files grow old.
        """
        if self._shut:
            return self._kept_notes
        self._adopt()
        self._note_copies()
        self._sealed = now
        self._write_out()
        if now:
            # After a clock that was ahead each hour would be over before it has begun: a sorted file a checkpoint.
            self._newest = min(self._newest, int(now))
        self._retain(now)
        self._merge()
        return self._manifest.notes()

    def commit(self) -> None:
        """Tell readers: the checkpoint that holds the notes is saved."""
        if self._shut:
            return
        notes = self._manifest.notes()
        if notes != self._told:
            try:
                write_manifest(self.folder, notes)
                self._told = notes
                self._sweep()
            except OSError as error:
                # Readers see the files of before, and a merged one is there until the next time.
                self._log.sparse("archive_not_told", why=str(error))
                return
        self._copy()

    def tidy(self, now: float) -> None:
        """Merge and delete what is due and can be, where nobody writes any more."""
        self._newest = max(self._newest, int(now))
        while True:
            self.seal(now)
            self.commit()
            busy: list[Future[Any]] = [] if self._merging is None else [self._merging[1]]
            busy += [] if self._copying is None else [self._copying]
            if not busy:
                return
            wait(busy)

    @property
    def is_told(self) -> bool:
        """Whether readers have the list of now."""
        return self._told == self._manifest.notes()

    @property
    def is_usable(self) -> bool:
        """Whether its files can be had."""
        return not self._shut

    def take_counts(self) -> dict[str, int]:
        """Return what happened since the last time."""
        counts, self.counts = self.counts, {}
        return counts

    @property
    def size(self) -> int:
        """Bytes of all files."""
        tallies = sum(tally.rows * ROW.itemsize for tally in self._manifest.tallies)
        return sum(file.size for file in self._manifest.files) + tallies

    @property
    def is_merging(self) -> bool:
        """Whether something is being merged, or was and is not adopted yet."""
        return self._merging is not None

    @property
    def readings(self) -> dict[str, float]:
        """Return how things stand, by reason: bytes on this disk, and of a bucket what waits for it."""
        found: dict[str, float] = {"size_bytes": self.size}
        if self._bucket is not None:
            away = time.monotonic() - self._away_since if self._away_since else 0
            hours = {file.hour for file in self._manifest.whole_files(self._over) if not file.copied}
            found |= {"uncopied_hours": len(hours), "bucket_away_seconds": round(away)}
        return found

    def _count(self, reason: str, amount: int) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + amount

    # -- files -------------------------------------------------------------------------------------

    def _name(self, hour: int, place: str, suffix: str = _SUFFIX) -> str:
        self._manifest.next += 1
        stamp = time.strftime("%Y-%m-%dT%H", time.gmtime(hour))
        return f"{place}/{stamp}-{self._manifest.next:08d}{suffix}"

    def _put(self, rows: pl.DataFrame) -> None:
        hour = int(rows.item(0, schema.END)) // HOUR * HOUR
        name = self._name(hour, FRESH)
        while True:
            try:
                file = written(rows, self.folder, name, hour, 0, is_final=False)
            except OSError as error:
                if self._is_full(error) and self._delete_oldest("disk full"):
                    continue
                self._manifest.lost.append((hour, hour, rows.height, str(error)))
                self._count("lost_rows", rows.height)
                hint = "the points have these records: make room on its disk, or set archive.enabled: false"
                self._log.sparse("archive_not_written", rows=rows.height, why=str(error), hint=hint)
            else:
                self._manifest.files.append(file)
                self._manifest.taken += rows.height
                self._count("rows", rows.height)
            return

    def _retain(self, now: float) -> None:
        limit = (now - self._settings.keep) // HOUR * HOUR
        while self._delete_oldest("age", limit):
            pass
        while self.size > self._settings.size and self._delete_oldest("size"):
            pass
        while self._is_tight() and self._delete_oldest("disk"):
            pass

    def _is_tight(self) -> bool:
        try:
            disk = shutil.disk_usage(self.folder)
        except OSError:
            return False
        return disk.free < disk.total * FREE_SHARE

    def _is_full(self, error: OSError) -> bool:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        # polars does not always hand on what the system said.
        return self._free() < _LEAST_FREE

    def _free(self) -> int:
        try:
            return shutil.disk_usage(self.folder).free
        except OSError:
            return _LEAST_FREE

    def _delete_oldest(self, why: str, before: float | None = None) -> bool:
        """Delete the oldest hour, rather one that is in the bucket; False if there is none.

        Args:
            why: told in the log.
            before: of those that begin before it, and with a bucket only what it has; without, not the only hour.
        """
        hours = {file.hour for file in self._manifest.files if before is None or file.hour < before}
        copied = hours - {file.hour for file in self._manifest.files if file.name not in self._copies}
        if before is not None and self._bucket is not None:
            hours = copied
        if len(hours) < (2 if before is None else 1):
            return False
        oldest = min(copied or hours)
        if self._merging is not None and self._merging[0].inputs[0].hour == oldest:
            self._drop_merging()
        gone = [file for file in self._manifest.files if file.hour == oldest]
        names = [file.name for file in gone]
        names += [tally.name for tally in self._manifest.tallies if tally.hour == oldest]
        self._manifest.files = [file for file in self._manifest.files if file.hour != oldest]
        rows = sum(file.rows for file in gone)
        if oldest not in copied:
            self._manifest.deleted.append((oldest, rows))
        # At once: the room is needed now. A checkpoint that still names them finds them gone, and says so.
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
        self._drop_tally(oldest)
        what = "moved" if oldest in copied else "deleted"
        self._count(f"{what}_hours", 1)
        self._count(f"{what}_rows", rows)
        self._log.sparse(f"archive_hour_{what}", level="info", hour=oldest, rows=rows, why=why)
        return True

    def _forget_missing(self) -> None:
        """Note files that are gone or cut off: what they held is lost."""
        whole: list[File] = []
        for file in self._manifest.files:
            if size_of(self.folder / file.name) == file.size:
                whole.append(file)
                continue
            if file.copied:
                # Killed after the disk let it go.
                continue
            why = f"{file.name} is gone or cut off"
            self._manifest.lost.append((file.hour, file.hour, file.rows, why))
            self._count("lost_rows", file.rows)
            self._log.warning("archive_file_lost", file=file.name, rows=file.rows)
        self._manifest.files = whole
        for tally in self._manifest.tallies:
            rows = sum(file.ranked for file in whole if file.tallied and file.hour == tally.hour)
            if rows != tally.rows or not is_whole(self.folder, tally):
                self._drop_tally(tally.hour)

    def _sweep(self) -> None:
        named = {file.name for file in self._manifest.files} | {tally.name for tally in self._manifest.tallies}
        if self._merging is not None:
            named.update(self._merging[0].names)
        for path in (path for suffix in (_SUFFIX, SUFFIX) for path in self.folder.glob(f"*/*{suffix}")):
            if f"{path.parent.name}/{path.name}" not in named:
                path.unlink(missing_ok=True)

    # -- bucket ------------------------------------------------------------------------------------

    @property
    def _over(self) -> int:
        return (self._newest - _LATE_SECONDS) // HOUR * HOUR

    def _copy(self) -> None:
        """Have the bucket brought up to date, if there is something to do; the checkpoint is saved."""
        if self._bucket is None or self._copier is None:
            return
        self._copies = {file.name for file in self._manifest.files if file.copied}
        if self._sealed is None or self._copying is not None:
            return
        due = any(not file.copied for file in self._manifest.whole_files(self._over))
        if due and time.monotonic() >= self._again:
            manifest = replace(self._manifest, files=[*self._manifest.files])
            self._copying = self._copier.submit(
                self._bucket.copy, self.folder, manifest, self._over, self._sealed, self._stop.is_set
            )

    def _note_copies(self) -> None:
        """Note what the bucket has."""
        if self._copying is None or not self._copying.done():
            return
        copying, self._copying = self._copying, None
        try:
            there = copying.result()
        except Exception as error:  # noqa: BLE001 - whatever a bucket does, the points go on
            now = time.monotonic()
            self._away_since, self._again = self._away_since or now, now + _AGAIN_SECONDS
            self._count("copy_failures", 1)
            hint = "tried again each minute; hours stay on this disk meanwhile, as long as it has room"
            self._log.sparse("archive_not_copied", bucket=self._settings.bucket, why=str(error), hint=hint)
            return
        self._away_since = 0.0
        fresh = [file for file in self._manifest.files if file.name in there and not file.copied]
        self._count("copied_rows", sum(file.rows for file in fresh))
        self._manifest.files = [replace(file, copied=file.name in there) for file in self._manifest.files]

    # -- merging -----------------------------------------------------------------------------------

    def _merge(self) -> None:
        """Have what is due merged, if nothing is."""
        if self._merging is not None:
            return
        job = self._due()
        if job is None:
            self._merger.rest()
        else:
            self._merging = job, self._merger.submit(self.folder, job)

    def _due(self) -> Job | None:
        now = time.monotonic()
        known = (file for file in self._manifest.files if self._passed_over.get(file.hour, 0.0) <= now)
        for hour, group in groupby(sorted(known, key=_place), key=lambda one: one.hour):
            files = [*group]
            fresh = [file for file in files if file.name.startswith(FRESH)]
            is_over = self._newest >= hour + HOUR + _LATE_SECONDS
            among = tuple(file for file in files if file.ranked)
            ranked = sum(file.ranked for file in among)
            # Once: what comes later still is told by the reader, or a clock that is late had us write hours on end.
            if not is_over or ranked > MOST_TOLD or any(file.decided not in (0, ranked) for file in among):
                among = ()
            if job := self._tallying(hour, files, is_over=is_over):
                return job
            for is_tallied in (True, False):
                # A tally has all rows of a file or none.
                alike = [file for file in fresh if file.tallied == is_tallied]
                if alike and is_over:
                    return self._sorting(_up_to(alike, _MOST_TOGETHER), _MOST_TOGETHER, among)
                if sum(file.rows for file in alike) >= _MANY:
                    return self._sorting(_up_to(alike, 4 * _MANY), _MEANWHILE)
            for kind in {(file.level, file.tallied) for file in fresh}:
                level, _ = kind
                same = [file for file in fresh if (file.level, file.tallied) == kind and file.rows < _LARGE]
                if len(same) >= _MERGED:
                    return Job(((_up_to(same, _MOST_ROWS), (self._name(hour, FRESH),)),), level=level + 1)
            if not fresh and (untold := [file for file in among if not file.decided]):
                return self._sorting((untold[0],), _MOST_ROWS, among)
        return None

    def _tallying(self, hour: int, files: Sequence[File], *, is_over: bool) -> Job | None:
        """Return the job that brings an hour's tally up to date, if it is due; once the hour is over, to tell by it."""
        known = next((tally for tally in self._manifest.tallies if tally.hour == hour), None)
        more = tuple(file for file in files if file.ranked and not file.tallied)
        if not more or any(file.decided for file in files) or (is_over and known is None):
            return None
        rows, fresh = known.rows if known else 0, sum(file.ranked for file in more)
        if rows + fresh > _MOST_TALLIED or (fresh < max(_TALLIED, rows // 2) and not is_over):
            return None
        name = self._name(hour, FRESH, SUFFIX)
        return Job(((_up_to(more, _MOST_ROWS), (name,)),), is_tally=True, known=known)

    def _drop_tally(self, hour: int) -> None:
        """Forget the tally of an hour; `commit` removes its file."""
        self._manifest.tallies = [tally for tally in self._manifest.tallies if tally.hour != hour]
        self._manifest.files = [
            replace(file, tallied=False) if file.hour == hour else file for file in self._manifest.files
        ]

    def _sorting(self, inputs: tuple[File, ...], together: int, among: tuple[File, ...] = ()) -> Job:
        hour = inputs[0].hour
        known = next((tally for tally in self._manifest.tallies if tally.hour == hour), None)
        groups = tuple(
            (group, tuple(self._name(hour, SORTED) for _ in range(_parts(group))))
            for group in _groups(inputs, together)
        )
        return Job(groups, is_final=True, among=among, known=known)

    def _adopt(self) -> None:
        """Put what was made in the place of what it was made of."""
        if self._merging is None or not self._merging[1].done():
            return
        (job, future), self._merging = self._merging, None
        inputs, hour = {one.name for one in job.inputs}, job.inputs[0].hour
        try:
            made = future.result()
        except OSError as error:
            self._log.sparse("archive_not_merged", why=str(error), hint="tried again; small files stay meanwhile")
            # One file that cannot be read keeps no other hour from being merged.
            self._passed_over[hour] = time.monotonic() + _AGAIN_SECONDS
            self._forget_missing()
            return
        self._passed_over.pop(hour, None)
        if isinstance(made, Tally):
            self._manifest.tallies = [one for one in self._manifest.tallies if one.hour != hour] + [made]
            self._manifest.files = [
                replace(one, tallied=True) if one.name in inputs else one for one in self._manifest.files
            ]
            return
        self._manifest.files = [one for one in self._manifest.files if one.name not in inputs] + made
        if not any(file.tallied and not file.decided for file in self._manifest.files if file.hour == hour):
            self._drop_tally(hour)

    def _drop_merging(self) -> None:
        """Give up what is being merged: its inputs are about to change."""
        if self._merging is not None:
            (job, future), self._merging = self._merging, None
            self._merger.give_up(future)
            for name in job.names:
                (self.folder / name).unlink(missing_ok=True)


def size_of(path: Path) -> int:
    """Return a file's size; -1 where it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _up_to(files: Sequence[File], most: int) -> tuple[File, ...]:
    """Return the first files that have together about so many rows: at least one file."""
    chosen: list[File] = []
    rows = 0
    for file in files:
        if chosen and rows + file.rows > most + most // 2:
            break
        chosen.append(file)
        rows += file.rows
    return tuple(chosen)


def _groups(files: Sequence[File], together: int) -> Iterator[tuple[File, ...]]:
    """Yield the files by those that are put in order together."""
    while files:
        group = _up_to(files, together)
        yield group
        files = files[len(group) :]


def _parts(group: Sequence[File]) -> int:
    """Return how many files are made of some."""
    return max(round(sum(file.rows for file in group) / _MOST_ROWS), 1)


def _place(file: File) -> tuple[int, str]:
    return file.hour, file.name
