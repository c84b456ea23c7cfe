"""What becomes of an archive's files: several are merged into one, or put in order, and it is told what counts."""

from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from archive import layout, schema
from archive.manifest import File, Tally
from archive.once import counted_once, with_counted
from archive.tally import NOTHING, best_of, is_whole, numbered, probe, read_tally, write_tally


@dataclass(frozen=True, slots=True)
class Job:
    """Files that become others.

    Attributes:
        groups: files whose rows are put together, and the names of what becomes of them.
        is_final: the new files are in order, each group's over all of its.
        level: how often that was merged.
        among: all files of an hour that is over: which of the new rows count is told by them.
        is_tally: the inputs' rows are added to the tally of their hour.
        known: the tally of their hour, if there is one.
    """

    groups: tuple[tuple[tuple[File, ...], tuple[str, ...]], ...]
    is_final: bool = False
    level: int = 0
    among: tuple[File, ...] = ()
    is_tally: bool = False
    known: Tally | None = None

    @property
    def inputs(self) -> list[File]:
        """All files that it reads."""
        return [file for files, _ in self.groups for file in files]

    @property
    def names(self) -> list[str]:
        """All files that it writes."""
        return [name for _, names in self.groups for name in names]


def merged(folder: Path, job: Job) -> list[File] | Tally:
    """Do a job; return the new files, or the hour's tally. OSError, and what polars raises."""
    if job.is_tally:
        return _tallied(folder, job)
    among = pl.scan_parquet([folder / file.name for file in job.among], hive_partitioning=False) if job.among else None
    decided = sum(one.ranked for one in job.among)
    # A tally of all of them tells at once; else all are read for each file.
    has_all = job.among and all(one.tallied for one in job.among)
    known = job.known if job.known and has_all and is_whole(folder, job.known) else None
    best = best_of([read_tally(folder, known)]) if known else None
    made = []
    for files, names in job.groups:
        paths = [folder / file.name for file in files]
        parts = layout.parted(paths, len(names)) if job.is_final else iter([layout.merged(paths)])
        for name in names:
            part = _told(next(parts), best, among)
            file = written(part, folder, name, files[0].hour, job.level, is_final=job.is_final)
            made.append(replace(file, decided=decided, tallied=all(one.tallied for one in files)))
    return made


def _told(rows: pl.DataFrame, best: pl.DataFrame | None, among: pl.LazyFrame | None) -> pl.DataFrame:
    """Return the rows with what of them counts, if there is something to tell it by."""
    if best is not None:
        return with_counted(rows, best)
    if among is None:
        return rows
    return layout.in_order(counted_once(rows.lazy(), among).collect(engine="streaming"))


def _tallied(folder: Path, job: Job) -> Tally:
    paths = [folder / file.name for file in job.inputs]
    rows, known, name = pl.scan_parquet(paths, hive_partitioning=False), job.known, job.names[0]
    told = pl.col(schema.BYTES).filter(pl.col(schema.COUNTED), pl.col(schema.RANK) == 0).sum()
    if known is not None and not is_whole(folder, known):
        raise OSError(f"{known.name} is cut off, or another version of polars numbered its rows")
    before = NOTHING if known is None else read_tally(folder, known)
    more = numbered(rows)
    counted_bytes = write_tally([before, more], folder / name)
    told_bytes = int(rows.select(told).collect(engine="streaming").item()) + (known.told_bytes if known else 0)
    return Tally(name, job.inputs[0].hour, len(before) + len(more), probe(), counted_bytes, told_bytes)


def written(rows: pl.DataFrame, folder: Path, name: str, hour: int, level: int, *, is_final: bool) -> File:
    """Write rows of one hour to a file. OSError, and nothing is left of it."""
    size = layout.write(rows, folder / name, is_final=is_final)
    sums = rows.select(
        first=pl.min(schema.END),
        last=pl.max(schema.END),
        counted=pl.col(schema.BYTES).filter(pl.col(schema.COUNTED)).sum(),
        ranked=(pl.col(schema.RANK) > 0).sum(),
    ).row(0)
    return File(name, hour, rows.height, size, sums[0], sums[1], sums[2], sums[3], level)
