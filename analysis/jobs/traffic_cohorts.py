"""Which cohorts of training nodes run a job, by what they send each other, minute after minute.

A cohort is a connected component of the graph of who sends how much to whom. What happens in a minute depends on the
minutes before it and on nothing else, so that a live analysis and one over the past agree.

    active     a node that sends at least `least_rate` to other training nodes
    start      `confirm` of activity by a component that nobody joined meanwhile: the job starts where that is certain
    at work    a minute in which at least a third of the job's nodes send 5 % of what was usual at its start
    end        `idle` in a row not at work, and a minute more: the job ends there, not where its traffic did

So a job begins up to `confirm` after its traffic and ends `idle` after it. That is the price of windows that never have
to be taken back: when start and end are known, no window behind them has been judged for good yet.

The nodes are settled at the start. A node that falls silent later stays part of the job, which neither ends nor splits:
that is what the dropout verdict is for. Only if more than a quarter stays silent for `idle` while the others go on, the
cohort is another one: the job ends and those that are left may become a new one. So too if nodes of no job, at least a
fifth as many, work with those of one for `confirm`.

An exporter of the compute plane that falls silent together with nodes, and is not heard again, may be why they are: no
job ends for that, for half an hour. If it is heard while they are not, or if all of them are silent while others are
heard, it is the nodes: a fabric without traffic has silent exporters too.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.baseline import Flags, Floats
from cluster.model import InferredJobs

Pairs = Mapping[tuple[int, int], float]
"""Bytes from one node to another, by their places."""

MINUTE = 60
MARGIN = MINUTE
"""Seconds from the certainty that a job is over to its end: its last windows can then still be judged as such."""

_AT_WORK = 1 / 3
_COMPLETE = 0.75
_TAKEN_OVER = 0.5
_STAYS = 0.05
_JOINS = 0.1
_WEAK = 0.02
_GROWN = 0.2
_PATIENCE = 10
_EXCUSED = 30


@dataclass
class Cohort:
    """A job under way.

    Attributes:
        start: epoch seconds.
        members: its nodes.
        level: bytes a minute that its median node sent at the start; 0: not known, learnt from the next minute.
        idle: minutes in a row that it was not at work.
        shrunk: minutes that more than a quarter was silent while the rest went on, since it was last complete.
        partial: minutes since it was last complete.
        excuses: exporters that were heard then, and not since.
    """

    start: int
    members: list[str]
    level: float
    idle: int = 0
    shrunk: int = 0
    partial: int = 0
    excuses: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that is over: `quiet` seconds before its `end` it was last at work."""

    cohort: Cohort
    end: int
    quiet: int


@dataclass
class Memory:
    """What one minute hands to the next; plain data.

    Attributes:
        at: end of the last minute that was looked at, epoch seconds; None before the first.
        running: jobs under way.
        ages: node -> minutes in a row that it was active without a job.
        refused: nodes that made no job when they were looked at, ...
        refused_at: ... and when.
    """

    at: int | None = None
    running: list[Cohort] = field(default_factory=list)
    ages: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    refused_at: int = 0

    def copy(self) -> "Memory":
        """Return one that can go its own way."""
        return replace(self, running=[replace(cohort) for cohort in self.running])

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def of(cls, plain: object) -> "Memory":
        """Return what `plain` wrote; a new one of anything else."""
        if not isinstance(plain, dict):
            return cls()
        try:
            return cls(**{**plain, "running": [Cohort(**one) for one in plain["running"]]})
        except (KeyError, TypeError):  # another version wrote it
            return cls()


@dataclass(frozen=True, slots=True)
class Minute:
    """What the store holds of one minute.

    Attributes:
        end: epoch seconds.
        sent: [node] bytes to training nodes.
        heard: exporters whose flows hold bytes.
        taken: nodes of jobs that somebody else knows.
        pairs: asks for the bytes from node to node in the minutes of (end - seconds, end].
    """

    end: int
    sent: Floats
    heard: Collection[str]
    taken: Collection[str]
    pairs: Callable[[int], Pairs]


class Cohorts:
    """Goes through the minutes.

    Args:
        settings: what counts as a cohort.
        nodes: the training nodes, in the order of `Minute.sent`.
        exporters: those that can see them.
        memory: what is known so far.

    Attributes:
        memory: what is known now; after each minute another object.
    """

    def __init__(
        self, settings: InferredJobs, nodes: Sequence[str], exporters: Collection[str], memory: Memory
    ) -> None:
        self._settings, self.memory, self._exporters = settings, memory, frozenset(exporters)
        self._nodes = tuple(nodes)
        self._place = {name: place for place, name in enumerate(self._nodes)}
        self._least = settings.least_rate / 8 * MINUTE
        self._confirm = settings.confirm // MINUTE
        self._idle = settings.idle // MINUTE

    def step(self, minute: Minute) -> tuple[list[Cohort], list[Ended]]:
        """Look at one minute; return the jobs that began with it, and those that are over.

        If asking for pairs fails, all is as before: the minute can be looked at again.
        """
        before, self.memory = self.memory, self.memory.copy()
        try:
            return self._step(minute)
        except BaseException:
            self.memory = before
            raise

    def _step(self, minute: Minute) -> tuple[list[Cohort], list[Ended]]:
        taken = np.isin(self._nodes, list(minute.taken)) if minute.taken else np.zeros(len(self._nodes), np.bool_)
        # Nodes of a job that ends in this minute are free from the next one on: its end lies a minute ahead.
        assigned = self._assigned()
        ended = self._go_on(minute, taken)
        free = ~assigned & ~taken & (minute.sent >= self._least)
        ages = np.array([self.memory.ages.get(name, 0) for name in self._nodes])
        ages = np.where(free, ages + 1, 0)
        begun: list[Cohort] = []
        if self._is_worth_a_look(minute.end, ages):
            begun, replaced = self._look(minute, free, ages, assigned)
            ended += replaced
            ages[self._assigned()] = 0
        self.memory.ages = {self._nodes[place]: int(ages[place]) for place in np.flatnonzero(ages)}
        self.memory.at = minute.end
        return begun, ended

    def _assigned(self) -> Flags:
        flags = np.zeros(len(self._nodes), np.bool_)
        for cohort in self.memory.running:
            flags[self._places(cohort)] = True
        return flags

    def _places(self, cohort: Cohort) -> npt.NDArray[np.int64]:
        # A node that left the inventory meanwhile has no place.
        return np.array([self._place[name] for name in cohort.members if name in self._place], np.int64)

    # -- jobs that run -----------------------------------------------------------------------------

    def _go_on(self, minute: Minute, taken: Flags) -> list[Ended]:
        ours = self._exporters & set(minute.heard)
        is_idle_fabric = not ours and bool(minute.heard)
        ended: list[Ended] = []
        for cohort in list(self.memory.running):
            places = self._places(cohort)
            self._count(cohort, minute.sent[places], ours)
            is_excused = bool(cohort.excuses) and not is_idle_fabric and cohort.partial <= _EXCUSED
            if cohort.idle >= self._idle and not is_excused:
                ended.append(self._end(cohort, minute.end, cohort.idle * MINUTE + MARGIN))
            elif (cohort.shrunk >= self._idle and not is_excused) or (
                len(places) and taken[places].mean() > _TAKEN_OVER
            ):
                ended.append(self._end(cohort, minute.end, 0))
        return ended

    def _count(self, cohort: Cohort, sent: Floats, heard: Collection[str]) -> None:
        """Count a minute of a job."""
        if not cohort.level and len(sent) and (sent >= self._least).mean() >= _AT_WORK:
            cohort.level = float(np.median(sent))
        share = float((sent >= max(_STAYS * cohort.level, 1.0)).mean()) if len(sent) else 0.0
        cohort.idle = 0 if share >= _AT_WORK else cohort.idle + 1
        if share >= _COMPLETE:
            cohort.shrunk = cohort.partial = 0
            cohort.excuses = sorted(heard)
        else:
            cohort.shrunk += share >= _AT_WORK
            cohort.partial += 1
            cohort.excuses = [name for name in cohort.excuses if name not in heard]

    def _end(self, cohort: Cohort, moment: int, quiet: int) -> Ended:
        self.memory.running.remove(cohort)
        return Ended(cohort, moment + MARGIN, quiet)

    # -- jobs that begin ---------------------------------------------------------------------------

    def _is_worth_a_look(self, moment: int, ages: npt.NDArray[np.int64]) -> bool:
        """Whether some node has been active for long enough, and was not refused lately."""
        if not (ages >= self._confirm).any():
            return False
        candidates = [self._nodes[place] for place in np.flatnonzero(ages >= self._confirm)]
        is_new = candidates != self.memory.refused
        return is_new or moment - self.memory.refused_at >= _PATIENCE * MINUTE

    def _look(
        self, minute: Minute, free: Flags, ages: npt.NDArray[np.int64], assigned: Flags
    ) -> tuple[list[Cohort], list[Ended]]:
        """Find components among the nodes that are free, and those of running jobs that they work with."""
        pairs = minute.pairs(self._confirm * MINUTE)
        sent = np.zeros(len(self._nodes))
        for (src, _), volume in pairs.items():
            sent[src] += volume
        begun: list[Cohort] = []
        ended: list[Ended] = []
        is_pending = False
        for component in components(pairs, free | assigned):
            worth = [place for place in component if sent[place] >= _JOINS * np.median(sent[component])]
            fresh = [place for place in worth if free[place]]
            if not fresh:
                continue
            joined = [one for one in self.memory.running if set(self._places(one)) & set(component)]
            known = sum(len(one.members) for one in joined)
            if joined and len(fresh) < max(2, _GROWN * known):
                continue
            oldest, youngest = ages[fresh].max(), ages[fresh].min()
            if len(worth) < self._settings.least_nodes or oldest < self._confirm:
                continue
            if youngest < self._confirm and oldest < _PATIENCE:
                is_pending = True
                continue
            ended += [self._end(one, minute.end, 0) for one in joined]
            start = minute.end + (MARGIN if joined else 0)
            members = sorted(self._nodes[place] for place in worth)
            begun.append(Cohort(start, members, float(np.median(sent[worth])) / self._confirm))
        self.memory.running += begun
        if not begun and not is_pending:
            self.memory.refused = [self._nodes[place] for place in np.flatnonzero(ages >= self._confirm)]
            self.memory.refused_at = minute.end
        return begun, ended


def components(pairs: Pairs, among: Flags) -> list[list[int]]:
    """Return the connected components of two or more nodes, each in order, the components by their first node.

    An edge counts if it carries at least 2 % of what the weaker of its nodes has on its strongest edge: parts of one
    job are linked more strongly than that, and jobs do not talk to each other.
    """
    edges: dict[tuple[int, int], float] = {}
    for (src, dst), volume in pairs.items():
        if src != dst and among[src] and among[dst]:
            edge = (src, dst) if src < dst else (dst, src)
            edges[edge] = edges.get(edge, 0.0) + volume
    strongest: dict[int, float] = {}
    for (a, b), volume in edges.items():
        for node in (a, b):
            strongest[node] = max(strongest.get(node, 0.0), volume)
    root = {node: node for node in strongest}

    def find(node: int) -> int:
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for (a, b), volume in edges.items():
        if volume > 0 and volume >= _WEAK * min(strongest[a], strongest[b]):
            first, second = sorted((find(a), find(b)))
            root[second] = first
    found: dict[int, list[int]] = {}
    for node in sorted(root):
        found.setdefault(find(node), []).append(node)
    return [component for component in found.values() if len(component) > 1]
