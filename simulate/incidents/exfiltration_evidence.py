"""Which alerts of `exfiltration` staged traffic owes: planned bytes of all incidents together, minute by minute.

What leaves is summed up over the whole cluster, so an incident may owe an alert for what others sent before it, and a
near miss may be none beside another one. That is why this looks at all of a scenario at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from analysis.detectors.egress.exfiltration import leader
from analysis.detectors.egress.exfiltration_study import at_least, watched
from cluster.calendar import off_hours_mask
from cluster.model import EXTERNAL, Role
from simulate.incidents.expect import CLOSE, GRACE, labels
from simulate.incidents.incident import Expected, Incident, Transfer
from simulate.incidents.stage import Stage
from simulate.scenarios.scenario import ExportStyle, default_styles
from store import schema

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_LONG_STEP = 300
"""Long sums are judged so often."""


@dataclass(frozen=True, slots=True)
class _Opening:
    """An incident that opens: when, until when the alert may begin, the group that sent most, who staged it."""

    at: int
    group: str
    culprit: int


def with_exfiltration(
    stage: Stage, incidents: Sequence[Incident], styles: Iterable[tuple[str, ExportStyle]] = ()
) -> tuple[Incident, ...]:
    """Return the incidents with the alerts that their bytes owe together; `styles` are the scenario's."""
    rate = max((one.rate for one in {**default_styles(stage.cluster), **dict(styles)}.values()), default=1)
    found = list(incidents)
    plan = _Plan(stage, incidents)
    openings, early = (plan.openings(share, rate) for share in (1.0, CLOSE))
    for place, one in enumerate(openings):
        incident = found[one.culprit]
        begins = early[place].at if len(early) == len(openings) else incident.start
        about = labels(**{schema.SRC_GROUP: one.group})
        due = max(one.at, incident.start)
        earliest = max(min(begins - _LONG_STEP, due), 0)
        alert = Expected("exfiltration", about, due, one.at + _LONG_STEP + 2 * GRACE, earliest=earliest)
        found[one.culprit] = replace(incident, alerts=(*incident.alerts, alert))
    return tuple(found)


class _Plan:
    """Bytes to unapproved addresses: [group, minute] and [incident, minute]."""

    def __init__(self, stage: Stage, incidents: Sequence[Incident]) -> None:
        self._stage = stage
        self._groups = {group.id: place for place, group in enumerate(watched(stage.cluster))}
        self._scale = np.array([group.exfil_scale for group in watched(stage.cluster)])
        # Few addresses send and get many transfers.
        talks = [talk for incident in incidents for talk in incident.transfers]
        self._group_at = {
            text: stage.group_of(text) for text in {end for talk in talks for end in (talk.src, talk.dst)}
        }
        pieces = [
            (number, *piece)
            for number, incident in enumerate(incidents)
            for talk in incident.transfers
            if (piece := self._piece(talk)) is not None
        ]
        self._first = min((start for _, _, start, _, _ in pieces), default=0) // _MINUTE
        last = -(-max((end for _, _, _, end, _ in pieces), default=0) // _MINUTE)
        length = max(last - self._first, 0)
        self._by_group = np.zeros((len(self._groups), length))
        self._by_incident = np.zeros((len(incidents), length))
        self._group_of = np.full(len(incidents), -1)
        edges = (np.arange(length + 1) + self._first) * _MINUTE
        for number, group, start, end, volume in pieces:
            a, b = start // _MINUTE - self._first, -(-end // _MINUTE) - self._first
            shares: NDArray[np.float64] = np.diff(np.clip(edges[a : b + 1], start, end).astype(np.float64))
            part = shares * (volume / (end - start))
            self._by_group[group, a:b] += part
            self._by_incident[number, a:b] += part
            self._group_of[number] = group

    def _piece(self, talk: Transfer) -> tuple[int, int, int, float] | None:
        """Return group, begin, end and bytes of what a transfer sends outside; None if it does not count."""
        ends = (self._group_at[talk.src], self._group_at[talk.dst])
        inside, outside, volume = (ends[0], ends[1], float(talk.volume))
        answers = talk.answers
        if outside in self._groups:
            inside, outside, volume, answers = ends[1], ends[0], float(talk.reply or 0), not talk.answers
        if inside not in self._groups or outside != EXTERNAL or not volume:
            return None
        if answers and self._stage.role(inside) is Role.INFERENCE:
            return None
        return (self._groups[inside], talk.start, max(talk.end, talk.start + 1), volume)

    def openings(self, share: float, rate: int) -> list[_Opening]:
        """Return the incidents that open where limits are a share of what they are, and 1 packet in `rate` is seen."""
        limits = self._stage.cluster.thresholds
        by_group = self._by_group / self._scale[:, None]
        weights = by_group.sum(axis=0)
        if weights.sum() <= share * min(limits.exfil_volume, limits.exfil_off_hours, limits.exfil_24h):
            return []
        sums = np.concatenate([[0.0], np.cumsum(weights)])
        moments = (np.arange(len(weights)) + self._first) * _MINUTE
        cluster = self._stage.cluster
        dark = np.array([off_hours_mask(cluster.site_of(name), moments) for name in self._groups])
        night = (by_group * dark).sum(axis=0)
        nights = np.concatenate([[0.0], np.cumsum(night)])
        short = ((sums, limits.exfil_volume), (nights, limits.exfil_off_hours))
        long = ((_DAY, limits.exfil_24h), (7 * _DAY, limits.exfil_7d), (30 * _DAY, limits.exfil_30d))
        found: list[_Opening] = []
        # Of a minute that an incident has told of, nothing is in a long sum.
        is_new, left = np.ones(len(weights), np.bool_), sums
        reported, open_until, since = 0, dict[str, int](), dict[str, int]()
        names = list(self._groups)
        step = _LONG_STEP // _MINUTE
        for at in self._active(weights, step):
            begin, hold = None, 0
            for total, limit in short:
                start = max(at - limits.exfil_window // _MINUTE, reported, 0)
                if begin is None and at_least(total[min(at, len(weights))] - total[start], rate) > share * limit:
                    begin, hold = start, _HOUR
            if begin is None and (at + self._first) % step == 0:
                for seconds, limit in long:
                    # Long sums begin with a whole hour.
                    whole = ((at + self._first) * _MINUTE - seconds) // _HOUR * _HOUR
                    start = max(whole // _MINUTE - self._first, 0)
                    if begin is None and at_least(left[min(at, len(weights))] - left[start], rate) > share * limit:
                        begin, hold = start, _DAY + _HOUR
            if begin is None:
                continue
            reported = min(at, len(weights))
            moment = (at + self._first) * _MINUTE
            fresh = self._by_group * is_new
            group = names[
                leader(*(fresh[:, first:reported].sum(axis=1) for first in (begin, max(begin, reported - 60))))
            ]
            first = begin + int(np.argmax(fresh[:, begin:reported].sum(axis=0) > 0))
            if open_until.get(group, 0) <= moment:
                found.append(_Opening(moment, group, self._culprit(group, begin, reported)))
                since[group] = first
            since[group] = min(since[group], first)
            is_new[since[group] : reported] = False
            left = np.concatenate([[0.0], np.cumsum(weights * is_new)])
            open_until[group] = max(open_until.get(group, 0), moment + hold)
        return found

    def _active(self, weights: NDArray[np.float64], step: int) -> list[int]:
        """Return after which minutes a sum may be too large for the first time: those with bytes, and full steps."""
        after = np.flatnonzero(weights) + 1
        full = -(-(after + self._first) // step) * step - self._first
        return sorted({*after.tolist(), *full.tolist()})

    def _culprit(self, group: str, begin: int, end: int) -> int:
        """Return which incident of a group sent most, of those that sent anything lately."""
        lately = self._by_incident[:, max(end - _HOUR // _MINUTE, begin) : end].sum(axis=1) > 0
        return int(
            np.argmax(self._by_incident[:, begin:end].sum(axis=1) * lately * (self._group_of == self._groups[group]))
        )
