"""The demo: a live cluster on one machine, from real packets to alerts, with a comparison of all totals at the end.

InfluxDB, pmacct's daemons, the bridge, the analysis and, where there is one, Grafana run as processes of their own, as
they would in earnest; the simulator and the rules' evaluator run here.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from app.errors import ClusterflowError, StoreError
from app.signals import SignalEvent
from cluster.load import load_cluster
from cluster.model import Cluster
from ingest.collect.kernel.sockets import udp_sockets
from rules.evaluate.evaluator import Evaluator
from rules.evaluate.truth import Owed
from rules.registry import rules_of
from rules.rule import INTERVAL_SECONDS
from simulate.demo import screen
from simulate.demo.demo_grafana import Inbox, Notification, start_grafana, wall
from simulate.demo.demo_lists import EVENTS, write_lists
from simulate.demo.past import Past
from simulate.demo.plan import Places, demo_cluster, demo_scenario, live_start, placed
from simulate.demo.stack import Part, command, fresh_folder
from simulate.demo.staged import live_scenario, script_from_now
from simulate.packets.udp import Clock as SimulatedClock
from simulate.packets.udp import Target, UdpEmitter
from simulate.packets.vpc_logs import VpcLogs, in_a_vpc
from simulate.scenarios.scenario import Scenario
from simulate.scenarios.script import Script
from simulate.traffic.workload import Workload
from simulate.truth.delivered import Account, account, on_the_wall, wall_differences
from simulate.truth.ground_truth import GroundTruth
from simulate.truth.reckoning import Reckoning, reckon
from simulate.truth.watch import Firing, Watch
from simulate.truth.written_moments import iso
from store import schema
from store.influx import Store
from store.influxql import Select, is_in, newest
from store.local_influxdb import LocalInfluxDB, free_port

MARK = ".clusterflow-demo"
_DELIVER = "deliver"
ENDLESS = 30 * 86_400

_LEAD_SECONDS, _GRAFANA_SECONDS = 12, 20
"""Time to start the processes before the live phase begins, and what a Grafana takes beyond it."""
_READY_SECONDS, _ALIVE_SECONDS = 60.0, 0.5
_REFRESH_SECONDS = 2.0
_QUIET_LINE_SECONDS = 15.0
_DRAIN_SECONDS = 45.0
_SETTLE_SECONDS = 40
"""How long after the last packet rules are still evaluated, if an alert is missing."""
_DELIVER_SECONDS = 75
"""How long after the last packet an alert may be delivered; after two minutes silent exporters would be alerts, too."""
_UNSENT_SECONDS = 15
"""Of what happened in the last seconds before ^C, records had not all been sent."""
_LOOK_SECONDS = 2.5
_BEFORE_SECONDS = 900
"""How long before the live phase an alert of it may have begun: rules look back."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run of the demo ended."""

    history: Reckoning
    live: Reckoning
    firings: tuple[Firing, ...]
    missing: tuple[str, ...]
    unexpected: tuple[Firing, ...]
    delivered: Account

    @property
    def is_right(self) -> bool:
        """Whether every total agrees, every incident was found and delivered, and nothing else."""
        wrong = self.missing or self.unexpected or self.delivered.differences
        return not (wrong or self.history.differences or self.live.differences)


class Demo:
    """One run.

    Args:
        base: the committed cluster.yaml.
        folder: where everything of the run is kept; emptied first.
        seconds: length of the live phase; None: until stopped.
        days: days of history.
        seed: of the simulation.
        grafana: home of a Grafana to start, or None.
        console: where to tell what happens.
        is_cloud: AWS VPC flow logs in a folder are the records, and no exporter sends.
        scenario: name or file of one to play, on its own cluster, with its own history.
    """

    def __init__(
        self,
        base: Path,
        folder: Path,
        *,
        seconds: int | None,
        days: int,
        seed: int | None,
        grafana: Path | None,
        console: Console,
        is_cloud: bool = False,
        scenario: str | None = None,
    ) -> None:
        self._name = scenario
        self._script: Script | None = None
        self._is_cloud, self._late = is_cloud, 0
        self._base = base
        self._folder = folder
        self._seconds = seconds
        self._days = days
        self._seed = seed
        self._grafana = grafana
        self._console = console
        self._stop = SignalEvent()
        self._inbox: Inbox | None = None
        self._running = ExitStack()
        self._parts: dict[str, Part] = {}
        self._evaluated = 0
        # When ^C ended the live phase early.
        self._cut: float | None = None

    def run(self) -> Outcome | None:
        """Play it to its end or until ^C; None if ^C came before the live phase. Stops everything it started."""
        previous = {n: signal.signal(n, lambda *_: self._stop.set()) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            with self._running:
                return self._run()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _run(self) -> Outcome | None:
        folder = self._folder = self._running.enter_context(fresh_folder(self._folder, MARK))
        influxdb = self._running.enter_context(LocalInfluxDB(folder / "influxdb"))
        ports = [free_port() for _ in range(4)]
        places = Places(
            store_url=influxdb.url,
            netflow_port=ports[0],
            sflow_port=ports[1],
            metrics_port=ports[2],
            spool=folder / "spool",
            state=folder / "state",
            folder=folder,
            pages_port=ports[3],
            grafana_url=f"http://127.0.0.1:{free_port()}" if self._grafana is not None else None,
            logs=folder / "logs" if self._is_cloud else None,
        )
        places.spool.mkdir()
        self._say(f"InfluxDB {influxdb.url}; everything of this run is in {folder}")
        # The days before end now; filling them in takes a while, and what of it passes is filled in last.
        now = live_start(datetime.now(UTC))
        cluster = self._configure(places, now)
        self._late = cluster.bridge.lateness if self._is_cloud else 0
        store = Store(cluster.store)
        self._running.callback(store.close)
        before = self._scenario(cluster, start=now, history_end=now, quiet=True)
        write_lists(folder, cluster, before.incidents, now)
        began = time.monotonic()
        past = Past(cluster, before, store, folder, stop=self._stop, progress=self._bar)
        if not (past.fill() and past.judge()):
            return None
        lead = _LEAD_SECONDS + (_GRAFANA_SECONDS if self._grafana is not None else 0)
        start = live_start(datetime.now(UTC), lead)
        if not past.catch_up(start):
            return None
        hours, took = (now - before.start) / 3_600, time.monotonic() - began
        counts = f"{past.records:,} flow records, {past.points:,} points"
        self._say(f"history: {hours:.3g} hours, {counts}, the last day judged; in {took:.0f} s")
        if self._is_cloud:
            with_switches = replace(cluster, exporters=load_cluster(self._base).exporters)
            known = {one.id for one in rules_of(with_switches).skipped}
            lost = [f"{one.id} ({one.reason})" for one in rules_of(cluster).skipped if one.id not in known]
            self._say(f"not shown, for a cloud's flow logs do not have it: {'; '.join(lost)}")
        scenario = self._scenario(cluster, start=start, history_end=now)
        if self._script is not None:
            first = min((one.start for one in scenario.incidents if one.start >= start), default=None)
            when = "nothing more is staged" if first is None else f"the first incident begins at {iso(first * 1000)}"
            self._say(f"{self._script.title}: {when}\n{self._script.about.strip()}")
        write_lists(self._folder, cluster, scenario.incidents, int(time.time()))
        self._start_parts(cluster)
        self._start_grafana(cluster.grafana.url, store)
        played = in_a_vpc(cluster) if self._is_cloud else cluster
        return self._live(cluster, Workload(played, scenario), store, past)

    @property
    def _config(self) -> Path:
        return self._folder / "cluster.yaml"

    def _configure(self, places: Places, history_end: int) -> Cluster:
        """Write the run's cluster.yaml; return the cluster."""
        if self._name is None:
            text = demo_cluster(load_cluster(self._base), start=history_end, places=places, history_days=self._days)
        else:
            self._script = script_from_now(self._name, self._seed, history_end)
            text = placed(self._script.cluster, places)
        self._config.write_text(text, encoding="utf-8")
        return load_cluster(self._config)

    def _scenario(self, cluster: Cluster, *, start: int, history_end: int, quiet: bool = False) -> Scenario:
        """Return what is played."""
        if self._script is not None:
            return live_scenario(self._script, start=start, history_end=history_end, seconds=self._seconds)
        return demo_scenario(
            cluster,
            start=start,
            # What passes while the days before are filled in has no end of its own.
            seconds=ENDLESS if quiet or self._seconds is None else self._seconds,
            seed=1 if self._seed is None else self._seed,
            history_days=self._days,
            history_end=history_end,
            quiet=quiet,
        )

    # -- processes ---------------------------------------------------------------------------------

    def _start_parts(self, cluster: Cluster) -> None:
        """Start bridge, analysis and, for packets, collector; they stop in the opposite order."""
        names = ("ingest", "analyze") if self._is_cloud else ("ingest", "analyze", "collect")
        parts = {name: self._part(name) for name in names}
        if self._is_cloud:
            Path(cluster.cloud.folder or "").mkdir()
        collector = cluster.collector

        def is_well() -> bool:
            try:
                return requests.get(f"http://{cluster.bridge.metrics_listen}/healthz", timeout=1).ok
            except requests.RequestException:
                return False

        ready: dict[str, Callable[[], bool]] = {
            "ingest": is_well,
            "collect": lambda: bool(udp_sockets(collector.netflow_port) and udp_sockets(collector.sflow_port)),
        }
        for name, part in parts.items():
            self._start(part)
            if name in ready:
                part.wait_until(ready[name], _READY_SECONDS)

    def _part(self, name: str) -> Part:
        return Part(name, command(name, self._config), self._folder / "log" / f"{name}.log")

    def _start(self, part: Part) -> None:
        part.start(os.environ | {"PYTHONUNBUFFERED": "1", "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"})
        self._running.callback(part.stop)
        self._parts[part.name] = part

    def _start_delivery(self) -> None:
        if _DELIVER not in self._parts:
            self._start(self._part(_DELIVER))

    def _end_delivery(self) -> tuple[str, ...]:
        """Stop `deliver` in order; return what was wrong with its end."""
        part = self._parts.get(_DELIVER)
        if part is None:
            return ()
        if part.is_running:
            # On a busy machine a short run may be over before it has begun, and can be told to stop.
            with suppress(ClusterflowError):
                part.wait_until(lambda: "event=started" in part.log.read_text(errors="replace"), _READY_SECONDS)
        part.stop()
        return (f"deliver ended with {part.exit_code}: {part.last_words()}",) if part.exit_code else ()

    def _start_grafana(self, url: str, store: Store) -> None:
        """Start Grafana with everything provisioned, if there is one."""
        if self._grafana is None:
            self._say("no Grafana found: set GRAFANA_HOME to see the boards; alerts are evaluated here all the same")
            return
        # Its rules look at once: who is just starting must not be called dead.
        deadline = time.monotonic() + _READY_SECONDS
        while not (self._stop.is_set() or self._are_alive(store, int(time.time()))) and time.monotonic() < deadline:
            time.sleep(_ALIVE_SECONDS)
        # It draws the pictures of Grafana's notifications.
        self._start_delivery()
        self._inbox = self._running.enter_context(Inbox())
        server = start_grafana(self._grafana, self._folder, self._config, url, self._inbox.url)
        self._running.callback(server.stop)
        self._say(f"the wall: {wall(url)}\nall boards: {url} (to change something: admin / admin)")

    # -- live --------------------------------------------------------------------------------------

    def _live(self, cluster: Cluster, workload: Workload, store: Store, past: Past) -> Outcome:
        truth = GroundTruth(workload)
        watch = Watch(Evaluator(store, rules_of(cluster).rules), workload.scenario.incidents)
        with _emitter(cluster, workload, truth) as emitter:
            trouble: list[BaseException] = []

            def send() -> None:
                try:
                    emitter.run(workload.batches(workload.scenario.live), SimulatedClock(), self._stop)
                except ClusterflowError as error:
                    trouble.append(error)

            sender = threading.Thread(target=send, name="exporters")
            sender.start()
            try:
                self._follow(cluster, workload.scenario, store=store, watch=watch, truth=truth, sender=sender)
            finally:
                self._cut = time.time() if self._stop.is_set() else None
                self._stop.set()
                sender.join()
            if trouble:
                raise trouble[0]
        truth.complete = True
        truth.write(self._folder / "truth.json")
        document = truth.document()

        def delivered() -> Account:
            return account(self._folder / EVENTS, watch.firings(), cluster, workload.scenario.incidents, document)

        def whole() -> Account:
            told = delivered()
            begin = workload.scenario.live.start - _BEFORE_SECONDS
            shown = on_the_wall(store, begin, int(time.time()))
            wrong = wall_differences(shown, watch.firings())
            return replace(told, differences=(*told.differences, *wrong), shown=shown.total())

        live, settled = self._settle(store, cluster, document, watch, whole)
        trouble_at_end = self._end_delivery()
        # The wall's table follows alerts that go on: it is compared while both look at the same moment.
        told = settled if settled.differences else replace(delivered(), shown=settled.shown)
        return Outcome(
            past.reckon(),
            live,
            tuple(watch.firings()),
            tuple(f"{owed.incident}: {owed.rule}" for owed in self._missing(watch)),
            tuple(watch.unexpected()),
            replace(told, differences=(*told.differences, *trouble_at_end)),
        )

    def _missing(self, watch: Watch) -> list[Owed]:
        """Return what should have fired but did not; what ^C cut short before its evidence was sent owes no alert."""
        by = math.inf if self._cut is None else self._cut - _UNSENT_SECONDS - self._late
        return [owed for owed in watch.missing() if owed.due <= by]

    def _follow(
        self,
        cluster: Cluster,
        scenario: Scenario,
        *,
        store: Store,
        watch: Watch,
        truth: GroundTruth,
        sender: threading.Thread,
    ) -> None:
        """Evaluate rules and show what happens until the live phase is over."""
        boards = "no Grafana: set GRAFANA_HOME to see the boards" if self._inbox is None else wall(cluster.grafana.url)
        drawn, shown = 0.0, False
        with self._screen() as view:
            while sender.is_alive() and not self._stop.is_set():
                now = time.time()
                for part in self._parts.values():
                    if not part.is_running:
                        raise ClusterflowError(f"{part.name} ended: {part.last_words()}", f"see {part.log}")
                if now >= scenario.live.start:
                    for firing in self._evaluate(watch, now, store):
                        if view is None:
                            self._say(screen.alert_line(firing))
                if view is None and not shown and self._notification is not None:
                    shown = True
                    self._console.print(screen.message(self._notification))
                pause = _REFRESH_SECONDS if view is not None else _QUIET_LINE_SECONDS
                if now - drawn >= pause:
                    drawn = now
                    left = None if self._seconds is None else scenario.live.end - now
                    reading = screen.read(store, cluster, cluster.bridge.shard)
                    if view is not None:
                        view.update(
                            screen.page(
                                reading,
                                watch.firings(),
                                sent_records=truth.records,
                                sent_bytes=truth.counted_bytes,
                                left=left,
                                notification=self._notification,
                                places=f"run {self._folder}   {boards}",
                            ),
                            refresh=True,
                        )
                    else:
                        begins = "" if now >= scenario.live.start else f", live in {scenario.live.start - now:.0f} s"
                        self._say(f"sent {truth.records:,} flow records{begins}")
                time.sleep(0.2)

    @property
    def _notification(self) -> Notification | None:
        """Return the first notification that Grafana sent; None before it came, or without a Grafana."""
        return self._inbox.received[0] if self._inbox is not None and self._inbox.received else None

    def _evaluate(self, watch: Watch, now: float, store: Store) -> list[Firing]:
        """Evaluate at the present tick once bridge and analysis have said that they live; return what is new.

        Before, there is nothing to judge, here and for those who deliver alerts. They must have said so before the
        tick: the rules look back from there, and a heartbeat of the seconds since would not save them from being called
        dead.
        """
        tick = int(now) // INTERVAL_SECONDS * INTERVAL_SECONDS
        if tick == self._evaluated:
            return []
        self._evaluated = tick
        if not self._are_alive(store, tick):
            return []
        self._start_delivery()
        return watch.tick(tick)

    def _are_alive(self, store: Store, moment: int) -> bool:
        """Whether bridge and analysis said so in the minute before a moment (epoch seconds), and the store answers."""
        asked = Select(schema.PIPELINE, schema.RAW).take(newest(schema.VALUE)).by(schema.STAGE)
        asked = asked.where(is_in(schema.REASON, [schema.HEARTBEAT])).between(moment - 60, moment)
        try:
            return {schema.Stage.BRIDGE, schema.Stage.ANALYSIS} <= {stage for _, stage, _ in store.rows(asked)}
        except StoreError:
            return False

    def _settle(
        self, store: Store, cluster: Cluster, document: dict[str, Any], watch: Watch, delivered: Callable[[], Account]
    ) -> tuple[Reckoning, Account]:
        """Wait for the last packets to arrive in the store, for alerts that are due, and for their events; compare."""
        self._say("the last packets are on their way")
        ended = time.monotonic()
        while True:
            waited = time.monotonic() - ended
            try:
                result = reckon(store, document, cluster.bridge.shard)
                fresh = self._evaluate(watch, time.time(), store)
                told = delivered()
            except StoreError:
                if waited > _DELIVER_SECONDS + self._late:
                    # It is gone: nothing can be compared any more.
                    raise
                result, fresh, told = None, [], None
            for firing in fresh:
                self._say(screen.alert_line(firing))
            is_whole = result is not None and not result.differences
            owes = bool(self._missing(watch)) and waited < _SETTLE_SECONDS + self._late
            if result is not None and told is not None:
                is_told = waited > _DELIVER_SECONDS + self._late or not told.differences
                if is_told and ((is_whole and not owes) or waited > _DRAIN_SECONDS + self._late):
                    return result, told
            time.sleep(_LOOK_SECONDS)

    # -- telling -----------------------------------------------------------------------------------

    @contextmanager
    def _screen(self) -> Iterator[Live | None]:
        if not self._console.is_terminal:
            yield None
            return
        with Live(console=self._console, auto_refresh=False, screen=False) as view:
            yield view

    def _bar(self) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def _emitter(
    cluster: Cluster, workload: Workload, truth: GroundTruth
) -> AbstractContextManager[UdpEmitter] | AbstractContextManager[VpcLogs]:
    """Return what sends packets, or writes logs."""
    if cluster.cloud.folder is not None:
        return nullcontext(VpcLogs(workload, Path(cluster.cloud.folder), truth))
    netflow, sflow = cluster.collector.netflow_port, cluster.collector.sflow_port
    return UdpEmitter(workload, truth, netflow=Target("127.0.0.1", netflow), sflow=Target("127.0.0.1", sflow))
