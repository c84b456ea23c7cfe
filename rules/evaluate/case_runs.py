"""Run rule cases on a real InfluxDB, and say in which lines an outcome differs from what was expected."""

import math
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from app.errors import UserError
from cluster.load import load_cluster
from cluster.model import Cluster, Retention, StoreApi, StoreSettings
from cluster.scalars.kinds import closest
from rules.evaluate.cases import Case, ExpectedAlert, ExpectedFiring, Fault
from rules.evaluate.evaluator import Alert, Evaluator
from rules.evaluate.timeline import Firing, Timeline
from rules.registry import rules_of
from rules.rule import Rule, RuleSet, labels_of_grafana
from store.influx import Store

NO_LOGIN = StoreSettings()

_FOREVER = 0
"""Retention in seconds: the points of cases are of a fixed day."""

_CLOSE = 1e-12
"""Relative difference up to which two values are equal: sums of floats depend on their order."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a case is evaluated on.

    Attributes:
        cluster: whose rule it is.
        store: with everything in it.
        begins: epoch second of time 0.
        firings: for a scenario, gives what a rule fires over all of it. The store is the player's to take away then.
    """

    cluster: Cluster
    store: Store
    begins: int
    firings: Callable[[Rule], Sequence[Firing]] | None = None


Player = Callable[[Case], Stage]
"""Plays a case's scenario."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a case went: lines that say what differs; none if it is as expected."""

    case: Case
    differences: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        """Whether everything is as expected."""
        return not self.differences


def no_scenarios(case: Case) -> Stage:
    """Refuse a case with a scenario: for those who cannot play any."""
    raise UserError(f"{case}: scenarios are played by `clusterflow test-rules`")


def run_case(case: Case, url: str, play: Player = no_scenarios, *, login: StoreSettings = NO_LOGIN) -> Outcome:
    """Run one case in a database of its own, which is removed afterwards.

    Args:
        case: what to run.
        url: of an InfluxDB in which databases may be made.
        play: plays the scenario of a case that has one.
        login: what to say there, and whom to trust.

    Raises:
        UserError: the case names a rule that its cluster does not have.
        StoreError: the InfluxDB is away.
    """
    if case.scenario:
        stage = play(case)
        rule = find_rule(case, rules_of(stage.cluster))
        fired = stage.firings(rule) if stage.firings is not None else ()
        return Outcome(case, tuple(_compared_firings(rule, case.firings or (), fired, stage.begins)))
    if case.cluster is None:
        raise ValueError(f"{case}: neither cluster nor scenario")
    cluster, rules = _site(case.cluster.resolve())
    settings = replace(login, url=url, api=StoreApi.V1, database=f"case_{uuid.uuid4().hex[:12]}")
    stage = _filled(case, cluster, settings)
    try:
        rule = find_rule(case, rules)
        return Outcome(case, tuple(_differences(case, rule, stage)))
    finally:
        stage.store.execute(f'DROP DATABASE "{settings.database}"')
        stage.store.close()


@cache
def _site(path: Path) -> tuple[Cluster, RuleSet]:
    cluster = load_cluster(path)
    return cluster, rules_of(cluster)


def _filled(case: Case, cluster: Cluster, settings: StoreSettings) -> Stage:
    store = Store(settings)
    names = () if case.fault is Fault.NO_RETENTION else tuple(one.name for one in cluster.retentions())
    store.ensure(tuple(Retention(name, cluster.bridge.window, _FOREVER) for name in names))
    for retention, lines in case.lines().items():
        store.write(lines, retention)
    return Stage(replace(cluster, store=settings), store, case.begins)


def find_rule(case: Case, rules: RuleSet) -> Rule:
    """Return the rule of a case; UserError says why there is none."""
    try:
        return rules.rule(case.rule)
    except KeyError:
        pass
    why = [str(skipped) for skipped in rules.skipped if skipped.id == case.rule]
    if why:
        raise UserError(f"{case}: the cluster does not get this rule: {'; '.join(why)}", f"see {case.cluster}")
    ids = [rule.id for rule in rules.rules]
    raise UserError(f"{case.file}: rule {case.rule}: the cluster has none of this id", closest(case.rule, ids))


def _differences(case: Case, rule: Rule, stage: Stage) -> Iterable[str]:
    """Evaluate tick by tick; yield what differs."""
    wanted = {moment.at: moment.alerts for moment in case.moments}
    first = case.start if case.start is not None else min(0, *wanted, 0)
    last = max([*wanted, *([] if case.until is None else [case.until])])
    evaluator = Evaluator(stage.store, [rule], datasource=stage.cluster.grafana.datasource_uid)
    timeline = Timeline()
    for now, told in evaluator.run(stage.begins + first, stage.begins + last):
        timeline.add(now, rule, (transition for _, transition in told))
        at = now - stage.begins
        if at in wanted:
            lines = list(_compared(rule, wanted.pop(at), evaluator.alerts(), stage.begins))
            if lines:
                yield f"at {at} s:"
                yield from (f"  {line}" for line in lines)
    for at in wanted:
        yield f"at {at} s: never evaluated; the rule is evaluated every {rule.interval} s"
    if case.firings is not None:
        yield from _compared_firings(rule, case.firings, timeline.firings, stage.begins)


def own_labels(rule: Rule, alert: Alert) -> tuple[tuple[str, str], ...]:
    """Return the labels of an alert, but those that every alert of the rule has."""
    common = {**labels_of_grafana(rule.title), **rule.all_labels()}
    return tuple(sorted((name, value) for name, value in alert.labels.items() if common.get(name) != value))


def _shown(labels: Sequence[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{name}={value}" for name, value in labels) + "}"


def _compared(rule: Rule, wanted: Sequence[ExpectedAlert], found: Sequence[Alert], begins: int) -> Iterable[str]:
    """Yield what differs between the alerts of one moment; they belong together by their labels."""
    left = list(found)
    for expected in wanted:
        match = next((alert for alert in left if own_labels(rule, alert) == expected.labels), None)
        if match is None:
            yield f"missing: {expected.state.value} {_shown(expected.labels)}"
            continue
        left.remove(match)
        lines = list(_alert_lines(expected, match, begins))
        if lines:
            yield f"{_shown(expected.labels)}:"
            yield from (f"  {line}" for line in lines)
    for alert in left:
        yield f"not expected: {_told(rule, alert, begins)}"


def _told(rule: Rule, alert: Alert, begins: int) -> str:
    since = "" if alert.active_at is None else f" since {alert.active_at - begins} s"
    why = alert.error or alert.annotations.get("summary", "")
    return f"{alert.state.value} {_shown(own_labels(rule, alert))}{since}: {why}"


def _alert_lines(expected: ExpectedAlert, alert: Alert, begins: int) -> Iterable[str]:
    def relative(moment: int | None) -> int | None:
        return None if moment is None else moment - begins

    simple = (
        ("state", expected.state.value, alert.state.value),
        ("reason", expected.reason, alert.reason),
        ("active_at", expected.active_at, relative(alert.active_at)),
        ("fired_at", expected.fired_at, relative(alert.fired_at)),
    )
    for name, wanted, found in simple:
        if wanted != found:
            yield from _line(name, wanted, found)
    for name, value in expected.values:
        number = alert.values.get(name)
        if number is None or not math.isclose(number, value, rel_tol=_CLOSE, abs_tol=_CLOSE):
            yield from _line(f"values.{name}", value, number)
    yield from _text_lines(expected.annotations, alert)
    for name, found in (("error", alert.error), ("annotations.Error", alert.annotations.get("Error", ""))):
        if expected.error not in found:
            yield from _line(name, f"... {expected.error} ...", found)


def _text_lines(wanted: Iterable[tuple[str, str]], alert: Alert) -> Iterable[str]:
    for name, text in wanted:
        found = alert.annotations.get(name)
        if found != text:
            yield from _line(f"annotations.{name}", text, found)


def _line(name: str, wanted: object, found: object) -> Iterable[str]:
    """Yield both sides one below the other: texts differ in a word that is easier seen so."""
    yield f"{name}:"
    yield f"  - {'nothing' if wanted is None else wanted}"
    yield f"  + {'nothing' if found is None else found}"


def _compared_firings(
    rule: Rule, wanted: Sequence[ExpectedFiring], found: Sequence[Firing], begins: int
) -> Iterable[str]:
    left = list(found)
    for expected in wanted:
        same = [firing for firing in left if own_labels(rule, firing.first) == expected.labels]
        match = min(same, key=lambda firing: abs(firing.fired_at - begins - expected.start[0]), default=None)
        if match is None:
            yield f"never fired: {_shown(expected.labels)}, expected {_times(expected.start)}"
            continue
        left.remove(match)
        lines = list(_firing_lines(expected, match, begins))
        if lines:
            yield f"firing {_shown(expected.labels)}:"
            yield from (f"  {line}" for line in lines)
    for firing in left:
        ended = "fires still" if firing.ended_at is None else f"until {firing.ended_at - begins} s"
        yield f"fired, not expected: {_told(rule, firing.first, begins)} ({ended})"


def _firing_lines(expected: ExpectedFiring, firing: Firing, begins: int) -> Iterable[str]:
    start = firing.fired_at - begins
    if not expected.start[0] <= start <= expected.start[1]:
        yield from _line("start", _times(expected.start), f"{start} s")
    end = None if firing.ended_at is None else firing.ended_at - begins
    if expected.end is None or end is None:
        if expected.end is not None or end is not None:
            wanted = "fires still" if expected.end is None else _times(expected.end)
            yield from _line("end", wanted, "fires still" if end is None else f"{end} s")
    elif not expected.end[0] <= end <= expected.end[1]:
        yield from _line("end", _times(expected.end), f"{end} s")
    yield from _text_lines(expected.annotations, firing.first)
    yield from (f"last {line}" if line[0] != " " else line for line in _text_lines(expected.last, firing.last))


def _times(times: tuple[int, int]) -> str:
    return f"{times[0]} s" if times[0] == times[1] else f"{times[0]} to {times[1]} s"
