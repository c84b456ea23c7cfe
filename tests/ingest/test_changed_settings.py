"""Another cluster.yaml between two lives of an engine: what the store has stays right, to the byte."""

from dataclasses import replace
from ipaddress import ip_address

import polars as pl
from test_engine import T0, cluster, one

from cluster.model import Cluster
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from store import schema
from store.points import WINDOW


class Stored:
    """A store that holds the bytes of one measurement: the last value of each point."""

    def __init__(self, measurement: schema.Measurement) -> None:
        self._name = measurement.name
        self._tags = [tag for tag in measurement.tags if tag != schema.SHARD]
        self._points: dict[tuple[object, ...], int] = {}

    def take(self, engine: Engine, rows: pl.DataFrame, now_ms: int) -> None:
        engine.take(rows, now_ms / 1000)
        for measurement, points in engine.merge():
            if measurement.name == self._name:
                for row in points.iter_rows(named=True):
                    self._points[row[WINDOW], *(row[tag] for tag in self._tags)] = row[schema.BYTES.name]
        engine.evict()

    def total(self) -> int:
        return sum(self._points.values())


def another(engine: Engine, known: Cluster) -> Engine:
    fresh = Engine(known, Clock.LIVE, Counters())
    fresh.load(*engine.dump())
    return fresh


def test_a_longer_grace_does_not_begin_windows_anew_that_were_let_go() -> None:
    base = cluster()
    short = replace(base, bridge=replace(base.bridge, grace=60))
    engine, stored = Engine(short, Clock.LIVE, Counters()), Stored(schema.TRAFFIC)
    stored.take(engine, one(start=T0, end=T0, arrival=T0), T0)
    stored.take(engine, one(start=T0 + 200_000, end=T0 + 200_000, arrival=T0 + 200_000), T0 + 200_000)
    engine = another(engine, replace(base, bridge=replace(base.bridge, grace=600)))
    stored.take(engine, one(start=T0, end=T0, arrival=T0 + 200_000), T0 + 200_000)
    assert stored.total() == 3000


def test_a_node_that_is_gone_keeps_its_other_point() -> None:
    base = cluster()
    few = replace(base, bridge=replace(base.bridge, named_per_window=1))
    engine, stored = Engine(few, Clock.LIVE, Counters()), Stored(schema.EGRESS)
    for number, size in ((5, 9000), (6, 100), (7, 200)):
        for src in ("10.1.0.1", "10.1.0.2"):
            stored.take(engine, one(src=src, dst=f"203.0.113.{number}", bytes=size), T0)
    assert stored.total() == 18_600
    engine = another(engine, replace(few, nodes=tuple(node for node in few.nodes if node.name != "gpu-2")))
    for number in (8, 9):
        stored.take(engine, one(src="10.1.0.2", dst=f"203.0.113.{number}", bytes=50), T0)
    assert stored.total() == 18_700


def test_an_exporter_that_got_another_name_is_known_by_that_and_not_missed_by_its_old_one() -> None:
    base = cluster()
    engine = Engine(base, Clock.LIVE, Counters())
    (leaf, *_) = base.exporters
    for address in (str(leaf.address), "10.9.9.8", "10.9.9.9"):
        engine.take(one(exporter=address, start=T0, end=T0, arrival=T0), T0 / 1000)
    assert set(engine.exporters) == {leaf.name, "10.9.9.8", "10.9.9.9"}
    listed = replace(leaf, name="listed", address=ip_address("10.9.9.8"))
    known = replace(base, exporters=(replace(leaf, name="renamed"), listed))
    assert set(another(engine, known).exporters) == {"10.9.9.9", "listed", "renamed"}
