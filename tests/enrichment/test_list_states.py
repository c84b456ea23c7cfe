"""How it is with lists: broken before stale, limits of single lists, and what the store gives back of it."""

import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from app.errors import ConfigError
from cluster.load import parse_cluster
from cluster.model import ListSettings, Retention, StoreSettings
from enrichment.list_states import HOSTS, list_state, reading_rows
from enrichment.watched import FileReading
from ingest.flows.enriching import list_points
from operations.status.lists import stored_lists
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import encode
from store.schema import RAW, ListState

NOW = 1_800_000_000.0
DAY = 86_400
HEAD = "cluster: one\ngroups: {nodes: {role: training, prefixes: [10.0.0.0/8]}}\n"


def reading(
    age: float | None = 60.0, *, name: str = "places", kind: str = "geography", broken: bool = False
) -> FileReading:
    dated = None if age is None else NOW - age
    error = "places.mmdb: broken" if broken else ""
    return FileReading(
        name, kind, Path("places.mmdb"), 7, dated, "Example", 0, error, in_use=age is not None, broken=broken
    )


@pytest.mark.parametrize(
    ("one", "state"),
    [
        (reading(), ListState.OK),
        (reading(35 * DAY), ListState.OK),
        (reading(35 * DAY + 1), ListState.STALE),
        (reading(35 * DAY + 1, name="slow"), ListState.OK),
        (reading(3601, name="quick"), ListState.STALE),
        (reading(999 * DAY, kind=HOSTS), ListState.OK),
        (reading(3601, name="quick", kind=HOSTS), ListState.STALE),
        (reading(broken=True), ListState.BROKEN),
        (reading(99 * DAY, broken=True), ListState.BROKEN),
        (reading(None, broken=True), ListState.BROKEN),
        (reading(None), ListState.BROKEN),  # somebody writes it ever since: no version is in use
        (reading(-3600), ListState.OK),
    ],
)
def test_state(one: FileReading, state: int) -> None:
    settings = ListSettings(35 * DAY, (("slow", 90 * DAY), ("quick", 3600)))
    assert list_state(one, settings, NOW) == state


def test_limits_of_cluster_yaml() -> None:
    assert parse_cluster(HEAD).enrichment == ListSettings(35 * DAY, ())
    given = parse_cluster(f"{HEAD}enrichment: {{stale_after: 10d, lists: {{blocklist: 2d}}}}\n").enrichment
    assert given == ListSettings(10 * DAY, (("blocklist", 2 * DAY),))
    with pytest.raises(ConfigError) as caught:
        parse_cluster(f"{HEAD}enrichment: {{stale_after: 10}}\n")
    assert [problem.path for problem in caught.value.problems] == ["enrichment.stale_after"]


def test_of_several_bridges_the_one_that_is_worst_off_is_told(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    store = Store(StoreSettings(url=influxdb_v1.url, database=fresh_database))
    store.ensure((Retention(RAW, 10, 0),))
    now = int(time.time())
    moved = [replace(one, dated=one.dated and one.dated + now - NOW) for one in (reading(), reading(broken=True))]
    for shard, one, window in (("0", moved[1], now - 120), ("0", moved[0], now - 30), ("b", moved[1], now - 30)):
        frame = list_points([one, replace(one, name="feed", kind="feed")], ListSettings(), now, window)
        lines = encode(schema.ENRICHMENT, frame.with_columns(pl.lit(shard).alias(schema.SHARD)))
        store.write(lines, RAW)
    found = stored_lists(store, now)
    assert [(one.kind, one.name, one.state) for one in found] == [("feed", "feed", 2), ("geography", "places", 2)]
    assert (found[1].entries, found[1].origin, found[1].in_use) == (7, "Example", True)
    assert found[1].error == "places.mmdb: broken"
    assert found[1].age == pytest.approx(60, abs=2)


def test_rows_of_no_files_are_a_frame_that_nothing_is_written_of() -> None:
    assert reading_rows([], ListSettings(), NOW) == []
    assert encode(schema.ENRICHMENT, list_points([], ListSettings(), NOW, int(NOW))) == b""
