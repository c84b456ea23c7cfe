"""Windows added up here and by InfluxDB: the same, of one shard and of several, where fields are missing too."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cluster.model import Retention, StoreSettings
from store import schema
from store.influx import Store
from store.influxql import Select, highest, total
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW, batches
from store.sums import binned, sent_in, windows

T0, STOP = 1_750_000_000, 1_750_000_050
TAGS = (schema.SRC, schema.DST)


@pytest.fixture(scope="module")
def store(influxdb_v1: LocalInfluxDB) -> Store:
    store = Store(StoreSettings(url=influxdb_v1.url, database="window_sums"))
    store.ensure((Retention(schema.RAW, 10, 0),))
    series = [("a", "0"), ("a", "1"), ("b", "0")]
    sent = [(at, src, "c", shard, 5 + at % 7) for src, shard in series for at in range(T0, STOP, 10)]
    # In one window, one of two shards saw nothing.
    kept = [row for row in sent if row[:4] != (T0 + 20, "a", "c", "0")]
    frame = pl.DataFrame(kept, schema=[WINDOW, *TAGS, schema.SHARD, schema.BYTES.name], orient="row")
    # One source's durations are never known.
    duration = pl.when(pl.col(schema.SRC) == "a").then(pl.col(schema.BYTES.name) * 0.5)
    for lines, _ in batches(schema.EGRESS, frame.with_columns(duration.alias(schema.DURATION.name))):
        store.write(lines, schema.RAW)
    return store


def test_sums_are_those_of_influxdb(store: Store) -> None:
    found = [
        binned(
            store, schema.EGRESS, schema.RAW, (schema.BYTES,), TAGS, start=T0, stop=STOP, seconds=10, as_stored=here
        )
        for here in (True, False)
    ]  # fmt: skip
    assert found[0].height == 10
    assert_frame_equal(*found)


def test_largest_values_are_those_of_influxdb(store: Store) -> None:
    asked = Select(schema.EGRESS, schema.RAW).take(total(schema.BYTES), highest(schema.DURATION)).by(*TAGS)
    here = windows(store, asked.between(T0, STOP))
    there = pl.DataFrame(list(store.rows(asked.each(10).between(T0, STOP))), schema=here.columns, orient="row")
    assert_frame_equal(here, there, check_dtypes=False)
    assert here.get_column(schema.DURATION.name).null_count() == 5
    kinds = {schema.SRC: pl.String(), schema.BYTES.name: pl.Int64(), schema.DURATION.name: pl.Float64()}
    assert not sent_in(here, kinds).get_column(schema.DURATION.name).null_count()
