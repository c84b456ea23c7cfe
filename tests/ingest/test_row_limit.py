"""An InfluxDB that leaves out rows beyond `max-row-limit`: no part is taken for the whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_rollup_minutes import T0, rollup_of, stored_at

from app.errors import StoreError
from cluster.model import Cluster, StoreSettings
from ingest.rollup import Rollup
from store import local_influxdb, schema
from store.influx import PartialAnswerError, Store
from store.influxql import Select, total
from store.local_influxdb import LocalInfluxDB

LIMIT = 100
NODES, MINUTES = 30, 20


def with_limit(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    limited = local_influxdb._CONFIG.replace("[http]", f"[http]\n  max-row-limit = {rows}")
    monkeypatch.setattr(local_influxdb, "_CONFIG", limited)


@pytest.fixture(scope="module", params=["influxdb_v1", "influxdb_v2"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalInfluxDB]:
    binary = request.getfixturevalue(request.param).binary
    server = LocalInfluxDB(tmp_path_factory.mktemp("limited"), binary=binary)
    with pytest.MonkeyPatch.context() as patch:
        with_limit(patch, LIMIT)
        server.start()
    yield server
    server.stop()


@pytest.fixture
def site(server: LocalInfluxDB, fresh_database: str) -> Iterator[tuple[Cluster, Store]]:
    known, store = stored_at(server.url, fresh_database)
    yield known, store
    store.close()


@pytest.fixture
def store(site: tuple[Cluster, Store]) -> Store:
    return site[1]


def nodes(count: int, rows: int) -> bytes:
    """Points of nodes, in lines: as many series, of so many rows each."""
    name = schema.NODE_TRAFFIC.name
    lines = (
        f"{name},node=n{node:03},group=g,peer_group=p,shard=0 tx_bytes=1i {T0 + 60 * row}"
        for node in range(count)
        for row in range(rows)
    )
    return "\n".join(lines).encode()


def asked() -> Select:
    return Select(schema.NODE_TRAFFIC, schema.RAW).take(total(schema.TX_BYTES)).each(60).by(schema.NODE)


# Series of a row each, one that is longer, one that is as long as the limit with others after it.
@pytest.mark.parametrize(("count", "rows"), [(3 * LIMIT, 1), (1, 3 * LIMIT), (7, 43), (3, LIMIT)])
def test_an_answer_without_all_of_its_rows_is_an_error(store: Store, count: int, rows: int) -> None:
    store.write(nodes(count, rows), schema.RAW)
    question = asked().between(T0, T0 + 60 * rows)
    for ask in (store.query, store.frame):
        with pytest.raises(match="max-row-limit") as refused:
            ask(question.text())
        assert "influxdb.conf" in refused.value.hint
    with pytest.raises(PartialAnswerError):
        next(store.rows(question))
    for tags in ((schema.NODE,), (schema.NODE, schema.GROUP, schema.SHARD)):
        with pytest.raises(PartialAnswerError):
            store.numbers(question.by(*tags))


def test_an_answer_below_the_limit_is_whole(store: Store) -> None:
    store.write(nodes(LIMIT - 1, 1), schema.RAW)
    question = asked().between(T0, T0 + 60)
    assert store.frame(question.text()).height == LIMIT - 1
    assert len(store.numbers(question).values) == LIMIT - 1
    assert len(store.numbers(question.by(schema.NODE, schema.GROUP, schema.SHARD)).values) == LIMIT - 1


def test_of_statements_asked_together_each_is_whole_or_an_error(store: Store) -> None:
    store.write(nodes(NODES, MINUTES), schema.RAW)
    # 60 rows each: the second is cut, and asked for again. The last one is too much by itself.
    few, all_of_them = (asked().between(T0, T0 + 60 * minutes).text() for minutes in (2, MINUTES))
    *whole, cut = store.answers([few, few, few, all_of_them])
    for one in whole:
        assert not isinstance(one, StoreError)
        assert sum(len(series.values) for series in one) == 2 * NODES
    assert isinstance(cut, PartialAnswerError)


def test_a_long_series_is_whole_where_there_is_no_limit(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """InfluxDB 1.6 marks it as partial for all that."""
    rows = 20_001
    store = Store(StoreSettings(url=influxdb_v1.url, database=fresh_database))
    store.execute(f'CREATE DATABASE "{fresh_database}" WITH NAME raw')
    store.write("\n".join(f"long v={row}i {T0 + row}" for row in range(rows)).encode(), "raw")
    assert len(store.query('SELECT "v" FROM "raw"."long"')[0].values) == rows
    ((whole,), (again,)) = store.answers(['SELECT "v" FROM "raw"."long"'] * 2)
    assert whole == again
    store.close()


def sums(store: Store, retention: str) -> int:
    found = store.query(f'SELECT sum("tx_bytes") FROM "{retention}"."{schema.NODE_TRAFFIC.name}"')
    return sum(int(row[1]) for series in found for row in series.values)


def touched(rollup: Rollup) -> Rollup:
    rollup.load({"1m": [T0 + 60 * minute for minute in range(MINUTES)], "1h": [T0 // 3600 * 3600]})
    return rollup


def test_a_rollup_asks_for_less_at_a_time(site: tuple[Cluster, Store]) -> None:
    known, store = site
    store.write(nodes(NODES, MINUTES), schema.RAW)
    rollup = touched(rollup_of(known, store))
    rollup.run()
    assert sums(store, "1m") == sums(store, "1h") == NODES * MINUTES
    assert rollup.dump() == {"1m": [], "1h": []}


def test_a_rollup_asks_for_less_where_influxdb_refuses_so_much(
    influxdb_v1: LocalInfluxDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = local_influxdb._CONFIG.replace("[http]", "[coordinator]\n  max-select-buckets = 8\n[http]")
    monkeypatch.setattr(local_influxdb, "_CONFIG", limited)
    with LocalInfluxDB(tmp_path, binary=influxdb_v1.binary) as server:
        known, store = stored_at(server.url, "x")
        store.write(nodes(NODES, MINUTES), schema.RAW)
        touched(rollup_of(known, store)).run()
        assert sums(store, "1m") == sums(store, "1h") == NODES * MINUTES
        with pytest.raises(PartialAnswerError, match="max-select-buckets") as refused:
            store.query(asked().between(T0, T0 + 60 * MINUTES).text())
        (line,) = refused.value.lines()
        assert "\n" not in line
        store.close()


def test_a_rollup_that_cannot_ask_for_less_forgets_nothing(
    influxdb_v1: LocalInfluxDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, LocalInfluxDB(tmp_path, binary=influxdb_v1.binary) as server:
        known, store = stored_at(server.url, "x")
        store.write(nodes(NODES, MINUTES), schema.RAW)
        rollup = touched(rollup_of(known, store))
        todo = rollup.dump()
        server.stop()
        with_limit(patch, NODES - 1)
        server.start()
        with pytest.raises(PartialAnswerError):
            rollup.run()
        assert rollup.dump() == todo
        server.stop()
        patch.undo()
        server.start()
        rollup.run()
        assert sums(store, "1m") == sums(store, "1h") == NODES * MINUTES
        store.close()
