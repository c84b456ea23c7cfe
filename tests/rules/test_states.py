"""The state machine as tables: outcomes in, Grafana's states out."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.load import load_cluster
from rules.evaluate.states import FIRING, Instance, Labels, Outcome, Sample, State, Transition, advance, advance_rule
from rules.registry import rules_of
from rules.rule import ErrorPolicy, NoDataPolicy, Rule

_BASE = rules_of(load_cluster(Path(__file__).parent / "cluster.yaml")).rule("exfil_volume")
OUTCOMES = {"n": Outcome.NORMAL, "a": Outcome.ALERTING, "d": Outcome.NO_DATA, "e": Outcome.ERROR}
SHORT = {
    State.NORMAL: "N",
    State.PENDING: "P",
    State.ALERTING: "A",
    State.RECOVERING: "R",
    State.NO_DATA: "D",
    State.ERROR: "E",
}
STEP = 10


def _rule(
    pending_for: int = 0,
    keep: int = 0,
    no_data: NoDataPolicy = NoDataPolicy.OK,
    on_error: ErrorPolicy = ErrorPolicy.ERROR,
    missing: int = 2,
) -> Rule:
    return replace(
        _BASE,
        pending_for=pending_for,
        keep_firing_for=keep,
        no_data=no_data,
        on_error=on_error,
        missing_evaluations=missing,
        interval=STEP,
    )


def _walk(rule: Rule, outcomes: str) -> list[Instance]:
    instance = Instance((), 0, 0)
    seen = []
    for step, letter in enumerate(outcomes):
        sample = Sample(OUTCOMES[letter], (), {"B": 1.0}, "broken" if letter == "e" else "")
        instance = advance(instance, step * STEP, sample, rule)
        seen.append(instance)
    return seen


@pytest.mark.parametrize(
    ("rule", "outcomes", "states"),
    [
        (_rule(), "nanna", "NANNA"),
        (_rule(pending_for=20), "naaaan", "NPPAAN"),
        # A gap in the pending time starts it anew.
        (_rule(pending_for=20), "aanaaa", "PPNPPA"),
        (_rule(pending_for=5), "aa", "PA"),
        # Recovering lasts for the whole time, and alerting again skips Pending.
        (_rule(keep=20), "annnn", "ARRNN"),
        (_rule(pending_for=20, keep=30), "aaannan", "PPARRAR"),
        # No data and errors, mapped.
        (_rule(no_data=NoDataPolicy.OK), "adda", "ANNA"),
        (_rule(no_data=NoDataPolicy.OK, keep=20), "addd", "ARRN"),
        (_rule(no_data=NoDataPolicy.NO_DATA), "nddan", "NDDAN"),
        # A fault does not wait for `for`.
        (_rule(no_data=NoDataPolicy.NO_DATA, pending_for=20), "nddaa", "NDDPP"),
        (_rule(no_data=NoDataPolicy.ALERTING), "nddn", "NAAN"),
        (_rule(no_data=NoDataPolicy.ALERTING, pending_for=20), "ndddn", "NPPAN"),
        (_rule(no_data=NoDataPolicy.KEEP_LAST), "ndadn", "NNAAN"),
        (_rule(no_data=NoDataPolicy.KEEP_LAST, pending_for=20), "addda", "PPAAA"),
        (_rule(on_error=ErrorPolicy.ERROR), "neean", "NEEAN"),
        (_rule(on_error=ErrorPolicy.ERROR, pending_for=20), "aeen", "PEEN"),
        (_rule(on_error=ErrorPolicy.ERROR, keep=30), "aneea", "AREEA"),
        (_rule(on_error=ErrorPolicy.OK), "aee", "ANN"),
        (_rule(on_error=ErrorPolicy.ALERTING), "nen", "NAN"),
        (_rule(on_error=ErrorPolicy.KEEP_LAST), "aeena", "AAANA"),
        # Error and no data are each a first occurrence of their own.
        (_rule(no_data=NoDataPolicy.NO_DATA), "dedn", "DEDN"),
    ],
)
def test_states(rule: Rule, outcomes: str, states: str) -> None:
    assert "".join(SHORT[instance.state] for instance in _walk(rule, outcomes)) == states


def test_times_of_an_alert() -> None:
    """Active since it left Normal, fired since it alerted, resolved when it was Normal again."""
    walked = _walk(_rule(pending_for=20, keep=20), "naaaannnn")
    assert [instance.active_at for instance in walked] == [None, 10, 10, 10, 10, 10, 10, None, None]
    assert [instance.fired_at for instance in walked] == [None, None, None, 30, 30, 30, 30, 30, 30]
    assert [instance.resolved_at for instance in walked] == [None] * 7 + [70, 70]
    assert [instance.starts_at for instance in walked] == [0, 10, 10, 30, 30, 50, 50, 70, 70]


@given(
    st.text(alphabet="nade", min_size=1, max_size=30),
    st.sampled_from([0, 5, 20]),
    st.sampled_from([0, 15, 30]),
    st.sampled_from(list(NoDataPolicy)),
    st.sampled_from(list(ErrorPolicy)),
)
def test_what_holds_for_every_history(
    outcomes: str, pending_for: int, keep: int, no_data: NoDataPolicy, on_error: ErrorPolicy
) -> None:
    rule = _rule(pending_for, keep, no_data, on_error)
    before = Instance((), 0, 0)
    for instance in _walk(rule, outcomes):
        assert (instance.active_at is None) == (instance.state is State.NORMAL)
        assert instance.fired_at is not None or instance.state not in (State.ALERTING, State.RECOVERING)
        assert instance.state is not State.RECOVERING or keep > 0
        assert instance.state is not State.PENDING or pending_for > 0
        # Somebody is told of the end of everything that they were told of.
        ended = before.state in FIRING and instance.state is State.NORMAL
        assert not ended or instance.resolved_at == instance.evaluated_at
        before = instance


def test_an_alert_that_never_fired_is_not_resolved() -> None:
    walked = _walk(_rule(pending_for=60), "aan")
    assert walked[-1].state is State.NORMAL
    assert walked[-1].resolved_at is None


@pytest.mark.parametrize(
    ("rule", "outcomes", "reasons"),
    [
        (_rule(no_data=NoDataPolicy.OK), "nd", ["", "NoData"]),
        (_rule(no_data=NoDataPolicy.KEEP_LAST), "ad", ["", "NoData, KeepLast"]),
        (_rule(no_data=NoDataPolicy.ALERTING), "dn", ["NoData", ""]),
        (_rule(no_data=NoDataPolicy.NO_DATA), "d", [""]),
        (_rule(on_error=ErrorPolicy.KEEP_LAST), "e", ["Error, KeepLast"]),
        (_rule(on_error=ErrorPolicy.ERROR), "e", [""]),
    ],
)
def test_reasons(rule: Rule, outcomes: str, reasons: list[str]) -> None:
    assert [instance.reason for instance in _walk(rule, outcomes)] == reasons


def test_values_of_a_fault_are_the_sentinel() -> None:
    """Grafana keeps the letters and says -1, so that templates do not break."""
    walked = _walk(_rule(on_error=ErrorPolicy.ERROR), "ae")
    assert walked[1].values == {"B": -1.0}
    assert walked[1].error == "broken"
    assert walked[1].annotations["Error"] == "broken"


# Whole rules --------------------------------------------------------------------------------------

ONE: Labels = (("src", "one"),)
TWO: Labels = (("src", "two"),)


class _Run:
    """Feeds samples of several series to a rule, a step apart; counts how often texts were rendered."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.now = -STEP
        self.rendered = 0
        self.instances: dict[Labels, Instance] = {}

    def step(self, **outcomes: str) -> list[Transition]:
        samples = [Sample(OUTCOMES[letter], (("src", name),), {"B": 1.0}) for name, letter in outcomes.items()]
        return self.feed(samples)

    def feed(self, samples: list[Sample]) -> list[Transition]:
        self.now += STEP
        self.instances, transitions = advance_rule(self.instances, self.now, samples, self.rule, self._annotate)
        return transitions

    def _annotate(self, sample: Sample) -> dict[str, str]:
        self.rendered += 1
        return {"text": f"{dict(sample.labels).get('src', 'nobody')} {self.rendered}"}

    def states(self) -> dict[str, State]:
        return {dict(labels).get("src", ""): instance.state for labels, instance in self.instances.items()}


def test_instances_are_told_apart_by_labels() -> None:
    run = _Run(_rule())
    run.step(one="a", two="n")
    assert run.states() == {"one": State.ALERTING, "two": State.NORMAL}
    labels = next(iter(run.instances))
    assert dict(labels)["rule"] == "exfil_volume"
    assert dict(labels)["severity"] == "warning"


def test_a_missing_series_is_resolved_after_some_evaluations() -> None:
    run = _Run(_rule(missing=3))
    run.step(one="a", two="n")
    run.step(two="n")
    run.step(two="n")
    assert run.states() == {"one": State.ALERTING, "two": State.NORMAL}
    (gone,) = [one for one in run.step(two="n") if one.changed]
    assert (gone.before, gone.after.state, gone.after.reason) == (State.ALERTING, State.NORMAL, "MissingSeries")
    assert gone.after.resolved_at == 30
    assert run.states() == {"two": State.NORMAL}


def test_an_error_without_its_series_is_gone_at_once() -> None:
    """When the data source answers again, the alert about the source has no series any more."""
    run = _Run(_rule(missing=6))
    run.feed([Sample(Outcome.ERROR, (("ref_id", "A"),), error="away")])
    assert run.states() == {"": State.ERROR}
    run.step(one="n")
    assert run.states() == {"one": State.NORMAL}


def test_no_data_mapped_to_ok_reaches_every_instance() -> None:
    run = _Run(_rule(no_data=NoDataPolicy.OK))
    run.step(one="a", two="a")
    transitions = run.feed([Sample(Outcome.NO_DATA, (("ref_id", "A,D"),))])
    assert {one.after.state for one in transitions} == {State.NORMAL}
    assert {one.after.resolved_at for one in transitions} == {10}
    assert run.states() == {"one": State.NORMAL, "two": State.NORMAL}


def test_texts_stay_those_of_the_last_data() -> None:
    """No data mapped to a state renders nothing anew, and says which query was empty."""
    run = _Run(_rule(no_data=NoDataPolicy.KEEP_LAST))
    run.step(one="a")
    run.feed([Sample(Outcome.NO_DATA, (("datasource_uid", "x"), ("ref_id", "A")))])
    (instance,) = run.instances.values()
    assert instance.annotations == {"text": "one 1", "datasource_uid": "x", "ref_id": "A"}
    assert run.rendered == 1
    run.step(one="a")
    (instance,) = run.instances.values()
    assert instance.annotations == {"text": "one 2"}


def test_no_data_before_any_instance_makes_one() -> None:
    run = _Run(_rule(no_data=NoDataPolicy.ALERTING))
    run.feed([Sample(Outcome.NO_DATA, (("ref_id", "A"),))])
    assert run.states() == {"": State.ALERTING}
    (labels,) = run.instances
    assert dict(labels)["ref_id"] == "A"


def test_no_data_as_a_state_of_its_own_leaves_the_others() -> None:
    """With the policy NoData, an empty answer is one more instance; those of the series go missing."""
    run = _Run(_rule(no_data=NoDataPolicy.NO_DATA, missing=2))
    run.step(one="a")
    run.feed([Sample(Outcome.NO_DATA, (("ref_id", "A"),))])
    assert run.states() == {"one": State.ALERTING, "": State.NO_DATA}
    run.feed([Sample(Outcome.NO_DATA, (("ref_id", "A"),))])
    assert run.states() == {"": State.NO_DATA}


def test_the_same_samples_give_the_same_instances() -> None:
    """The machine keeps nothing outside: two runs over the same samples agree."""
    runs = [_Run(_rule(pending_for=10, keep=20)) for _ in range(2)]
    for run in runs:
        for outcome in "aannad":
            run.step(one=outcome)
    assert runs[0].instances == runs[1].instances


# What people hear ---------------------------------------------------------------------------------


def _heard(outcomes: str) -> list[str]:
    """Return what notifications tell of a rule with the defaults of ours: `begins` and `ends`.

    Letters: what each evaluation says of its one series; `-` where it is missing while another one is there, `d` where
    nothing is there, `e` where the store does not answer.
    """
    run = _Run(replace(_BASE, interval=STEP))
    told: list[str] = []
    for letter in outcomes:
        if letter in "de":
            outcome, error = (Outcome.NO_DATA, "") if letter == "d" else (Outcome.ERROR, "away")
            transitions = run.feed([Sample(outcome, (("ref_id", "A"),), error=error)])
        else:
            transitions = run.step(**({"other": "n"} if letter == "-" else {"one": letter, "other": "n"}))
        changed = [one.after.state for one in transitions if (one.before in FIRING) is not (one.after.state in FIRING)]
        told += ["begins" if state in FIRING else "ends" for state in changed]
    return told


@pytest.mark.parametrize(
    "outcomes",
    [
        "nn" + "aan" * 40 + "n" * 12,
        "nn" + "annnn" * 40 + "n" * 12,
        "nn" + "a-----" * 20 + "n" * 12,
        "nn" + "adddd" * 20 + "n" * 12,
        "nnaa" + "e" * 360 + "aa" + "n" * 12,
        "nnaa" + "eeaeae" * 20 + "aa" + "n" * 12,
        "nnaa" + "eee" + "dddd" + "aa" + "n" * 12,
    ],
    ids=[
        "flaps every half minute", "well for forty seconds", "its series comes and goes", "its data come and go",
        "an hour without the store", "the store answers now and then", "the store comes back, its newest data later",
    ],
)  # fmt: skip
def test_what_comes_and_goes_begins_once_and_ends_once(outcomes: str) -> None:
    assert _heard(outcomes) == ["begins", "ends"]


def test_a_store_that_is_away_tells_nothing_by_a_rule_that_was_quiet() -> None:
    assert _heard("nn" + "e" * 30 + "nn") == []
