"""Minutes and hours are there for every length of the base windows that cluster.yaml may ask for."""

import threading
from dataclasses import replace

import polars as pl
import pytest
from test_engine import cluster

from app.log import Log
from cluster.model import Cluster
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.read import records
from ingest.rollup import Rollup
from ingest.writer import Writer
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW, encode

T0 = 1_772_352_000
MINUTES = 5
OCTETS = 1_000
KEPT = 5_000 * 86_400


def flow(at: int) -> dict[str, object]:
    """A flow of a second between two training nodes."""
    return {
        records.EXPORTER: "192.0.2.1", records.SRC: "10.1.0.1", records.DST: "10.1.0.2", records.PROTOCOL: 6,
        records.SRC_PORT: 40_000, records.DST_PORT: 29_500, records.TCP_FLAGS: 24, records.TOS: 0, records.VERSION: 10,
        records.SAMPLING_RATE: 1, records.BYTES: OCTETS, records.PACKETS: 1, records.FLOWS: 1,
        records.START: (T0 + at) * 1000, records.END: (T0 + at + 1) * 1000, records.ARRIVAL: (T0 + at + 2) * 1000,
    }  # fmt: skip


def stored_at(url: str, database: str) -> tuple[Cluster, Store]:
    known = cluster()
    settings = replace(known.store, url=url, database=database, keep_raw=KEPT, keep_1m=KEPT, keep_1h=KEPT)
    known, store = replace(known, store=settings), Store(settings)
    store.ensure(known.retentions())
    return known, store


def rollup_of(known: Cluster, store: Store) -> Rollup:
    writer = Writer(
        store, known.retentions(), shard="0", counters=Counters(), stop=threading.Event(), log=Log(quiet=True)
    )
    return Rollup(store, writer, known.retentions(), "0")


def take(engine: Engine, *moments: int) -> None:
    rows = [dict.fromkeys(records.RECORD_SCHEMA) | flow(moment) for moment in moments]
    engine.take(pl.DataFrame(rows, schema=records.RECORD_SCHEMA), T0)


def write(engine: Engine, store: Store, rollup: Rollup) -> None:
    for measurement, points in engine.merge():
        shard = pl.lit("0").alias(schema.SHARD)
        store.write(encode(measurement, points.with_columns(shard)), measurement.kept)
        rollup.touch(points.get_column(WINDOW).unique())


@pytest.mark.parametrize("window", [10, 30, 60])
def test_minutes_and_hours_have_every_byte(window: int, influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    known, store = stored_at(influxdb_v1.url, fresh_database)
    known = replace(known, bridge=replace(known.bridge, window=window, grace=max(window, known.bridge.grace)))
    engine = Engine(known, Clock.BACKFILL, Counters())
    take(engine, *(60 * minute + 5 for minute in range(MINUTES)))
    rollup = rollup_of(known, store)
    write(engine, store, rollup)
    rollup.run()
    for retention in known.retentions():
        answer = store.query(f'SELECT "bytes" FROM "{retention.name}"."{schema.TRAFFIC.name}"')
        starts = {row[0] // 1000 - T0 for one in answer for row in one.values}
        assert sum(row[1] for one in answer for row in one.values) == MINUTES * OCTETS, retention.name
        assert starts == {at // retention.window * retention.window for at in range(5, 60 * MINUTES, 60)}
    for retention in schema.NODE_TOTAL.retentions:
        of_peers, of_all = (
            store.query(f'SELECT sum("tx_bytes") FROM "{retention}"."{one.name}" GROUP BY "node", "group", "shard"')
            for one in (schema.NODE_TRAFFIC, schema.NODE_TOTAL)
        )
        assert [(one.tags, one.values) for one in of_all] == [(one.tags, one.values) for one in of_peers]
        assert of_all
    store.close()


def test_a_checkpoint_of_before_pairs_and_rails_were_minutes_loses_no_byte(
    influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    """Late bytes of windows that it had go to the raw points; from the next minute on there are minutes alone."""
    known, store = stored_at(influxdb_v1.url, fresh_database)
    before, rollup = Engine(known, Clock.LIVE, Counters()), rollup_of(known, store)
    for name in ("pair", "rail"):
        before.tables[name].seconds = 1
    take(before, 5, 15, 65, 75)
    for measurement, points in before.merge():
        lines = encode(measurement, points.with_columns(pl.lit("0").alias(schema.SHARD)))
        store.write(lines, schema.RAW)
        rollup.touch(points.get_column(WINDOW).unique())
    frames, notes = before.dump()
    del notes["minutes_from"]
    engine = Engine(known, Clock.LIVE, Counters())
    engine.load(frames, notes)
    # It was killed before it had rolled up.
    rollup.load(rollup.dump(), engine.minutes_from)
    take(engine, 16, 95, 125, 135)
    write(engine, store, rollup)
    rollup.run()
    for name in ("pair", "rail"):
        by_retention = {}
        for one in known.retentions():
            field = "bytes" if name == "pair" else "tx_bytes"
            by_minute = f"WHERE time >= {T0}s AND time < {T0 + 300}s GROUP BY time(1m) fill(none)"
            answer = store.query(f'SELECT sum("{field}") FROM "{one.name}"."{name}" {by_minute}')
            by_retention[one.name] = {row[0] // 1000 - T0: row[1] for part in answer for row in part.values if row[1]}
        assert by_retention == {
            "raw": {0: 3 * OCTETS, 60: 3 * OCTETS},
            "1m": {0: 3 * OCTETS, 60: 3 * OCTETS, 120: 2 * OCTETS},
            "1h": {},
        }, name
    store.close()


def test_minutes_far_apart_are_asked_for_together_and_those_between_stay(
    influxdb_v1: LocalInfluxDB, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question each took a backfill of few records over days most of a minute of processor time."""
    known, store = stored_at(influxdb_v1.url, fresh_database)
    engine, rollup = Engine(known, Clock.BACKFILL, Counters()), rollup_of(known, store)
    moments = range(5, 40 * 300, 300)
    take(engine, *moments)
    write(engine, store, rollup)
    asked: list[str] = []
    frame = store.frame

    def ask(query: str) -> pl.DataFrame:
        asked.append(query)
        return frame(query)

    monkeypatch.setattr(store, "frame", ask)
    rollup.run()
    assert sum(f'"{schema.TRAFFIC.name}"' in query for query in asked) < len(moments) // 3
    of_minutes = f'SELECT "bytes" FROM "1m"."{schema.TRAFFIC.name}"'
    (one,) = store.query(f"{of_minutes} GROUP BY *")
    assert [row[1] for row in one.values] == [OCTETS] * len(moments)
    # As if raw points between had gone meanwhile.
    tags = "".join(f",{name}={value}" for name, value in one.tags.items() if value)
    kept = [row[0] // 1000 for row in one.values[1::2]]
    store.write("\n".join(f"{schema.TRAFFIC.name}{tags} bytes=7i {at}" for at in kept).encode(), "1m")
    rollup.touch(pl.Series(WINDOW, [T0 + at // 10 * 10 for at in moments[::2]]))
    rollup.run()
    (one,) = store.query(f"{of_minutes} GROUP BY *")
    assert [row[1] for row in one.values] == [OCTETS, 7] * (len(moments) // 2)
    store.close()
