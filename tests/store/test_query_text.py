"""Queries: quoting, names from the schema only, the forms for panels and for rules."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.model import BridgeSettings, Cluster, Node
from dashboards.filled_queries import asked, expand
from dashboards.parts.spread import node_spread
from store import schema
from store.influxql import (
    Column,
    Fill,
    Select,
    Shape,
    Unit,
    added,
    any_of,
    bit_rate,
    compare,
    finest,
    highest,
    identifier,
    is_in,
    literal,
    narrowed,
    newest,
    not_in,
    settle_seconds,
    top_rows,
    top_sums,
    total,
    whole_interval,
)

CLUSTER = Cluster("c", groups=())
NOW = 1_800_000_000
NICE = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200)


def test_the_form_for_rules_has_one_value_a_series() -> None:
    query = (
        Select(schema.EGRESS, schema.RAW)
        .take(total(schema.BYTES))
        .where(is_in(schema.SRC_GROUP, ["a", "b"]), not_in(schema.DST_GROUP, ["ok"]))
        .by(schema.SRC, schema.DST)
        .per_series("Bytes.")
    )
    assert query.influxql == (
        'SELECT sum("bytes") AS "bytes" FROM "raw"."egress" '
        "WHERE (\"src_group\" = 'a' OR \"src_group\" = 'b') AND \"dst_group\" != 'ok' AND $timeFilter "
        'GROUP BY "src", "dst"'
    )
    assert (query.unit, query.tags, query.retention) == (Unit.BYTES, ("src", "dst"), "raw")


def test_the_form_for_panels_is_binned_and_settled() -> None:
    query = Select(schema.TRAFFIC, schema.MINUTE).take(bit_rate(schema.BYTES)).by(schema.PLANE).over_time(CLUSTER)
    assert query.influxql == (
        'SELECT sum("bytes") * 8000.0 / $__interval_ms AS "rate" FROM "1m"."traffic" '
        "WHERE time < now() - 164s "
        "AND time >= (${__from} + $__interval_ms - 1 - (${__from} + $__interval_ms - 1) % $__interval_ms) * 1000000 "
        "AND time < (${__to} - 104000 % (($__interval_ms - 60000) * 10000 + 1) "
        "- (${__to} - 104000 % (($__interval_ms - 60000) * 10000 + 1)) % $__interval_ms) * 1000000 "
        'AND $timeFilter GROUP BY "plane", time($__interval) fill(null)'
    )
    assert query.interval == 60
    assert query.unit is Unit.BITS_PER_SECOND


def test_a_window_settles_after_its_length_lateness_and_flushes() -> None:
    cluster = Cluster("c", groups=(), bridge=BridgeSettings(window=5, lateness=7, flush=1.5))
    assert settle_seconds(cluster, schema.RAW) == 5 + 7 + 3
    # Rollups are made once a minute.
    assert settle_seconds(cluster, schema.MINUTE) == 60 + 7 + 3 + 90


@pytest.mark.parametrize(
    ("start", "stop", "name"),
    [
        (NOW - 3600, NOW, "raw"),
        (NOW - 7201, NOW, "1m"),
        (NOW - 90_000, NOW - 86_500, "1m"),
        (NOW - 8 * 86_400, NOW, "1h"),
    ],
)
def test_the_finest_retention_has_all_of_a_range_and_answers_soon(start: int, stop: int, name: str) -> None:
    cluster = replace(CLUSTER, store=replace(CLUSTER.store, keep_raw=86_400))
    found = finest(cluster, start, stop, NOW, (7200, 7 * 86_400))
    assert found is not None
    assert found.name == name
    assert finest(cluster, NOW - cluster.store.keep_1h - 1, NOW, NOW, (7200, 7 * 86_400)) is None


def test_a_question_of_a_range_asks_inner_ones_of_it_too() -> None:
    inner = Select(schema.BASELINE, schema.RAW).take(newest(schema.STATE)).by(schema.NODE)
    asked = Select(inner).take(total(schema.STATE)).each(60)
    within = "WHERE time >= 100s AND time < 160s"
    assert " ".join(asked.between(100, 160).text().split()) == (
        f'SELECT sum("state") AS "state" FROM (SELECT last("state") AS "state" FROM "raw"."baseline" {within} '
        f'GROUP BY "node") {within} GROUP BY time(60s) fill(none)'
    )
    assert " ".join(inner.between().text().split()) == (
        'SELECT last("state") AS "state" FROM "raw"."baseline" GROUP BY "node"'
    )


def test_an_inner_question_is_named_by_what_it_gives() -> None:
    inner = Select(schema.BASELINE, schema.RAW).take(newest(schema.STATE)).by(schema.NODE)
    query = Select(inner).take(newest(schema.STATE)).where(compare(schema.STATE, ">=", 2)).per_series()
    assert query.influxql == (
        'SELECT last("state") AS "state" FROM '
        '(SELECT last("state") AS "state" FROM "raw"."baseline" WHERE $timeFilter GROUP BY "node") '
        'WHERE "state" >= 2 AND $timeFilter'
    )
    assert query.retention == "raw"
    with pytest.raises(ValueError, match="no field 'low_for'"):
        Select(inner).take(newest(schema.LOW_FOR))
    with pytest.raises(ValueError, match="no tag 'job'"):
        Select(inner).by(schema.JOB)


def test_the_first_rows_are_those_of_the_first_column_with_all_others() -> None:
    inner = Select(schema.TRAFFIC, schema.MINUTE).take(total(schema.PACKETS), total(schema.BYTES)).by("plane", "proto")
    query = top_rows(inner, 7)
    assert query.influxql == (
        'SELECT top("packets", "plane", "proto", 7) AS "packets", "bytes" AS "bytes" FROM '
        '(SELECT sum("packets") AS "packets", sum("bytes") AS "bytes" FROM "1m"."traffic" WHERE $timeFilter '
        'GROUP BY "plane", "proto") WHERE $timeFilter'
    )
    assert query.shape is Shape.TABLE
    assert query.unit is Unit.COUNT


def test_a_question_by_interval_is_asked_of_each_retention_and_one_can_answer() -> None:
    asked_of = Select(schema.TRAFFIC, schema.RAW).take(total(schema.BYTES)).by(schema.PLANE).binned()
    texts = [one.text() for one in asked_of.by_interval(CLUSTER)]
    assert texts == [
        f'SELECT sum("bytes") AS "bytes"\nFROM "{retention}"."traffic"\nWHERE {condition}\nAND $timeFilter\n'
        'GROUP BY "plane", time($__interval) fill(none)'
        for retention, condition in (
            ("raw", "$__interval_ms < 60000\nAND time < now() - 24s"),
            ("1m", "$__interval_ms >= 60000\nAND $__interval_ms < 3600000\nAND time < now() - 164s"),
            ("1h", "$__interval_ms >= 3600000\nAND time < now() - 3704s"),
        )
    ]
    for interval in range(10, 100_000, 10):
        fitting = [text for text in texts if _holds(text, interval * 1000)]
        assert len(fitting) == 1
    with pytest.raises(ValueError, match="baseline: has no rollups"):
        Select(schema.BASELINE, schema.RAW).take(newest(schema.STATE)).by_interval(CLUSTER)


def _holds(text: str, milliseconds: int) -> bool:
    limits = re.findall(r"\$__interval_ms (<|>=) (\d+)", text)
    return all(milliseconds < int(limit) if sign == "<" else milliseconds >= int(limit) for sign, limit in limits)


def test_sums_of_a_range_are_those_of_hours_from_18_hours_on() -> None:
    inner = Select(schema.TRAFFIC, schema.MINUTE).take(total(schema.PACKETS), total(schema.BYTES)).by("plane")
    query = top_sums(CLUSTER, inner, 7)
    assert query.shape is Shape.TABLE
    board = {"uid": "b", "time": {"from": "now-24h"}, "panels": [
        {"title": "t", "type": "table", "interval": f"{query.interval}s", "maxDataPoints": query.points,
         "targets": [{"refId": "A", "query": query.influxql}]}]}  # fmt: skip
    for hours, name in ((6, "1m"), (17, "1m"), (18, "1h"), (24, "1h"), (720, "1h")):
        (one,) = asked(board, 86_400 * 90, {}, 3600 * hours)
        (answers,) = (retention for retention in ("1m", "1h") if _answers(one.query, retention))
        assert answers == name


def _answers(query: str, retention: str) -> bool:
    """Whether the two numbers that InfluxDB gets to compare let a retention answer."""
    match = re.search(rf'"{retention}"\."traffic" WHERE (\d+) (<|>=) (\d+)', query)
    assert match, query
    return int(match[1]) < int(match[3]) if match[2] == "<" else int(match[1]) >= int(match[3])


def test_a_choice_that_is_none_is_a_text_that_differs() -> None:
    assert narrowed("node").text == "'${node:raw}' != '.*'"


def test_names_that_the_schema_does_not_know_are_refused() -> None:
    select = Select(schema.TRAFFIC, schema.RAW)
    with pytest.raises(ValueError, match="traffic: no tag 'node'"):
        select.by(schema.NODE)
    with pytest.raises(ValueError, match="traffic: no field 'tx_bytes'"):
        select.take(total(schema.TX_BYTES))
    with pytest.raises(ValueError, match="no tag 'node'"):
        select.where(any_of(is_in(schema.PLANE, ["x"]), is_in(schema.NODE, ["y"])))
    with pytest.raises(ValueError, match="name a retention"):
        Select(schema.TRAFFIC)
    with pytest.raises(ValueError, match="nothing selected"):
        select.per_series()


def test_no_values_match_nothing_or_everything() -> None:
    """Tags of the schema are never empty, so an empty string stands for nothing."""
    assert is_in(schema.PLANE, []).text == "\"plane\" = ''"
    assert not_in(schema.PLANE, []).text == "\"plane\" != ''"


@given(st.text())
def test_no_value_escapes_its_quotes(value: str) -> None:
    assert re.fullmatch(r"'(?:[^'\\\n]|\\.)*'", literal(value), re.DOTALL)
    assert re.fullmatch(r'"(?:[^"\\\n]|\\.)*"', identifier(value), re.DOTALL)


@pytest.mark.parametrize("window", [1, 2, 5, 10, 15, 20, 30, 60])
def test_every_interval_from_the_smallest_on_holds_whole_windows(window: int) -> None:
    cluster = Cluster("c", groups=(), bridge=BridgeSettings(window=window))
    smallest = whole_interval(cluster, schema.RAW)
    assert smallest >= window
    assert all(nice % window == 0 for nice in NICE if nice >= smallest)
    # And none smaller would do.
    assert smallest == window or any(nice % window for nice in NICE if window <= nice < smallest)


def test_fill_follows_time() -> None:
    query = Select(schema.BASELINE, schema.RAW).take(newest(schema.STATE)).over_time(CLUSTER, fill=Fill.NONE)
    assert query.influxql.endswith("GROUP BY time($__interval) fill(none)")


@pytest.mark.parametrize(
    ("measurement", "nodes", "points"),
    [
        (schema.NODE_TRAFFIC, 64, 0),
        (schema.NODE_TRAFFIC, 1024, 78),
        (schema.PAIR, 4096, 60),
        (schema.TRAFFIC, 4096, 0),
    ],
)
def test_curves_over_thousands_of_nodes_have_fewer_points(
    measurement: schema.Measurement, nodes: int, points: int
) -> None:
    large = replace(CLUSTER, nodes=tuple(Node(f"gpu-{number}", "training", ()) for number in range(nodes)))
    inner = Select(measurement, schema.MINUTE).take(total(measurement.fields[0], "sent")).binned()
    outer = Select(inner).take(Column('max("sent")', "most", Unit.BYTES, ("sent",)))
    assert outer.over_time(large).points == points
    if points:
        board = {"uid": "b", "time": {"from": "now-24h"}, "panels": [
            {"title": "t", "type": "timeseries", "interval": "60s", "maxDataPoints": points,
             "targets": [{"refId": "A", "query": outer.over_time(large).influxql}]}]}  # fmt: skip
        (one,) = asked(board, 86_400, {})
        assert "time(1200s)" in one.query


@pytest.mark.parametrize(("nodes", "points"), [(64, 250), (1024, 15), (4096, 15)])
def test_a_curve_of_several_functions_has_fewer_still(nodes: int, points: int) -> None:
    """InfluxDB reads the inner question anew for each of them."""
    large = replace(CLUSTER, nodes=tuple(Node(f"gpu-{number}", "training", ()) for number in range(nodes)))
    assert node_spread(large, Select(schema.NODE_TRAFFIC, schema.RAW)).points == points
    sums = added((schema.TX_BYTES, schema.RX_BYTES, schema.FLOWS), "all", Unit.COUNT)
    inner = Select(schema.NODE_TRAFFIC, schema.RAW).take(sums).binned()
    outer = Select(inner).take(highest(sums))
    assert outer.over_time(large).points == points


@pytest.mark.parametrize(
    ("span", "interval"),
    [
        (3600, 5),
        (21_600, 20),
        (86_400, 60),
        (86_399 * 2, 120),
        (604_800, 600),
        (7_776_000, 7200),
        (64_800_000, 43_200),
    ],
)
def test_intervals_are_those_that_grafana_picks(span: int, interval: int) -> None:
    """From its source (rangeutil, intervalv2): below 1.5 s 1 s, below 90 s 1 min, below 750 s 10 min, ..."""
    assert expand("$__interval", start=0, end=span, minimum="", variables={}) == f"{interval}s"
