"""Which node of a running job sends less than it should: one verdict a node and window.

The verdict of a window depends on the windows before it in the same job and on nothing else, so that a live
analysis and one that runs again later agree. `Cohort` says what is judged, `Carry` is what one window hands to the
next, `judge` goes through a stretch of windows.

    ref      = median of the cohort's bytes in the window, nodes that are dead or were low before left out
    observed = node's bytes / ref, each summed over the last 3 judged windows
    limit    = centre - k * spread, but not less than next to nothing, unless two of its runs fell to that
    below    = the window's own ratio lies below the middle of centre and limit
    low      = below, and observed < limit; since the first of the windows in a row that were below
    down     = low, and the window holds next to nothing

Three windows of 10 s: a node that falls to 80 % lies below a limit of 92 % in its second window (87 % smoothed), and is
then known to have been low for 20 s. That the window itself must agree keeps a single lost window from being called low
for 30 s, and ends the verdict as soon as the node is back. A negative `centre - k * spread` counts as it is for the
middle: windows that are usual for a node of so wide a spread start no clock.

What is not judged, and not learnt from: the start and the end of a job; windows in which the cohort as a whole
sends far less than usual (checkpoints, loading, idling: the verdict before is held, its clock stands still);
windows without an exporter that could have seen the node (`blind`). Which exporter sees which node is not stored.
So: if every exporter of the compute plane that was heard during the job is silent, all nodes are blind. If some
are, a node that vanishes within two windows of their silence is blind until one of the two is back; a node that was
low before stays low. A node that really dies in the same 20 s as an exporter is therefore shown as blind for as
long as that exporter is silent. Nodes that other jobs hold as well are blind, too (`analysis.jobs.shared_nodes`).

Where more nodes of a job are low or down at once than alert each for itself, they are one alert, until less than half
as many are.

A cohort that stops as a whole is no dropout: where less than a third still sends, nobody is singled out. Fewer than
three nodes have no useful median, and are never judged.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from analysis.baseline import QUANTILES, Baseline, Flags, Floats, Ints, RunSummary, quantiles_of
from analysis.detectors.rows import QUIET, Rows, tags_of
from analysis.detectors.study import JobWindows
from analysis.jobs.job_windows import end_of, start_of
from analysis.kept import Kept
from cluster.model import Job
from store import schema
from store.points import WINDOW, columns
from store.schema import NodeState

_NODES_AT_ONCE = 256

_TOLD_EVERY = 60
"""Seconds between the rows of a node that is ok or learning."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is said of consecutive windows.

    Attributes:
        nodes: of schema.BASELINE: a row a window and node; QUIET where it is ok or learning, and was.
        told: for each of them, whether the node is not ok or learning, or was not in the window before.
        digests: of schema.DROPOUT_DIGEST.
    """

    nodes: Rows
    told: Flags
    digests: Rows


@dataclass(frozen=True, slots=True)
class DropoutPolicy:
    """The numbers of the verdict; those that sites differ in are thresholds of cluster.yaml.

    Attributes:
        smooth: judged windows in a trailing mean.
        warm_up, tail: seconds left out at the start and at the end of a job.
        phase_level: a window is judged if the cohort's median reaches this share of its usual level.
        level_memory: seconds over which the usual level is taken ...
        level_quantile: ... as this quantile, so that a job may idle for most of that time before idle is its usual.
        class_level: the usual level is at least this share of what earlier runs had.
        named: nodes that a digest names.
        down: a low node whose window holds at most this share of what is expected is down.
        vanished: a node that sends less than this share of its own last windows has vanished.
        alive: share of the nodes that must send for the others to be singled out.
        onset: windows between the silence of an exporter and the vanishing of its nodes.
        min_cohort: nodes that a cohort needs.
        min_windows: judged windows without incident that make a node's run worth learning from.
        low_share: share of low windows above which a node's run teaches nothing.
        max_windows: windows of a run that are kept to learn from; of longer runs every second, fourth, ... is.
        early_end: seconds without traffic at the end of a run that make it a failed one, ...
        early_share: ... if they are also this share of its length.
    """

    smooth: int = 3
    warm_up: int = 30
    tail: int = 30
    phase_level: float = 0.5
    level_memory: int = 3600
    level_quantile: float = 0.9
    class_level: float = 0.5
    named: int = 3
    down: float = 0.05
    vanished: float = 0.5
    alive: float = 1 / 3
    onset: int = 2
    min_cohort: int = 3
    min_windows: int = 12
    low_share: float = 0.5
    max_windows: int = 8640
    early_end: int = 300
    early_share: float = 0.2


@dataclass(frozen=True, slots=True)
class Cohort:
    """The nodes of one job, and what they are judged by.

    Attributes:
        groups: group of each node, in the order of `job.nodes`.
        window: seconds.
        spreads: k of the limit.
        min_runs: good earlier runs below which a node is only learnt.
        digest: low nodes that are still told each for itself.
    """

    job: Job
    groups: tuple[str, ...]
    window: int
    spreads: float
    min_runs: int
    digest: int = 4
    policy: DropoutPolicy = field(default_factory=DropoutPolicy)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.job.nodes)

    def is_steady(self, window: int) -> bool:
        """Whether a window lies wholly between warm-up and tail."""
        early = start_of(self.job) + self.policy.warm_up
        return early <= window and window + self.window <= end_of(self.job) - self.policy.tail


@dataclass(slots=True)
class Carry:
    """What a window hands to the next one. Arrays are [node], or [smooth, node] for the trail, or [exporter].

    Attributes:
        trail_sent, trail_ref: bytes of the node and of the median in the last judged windows; 0: not yet.
        observed: last smoothed ratio; NaN before the first. A window that is not judged shows it again: a field once
            written cannot be taken back, should late records turn the verdict.
        below, lacking: seconds and missing bytes of the windows in a row that were below.
        low_for, missing: the same while the node is low, else 0.
        worst: names of the worst nodes when so many became low that they are one alert; empty while they are not.
        known: exporters heard since an hour before the job; silent_since: start of their silence, -1 if heard.
        levels: cohort's medians of the last hour; ranked: the same, the smallest first.
        lows: [node] windows that were low.
        ratios, refs: what the run has taught so far: rows of [node], NaN for what must not be learnt; and rows of the
            window's number and the median.
        stride: every how many-th window is kept there.
        packets, sampled: what the nodes sent in windows whose flows were sampled, and how many of these were judged.
        rate: the largest sampling rate.
    """

    trail_sent: Floats
    trail_ref: Floats
    observed: Floats
    state: Ints
    below: Floats
    lacking: Floats
    low_for: Floats
    missing: Floats
    known: Flags
    silent_since: Ints
    levels: list[float] = field(default_factory=list)
    ranked: list[float] = field(default_factory=list)
    ratios: Kept = field(default_factory=lambda: Kept(0))
    refs: Kept = field(default_factory=lambda: Kept(2))
    stride: int = 1
    packets: Floats = field(default_factory=lambda: np.zeros(0))
    lows: Floats = field(default_factory=lambda: np.zeros(0))
    sampled: int = 0
    judged: int = 0
    last_judged: int = 0
    rate: float = 1.0
    worst: str = ""

    def copy(self) -> "Carry":
        """Return a carry that can go its own way."""
        return replace(
            self,
            **{name: getattr(self, name).copy() for name in ("known", "silent_since", "packets")},
            levels=list(self.levels),
            ranked=list(self.ranked),
            ratios=self.ratios.copy(),
            refs=self.refs.copy(),
        )


def first_carry(cohort: Cohort, known: Flags) -> Carry:
    """Return the carry before a job's first window; `known`: exporters heard in the hour before it."""
    size, smooth = cohort.size, cohort.policy.smooth
    return Carry(
        trail_sent=np.zeros((smooth, size)),
        trail_ref=np.zeros((smooth, size)),
        observed=np.full(size, np.nan),
        state=np.full(size, NodeState.OK),
        below=np.zeros(size),
        lacking=np.zeros(size),
        low_for=np.zeros(size),
        missing=np.zeros(size),
        known=known.copy(),
        silent_since=np.full(len(known), -1),
        packets=np.zeros(size),
        lows=np.zeros(size),
        ratios=Kept(size, np.float32),
    )


@dataclass(frozen=True, slots=True)
class _Verdicts:
    """Verdicts of one window; arrays are [node]. `told`: a verdict that is more than ok, or was the window before."""

    observed: Floats
    score: Floats
    state: Ints
    low_for: Floats
    sent: Floats
    missing: Floats
    told: Flags
    worst: str
    worst_before: str


def judge(cohort: Cohort, baseline: Baseline, carry: Carry, windows: JobWindows) -> tuple[Carry, Found]:
    """Judge consecutive windows of a job.

    Args:
        cohort: what is judged.
        baseline: its expectation, the same over the whole job.
        carry: state before the first window; not changed.
        windows: all of them within the job.

    Returns:
        The carry after the last window, and what is said of them.
    """
    judging = _Judging(cohort, baseline, carry.copy())
    judging.carry.rate = max(carry.rate, float(windows.rates.max(initial=1.0)))
    # Where nobody samples, packets say nothing, and are not read.
    sampled = windows.rates > 1 if len(windows.rates) else np.zeros(len(windows), np.bool_)
    apart = windows.apart if len(windows.apart) else np.zeros_like(windows.sent, np.bool_)
    verdicts = [
        judging.step(
            windows.start + index * cohort.window,
            sent,
            windows.packets[index] if sampled[index] else None,
            windows.heard[index],
            apart[index],
        )
        for index, sent in enumerate(windows.sent)
    ]
    return judging.carry, _found(cohort, baseline, judging.limit, windows.start, verdicts)


class _Judging:
    """Takes one window after the other."""

    def __init__(self, cohort: Cohort, baseline: Baseline, carry: Carry) -> None:
        self.cohort, self.policy, self.carry = cohort, cohort.policy, carry
        self.baseline = baseline
        self.ready: Flags = (baseline.runs >= cohort.min_runs) & (cohort.size >= self.policy.min_cohort)
        reached = baseline.centre - cohort.spreads * baseline.spread
        nothing = self.policy.down * baseline.centre
        # However far its runs lie apart: who always sent has stopped when it sends nothing.
        self.limit: Floats = np.maximum(reached, np.where(baseline.least > nothing, nothing, 0.0))
        self.middle: Floats = np.maximum((baseline.centre + reached) / 2, self.limit)
        self.was_ok: Flags = np.ones(cohort.size, np.bool_)
        self.worst_before = ""

    def step(self, window: int, sent: Floats, packets: Floats | None, heard: Flags, apart: Flags) -> _Verdicts:
        """Judge one window; `packets`: None without sampling."""
        carry = self.carry
        self.was_ok, self.worst_before = carry.state == NodeState.OK, carry.worst
        silent = self._listen(window, heard)
        if silent.any() and not (carry.known & ~silent).any():
            return self._verdicts(sent, np.ones(self.cohort.size, np.bool_), judged=False)
        suspects = self._suspects(window, silent)
        own = self._own_level(sent)
        lost = apart | (suspects & (sent < self.policy.vanished * own))
        alive = ~lost & ~(sent < self.policy.down * own)
        needed = self.policy.alive * (~lost).sum()
        # What is low already is no measure for the others, as long as there are enough of them.
        well = alive & (carry.low_for == 0)
        alive = well if well.sum() >= max(needed, self.policy.min_cohort) else alive
        ref = float(np.median(sent[alive])) if alive.sum() >= needed > 0 else 0.0
        if ref and apart.any() and self.ready[alive].all():
            # Some of the nodes need not send as much as the middle of all.
            ref /= float(np.median(self.baseline.centre[alive]))
        if not self._is_working(window, ref, all_lost=bool(lost.all())):
            return self._verdicts(sent, lost, judged=False)
        carry.trail_sent = np.where(lost, carry.trail_sent, np.vstack([carry.trail_sent[1:], sent]))
        carry.trail_ref = np.where(lost, carry.trail_ref, np.vstack([carry.trail_ref[1:], np.full(len(sent), ref)]))
        total = carry.trail_ref.sum(axis=0)
        observed = np.divide(carry.trail_sent.sum(axis=0), total, out=np.full(len(sent), np.nan), where=total > 0)
        centre = self.baseline.centre
        # NaN (no baseline, or blind from the start) compares as False: not low.
        below = self.ready & ~lost & (sent / ref < self.middle)
        low = below & (observed < self.limit)
        blind = lost | (low & suspects)
        low &= ~blind
        carry.lows = carry.lows + low
        down = low & (sent / ref <= self.policy.down * centre)
        has_full_trail = (carry.trail_ref > 0).all(axis=0)
        self._learn(window, np.where(low | blind | ~has_full_trail, np.nan, observed), packets, ref)
        below &= ~blind
        carry.below = np.where(below, carry.below + self.cohort.window, 0.0)
        carry.lacking = np.where(below, carry.lacking + np.maximum(centre * ref - sent, 0.0), 0.0)
        carry.observed = np.where(blind, carry.observed, observed)
        carry.low_for = np.where(low, carry.below, 0.0)
        carry.missing = np.where(low, carry.lacking, 0.0)
        verdict = np.where(down, NodeState.DOWN, np.where(low, NodeState.LOW, NodeState.OK))
        carry.state = np.where(blind, NodeState.BLIND, verdict)
        return self._verdicts(sent, blind, judged=True)

    # -- who could be seen -------------------------------------------------------------------------

    def _listen(self, window: int, heard: Flags) -> Flags:
        """Note which exporters are silent."""
        carry = self.carry
        carry.known = carry.known | heard
        silent = carry.known & ~heard
        carry.silent_since = np.where(silent & (carry.silent_since < 0), window, carry.silent_since)
        carry.silent_since = np.where(heard, -1, carry.silent_since)
        return silent

    def _suspects(self, window: int, silent: Flags) -> Flags:
        """Return the nodes that a silent exporter may hide."""
        carry = self.carry
        if not silent.any():
            return np.zeros(self.cohort.size, np.bool_)
        since = carry.silent_since[silent]
        is_onset = bool((window - since <= self.policy.onset * self.cohort.window).any())
        never_judged = ~(carry.trail_ref > 0).any(axis=0)
        # An exporter dies within a window, whose half bytes look low: that is not yet a verdict of its own.
        patience = (self.policy.onset - 1) * self.cohort.window
        was_low_before = (carry.low_for > 0) & (window - carry.low_for < since.min() - patience)
        hidden: Flags = (is_onset | never_judged | (carry.state == NodeState.BLIND)) & ~was_low_before
        return hidden

    def _own_level(self, sent: Floats) -> Floats:
        """Return [node] the mean of each one's own last windows; what the others send, before there are any."""
        carry = self.carry
        windows = (carry.trail_ref > 0).sum(axis=0)
        own = carry.trail_sent.sum(axis=0) / np.maximum(windows, 1)
        if windows.all():
            return np.asarray(own, np.float64)
        typical = float(np.median(sent[sent > 0])) if (sent > 0).any() else 1.0
        return np.where(windows > 0, own, typical)

    # -- is the cohort at work ---------------------------------------------------------------------

    def _is_working(self, window: int, ref: float, *, all_lost: bool) -> bool:
        """Note the cohort's level; return whether the window can be judged."""
        if all_lost:
            return False
        carry, policy = self.carry, self.policy
        carry.levels.append(ref)
        insort(carry.ranked, ref)
        if len(carry.levels) > max(policy.level_memory // self.cohort.window, 1):
            del carry.ranked[bisect_left(carry.ranked, carry.levels.pop(0))]
        usual = max(_quantile(carry.ranked, policy.level_quantile), policy.class_level * self.baseline.level)
        return self.cohort.is_steady(window) and ref > 0 and ref >= policy.phase_level * usual

    def _learn(self, window: int, ratios: Floats, packets: Floats | None, ref: float) -> None:
        carry = self.carry
        if packets is not None:
            carry.packets = carry.packets + packets
            carry.sampled += 1
        carry.judged += 1
        carry.last_judged = window
        number = window // self.cohort.window
        if number % carry.stride == 0:
            carry.ratios.append(ratios)
            carry.refs.append((number, ref))
        while len(carry.refs) > self.policy.max_windows:
            carry.stride *= 2
            kept = carry.refs.array()[:, 0] % carry.stride == 0
            carry.ratios, carry.refs = carry.ratios.chosen(kept), carry.refs.chosen(kept)

    # -- what to say -------------------------------------------------------------------------------

    def _verdicts(self, sent: Floats, blind: Flags, *, judged: bool) -> _Verdicts:
        """Return the window's verdicts; where it could not be judged, low nodes stay what they were."""
        carry = self.carry
        if not judged:
            held = _is_low(carry.state) & ~blind
            carry.state = np.where(blind, NodeState.BLIND, np.where(held, carry.state, NodeState.OK))
            carry.below = np.where(blind, 0.0, carry.below)
            carry.lacking = np.where(blind, 0.0, carry.lacking)
            carry.low_for = np.where(held, carry.low_for, 0.0)
            carry.missing = np.where(held, carry.missing, 0.0)
        learning = ~self.ready & (carry.state != NodeState.BLIND)
        self._digest()
        return _Verdicts(
            observed=carry.observed,
            score=(self.baseline.centre - carry.observed) / self.baseline.spread,
            state=np.where(learning, NodeState.LEARNING, carry.state),
            low_for=carry.low_for,
            sent=sent,
            missing=carry.missing,
            told=~self.was_ok | (carry.state != NodeState.OK),
            worst=carry.worst,
            worst_before=self.worst_before,
        )

    def _digest(self) -> None:
        """Note whether so many nodes are low that they are one alert, and the names of the worst."""
        carry, most = self.carry, self.cohort.digest
        is_low = _is_low(carry.state)
        low = int(is_low.sum())
        if low > most and not carry.worst:
            order = np.lexsort((np.arange(len(is_low)), -carry.missing, ~is_low))
            carry.worst = " / ".join(self.cohort.job.nodes[place] for place in order[: min(self.policy.named, low)])
        elif low * 2 <= most:
            carry.worst = ""


def _quantile(ranked: Sequence[float], share: float) -> float:
    """Return a quantile as numpy does, of numbers in order: in each window numpy would put them in order again."""
    place = share * (len(ranked) - 1)
    low = int(place)
    above = ranked[min(low + 1, len(ranked) - 1)]
    return ranked[low] + (above - ranked[low]) * (place - low)


def _is_low(state: Ints) -> Flags:
    return np.asarray((state == NodeState.LOW) | (state == NodeState.DOWN), np.bool_)


def _found(cohort: Cohort, baseline: Baseline, limit: Floats, start: int, verdicts: Sequence[_Verdicts]) -> Found:
    """Return a row a window and node; what is as it should be is reported once a minute."""
    windows, size = len(verdicts), cohort.size
    starts = np.repeat(start + np.arange(windows) * cohort.window, size)

    def column(name: str) -> npt.NDArray[np.generic]:
        return np.concatenate([getattr(one, name) for one in verdicts]) if verdicts else np.zeros(0)

    def each(values: Sequence[str] | npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.tile(np.asarray(values, None if isinstance(values, np.ndarray) else object), windows)

    told = column("told").astype(np.bool_)
    tags = tags_of(cohort.job)
    nodes = Rows(
        schema.BASELINE,
        {
            WINDOW: starts,
            schema.NODE: each(cohort.job.nodes),
            schema.GROUP: each(cohort.groups),
            schema.OBSERVED.name: column("observed"),
            schema.EXPECTED.name: each(baseline.centre),
            schema.LOWER.name: each(limit),
            schema.SCORE.name: column("score"),
            schema.RUNS.name: each(baseline.runs),
            schema.STATE.name: column("state"),
            schema.LOW_FOR.name: column("low_for"),
            schema.SENT_BYTES.name: np.rint(column("sent")),
            schema.MISSING_BYTES.name: np.rint(column("missing")),
            schema.IN_DIGEST.name: np.repeat([int(bool(one.worst)) for one in verdicts], size),
            QUIET: ~(told | (starts % _TOLD_EVERY == 0)),
        },
        tags,
    )
    return Found(nodes, told, Rows.of(schema.DROPOUT_DIGEST, _DIGEST, _digests(cohort, start, verdicts), tags))


_DIGEST = columns(
    schema.WORST, schema.LOW_NODES, schema.LOW_FOR, schema.SENT_BYTES, schema.MISSING_BYTES, schema.JOB_NODES
)


def _digests(cohort: Cohort, start: int, verdicts: Sequence[_Verdicts]) -> list[tuple[object, ...]]:
    """Return a row for each window in which so many nodes are low that they are one alert, and a last one."""
    rows: list[tuple[object, ...]] = []
    for index, one in enumerate(verdicts):
        window = start + index * cohort.window
        if one.worst:
            low = _is_low(one.state)
            sizes = float(one.sent[low].sum()), float(one.missing[low].sum())
            rows.append((window, one.worst, int(low.sum()), float(one.low_for.max()), *map(round, sizes), cohort.size))
        elif one.worst_before:
            rows.append((window, one.worst_before, 0, 0.0, 0, 0, cohort.size))
    return rows


def summarise(cohort: Cohort, carry: Carry) -> RunSummary:
    """Return what a finished run teaches; `carry` is that after its last window.

    A run that went quiet long before its end is taken for a failed one, and teaches nothing. A node that was low most
    of the time teaches nothing either: what is left of it are the windows that just missed the limit.
    """
    policy = cohort.policy
    refs = carry.refs.array()[:, 1]
    level = float(np.quantile(refs, policy.level_quantile)) if len(refs) else 0.0
    # The first runs of a class have no level to compare with at their start: what was far below is left out now.
    at_work = np.flatnonzero(refs >= policy.phase_level * level)
    too_low = carry.lows > policy.low_share * carry.judged
    quantiles = np.full((cohort.size, QUANTILES), np.nan)
    # A day of thousands of nodes is not to be in memory three times more.
    for nodes in (slice(first, first + _NODES_AT_ONCE) for first in range(0, cohort.size, _NODES_AT_ONCE)):
        ratios = carry.ratios.array(nodes)[at_work]
        ratios[:, too_low[nodes]] = np.nan
        quantiles[nodes] = quantiles_of(ratios, policy.min_windows)
    with np.errstate(divide="ignore", invalid="ignore"):
        noise = np.sqrt(carry.rate * carry.sampled / (policy.smooth * carry.packets)) if carry.rate > 1 else None
    return RunSummary(
        nodes=cohort.job.nodes,
        quantiles=quantiles,
        noise=np.full(cohort.size, np.nan) if noise is None else np.where(np.isfinite(noise), noise, np.nan),
        level=level,
        flaw=_flaw(cohort, carry, len(at_work)),
    )


def _flaw(cohort: Cohort, carry: Carry, windows: int) -> str:
    policy = cohort.policy
    start, end = start_of(cohort.job), end_of(cohort.job)
    if carry.judged == 0:
        return "no traffic"
    if windows < policy.min_windows:
        return "too short"
    quiet = end - policy.tail - cohort.job.quiet - (carry.last_judged + cohort.window)
    if quiet > max(policy.early_end, policy.early_share * (end - start)):
        return "ended early"
    return ""
