"""What is counted is counted once, and from where it is stored: also where raw points of the begin are gone."""

import time
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import week

from analysis.audit import Period, period_of
from cluster.model import Cluster
from operations.alert_history import MOST
from reporting.content import Bars, Section, Table
from reporting.incident.nearby import unseen
from reporting.look import Look
from reporting.page import section_parts
from reporting.sections import alerts, checkpoints, egress, gaps, inference, segmentation
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW, encode
from store.schema import CheckpointState, Measurement, Stage

DAY = 86_400
TCP = {schema.PROTO: "tcp", schema.SERVICE: "https"}


@dataclass(frozen=True)
class Place:
    """A store that keeps raw points for two days."""

    cluster: Cluster
    store: Store
    now: int

    def put(
        self, measurement: Measurement, retention: str, moments: Iterable[int], tags: Mapping[str, str],
        **fields: object,
    ) -> None:  # fmt: skip
        own = {schema.SHARD: "0"} if schema.SHARD in measurement.tags else {}
        frame = pl.DataFrame([{WINDOW: moment, **own, **tags, **fields} for moment in moments])
        self.store.write(encode(measurement, frame), retention)

    def look(self, seconds: int) -> Look:
        return Look(self.cluster, self.store, period_of(self.cluster, self.now - seconds, self.now, self.now), self.now)


@pytest.fixture
def place(tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Place]:
    path = week.cluster_file(tmp_path, influxdb_v1.url, fresh_database)
    text = path.read_text(encoding="utf-8").replace("raw: 5000d", "raw: 2d")
    hours = text.replace("services: [https]}]", 'services: [https]}]\n  hours: {from: "00:00", to: "00:01"}')
    path.write_text(hours, encoding="utf-8")
    cluster, store = week.opened(path)
    yield Place(cluster, store, int(time.time()) // 3600 * 3600)
    store.close()


def fact(section: Section, key: str) -> object:
    return next(one.value for one in section.facts if one.key == key)


def table(section: Section, key: str) -> list[dict[str, Any]]:
    found = next(block for block in section.blocks if isinstance(block, Table) and block.key == key)
    return [dict(zip([column.key for column in found.columns], row, strict=True)) for row in found.rows]


def test_parts_of_ours_are_judged_as_far_back_as_their_heartbeats_are_kept(place: Place) -> None:
    beats = range(place.now - 3 * 3600, place.now, 60)
    for stage, shard in ((Stage.BRIDGE, "0"), (Stage.ANALYSIS, "0")):
        tags = {schema.STAGE: stage, schema.REASON: schema.HEARTBEAT, schema.SHARD: shard}
        place.put(schema.PIPELINE, schema.RAW, beats, tags, value=1.0)
    failing = {schema.STAGE: Stage.JOBS, schema.REASON: f"slurm.{schema.JobReading.FAILING}", schema.SHARD: "deliver"}
    place.put(schema.PIPELINE, schema.RAW, [place.now - 1200], failing, value=90.0)
    found = gaps.section(place.look(20 * DAY))
    # Of the two days that are known, all but the last three hours.
    lengths = [row["seconds"] for row in table(found, "gaps") if row["what"] == "not running"]
    assert lengths == [2 * DAY - 3 * 3600] * 2
    assert table(found, "job_sources") == [{"source": "slurm", "failing_seconds": 90.0}]
    assert any("ran" in note and "2d" in note for note in found.notes)


def test_a_conversation_of_two_kinds_is_one(place: Place) -> None:
    talk = TCP | {
        schema.SRC: "10.70.0.9", schema.SRC_GROUP: "users", schema.DST: "10.60.0.1", schema.DST_GROUP: "control",
        schema.INITIATOR: schema.BY_SOURCE,
    }  # fmt: skip
    for kind in (schema.Violation.NOT_ALLOWED, schema.Violation.MANAGEMENT):
        tags = talk | {schema.KIND: kind}
        place.put(schema.VIOLATION, schema.RAW, [place.now - 1800], tags, bytes=1000, flows=1)
    found = segmentation.section(place.look(3600))
    assert fact(found, "conversations") == 1
    assert found.lead.startswith("1 conversation that")
    (bars,) = (block for block in found.blocks if isinstance(block, Bars))
    assert "one may be of several kinds" in bars.title


def _threat(src: str, dst: str, direction: str, **more: str) -> dict[str, str]:
    way = {schema.SRC: src, schema.DST: dst, schema.SRC_GROUP: "users", schema.DST_GROUP: "external"}
    return TCP | way | {schema.DIRECTION: direction, schema.LATE: schema.NO, schema.FEED: "x"} | more


LISTED = {"bytes": 1000, "confidence": 80, "listed_since": 1}


def test_a_conversation_with_a_listed_address_is_one_both_ways_and_under_all_labels(place: Place) -> None:
    for tags in (
        _threat("gpu-1", "203.0.113.9", "out"),
        _threat("203.0.113.9", "gpu-1", "in"),
        _threat("gpu-1", "203.0.113.9", "out", country="NL"),
    ):
        place.put(schema.THREAT, schema.RAW, [place.now - 1800], tags, **LISTED)
    found = egress.section(place.look(3600))
    assert len(table(found, "threats")) == 3
    assert fact(found, "threats") == 1
    assert any(word.text.startswith("1 conversation with") for word in found.attention)


def test_live_matches_are_read_from_the_periods_rollup_and_late_ones_from_hours(place: Place) -> None:
    for retention in (schema.RAW, schema.MINUTE):
        place.put(schema.THREAT, retention, [place.now - 1800], _threat("gpu-1", "203.0.113.9", "out"), **LISTED)
    late = _threat("gpu-2", "203.0.113.9", "out", late=schema.YES)
    for retention in (schema.RAW, schema.HOUR):
        place.put(schema.THREAT, retention, [place.now - 7200], late, **LISTED)
    for seconds in (DAY, 20 * DAY):
        rows = table(egress.section(place.look(seconds)), "threats")
        assert sorted((row["src"], row["direction"]) for row in rows) == [
            ("gpu-1", "outward"), ("gpu-2", "outward, found late"),
        ]  # fmt: skip


def test_a_country_has_each_destination_once(place: Place) -> None:
    tags = TCP | {
        schema.DST: "203.0.113.9", schema.DST_GROUP: "external", schema.COUNTRY: "NL", schema.OFF_HOURS: schema.NO,
        schema.INITIATOR: schema.BY_SOURCE,
    }  # fmt: skip
    for group in ("training", "storage"):
        row = tags | {schema.SRC: f"{group}-1", schema.SRC_GROUP: group}
        place.put(schema.EGRESS, schema.RAW, [place.now - 1800], row, bytes=1000, flows=1)
    (country,) = table(egress.section(place.look(3600)), "by_country")
    assert (country["country"], country["destinations"], country["bytes"]) == ("NL", 1, 2000)


def test_a_client_outside_its_hours_is_one_with_and_without_its_user(place: Place) -> None:
    asked = TCP | {schema.SRC: "10.70.0.1", schema.SRC_GROUP: "users", schema.DST: "10.50.0.11",
                   schema.DST_GROUP: "inference"}  # fmt: skip
    moments = [place.now - 1800]
    off = asked | {schema.OFF_WINDOW: schema.YES}
    place.put(schema.INFERENCE, schema.RAW, moments, off, bytes=1000, flows=1)
    place.put(schema.INFERENCE, schema.RAW, moments, off | {schema.DST: "10.50.0.12"}, bytes=400, flows=1)
    breach = asked | {schema.KIND: schema.AccessBreach.HOURS, schema.USER: "alice"}
    place.put(schema.ACCESS_BREACH, schema.RAW, moments, breach, bytes=1000, flows=1)
    found = inference.section(place.look(3600))
    assert fact(found, "denied_clients") == 1
    assert [(row["user"], row["dst"]) for row in table(found, "breaches")] == [
        ("alice", "10.50.0.11"), (schema.UNKNOWN_USER, "10.50.0.12"),
    ]  # fmt: skip


def test_a_checkpoint_under_way_is_not_counted(place: Place) -> None:
    job = {schema.JOB: "run-1", schema.JOB_CLASS: "llm"}
    nothing = {"due": 0.0, "gap": 1800.0, "expected_bytes": 1000, "expected_nodes": 4}
    written = nothing | {"bytes": 1000, "seconds": 30.0, "nodes": 4, "state": int(CheckpointState.ON_TIME)}
    kept = schema.CHECKPOINT.kept
    over, under_way = place.now - 2700, place.now - 900
    place.put(schema.CHECKPOINT, kept, [over, under_way], job, **written)
    # What a crash would lose counts from the first one still.
    place.put(
        schema.CHECKPOINT_STATUS, schema.CHECKPOINT_STATUS.kept, [place.now - 600], job,
        age=float(place.now - 600 - over - 30), overdue=0.0, period=1800.0, regular=1, usd_at_risk=1.0,
    )  # fmt: skip
    found = checkpoints.section(place.look(3600))
    assert found.lead.startswith("1 of 1 checkpoints")
    # Its job ended amid it: two hours later nobody waits any more.
    cluster, store, now = place.cluster, place.store, place.now
    later = Look(cluster, store, period_of(cluster, now - 3600, now, now + 7200), now + 7200)
    assert checkpoints.section(later).lead.startswith("2 of 2 checkpoints")


def test_more_alerts_than_are_read_are_said(place: Place) -> None:
    tags = {schema.RULE: "exfil_volume", schema.SEVERITY: "critical", schema.SRC: "store-1", schema.ALERT_KEY: "0"}
    moments = range(place.now - 86_400, place.now - 86_400 + MOST)
    written = {**tags, schema.CHANGE: schema.Change.FIRED.value}
    place.put(schema.ALERT, schema.ALERT.kept, moments, written, **{schema.INCIDENT.name: "0"})
    section = alerts.history(place.look(2 * DAY))
    assert section.lead.startswith("At least 10,000 alerts fired")
    assert any("Only the newest 10,000 are read" in note for note in section.notes)


def test_exporters_by_the_hundred_are_counted_without_a_row_for_each_minute(place: Place) -> None:
    """A thousand have ten million minutes in a week."""
    minutes, start = 500, place.now - 40_000 // 60 * 60
    names = pl.DataFrame({schema.EXPORTER: [f"leaf-{number:03d}" for number in range(300)]})
    frame = pl.DataFrame({WINDOW: range(start, start + 60 * minutes, 60)}).join(names, how="cross")
    frame = frame.with_columns(pl.lit("0").alias(schema.SHARD), pl.lit(1).alias(schema.EXPORTER_RECORDS.name))
    place.store.write(encode(schema.EXPORTER_STATUS, frame), schema.MINUTE)
    look = Look(place.cluster, place.store, Period(start, start + 60 * minutes, schema.MINUTE, 60), place.now)
    assert look.audit.blind == 0
    tracemalloc.start()
    heard = gaps._heard(look)
    unseen(look)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {len(heard[name]) for name in names[schema.EXPORTER]} == {minutes}
    assert peak < 40e6


def test_a_page_lists_some_of_many_silent_exporters_and_says_so(place: Place) -> None:
    (one, *_) = place.cluster.exporters
    many = tuple(replace(one, name=f"leaf-{number:02d}") for number in range(60))
    look = place.look(7200)
    section = unseen(Look(replace(place.cluster, exporters=many), place.store, look.period, place.now))
    text = "".join(section_parts(section, look.words))
    assert section.lead == "60 exporters silent or with losses."
    assert "20 more exporters left out" in text
    # That has another period, and no table of this page.
    assert "report --json" not in text


def test_a_page_takes_pauses_of_a_quiet_exporter_for_no_silence(place: Place) -> None:
    """It begins half an hour before its alert, which is seldom at a whole minute."""
    (one, *_) = place.cluster.exporters
    start = place.now - 3590
    heard = {
        "busy": range(start, place.now, 10), "quiet": range(start, place.now, 120),
        "stopped": range(start, start + 1800, 10), "dark": range(0),
    }  # fmt: skip
    for name, moments in heard.items():
        place.put(schema.EXPORTER_STATUS, schema.RAW, moments, {schema.EXPORTER: name}, records=1)
    cluster = replace(place.cluster, exporters=tuple(replace(one, name=name, watched=True) for name in heard))
    section = unseen(Look(cluster, place.store, Period(start, place.now, schema.RAW, 10), place.now))
    states = {row["exporter"]: row["state"].text for row in table(section, "exporters")}
    assert states == {"stopped": "silent for 29m", "dark": "never heard"}


def test_a_page_says_whose_bytes_are_an_estimate(place: Place) -> None:
    for name, rate in (("border", 1000), ("leaf", 1)):
        place.put(schema.EXPORTER_STATUS, schema.RAW, [place.now - 400], {schema.EXPORTER: name}, sampling=rate)
    notes = unseen(place.look(600)).notes
    assert "Sampling exporters: border 1 packet in 1,000. Bytes that only they saw are estimates." in notes


def test_a_history_of_alerts_that_ended_is_missing(place: Place) -> None:
    """Deliver needs no destination to keep it; what fired later is in no report."""
    tags = {schema.STAGE: Stage.DELIVER.value, schema.REASON: schema.HEARTBEAT}
    moments = range(place.now - 40_000, place.now - 36_400, 10)
    nothing = {row["subject"] for row in table(gaps.section(place.look(40_000)), "gaps")}
    place.put(schema.PIPELINE, schema.RAW, moments, tags, **{schema.VALUE.name: 1.0})
    assert alerts.history(place.look(40_000)).lead == "No alert fired."
    section = gaps.section(place.look(40_000))
    assert {row["subject"] for row in table(section, "gaps")} - nothing == {"delivery (clusterflow deliver)"}
    assert not any("deliver" in note for note in section.notes if note.startswith("Not watched"))
