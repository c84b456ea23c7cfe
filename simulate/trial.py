"""A scenario's trial: played into a store, analysed, its rules evaluated, alerts compared with the truth."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from analysis.analyser import Analyser
from analysis.evidence import heartbeat
from analysis.jobs.job_windows import ClusterFileJobs
from analysis.state import State
from app.log import Log
from cluster.model import Cluster, StoreApi, StoreSettings
from rules.evaluate.backtest import Backtest, Run, Stretch, Told, look_back
from rules.evaluate.case_runs import NO_LOGIN
from rules.evaluate.replay import Sight
from rules.evaluate.truth import Score, Truth, score
from rules.registry import rules_of
from rules.rule import Rule
from simulate.incidents.incident import Incident, IncidentKind
from simulate.recording import SHARD, SIGN_SECONDS, Recorded, record
from simulate.scenarios.script import Script
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth
from simulate.truth.matching import truth_of
from simulate.truth.reckoning import Reckoning, reckon
from store import schema
from store.influx import Store
from store.points import encode
from store.schema import RAW

WARM_UP = 600
"""Seconds for which heartbeats must have come before their absence means something."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How a scenario went.

    Attributes:
        script: the scenario.
        cluster: the same as the script's, with the store that was used.
        reckoning: the store's totals against what was sent.
        run: what fired.
        truth: what was staged.
        scores: of each rule.
        seconds: how long each step took.
    """

    script: Script
    cluster: Cluster
    reckoning: Reckoning
    run: Run
    truth: Truth
    scores: tuple[Score, ...]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """Whether every total agrees, everything staged was found, and nothing else fired."""
        return not self.reckoning.differences and not any(one.missed or one.false for one in self.scores)

    def lines(self) -> list[str]:
        """Return how it went, in words: one line a finding."""
        found = [f"totals: {difference}" for difference in self.reckoning.differences]
        for one in self.scores:
            found += [f"{one.rule}: MISSED {owed.incident} (due {_clock(owed.due)})" for owed in one.missed]
            for judged in one.judged:
                firing = judged.firing
                facts = firing.first.facts()
                what = f"{facts['source']} -> {facts['destination']}, {facts['bytes']}"
                why = "FALSE" if judged.cause is None else f"{judged.cause.incident}, after {judged.delay} s"
                found.append(f"{one.rule}: {_clock(firing.fired_at)} {what}: {why}")
        return found


def _clock(moment: int) -> str:
    return time.strftime("%m-%d %H:%M:%SZ", time.gmtime(moment))


def settings_of(script: Script, login: StoreSettings, url: str, database: str) -> StoreSettings:
    """Return where a scenario is played: a database at a URL, with somebody's login, and its own retentions."""
    kept = {name: getattr(script.cluster.store, name) for name in ("keep_raw", "keep_1m", "keep_1h")}
    return replace(login, url=url, api=StoreApi.V1, database=database, **kept)


def run_trial(
    script: Script,
    url: str,
    folder: Path,
    *,
    login: StoreSettings = NO_LOGIN,
    rules: Sequence[str] = (),
    database: str = "",
) -> Trial:
    """Play a scenario into a database of its own, and judge what the rules make of it.

    Args:
        script: the scenario.
        url: an InfluxDB.
        folder: for the state of the analysis.
        login: what to say there, and whom to trust.
        rules: ids of the rules to evaluate; all by default.
        database: its name; the scenario's and the seed by default.
    """
    name = database or f"{script.name}-{script.scenario.seed}"
    cluster = replace(script.cluster, store=settings_of(script, login, url, name))
    seconds: dict[str, float] = {}
    with Store(cluster.store) as store:
        began = time.monotonic()

        def note(step: str) -> None:
            nonlocal began
            seconds[step] = time.monotonic() - began
            began = time.monotonic()

        reckoning = play(script, store)
        note("record")
        analyse(script, cluster, store, folder)
        note("analyse")
        chosen = tuple(rule for rule in rules_of(cluster).rules if not rules or rule.id in rules)
        run = evaluate(script, cluster, store, chosen)
        note("evaluate")
    truth = truth_of(script.incidents)
    ids = [rule.id for rule in chosen]
    scores = score(truth, run.firings, ids if rules else truth.scored(ids), script.start, script.end)
    return Trial(script, cluster, reckoning, run, truth, scores, seconds)


def play(script: Script, store: Store, told: Told = lambda _what, _share: None) -> Reckoning:
    """Play a scenario into a store; return its totals against what was sent."""
    _, truth = put(script, store, told)
    return reckon(store, truth.document(), SHARD)


def put(script: Script, store: Store, told: Told = lambda _what, _share: None) -> tuple[Recorded, GroundTruth]:
    """Play a scenario into a store; return what was written, and what was sent."""
    workload = Workload(script.cluster, script.scenario)
    truth = GroundTruth(workload)
    length = script.end - script.start
    recorded = record(workload, store, truth, lambda at: told("recording", (at - script.start) / length))
    return recorded, truth


def analyse(
    script: Script, cluster: Cluster, store: Store, folder: Path, told: Told = lambda _what, _share: None
) -> None:
    """Judge everything that a store holds of a scenario, as an analysis would have that ran all the time."""
    told("analysing", 0.0)
    with State.open(folder) as state:
        analyser = Analyser(cluster, store, state, ClusterFileJobs(cluster), log=Log(quiet=True))
        analyser.rerun(script.start, script.end, script.end + 3600)
    store.write(encode(schema.PIPELINE, _heartbeats(script, cluster)), RAW)


def _heartbeats(script: Script, cluster: Cluster) -> pl.DataFrame:
    lag = cluster.bridge.lateness + cluster.bridge.flush
    stops = [one for one in script.incidents if one.kind is IncidentKind.ANALYSIS_STOPPED]
    frames = [
        heartbeat(moment, SHARD, {schema.HEARTBEAT: lag})
        for moment in range(script.start, script.end + 1, SIGN_SECONDS)
        if not _lies_in(moment, stops)
    ]
    return pl.concat(frames)


def _lies_in(moment: int, incidents: Sequence[Incident]) -> bool:
    return any(one.start <= moment < one.end for one in incidents)


def evaluate(
    script: Script, cluster: Cluster, store: Store, rules: Sequence[Rule], told: Told = lambda _what, _share: None
) -> Run:
    """Evaluate rules over all of a scenario, each point seen when a live Grafana would have seen it."""
    stretch = Stretch(store, script.start + WARM_UP, script.end, Sight.settled(cluster))
    return Backtest(stretch, look_back(rules)).run(rules, told)
