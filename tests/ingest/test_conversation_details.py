"""Addresses, ports and entries of stored conversations: what was sent, in whatever order it is read."""

import random
from collections import defaultdict
from dataclasses import replace

import polars as pl
import pytest
from test_engine import INSIDE, NAMES, T0, cluster, frame, one, random_records, take

from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.read import records
from store import schema
from store.schema import Measurement

_DETAILS = [field.name for field in schema.DETAILS]
_WATCHED = (schema.EGRESS, schema.VIOLATION, schema.INFERENCE)


def _points(rows: list[dict[str, object]], batch: int) -> dict[str, pl.DataFrame]:
    engine = Engine(cluster(), Clock.BACKFILL, Counters())
    found: dict[str, pl.DataFrame] = {}
    for first in range(0, len(rows), batch):
        engine.take(frame(rows[first : first + batch]), T0 / 1000 + 120)
        engine.merge()
    for measurement, points in engine.all_points():
        found.setdefault(measurement.name, points)
    return found


def _sorted(measurement: Measurement, points: pl.DataFrame) -> pl.DataFrame:
    tags = [tag for tag in measurement.tags if tag in points.columns]
    return points.select("window", *tags, *_DETAILS).sort("window", *tags)


@pytest.mark.thorough
@pytest.mark.parametrize(("seed", "batch"), [(1, 1000), (2, 31), (3, 7)])
def test_details_are_those_of_the_records_in_whatever_order_they_come(seed: int, batch: int) -> None:
    # Of one exporter: what is taken back for another one's better record leaves its port, as it leaves its moments.
    rows = [row | {records.EXPORTER: "127.0.0.1"} for row in random_records(seed, 400)]
    whole = _points(rows, 1000)
    random.Random(seed).shuffle(rows)
    again = _points(rows, batch)
    for measurement in _WATCHED:
        expected, found = (_sorted(measurement, one[measurement.name]) for one in (whole, again))
        assert expected.height
        if measurement is schema.VIOLATION:
            assert set(expected[schema.ENTERED.name].drop_nulls()), "authority says who counts"
        assert found.equals(expected), measurement.name


def test_details_of_the_egress_are_those_of_a_plain_loop() -> None:
    # Without the spine, whose records do not count.
    rows = [row for row in random_records(5, 500) if row[records.EXPORTER] != "127.0.0.2" and row[records.BYTES]]
    ports: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    sources: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for row in rows:
        (src, src_group), (dst, dst_group) = (NAMES[str(row[end])] for end in (records.SRC, records.DST))
        if src_group not in INSIDE or dst_group in {*INSIDE, "local"}:
            continue
        protocol = {6: "tcp", 17: "udp", 1: "icmp", None: "unknown"}[row[records.PROTOCOL]]  # type: ignore[index]
        key = src, dst, protocol
        sources[key].add(str(row[records.SRC]).removeprefix("::ffff:"))
        if protocol in ("tcp", "udp"):
            ports[key] |= {int(str(row[records.SRC_PORT])), int(str(row[records.DST_PORT]))}
    found = _points(rows, 64)["egress"].filter(pl.col(schema.SRC_GROUP).is_in(INSIDE))
    assert found.height > 20
    named = (schema.SRC, schema.DST, schema.PROTO, *_DETAILS)
    for src, dst, protocol, src_address, dst_address, low, high, opened_by, entered in found.select(*named).rows():
        assert src_address in sources[src, dst, protocol]
        assert NAMES[dst_address][0] == dst
        assert opened_by in ("src", "dst")
        assert entered is None or entered.partition(" ")[0] in {"leaf", "sampled", "sflow", "done"}
        if protocol in ("tcp", "udp"):
            assert {low, high} <= ports[src, dst, protocol]
            assert low <= high
        else:
            assert (low, high) == (None, None)


def test_a_port_without_a_service_is_there_and_of_several_the_lowest_and_the_highest() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    talk = {"src": "10.1.1.1", "dst": "203.0.113.5", "src_port": 50_000}
    points = take(engine, pl.concat([one(**talk, dst_port=port) for port in (4444, 4444)]))["egress"]
    assert points.select(schema.SERVICE, *_DETAILS).rows() == [
        ("other", "10.1.1.1", "203.0.113.5", 4444, 4444, "src", points[schema.ENTERED.name][0])
    ]
    points = take(engine, one(**talk, dst_port=9001))["egress"]
    assert points.select(schema.PORT.name, schema.PORT_MAX.name).rows() == [(4444, 9001)]
    # Its answers are the same conversation: the server's port, at the other end.
    answer = {"src": "203.0.113.5", "dst": "10.1.1.1", "src_port": 4444, "dst_port": 50_000}
    points = take(engine, one(**answer))["violation"]
    row = points.filter(pl.col(schema.SRC) == "203.0.113.5")
    assert row.select(schema.PORT.name, schema.OPENED_BY.name).rows() == [(4444, "dst")]


def test_what_is_folded_into_other_says_nothing_of_one_conversation() -> None:
    few = replace(cluster(), bridge=replace(cluster().bridge, named_per_window=1))
    engine = Engine(few, Clock.LIVE, Counters())
    sent = [one(dst=f"203.0.113.{number}", bytes=number + 1) for number in range(9)]
    points = take(engine, pl.concat(sent))["egress"]
    assert points.height == 2
    other = points.filter(pl.col(schema.DST) == schema.OTHER)
    assert other.select(_DETAILS).rows() == [(None,) * len(_DETAILS)]
    assert points["bytes"].sum() == 45


def test_a_restart_forgets_no_detail() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    take(engine, one(dst="203.0.113.5", dst_port=4444, src_port=50_000))
    fresh = Engine(cluster(), Clock.LIVE, Counters())
    fresh.load(*engine.dump())
    points = take(fresh, one(dst="203.0.113.5", dst_port=4445, src_port=50_000))["egress"]
    assert points.select(schema.PORT.name, schema.PORT_MAX.name).rows() == [(4444, 4445)]
