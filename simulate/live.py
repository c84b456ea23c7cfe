"""The demo: a live cluster on one machine, from real packets to alerts, and at the end a reckoning.

InfluxDB, pmacct's daemons, the bridge, the analysis and, where there is one, Grafana run as processes of their own, as
they would in earnest; the simulator and the rules' evaluator run here.
"""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from cluster import schema
from cluster.errors import ClusterflowError, StoreError
from cluster.load import load_cluster
from cluster.model import Cluster
from cluster.signals import SignalEvent
from ingest import counter_files
from ingest.bridge import Bridge
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from ingest.local_influxdb import LocalInfluxDB, free_port
from ingest.logs import Log
from ingest.normalise import Clock
from ingest.spool import Spool
from ingest.store import Store
from rules.evaluate import Evaluator
from rules.model import INTERVAL_SECONDS
from rules.registry import rules_of
from simulate import screen
from simulate.delivered import Account, account
from simulate.demo import Places, demo_cluster, demo_scenario, live_start
from simulate.demo_lists import EVENTS, write_lists
from simulate.reckoning import Reckoning, reckon
from simulate.scenario import Scenario
from simulate.spool import SpoolWriter
from simulate.stack import Part, command, fresh_folder, has_socket
from simulate.truth import GroundTruth
from simulate.udp import Clock as SimulatedClock
from simulate.udp import Target, UdpEmitter
from simulate.watch import Firing, Watch
from simulate.workload import Workload

MARK = ".clusterflow-demo"
HISTORY_SHARD = "history"
_DELIVER = "deliver"
ENDLESS = 30 * 86_400

_LEAD_SECONDS = 12
"""Time to start the processes before the live phase begins."""
_READY_SECONDS = 30.0
_REFRESH_SECONDS = 2.0
_QUIET_LINE_SECONDS = 15.0
_DRAIN_SECONDS = 45.0
_SETTLE_SECONDS = 40
"""How long after the last packet rules are still evaluated, if an alert is missing."""
_DELIVER_SECONDS = 75
"""How long after the last packet an alert may be delivered; after two minutes silent exporters would be alerts, too."""
_LOOK_SECONDS = 2.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run of the demo ended."""

    history: Reckoning | None
    live: Reckoning
    firings: tuple[Firing, ...]
    missing: tuple[str, ...]
    unexpected: tuple[Firing, ...]
    delivered: Account

    @property
    def is_right(self) -> bool:
        """Whether every total agrees, every incident was found and delivered, and nothing else."""
        totals = [self.live, *([self.history] if self.history else [])]
        wrong = self.missing or self.unexpected or self.delivered.differences
        return not (wrong or any(one.differences for one in totals))


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
    """

    def __init__(
        self,
        base: Path,
        folder: Path,
        *,
        seconds: int | None,
        days: int,
        seed: int,
        grafana: Path | None,
        console: Console,
    ) -> None:
        self._base = base
        self._folder = folder
        self._seconds = seconds
        self._days = days
        self._seed = seed
        self._grafana = grafana
        self._console = console
        self._stop = SignalEvent()
        self._grafana_url = ""
        self._running = ExitStack()
        self._parts: dict[str, Part] = {}
        self._evaluated = 0

    def run(self) -> Outcome | None:
        """Play it to its end or until ^C; None if ^C came before the live phase. Stops everything it started."""
        previous = {n: signal.signal(n, lambda *_: self._stop.set()) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            with self._running:
                return self._run(self._running)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _run(self, running: ExitStack) -> Outcome | None:
        folder = self._folder = running.enter_context(fresh_folder(self._folder, MARK))
        influxdb = running.enter_context(LocalInfluxDB(folder / "influxdb"))
        ports = [free_port() for _ in range(3)]
        places = Places(
            store_url=influxdb.url,
            netflow_port=ports[0],
            sflow_port=ports[1],
            metrics_port=ports[2],
            spool=folder / "spool",
            state=folder / "state",
            folder=folder,
        )
        places.spool.mkdir()
        self._say(f"InfluxDB {influxdb.url}; everything of this run is in {folder}")
        # The days before end now; filling them in takes a while, and the live phase begins when that is done.
        now = live_start(datetime.now(UTC), 10)
        cluster, scenario = self._stage(places, start=now, history_end=now)
        store = Store(cluster.store)
        running.callback(store.close)
        history = self._fill(cluster, Workload(cluster, scenario), store) if scenario.history else None
        if self._stop.is_set():
            return None
        start = live_start(datetime.now(UTC), 10, _LEAD_SECONDS)
        cluster, scenario = self._stage(places, start=start, history_end=now)
        self._start_parts(running, self._config, cluster)
        self._start_grafana(running, self._config)
        return self._live(cluster, Workload(cluster, scenario), store, history)

    @property
    def _config(self) -> Path:
        return self._folder / "cluster.yaml"

    def _stage(self, places: Places, *, start: int, history_end: int) -> tuple[Cluster, Scenario]:
        """Write the run's cluster.yaml and the files that it names; return the cluster and what is played on it."""
        text = demo_cluster(
            load_cluster(self._base), start=start, places=places, history_days=self._days, history_end=history_end
        )
        self._config.write_text(text, encoding="utf-8")
        cluster = load_cluster(self._config)
        scenario = demo_scenario(
            cluster,
            start=start,
            seconds=self._seconds or ENDLESS,
            seed=self._seed,
            history_days=self._days,
            history_end=history_end,
        )
        write_lists(self._folder, cluster, scenario.incidents, int(time.time()))
        return cluster, scenario

    # -- history -----------------------------------------------------------------------------------

    def _fill(self, cluster: Cluster, workload: Workload, store: Store) -> Reckoning | None:
        """Simulate the days before and read them in, as an old spool would be; None if ^C came before the end."""
        phase = workload.scenario.history
        if phase is None:
            raise ValueError("the scenario has no history")
        truth = GroundTruth(workload)
        spool = self._folder / "history"
        with self._bar() as bar:
            task = bar.add_task("simulating the days before", total=phase.end - phase.start)
            with SpoolWriter(workload, spool, truth) as writer:
                for batch in workload.batches(phase):
                    if self._stop.is_set():
                        return None
                    writer.write(batch)
                    bar.update(task, completed=batch.until / 1000 - phase.start)
            source = Spool(spool, once=True)
            polls = spool / counter_files.FOLDER
            counters_source = Spool(polls, once=True) if polls.is_dir() else None
            task = bar.add_task("reading them in", total=source.backlog_bytes())
            bridge = Bridge(
                replace(cluster, bridge=replace(cluster.bridge, shard=HISTORY_SHARD)),
                store,
                source,
                clock=Clock.BACKFILL,
                state=self._folder / "state-history",
                dead_letter=DeadLetters(self._folder / "history-dead-letters.jsonl"),
                stop=self._stop,
                log=Log(quiet=True),
                counters=Counters(),
                counters_source=counters_source,
            )
            summary = bridge.run(lambda count: bar.advance(task, count))
            source.close()
        if self._stop.is_set():
            return None
        document = truth.document()
        result = reckon(store, document, HISTORY_SHARD)
        self._say(
            f"history: {self._days} days, {summary.records:,} flow records, {summary.points:,} points "
            f"in {summary.seconds:.0f} s"
        )
        return result

    # -- processes ---------------------------------------------------------------------------------

    def _start_parts(self, running: ExitStack, config: Path, cluster: Cluster) -> None:
        """Start bridge, analysis and collector; they stop in the opposite order."""
        parts = {name: self._part(name, config) for name in ("ingest", "analyze", "collect")}
        collector = cluster.collector

        def is_well() -> bool:
            try:
                return requests.get(f"http://{cluster.bridge.metrics_listen}/healthz", timeout=1).ok
            except requests.RequestException:
                return False

        ready: dict[str, Callable[[], bool]] = {
            "ingest": is_well,
            "collect": lambda: has_socket(collector.netflow_port) and has_socket(collector.sflow_port),
        }
        for name, part in parts.items():
            self._start(part, running)
            if name in ready:
                part.wait_until(ready[name], _READY_SECONDS)

    def _part(self, name: str, config: Path) -> Part:
        return Part(name, command(name, config), self._folder / "log" / f"{name}.log")

    def _start(self, part: Part, running: ExitStack) -> None:
        part.start(os.environ | {"PYTHONUNBUFFERED": "1", "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"})
        running.callback(part.stop)
        self._parts[part.name] = part

    def _end_delivery(self) -> tuple[str, ...]:
        """Stop `deliver` in order; return what was wrong with its end."""
        part = self._parts.get(_DELIVER)
        if part is None:
            return ()
        part.stop()
        return (f"deliver ended with {part.exit_code}: {part.last_words()}",) if part.exit_code else ()

    def _start_grafana(self, running: ExitStack, config: Path) -> None:
        """Start Grafana with everything provisioned, if there is one."""
        home = self._grafana
        if home is None:
            self._say("no Grafana found: set GRAFANA_HOME to see the boards; alerts are evaluated here all the same")
            return
        built = self._folder / "provisioning"
        grafana = built / "grafana"
        arguments = ("--out", str(built), "--grafana-folder", str(grafana))
        build = Part("build", command("build", config, *arguments), self._folder / "log" / "build.log")
        build.start()
        build.wait_until(lambda: not build.is_running, _READY_SECONDS)
        port = free_port()
        data = self._folder / "grafana"
        environment = os.environ | {
            "GF_PATHS_PROVISIONING": str(grafana),
            "GF_PATHS_DATA": str(data),
            "GF_PATHS_LOGS": str(data / "log"),
            "GF_PATHS_PLUGINS": str(data / "plugins"),
            "GF_SERVER_HTTP_ADDR": "127.0.0.1",
            "GF_SERVER_HTTP_PORT": str(port),
            "GF_SERVER_ROOT_URL": f"http://127.0.0.1:{port}/",
            "GF_AUTH_ANONYMOUS_ENABLED": "true",
            "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
            "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": str(grafana / "dashboards" / "noc-wall.json"),
            "GF_ANALYTICS_REPORTING_ENABLED": "false",
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
            "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
            "GF_NEWS_NEWS_FEED_ENABLED": "false",
            # A contact point needs an address, or Grafana does not start; this one answers nobody.
            "CLUSTERFLOW_NOC_WEBHOOK": os.environ.get("CLUSTERFLOW_NOC_WEBHOOK", "http://127.0.0.1:9/"),
        }
        server = Part("grafana", _grafana_command(home), self._folder / "log" / "grafana.log")
        server.start(environment)
        running.callback(server.stop)
        url = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            try:
                return requests.get(f"{url}/api/health", timeout=1).ok
            except requests.RequestException:
                return False

        server.wait_until(answers, 3 * _READY_SECONDS)
        self._grafana_url = url
        self._say(f"Grafana: {url} (admin / admin)")

    # -- live --------------------------------------------------------------------------------------

    def _live(self, cluster: Cluster, workload: Workload, store: Store, history: Reckoning | None) -> Outcome:
        truth = GroundTruth(workload)
        watch = Watch(Evaluator(store, rules_of(cluster).rules), workload.scenario.incidents)
        target = [Target("127.0.0.1", port) for port in (cluster.collector.netflow_port, cluster.collector.sflow_port)]
        with UdpEmitter(workload, truth, netflow=target[0], sflow=target[1]) as emitter:
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
                self._stop.set()
                sender.join()
            if trouble:
                raise trouble[0]
        truth.complete = True
        truth.write(self._folder / "truth.json")
        document = truth.document()

        def delivered() -> Account:
            return account(self._folder / EVENTS, watch.firings(), cluster, workload.scenario.incidents, document)

        live = self._settle(store, cluster, document, watch, delivered)
        trouble_at_end = self._end_delivery()
        told = delivered()
        return Outcome(
            history,
            live,
            tuple(watch.firings()),
            tuple(
                f"{owed.incident}: {owed.rule}"
                for owed in watch.missing()
                # An incident that ^C cut short owes no alert.
                if self._seconds is not None or owed.start < time.time() - _SETTLE_SECONDS
            ),
            tuple(watch.unexpected()),
            replace(told, differences=(*told.differences, *trouble_at_end)),
        )

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
        places = f"run {self._folder}   Grafana {self._grafana_url or 'not found: set GRAFANA_HOME to see the boards'}"
        drawn = 0.0
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
                                places=places,
                            ),
                            refresh=True,
                        )
                    else:
                        begins = "" if now >= scenario.live.start else f", live in {scenario.live.start - now:.0f} s"
                        self._say(f"sent {truth.records:,} flow records{begins}")
                time.sleep(0.2)

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
        heartbeats = store.query(
            f'SELECT last("{schema.VALUE.name}") FROM "{schema.RAW}"."{schema.PIPELINE.name}" '  # noqa: S608 - schema's names
            f"WHERE \"{schema.REASON}\" = '{schema.HEARTBEAT}' AND time >= {tick - 60}s AND time < {tick}s "
            f'GROUP BY "{schema.STAGE}"'
        )
        if not {schema.Stage.BRIDGE, schema.Stage.ANALYSIS} <= {series.tags[schema.STAGE] for series in heartbeats}:
            return []
        if _DELIVER not in self._parts:
            self._start(self._part(_DELIVER, self._config), self._running)
        return watch.tick(tick)

    def _settle(
        self, store: Store, cluster: Cluster, document: dict[str, Any], watch: Watch, delivered: Callable[[], Account]
    ) -> Reckoning:
        """Wait for the last packets to arrive in the store, for alerts that are due, and for their events; compare."""
        self._say("the last packets are on their way")
        ended = time.monotonic()
        while True:
            try:
                result = reckon(store, document, cluster.bridge.shard)
                fresh = self._evaluate(watch, time.time(), store)
            except StoreError:
                result, fresh = None, []
            for firing in fresh:
                self._say(screen.alert_line(firing))
            waited = time.monotonic() - ended
            is_whole = result is not None and not result.differences
            owes = bool(watch.missing()) and self._seconds is not None and waited < _SETTLE_SECONDS
            is_told = waited > _DELIVER_SECONDS or not delivered().differences
            if result is not None and is_told and ((is_whole and not owes) or waited > _DRAIN_SECONDS):
                return result
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


def find_grafana() -> Path | None:
    """Return the home of a Grafana: GRAFANA_HOME, or where the one on the PATH lives."""
    named = os.environ.get("GRAFANA_HOME")
    if named:
        return Path(named)
    for name in ("grafana-server", "grafana"):
        found = shutil.which(name)
        if found:
            home = Path("/usr/share/grafana")
            return home if home.is_dir() else Path(found).resolve().parent.parent
    return None


def _grafana_command(home: Path) -> list[str]:
    binary = next((p for p in (home / "bin" / "grafana", Path(shutil.which("grafana") or "")) if p.is_file()), None)
    if binary is not None:
        return [str(binary), "server", "--homepath", str(home)]
    return [str(home / "bin" / "grafana-server"), "--homepath", str(home)]
