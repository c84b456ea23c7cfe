"""Minutes and hours are there for every length of the base windows that cluster.yaml may ask for."""

import threading
from dataclasses import replace

import polars as pl
import pytest
from test_engine import cluster

from app.log import Log
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.read import records
from ingest.rollup import Rollup
from ingest.writer import Writer
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW

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


@pytest.mark.parametrize("window", [10, 30, 60])
def test_minutes_and_hours_have_every_byte(window: int, influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    known = cluster()
    known = replace(
        known,
        store=replace(
            known.store, url=influxdb_v1.url, database=fresh_database, keep_raw=KEPT, keep_1m=KEPT, keep_1h=KEPT
        ),
        bridge=replace(known.bridge, window=window, grace=max(window, known.bridge.grace)),
    )
    store = Store(known.store)
    store.ensure(known.retentions())
    engine = Engine(known, Clock.BACKFILL, Counters())
    rows = [dict.fromkeys(records.RECORD_SCHEMA) | flow(60 * minute + 5) for minute in range(MINUTES)]
    engine.take(pl.DataFrame(rows, schema=records.RECORD_SCHEMA), T0)
    writer = Writer(
        store, known.retentions(), shard="0", counters=Counters(), stop=threading.Event(), log=Log(quiet=True)
    )
    rollup = Rollup(store, writer, known.retentions(), "0")
    for measurement, points in engine.merge():
        writer.write(measurement, points, schema.RAW)
        rollup.touch(points.get_column(WINDOW).unique())
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
