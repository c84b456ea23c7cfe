"""The days before the demo: simulated, read in as an old spool would be, and judged as a running analysis did."""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

from rich.progress import Progress

from analysis.analyser import Analyser, AnalysisStoppedError
from analysis.jobs.all_sources import JobSources
from analysis.jobs.register import Register
from analysis.state import State
from app.log import Log
from cluster.model import Cluster
from ingest.bridge import Bridge
from ingest.cloud.files import CloudFiles, CloudReader
from ingest.collect import counter_files
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from ingest.flows.normalise import Clock
from ingest.read.spool import Spool
from simulate.packets.polls import LinkCounters
from simulate.packets.spool_files import SpoolWriter
from simulate.packets.vpc_logs import VpcLogs, in_a_vpc
from simulate.scenarios.scenario import Phase, Scenario
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth
from simulate.truth.reckoning import Reckoning, reckon
from store.influx import Store

SHARD = "history"

_JUDGED = 86_400
"""Seconds that are judged: no board looks back further when it is opened."""
_ROUND = 3600
"""Seconds between two rounds of the analysis in the past."""


class Past:
    """What was before the live phase.

    Args:
        cluster: whose past it is.
        scenario: with a history, and what is recent; no incident of it lies in the live phase.
        store: filled in.
        folder: of the run.
        stop: set it to end early.
        progress: makes a bar to tell how far it is.
    """

    def __init__(
        self,
        cluster: Cluster,
        scenario: Scenario,
        store: Store,
        folder: Path,
        *,
        stop: threading.Event,
        progress: Callable[[], AbstractContextManager[Progress]],
    ) -> None:
        if scenario.history is None or scenario.recent is None:
            raise ValueError("the scenario has no past")
        self._history, self._recent = scenario.history, scenario.recent
        self._cluster, self._store, self._folder = cluster, store, folder
        self._stop, self._progress = stop, progress
        self._cloud = cluster.cloud.format
        self._workload = Workload(in_a_vpc(cluster) if self._cloud else cluster, scenario)
        self._truth = GroundTruth(self._workload)
        writer = VpcLogs if self._cloud else SpoolWriter
        self._writer = writer(self._workload, folder / "history", self._truth)
        # Agents count on from one phase to the next.
        self._links = LinkCounters(
            self._workload.cluster, self._workload.fabric.agents, self._workload.scenario.incidents
        )
        self.records = self.points = 0

    def fill(self) -> bool:
        """Simulate and read in all that is over now; False if it was stopped before the end."""
        return self._fill((self._history, self._recent))

    def catch_up(self, until: int) -> bool:
        """Do the same with what passed meanwhile, up to the begin of the live phase (epoch seconds)."""
        return self._fill((replace(self._recent, start=self._recent.end, end=until),))

    def judge(self) -> bool:
        """Judge the last day as a running analysis did, whose state the live one goes on from; False if stopped."""
        folder, log, end = Path(self._cluster.bridge.state), Log(quiet=True), self._recent.end
        rounds = [*range(max(end - _JUDGED, self._history.start), end, _ROUND), end]
        with State.open(folder) as state, Register.open(folder) as register, self._progress() as bar:
            task = bar.add_task("judging the last day", total=len(rounds))
            sources = JobSources(self._cluster, self._store, register, log)
            analyser = Analyser(self._cluster, self._store, state, sources, log=log, is_stopping=self._stop.is_set)
            sources.rebuild()
            try:
                for moment in rounds:
                    sources.refresh(moment)
                    analyser.tick(moment)
                    bar.advance(task)
            except AnalysisStoppedError:
                return False
        return True

    def reckon(self) -> Reckoning:
        """Compare what was simulated with what is stored."""
        return reckon(self._store, self._truth.document(), SHARD)

    def _fill(self, phases: Sequence[Phase]) -> bool:
        with self._progress() as bar:
            task = bar.add_task("simulating the days before", total=phases[-1].end - phases[0].start)
            for phase in phases:
                for batch in self._workload.batches(phase, self._links):
                    if self._stop.is_set():
                        return False
                    self._writer.write(batch)
                    bar.update(task, completed=batch.until / 1000 - phases[0].start)
                self._writer.close()
            spool = self._folder / "history"
            polls = spool / counter_files.FOLDER
            with ExitStack() as reading:
                source = CloudFiles(spool, self._cloud, once=True) if self._cloud else Spool(spool, once=True)
                reading.callback(source.close)
                counters_source = Spool(polls, once=True) if polls.is_dir() else None
                if counters_source is not None:
                    reading.callback(counters_source.close)
                task = bar.add_task("reading them in", total=source.backlog_bytes())
                bridge = Bridge(
                    replace(self._cluster, bridge=replace(self._cluster.bridge, shard=SHARD)),
                    self._store,
                    source,
                    clock=Clock.BACKFILL,
                    state=self._folder / "state-history",
                    dead_letter=DeadLetters(self._folder / "history-dead-letters.jsonl"),
                    stop=self._stop,
                    log=Log(quiet=True),
                    counters=Counters(),
                    counters_source=counters_source,
                    cloud=CloudReader(self._cloud) if self._cloud else None,
                )
                summary = bridge.run(lambda count: bar.advance(task, count))
        self.records += summary.records
        self.points += summary.points
        return not self._stop.is_set()
