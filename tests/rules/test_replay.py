"""The quick evaluation of a long stretch has the very outcome of evaluating every tick, whatever is stored."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

from cluster.load import load_cluster
from cluster.model import Retention, StoreSettings
from rules.evaluate import replay
from rules.evaluate.bounds import Cells, Range
from rules.evaluate.cases import BEGINS, find_files, load_cases
from rules.evaluate.evaluator import Evaluator
from rules.evaluate.replay import Replay, Sight
from rules.evaluate.timeline import Timeline
from rules.registry import rules_of
from rules.rule import Comparison, ErrorPolicy, Measure, NoDataPolicy, Reducer, Rule, Threshold
from store import schema
from store.influx import Store
from store.influxql import (
    Query,
    Select,
    Unit,
    aggregate,
    compare,
    count,
    highest,
    is_in,
    lowest,
    newest,
    ratio,
    scaled,
    total,
)
from store.local_influxdb import LocalInfluxDB

FOLDER = Path(__file__).parent
CLUSTER = load_cluster(FOLDER / "cluster.yaml")
RULES = rules_of(CLUSTER)
EXFIL = RULES.rule("exfil_volume")
STEP = 10
EXAMPLES = int(os.environ.get("CLUSTERFLOW_EXAMPLES", "3"))
"""Each is hundreds of queries: a hundred of them an evening find more."""


@dataclass(frozen=True)
class Shape:
    """A rule, and what the points look like that it reads."""

    rule: Rule
    line: Callable[[int, int], str]
    """Series number and value -> line protocol without time."""
    values: tuple[int, ...]
    every: int = STEP


def _rule(*measures: Measure, comparison: Comparison, limit: float, **changes: object) -> Rule:
    annotations = (("summary", "{{ $labels.src }}{{ $labels.exporter }} " + f"{{{{ $values.{measures[0].name} }}}}"),)
    plain = replace(EXFIL, measures=measures, annotations=annotations)
    return replace(plain, threshold=Threshold("exfil_volume", comparison, limit), **changes)  # type: ignore[arg-type]


def _egress(series: int, value: int) -> str:
    return f"egress,src=a{series},dst=b,src_group=model_storage,dst_group=external,shard=0 bytes={value}i,duration=5"


def _baseline(series: int, value: int) -> str:
    return (
        f"baseline,node=gpu-{series},group=training,job=j,job_class=c state={value % 5}i,low_for={value},observed=1,"
        f"expected=1,lower=1,sent_bytes={value}i,missing_bytes=1i,score={value - 20}"
    )


def _exporter(series: int, value: int) -> str:
    return f"exporter,exporter=leaf-{series + 1},shard=0 age={value},records={10 + value}i,seq_lost={value}i"


def _pipeline(series: int, value: int) -> str:
    return f"pipeline,stage=bridge,reason=r{series},shard=0 value={value}"


EGRESS = Select(schema.EGRESS, schema.RAW)
EXPORTER = Select(schema.EXPORTER_STATUS, schema.RAW).by(schema.EXPORTER)
BASELINE = Select(schema.BASELINE, schema.RAW).by(schema.NODE)
SENT = EGRESS.by(schema.SRC).take(total(schema.BYTES)).per_series()
DURATION = (
    Select(EGRESS.by(schema.SRC).take(highest(schema.DURATION)).each(STEP)).by(schema.SRC).take(total(schema.DURATION))
)
OLDEST = EXPORTER.take(lowest(schema.AGE)).per_series()
LOW = Select(BASELINE.take(newest(schema.STATE))).where(compare(schema.STATE, ">=", 2), compare(schema.STATE, "<=", 3))
TWO = (
    BASELINE.where(is_in(schema.GROUP, ["training"])).take(newest(schema.LOW_FOR, "x")),
    EXPORTER.take(highest(schema.AGE, "x")),
)
TEXT = 'SELECT sum("bytes") FROM "raw"."egress" WHERE "src" =~ /a/ AND $timeFilter GROUP BY "src"'
UNREADABLE = Query(TEXT, Unit.BYTES, "", ("src",), "raw")
X = highest(schema.Field("x", "", ""))


def _sums(since: int, **changes: object) -> Rule:
    return _rule(
        Measure("bytes", SENT, since), Measure("duration", DURATION.per_series(), since),
        comparison=Comparison.ABOVE, limit=100, **changes,
    )  # fmt: skip


def _ages(comparison: Comparison, limit: float, **changes: object) -> Rule:
    return _rule(Measure("age", OLDEST, 60), comparison=comparison, limit=limit, **changes)


def _one(query: Query, comparison: Comparison, limit: float, *, since: int = 60, **changes: object) -> Rule:
    return _rule(Measure("x", query, since), comparison=comparison, limit=limit, **changes)


ABOVE, AT_LEAST, BELOW, AT_MOST = Comparison.ABOVE, Comparison.AT_LEAST, Comparison.BELOW, Comparison.AT_MOST
DEADMAN = RULES.rule("ingest_deadman")
HEARTBEAT = replace(DEADMAN, measures=(replace(DEADMAN.measures[0], since=60),))
LOW_NODES = Select(LOW.take(newest(schema.STATE)).by(schema.NODE)).take(count(schema.STATE)).per_series()
MEAN = aggregate("mean", schema.AGE)
LATEST = BASELINE.take(newest(schema.LOW_FOR)).per_series()
NOTHING = scaled(total(schema.EXPORTER_RECORDS), "0", "records", Unit.COUNT)
LOST = ratio((total(schema.SEQ_LOST, "lost"), NOTHING), NOTHING, "x")
LOSS = Select(EXPORTER.take(total(schema.SEQ_LOST, "lost"), NOTHING))
SHAPES = {
    "sums": Shape(_sums(60), _egress, (0, 5, 30, 200)),
    "sums over a long window": Shape(_sums(600), _egress, (0, 1, 2, 9)),
    "pending, and no grace": Shape(_sums(60, pending_for=30, keep_firing_for=0), _egress, (0, 30, 200)),
    "no data is a state": Shape(_sums(60, no_data=NoDataPolicy.NO_DATA), _egress, (0, 5, 200)),
    "silence keeps the last": Shape(_ages(ABOVE, 40, no_data=NoDataPolicy.KEEP_LAST), _exporter, (3, 30, 50)),
    "at most": Shape(_ages(AT_MOST, 5, missing_evaluations=2), _exporter, (3, 30, 50)),
    "silence alerts": Shape(_ages(ABOVE, 40, no_data=NoDataPolicy.ALERTING), _exporter, (3, 30, 50)),
    "heartbeat": Shape(HEARTBEAT, _pipeline, (1,)),
    "dropout": Shape(RULES.rule("node_dropout"), _baseline, (0, 1, 2, 13, 22, 33, 34)),
    "count of chosen rows": Shape(_one(LOW_NODES, AT_LEAST, 2), _baseline, (0, 1, 2, 3)),
    "fewer than two": Shape(_one(EXPORTER.take(count(schema.AGE)).per_series(), BELOW, 3), _exporter, (3,)),
    "negative numbers": Shape(_one(BASELINE.take(total(schema.SCORE)).per_series(), ABOVE, 20), _baseline, (0, 22, 40)),
    "sum of bins": Shape(_one(DURATION.per_series(), ABOVE, 40, since=120), _egress, (0,)),
    "mean": Shape(_one(EXPORTER.take(MEAN).per_series(), AT_LEAST, 30), _exporter, (3, 30, 50)),
    "two sources": Shape(_one(Select(TWO).take(X).per_series(), ABOVE, 20), _baseline, (3, 22)),
    "not of our form": Shape(_one(UNREADABLE, ABOVE, 100), _egress, (0, 30, 200)),
    "counted points": Shape(
        _rule(Measure("n", SENT, 60, reducer=Reducer.COUNT), comparison=ABOVE, limit=0), _egress, (0,)
    ),
    "every five minutes": Shape(
        _rule(Measure("low", LATEST, 700), Measure("again", LATEST, 700), comparison=ABOVE, limit=20),
        _baseline, (3, 22, 40), 300,
    ),
    "errors alert": Shape(_sums(60, on_error=ErrorPolicy.ALERTING, no_data=NoDataPolicy.OK), _egress, (0, 200)),
    "seldom": Shape(_sums(60, interval=30), _egress, (0, 30, 200)),
    "a while ago": Shape(
        _rule(Measure("bytes", SENT, 120, until=60), comparison=ABOVE, limit=100), _egress, (0, 30, 200)
    ),
    "a ratio": Shape(_one(LOSS.take(LOST).by(schema.EXPORTER).per_series(), ABOVE, 0.2), _exporter, (0, 1, 3)),
    "a ratio of ours": Shape(RULES.rule("flow_loss"), _exporter, (0, 1, 300)),
}  # fmt: skip


def _runs(shape: Shape) -> st.SearchStrategy[list[list[tuple[int, int | None]]]]:
    """Three series, each a list of runs: so many windows of the same value, or without a point."""
    run = st.tuples(st.integers(1, 25), st.sampled_from([None, *shape.values]))
    return st.lists(st.lists(run, min_size=1, max_size=5), min_size=1, max_size=3)


def _lines(shape: Shape, series: list[list[tuple[int, int | None]]]) -> list[str]:
    lines = []
    for number, runs in enumerate(series):
        at = BEGINS
        for length, value in runs:
            if value is not None:
                lines += [f"{shape.line(number, value)} {at + i * shape.every}" for i in range(length)]
            at += length * shape.every
    return lines


def _timelines(rule: Rule, store: Store, whole: Range, sight: Sight) -> tuple[Timeline, Timeline, Replay]:
    slow, quick = Timeline(), Timeline()
    seen = tuple(replace(one, until=max(one.until, sight.window(one).until)) for one in rule.measures)
    for now, told in Evaluator(store, [replace(rule, measures=seen)]).run(whole.first, whole.last):
        slow.add(now, rule, (transition for _, transition in told))
    cells = Cells(store, whole.first - max(one.since for one in rule.measures), whole.last)
    run = Replay(rule, store, whole, cells, sight)
    run.run(quick)
    return slow, quick, run


def _assert_same(slow: Timeline, quick: Timeline) -> None:
    assert quick.spans == slow.spans
    assert [
        (one.fired_at, one.ended_at, one.first.labels, one.first.annotations, one.last.values, one.last.annotations)
        for one in sorted(quick.firings, key=lambda one: (one.fired_at, sorted(one.first.labels.items())))
    ] == [
        (one.fired_at, one.ended_at, one.first.labels, one.first.annotations, one.last.values, one.last.annotations)
        for one in sorted(slow.firings, key=lambda one: (one.fired_at, sorted(one.first.labels.items())))
    ]


@pytest.mark.parametrize("name", SHAPES)
@hypothesis.given(data=st.data())
@hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)
def test_the_same_as_tick_by_tick(name: str, influxdb_v1: LocalInfluxDB, data: st.DataObject) -> None:
    shape = SHAPES[name]
    series = data.draw(_runs(shape))
    ahead = data.draw(st.integers(-20, 20))
    sight = data.draw(st.sampled_from([Sight(), Sight(24, 32)]))
    few = data.draw(st.sampled_from([1, 12]))
    store = Store(StoreSettings(url=influxdb_v1.url, database="replayed"))
    store.execute('DROP DATABASE "replayed"')
    store.ensure((Retention("raw", STEP, 0),))
    if lines := _lines(shape, series):
        store.write("\n".join(lines).encode(), "raw")
    length = max(sum(run[0] for run in runs) for runs in series) * shape.every
    whole = Range(BEGINS + ahead * STEP, BEGINS + length + 300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "_FEW_TICKS", few)
        slow, quick, _ = _timelines(shape.rule, store, whole, sight)
    _assert_same(slow, quick)


@pytest.mark.parametrize("path", find_files([FOLDER]), ids=lambda path: path.stem)
def test_the_cases_of_a_rule_go_the_same_way(path: Path, influxdb_v1: LocalInfluxDB) -> None:
    """Every rule's own queries, over the points of all its cases that hold any."""
    for case in load_cases(path, FOLDER / "cluster.yaml"):
        if case.scenario or case.fault is not None or not case.points:
            continue
        store = Store(StoreSettings(url=influxdb_v1.url, database="replayed"))
        store.execute('DROP DATABASE "replayed"')
        store.ensure(tuple(Retention(name, STEP, 0) for name in ("raw", "1m", "1h")))
        for retention, lines in case.lines().items():
            store.write(lines, retention)
        rule = RULES.rule(case.rule)
        last = max(one.stop for one in case.points)
        first = max(min(one.start for one in case.points), last - 3000)
        whole = Range(case.begins + first, case.begins + last + 200)
        slow, quick, _ = _timelines(rule, store, whole, Sight())
        _assert_same(slow, quick)
