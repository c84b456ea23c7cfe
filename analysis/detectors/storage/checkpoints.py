"""Checkpoints of a job: when they came, how large they were, and whether the next one is overdue.

`phases` finds the bursts; here they are compared with a plan. One is due a period after the begin of the one
before it (the first: after the job began to compute). The period is what `job_classes` declares, or what the last
gaps had in common:

    period      = median of the last 40 gaps, earlier runs' included
    spread      = 1.4826 * median(|gap - period|)
    tolerance   = max(declared, 5 spreads), at most a quarter of the period
    regularity  = share of these gaps within the tolerance of the period, or of a multiple: some were missed in between
    judged      = at least 8 gaps, 5 spreads are at most a quarter of the period, regularity reaches
                  `checkpoint_regularity`

Time that a job stood idle counts in no gap and puts off what is due: steps make checkpoints, and a stall is reported as
one. After idling for longer than the tolerance the clock starts over, as some jobs save by the clock. It does so too
after silence of an exporter of the storage plane, where a checkpoint may have come meanwhile: one that nobody could see
is not missed.

    late     began after it was due and the tolerance
    missed   not begun half a period after it was due; the next one is due a period after that
    overdue  seconds beyond due and tolerance, from the first that did not come; 0 while one is written

What is short, over-long or lacks nodes is known when a checkpoint is over, and not where an exporter was silent.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from analysis.baseline import MAD_TO_SIGMA
from analysis.detectors.rows import Rows, tags_of
from analysis.detectors.storage.phases import Burst, Phases
from analysis.detectors.study import JobWindows
from analysis.jobs.job_windows import start_of
from cluster.model import ALL_NODES, CheckpointMode, CheckpointPlan, Job
from store import schema
from store.points import WINDOW, columns
from store.schema import CheckpointState, Phase


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """The numbers of the verdicts; those that sites differ in are in cluster.yaml.

    Attributes:
        min_gaps, max_gaps: gaps between checkpoints that make a period, and how many of them are kept.
        spreads: how many spreads of the gaps a learnt tolerance holds.
        widest: share of the period that these may be; wider gaps have no rhythm.
        give_up: share of a period after which a checkpoint that did not come is missed.
        min_known: complete checkpoints after which size, length and nodes of the next are expected ...
        max_known: ... and how many are kept.
        over_long: one that takes so many times the usual is over-long ...
        over_windows: ... if it takes at least so many windows more.
        taking_part: share of the busiest node's bytes from which a node took part.
    """

    min_gaps: int = 8
    max_gaps: int = 40
    spreads: float = 5.0
    widest: float = 0.25
    give_up: float = 0.5
    min_known: int = 3
    max_known: int = 10
    over_long: float = 2.0
    over_windows: int = 3
    taking_part: float = 0.02


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a job's checkpoints are compared with.

    Attributes:
        window: seconds.
        regularity: share of the gaps that must be near their median.
        gpus: of the job.
        usd_per_gpu_hour: what each of them costs.
        sees_compute: whether collectives cross devices that export flows.
        sees_storage: whether writing to every storage group does; else nothing is said of checkpoints that do not come.
    """

    job: Job
    window: int
    plan: CheckpointPlan
    regularity: float = 1.0
    gpus: int = 0
    usd_per_gpu_hour: float = 0.0
    sees_compute: bool = True
    sees_storage: bool = True
    policy: CheckpointPolicy = field(default_factory=CheckpointPolicy)


@dataclass(frozen=True, slots=True)
class Usual:
    """What is known of complete checkpoints, the newest last; earlier runs' included.

    Attributes:
        gaps: seconds from begin to begin, idle time left out.
        sizes, lengths, nodes: bytes, seconds and nodes of each.
    """

    gaps: tuple[float, ...] = ()
    sizes: tuple[float, ...] = ()
    lengths: tuple[float, ...] = ()
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Opened:
    """How a checkpoint began: `state` is the verdict on when it came, `due` 0 if unknown."""

    start: int
    state: int
    due: float
    gap: float


@dataclass(frozen=True, slots=True)
class CheckpointCarry:
    """What a window hands to the next one. Times are epoch seconds.

    Attributes:
        last: begin of the last checkpoint; None before the first.
        safe: begin of the last one that is complete.
        safe_bytes: its bytes.
        idle: seconds since `last` in which the job was idle; `idling`: those in a row up to now.
        is_whole: whether the gap since `last` says something: nothing went unseen, and the job never stood for long.
        due: when the next one is due; None if unknown.
        first_due: the same, of the first that did not come since `last`.
        is_excused: whether the clock began again in an outage that goes on.
        worked: whether the job was seen computing.
        opened: the one under way.
    """

    usual: Usual = field(default_factory=Usual)
    last: int | None = None
    safe: int | None = None
    safe_bytes: float = 0.0
    idle: float = 0.0
    idling: float = 0.0
    is_whole: bool = True
    due: float | None = None
    first_due: float | None = None
    is_excused: bool = False
    worked: bool = False
    opened: Opened | None = None


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How far apart checkpoints are: seconds; 0 if unknown.

    Attributes:
        regularity: share of the gaps that are near a multiple of the period; 0 with too few gaps.
        is_judged: whether one that does not come is reported.
    """

    period: float
    tolerance: float
    regularity: float
    is_judged: bool


def rhythm(ledger: Ledger, gaps: Sequence[float]) -> Rhythm:
    """Return the rhythm by plan and gaps."""
    plan, policy = ledger.plan, ledger.policy
    values = np.array(gaps, np.float64)
    enough = len(values) >= policy.min_gaps
    period = float(np.median(values)) if len(values) else 0.0
    spread = MAD_TO_SIGMA * float(np.median(np.abs(values - period))) if len(values) else 0.0
    widest = policy.widest * period
    tolerance = min(max(plan.tolerance, policy.spreads * spread), widest)
    regularity = 0.0
    if enough and period > 0:
        multiple = np.maximum(np.rint(values / period), 1) * period
        # Begins are known to a window.
        regularity = float(np.mean(np.abs(values - multiple) <= max(tolerance, ledger.window)))
    if plan.mode is CheckpointMode.SCHEDULED and plan.every is not None:
        return Rhythm(plan.every, plan.tolerance, regularity, ledger.sees_storage)
    is_regular = enough and policy.spreads * spread <= widest and regularity >= ledger.regularity
    is_regular = is_regular and plan.mode is CheckpointMode.LEARN
    return Rhythm(period, tolerance, regularity, is_regular and ledger.sees_storage)


def judge(
    ledger: Ledger, carry: CheckpointCarry, phases: Phases, windows: JobWindows
) -> tuple[CheckpointCarry, Rows, Rows]:
    """Hold consecutive windows of a job against its plan.

    Returns:
        The carry after them, and rows of schema.CHECKPOINT, one a checkpoint that began or went on in these windows,
        and of schema.CHECKPOINT_STATUS, one a window.
    """
    judging = _Judging(ledger, carry, windows.sent.shape[1])
    turns = defaultdict(list)
    for turn in phases.turns:
        turns[turn.index].append(turn)
    for index in range(len(windows)):
        for turn in turns[index]:
            judging.turn(turn.burst, is_over=turn.is_over)
        judging.step(
            windows.start + index * windows.window,
            is_at_work=bool(phases.at_work[index]),
            is_idle=phases.phase[index] == Phase.IDLE,
            is_unseen=bool(phases.unseen[index]),
            is_under_way=bool(phases.under_way[index]),
        )
    if phases.open is not None and judging.carry.opened is not None:
        judging.show(phases.open, judging.carry.opened)
    return judging.carry, *judging.rows(windows)


@dataclass(frozen=True, slots=True)
class _Row:
    """A checkpoint as it is stored."""

    at: int
    seconds: float
    size: float
    nodes: int
    expected_nodes: int
    expected_bytes: float
    state: int
    due: float
    gap: float


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where the job stands after a window, as it is stored."""

    age: float
    overdue: float
    rhythm: Rhythm
    last_bytes: float


class _Judging:
    """Takes one window after the other."""

    def __init__(self, ledger: Ledger, carry: CheckpointCarry, nodes: int) -> None:
        self.ledger, self.carry = ledger, carry
        self._nodes = nodes
        self._rhythm = rhythm(ledger, carry.usual.gaps)
        self._rows: dict[int, _Row] = {}
        self._standings: list[_Standing] = []

    # -- what came ---------------------------------------------------------------------------------

    def turn(self, burst: Burst, *, is_over: bool) -> None:
        """Take note that a burst became a checkpoint, or that a checkpoint is over."""
        opened = self.carry.opened or self._open(burst)
        if not is_over:
            return
        usual, policy = self.carry.usual, self.ledger.policy
        self.show(burst, opened, is_over=True)
        if burst.is_clear:
            usual = replace(
                usual,
                sizes=(*usual.sizes, burst.size)[-policy.max_known :],
                lengths=(*usual.lengths, float(burst.end - burst.start))[-policy.max_known :],
                nodes=(*usual.nodes, burst.taking_part(policy.taking_part))[-policy.max_known :],
            )
        self.carry = replace(self.carry, usual=usual, safe=burst.start, safe_bytes=burst.size, opened=None)

    def _open(self, burst: Burst) -> Opened:
        carry, policy = self.carry, self.ledger.policy
        state, due, gap = CheckpointState.UNJUDGED, 0.0, 0.0
        if carry.due is not None:
            due = carry.due
            is_late = burst.start > due + self._rhythm.tolerance
            state = CheckpointState.LATE if is_late else CheckpointState.ON_TIME
        usual = carry.usual
        if carry.last is not None:
            gap = float(burst.start - carry.last)
            if carry.is_whole:
                usual = replace(usual, gaps=(*usual.gaps, max(gap - carry.idle, 0.0))[-policy.max_gaps :])
        self._rhythm = rhythm(self.ledger, usual.gaps)
        opened = Opened(burst.start, state, due, gap)
        carry = replace(carry, usual=usual, last=burst.start, idle=0.0, is_whole=True, opened=opened)
        self.carry = self._due_after(carry, burst.start)
        return opened

    def _due_after(self, carry: CheckpointCarry, moment: float) -> CheckpointCarry:
        due = moment + self._rhythm.period if self._rhythm.is_judged else None
        return replace(carry, due=due, first_due=due)

    # -- what did not come -------------------------------------------------------------------------

    def step(self, start: int, *, is_at_work: bool, is_idle: bool, is_unseen: bool, is_under_way: bool) -> None:
        """Go on by one window."""
        window = self.ledger.window
        end = start + window
        self._begin_to_count(start, is_at_work=is_at_work)
        carry, tolerance = self.carry, self._rhythm.tolerance
        if is_idle and carry.worked:
            self.carry = carry = self._idle(carry, end)
        elif carry.idling:
            self.carry = carry = replace(carry, idling=0.0)
        if is_unseen and carry.opened is None:
            is_excused = carry.is_excused or (carry.due is not None and end > carry.due - tolerance)
            carry = replace(carry, is_whole=False, is_excused=is_excused)
            self.carry = carry = self._due_after(carry, end) if is_excused else carry
        elif carry.is_excused:
            self.carry = carry = replace(carry, is_excused=False)
        if carry.due is not None and not is_under_way and end > carry.due + self._patience():
            self._rows[start] = self._missed(start, carry.due)
            self.carry = carry = replace(carry, due=carry.due + self._rhythm.period)
        overdue = 0.0
        if carry.first_due is not None and carry.opened is None and not is_unseen:
            overdue = max(end - carry.first_due - tolerance, 0.0)
        since = start_of(self.ledger.job) if carry.safe is None else carry.safe
        self._standings.append(_Standing(end - since, overdue, self._rhythm, carry.safe_bytes))

    def _idle(self, carry: CheckpointCarry, end: int) -> CheckpointCarry:
        window = self.ledger.window
        carry = replace(carry, idle=carry.idle + window, idling=carry.idling + window)
        if carry.due is None or carry.first_due is None:
            return replace(carry, is_whole=carry.is_whole and carry.idling <= self.ledger.plan.tolerance)
        if carry.idling > self._rhythm.tolerance:
            return self._due_after(replace(carry, is_whole=False), end)
        return replace(carry, due=carry.due + window, first_due=carry.first_due + window)

    def _begin_to_count(self, start: int, *, is_at_work: bool) -> None:
        """Note when the first checkpoint is due: a period after computing began, which is where it can be seen."""
        carry = self.carry
        if carry.worked or not (is_at_work or not self.ledger.sees_compute):
            return
        self.carry = carry = replace(carry, worked=True)
        if carry.last is None:
            self.carry = self._due_after(carry, start)

    def _patience(self) -> float:
        return max(self.ledger.policy.give_up * self._rhythm.period, self._rhythm.tolerance)

    def _missed(self, start: int, due: float) -> _Row:
        return _Row(
            start, 0.0, 0.0, 0, self._expected_nodes(), self._expected_bytes(), CheckpointState.MISSED, due, 0.0
        )

    # -- what it was like --------------------------------------------------------------------------

    def _expected_bytes(self) -> float:
        sizes = self.carry.usual.sizes
        if self.ledger.plan.size is not None:
            return float(self.ledger.plan.size)
        return float(np.median(sizes)) if len(sizes) >= self.ledger.policy.min_known else 0.0

    def _expected_nodes(self) -> int:
        nodes, declared = self.carry.usual.nodes, self.ledger.plan.nodes
        if declared is not None:
            return self._nodes if declared == ALL_NODES else declared
        return int(np.median(nodes)) if len(nodes) >= self.ledger.policy.min_known else 0

    def _longest(self) -> float:
        """Return how long one may take, in seconds; infinity if unknown."""
        policy, lengths = self.ledger.policy, self.carry.usual.lengths
        if self.ledger.plan.longest is not None:
            return float(self.ledger.plan.longest)
        if len(lengths) < policy.min_known:
            return float("inf")
        usual = float(np.median(lengths))
        return max(policy.over_long * usual, usual + policy.over_windows * self.ledger.window)

    def show(self, burst: Burst, opened: Opened, *, is_over: bool = False) -> None:
        """Put a checkpoint as it is now into the rows."""
        seconds = float(burst.end - burst.start)
        nodes = burst.taking_part(self.ledger.policy.taking_part)
        expected_nodes, expected_bytes = self._expected_nodes(), self._expected_bytes()
        state = opened.state
        if not burst.is_clear:
            state = CheckpointState.UNJUDGED
        elif is_over and nodes < expected_nodes:
            state = CheckpointState.NODES_MISSING
        elif seconds > self._longest():
            state = CheckpointState.OVER_LONG
        elif is_over and burst.size < self.ledger.plan.short * expected_bytes:
            state = CheckpointState.SHORT
        self._rows[burst.start] = _Row(
            burst.start, seconds, burst.size, nodes, expected_nodes, expected_bytes, state, opened.due, opened.gap
        )

    # -- what is stored ----------------------------------------------------------------------------

    def rows(self, windows: JobWindows) -> tuple[Rows, Rows]:
        """Return those of checkpoints and of the standings."""
        ledger = self.ledger
        tags = tags_of(ledger.job)
        checkpoints = [
            (
                row.at, row.seconds, round(row.size), row.nodes, row.expected_nodes, round(row.expected_bytes),
                row.state, row.due, row.gap,
            )
            for _, row in sorted(self._rows.items())
        ]  # fmt: skip
        standings = self._standings
        ages = np.array([standing.age for standing in standings])
        status = {
            WINDOW: windows.starts,
            schema.CHECKPOINT_AGE.name: ages,
            schema.OVERDUE.name: np.array([standing.overdue for standing in standings]),
            schema.PERIOD.name: np.array([standing.rhythm.period for standing in standings]),
            schema.REGULARITY.name: np.array([standing.rhythm.regularity for standing in standings]),
            schema.IS_REGULAR.name: np.array([int(standing.rhythm.is_judged) for standing in standings]),
            schema.LAST_BYTES.name: np.array([round(standing.last_bytes) for standing in standings]),
            schema.USD_AT_RISK.name: ages * (ledger.gpus * ledger.usd_per_gpu_hour / 3600),
        }
        return Rows.of(schema.CHECKPOINT, _CHECKPOINT, checkpoints, tags), Rows(
            schema.CHECKPOINT_STATUS, status, {**tags, schema.JOB_GPUS.name: ledger.gpus}
        )


_CHECKPOINT = columns(
    schema.EVENT_SECONDS, schema.EVENT_BYTES, schema.EVENT_NODES, schema.EXPECTED_NODES, schema.EXPECTED_BYTES,
    schema.CHECKPOINT_STATE, schema.DUE, schema.GAP,
)  # fmt: skip
