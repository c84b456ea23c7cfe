"""Which nodes of a job hold it up: every node's deficit so far, ranked.

Over all windows in which the cohort computes and the node could be seen, warm-up and tail left out,

    expected = sum of centre x median of the cohort     centre: the node's own past (1 where it has none)
    deficit  = 1 - sent / expected
    score    = (centre - sent / sum of the medians) / spread
    rank     = 1 for the largest deficit

A deficit of a few permille over hours is a straggler that no window alone shows. In synchronous collectives all nodes
send equal bytes by construction, so a straggler often shows nowhere in the bytes but in *when* it begins:

    onset lag = mean over the starts of the cohort of the seconds by which the node began to send after the median node

A start is the first window at work after a pause, a load or a checkpoint that stopped the collectives. What a node's
bytes lack in it and in the next two, of its own level in the windows after, is time in which it was silent. Exporters
spread a flow evenly over its time, so this tells seconds although windows are 10 s long, where the exporter starts its
flows when their first packet comes; it says nothing about single steps. Where sFlow is kept by the second (`pulse`),
the lag of single steps is taken instead: the shift, to a fraction of a second, at which the node's seconds are most
like the median node's. It is left out where they are never alike.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from analysis.baseline import Flags, Floats, Ints
from store.schema import NodeState, Phase

_START = 3
"""Windows after a pause that a start consists of."""
_LEVEL = 3
"""Windows after those whose mean is a node's level."""
_FARTHEST = 4
"""Seconds of the largest shift that is looked for: steps that take less than that cannot be told apart."""
_ALIKE = 0.5
"""Correlation from which two nodes' seconds are alike."""


@dataclass(slots=True)
class StragglerCarry:
    """What a window hands to the next one; arrays are [node].

    Attributes:
        sent, medians: bytes so far, its own and of the cohort's median. Whole numbers: sums do not depend on pieces.
        low_seconds: time that it was low or down.
        late, starts: seconds by which it began late, and how many starts that is the sum of.
        shift, looks: the same of its steps, where they are seen by the second.
        pending: [window, node] bytes of a start that is under way and of what follows it.
        resuming: whether the window before was not at work.
    """

    sent: Floats
    medians: Floats
    low_seconds: Floats
    late: Floats
    starts: Floats
    shift: Floats
    looks: Floats
    pending: list[Floats] = field(default_factory=list)
    resuming: bool = False

    @classmethod
    def first(cls, nodes: int) -> "StragglerCarry":
        """Return the carry before a job's first window."""
        nothing = np.zeros(nodes)
        return cls(nothing, nothing, nothing, nothing, nothing, nothing, nothing)

    def copy(self) -> "StragglerCarry":
        """Return a carry that can go its own way; arrays are never changed in place."""
        return replace(self, pending=list(self.pending))


@dataclass(frozen=True, slots=True)
class Field:
    """What is seen of the nodes of a job; arrays are [window, node], or [window].

    Attributes:
        window: seconds.
        sent: bytes.
        state: values of ``schema.NodeState``.
        phase: values of ``schema.Phase``.
        steady: whether the window lies between warm-up and tail.
    """

    window: int
    sent: Floats
    state: Ints
    phase: Ints
    steady: Flags


@dataclass(frozen=True, slots=True)
class Ranking:
    """How the nodes stand; arrays are [node], NaN where nothing is known.

    Attributes:
        deficit: share of the expected bytes that was not sent; negative where more was.
        deficit_bytes: the same in bytes.
        rank: 1 is the worst.
    """

    deficit: Floats
    deficit_bytes: Floats
    score: Floats
    onset_lag: Floats
    low_seconds: Floats
    rank: Ints


def follow(carry: StragglerCarry, seen: Field) -> StragglerCarry:
    """Add up consecutive windows."""
    carry = carry.copy()
    counted = seen.steady & (seen.phase == Phase.COMPUTE)
    visible = (seen.state != NodeState.BLIND) & counted[:, None]
    if visible.any():
        low = (seen.state == NodeState.LOW) | (seen.state == NodeState.DOWN)
        medians = _medians(seen.sent, low | ~visible, counted)
        carry.sent = carry.sent + np.where(visible, seen.sent, 0.0).sum(axis=0)
        carry.medians = carry.medians + np.where(visible, medians[:, None], 0.0).sum(axis=0)
        carry.low_seconds = carry.low_seconds + (low & visible).sum(axis=0) * float(seen.window)
    _starts(carry, seen)
    return carry


def _medians(sent: Floats, left_out: Flags, counted: Flags) -> Floats:
    """Return [window] the median of the nodes that count; 0 in windows that do not."""
    result = np.zeros(len(sent))
    whole = counted & ~left_out.any(axis=1)
    result[whole] = np.median(sent[whole], axis=1)
    part = counted & ~whole & ~left_out.all(axis=1)
    if part.any():
        result[part] = np.nanmedian(np.where(left_out[part], np.nan, sent[part]), axis=1)
    return result


def _starts(carry: StragglerCarry, seen: Field) -> None:
    """Look at every start of the cohort that the windows complete."""
    for index in np.flatnonzero(_is_of_a_start(carry, seen.phase)):
        phase = int(seen.phase[index])
        if phase != Phase.COMPUTE:
            # It stopped again before its level was known.
            carry.pending, carry.resuming = [], phase != Phase.BLIND
            continue
        if carry.resuming or carry.pending:
            carry.pending = [*carry.pending, seen.sent[index]]
            carry.resuming = False
        if len(carry.pending) == _START + _LEVEL:
            rows = np.array(carry.pending)
            late = lateness(rows[:_START], rows[_START:].mean(axis=0), seen.window)
            known = ~np.isnan(late)
            carry.late = carry.late + np.where(known, late, 0.0)
            carry.starts = carry.starts + known
            carry.pending = []


def _is_of_a_start(carry: StragglerCarry, phase: Ints) -> Flags:
    """Return which windows may matter to a start: those not at work, and some after each of them."""
    result: Flags = phase != Phase.COMPUTE
    stops = np.flatnonzero(result)
    for place in range(1, _START + _LEVEL + 1):
        after = stops + place
        result[after[after < len(phase)]] = True
    if carry.resuming or carry.pending:
        result[: _START + _LEVEL] = True
    return result


def lateness(start: Floats, level: Floats, window: float) -> Floats:
    """Return [node] seconds by which each began after the median node; NaN where it has no level.

    Args:
        start: [window, node] bytes of the windows of the start.
        level: [node] bytes of a window at work.
        window: seconds.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        silent = np.where(level > 0, (1 - start / level).sum(axis=0), np.nan) * window
    known = silent[~np.isnan(silent)]
    return np.asarray(silent - np.median(known), np.float64) if len(known) else silent


def look_closer(carry: StragglerCarry, seconds: Floats) -> StragglerCarry:
    """Add what the last seconds, [second, node] bytes, say of the steps."""
    shifts = step_shifts(seconds)
    known = ~np.isnan(shifts)
    return replace(carry, shift=carry.shift + np.where(known, shifts, 0.0), looks=carry.looks + known)


def step_shifts(seconds: Floats) -> Floats:
    """Return [node] seconds by which each node's bytes follow the median node's; NaN where they are not alike.

    The shift of the largest correlation, between whole seconds by the parabola through it and its neighbours.
    """
    count, nodes = seconds.shape
    cohort = np.median(seconds, axis=1)
    result: Floats = np.full(nodes, np.nan)
    if count <= 4 * _FARTHEST or cohort.std() == 0:
        return result
    inner = slice(_FARTHEST, count - _FARTHEST)
    found = np.full((2 * _FARTHEST + 1, nodes), -1.0)
    reference = _standard(cohort[inner][:, None])
    for place, shift in enumerate(range(-_FARTHEST, _FARTHEST + 1)):
        moved = _standard(seconds[_FARTHEST + shift : count - _FARTHEST + shift])
        found[place] = (reference * moved).mean(axis=0)
    best = found[1:-1].argmax(axis=0) + 1
    at = np.arange(nodes)
    before, peak, after = found[best - 1, at], found[best, at], found[best + 1, at]
    bend = before - 2 * peak + after
    with np.errstate(divide="ignore", invalid="ignore"):
        between = np.where(bend < 0, (before - after) / (2 * bend), 0.0)
    alike = (peak >= _ALIKE) & (peak >= before) & (peak >= after)
    result[alike] = (best + between - _FARTHEST)[alike]
    result[alike] -= np.median(result[alike]) if alike.any() else 0.0
    return result


def _standard(series: Floats) -> Floats:
    """Return each column with mean 0 and standard deviation 1; zeros where it has none."""
    centred = series - series.mean(axis=0)
    spread = centred.std(axis=0)
    return np.asarray(np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0), np.float64)


def rank(carry: StragglerCarry, centre: Floats, spread: Floats) -> Ranking:
    """Return how the nodes stand now; `centre`, `spread`: [node] expected ratio, NaN where none is known."""
    expected = carry.medians * np.where(np.isnan(centre), 1.0, centre)
    with np.errstate(divide="ignore", invalid="ignore"):
        deficit = np.where(expected > 0, 1 - carry.sent / expected, np.nan)
        score = (centre - carry.sent / carry.medians) / spread
        lag = np.where(carry.starts > 0, carry.late / carry.starts, np.nan)
        lag = np.where(carry.looks > 0, carry.shift / carry.looks, lag)
    nodes = len(deficit)
    order = np.lexsort((np.arange(nodes), -np.nan_to_num(lag), -np.nan_to_num(deficit, nan=-np.inf)))
    place = np.empty(nodes, np.int64)
    place[order] = np.arange(1, nodes + 1)
    return Ranking(deficit, expected - carry.sent, score, lag, carry.low_seconds, place)
