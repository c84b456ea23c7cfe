"""Numbers that InfluxDB hands out, in CSV and in JSON: the same, errors too."""

from collections.abc import Iterator

import numpy as np
import pytest

from app.errors import StoreError
from cluster.model import StoreSettings
from store import schema
from store.influx import ROWS, Store
from store.influxql import Select, beside, is_in
from store.local_influxdb import LocalInfluxDB

ODD = "a b,c=d\"e'f"
LINES = (
    rb'node,node=a\ b\,c\=d"e' + b"'f,peer_group=x tx_bytes=9007199254740991i,rx_bytes=6i 100\n"
    rb'node,node=a\ b\,c\=d"e' + b"'f,peer_group=x tx_bytes=7i 110\n"
    b"node,node=plain,peer_group=y tx_bytes=1i,rx_bytes=2i 100\n"
    b"node,peer_group=y rx_bytes=3i 120\n"
)
SENT = Select(schema.NODE_TRAFFIC, schema.RAW).take(beside(schema.TX_BYTES), beside(schema.RX_BYTES)).between(0, 1000)


@pytest.fixture
def store(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Store]:
    found = Store(StoreSettings(url=influxdb_v1.url, database=fresh_database))
    found.execute(f'CREATE DATABASE "{fresh_database}" WITH DURATION INF NAME "raw"')
    found.write(LINES, schema.RAW)
    yield found
    found.close()


@pytest.mark.parametrize("asked", [SENT, SENT.between(100, 160)], ids=["series by series", "by time"])
@pytest.mark.parametrize("tags", [(), (schema.NODE,), (schema.NODE, schema.PEER_GROUP), (schema.PEER_GROUP,)])
def test_csv_says_what_json_says(
    store: Store, monkeypatch: pytest.MonkeyPatch, asked: Select, tags: tuple[str, ...]
) -> None:
    asked = asked.by(*tags)
    told = store.numbers(asked)
    monkeypatch.setattr("store.influx._FEW_TAGS", -1)
    monkeypatch.setattr("store.influx._SHORT", {})
    in_json = store.numbers(asked)
    assert told.tags.to_dicts() == in_json.tags.to_dicts()
    np.testing.assert_array_equal(told.values, in_json.values)
    assert sorted(told.values[:, 0]) == [100_000, 100_000, 110_000, 120_000]
    if schema.NODE in tags:
        assert told.tags.filter(told.tags[ROWS] == 2).get_column(schema.NODE).to_list() == [ODD]
        assert 9007199254740991 in told.values[:, 1]


@pytest.mark.parametrize("stop", [160, 1000])
@pytest.mark.parametrize("size", [1, 7, 100, 150])
def test_in_parts_it_is_the_same(store: Store, monkeypatch: pytest.MonkeyPatch, size: int, stop: int) -> None:
    asked = SENT.between(100, stop).by(schema.NODE, schema.PEER_GROUP)
    whole = store.numbers(asked)
    monkeypatch.setattr("store.influx._PART_BYTES", size)
    monkeypatch.setattr(Store, "_told_in_json", None)
    told = store.numbers(asked)
    assert told.tags.equals(whole.tags)
    np.testing.assert_array_equal(told.values, whole.values)
    assert store.numbers(SENT.where(is_in(schema.NODE, ["nobody"]))).values.shape == (0, 3)


@pytest.mark.parametrize("seconds", [60, 1000])
def test_nothing_is_no_rows(store: Store, seconds: int) -> None:
    told = store.numbers(SENT.between(0, seconds).by(schema.NODE).where(is_in(schema.NODE, ["nobody"])))
    assert (told.tags.columns, told.tags.height, told.values.shape) == ([schema.NODE, ROWS], 0, (0, 3))


def test_an_error_is_told_though_csv_leaves_it_out(store: Store) -> None:
    missing = Select(schema.NODE_TRAFFIC, "nowhere").take(beside(schema.TX_BYTES)).between(0, 1000)
    with pytest.raises(StoreError, match="retention policy not found") as lacks:
        store.numbers(missing)
    assert lacks.value.hint == "start `clusterflow ingest`, which makes what is missing", "and no query"
    with pytest.raises(StoreError, match="database not found"):
        Store(StoreSettings(url=store.url, database="nowhere")).numbers(SENT)


def test_a_server_that_lists_no_databases_is_asked_in_json(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.influx._AFTER_HEAD", b"no such answer")
    assert len(store.numbers(SENT).values) == 4
