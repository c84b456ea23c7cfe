"""Run a bridge once over a spool, to points in memory; print what that took as JSON.

It runs as ``clusterflow ingest --once`` does, checkpoint and line protocol included, but its store keeps nothing. It is
a process of its own, and imports no more than the command: its start counts.
"""

import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.heap import keep_freed  # isort: skip
import polars as pl

from app.application import look_rarely
from app.log import Log
from cluster.load import load_cluster
from cluster.model import Retention
from ingest.bridge import Bridge
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from ingest.flows.normalise import Clock
from ingest.read.spool import Spool
from store.influx import Series, Store


class NoStore(Store):
    """A store that takes everything and has nothing; `lines` counts the bytes of line protocol."""

    lines = 0

    def ensure(self, retentions: tuple[Retention, ...], tell: Callable[[str], None] = lambda _: None) -> None:
        """Make nothing."""

    def write(self, lines: bytes, retention: str) -> None:  # noqa: ARG002 - a store's
        """Count and forget."""
        self.lines += len(lines)

    def execute(self, influxql: str) -> None:
        """Do nothing."""

    def query(self, influxql: str) -> list[Series]:  # noqa: ARG002 - a store's
        """Know nothing: the database is new."""
        return []

    def frame(self, influxql: str) -> pl.DataFrame:  # noqa: ARG002 - a store's
        """Know nothing: there is no rollup."""
        return pl.DataFrame()


@contextmanager
def in_memory(config: Path, spool: Path) -> Iterator[Bridge]:
    """Make a bridge from a spool that is read once to points that nobody keeps; its lists are read by then."""
    cluster = load_cluster(config)
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name, Spool(spool, once=True) as source:
        yield Bridge(
            cluster,
            NoStore(cluster.store),
            source,
            clock=Clock.BACKFILL,
            state=Path(name) / "bridge",
            dead_letter=DeadLetters(Path(name) / "dead-letters.jsonl"),
            stop=threading.Event(),
            log=Log(quiet=True),
            counters=Counters(),
        )


def _run(config: Path, spool: Path, flows: int) -> dict[str, float]:
    started = time.process_time()
    with in_memory(config, spool) as bridge:
        ready, began = time.process_time(), time.monotonic()
        records = bridge.run().records
        seconds, used = time.monotonic() - began, time.process_time() - ready
    if records != flows:
        raise SystemExit(f"{records} records read, expected {flows}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return {
        "seconds": round(seconds, 3),
        "cpu_seconds": round(used, 3),
        "reading_cpu_seconds": round(ready - started, 3),
        "peak_mib": peak,
    }


if __name__ == "__main__":
    look_rarely()
    keep_freed()
    sys.stdout.write(json.dumps(_run(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))) + "\n")
