"""Conversations with listed addresses against a plain check of each record, in both directions."""

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from pathlib import Path

import polars as pl
import pytest
from test_engine import INSIDE, NAMES, T0, cluster, frame, one, take

from cluster.model import BridgeSettings, Cluster, FeedColumns, FeedFormat, ThreatFeed
from enrichment.feeds.threats import Threats
from enrichment.labels import Labels
from enrichment.providers import labels_of
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.read import records
from store import schema

COLUMNS = FeedColumns("ip", "score", "first", "until")
WINDOW_MS = 10_000
FAR = "203.0.113.5"


def with_feeds(folder: Path, **texts: str) -> Cluster:
    """Return the cluster with CSV feeds of these rows."""
    feeds = []
    for name, text in texts.items():
        path = folder / f"{name}.csv"
        path.write_text(f"ip,score,first,until\n{text}")
        feeds.append(ThreatFeed(name, str(path), FeedFormat.CSV, COLUMNS))
    return replace(cluster(), threat_feeds=tuple(feeds))


def engine_of(known: Cluster, clock: Clock = Clock.LIVE) -> tuple[Engine, Labels]:
    labels = labels_of(known)
    return Engine(known, clock, Counters(), labels=labels), labels


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


def test_a_conversation_with_a_listed_address_is_one_row(tmp_path: Path) -> None:
    """With all feeds that list it, the longest prefix, the highest confidence and the earliest listing."""
    known = with_feeds(tmp_path, wide="203.0.113.0/24,90,2026-01-02,\n", exact=f"{FAR},40,2026-01-05,\n")
    engine, _ = engine_of(known)
    (row,) = take(engine, one(src="10.2.9.1", dst=FAR, dst_port=443))[schema.THREAT.name].to_dicts()
    assert {name: row[name] for name in schema.THREAT.tags if name in row and name not in schema.LABELS} == {
        schema.SRC: "vault-1",
        schema.SRC_GROUP: "vault",
        schema.DST: FAR,
        schema.DST_GROUP: "external",
        schema.PROTO: "tcp",
        schema.SERVICE: "https",
        schema.DIRECTION: schema.OUTWARD,
        schema.LATE: schema.NO,
        schema.INDICATOR: FAR,
    }
    assert row[schema.FEED] == "exact,wide"
    assert row[schema.CONFIDENCE.name] == 90
    assert row[schema.LISTED_SINCE.name] == datetime(2026, 1, 2, tzinfo=UTC).timestamp()
    assert row[schema.SEEN_AT.name] == T0 // 1000
    assert row[schema.KNOWN_SINCE.name] == int((tmp_path / "wide.csv").stat().st_mtime)
    assert (row["bytes"], row["packets"], row["flows"]) == (1000, 1, 1)


@pytest.mark.parametrize(
    ("src", "dst", "direction"),
    [
        ("10.2.9.1", FAR, "out"),
        (FAR, "10.2.9.1", "in"),
        ("10.2.9.1", "198.51.100.9", "out"),  # approved, and listed all the same
        ("2001:db8::5", "fd00:1::1", "in"),
        ("10.2.9.1", "203.0.114.5", None),
        (FAR, "198.51.100.9", None),  # neither end is the cluster's
        ("10.2.9.1", "10.1.0.1", None),
    ],
)
def test_both_directions_are_told(src: str, dst: str, direction: str | None, tmp_path: Path) -> None:
    engine, _ = engine_of(with_feeds(tmp_path, bad="203.0.113.0/24,,,\n198.51.100.9,,,\n2001:db8::/64,,,\n"))
    found = take(engine, one(src=src, dst=dst)).get(schema.THREAT.name)
    assert (None if found is None else found[schema.DIRECTION].to_list()) == (
        None if direction is None else [direction]
    )


@pytest.mark.parametrize(
    ("first", "until", "is_told"),
    [
        (None, None, True),
        (T0, None, True),
        (T0 + WINDOW_MS - 1, None, True),
        (T0 + WINDOW_MS, None, False),
        (None, T0 + 1, True),
        (None, T0, False),
        (T0 - WINDOW_MS, T0, False),
    ],
)
def test_an_entry_holds_for_its_time_only(
    first: int | None, until: int | None, *, is_told: bool, tmp_path: Path
) -> None:
    """The time of the traffic counts, not that of its arrival, so that old files are judged by what held then."""
    row = f"{FAR},,{iso(first) if first else ''},{iso(until) if until else ''}\n"
    engine, _ = engine_of(with_feeds(tmp_path, bad=row), Clock.BACKFILL)
    found = take(engine, one(src="10.2.9.1", dst=FAR), T0 + 3_600_000)
    assert (schema.THREAT.name in found) == is_told


def test_totals_are_those_of_a_plain_check(tmp_path: Path) -> None:
    """Nested and equal prefixes of two feeds, with validity, thousands of records of several windows."""
    chance = random.Random(11)
    outside = [f"203.0.{third}.{last}" for third in (112, 113) for last in range(0, 256, 16)]
    outside += ["198.51.100.9", "2001:db8::5", "2001:db8:0:1::"]
    rows: dict[str, list[tuple[str, int, int]]] = {"one": [], "two": []}
    for listed in rows.values():
        for _ in range(25):
            address = ip_address(chance.choice(outside))
            bits = chance.choice((24, 27, 28, 30, 32)) if address.version == 4 else chance.choice((32, 64, 128))
            prefix = str(ip_network((address, bits), strict=False))
            first = T0 + chance.choice((-9, 0, 1, 2)) * WINDOW_MS
            listed.append((prefix, first, first + chance.choice((1, 2, 9)) * WINDOW_MS))
    texts = {
        name: "".join(f"{prefix},,{iso(first)},{iso(until)}\n" for prefix, first, until in listed)
        for name, listed in rows.items()
    }
    wide = BridgeSettings(named_per_window=10_000, series_budget=100_000)
    engine, _ = engine_of(replace(with_feeds(tmp_path, **texts), bridge=wide), Clock.BACKFILL)
    networks = [
        (ip_network(prefix), first, until, name) for name, all_ in rows.items() for prefix, first, until in all_
    ]
    flows = []
    expected: Counter[tuple[object, ...]] = Counter()
    for _ in range(1_500):
        inside, far = chance.choice([a for a, (_, group) in NAMES.items() if group in INSIDE]), chance.choice(outside)
        goes_out = chance.random() < 0.5
        start = T0 + chance.randrange(4) * WINDOW_MS
        size = chance.randrange(1, 5_000)
        flows.append(
            {
                records.EXPORTER: "127.0.0.1",
                records.SRC: inside if goes_out else far,
                records.DST: far if goes_out else inside,
                records.SRC_PORT: 50_000,
                records.DST_PORT: 443,
                records.PROTOCOL: 6,
                records.SAMPLING_RATE: 1,
                records.START: start,
                records.END: start,
                records.ARRIVAL: start,
                records.BYTES: size,
                records.PACKETS: 1,
                records.FLOWS: 1,
            }
        )
        address = ip_address(far)
        holding = [
            (prefix.prefixlen, prefix, name)
            for prefix, first, until, name in networks
            if address in prefix and first < start + WINDOW_MS and until > start
        ]
        if holding:
            longest = max(holding, key=lambda one: one[0])[1]
            text = str(longest.network_address) if longest.num_addresses == 1 else str(longest)
            feeds = ",".join(sorted({name for _, _, name in holding}))
            key = (start // 1000, "out" if goes_out else "in", NAMES[inside][0], far, feeds, text)
            expected[key] += size
    engine.take(frame(flows), T0 / 1000)
    found = {measurement.name: points for measurement, points in engine.merge()}
    points = found[schema.THREAT.name]
    assert schema.OTHER not in points[schema.INDICATOR].to_list()
    is_out = pl.col(schema.DIRECTION) == schema.OUTWARD
    sums = points.group_by(
        "window",
        schema.DIRECTION,
        pl.when(is_out).then(schema.SRC).otherwise(schema.DST).alias("inside"),
        pl.when(is_out).then(schema.DST).otherwise(schema.SRC).alias("far"),
        schema.FEED,
        schema.INDICATOR,
    ).agg(pl.sum("bytes"))
    assert {tuple(row[:-1]): row[-1] for row in sums.iter_rows()} == dict(expected)
    assert len(expected) > 100


def test_a_storm_is_bounded_and_its_totals_exact(tmp_path: Path) -> None:
    """A listed /16 knocks at one node from thousands of addresses: a few names, one row of the rest, no byte lost."""
    known = replace(with_feeds(tmp_path, bad="203.0.0.0/16,,,\n"), bridge=BridgeSettings(named_per_window=5))
    engine, _ = engine_of(known)
    storm = pl.concat([one(src=f"203.0.{n // 250}.{n % 250}", dst="10.1.0.1", bytes=n + 1) for n in range(2_000)])
    points = take(engine, storm)[schema.THREAT.name]
    assert points.height <= 2 * 5 + 1
    assert points["bytes"].sum() == sum(range(1, 2_001))
    (rest,) = points.filter(pl.col(schema.INDICATOR) == schema.OTHER).to_dicts()
    assert (rest[schema.SRC], rest[schema.DST]) == (schema.OTHER, "gpu-1")
    assert rest[schema.FEED] == "bad"


def test_a_feed_that_changes_counts_from_then_on(tmp_path: Path) -> None:
    """The next batch is matched with what the file says now; what was told stays told."""
    known = with_feeds(tmp_path, bad="203.0.113.6,,,\n")
    engine, labels = engine_of(known)
    assert schema.THREAT.name not in take(engine, one(src="10.2.9.1", dst=FAR))
    path = Path(known.threat_feeds[0].file)
    path.write_text(f"ip,score,first,until\n{FAR},,,\n203.0.113.6,,,\n")
    assert schema.THREAT.name not in take(engine, one(src="10.2.9.1", dst=FAR))
    assert labels.refresh()
    assert not labels.refresh()
    assert take(engine, one(src="10.2.9.1", dst=FAR))[schema.THREAT.name]["bytes"].to_list() == [1000]
    path.write_text("<html>\n")
    assert not labels.refresh()
    assert take(engine, one(src="10.2.9.1", dst=FAR))[schema.THREAT.name]["bytes"].to_list() == [2000]


def test_numbers_that_are_given_anew_are_looked_up_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The book of addresses forgets when it is full: no stranger inherits a listed one's number."""
    monkeypatch.setattr("ingest.flows.classify._CACHE_LIMIT", 20)
    engine, _ = engine_of(with_feeds(tmp_path, bad="203.0.113.0/30,,,\n"))
    told = 0
    for turn in range(6):
        flows = [one(src="10.2.9.1", dst=f"203.0.{113 + (turn + n) % 2}.{n}") for n in range(16)]
        engine.take(pl.concat(flows), T0 / 1000)
        told += sum((turn + n) % 2 == 0 for n in range(4))
    points = {measurement.name: points for measurement, points in engine.merge()}[schema.THREAT.name]
    assert points["flows"].sum() == told
    assert {".".join(dst.split(".")[:3]) for dst in points[schema.DST]} == {"203.0.113"}


def test_what_was_told_survives_a_restart(tmp_path: Path) -> None:
    """The engine after it goes on with the same totals."""
    known = with_feeds(tmp_path, bad=f"{FAR},,2026-01-01,\n")
    before, _ = engine_of(known)
    take(before, one(src="10.2.9.1", dst=FAR))
    after, _ = engine_of(known)
    after.load(*before.dump())
    (row,) = take(after, one(src="10.2.9.1", dst=FAR))[schema.THREAT.name].to_dicts()
    assert (row["bytes"], row[schema.CONFIDENCE.name]) == (2000, 50)


def test_the_label_names_the_feeds_that_list_an_address_now(tmp_path: Path) -> None:
    """Not what is past or to come; it changes at its time though no file does."""
    now = [datetime(2026, 5, 1, tzinfo=UTC).timestamp()]
    rows = {"past": f"{FAR},,,2026-04-30\n", "coming": f"{FAR},,2026-05-02,\n", "here": f"{FAR},,,2026-05-03\n"}
    threats = Threats(with_feeds(tmp_path, **rows), clock=lambda: now[0])
    assert threats.refresh()
    assert threats.label(["192.0.2.1", FAR]) == {schema.FEED: ["", "here"]}
    by_nat64 = [f"64:ff9b::{FAR}", f"64:ff9b:1::{FAR}"]
    assert threats.label(by_nat64) == {schema.FEED: ["here", ""]}, "how a cluster of IPv6 alone reaches it"
    assert not threats.refresh()
    now[0] += 86_400
    assert threats.refresh()
    assert not threats.refresh()
    assert threats.label([FAR]) == {schema.FEED: ["coming,here"]}
    now[0] += 86_400
    assert threats.refresh()
    assert threats.label([FAR]) == {schema.FEED: ["coming"]}
    assert not threats.refresh()
