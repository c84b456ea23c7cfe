"""Packet samples between training nodes, each with its own time: what the steps of a job are told from.

The archive adds samples up by conversation and window: it is for a week. Steps want milliseconds, of the last hour or
two. So samples are kept a second time, one by one, in a file a checkpoint. Files that no checkpoint knows are
removed at the next start, for their samples are read again.
"""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

import polars as pl

from app.log import Log
from archive.query import archive_folder
from cluster.model import ArchiveSettings, Cluster

FOLDER = "samples"
"""Below the archive's, a folder a shard."""

TIME, EXPORTER, SRC, DST, SRC_RAIL, DST_RAIL, BYTES = "time", "exporter", "src", "dst", "src_rail", "dst_rail", "bytes"
_NAMES = pl.Categorical()
SCHEMA: dict[str, pl.DataType] = {
    TIME: pl.Int64(),
    EXPORTER: _NAMES,
    SRC: _NAMES,
    DST: _NAMES,
    SRC_RAIL: pl.Int16(),
    DST_RAIL: pl.Int16(),
    BYTES: pl.Int64(),
}
"""Epoch milliseconds, names, rails (-1: none is known), bytes scaled by the sampling rate."""


class Samples:
    """Writes them. A disk that refuses costs samples, which is counted, and nothing else.

    Args:
        folder: of one shard.
        settings: how much is kept.
        log: told of what could not be written.
    """

    def __init__(self, folder: Path, settings: ArchiveSettings, log: Log) -> None:
        self._folder, self._log = folder, log
        self._settings = settings
        self._waiting: list[pl.DataFrame] = []
        self._next = 0
        self.counts: dict[str, int] = {}

    def configure(self, settings: ArchiveSettings) -> None:
        """Take other limits."""
        self._settings = settings

    def load(self, known: int | None) -> None:
        """Begin where a checkpoint stands: `known` is what `seal` gave."""
        files = [*_files(self._folder)]
        self._next = max((number + 1 for number, *_ in files), default=0) if known is None else known
        for number, *_, path in files:
            if number >= self._next:
                path.unlink(missing_ok=True)

    def take(self, rows: pl.DataFrame) -> None:
        """Take rows (SCHEMA); they can be read from the next checkpoint on."""
        if rows.height:
            self._waiting.append(rows)

    def seal(self, now: float) -> int:
        """Write what was taken, drop what is too old or too much; return the note for the checkpoint."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            rows = pl.concat(waiting).sort(TIME)
            first, last = (rows.item(place, TIME) // 1000 for place in (0, -1))
            path = self._folder / f"{self._next:010d}-{first}-{last}.parquet"
            self._next += 1
            reason = "samples"
            # One name for all: what is left of a write that was killed goes with the next.
            scratch = self._folder / "writing.new"
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                rows.write_parquet(scratch, compression="zstd", compression_level=1)
                scratch.replace(path)
            except (OSError, pl.exceptions.PolarsError) as error:
                reason = "lost_samples"
                with contextlib.suppress(OSError):
                    scratch.unlink()
                self._log.sparse("samples_not_written", rows=rows.height, why=str(error))
            self.counts[reason] = self.counts.get(reason, 0) + rows.height
        self._retire(now)
        return self._next

    def take_counts(self) -> dict[str, int]:
        """Return what happened since the last time, by reason."""
        counts, self.counts = self.counts, {}
        return counts

    def _retire(self, now: float) -> None:
        size = 0
        for _, _, last, path in sorted(_files(self._folder), reverse=True):
            size += path.stat().st_size
            if last < now - self._settings.keep_samples or size > self._settings.samples_size:
                path.unlink(missing_ok=True)


def _files(folder: Path) -> Iterator[tuple[int, int, int, Path]]:
    """Yield number, first and last second of each file."""
    for path in folder.glob("*.parquet"):
        number, first, last = map(int, path.stem.split("-"))
        yield number, first, last, path


def samples_folder(cluster: Cluster) -> Path:
    """Return where a cluster's bridges write, a folder a shard."""
    return archive_folder(cluster) / FOLDER


def read_samples(
    cluster: Cluster, start: float, stop: float, nodes: Collection[str] = (), most: int | None = None
) -> pl.DataFrame:
    """Return samples in [start, stop), epoch seconds; without nodes of all, else of what these send to each other.

    Of the exporters that sampled a pair on its rails one is taken, that which sampled it most: a packet passes several.
    Of more than `most`, one in two is taken, four, eight ..., as if the sampling rate were so much lower.

    Returns:
        SCHEMA with TIME in seconds (Float64), in the order of time; no rows where nothing is kept.
    """
    is_asked = pl.col(TIME).is_between(int(start * 1000), int(stop * 1000), closed="left")
    if nodes:
        is_asked &= pl.col(SRC).is_in(list(nodes)) & pl.col(DST).is_in(list(nodes))
    files = sorted(
        (first, path)
        for folder in samples_folder(cluster).glob("*")
        for _, first, last, path in _files(folder)
        if first < stop and last + 1 > start
    )
    found, each = [pl.DataFrame(schema=SCHEMA)], 1
    for _, path in files:
        # What grew too old meanwhile is not there.
        with contextlib.suppress(FileNotFoundError):
            # What others sampled meanwhile thins out nobody: a small job of a large cluster has all its samples.
            found.append(pl.read_parquet(path).cast(SCHEMA).filter(is_asked).gather_every(each))  # type: ignore[arg-type]
        while most is not None and sum(map(len, found)) > most:
            found, each = [pl.concat(found).gather_every(2)], 2 * each
    rows = pl.concat(found)
    way = [SRC, DST, SRC_RAIL, DST_RAIL]
    most_seen = rows.group_by(*way, EXPORTER).len().sort("len", EXPORTER, descending=[True, False])
    most_seen = most_seen.unique(way, keep="first", maintain_order=True)
    rows = rows.join(most_seen, on=[*way, EXPORTER], how="semi")
    return rows.with_columns(pl.col(TIME) / 1000, pl.col(BYTES) * each).sort(TIME)


def newest_sample(cluster: Cluster) -> float:
    """Return the second of the newest sample of all, epoch; 0 where there is none."""
    folders = samples_folder(cluster).glob("*")
    return max((last for folder in folders for _, _, last, _ in _files(folder)), default=0)
