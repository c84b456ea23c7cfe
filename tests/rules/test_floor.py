"""`clusterflow floor`: what is unseen goes unseen, what is a little more does not, and the search finds the edge."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from analysis.audit import Period
from app.errors import UserError
from cluster.load import load_cluster
from cluster.model import Cluster, Group, Role, StoreApi
from reporting.content import Table
from reporting.look import Look
from reporting.sections import gaps
from rules.evaluate import floor as floors
from rules.evaluate.floor import CAP, Floor, Scene, Way, largest
from simulate.floor_cli import floor, keep
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

STARTER = Path(__file__).parents[2] / "cluster.yaml"
NOW = 1_780_000_000
DAY = 86_400


@pytest.mark.parametrize("true", [3.0, 49.9, 50.0, 51.0, 700.0, 99_000.0])
def test_a_search_ends_at_the_edge(true: float) -> None:
    asked: list[float] = []

    def is_unseen(value: float) -> bool:
        asked.append(value)
        return value <= true

    found = largest(is_unseen, 50.0, 100_000.0)
    assert found is not None
    assert true / 1.021 <= found <= true
    assert len(asked) < 20


@pytest.mark.parametrize(("true", "found"), [(100_000.0, None), (1e9, None), (0.0, 0.0)])
def test_a_search_says_that_there_is_no_edge(true: float, found: float | None) -> None:
    assert largest(lambda value: value <= true, 50.0, 100_000.0) == found


@pytest.fixture
def scene(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    """The starter cluster of which nothing is learnt yet."""
    yield from _scene(influxdb_v1, fresh_database, 0)


@pytest.fixture
def learnt(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    """The same after four weeks in which partners fetched 100 GB a day."""
    yield from _scene(influxdb_v1, fresh_database, 100 * 10**9)


def _scene(influxdb: LocalInfluxDB, database: str, daily: int) -> Iterator[Scene]:
    plain = load_cluster(STARTER)
    settings = replace(plain.store, url=influxdb.url, api=StoreApi.V1, database=database)
    cluster = replace(plain, store=settings)
    store = Store(settings)
    yield Scene(cluster, floors.made_past(cluster, NOW, daily), store, NOW)
    store.close()


def _theft(scene: Scene, way: Way) -> "floors.Theft":
    return next(one for one in floors.thefts(scene, 1) if one.way is way)


def test_groups_that_are_judged_alike_are_searched_once(learnt: Scene) -> None:
    """A site of 200 groups would take hours."""
    plain = learnt.cluster
    more = [Group(f"team_{n}", f"Team {n}", Role.CUSTOM, exfil_scale=2.0 if n == 7 else 1.0) for n in range(30)]
    busy = learnt.past.with_columns(pl.lit("team_3").alias("src_group"))
    wide = Scene(replace(plain, groups=(*plain.groups, *more)), pl.concat([learnt.past, busy]), learnt.store, NOW)
    found = [one for one in floors.thefts(wide, 1) if one.way is Way.PEOPLE]
    assert [one.about for one in found] == [
        "by way of Inference Clients, Team 0, Team 1 and 26 more, beside what they usually send",
        "by way of Team 3, beside what they usually send",
        "by way of Team 7, beside what they usually send",
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("way", [Way.SINGLE, Way.SPLIT])
def test_no_split_carries_more_past_the_limits(scene: Scene, way: Way) -> None:
    """Each of the limits of 24 hours, 7 and 30 days is an edge, whatever the number of addresses."""
    theft, limits = _theft(scene, way), scene.cluster.thresholds
    for limit, days in ((limits.exfil_24h, 1), (limits.exfil_7d, 7), (limits.exfil_30d, 30)):
        assert theft.is_unseen(scene, 0.98 * limit, days * DAY)
        assert not theft.is_unseen(scene, 1.02 * limit, days * DAY)


@pytest.mark.thorough
def test_a_theft_leaves_nothing_behind_for_the_next(scene: Scene) -> None:
    theft, limit = _theft(scene, Way.SPLIT), scene.cluster.thresholds.exfil_24h
    assert not theft.is_unseen(scene, 10.0 * limit, 3 * DAY)
    assert theft.is_unseen(scene, 0.98 * limit, DAY)


@pytest.mark.thorough
def test_of_people_nothing_is_usual_without_a_past(scene: Scene) -> None:
    theft = _theft(scene, Way.PEOPLE)
    assert theft.about.startswith("by way of Inference Clients")
    assert theft.is_unseen(scene, CAP, DAY)


@pytest.mark.thorough
def test_people_who_never_sent_anything_have_the_limit_of_a_day(learnt: Scene) -> None:
    theft, limit = _theft(learnt, Way.PEOPLE), learnt.cluster.thresholds.exfil_24h
    assert theft.is_unseen(learnt, 0.9 * limit, DAY)
    assert not theft.is_unseen(learnt, 1.1 * limit, DAY)


@pytest.mark.thorough
def test_what_is_usual_hides_some_and_not_all(learnt: Scene) -> None:
    """Beside what partners fetch, a fifth of the 24-hour limit is lost in the noise; a whole model a day is not."""
    theft = _theft(learnt, Way.APPROVED)
    assert theft.is_unseen(learnt, 0.2 * learnt.cluster.thresholds.exfil_24h, DAY)
    assert not theft.is_unseen(learnt, 10.0 * learnt.cluster.thresholds.exfil_24h, DAY)


@pytest.mark.thorough
def test_samples_are_scaled_and_err(scene: Scene) -> None:
    """One packet in a million: twice the limit is 67 samples, and is seen; half of it is not."""
    limit = scene.cluster.thresholds.exfil_24h
    theft = next(one for one in floors.thefts(scene, 1_000_000) if one.way is Way.SAMPLED)
    assert theft.is_unseen(scene, 0.5 * limit, DAY)
    assert not theft.is_unseen(scene, 3.0 * limit, DAY)


def test_an_approved_volume_that_is_none_is_refused() -> None:
    result = CliRunner().invoke(floor, ["--config", str(STARTER), "--approved", "much"])
    assert isinstance(result.exception, UserError)
    assert "--approved much: expected a size" in str(result.exception)


def test_what_never_happens_is_null(scene: Scene) -> None:
    never: Cluster = scene.cluster
    one = floors.Floor(Way.SINGLE, "", 0.0, 0.0, {never.artefacts[0].name: float("inf")})
    assert json.loads(json.dumps(floors.finite(one.json())))["days_to_lose"] == {never.artefacts[0].name: None}


def test_the_stored_weeks_are_read_to_the_byte(learnt: Scene) -> None:
    now = -(-NOW // DAY) * DAY
    read = floors.stored_past(learnt.cluster, learnt.store, now)
    assert read.get_column("bytes").sum() == learnt.past.get_column("bytes").sum()
    assert read.get_column("dst").n_unique() == 3
    again = Scene(learnt.cluster, read, learnt.store, now)
    assert [one.talks for one in floors.thefts(again, 1)] == [one.talks for one in floors.thefts(learnt, 1)]


def test_small_conversations_of_the_past_become_one(scene: Scene) -> None:
    at = NOW // DAY * DAY - DAY
    lines = [
        f"egress,src=store,src_group=model_storage,dst=203.0.113.{n},dst_group=external,proto=tcp,service=https,"
        f"initiator=src,shard=0 bytes={n + 1}i {at}"
        for n in range(100)
    ]
    scene.store.write("\n".join(lines).encode(), "1h")
    read = floors.stored_past(scene.cluster, scene.store, at + DAY)
    assert read.height == 41
    assert read.filter(dst="other").get_column("bytes").sum() == sum(range(1, 61))
    assert read.get_column("bytes").sum() == sum(range(1, 101))


def test_the_coarsest_rate_is_what_exporters_said(scene: Scene) -> None:
    assert floors.coarsest(scene.cluster, scene.store, NOW) == 1
    scene.store.write(f"exporter,exporter=border-1,shard=0 sampling=1000i {NOW - 60}".encode(), "1m")
    assert floors.coarsest(scene.cluster, scene.store, NOW) == 1000


def test_the_result_is_kept_for_the_board_and_the_report(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    plain = load_cluster(STARTER)
    cluster = replace(plain, store=replace(plain.store, url=influxdb_v1.url, api=StoreApi.V1, database=fresh_database))
    store = Store(cluster.store)
    store.ensure(tuple(replace(one, keep=0) for one in cluster.retentions()))
    ways = [
        Floor(Way.SPLIT, "Model Storage to many addresses", 50e9, 3e9, {"llama-70b": 2.8, "llama-405b": math.inf}),
        Floor(Way.BLIND, "GPU Training Nodes and Storage", None, None, {}),
    ]
    for at in (NOW - 7 * DAY, NOW):
        keep(store, ways, at)
    shown = gaps.section(Look(cluster, store, Period(NOW - 30 * DAY, NOW + 3600, "1h", 3600), NOW + 3600))
    (table,) = (block for block in shown.blocks if isinstance(block, Table) and block.key == "unseen_floor")
    assert sorted(table.rows, key=str) == [
        ("blind", "GPU Training Nodes and Storage", None, None, ""),
        ("split", "Model Storage to many addresses", 50e9, 3e9, "llama-70b: 2.8; llama-405b: never"),
    ]
    store.close()
