"""Inference, capacity and coverage: what their panels ask and say."""

import re
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from board_store import defaults, expand, load

from analysis.audit import Period
from analysis.jobs.job_windows import status_points
from analysis.writing import Output
from app.log import Log
from cluster.load import load_cluster
from cluster.model import EXTERNAL, Inference, Job, Outcome
from dashboards import questions
from dashboards.boards import capacity, coverage, noc_wall
from dashboards.filled_queries import own_range
from dashboards.parts import node_states
from dashboards.provision import boards
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters, bury
from ingest.read.records import DEAD_SCHEMA, Reason
from ingest.rollup import Rollup
from ingest.writer import Writer
from operations.status.status import _Look, _nodes
from reporting.incident.nearby import jobs_nearby
from reporting.look import Look
from store import points, schema
from store.influx import Series, Store
from store.influxql import Query, Select, Unit
from store.schema import Breach, Capacity, CoverageState, NodeState

CLUSTER = load_cluster(Path(__file__).resolve().parents[2] / "cluster.yaml")


@cache
def texts(skipped: tuple[str, ...] | None = None) -> dict[str, str]:
    """Return every board as text, built once."""
    return boards(CLUSTER, skipped)


def panel(name: str, title: str, skipped: tuple[str, ...] | None = None) -> dict[str, Any]:
    board = load(texts(skipped)[name])
    found: dict[str, Any] = next(one for one in board["panels"] if one["title"].startswith(title))
    return found


# -- rules that are switched off -----------------------------------------------------------------------


def test_the_coverage_board_lists_the_rules_that_are_switched_off() -> None:
    lines = ("node_dropout: training -> training: declared as roce", "inference_off_window: the whole rule: no hours")
    content = panel("coverage", "Rules that are switched off", lines)["options"]["content"]
    assert content.splitlines() == [
        r"- node\_dropout: training -> training: declared as roce",
        r"- inference\_off\_window: the whole rule: no hours",
    ]


@pytest.mark.parametrize(
    ("skipped", "words"), [(None, "`clusterflow build` says which"), ((), "None: every rule is generated")]
)
def test_it_says_where_to_look_or_that_there_is_none(skipped: tuple[str, ...] | None, words: str) -> None:
    assert panel("coverage", "Rules that are switched off", skipped)["options"]["content"].startswith(words)


def test_names_are_no_markup_and_no_variables() -> None:
    content = panel("coverage", "Rules that are switched off", ("x: ${secret} <b> [a](b)",))["options"]["content"]
    assert not set("$<") & set(content)
    assert r"\[a](b)" in content


# -- histograms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", ["Edge links by load", "Core links by load"])
def test_buckets_are_tenths_in_the_order_that_grafana_sorts_them(title: str) -> None:
    """Grafana parses the number that a row's name begins with; together the rows hold every share once."""
    heat = panel("capacity", title)
    assert heat["type"] == "heatmap"
    assert heat["interval"] == "3600s"
    starts = [int(re.match(r"\d+", target["alias"])[0]) for target in heat["targets"]]  # type: ignore[index]
    assert starts == list(range(0, 100, 10))
    # The first one takes what is below.
    lows = [re.search(r'"utilisation" >= ([\d.]+)', one["query"])[1] for one in heat["targets"][1:]]  # type: ignore[index]
    highs = [re.search(r'"utilisation" < ([\d.]+)', target["query"]) for target in heat["targets"]]
    assert [float(low) for low in lows] == [start / 100 for start in starts[1:]]
    assert highs[-1] is None, "what is over its limit is in the last one"
    assert [high[1] for high in highs[:-1] if high] == lows


DAYS_180 = 180 * 86_400


def test_a_link_counts_once_in_each_bin_of_a_long_range(store: Store) -> None:
    """Half a year has bins of three hours: three rows of a link are one link, where it was fullest."""
    start = NOW // 10_800 * 10_800 - 4 * 10_800
    loads = {"leaf-1 1": (0.35, 0.35, 0.35), "leaf-1 2": (0.15, 0.52, 0.15), "leaf-1 3": (0.99, 1.3, 0.91)}
    rows = [
        (start + hour * 3600 + 600, name, load[hour % 3]) for name, load in loads.items() for hour in range(6)
    ]  # fmt: skip
    stored = [
        {points.WINDOW: at, "kind": Capacity.EDGE.value, "subject": name, "utilisation": load}
        for at, name, load in rows
    ]
    for measurement in (schema.CAPACITY, schema.LOADED):
        write(store, measurement, stored)
    counted = {}
    for target in panel("capacity", "Edge links by load")["targets"]:
        text = expand(target["query"], start=NOW - DAYS_180, end=NOW, minimum="3600s", variables={})
        assert "time(10800s)" in text
        found = [value for series in store.query(text) for _, value in series.values if value]
        counted[target["alias"]] = found
    assert {alias: values for alias, values in counted.items() if values} == {
        "30% to 40%": [1, 1],
        "50% to 60%": [1, 1],
        "90% and more": [1, 1],
    }


# -- segmentation --------------------------------------------------------------------------------------


def tile_numbers(store: Store, title: str) -> list[object]:
    """Return the numbers of a tile of the segmentation board, in the order of its queries."""
    return [
        series.values[0][1]
        for target in panel("segmentation", title)["targets"]
        for series in store.query(
            expand(target["query"], start=NOW - 900, end=NOW, minimum="", variables={"src": ".*", "dst": ".*"})
        )
    ]


def test_segmentation_tiles_show_what_one_alert_would(store: Store) -> None:
    """Many small conversations are no large one; of a shadow node's, what it sent counts, to all its peers."""
    ends = {"src_group": "training", "dst_group": "storage", "proto": "tcp", "service": "other"}
    rows = [
        {points.WINDOW: NOW - at, "kind": kind.value, "src": src, "dst": dst, "tx_bytes": tx, "bytes": tx + rx}
        | {"flows": flows}
        | ends
        for at in (60, 120)
        for kind, src, dst, tx, rx, flows in (
            (Breach.SEGMENTATION, "gpu-01", "nas-1", 300_000, 100_000, 3),
            (Breach.SEGMENTATION, "gpu-02", "nas-1", 300_000, 0, 40),
            (Breach.SEGMENTATION, "gpu-03", "nas-1", 300_000, 0, 2),
            (Breach.SHADOW, "10.20.0.99", "nas-1", 2_000, 900_000, 1),
            (Breach.SHADOW, "10.20.0.99", "nas-2", 2_000, 900_000, 1),
        )
    ]
    write(store, schema.BREACH, rows)
    assert tile_numbers(store, "Not allowed") == [800_000, 80]
    assert tile_numbers(store, "From a shadow node") == [8_000, 4]


# -- dead letters --------------------------------------------------------------------------------------


def test_the_first_dead_letters_of_all_are_counted(store: Store, tmp_path: Path) -> None:
    """A total that nobody knew before grows from nothing, not from its first value."""
    counters, letters = Counters(), DeadLetters(tmp_path / "dead.jsonl")
    dead = pl.DataFrame({"line": ["x"] * 37, "reason": [Reason.BAD_TIME.value] * 37}, schema=DEAD_SCHEMA)
    for at, found in ((600, dead.clear()), (300, dead), (60, dead.clear())):
        bury(letters, found, "x", counters=counters, log=Log(quiet=True))
        store.write(points.encode(schema.PIPELINE, counters.points(NOW - at, "0")), schema.RAW)
    assert ask(store, questions.dead_letters().per_series(), 900)[0].values[0][1] == 37


# -- lists ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["a", "b"])
def test_of_several_bridges_the_worst_list_is_shown(store: Store, broken: str) -> None:
    """Each reads a file of its own machine, and says what is wrong with that."""
    said = {True: {"state": 2, "entries": 0, "error": "no such file"}, False: {"state": 0, "entries": 9, "error": ""}}
    write(
        store,
        schema.ENRICHMENT,
        [
            {points.WINDOW: NOW - at, "name": "feed", "kind": "feed", "shard": shard, "age": 1.0, "skipped": 0}
            | said[shard == broken]
            for at, shard in ((40, "a"), (30, "b"), (20, "a"), (10, "b"))
        ],
    )
    (target,) = panel("pipeline", "Lists about addresses")["targets"]
    (series,) = store.query(expand(target["query"], start=NOW - 600, end=NOW, minimum="", variables={}))
    (row,) = series.values
    shown = dict(zip(series.columns, row, strict=True))
    assert [shown[name] for name in ("state", "entries", "error")] == [2, 0, "no such file"]


def test_bytes_that_the_pipeline_counts_are_bytes(store: Store) -> None:
    """In one column with points and records, 803 TB were `803 Tri`."""
    rows: list[dict[str, object]] = [
        {"stage": "normalise", "reason": reason, "shard": "0", "total": value, points.WINDOW: at}
        for reason, values in (("suppressed_bytes", (0, 500)), ("records", (0, 7)))
        for at, value in zip((NOW - 60, NOW - 30), values, strict=True)
    ]
    write(store, schema.PIPELINE, rows)
    found = panel("pipeline", "Everything counted")
    series = [store.query(expand(one["query"], start=NOW - 600, end=NOW, minimum="", variables={}))[0]
              for one in found["targets"]]  # fmt: skip
    assert [(one.columns[-1], one.tags["reason"], one.values[0][-1]) for one in series] == [
        ("bytes", "suppressed_bytes", 500), ("growth", "records", 7),
    ]  # fmt: skip
    units = {one["matcher"]["options"]: {each["id"]: each["value"] for each in one["properties"]}.get("unit")
             for one in found["fieldConfig"]["overrides"]}  # fmt: skip
    assert (units["bytes"], units["growth"]) == (Unit.BYTES, Unit.COUNT)


# -- what was taken back -------------------------------------------------------------------------------

_TABLES = [
    (schema.BREACH, "segmentation", ("Conversations that break", "Shadow nodes")),
    (schema.BREACH, "management", ("Unexpected management connections",)),
    (schema.STALL, "capacity", ("Dollars lost by job",)),
    (schema.STALL, "training", ("What it lost",)),
    (schema.DROPOUT_DIGEST, "stragglers", ("Many nodes at once",)),
    (schema.ACCESS, "inference_access", ("Users, 1 h", "From where", "All accesses")),
    (schema.ACCESS, "management", ("Who opened them",)),
    (schema.ACCESS_BREACH, "inference_access", ("Clients that are not on the list",)),
    (schema.SESSION, "sessions", ("Sources", "By user", "Who to what", "Open longest")),
    (schema.BASELINE, "training", ("Last verdict on each node", "Nodes of the job", "Share of the cohort's median")),
    (
        schema.COHORT,
        "training",
        ("The run now", "Against earlier", "The run in", "Rate of", "Verdict on the"),
    ),
    (schema.PHASE, "training", ("What the job does",)),
    (schema.PHASE, "checkpoints", ("Phases of the jobs",)),
    (schema.BASELINE, "training", ("Low or down",)),
    (schema.CHECKPOINT_STATUS, "training", ("Last checkpoint",)),
    (schema.CHECKPOINT_STATUS, "checkpoints", ("Since the last", "At risk now", "Age of the last", "Where each")),
]


@pytest.mark.parametrize(("measurement", "name", "titles"), _TABLES, ids=lambda one: getattr(one, "name", ""))
def test_what_was_taken_back_stands_in_no_table(
    store: Store, measurement: schema.Measurement, name: str, titles: tuple[str, ...]
) -> None:
    """The analysis takes a row back with zeros: a scan's first destinations, say, once they are `other`."""
    kinds = [kind.value for kind in Breach] if measurement is schema.BREACH else ["x"]
    tags = dict.fromkeys(measurement.tags, "x") | {"src_group": "management", "dst_group": "inference"}
    tags = {tag: text for tag, text in tags.items() if tag in measurement.tags}

    def rows(*, is_gone: bool) -> list[dict[str, object]]:
        values: dict[str, object] = {one.name: one.gone if is_gone else 1 for one in measurement.fields}
        values |= {one.name: "" for one in measurement.fields if one.kind is schema.Kind.STRING}
        row = {points.WINDOW: NOW - 600} | tags | values
        return [row | ({"kind": kind} if "kind" in tags else {}) for kind in kinds]

    for is_there in (False, True):
        write(store, measurement, rows(is_gone=not is_there))
        for title in titles:
            found = panel(name, title)
            values = defaults(load(texts()[name]))
            for target in found["targets"]:
                # Ranges of a panel's own are shorter than an hour.
                end = NOW - 540 if own_range(found) else NOW
                text = expand(target["query"], start=NOW - 3600, end=end, minimum="", variables=values)
                assert bool(store.query(text)) is is_there, title


@pytest.mark.parametrize("span", [3600, 6 * 3600, 86_400])
def test_accesses_do_not_fall_off_at_the_end(store: Store, span: int) -> None:
    """Their rows of five minutes are kept by the hour: in bins of an hour the last one was never whole."""
    tags = dict.fromkeys(schema.ACCESS.tags, "x") | {"src": "gpu-01", "src_group": "clients", "dst_group": "inference"}
    first = NOW // 300 * 300 - 86_400
    write(store, schema.ACCESS, [
        {points.WINDOW: at} | tags | {"bytes": 300_000_000, "flows": 1} for at in range(first, NOW, 300)
    ])  # fmt: skip
    asked = Select(schema.ACCESS, schema.ACCESS.kept).by(schema.SRC_GROUP)
    (series,) = ask(store, questions.clients_over_time(CLUSTER, asked, "bit/s", ""), span)
    rates = [rate for _, rate in series.values if rate is not None]
    # The bins at both edges of the range may hold a part.
    assert len(rates) > 4
    assert set(map(round, rates[1:-1])) == {8_000_000}
    assert rates[-1] >= 4_000_000


def test_a_job_that_has_ended_keeps_what_was_told_of_it(store: Store) -> None:
    """Its end is told a minute later: what was written of that minute is taken back."""
    start, end = (datetime.fromtimestamp(NOW - before, UTC) for before in (540, 60))
    running = Job("run-7", "llm", ("gpu-01", "gpu-02"), start)
    output = Output(store)
    for job in (running, replace(running, end=end, outcome=Outcome.COMPLETED)):
        output.update(schema.JOB_STATUS, status_points([job], NOW - 600, NOW, 10, {"gpu-01": 8}), NOW - 600, NOW - 590)
        output.flush()
    (target,) = panel("training", "Jobs in this range")["targets"]
    (series,) = store.query(expand(target["query"], start=NOW - 3600, end=NOW, minimum="", variables={}))
    shown = dict(zip(series.columns, series.values[0], strict=True))
    assert [shown[name] for name in ("active", "nodes", "gpus", "outcome", "job_since", "job_until")] == [
        0, 2, 8, "completed", (NOW - 540) * 1000, (NOW - 60) * 1000,
    ]  # fmt: skip
    look = Look(CLUSTER, store, Period(NOW - 600, NOW, schema.RAW, 10), NOW)
    (jobs,) = jobs_nearby(look, "gpu-01", "")
    assert jobs.lead == "1 job ran."


def test_nodes_of_a_job_that_has_ended_are_not_learning_on_the_wall(store: Store) -> None:
    """Of the windows after a job's end, which is told later, rows are taken back."""
    node = {"node": "gpu-01", "group": "training", "job": "run-7", "job_class": "llm"}
    gone = {one.name: one.gone for one in schema.BASELINE.fields}
    write(store, schema.BASELINE, [{points.WINDOW: NOW - 60} | node | gone])
    assert ask(store, node_states.counted(NodeState.LEARNING, "learning"), 120) == []
    wall = noc_wall.page(CLUSTER)
    for panel in (one for one in wall.panels if one.name in ("cohort_grid", "cohort_names", "cohort")):
        (query,) = panel.queries
        text = expand(query.influxql, start=NOW - 900, end=NOW, minimum="60s", variables={"worst_nodes": ".*"})
        assert store.query(text) == [], panel.name
    (worst,) = wall.variables
    assert store.query(worst.query) == []
    assert _nodes(CLUSTER, _Look(store, NOW)) == ()


# -- who may ask inference -----------------------------------------------------------------------------


def tile(store: Store, name: str, title: str) -> object:
    """Return the one number of a tile."""
    (target,) = panel(name, title)["targets"]
    (series,) = store.query(expand(target["query"], start=NOW - 3600, end=NOW, minimum="", variables={}))
    return series.values[0][1]


def test_other_is_no_client_and_no_unknown_user(store: Store) -> None:
    """Of clients without a name, users are known to `clusterflow access` alone."""
    to = {"dst_group": "inference", "service": "https", "src_group": "users", points.WINDOW: NOW - 300}
    asked = [{"src": src, "dst": "infer-1", "proto": "tcp", "off_window": "no", "bytes": 10} | to
             for src in ("10.70.0.9", "10.70.0.10", schema.OTHER)]  # fmt: skip
    write(store, schema.INFERENCE, [*asked, {**asked[0], "src": "10.70.0.11", "bytes": 0}])
    assert tile(store, "inference", "Clients with a name") == 2
    users = (("10.70.0.9", "alice", 10), ("10.70.0.10", "-", 30), (schema.OTHER, "-", 5000))
    write(store, schema.ACCESS, [{"src": src, "user": user, "bytes": size} | to for src, user, size in users])
    assert tile(store, "inference_access", "Users, 1 h") == 2
    assert tile(store, "inference_access", "Unknown users") == 30


def test_an_hour_of_accesses_is_one_that_was_judged(store: Store) -> None:
    """The last twelve minutes come later: an hour up to now had 48 of them, and a quarter of one often nothing."""
    row: dict[str, object] = {"dst_group": "inference", "service": "https", "src_group": "users", "bytes": 10}
    late = questions.accesses_late(CLUSTER)
    write(store, schema.ACCESS, [row | {"src": "10.70.0.9", "user": "-", points.WINDOW: NOW - 3600 - late + 60}])
    assert tile(store, "inference_access", "Unknown users") == 10
    words = f"up to {-(-late // 60)} min late"
    for title in ("Accesses by client group", "From where", "Clients that are not", "All accesses", "Clients with"):
        assert words in panel("inference_access", title)["fieldConfig"]["defaults"]["noValue"], title


def test_clients_that_may_and_may_not_are_all_of_them() -> None:
    may, not_may = (questions.inference_pairs(CLUSTER, may=flag) for flag in (True, False))
    assert {src for src, _ in may} == {"users", "model_storage", "management", EXTERNAL, "inference"}
    assert {src for src, _ in may} | {src for src, _ in not_may} == {*(group.id for group in CLUSTER.groups), EXTERNAL}
    listed = replace(CLUSTER, inference=Inference(sources=("users",)))
    assert {src for src, _ in questions.inference_pairs(listed, may=True)} == {"users", "inference"}


# -- what the numbers mean -----------------------------------------------------------------------------


NOW = int(time.time()) // 60 * 60


def write(
    store: Store, measurement: schema.Measurement, rows: list[dict[str, object]], retention: str | None = None
) -> None:
    kept = retention or measurement.kept
    store.write(points.encode(measurement, pl.DataFrame(rows, infer_schema_length=None)), kept)


def ask(store: Store, query: Query, since: int, end: int = NOW) -> list[Series]:
    minimum = f"{query.interval}s" if query.interval else ""
    return store.query(expand(query.influxql, start=end - since, end=end, minimum=minimum, variables={}))


@pytest.mark.parametrize(
    ("title", "span"),
    [
        ("Flow records against interface counters", 3600),
        ("Share of the counters", 3600),
        ("Share of the counters", DAYS_180),
    ],
)
def test_the_share_of_counters_keeps_its_fraction(store: Store, title: str, span: int) -> None:
    """Outside of it, InfluxDB takes a ratio of whole numbers in an inner question for a whole number."""
    row = {"exporter": "leaf-1", "interface": "1", "plane": "compute", "kind": "edge"}
    seen = {"in_bytes": 100, "out_bytes": 200, "counter_in_bytes": 400, "counter_out_bytes": 400}
    for retention, before in ((schema.MINUTE, 1800), (schema.HOUR, 40 * 3600)):
        write(store, schema.INTERFACE_TRAFFIC, [{points.WINDOW: NOW - before} | row | seen], retention)
    found = panel("coverage", title)
    (target,) = found["targets"]
    minimum = found.get("interval", "")
    text = expand(target["query"], start=NOW - span, end=NOW, minimum=minimum, variables={})
    (series,) = store.query(text)
    share = series.columns.index("of_counters")
    assert [one[share] for one in series.values if one[share] is not None] == [0.375]


def test_the_newest_minute_on_the_wall_is_whole(store: Store) -> None:
    """Rollups are made once a minute: what one finds amid a minute is a part of it, and stands there until the next."""
    now = time.time()
    amid = int(now - 30) // 60 * 60 + 30
    row = {"src_group": "users", "dst_group": "storage", "proto": "tcp", "service": "nfs", "shard": "0", "bytes": 1000}
    windows = [
        [row | {points.WINDOW: at} for at in range(*ends, 10)] for ends in ((amid - 600, amid), (amid, amid + 30))
    ]
    write(store, schema.TRAFFIC, windows[0], schema.RAW)
    writer = Writer(
        store, CLUSTER.retentions(), shard="0", counters=Counters(), stop=threading.Event(), log=Log(quiet=True)
    )
    rollup = Rollup(store, writer, CLUSTER.retentions(), "0")
    rollup.touch(pl.Series([one[points.WINDOW] for one in windows[0]]))
    assert rollup.run()
    write(store, schema.TRAFFIC, windows[1], schema.RAW)
    (traffic,) = (one for one in noc_wall.page(CLUSTER).panels if one.name == "traffic")
    # What counts is InfluxDB's clock: it may be a minute later here before the half minute is old enough.
    shown = ask(store, replace(traffic.queries[-1], interval=60), 3600, int(now))[0]
    assert [rate for _, rate in shown.values if rate is not None][-1] == 6 * 1000 * 8 / 60


def test_flows_a_second_on_the_wall_are_of_whole_bins(store: Store) -> None:
    """Ten records a second, whenever it is asked: a bin of two windows would hold one of them half of the time."""
    begin = NOW - 900
    status = [{points.WINDOW: at, "exporter": "leaf-1", "shard": "0", "records": 100} for at in range(begin, NOW, 10)]
    write(store, schema.EXPORTER_STATUS, status)
    (rate,) = next(one for one in noc_wall.page(CLUSTER).panels if one.name == "flow_rate").queries
    shown = set()
    for now in range(NOW - 60, NOW - 40):
        text = expand(
            rate.influxql,
            start=now - 900,
            end=now,
            minimum=f"{rate.interval}s",
            variables={},
            points=rate.points or 300,
        )
        (series,) = store.query(text.replace("now()", f"{now}s"))
        shown.add([value for _, value in series.values if value is not None][-1])
    assert shown == {10}


def test_the_first_to_be_full_is_the_earliest_of_the_newest_rows(store: Store) -> None:
    """An older row of the same thing does not count; what never fills has no date."""
    rows = [
        (NOW - 5400, Capacity.PAIR, "a -> b", NOW + 1),
        (NOW - 1800, Capacity.PAIR, "a -> b", NOW + 900_000),
        (NOW - 1800, Capacity.EDGE, "leaf-1 1", NOW + 500_000),
        (NOW - 1800, Capacity.CORE, "leaf-1 49", None),
    ]
    write(
        store,
        schema.CAPACITY,
        [
            {
                points.WINDOW: at,
                "kind": kind.value,
                "subject": name,
                "p95": 1.0,
                "full_at": None if when is None else float(when),
            }
            for at, kind, name, when in rows
        ],
    )
    tile = panel("capacity", "First to be full")
    text = expand(tile["targets"][0]["query"], start=NOW - 6000, end=NOW, minimum="", variables={})
    assert store.query(text)[0].values[0][1] == (NOW + 500_000) * 1000
    names = [series.tags["subject"] for series in ask(store, capacity._newest_rows(Capacity.EDGE, Capacity.CORE), 6000)]
    assert names == ["leaf-1 49", "leaf-1 1"]


def test_pairs_are_counted_by_their_newest_verdict(store: Store) -> None:
    """One that was invisible is seen now; a state that none has is 0, not missing."""
    rows = [
        (NOW - 900, "a", CoverageState.INVISIBLE), (NOW - 600, "a", CoverageState.SEEN),
        (NOW - 600, "b", CoverageState.SEEN), (NOW - 600, "c", CoverageState.PARTIAL),
    ]  # fmt: skip
    write(
        store,
        schema.COVERAGE,
        [{points.WINDOW: at, "src_group": src, "dst_group": "x", "state": state} for at, src, state in rows],
    )
    counts = {state: ask(store, coverage._pairs_in(state), 1200)[0].values[0][1] for state in coverage._TILES}
    assert counts == {
        CoverageState.SEEN: 2,
        CoverageState.PARTIAL: 1,
        CoverageState.UNDECLARED: 0,
        CoverageState.INVISIBLE: 0,
    }


def test_dollars_add_up_over_jobs_causes_and_time(store: Store) -> None:
    """1,024 GPUs at 30 USD an hour that wait for a minute are 512 USD."""
    rows = [
        {
            points.WINDOW: NOW - 3600 + at,
            "job": job,
            "job_class": "llm",
            "cause": "stalled",
            "usd": 512 / 6,
            "gpus": 1024,
        }
        for job in ("a", "b")
        for at in range(0, 60, 10)
    ]
    write(store, schema.STALL, rows)
    assert ask(store, questions.stall_usd().per_series(), 7200)[0].values[0][1] == pytest.approx(1024)
    by_job = ask(store, questions.stall_usd().by(schema.JOB).per_series(), 7200)
    assert [series.values[0][1] for series in by_job] == [pytest.approx(512)] * 2
