"""One stretch of stored data in which every rule fires: the first case of each that does, all beginning at once."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from rules.evaluate.cases import Case, CaseKind, find_files, load_cases
from rules.evaluate.states import State
from store.influx import Store

FOLDER = Path(__file__).parent
SECONDS = 210
"""Its length: some cases are over by then, and what reports silence has fired."""


@cache
def cases() -> dict[str, Case]:
    """Return the case of each rule, by the rule's id."""
    found = {}
    for path in find_files([FOLDER]):
        every = load_cases(path, FOLDER / "cluster.yaml")
        case = next(case for case in every if CaseKind.FIRES in case.kinds() and not case.scenario)
        found[case.rule] = case
    return found


def fill(store: Store, begins: int) -> None:
    """Write the points of all cases, as if they began at `begins`."""
    for case in cases().values():
        for retention, lines in replace(case, begins=begins).lines().items():
            store.write(lines, retention)


def due() -> dict[str, int]:
    """Return when each rule fires by what its own case expects, in seconds after the beginning."""
    return {
        rule: min(
            alert.fired_at
            for moment in case.moments
            for alert in moment.alerts
            if alert.state is State.ALERTING and alert.fired_at is not None
        )
        for rule, case in cases().items()
    }
