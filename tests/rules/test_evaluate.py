"""What an evaluation asks, how it makes numbers of the answer, and how measures join."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.load import load_cluster
from cluster.model import Retention, StoreSettings
from rules.evaluate.case_runs import run_case
from rules.evaluate.cases import BEGINS as BASE
from rules.evaluate.cases import Case, find_files, load_cases
from rules.evaluate.evaluator import Evaluator, reduce
from rules.evaluate.states import State
from rules.registry import rules_of
from rules.rule import Comparison, Measure, NoDataPolicy, Reducer, Rule
from store.influx import Store
from store.influxql import Query
from store.local_influxdb import LocalInfluxDB

FOLDER = Path(__file__).parent
CLUSTER = load_cluster(FOLDER / "cluster.yaml")
EXFIL = rules_of(CLUSTER).rule("exfil_volume")
FIRST_CASES = {
    file.stem: next(case for case in load_cases(file, FOLDER / "cluster.yaml") if not case.scenario)
    for file in find_files([FOLDER])
}


def test_expansion_is_grafanas() -> None:
    """Milliseconds, both ends included, at every place."""
    text = "SELECT x FROM (SELECT y WHERE $timeFilter) WHERE $timeFilter GROUP BY time($__interval), z / $__interval_ms"
    query = replace(EXFIL.measures[0].query, text=text, interval=60)
    moment = "time >= 100000ms and time <= 160000ms"
    assert query.between(100, 160) == (
        f"SELECT x FROM (SELECT y WHERE {moment}) WHERE {moment} GROUP BY time(60s), z / 60000"
    )
    assert "time(1s)" in replace(query, interval=0).between(100, 160)


@pytest.mark.parametrize(
    ("reducer", "points", "number"),
    [
        (Reducer.LAST, [1.0, None, 3.0, None], 3.0),
        (Reducer.LAST, [1.0, math.nan, math.inf], 1.0),
        (Reducer.SUM, [1.0, None, 3.0], 4.0),
        (Reducer.MEAN, [1.0, None, 3.0], 2.0),
        (Reducer.MIN, [3.0, 1.0], 1.0),
        (Reducer.MAX, [3.0, 1.0], 3.0),
        (Reducer.COUNT, [3.0, None, 1.0], 2.0),
        (Reducer.COUNT, [], 0.0),
        (Reducer.LAST, [None], None),
        (Reducer.SUM, [], None),
    ],
)
def test_reducers(reducer: Reducer, points: list[float | None], number: float | None) -> None:
    assert reduce(reducer, points) == number


@pytest.mark.parametrize(
    ("comparison", "below", "equal", "above"),
    [
        (Comparison.ABOVE, False, False, True),
        (Comparison.AT_LEAST, False, True, True),
        (Comparison.BELOW, True, False, False),
        (Comparison.AT_MOST, True, True, False),
    ],
)
def test_comparisons(comparison: Comparison, *, below: bool, equal: bool, above: bool) -> None:
    assert [comparison.holds(value, 5) for value in (4, 5, 6)] == [below, equal, above]
    assert not comparison.holds(math.nan, 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "Exfil Volume"}, "a rule's id"),
        ({"id": "x" * 41}, "a rule's id"),
        ({"measures": ()}, "measures"),
        ({"threshold": replace(EXFIL.threshold, name="exfil_volum")}, "no threshold 'exfil_volum'"),
        ({"annotations": (("summary", "{{ $values.byts.Value }}"),)}, "no measure 'byts'; there are bytes, duration"),
    ],
)
def test_a_wrong_rule_is_refused_when_it_is_made(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(EXFIL, **changes)  # type: ignore[arg-type]


# On a store ---------------------------------------------------------------------------------------


def _store(server: LocalInfluxDB, database: str, lines: str) -> Store:
    store = Store(StoreSettings(url=server.url, database=database))
    store.ensure((Retention("raw", 10, 0),))
    store.write(lines.encode(), "raw")
    return store


def _rule(*measures: Measure) -> Rule:
    return replace(EXFIL, measures=measures, annotations=(), threshold=replace(EXFIL.threshold, value=0))


def _measure(name: str, field: str, *tags: str) -> Measure:
    groups = ", ".join(f'"{tag}"' for tag in tags)
    text = f'SELECT sum("{field}") FROM "raw"."m" WHERE $timeFilter' + (f" GROUP BY {groups}" if tags else "")
    return Measure(name, Query(text, EXFIL.measures[0].query.unit, "", tags, "raw"), since=60)


def test_measures_join_by_equal_labels_and_by_a_subset(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    store = _store(influxdb_v1, fresh_database, f"m,job=j,node=a x=1,y=10 {BASE}\nm,job=j,node=b x=2,y=20 {BASE}")
    rule = _rule(_measure("x", "x", "job", "node"), _measure("y", "y", "node", "job"), _measure("job_y", "y", "job"))
    evaluator = Evaluator(store, [rule])
    evaluator.tick(BASE)
    assert [(alert.labels["node"], dict(alert.values)) for alert in evaluator.alerts()] == [
        ("a", {"x": 1.0, "y": 10.0, "job_y": 30.0}),
        ("b", {"x": 2.0, "y": 20.0, "job_y": 30.0}),
    ]


def test_one_empty_query_makes_the_whole_rule_no_data(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """Grafana's way, and why all queries of a rule must read the same points."""
    store = _store(influxdb_v1, fresh_database, f"m,node=a x=1 {BASE}")
    rule = _rule(_measure("x", "x", "node"), _measure("y", "nothing", "node"))
    ((sample,),) = Evaluator(store, [rule], datasource="flows").samples([(rule, BASE)])
    assert sample.outcome.value == "NoData"
    assert dict(sample.labels) == {"datasource_uid": "flows", "ref_id": "D"}


@pytest.mark.parametrize(("quick", "requests"), [(60.0, [16, 32, 64, 128, 60]), (0.0, [16] * 18 + [12])])
def test_a_store_that_answers_quickly_is_asked_more_at_once(
    quick: float,
    requests: list[int],
    influxdb_v1: LocalInfluxDB,
    fresh_database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most of what `status` took of a store 50 ms away was the way there and back, a hundred times."""
    store = _store(influxdb_v1, fresh_database, f"m,node=a x=1 {BASE}")
    asked: list[int] = []
    answers = store.answers
    monkeypatch.setattr(store, "answers", lambda texts: asked.append(len(texts)) or answers(texts))
    monkeypatch.setattr("rules.evaluate.evaluator._QUICK_SECONDS", quick)
    rule = _rule(_measure("x", "x", "node"))
    told = Evaluator(store, [rule]).samples((rule, BASE + tick) for tick in range(300))
    assert sum(sample.outcome.value == "Alerting" for samples in told for sample in samples) == 61
    assert asked == requests


def test_both_ends_of_the_range_belong_to_it(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    store = _store(influxdb_v1, fresh_database, f"m,node=a x=1 {BASE}")
    rule = _rule(_measure("x", "x", "node"))
    evaluator = Evaluator(store, [rule])
    outcomes = {at: next(evaluator.samples([(rule, BASE + at)]))[0].outcome.value for at in (-1, 0, 60, 61)}
    assert outcomes == {-1: "NoData", 0: "Alerting", 60: "Alerting", 61: "NoData"}


def test_two_columns_are_a_mistake_in_the_rule(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    store = _store(influxdb_v1, fresh_database, f"m,node=a x=1,y=2 {BASE}")
    measure = _measure("x", "x", "node")
    query = replace(measure.query, text=measure.query.influxql.replace('sum("x")', 'sum("x"), sum("y")'))
    rule = _rule(replace(measure, query=query))
    with pytest.raises(ValueError, match="one column"):
        next(Evaluator(store, [rule]).samples([(rule, BASE)]))


def test_rules_are_evaluated_at_their_own_interval(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    store = _store(influxdb_v1, fresh_database, f"m,node=a x=1 {BASE}")
    often, seldom = _rule(_measure("x", "x", "node")), replace(_rule(_measure("x", "x", "node")), id="b", interval=30)
    ticks = {
        now - BASE: [rule.id for rule, _ in told]
        for now, told in Evaluator(store, [often, seldom]).run(BASE, BASE + 35)
    }
    assert ticks == {0: ["exfil_volume", "b"], 10: ["exfil_volume"], 20: ["exfil_volume"], 30: ["exfil_volume", "b"]}
    # What was due at a tick that was left out is due at the next.
    late = Evaluator(store, [often, seldom])
    asked = [
        [rule.id for rule, _ in late.tick(BASE + now, BASE + since)] for now, since in ((20, 10), (50, 20), (70, 50))
    ]
    assert asked == [["exfil_volume"], ["exfil_volume", "b"], ["exfil_volume", "b"]]


def test_catching_up_ends_where_evaluating_everything_does(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """Also where it fires since long before the rule's own memory begins."""
    points = "\n".join(f"m,node=a x=1 {BASE + at}" for at in range(0, 900, 10))
    store = _store(influxdb_v1, fresh_database, points)
    seen = _rule(_measure("x", "x", "node"))
    quick, patient = replace(seen, pending_for=20, keep_firing_for=0), replace(seen, id="b", pending_for=600)
    rules = [replace(quick, no_data=NoDataPolicy.OK), replace(patient, no_data=NoDataPolicy.OK, interval=30)]
    states = []
    for end in (BASE + 100, BASE + 890, BASE + 960, BASE + 1500):
        whole, quickly = Evaluator(store, rules), Evaluator(store, rules)
        for _ in whole.run(end - rules[1].remembered() - 30, end):
            pass
        quickly.catch_up(end)
        assert quickly.alerts() == whole.alerts()
        states.append([(alert.rule, alert.state) for alert in whole.alerts()])
    firing = ("exfil_volume", State.ALERTING)
    assert states[:2] == [[firing, ("b", State.PENDING)], [firing, ("b", State.ALERTING)]]
    assert states[-1] == []


def test_a_store_that_is_away_is_one_alert_and_all_rules_are_known_to_see_nothing() -> None:
    store = Store(StoreSettings(url="http://127.0.0.1:1", database="x"))
    evaluator = Evaluator(store, rules_of(CLUSTER).rules)
    evaluator.tick(BASE)
    assert [(alert.rule, alert.state) for alert in evaluator.alerts()] == [("ingest_deadman", State.ALERTING)]
    assert set(evaluator.failing) == {rule.id for rule in rules_of(CLUSTER).rules}


@pytest.mark.parametrize("case", FIRST_CASES.values(), ids=lambda case: case.rule)
def test_the_same_words_from_a_newer_influxdb(case: Case, influxdb_v2: LocalInfluxDB) -> None:
    """The first case of each rule, on 1.8: InfluxQL that only 1.6 understands would show here."""
    outcome = run_case(case, influxdb_v2.url)
    assert outcome.is_right, "\n".join(outcome.differences)
