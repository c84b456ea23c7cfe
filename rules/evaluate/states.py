"""Grafana's alert state machine, pure: instances and an evaluation's samples in, new instances out.

The authority is Grafana's source: ``resultNormal``, ``resultAlerting``, ``resultError``, ``resultNoData``,
``resultKeepLast`` and ``transition`` in ``pkg/services/ngalert/state/state.go``, ``setNextStateForRule`` and
``processMissingSeriesStates`` in ``manager.go`` beside it, as of Grafana 12. Grafana 13 observes `for` before NoData
and Error too (grafana/grafana#117024); rules without `for`, as ours, behave alike in both. Times are epoch seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from rules.rule import ErrorPolicy, NoDataPolicy, Rule

Labels = tuple[tuple[str, str], ...]
"""Labels in order of their names: what tells one instance of a rule from another."""

MISSING_SERIES = "MissingSeries"
KEEP_LAST = "KeepLast"
_SENTINEL = -1.0


def labels_of(pairs: Mapping[str, str]) -> Labels:
    """Return labels in their order."""
    return tuple(sorted(pairs.items()))


class Outcome(StrEnum):
    """What one evaluation says of one series."""

    NORMAL = "Normal"
    ALERTING = "Alerting"
    NO_DATA = "NoData"
    ERROR = "Error"


class State(StrEnum):
    """What an alert instance is in."""

    NORMAL = "Normal"
    PENDING = "Pending"
    ALERTING = "Alerting"
    RECOVERING = "Recovering"
    NO_DATA = "NoData"
    ERROR = "Error"


FIRING = frozenset({State.ALERTING, State.RECOVERING, State.NO_DATA, State.ERROR})
"""States of which the notification policies hear."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series in one evaluation.

    Attributes:
        outcome: what the condition says.
        labels: of the series; of the data source and its queries where there is no data or an error.
        values: Grafana's letter -> number, of the measures that could be joined.
        error: what went wrong, for ERROR.
    """

    outcome: Outcome
    labels: Labels = ()
    values: Mapping[str, float] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """One alert instance of a rule.

    Attributes:
        labels: of the series and of the rule.
        state: what it is in, and since `starts_at`.
        reason: why, where state and last outcome differ: ``NoData``, ``Error, KeepLast``, ``MissingSeries``.
        active_at: when it left Normal; None while Normal.
        fired_at: when it last began to alert.
        resolved_at: when it became Normal again after it had fired.
        evaluated_at: its last evaluation.
    """

    labels: Labels
    starts_at: int
    evaluated_at: int
    state: State = State.NORMAL
    reason: str = ""
    active_at: int | None = None
    fired_at: int | None = None
    resolved_at: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """An instance after an evaluation, and the state it was in before."""

    before: State
    after: Instance

    @property
    def changed(self) -> bool:
        """Whether the state is another one."""
        return self.before is not self.after.state


def advance(instance: Instance, now: int, sample: Sample, rule: Rule) -> Instance:
    """Return the instance after one evaluation; the rule gives durations and policies."""
    moved = _moved(instance, now, sample, rule)
    outcome = sample.outcome
    explains = outcome in (Outcome.NO_DATA, Outcome.ERROR) and moved.state.value != outcome.value
    fired = instance.state in FIRING
    resolved_at = moved.resolved_at
    if moved.state is State.NORMAL and fired:
        resolved_at = now
    elif moved.state not in (State.NORMAL, State.PENDING):
        resolved_at = None
    active_at = None if moved.state is State.NORMAL else instance.active_at if instance.active_at is not None else now
    return replace(
        moved,
        evaluated_at=now,
        reason=_reason(outcome, rule) if explains else "",
        active_at=active_at,
        resolved_at=resolved_at,
        values=_values(instance, sample),
    )


def _moved(instance: Instance, now: int, sample: Sample, rule: Rule) -> Instance:
    match sample.outcome:
        case Outcome.NORMAL:
            return _normal(instance, now, rule)
        case Outcome.ALERTING:
            return _alerting(instance, now, rule)
        case Outcome.NO_DATA:
            return _no_data(instance, now, rule)
        case Outcome.ERROR:
            return _error(instance, now, sample, rule)


def _set(instance: Instance, state: State, now: int, error: str = "") -> Instance:
    fired_at = now if state is State.ALERTING else instance.fired_at
    return replace(instance, state=state, starts_at=now, fired_at=fired_at, error=error)


def _normal(instance: Instance, now: int, rule: Rule) -> Instance:
    match instance.state:
        case State.NORMAL:
            return instance
        case State.RECOVERING if now - instance.starts_at < rule.keep_firing_for:
            return instance
        case State.ALERTING if rule.keep_firing_for > 0:
            return _set(instance, State.RECOVERING, now)
        case _:
            return _set(instance, State.NORMAL, now)


def _alerting(instance: Instance, now: int, rule: Rule) -> Instance:
    match instance.state:
        case State.ALERTING:
            return replace(instance, error="")
        case State.PENDING:
            return _set(instance, State.ALERTING, now) if _pended(instance, now, rule) else instance
        case State.RECOVERING:
            return _set(instance, State.ALERTING, now)
        case _:
            return _set(instance, State.PENDING if rule.pending_for > 0 else State.ALERTING, now)


def _pended(instance: Instance, now: int, rule: Rule) -> bool:
    return now - instance.starts_at >= rule.pending_for


def _no_data(instance: Instance, now: int, rule: Rule) -> Instance:
    match rule.no_data:
        case NoDataPolicy.ALERTING:
            return _alerting(instance, now, rule)
        case NoDataPolicy.OK:
            return _normal(instance, now, rule)
        case NoDataPolicy.KEEP_LAST:
            return _kept(instance, now, rule)
        case NoDataPolicy.NO_DATA:
            return _fault(instance, State.NO_DATA, now, "")


def _error(instance: Instance, now: int, sample: Sample, rule: Rule) -> Instance:
    match rule.on_error:
        case ErrorPolicy.ALERTING:
            moved = replace(_alerting(instance, now, rule), error=sample.error)
        case ErrorPolicy.OK:
            moved = _normal(instance, now, rule)
        case ErrorPolicy.KEEP_LAST:
            moved = _kept(instance, now, rule)
        case ErrorPolicy.ERROR:
            moved = _fault(instance, State.ERROR, now, sample.error)
    return replace(moved, annotations={**moved.annotations, "Error": sample.error})


def _fault(instance: Instance, fault: State, now: int, error: str) -> Instance:
    """Go to NoData or Error at once."""
    return replace(instance, error=error) if instance.state is fault else _set(instance, fault, now, error)


def _kept(instance: Instance, now: int, rule: Rule) -> Instance:
    match instance.state:
        case State.ALERTING:
            return _alerting(instance, now, rule)
        case State.PENDING:
            return _alerting(instance, now, rule) if _pended(instance, now, rule) else instance
        case _:
            # Recovering goes on recovering; NoData and Error, which this policy does not make, go back to Normal.
            return _normal(instance, now, rule)


def _reason(outcome: Outcome, rule: Rule) -> str:
    keeps = (
        rule.on_error is ErrorPolicy.KEEP_LAST if outcome is Outcome.ERROR else rule.no_data is NoDataPolicy.KEEP_LAST
    )
    return f"{outcome.value}, {KEEP_LAST}" if keeps else outcome.value


def _values(instance: Instance, sample: Sample) -> Mapping[str, float]:
    if sample.outcome in (Outcome.NO_DATA, Outcome.ERROR):
        return dict.fromkeys(instance.values, _SENTINEL)
    return dict(sample.values)


Annotate = Callable[[Sample], Mapping[str, str]]
"""Renders a rule's annotations for a sample."""


def advance_rule(
    instances: Mapping[Labels, Instance], now: int, samples: Sequence[Sample], rule: Rule, annotate: Annotate
) -> tuple[dict[Labels, Instance], list[Transition]]:
    """Return all instances of a rule after one evaluation, and what became of each.

    Instances whose series is missing for `missing_evaluations` are resolved and gone; their transition is still told.
    """
    shared = _shared(samples, rule)
    if shared is not None and instances:
        return _advance_each(instances, now, shared, rule)
    after = dict(instances)
    transitions: list[Transition] = []
    for sample in samples:
        labels = labels_of({**dict(sample.labels), **rule.all_labels()})
        before = instances.get(labels) or Instance(labels, now, now)
        fresh = replace(before, annotations=dict(annotate(sample)))
        after[labels] = advance(fresh, now, sample, rule)
        transitions.append(Transition(before.state, after[labels]))
    for labels, instance in instances.items():
        if after[labels].evaluated_at == now:
            continue
        if now - instance.evaluated_at >= _missing_limit(instance, rule) * rule.interval:
            del after[labels]
            transitions.append(Transition(instance.state, _gone(instance, now)))
        else:
            transitions.append(Transition(instance.state, instance))
    return after, transitions


def _shared(samples: Sequence[Sample], rule: Rule) -> Sample | None:
    """Return the one sample that goes to every instance, where the policy maps a fault of the whole rule."""
    outcomes = {sample.outcome for sample in samples}
    if outcomes <= {Outcome.NO_DATA} and rule.no_data is not NoDataPolicy.NO_DATA:
        return samples[0] if samples else Sample(Outcome.NO_DATA)
    if outcomes == {Outcome.ERROR} and rule.on_error is not ErrorPolicy.ERROR:
        return samples[0]
    return None


def _advance_each(
    instances: Mapping[Labels, Instance], now: int, sample: Sample, rule: Rule
) -> tuple[dict[Labels, Instance], list[Transition]]:
    after: dict[Labels, Instance] = {}
    transitions: list[Transition] = []
    for labels, instance in instances.items():
        moved = advance(instance, now, sample, rule)
        # The texts stay those of the last evaluation that had data; what was missing is added to them.
        after[labels] = replace(moved, annotations={**moved.annotations, **dict(sample.labels)})
        transitions.append(Transition(instance.state, after[labels]))
    return after, transitions


def _missing_limit(instance: Instance, rule: Rule) -> int:
    return 1 if instance.state in (State.ERROR, State.NO_DATA) else rule.missing_evaluations


def _gone(instance: Instance, now: int) -> Instance:
    return replace(
        instance,
        state=State.NORMAL,
        reason=MISSING_SERIES,
        evaluated_at=now,
        active_at=None,
        resolved_at=now if instance.state in FIRING else instance.resolved_at,
    )
