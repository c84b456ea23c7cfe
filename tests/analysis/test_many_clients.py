"""5,000 clients of inference: all are in the ledger and judged, few are series, and every byte is there once."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import service_scene as scenes
from click.testing import CliRunner
from service_scene import Scene
from test_access_store import NOW, denied, study_of, with_access

from analysis.access_cli import accessed
from analysis.detectors.inference.asked import Asked
from analysis.detectors.study import Span
from app.log import Log
from cluster.dump import dump_cluster
from cluster.model import AccessEntry
from clusterflow import main
from ingest.count.aggregate import FIRST, LAST
from ingest.count.tables import WindowTable
from store import schema
from store.influxql import is_in
from store.local_influxdb import LocalInfluxDB
from store.packed import ASKED, packed, unpacked
from store.points import WINDOW, batches
from store.schema import AccessBreach, Measurement, Violation

CROWD = [f"10.70.{number // 250}.{number % 250}" for number in range(5_000)]
WINDOWS = 6
NAMED = 40


@pytest.fixture
def scene(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    with scenes.opened(influxdb_v1, fresh_database) as found:
        yield found


def requests(window: int, **sent: int) -> pl.DataFrame:
    """Return what each of the crowd sends, 1,000 bytes and its place in it, and what others send by https or ssh."""
    rows = [(client, 1_000 + place) for place, client in enumerate(CROWD)] + list(sent.items())
    constant = {
        schema.SRC_GROUP: "users", schema.DST: "10.50.0.11", schema.DST_GROUP: "inference", schema.PROTO: "tcp",
        schema.SERVICE: "https", schema.OFF_WINDOW: schema.NO,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=[schema.SRC, "bytes"], orient="row").with_columns(
        pl.lit(window, pl.Int64).alias(WINDOW),
        *(pl.lit(value).alias(name) for name, value in constant.items()),
        *(pl.lit("").alias(label) for label in schema.LABELS),
        *(pl.lit(1, pl.Int64).alias(name) for name in ("packets", "flows")),
        *(pl.lit(window * 1000 + at, pl.Int64).alias(name) for name, at in ((FIRST, 0), (LAST, 9_000))),
    )


def bridge(scene: Scene, *flushes: pl.DataFrame) -> WindowTable:
    """Write what a bridge does, flush by flush."""
    table = WindowTable(schema.INFERENCE, named=NAMED, budget=10_000, keep=7 * 86_400)
    for rows in flushes:
        table.add(rows)
        touched = table.pending_windows()
        put(scene, schema.INFERENCE, table.merge())
        unnamed, places = table.unnamed(touched)
        put(scene, schema.INFERENCE_UNNAMED, packed(unnamed.select(*ASKED), places))
    return table


def put(scene: Scene, measurement: Measurement, points: pl.DataFrame) -> None:
    for lines, _ in batches(measurement, points.with_columns(pl.lit("0").alias(schema.SHARD))):
        scene.store.write(lines, schema.RAW)


def total(scene: Scene, measurement: Measurement) -> int:
    return sum(int(str(row["bytes"])) for row in scene.rows(measurement))


def test_all_are_in_the_ledger_and_the_one_who_may_not_is_told_by_name(scene: Scene, tmp_path: Path) -> None:
    """One of the crowd, among the smallest, is not on the list; few clients become series."""
    everybody = 5_000 * 1_000 + sum(range(5_000))
    bridge(scene, *(requests(NOW + 10 * number) for number in range(WINDOWS)))
    path = tmp_path / "gateway.jsonl"
    lines = [{"address": one, "user": "thief" if one == CROWD[7] else "staff", "time": NOW - 60} for one in CROWD]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    cluster = with_access(scene, path, AccessEntry(users=("staff",)))
    scenes.run(scene, study_of(scene, cluster), NOW, NOW + 300, 60)
    assert denied(scene) == {(CROWD[7], AccessBreach.USER)}
    found = accessed(scene.store, NOW, NOW + 300, [])
    assert set(found.get_column(schema.SRC)) == set(CROWD)
    assert (
        found.get_column("bytes").sum()
        == WINDOWS * everybody
        == sum(int(str(r["bytes"])) for r in scene.rows(schema.ACCESS))
    )
    (thief,) = accessed(scene.store, NOW, NOW + 300, [is_in(schema.USER, ["thief"])]).rows(named=True)
    assert (thief[schema.SRC], thief["bytes"]) == (CROWD[7], WINDOWS * 1_007)
    assert len({row[schema.SRC] for row in scene.rows(schema.ACCESS)}) <= 2 * NAMED + 1
    assert len(scene.rows(schema.ACCESS_UNNAMED)) <= 17

    config = tmp_path / "cluster.yaml"
    config.write_text(dump_cluster(replace(cluster, identity=replace(cluster.identity, pseudonymise=None))))
    arguments = ["access", "--config", str(config), "--from", str(NOW), "--to", str(NOW + 300), "--csv", "-"]
    exported = CliRunner().invoke(main, arguments, catch_exceptions=False).output.splitlines()
    assert len(exported) == 5_001


def test_a_client_that_gets_a_name_later_counts_once(scene: Scene) -> None:
    """In the second flush one of the ledger sends so much that it is named, and in the third a new one comes."""
    more = requests(NOW).filter(pl.col(schema.SRC) == CROWD[3]).with_columns(pl.lit(9_000_000, pl.Int64).alias("bytes"))
    table = bridge(scene, requests(NOW), more, requests(NOW, newcomer=5).tail(1))
    asked = Asked(scene.cluster, scene.store, Log()).of(Span(NOW, NOW + 10, NOW + 10, NOW + 10))
    sums = dict(asked.group_by(schema.SRC).agg(pl.sum("bytes")).rows())
    assert sums == {one: 1_000 + place + 9_000_000 * (place == 3) for place, one in enumerate(CROWD)} | {"newcomer": 5}
    assert asked.filter(pl.col("unnamed")).height < 5_000
    before = unpacked(scene.store, schema.INFERENCE_UNNAMED, ASKED, start=NOW, stop=NOW + 10)
    rows, places = table.unnamed()
    put(scene, schema.INFERENCE_UNNAMED, packed(rows.select(*ASKED), places))
    assert unpacked(scene.store, schema.INFERENCE_UNNAMED, ASKED, start=NOW, stop=NOW + 10).equals(before)


def test_a_flood_of_clients_that_may_not_makes_few_series(scene: Scene, tmp_path: Path) -> None:
    """All 5,000 are not on the list: those named and 20 more are told by name, the rest as one, to the byte."""
    bridge(scene, *(requests(NOW + 10 * number) for number in range(WINDOWS)))
    cluster = with_access(scene, tmp_path / "none.jsonl", AccessEntry(users=("staff",)))
    scenes.run(scene, study_of(scene, cluster), NOW, NOW + 300, 60)
    rows = scene.rows(schema.ACCESS_BREACH)
    assert len({row[schema.SRC] for row in rows}) <= 2 * NAMED + 21
    assert total(scene, schema.ACCESS_BREACH) == WINDOWS * (5_000 * 1_000 + sum(range(5_000)))


def test_the_audit_has_all_who_may_not_ask_and_says_how_much_has_no_name(scene: Scene, tmp_path: Path) -> None:
    """Users are not allowed at inference: all 5,000 are in the export, though violations name few of them."""
    bridge(scene, requests(NOW))
    cluster = with_access(scene, tmp_path / "none.jsonl", AccessEntry(users=("staff",)))
    cluster = replace(cluster, allowed=tuple(pair for pair in cluster.allowed if pair.src != "users"))
    scenes.run(scene, study_of(scene, cluster), NOW, NOW + 300, 300)
    tags = {
        schema.KIND: Violation.NOT_ALLOWED, schema.SRC_GROUP: "users", schema.DST_GROUP: "inference",
        schema.PROTO: "tcp", schema.SERVICE: "https", schema.INITIATOR: schema.BY_SOURCE,
    }  # fmt: skip
    for client, sent in (("10.70.0.1", 250), (schema.OTHER, 750)):
        scene.write(
            schema.VIOLATION, tags | {schema.SRC: client, schema.DST: client}, [NOW], schema.RAW, bytes=sent, flows=1
        )
    config = tmp_path / "cluster.yaml"
    config.write_text(dump_cluster(cluster))
    asked = ["audit", "--config", str(config), "--from", str(NOW), "--to", str(NOW + 600)]
    table = CliRunner().invoke(main, [*asked, "--csv", "-"], catch_exceptions=False).output
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["section"] == "unauthorised_client"]
    assert {row[schema.SRC] for row in rows} == set(CROWD)
    assert sum(int(row["bytes"]) for row in rows) == 5_000 * 1_000 + sum(range(5_000))
    assert "75.0% of these bytes are of other" in table
    assert "75.0% of these bytes are of other" in CliRunner().invoke(main, asked, catch_exceptions=False).output
    document = json.loads(CliRunner().invoke(main, [*asked, "--json"], catch_exceptions=False).output)
    assert document["share_of_bytes_of_other"]["violation"] == 0.75


def test_a_text_holds_so_many_rows_and_the_smallest_beyond_are_one() -> None:
    """Forged addresses that all end alike cannot make a text longer than InfluxDB takes."""
    crowd = pl.DataFrame({schema.SRC: [f"2001:db8:{number:x}:{number * 7919:x}::1" for number in range(9_000)]})
    rows = crowd.with_columns(
        pl.lit(NOW, pl.Int64).alias(WINDOW), pl.lit("inference").alias(schema.DST_GROUP),
        pl.int_range(pl.len()).alias("bytes"),
    )  # fmt: skip
    points = packed(rows, rows.select(WINDOW, schema.DST_GROUP))
    assert points.get_column("packed").str.len_bytes().max() < 64_000  # type: ignore[operator]
    assert points.filter(pl.col("packed") != "").height == 1
