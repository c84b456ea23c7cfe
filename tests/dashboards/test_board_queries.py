"""Every query of every panel runs on real InfluxDBs, over points of every measurement, and says what it should."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from board_store import Asked, Filled, asked, defaults, expand, fill, load

from cluster.load import load_cluster
from cluster.model import EXTERNAL, Cluster, ExportProtocol, Node
from dashboards import questions
from dashboards import variables as var
from dashboards.boards import checkpoints, noc_wall, training
from dashboards.boards.explore import page as explore_page
from dashboards.parts import node_states
from dashboards.parts.matrix import column_query, pair_queries
from dashboards.parts.spread import FASTEST, MEDIAN, SLOWEST, node_spread
from dashboards.provision import boards
from store import points, schema
from store.influxql import Fill, Query, Select, bit_rate
from store.local_influxdb import LocalInfluxDB
from store.schema import NodeState

REPOSITORY = Path(__file__).resolve().parents[2]
_EXAMPLE = load_cluster(REPOSITORY / "cluster.yaml")
# What is told from samples has panels where a leaf sends sFlow.
_SAMPLED = replace(_EXAMPLE.exporters[0], protocol=ExportProtocol.SFLOW)
CLUSTER = replace(_EXAMPLE, exporters=(_SAMPLED, *_EXAMPLE.exporters[1:]))
BOARDS = {name: load(text) for name, text in boards(CLUSTER).items()}


@pytest.fixture(scope="module", params=["influxdb_v1", "influxdb_v2"])
def filled(request: pytest.FixtureRequest) -> Iterator[Filled]:
    server: LocalInfluxDB = request.getfixturevalue(request.param)
    filled = fill(CLUSTER, server.url, f"boards_{request.param}")
    yield filled
    filled.store.close()


def _numbers(filled: Filled, query: str) -> int:
    """Run a query and count the values in it that are there."""
    return sum(
        value is not None
        for series in filled.store.query(query)
        for row in series.values
        for column, value in zip(series.columns, row, strict=True)
        if column != "time"
    )


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("everything", [True, False], ids=["all", "some"])
def test_every_panel_finds_data(filled: Filled, name: str, everything: bool) -> None:  # noqa: FBT001
    board = BOARDS[name]
    queries = list(asked(board, filled.now, defaults(board, everything=everything)))
    assert queries
    silent = [one for one in queries if not _numbers(filled, one.query)]
    # The matrix asks one column a group; groups that got nothing from anybody have an empty one.
    silent = [one for one in silent if not _is_matrix(one)]
    # Panels about chosen nodes are empty until some are.
    assert all(one in silent for one in queries if _waits(one))
    silent = [one for one in silent if not _waits(one)]
    assert not silent, "\n".join(f"{one.panel} {one.ref}: {one.query}" for one in silent)


def _waits(one: Asked) -> bool:
    return "AND '.*' != '.*'" in one.query


def _is_matrix(one: Asked) -> bool:
    return one.panel.startswith("Who talks to whom")


@pytest.mark.parametrize("by", [option["value"] for option in explore_page(CLUSTER).variables[0].options])
@pytest.mark.parametrize("order", [var.LARGEST, var.SMALLEST])
def test_explore_answers_each_choice(filled: Filled, by: str, order: str) -> None:
    board = BOARDS["explore"]
    values = defaults(board) | {var.GROUP_BY: by, var.ORDER: order, var.LIMIT: "10"}
    assert all(_numbers(filled, one.query) for one in asked(board, filled.now, values) if not _waits(one))


def test_variables_find_their_values(filled: Filled) -> None:
    for board in BOARDS.values():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                assert filled.store.query(variable["query"]), variable["query"]


def _events(filled: Filled, query: str, values: dict[str, str], since: int = 86_400) -> list[dict[str, Any]]:
    """Return what an annotation's query finds, a row an event, as Grafana can read it: one series, nothing missing."""
    text = expand(query, start=filled.now - since, end=filled.now, minimum="", variables=values)
    (series,) = filled.store.query(text)
    assert not series.tags
    assert all(value is not None for row in series.values for value in row), "Grafana leaves such events out"
    return [dict(zip(series.columns, row, strict=True)) for row in series.values]


def test_checkpoints_that_went_wrong_are_marked(filled: Filled) -> None:
    """Not that of run-9, which was on time."""
    found = _events(filled, checkpoints.annotation(CLUSTER)["query"], {})
    assert {event[schema.JOB] for event in found} == {"run-7", "run-8"}


def _marks(board: str) -> dict[str, str]:
    """Return the queries of a board's annotations, by name."""
    listed = BOARDS[board]["annotations"]["list"]
    return {one["name"]: one["query"] for one in listed if not one.get("builtIn")}


@pytest.mark.parametrize("board", [name for name in BOARDS if _marks(name)])
@pytest.mark.parametrize("everything", [True, False], ids=["all", "some"])
def test_annotations_run(filled: Filled, board: str, everything: bool) -> None:  # noqa: FBT001
    values = defaults(BOARDS[board], everything=everything)
    for name, query in _marks(board).items():
        jobs = {event[schema.JOB] for event in _events(filled, query, values)}
        assert "run-7" in jobs, name
        assert jobs == {"run-7"} or everything, name


def test_a_start_is_marked_with_its_word(filled: Filled) -> None:
    found = _events(filled, _marks("training")["Job start and stop"], {var.JOB: ".*"}, since=900)
    assert {event[schema.JOB_EVENT.name] for event in found} == {"start"}


def test_starts_and_stops_of_all_jobs_are_not_marked_over_a_week(filled: Filled) -> None:
    """The charts were behind them; those of a job that was chosen are few."""
    query, week = _marks("training")["Job start and stop"], 7 * 86_400
    assert _events(filled, query, {var.JOB: "run-7"}, since=week)
    with pytest.raises(ValueError, match="expected 1, got 0"):
        _events(filled, query, {var.JOB: ".*"}, since=week)


@pytest.mark.parametrize(
    ("mark", "at", "told", "silent"),
    [
        ("Job did not complete", (schema.JOB_STATUS, schema.JOB_OUTCOME), {"failed", "cancelled"}, {"unknown"}),
        ("Verdict on the job", (schema.COHORT, schema.COHORT_EVENT), {"slow", "stalled"}, {"ok", "ended"}),
    ],
)
def test_what_is_marked_in_orange_went_wrong(
    filled: Filled, mark: str, at: tuple[schema.Measurement, schema.Field], told: set[str], silent: set[str]
) -> None:
    """Of a job whose end nobody told of, nothing is known to be wrong; one that is well again, or over, is well."""
    measurement, field = at
    job = {schema.JOB: f"job-{mark}", schema.JOB_CLASS: "marked"}
    rows = [job | {points.WINDOW: filled.now - age, field.name: word} for age, word in enumerate(told | silent)]
    filled.store.write(points.encode(measurement, pl.DataFrame(rows)), schema.RAW)
    found = _events(filled, _marks("training")[mark], {var.JOB: job[schema.JOB]})
    assert {event[field.name] for event in found} == told


# -- what the numbers mean -------------------------------------------------------------------------------


def _run(filled: Filled, query: Query, since: int = 900) -> list[Any]:
    minimum = f"{query.interval}s" if query.interval else ""
    text = expand(query.influxql, start=filled.now - since, end=filled.now, minimum=minimum, variables={})
    return filled.store.query(text)


def test_a_rate_is_bits_a_second_whatever_the_bin(filled: Filled) -> None:
    """900 MB a window of 10 s from each of two bridges are 1.44 Gbit/s, in bins of 20 s and of 60 s alike."""
    select = (
        Select(schema.TRAFFIC, schema.RAW)
        .where(questions.is_in(schema.SRC_GROUP, ["training"]), questions.is_in(schema.DST_GROUP, ["storage"]))
        .take(bit_rate(schema.BYTES))
    )
    query = select.over_time(CLUSTER)
    for interval in (20, 60):
        series = _run(filled, replace(query, interval=interval))
        # The first and the last bin stick out of the range.
        inner = [value for _, value in series[0].values][1:-2]
        assert inner
        assert set(inner) == {2 * 900_000_000 * 8 / 10}


def test_windows_that_still_fill_are_left_out(filled: Filled) -> None:
    # The store's points may be minutes old by now: these are of this very moment.
    filled = fill(CLUSTER, filled.store.url, f"{filled.store.settings.database}_filling", [schema.TRAFFIC])
    select = Select(schema.TRAFFIC, schema.RAW).take(bit_rate(schema.BYTES))
    settled = replace(select.over_time(CLUSTER, fill=Fill.NONE), interval=10)
    unsettled = replace(select.over_time(CLUSTER, fill=Fill.NONE, settled=False), interval=10)
    assert _run(filled, settled)[0].values[-1][0] < _run(filled, unsettled)[0].values[-1][0]


def test_the_straggler_comes_first(filled: Filled) -> None:
    """Node n sends n thousand bytes a window: smallest first is the first node, and its bytes are positive."""
    board = BOARDS["explore"]
    values = defaults(board) | {var.ORDER: var.SMALLEST, var.LIMIT: "2", var.SOURCE: "training", var.PLANE: "compute"}
    query = next(one.query for one in asked(board, filled.now, values) if one.panel == "Nodes by bytes sent")
    series = filled.store.query(query)[0]
    rows = [dict(zip(series.columns, row, strict=True)) for row in series.values]
    rows.sort(key=lambda row: -row["rank"])
    assert [row[schema.NODE] for row in rows] == ["gpu-01", "gpu-02"]
    assert rows[0]["sent"] == -rows[0]["rank"] > 0


def test_a_share_of_whole_numbers_is_none_itself(filled: Filled) -> None:
    """Around a quotient of integers InfluxDB 1.x reads an integer, here 0."""
    board = BOARDS["training"]
    (query,) = (one.query for one in asked(board, filled.now, defaults(board)) if one.panel.startswith("ECN marks"))
    (series,) = filled.store.query(query)
    shares = {row[series.columns.index(schema.TOP_SHARE.name)] for row in series.values}
    assert shares == {0.01}


def test_the_matrix_tells_allowed_unused_and_violating(filled: Filled) -> None:
    def cells(dst: str) -> dict[str, float]:
        return {
            series.tags[schema.SRC_GROUP]: series.values[0][1]
            for series in _run(filled, column_query(CLUSTER, dst, schema.MINUTE))
            if series.values[0][1] is not None
        }

    storage = cells("storage")
    assert storage["training"] > 0, "allowed and used"
    assert storage["users"] < 0, "not allowed, and used"
    assert storage["management"] == 0, "allowed, and silent"
    assert "model_storage" not in storage, "not allowed, and silent"
    assert cells(EXTERNAL)["model_storage"] < 0


def test_the_list_of_a_large_matrix_tells_what_is_not_allowed(filled: Filled) -> None:
    values = defaults(BOARDS["egress"])
    texts = [
        expand(query.text, start=filled.now - 3600, end=filled.now, minimum="", variables=values)
        for query in pair_queries()
    ]
    not_allowed, talked = (
        {tuple(row[series.columns.index(tag)] for tag in (schema.SRC_GROUP, schema.DST_GROUP)) for row in series.values}
        for text in texts
        for series in filled.store.query(text)
    )
    assert ("users", "storage") in not_allowed
    assert talked > not_allowed


def test_nodes_are_counted_by_state_and_zero_is_said(filled: Filled) -> None:
    """Five nodes, one in each state; a state that no node has is 0, not missing, while a job runs."""
    counts = node_states.counted(NodeState.LOW, "low")
    assert _run(filled, counts, since=120)[0].values[0][1] == 1
    nobody = replace(counts, text=counts.influxql.replace(f'"state" = {NodeState.LOW}', '"state" = 9'))
    assert nobody != counts
    assert _run(filled, nobody, since=120)[0].values[0][1] == 0


def test_the_last_verdict_on_each_node_is_the_newest_of_all_its_rows(filled: Filled) -> None:
    board = BOARDS["training"]
    (one,) = (one for one in asked(board, filled.now, defaults(board), 3600) if one.panel.startswith("Last verdict"))
    verdicts = filled.store.query(one.query)
    newest = filled.store.query(f'SELECT last("state") FROM "raw"."{schema.BASELINE.name}" GROUP BY "node", "job"')
    assert len(newest) > 1
    assert {str(each.tags): each.values[0][:2] for each in newest} == {
        str(each.tags): each.values[0][:2] for each in verdicts
    }
    assert {len(each.values) for each in verdicts} == {1}


def test_the_spread_covers_the_nodes(filled: Filled) -> None:
    nodes = Select(schema.NODE_TRAFFIC, schema.RAW).where(questions.is_in(schema.GROUP, ["training"]))
    series = _run(filled, node_spread(CLUSTER, nodes))[0]
    # Two shards of each node are rows 2n and 2n+1: node n sends (4n + 3) thousand bytes in 10 s.
    row = dict(zip(series.columns, series.values[3], strict=True))
    assert [row[name] for name in (SLOWEST, MEDIAN, FASTEST)] == [3000 * 0.8, 11000 * 0.8, 19000 * 0.8]


@pytest.mark.parametrize(
    ("interval", "since", "window"), [(20, 900, 10), (60, 900, 60), (120, 900, 60), (3600, 86_400, 3600)]
)
def test_the_spread_reads_the_retention_that_fits_its_bins(
    filled: Filled, interval: int, since: int, window: int
) -> None:
    """Each retention of this store has the same bytes in a window: a bin's rate tells which one it is of, alone."""
    nodes = Select(schema.NODE_TRAFFIC, schema.RAW).where(questions.is_in(schema.GROUP, ["training"]))
    query = replace(node_spread(CLUSTER, nodes), interval=interval)
    (series,) = _run(filled, query, since)
    column = series.columns.index(SLOWEST)
    # The first and the last bin stick out of the range.
    whole = [row[column] for row in series.values if row[column] is not None][1:-1]
    assert whole
    assert whole == pytest.approx([3000 * 8 / window] * len(whole))


@pytest.mark.parametrize(
    ("chosen", "counted"), [({}, 1), ({var.PLANE: "compute"}, 0), ({var.DESTINATION: "training"}, 0)]
)
def test_the_spread_of_all_peers_reads_what_each_node_sent_to_anybody(
    filled: Filled, chosen: dict[str, str], counted: int
) -> None:
    """Here the totals are as large as what went to each peer: they are counted by leaving some out."""
    board = BOARDS["explore"]
    (one,) = (
        one
        for one in asked(board, filled.now, defaults(board) | chosen, 3600)
        if one.panel.startswith("Fastest")
    )  # fmt: skip
    without = one.query.replace(f'"{schema.NODE_TOTAL.name}"', '"none"')
    assert without != one.query
    series = filled.store.query(one.query)
    assert series[0].values[2][1] is not None
    assert len(filled.store.query(without)) == 1 - counted


def test_sums_of_many_days_are_read_from_hours(filled: Filled) -> None:
    """Here an hour has no more bytes than a minute."""
    board = BOARDS["explore"]
    values = defaults(board) | {var.LIMIT: "1"}
    sent = {}
    for hours in (12, 72):
        (one,) = (
            one
            for one in asked(board, filled.now, values, hours * 3600)
            if one.panel.startswith("Traffic by") and one.ref == "A"
        )
        series = filled.store.query(one.query)[0]
        sent[hours] = dict(zip(series.columns, series.values[0], strict=True))[schema.BYTES.name]
    windows = {12: 3600 // 60, 72: 86_400 // 3600}
    assert sent[12] / sent[72] == pytest.approx(windows[12] / windows[72], abs=0.2)


def test_of_many_nodes_those_that_are_low_are_drawn_and_those_that_are_chosen(filled: Filled) -> None:
    """The five nodes of the store are learning, ok, low, down and blind."""
    others = tuple(Node(f"gpu-1{number:03}", "training", ()) for number in range(200))
    board = load(boards(replace(CLUSTER, nodes=(*CLUSTER.nodes, *others)))["training"])
    drawn, timeline = {}, {}
    for everything in (True, False):
        choices = defaults(board, everything=everything)
        queries = [
            one for one in asked(board, filled.now, choices) if one.panel.startswith("Share of the cohort's median")
        ]
        assert len(queries) == 3
        drawn[everything] = [
            {series.tags[schema.NODE] for series in filled.store.query(one.query)} for one in queries
        ]  # fmt: skip
        (states,) = (one for one in asked(board, filled.now, choices) if one.panel == "Nodes of the job")
        timeline[everything] = {series.tags[schema.NODE] for series in filled.store.query(states.query)}
    assert drawn[True] == [{"gpu-03", "gpu-04"}] * 3
    assert drawn[False] == [{"gpu-01", "gpu-02", "gpu-03", "gpu-04"}] * 3
    assert timeline == {True: {"gpu-03", "gpu-04", "gpu-05"}, False: {f"gpu-0{node}" for node in range(1, 6)}}


def test_exporters_have_one_row_each_in_both_tables(filled: Filled) -> None:
    """What is known now and what was counted stand side by side, joined by the exporter."""
    (panel,) = (one for one in BOARDS["pipeline"]["panels"] if one["title"] == "Exporters in this range")
    names = {exporter.name for exporter in CLUSTER.exporters}
    columns: list[str] = []
    for one in asked(BOARDS["pipeline"] | {"panels": [panel]}, filled.now, {}):
        found = filled.store.query(one.query)
        assert [series.tags[schema.EXPORTER] for series in found] == sorted(names)
        columns += found[0].columns[1:]
    assert len(set(columns)) == len(columns)
    shown = next(one for one in panel["transformations"] if "include" in one["options"])["options"]["include"]["names"]
    # By the moment the bridge is chosen whose word counts.
    assert set(shown) == {schema.EXPORTER, *columns} - {schema.LAST_SEEN.name}
    assert {"byField": schema.EXPORTER, "mode": "outer"} in [one["options"] for one in panel["transformations"]]


def test_counters_add_up_over_bridges(filled: Filled) -> None:
    """Each counter grows by (row + 1) a second; of points every 10 s, those of 900 s span 880 to 900 s."""
    series = _run(filled, questions.counter_growth(questions.is_in(schema.REASON, ["points"])).per_series())[0]
    rows = 2 * len(questions.Reason)
    factor = (rows + 1) + (rows + 2)
    assert series.values[0][1] in {880 * factor, 890 * factor, 900 * factor}


def test_the_stall_tile_adds_up_the_ledger(filled: Filled) -> None:
    """All causes of one job, a row each an hour of the day: a tenth of a dollar, two tenths, and so on."""
    (tile,) = (built for built in noc_wall.page(CLUSTER).panels if built.name == "stall_cost")
    hours = filled.now // 3600 - (filled.now - 86_400) // 3600
    assert _run(filled, tile.queries[0], since=86_400)[0].values[0][1] == pytest.approx(
        hours * sum(range(len(schema.Cause) + 1)) / 10
    )


def test_the_rate_tile_divides_rate_by_expectation(filled: Filled) -> None:
    (tile,) = (built for built in training.page(CLUSTER).panels if built.name == "run_rate")
    text = expand(tile.queries[0].influxql, start=filled.now - 120, end=filled.now, minimum="", variables={"job": ".*"})
    assert filled.store.query(text)[0].values[0][1] == 1


def test_the_delay_of_checkpoints_is_that_of_the_worst_judged_job(filled: Filled) -> None:
    """One job runs; what its status says is what the tile says, and a job that nobody judges gives no delay."""
    overdue = checkpoints.most_overdue()
    assert _run(filled, overdue, since=120)[0].values[0][1] == 0.1
    nobody = replace(overdue, text=overdue.influxql.replace('"regular" = 1', '"regular" = 0'))
    assert nobody != overdue
    assert _run(filled, nobody, since=120) == []


def test_faulty_checkpoints_are_counted_and_none_is_said(filled: Filled) -> None:
    """Three jobs with a checkpoint a window: on time, late, missed."""
    queries = {query.alias: query for query in checkpoints.page(CLUSTER).panels[3].queries}
    counts = {
        word: filled.store.query(
            expand(query.influxql, start=filled.now - 86400, end=filled.now, minimum="", variables={"job": ".*"})
        )[0].values[0][1]
        for word, query in queries.items()
    }
    assert counts["late"] == counts["missed"] > 0
    assert counts["short"] == counts["over-long"] == counts["nodes missing"] == 0


def test_bytes_to_unknown_leave_out_the_approved(filled: Filled) -> None:
    """Rows 0 and 1 go to unknown addresses with 1000 and 2000 bytes a window, rows 2 and 3 to an approved one."""
    volume = _run(filled, questions.sent_to_unknown(CLUSTER, schema.RAW).per_series())[0].values[0][1]
    assert volume % 3000 == 0
    assert 88 <= volume / 3000 <= 91


def test_a_cluster_without_roles_asks_nothing_wrong(filled: Filled) -> None:
    """A cluster of custom groups only still gets boards whose queries all run."""
    bare = Cluster("bare", groups=(replace(CLUSTER.group("users"), id="a"),))
    for text in boards(bare).values():
        board = load(text)
        for one in asked(board, filled.now, defaults(board)):
            filled.store.query(one.query)


def test_a_silent_node_is_last_with_zero(filled: Filled) -> None:
    """A node that sent within the month and not in the range has a row of 0, the first of the smallest."""
    moment = (filled.now // 3600 - 5 * 24) * 3600
    tags = "node=gpu-06,group=training,peer_group=training,plane=compute"
    filled.store.write(f"node,{tags} tx_bytes=5i,rx_bytes=7i {moment}".encode(), schema.HOUR)
    board = BOARDS["explore"]
    for hours in (1, 24):
        for order, place in ((var.LARGEST, -1), (var.SMALLEST, 0)):
            values = defaults(board) | {var.ORDER: order, var.LIMIT: "50", var.SOURCE: "training"}
            queries = asked(board, filled.now, values, hours * 3600)
            query = next(one.query for one in queries if one.panel == "Nodes by bytes sent")
            series = filled.store.query(query)[0]
            rows = [dict(zip(series.columns, row, strict=True)) for row in series.values]
            rows.sort(key=lambda row: -row["rank"])
            assert len(rows) == 6
            silent = rows[place]
            assert (silent[schema.NODE], silent["sent"], silent["received"]) == ("gpu-06", 0, 0)
            assert all(row["sent"] > 0 for row in rows if row is not silent)
