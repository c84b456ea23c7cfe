"""The process that delivers: sources to the spool, the spool to destinations; this module only wires and ticks."""

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.errors import ClusterflowError, StoreError, UserError
from app.log import Log
from cluster.model import (
    AlertsFrom,
    Cluster,
    Destination,
    ElasticDestination,
    FileDestination,
    KafkaDestination,
    SplunkDestination,
    SyslogDestination,
    WebhookDestination,
)
from delivery.alert_events import SOURCE, AlertBook, Report, report_of
from delivery.event import Document
from delivery.grafana_hook import GrafanaHook
from delivery.known_addresses import Directory, SignedIn
from delivery.outbox import Outbox
from delivery.parties import Nobody, Parties
from delivery.queue import Spool
from delivery.sender import FAILING, LOST, MOST_REFUSED, WAITING, Sender
from delivery.stored import Completeness, readings_of
from delivery.stored_rows import Reader, wanted
from delivery.ticks import Ticks
from delivery.transports.destination import Transport
from delivery.transports.file_transport import NdjsonFile
from delivery.transports.history_transport import DESTINATION as HISTORY_DESTINATION
from delivery.transports.history_transport import StoredHistory
from delivery.transports.http_transport import Elastic, Splunk, Webhook
from delivery.transports.kafka_transport import Kafka
from delivery.transports.syslog_transport import Syslog
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from operations.alert_history import open_alerts
from operations.sightings import Sightings
from rules.evaluate.evaluator import ERROR_ALERT, Evaluator
from rules.evaluate.states import Outcome, State, Transition
from rules.registry import rules_of
from rules.rule import INTERVAL_SECONDS, ErrorPolicy, Rule
from store import schema
from store.influx import Store, read_secret
from store.lease import Lease
from store.points import batches
from store.schema import Stage
from store.schema_version import NewerStoreError, refuse_newer

SHARD = "deliver"
"""Of our rows in the measurement `pipeline`."""

_TOLD_SECONDS = 10
_CHECKED_SECONDS = 10
"""How often it is looked whether the store is still of a schema that we know; one small question."""

_SAVED_SECONDS = 60
_STOP_SECONDS = 10.0
_DRAIN_SECONDS = 0.1
_COUNTERS = "counters.json"
_REFUSED = "refused.jsonl"
_EVENTS = "events"


TRANSPORTS: Mapping[type[Destination], Callable[[Any, Cluster], Transport]] = {
    SyslogDestination: lambda one, _: Syslog(one),
    SplunkDestination: lambda one, _: Splunk(one),
    ElasticDestination: lambda one, _: Elastic(one),
    KafkaDestination: lambda one, cluster: Kafka(one, cluster.kafka),
    WebhookDestination: lambda one, _: Webhook(one),
    FileDestination: lambda one, _: NdjsonFile(one),
}
"""What brings events to each kind of destination."""


def transport_of(destination: Destination, cluster: Cluster) -> Transport:
    """Return what brings events to a destination; UserError where its files or secrets cannot be used."""
    return TRANSPORTS[type(destination)](destination, cluster)


class Delivery:
    """All of it. `start`, then `tick` about every second, then `stop`.

    Args:
        cluster: what to deliver where.
        store: read from, and told how we are.
        log: for trouble.
        pauses: the first and the longest pause between two tries of a destination, in seconds.
        stopping: once it is set, a `tick` ends after the question that it waits for.
        lease: where another process may have led before.

    Raises:
        UserError: a setting cannot be used.
        StoreError: where there is a lease, what the one before left cannot be read.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        *,
        log: Log,
        pauses: tuple[float, float] | None = None,
        stopping: threading.Event | None = None,
        lease: Lease | None = None,
    ) -> None:
        settings = cluster.delivery
        takes_alerts = settings.alerts is not AlertsFrom.OFF
        if not settings.destinations and not takes_alerts:
            raise UserError(
                "delivery.destinations: none, and alerts are off: expected one of them", "docs/delivery.md has examples"
            )
        self.counters = Counters()
        self._cluster, self._store, self._log = cluster, store, log
        self._stopping = stopping or threading.Event()
        self._folder = Path(settings.state)
        self._spool = Spool(self._folder / "spool", settings.spool)
        if lease is not None and cluster.store.lease:
            names = [HISTORY_DESTINATION.name, *(one.name for one in settings.destinations)]
            try:
                self._spool.share(Outbox(store, lease), names)
            except BaseException:
                self._spool.close()
                raise
        self._load_counters()
        users = SignedIn(cluster) if cluster.identity.sources else Nobody()
        parties = Parties(cluster, Directory(store), users)
        self._rule_set = rules_of(cluster)
        noted: Mapping[str, Any] = self._spool.note(SOURCE) or {}
        sightings = Sightings(store)
        self._book = AlertBook(cluster, self._rule_set, parties, noted, sightings)
        self._book_lock = threading.Lock()
        self._evaluates = settings.alerts is AlertsFrom.EVALUATE
        by_errors = (rule.id for rule in self._rule_set.rules if rule.on_error is ErrorPolicy.ALERTING)
        self._by_errors = {ERROR_ALERT, *by_errors}
        # None until it knows what ticks of before say.
        self._evaluator: Evaluator | None = None
        self._ticks = Ticks(log)
        self._ticked_at: int | None = noted.get("ticked_at")
        self._readers = [
            Reader(reading, cluster, store, self._spool.note(f"reading.{reading.measurement.name}"), log)
            for reading in wanted(
                readings_of(cluster, parties, Completeness(cluster, store), sightings), settings.kinds()
            )
        ]
        dead = DeadLetters(self._folder / _REFUSED, max_line=MOST_REFUSED)
        more: dict[str, Any] = {} if pauses is None else {"pauses": pauses}
        receivers: list[tuple[Destination, Transport]] = [
            (destination, transport_of(destination, cluster)) for destination in settings.destinations
        ]
        self._history = StoredHistory(store) if takes_alerts else None
        if self._history is not None:
            receivers.append((HISTORY_DESTINATION, self._history))
        # Incident -> what its row in the history says.
        self._followed: dict[str, Document] = {}
        self.senders = [
            Sender(
                destination,
                transport,
                self._spool,
                counters=self.counters,
                dead=dead,
                log=log,
                may_send=lease.leads if lease is not None else lambda: True,
                **more,
            )
            for destination, transport in receivers
        ]
        self._spool.register([destination.name for destination, _ in receivers])
        if self._spool.broken:
            log.warning("spool_broken", what="the events in it are lost", moved_to=self._spool.broken)
        self._lost_before: dict[str, int] = {}
        self.hook: GrafanaHook | None = None
        if settings.alerts is AlertsFrom.GRAFANA:
            rules = {rule.id: rule for rule in self._rule_set.rules}
            self.hook = GrafanaHook(settings.listen, read_secret(settings.token).strip(), rules, self._take, log)
        self._due: dict[Callable[[float], None], float] = {}
        self._store_trouble = ""
        self._is_refused = False

    def start(self) -> None:
        """Begin to deliver, and to take what Grafana posts."""
        for sender in self.senders:
            sender.start()
        if self.hook is not None:
            self.hook.start()

    def tick(self, now: float) -> None:
        """Do what is due at an epoch second; trouble with store or disk is reported, and tried again.

        Raises:
            NewerStoreError: a newer clusterflow has upgraded the store meanwhile; what is left to do is `stop`.
        """
        periods: dict[Callable[[float], None], float] = {
            # Before all that reads it.
            self._check: _CHECKED_SECONDS,
            self._evaluate: INTERVAL_SECONDS,
            self._follow: INTERVAL_SECONDS,
            self._read: self._cluster.delivery.every,
            self._tell: _TOLD_SECONDS,
            self._save: _SAVED_SECONDS,
        }
        for step, period in periods.items():
            due = self._due.get(step, 0.0)
            # A clock that was set back must not keep us waiting for where it was.
            if now >= due or now < due - 2 * period:
                self._due[step] = now - now % period + period
                self._try(step, now)

    @property
    def reached(self) -> int:
        """The latest epoch second that it has looked at, also before a restart."""
        return max([self._ticked_at or 0, *(reader.reached for reader in self._readers)])

    @property
    def is_behind(self) -> bool:
        """Whether rules are still to be evaluated at ticks that were missed."""
        return self._ticks.is_behind and not self._stopping.is_set()

    def drain(self, seconds: float, names: Collection[str] = ()) -> list[str]:
        """Wait until every destination, or those of these names, has everything; return those that have not in time.

        It does not wait once `stopping` is set.
        """
        ends = time.monotonic() + seconds
        wanted = names or [one.destination.name for one in self.senders]
        while behind := [name for name in wanted if self._spool.waiting(name)]:
            if time.monotonic() > ends or self._stopping.wait(_DRAIN_SECONDS):
                break
        return behind

    def stop(self, now: float) -> None:
        """End in order; what is not delivered stays in the spool."""
        if self.hook is not None:
            self.hook.stop()
        for sender in self.senders:
            sender.stop(_STOP_SECONDS)
        self._try(self._save, now)
        if not self._is_refused:
            self._try(self._tell, now)
        self._spool.close()

    def health(self) -> str:
        """Return why we are not well; empty if we are."""
        unnoted = [one.destination.name for one in self.senders if one.unnoted_seconds() > _SAVED_SECONDS]
        failing = [one.destination.name for one in self.senders if one.away_seconds() > _SAVED_SECONDS]
        troubles = [self._store_trouble] if self._store_trouble else []
        troubles += [f"nothing gets through to {', '.join(failing)}"] if failing else []
        troubles += [f"what has got through to {', '.join(unnoted)} cannot be noted"] if unnoted else []
        return "; ".join(troubles)

    # -- steps -------------------------------------------------------------------------------------------

    def _try(self, step: Callable[[float], None], now: float) -> None:
        try:
            step(now)
        except NewerStoreError:
            self._is_refused = True
            raise
        except StoreError as error:
            self._check_first()
            self._store_trouble = error.message
            self._log.sparse("store_failed", why=" ".join(error.lines()))
        except ClusterflowError as error:
            self._log.sparse("spool_failed", why=" ".join(error.lines()))
        except OSError as error:
            self._log.sparse("disk_failed", why=str(error))

    def _check(self, now: float) -> None:
        """Refuse a store that was upgraded under us: what it says might be read wrongly."""
        del now
        try:
            refuse_newer(self._store)
        except StoreError as error:
            # Readers report it. Its mark alone may be kept from us, which is asked for no more often then.
            self._log.sparse("schema_unknown", why=" ".join(error.lines()))

    def _check_first(self) -> None:
        """Look at the store's schema before anything else at the next tick: who was away may come back as another."""
        self._due.pop(self._check, None)

    def _evaluate(self, now: float) -> None:
        """Evaluate the rules at the present tick, and after a pause at those that were missed; all else in between.

        While the store answers nothing but errors, that alone is reported: what fires is as it was, and the ticks are
        made up for when it is back.
        """
        if not self._evaluates:
            return
        end = int(now) - int(now) % INTERVAL_SECONDS
        evaluator = self._evaluator
        if evaluator is None:
            evaluator = self._new_evaluator()
            if _all_failed(evaluator.tick(end), end):
                self._tell_of_errors(evaluator)
                return
            # What is pending, or keeps firing, is reported by ticks of before.
            evaluator = self._new_evaluator()
            self._ticks.begin(self._ticked_at, end, max((one.remembered() for one in evaluator.rules), default=0))
            with self._book_lock:
                self._book.adopt(open_alerts(self._store, self._ticks.told_from))
        for tick in self._ticks.until(end):
            evaluator, moment = self._new_evaluator() if tick.is_new else evaluator, tick.moment
            told = evaluator.tick(moment, tick.since)
            if _all_failed(told, moment):
                # It has missed a tick now: when the store is back, another one begins with what that knows.
                self._evaluator = None
                if moment == end:
                    self._tell_of_errors(evaluator)
                return
            self._evaluator = evaluator
            if tick.is_told:
                # Those that are not due now, too: a new evaluator knows nothing of them.
                failed = _failed(told, moment) | set(evaluator.failing)
                # What the errors themselves made fire ends at the present, not at a tick from before they began.
                self._tell_of_alerts(evaluator, moment, failed if moment == end else failed | self._by_errors)
                self._ticked_at = moment
            if self._stopping.is_set():
                return
        if self._ticks.is_behind:
            # It goes on as soon as the rest has had its turn.
            self._due.pop(self._evaluate, None)

    def _new_evaluator(self) -> Evaluator:
        return Evaluator(self._store, self._rule_set.rules, datasource=self._cluster.grafana.datasource_uid)

    def _tell_of_alerts(self, evaluator: Evaluator, moment: int, blind: Collection[str]) -> None:
        alerts = evaluator.alerts()
        if moment < self._ticks.starting_until:
            alerts = [alert for alert in alerts if alert.reason != Outcome.NO_DATA]
        firing = [report_of(alert) for alert in alerts if alert.is_firing]
        pending = [report_of(alert) for alert in alerts if not alert.is_firing]
        with self._book_lock:
            self._keep_alerts(self._book.take_all(firing, moment, pending=pending, blind=blind), moment)

    def _tell_of_errors(self, evaluator: Evaluator) -> None:
        firing = [report_of(alert) for alert in evaluator.alerts() if alert.is_firing]
        with self._book_lock:
            self._keep_alerts(self._book.take(firing, may_renew=True), self._ticked_at)

    def _take(self, reports: Sequence[Report]) -> None:
        """Keep alerts that Grafana posted."""
        with self._book_lock:
            self._keep_alerts(self._book.take(reports), None)

    def _keep_alerts(self, events: Sequence[Document], ticked_at: int | None) -> None:
        # Ticks without events are saved now and then; what Grafana posted is ours alone to remember.
        if not events and self._evaluates:
            return
        notes = {**self._book.notes(), "ticked_at": ticked_at}
        try:
            self._append(events, {SOURCE: notes})
        except ClusterflowError:
            self._book.undo()
            raise

    def _follow(self, now: float) -> None:
        """Keep the history's rows of what fires up to date, once it has their begins."""
        if self._history is None or self._spool.waiting(HISTORY_DESTINATION.name):
            return
        with self._book_lock:
            firing = {str(event["incident"]): event for event in self._book.firing(now)}
        changed = [event for incident, event in firing.items() if self._followed.get(incident) != event]
        if changed:
            self._history.follow(changed)
        self._followed = firing

    def _read(self, now: float) -> None:
        """Look for what is new in the store."""
        for reader in self._readers:
            for events, cursor in reader.poll(now):
                if events:
                    self._append(events, {reader.name: cursor.notes()})
                reader.adopt(cursor)
                if self._stopping.is_set():
                    return
        self._store_trouble = ""

    def _append(self, events: Sequence[Document], notes: Mapping[str, object]) -> None:
        self._spool.append(events, notes)
        self.counters.add(Stage.DELIVER, _EVENTS, len(events))

    def _tell(self, now: float) -> None:
        """Write counters and readings to the store."""
        self.refresh(now)
        points = self.counters.points(int(now), SHARD)
        for lines, _ in batches(schema.PIPELINE, points):
            self._store.write(lines, schema.PIPELINE.kept)

    def refresh(self, now: float) -> None:
        """Bring the readings up to date."""
        read = self.counters.read
        for sender in self.senders:
            name = sender.destination.name
            read(Stage.DELIVER, f"{name}.{WAITING}", self._spool.waiting(name))
            read(Stage.DELIVER, f"{name}.{FAILING}", sender.failing_seconds())
        for name, lost in self._spool.lost().items():
            self.counters.add(Stage.DELIVER, f"{name}.{LOST}", lost - self._lost_before.get(name, 0))
            self._lost_before[name] = lost
        read(Stage.DELIVER, "spool_bytes", self._spool.size())
        read(Stage.DELIVER, "damaged", self._spool.damaged())
        read(Stage.DELIVER, "alerts_open", self._book.open)
        read(Stage.DELIVER, schema.HEARTBEAT, max((one.behind(now) for one in self._readers), default=0.0))

    def _save(self, now: float) -> None:
        """Save what has no event to be saved with: how far everything was read, and counters."""
        del now
        notes = {reader.name: notes for reader in self._readers if (notes := reader.notes()) is not None}
        with self._book_lock:
            self._spool.append([], {**notes, SOURCE: {**self._book.notes(), "ticked_at": self._ticked_at}})
        fresh = self._folder / f"{_COUNTERS}.new"
        fresh.write_text(json.dumps(self.counters.dump()), encoding="utf-8")
        fresh.replace(self._folder / _COUNTERS)

    def _load_counters(self) -> None:
        with suppress(OSError, ValueError, TypeError):
            self.counters.load(json.loads((self._folder / _COUNTERS).read_text(encoding="utf-8")))


def _failed(told: Sequence[tuple[Rule, Transition]], moment: int) -> set[str]:
    """Return the rules whose questions were answered with an error at a tick, whatever they make of it."""
    return {
        rule.id
        for rule, transition in told
        if transition.after.evaluated_at == moment
        and (transition.after.state is State.ERROR or transition.after.reason.startswith(Outcome.ERROR.value))
    }


def _all_failed(told: Sequence[tuple[Rule, Transition]], moment: int) -> bool:
    """Whether no question of a tick was answered."""
    return bool(told) and _failed(told, moment) == {rule.id for rule, _ in told}
