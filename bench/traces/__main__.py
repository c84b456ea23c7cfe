"""Recorded training jobs as a measure: what their traffic alone tells of roles, steps and culprits.

`scripts/bench traces FOLDER docs/reference/traces.md`: each trace x sampling rate x seed is played without a fault,
and with each fault laid over it, and judged (`analysis.detectors.roles`). No trace is part of the repository.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from analysis.detectors.roles.pair_roles import Roles
from analysis.detectors.roles.peers import Blame, Verdict
from analysis.detectors.roles.slow_nodes import LEAST_SPREAD, ODD, excess_of
from analysis.detectors.roles.stage_times import stage_times
from analysis.detectors.roles.step_times import Steps
from analysis.detectors.roles.told import tell, tell_sums
from analysis.detectors.roles.traffic import Traffic, members, traffic_of
from bench.traces.faults import Fault, FaultKind
from bench.traces.layout import RAILS, host_name
from bench.traces.play import Played, play
from bench.traces.records import PACKET, named, netflow, sflow
from bench.traces.trace_file import Floats, Trace, read_trace

RATES, SEEDS = (1000, 4096, 16384, 32768), (101, 102, 103, 104, 105)
SECONDS = 300.0
TIMEOUTS, FLOW_SECONDS = (60.0, 10.0), 600.0
"""Active timeouts of flow records, and how long a job is played as such: what `clusterflow jobs show` looks at."""

_MOST = 1.5e6
"""Samples of one play; where there would be more, it is shorter ..."""

_LEAST_STEPS, _TOO_MANY = 8, 6e6
"""... but not than so many steps; where these have so many samples, there is none."""

_ROUNDS, _POINTS = 1.05, 4
"""What can be known: each step of the trace once, each transfer at so many moments."""

SHARES = (0.1, 0.3, 1.0)

_HEAD = """# Recorded training jobs

Written by `scripts/bench traces ../shared/traces docs/reference/traces.md --seeds {flags}`: do not edit. Two
production jobs (ByteDance, arXiv 2505.05713) are played as sFlow samples of RoCEv2, looped with the variation that
their steps really have, one worker a host on 8 rails, bytes by the model in `bench/traces/layout.py`, and judged
from these samples alone (`analysis/detectors/roles`). Seeds {seeds}; {seconds:.0f} s each, or as long as 1.5
million samples last, and 8 steps at least. A rate at which these have more than 6 million samples is left out.

*Members*, *stages*: plays in which all were right. *Kinds*: F1 over pairs (pipeline, data, ends). *Step error*: of the
length of single steps. *Blamed*: nodes named in plays without a fault. Faults: the plays in which the first verdict
names the culprit; of a link at half rate, its rail and the ring it is in: the node within it cannot be known.
*Unknown*: plays in which it cannot be known, for the reason below. *Others blamed*: nodes named that are not at fault.

| job | 1 in | seconds | members | stages | kinds F1 | step error median | 95 % | blamed | stage imbalance told |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""


@dataclass(frozen=True, slots=True)
class Score:
    """One play without a fault.

    Attributes:
        members, stages: whether all are right.
        kinds: F1 of the pairs' kinds.
        errors: [step] relative error of the length.
        blamed: nodes that are named.
        imbalance: whether the stage is.
    """

    members: bool
    stages: bool
    kinds: float
    errors: "np.ndarray[tuple[int], np.dtype[np.float64]]"
    blamed: int
    imbalance: bool


def main() -> int:
    """Play, judge and write."""
    parser = argparse.ArgumentParser(prog="python -m bench.traces", description=__doc__)
    parser.add_argument("folder", type=Path, help="holds trace-NAME.parquet")
    parser.add_argument("page", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--rates", type=int, nargs="+", default=RATES)
    given = parser.parse_args()
    paths = sorted(given.folder.glob("trace-*.parquet"))
    plays = [(path, rate, tuple(given.seeds)) for path in paths for rate in given.rates]
    found = []
    with ProcessPoolExecutor() as pool:
        for one in pool.map(_row, plays):
            if one is not None:
                found.append(one)
                sys.stderr.write(f"{one.clean()}\n{one.faults()}\n")
        flows = [*pool.map(_records, ((path, timeout, tuple(given.seeds)) for path in paths for timeout in TIMEOUTS))]
    lines = [*(one.clean() for one in found), "", *_fault_head(), *(one.faults() for one in found), ""]
    lines += [_together([hit for one in found for hit in one.hits]), "", *_LIMITS]
    lines += [*dict.fromkeys(one.healthy() for one in found), *_TOLD_OTHERWISE, *_NETFLOW, *flows]
    head = _HEAD.format(seconds=SECONDS, seeds=", ".join(map(str, given.seeds)), flags=" ".join(map(str, given.seeds)))
    given.page.write_text(head + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return 0


def _together(hits: Sequence[bool | None]) -> str:
    known = [hit for hit in hits if hit is not None]
    right, every = sum(known), len(hits)
    return (
        f"Together: of {len(known)} culprits that can be known, {right} are named first ({right / len(known):.1%}). "
        f"{every - len(known)} cannot be known; these counted as missed, it is {right / every:.1%} of {every}."
    )


def _row(play_of: tuple[Path, int, tuple[int, ...]]) -> "_Row | None":
    """Play a trace at a rate with some seeds; None where there are too many samples."""
    path, rate, seeds = play_of
    trace = read_trace(path)
    seconds = _seconds(trace, rate)
    return None if seconds is None else _Row(trace, rate, seconds, seeds)


def _records(play_of: tuple[Path, float, tuple[int, ...]]) -> str:
    """Return the line of a job played as flow records with an active timeout."""
    path, timeout, seeds = play_of
    trace = read_trace(path)
    workers = trace.workers.height
    whole, hits = 0, 0
    for seed in seeds:
        for fault in (None, next(one for name, one in _faults(workers, seed, FLOW_SECONDS) if name == "dead rail")):
            played = play(trace, FLOW_SECONDS, seed, (fault,) if fault else ())
            told = tell_sums(traffic_of(netflow(played, timeout).rename({"end": "time"})))
            if fault is None:
                whole += len(set(members(told.traffic).tolist())) == 1 and not told.verdicts
            else:
                hits += _is_culprit(_Told(played, told.traffic, None, None, list(told.verdicts)), fault)
    cells = [path.stem.removeprefix("trace-"), f"{timeout:.0f} s", *(f"{one} of {len(seeds)}" for one in (whole, hits))]
    return f"| {' | '.join([*cells, *['cannot be known'] * 3])} |"


class _Row:
    """All plays of a trace at a rate."""

    def __init__(self, trace: Trace, rate: int, seconds: float, seeds: Sequence[int]) -> None:
        self._name, self._rate, self._seconds = trace.name.removeprefix("trace-"), rate, seconds
        stage = trace.workers.get_column("stage").to_list()
        self._scores = [_score(_told(trace, rate, self._seconds, seed)) for seed in seeds]
        self._hits: dict[str, list[bool | None]] = {}
        self._others = 0
        self._healthy = _healthy(trace)
        for seed in seeds:
            for name, fault in _faults(len(stage), seed, self._seconds):
                told = _told(trace, rate, self._seconds, seed, fault)
                is_known = fault.kind is not FaultKind.SLOW or _is_apart(fault, self._healthy[stage[fault.worker]])
                self._hits.setdefault(name, []).append(_is_culprit(told, fault) if is_known else None)
                self._others += _other_nodes(told, fault)

    @property
    def hits(self) -> list[bool | None]:
        """Return of each play with a fault whether it names the culprit; None where that cannot be known."""
        return [hit for one in self._hits.values() for hit in one]

    def clean(self) -> str:
        """Return the line of the plays without a fault."""
        scores, count = self._scores, len(self._scores)
        errors = np.concatenate([one.errors for one in scores])
        median, worst = (f"{np.quantile(errors, share):.2%}" if len(errors) else "" for share in (0.5, 0.95))
        return (
            f"| {self._name} | {self._rate:,} | {self._seconds:.0f} | {sum(one.members for one in scores)} of {count} "
            f"| {sum(one.stages for one in scores)} of {count} | {np.mean([one.kinds for one in scores]):.3f} "
            f"| {median} | {worst} | {sum(one.blamed for one in scores)} "
            f"| {sum(one.imbalance for one in scores)} of {count} |"
        )

    def faults(self) -> str:
        """Return the line of the plays with a fault."""
        hits = " | ".join(_cell(one) for one in self._hits.values())
        return f"| {self._name} | {self._rate:,} | {hits} | {self._others} |"

    def healthy(self) -> str:
        """Return the line of what cannot be known."""
        return f"- {self._name}: {', '.join(f'{np.expm1(one):.1%}' for one in self._healthy)}"


def _cell(hits: Sequence[bool | None]) -> str:
    known = [hit for hit in hits if hit is not None]
    unknown = len(hits) - len(known)
    return f"{sum(known)} of {len(known)}" + (f", {unknown} unknown" if unknown else "")


def _healthy(trace: Trace) -> Floats:
    """Return [stage] how much the longest of its healthy workers exceeds its peers, from all packets' true times."""
    played = play(trace, _ROUNDS * float(trace.end.max(axis=0).sum()), 1)
    moved = played.transfers
    shares = np.linspace(0, 1, _POINTS)
    lasts = pl.col("end") - pl.col("start")
    seen = [moved.with_columns(time=pl.col("start") + share * lasts) for share in shares]
    traffic = traffic_of(named(pl.concat(seen)))
    told = tell(traffic, played.end)
    if told.steps is None or told.roles is None or (times := stage_times(traffic, told.steps, told.roles)) is None:
        return np.zeros(trace.stages)
    return np.asarray(excess_of(times).max(axis=0), np.float64)


def _is_apart(fault: Fault, healthy: float) -> bool:
    """Whether a slow worker differs from a healthy one by more than the least that can be told."""
    return bool(np.log1p(fault.share) - healthy >= ODD * LEAST_SPREAD)


@dataclass(frozen=True, slots=True)
class _Told:
    played: Played
    traffic: Traffic
    steps: Steps | None
    roles: Roles | None
    verdicts: list[Verdict]


def _seconds(trace: Trace, rate: int) -> float | None:
    """Return how long to play; None where that has too many samples."""
    each = play(trace, 60, 1).transfers.get_column("bytes").to_numpy().sum() / 60 / PACKET / rate
    least = _LEAST_STEPS * float(trace.end.max(axis=0).max())
    return None if least * each > _TOO_MANY else float(np.clip(_MOST / each, least, SECONDS))


def _told(trace: Trace, rate: int, seconds: float, seed: int, *faults: Fault) -> _Told:
    played = play(trace, seconds, seed, faults)
    traffic = traffic_of(sflow(played, rate, seed))
    told = tell(traffic, played.end)
    return _Told(played, traffic, told.steps, told.roles, list(told.verdicts))


def _score(told: _Told) -> Score:
    whole = len(set(members(told.traffic).tolist())) == 1
    if told.steps is None or told.roles is None:
        return Score(whole, stages=False, kinds=0.0, errors=np.zeros(0), blamed=0, imbalance=False)
    pairs, nodes = told.roles.pairs, told.traffic.nodes
    said = {(nodes[a], nodes[b], str(kind)) for a, b, kind in zip(pairs.low, pairs.high, pairs.kind, strict=True)}
    truth = {(a, b, "pipeline" if "pipeline" in does else does[0]) for a, b, does in told.played.pairs.iter_rows()}
    stages = dict(told.played.roles.select("host", "stage").iter_rows())
    right = all(stages[node] == stage for node, stage in zip(nodes, told.roles.stage, strict=True))
    begins, ends = (told.played.steps.get_column(name).to_numpy() for name in ("begin", "end"))
    # A told step ends where weights have arrived: just after the next one's begin.
    place = np.clip(np.searchsorted(begins, told.steps.end, side="right") - 2, 0, len(begins) - 1)
    errors = np.abs(told.steps.length / (ends - begins)[place] - 1)
    blamed = sum(len(one.nodes) for one in told.verdicts if one.blame is Blame.NODE)
    imbalance = any(one.blame is Blame.STAGE for one in told.verdicts)
    return Score(whole, right, 2 * len(said & truth) / (len(said) + len(truth)), errors, blamed, imbalance)


def _faults(workers: int, seed: int, seconds: float) -> Iterator[tuple[str, Fault]]:
    rng = np.random.default_rng(seed)
    worker, rail = int(rng.integers(workers)), int(rng.integers(RAILS))
    for share in SHARES:
        yield f"slow by {share:.0%}", Fault(FaultKind.SLOW, worker=worker, share=share)
    yield "link at half rate", Fault(FaultKind.HALF_LINK, worker=worker, rail=rail)
    yield "dead rail", Fault(FaultKind.DEAD_RAIL, worker=worker, rail=rail)
    yield "pause of 10 s", Fault(FaultKind.PAUSE, seconds / 2)
    yield "hang", Fault(FaultKind.HANG, seconds / 2, worker=worker)


def _fault_head() -> list[str]:
    names = [name for name, _ in _faults(1, 1, SECONDS)]
    return [f"| job | 1 in | {' | '.join(names)} | others blamed |", f"|---|---:|{'---:|' * (len(names) + 1)}"]


def _is_culprit(told: _Told, fault: Fault) -> bool:
    """Whether the first verdict names who is at fault."""
    # A long stage is part of both jobs, and said beside each fault.
    first = next((one for one in told.verdicts if one.blame is not Blame.STAGE), None)
    if first is None:
        return False
    host = host_name(fault.worker)
    if fault.kind is FaultKind.SLOW:
        return first.blame is Blame.NODE and first.nodes == (host,)
    if fault.kind is FaultKind.DEAD_RAIL:
        return first.blame is Blame.RAIL and first.nodes == (host,) and first.rail == fault.rail
    if fault.kind is FaultKind.HALF_LINK:
        return first.blame is Blame.LINK and host in first.nodes and first.rail == fault.rail
    return first.blame is Blame.JOB


def _other_nodes(told: _Told, fault: Fault) -> int:
    """Return how many nodes are named that are not at fault."""
    host = host_name(fault.worker) if fault.kind is FaultKind.SLOW else None
    return sum(one.blame is Blame.NODE and one.nodes != (host,) for one in told.verdicts)


_LIMITS = (
    "**What cannot be known.** Where senders and receivers wait for each other, only the passes at both ends of a step",
    "are seen; of a worker of the first stage, one forward pass. Healthy workers differ in these. A fault is *unknown*",
    f"if it makes them no more than {ODD * LEAST_SPREAD:.0%} longer than those of the healthy worker that differs most",
    "from its peers of the stage, by the true times of all packets of a play without faults: who names the one names",
    "the other, whatever the sampling: in replays of SE a first stage's worker that is slow by 10% moves that one",
    "interval by 14 ms, and no other. The longest excess of a healthy worker, by stage:",
    "",
)
_TOLD_OTHERWISE = (
    "",
    "A hang is told as the whole job's, not by the node that hung. The job's own long stage is said beside each fault",
    "and is not counted as a verdict.",
    "",
)

_NETFLOW = (
    f"**NetFlow and IPFIX.** {FLOW_SECONDS:.0f} s, unsampled, judged as `clusterflow jobs show` does from the flow",
    "archive. Records hold sums, not times: steps, kinds of pairs, stages and slow workers are not guessed. *Members*:",
    "all right, and nobody named, without a fault.",
    "",
    "| job | active timeout | members | dead rail | steps | kinds, stages | slow worker, link |",
    "|---|---:|---:|---:|---|---|---|",
)


if __name__ == "__main__":
    sys.exit(main())
