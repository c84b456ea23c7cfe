"""Whatever a name holds, the store holds that name and nothing else, and a question about it asks about it alone."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hostile import HOSTILE, shown
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import StoreError
from cluster.load import load_cluster
from store import schema
from store.influx import Store
from store.influxql import Select, beside, identifier, is_in
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW, encode

CLUSTER = load_cluster(Path(__file__).resolve().parents[2] / "cluster.yaml")
NOW = int(time.time()) // 10 * 10
TEXT = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=40)
"""Any text that is Unicode: half a surrogate pair is none, and no reader of ours lets it pass."""


@pytest.fixture(scope="module", params=["influxdb_v1", "influxdb_v2"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    server: LocalInfluxDB = request.getfixturevalue(request.param)
    store = Store(replace(CLUSTER.store, url=server.url, database="injection"))
    yield store
    store.close()


def as_stored(text: str) -> str:
    """Return what becomes of a tag's value: line protocol cannot say a backslash there, nor the end of a line."""
    return text.replace("\\", "/").replace("\r", " ").replace("\n", " ")


def emptied(store: Store) -> None:
    store.execute('DROP DATABASE "injection"')
    store.ensure(CLUSTER.retentions())


def point(tag: str, text: str) -> bytes:
    """Return a job's row: its name is a tag, its event a text."""
    row = {
        WINDOW: [NOW], schema.JOB: [tag], schema.JOB_CLASS: ["class"], schema.ACTIVE.name: [1],
        schema.JOB_EVENT.name: [text],
    }  # fmt: skip
    return encode(schema.JOB_STATUS, pl.DataFrame(row))


def check_stored(store: Store, tag: str, text: str) -> None:
    """Write a row; whatever there is then in the database is that row, as it was meant."""
    emptied(store)
    store.write(point(tag, text), schema.RAW)
    names = [row[0] for series in store.query("SHOW MEASUREMENTS") for row in series.values]
    assert names == [schema.JOB_STATUS.name]
    keys = [row[0] for series in store.query("SHOW TAG KEYS") for row in series.values]
    assert sorted(keys) == sorted([schema.JOB, schema.JOB_CLASS])
    fields = [row[0] for series in store.query("SHOW FIELD KEYS") for row in series.values]
    assert sorted(fields) == sorted([schema.ACTIVE.name, schema.JOB_EVENT.name])
    (series,) = store.query(f'SELECT "event" FROM "raw"."{schema.JOB_STATUS.name}" GROUP BY "{schema.JOB}"')
    assert series.tags == {schema.JOB: as_stored(tag)}
    assert series.values == [[NOW * 1000, text]]


def check_asked(store: Store, tag: str) -> None:
    """Ask for the row by its name; another name's row does not come with it."""
    store.write(point("another", "x"), schema.RAW)
    name = as_stored(tag)
    every = Select(schema.JOB_STATUS, schema.RAW).take(beside(schema.ACTIVE)).between()
    for asked, rows in ((every.where(is_in(schema.JOB, [name])), 1), (every, 2)):
        assert [len(series.values) for series in store.query(asked.text())] == [rows], asked


@pytest.mark.parametrize("text", HOSTILE, ids=shown)
def test_a_hostile_name_is_stored_and_found_as_it_is(store: Store, text: str) -> None:
    check_stored(store, text, text)
    check_asked(store, text)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tag=TEXT.filter(lambda text: "\0" not in text), text=TEXT)
def test_any_name_is_stored_and_found_as_it_is(store: Store, tag: str, text: str) -> None:
    check_stored(store, tag, text)
    check_asked(store, tag)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=TEXT)
def test_a_quoted_identifier_is_one_identifier(store: Store, name: str) -> None:
    """A measurement of that name is not there: InfluxDB answers nothing, or that it cannot read it; it runs nothing."""
    emptied(store)
    store.write(point("kept", "x"), schema.RAW)
    answer, refusal = [], ""
    try:
        answer = store.query(f"SELECT * FROM {identifier(name)}")
    except StoreError as error:
        refusal = error.message
    assert answer == []
    assert not refusal or "error parsing query" in refusal or "invalid" in refusal, refusal
    assert store.query("SHOW MEASUREMENTS")
