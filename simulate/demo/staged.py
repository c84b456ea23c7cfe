"""A scenario of the library as the demo: what it plays before its first incident is the history, the rest is live."""

from dataclasses import replace

from app.errors import UserError
from simulate.demo.plan import RECENT, phases_before
from simulate.scenarios.scenario import Scenario
from simulate.scenarios.script import Script, find_script, load_script

_AHEAD, _AHEAD_OF_A_DAY = 90, 90
"""Seconds until the first incident: to fill in the history and to start everything; and more for each day of it."""

_DAY, _MINUTE = 86_400, 60
_LEAST = RECENT + 10 * _MINUTE
"""Seconds of history: nodes have their role in a job that runs for so long."""


def script_from_now(name: str, seed: int | None, now: int) -> Script:
    """Return a scenario as if so much of it had passed that its first incident begins in a few minutes.

    Args:
        name: of the library, or a file.
        seed: instead of the file's.
        now: epoch seconds at which its history ends.
    """
    path = find_script(name)
    script = load_script(path, seed=seed)
    first = min((one.start for one in script.incidents), default=script.start + _DAY)
    passed = first - script.start
    passed = max(passed - _AHEAD - _AHEAD_OF_A_DAY * passed // _DAY, _LEAST)
    return load_script(path, seed=seed, begin=(now - passed) // _MINUTE * _MINUTE)


def live_scenario(script: Script, *, start: int, history_end: int, seconds: int | None) -> Scenario:
    """Return a script with its live phase: what begins before owes no alert, but may still be told of.

    Args:
        script: from `script_from_now`.
        start: begin of the live phase, epoch seconds.
        history_end: where the history ends; what lies between is played as if it were live.
        seconds: length of the live phase; None: until the script ends. What does not fit into it is left out.

    Raises:
        UserError: the script is over by then.
    """
    scenario = script.scenario
    end = script.end if seconds is None else min(start + seconds, script.end)
    live = replace(
        scenario.live, start=start, end=start + (end - start) // scenario.live.timeout * scenario.live.timeout
    )
    if live.end <= start:
        raise UserError(f"{script.path}: over before its history was filled in", "a scenario with days: 0.1 or more")
    history, recent = phases_before(live, history_end, history_end - RECENT - script.start)
    incidents = (
        one if one.start >= start else replace(one, alerts=tuple(replace(each, must=False) for each in one.alerts))
        for one in script.incidents
        if one.end <= live.end
    )
    return replace(scenario, live=live, history=history, recent=recent, incidents=tuple(incidents))
