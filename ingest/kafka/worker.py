"""A worker: one member of the consumer group that shares the partitions of the flows topic.

The order of each flush is what makes it exact: first a transaction with what changed in memory and the offsets that it
is of, then the points, as whole totals. A transaction of a worker that the group has thrown out is refused, and then
nothing of it is written. Whoever gets a partition begins with what the last transaction says, and writes all of it
again, because it is unknown which points came to be written.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import polars as pl
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from app.errors import ClusterflowError, StoreError, UserError
from app.log import Log
from archive.merger import Merger
from archive.partition import Marks, tidy_idle
from cluster.model import Cluster
from cluster.reload import Reload
from ingest.counters import Counters, Key
from ingest.dead_letter import DeadLetters
from ingest.flows.enriching import Enrichment
from ingest.flows.normalise import Clock, Normaliser
from ingest.kafka.client import (
    REFUSED_SECONDS,
    KafkaUnavailableError,
    RefusedError,
    Topics,
    Trouble,
    ensure_topics,
    explain,
    newest_values,
    open_consumer,
    open_producer,
    topic_id,
)
from ingest.kafka.commit import Committer
from ingest.kafka.lease import Lease, LeaseError
from ingest.kafka.partition import PartitionWork, Points, Surroundings, archive_settings
from ingest.kafka.partition_state import remembered
from ingest.readings import listed_since, resident_bytes
from ingest.renewal import Renewal
from ingest.writer import StoppedError, Writer
from store import schema
from store.influx import REQUEST_SECONDS, Store
from store.influxql import Select, ago, highest
from store.schema import RAW, Measurement, Stage

_BATCH_BYTES = 16 << 20
_POLL_SECONDS = 0.2
_MERGE_ROWS = 500_000
_MOST_ROWS = 1_000_000
"""Partial points in memory while the store is away; beyond them the brokers keep what comes."""

_QUEUE_KILOBYTES = 32 << 10
_ROLLUP_SECONDS = 60.0
_HEALTHY_SECONDS = 60.0
_RETRY_SECONDS = 1.0
_TIDY_SECONDS = 600.0
_BROKER_SECONDS = 10.0
_LONGEST_ROUND_MS = 300_000
"""Kafka's own max.poll.interval.ms; what is done between two looks at the topic takes a fraction of it."""

_HANDOVER_SECONDS = 15.0
"""How long the group waits for our last points when a partition goes to another worker, which writes them anyhow."""

_HEARD_SECONDS = 3600
_STEP_SECONDS = 5.0
"""How far the wall clock goes away from the monotonic one before it counts as set."""

_AT_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - that is how the library names its own errors
_NOT_THERE = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Errand:
    """What the sending thread has to do.

    Attributes:
        works: whose points these are.
        points: to write.
        rolls_up: whether to bring their rollups up to date.
        asks: whether to ask when others heard the exporters.
        term: of the lease.
    """

    works: tuple[PartitionWork, ...]
    points: Points
    rolls_up: bool
    asks: bool
    term: int


class KafkaWorker:
    """One process of the group.

    Args:
        cluster: what is known about the cluster; UserError if it names no brokers.
        store: where points go.
        dead_letter: where bad records go.
        stop: set it to end in order.
        log: where it tells what it does.
        time_zone: of times that pmacct prints without one.
        archive: folder of the flow archive; None: none is kept.
        reload: asked for another configuration while it works.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        *,
        dead_letter: DeadLetters,
        stop: threading.Event,
        log: Log,
        time_zone: str = "UTC",
        archive: Path | None = None,
        reload: Reload | None = None,
    ) -> None:
        if not cluster.kafka.brokers:
            raise UserError("kafka.brokers: none: expected the brokers to ask first", "list them in cluster.yaml")
        self._kafka = cluster.kafka
        self._settings = cluster.bridge
        self._stop = stop
        self._log = log
        self._store = store
        # What it counts belongs to all partitions of a request together.
        self._sent = Counters()
        self._writer = Writer(
            store,
            cluster.retentions(),
            shard=cluster.bridge.shard,
            counters=self._sent,
            stop=stop,
            log=log,
            permit=self._permit,
        )
        self._around = Surroundings(
            cluster=cluster,
            store=store,
            writer=self._writer,
            normaliser=Normaliser(cluster, Clock.LIVE),
            enrichment=Enrichment(cluster, log),
            dead_letter=dead_letter,
            log=log,
            started=time.time(),
            time_zone=time_zone,
            takeover_seconds=self._kafka.session_timeout + REQUEST_SECONDS,
            archive=archive,
            # One for all: an hour that ends is sorted partition by partition, or memory would not do.
            merger=Merger(),
        )
        self._renewal = None if reload is None else Renewal(reload, log)
        self._tidier = ThreadPoolExecutor(1, "tidy")
        self._tidying: Future[None] | None = None
        self._tidied = float("-inf")
        self._trouble = Trouble(self._kafka)
        self._lease = Lease(self._kafka.session_timeout)
        self._term: int | None = None
        self._works: dict[int, PartitionWork] = {}
        self._topics: Topics
        self._consumer: Consumer
        self._committer: Committer
        self._sender = ThreadPoolExecutor(1, "write")
        self._sending: tuple[_Errand, Future[bool]] | None = None
        self._unwritten: tuple[PartitionWork, ...] = ()
        self._elsewhere: dict[str, float] = {}
        self._asked: float | None = None
        self._clock_ahead = time.time() - time.monotonic()
        self._is_paused = self._is_broken = False
        self._is_refused = False
        self._has_begun = False
        self._flushed = self._reported = self._rolled = self._alive = self._remembered = time.monotonic()

    def health(self) -> str:
        """Return why the worker is not well; empty if it is."""
        now = time.monotonic()
        if now - self._alive > _HEALTHY_SECONDS:
            return f"no member of the group for {now - self._alive:.0f} s: is Kafka there?"
        if self._is_refused and now - self._remembered > _HEALTHY_SECONDS:
            return f"nothing committed for {now - self._remembered:.0f} s: {self._committer.refused}"
        if self._sending is not None and now - self._writer.answered > _HEALTHY_SECONDS:
            return f"no points stored for {now - self._writer.answered:.0f} s: is InfluxDB there?"
        return ""

    def counters(self) -> dict[str, Counters]:
        """Return what was counted, by shard, and by the worker itself."""
        return {work.shard: work.counters for work in list(self._works.values())} | {"": self._sent}

    def run(self) -> None:
        """Work until `stop` is set.

        Raises:
            UserError: Kafka or InfluxDB refuses us, or the state is not ours to read.
        """
        with contextlib.suppress(StoppedError):
            self._topics = self._patiently(lambda: ensure_topics(self._kafka))
            number = self._patiently(lambda: topic_id(self._kafka, self._topics.flows))
            self._around = replace(self._around, topic_id=number)
            self._writer.prepare()
            self._join()
            try:
                while not self._stop.is_set():
                    self._round()
            except BaseException:
                # What is in memory may be half of something: the brokers have all of it.
                self._is_broken = True
                self._stop.set()
                raise
            finally:
                self._leave()

    def _patiently(self, attempt: Callable[[], _T]) -> _T:
        """Return what an attempt at the brokers gives; try again as long as none answers.

        What they refuse at first is the user's mistake; later it may be a broker that has just started.
        """
        begun = time.monotonic()
        while True:
            try:
                return attempt()
            except (KafkaUnavailableError, RefusedError) as error:
                is_known = self._has_begun and time.monotonic() - begun < REFUSED_SECONDS
                if isinstance(error, RefusedError) and not is_known:
                    raise
                if not self._stop.is_set():
                    self._log.sparse("kafka_unavailable", why=error.message)
                if self._stop.wait(_RETRY_SECONDS):
                    raise StoppedError("stopped while Kafka was away") from error

    # -- the group ---------------------------------------------------------------------------------

    def _join(self) -> None:
        timeout_ms = self._kafka.session_timeout * 1000
        name = f"{self._kafka.group}-{uuid.uuid4().hex}"
        self._committer = Committer(
            lambda: open_producer(
                self._kafka,
                Trouble(self._kafka),
                transactional_id=name,
                # A successor waits for what we leave open, and comes after the session timeout.
                transaction_timeout_ms=timeout_ms,
                compression_type="lz4",
                linger_ms=5,
            ),
            state_topic=self._topics.state,
            topic=self._topics.flows,
            explain=lambda error: explain(error, self._kafka),
            log=self._log,
        )
        self._consumer = open_consumer(
            self._kafka,
            self._trouble,
            partition_assignment_strategy="cooperative-sticky",
            session_timeout_ms=timeout_ms,
            heartbeat_interval_ms=timeout_ms // 15,
            max_poll_interval_ms=max(_LONGEST_ROUND_MS, timeout_ms),
            enable_partition_eof=True,
            # What is not there any more is counted, in `_pass_over`.
            auto_offset_reset="error",
            queued_max_messages_kbytes=_QUEUE_KILOBYTES,
        )
        self._consumer.subscribe(
            [self._topics.flows], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        self._log.line("start", topic=self._topics.flows, partitions=self._topics.partitions)

    def _leave(self) -> None:
        # First: what is being merged is waited for by nobody.
        if self._around.merger is not None:
            self._around.merger.close()
        # Hands over what it has, in `_revoked`.
        self._consumer.close()
        self._sender.shutdown()
        self._drop(TopicPartition(self._topics.flows, partition) for partition in [*self._works])
        self._tidier.shutdown()
        self._around.enrichment.close()
        if self._renewal is not None:
            self._renewal.drop(self._around.enrichment)

    def _assigned(self, _: Consumer, places: list[TopicPartition]) -> None:
        """Begin with what the worker before remembered, and from where it had read."""
        for place in places:
            place.offset = self._begin(place.partition)
        self._consumer.incremental_assign(places)
        if self._is_paused and places:
            self._consumer.pause(places)

    def _begin(self, partition: int) -> int:
        """Begin to work on a partition; return the offset to read from."""
        if partition >= self._topics.partitions:
            # Somebody has added it: it needs a place for its state as well.
            self._topics = self._patiently(lambda: self._topics_with(partition))
        state = self._topics.state
        values = self._patiently(lambda: newest_values(self._kafka, state, partition, stop=self._stop))
        before = remembered(values, f"Kafka topic {state}[{partition}]")
        work = PartitionWork(self._around, self._topics.partitions, partition, before)
        offset = self._first_offset(work)
        self._has_begun = True
        self._works[partition] = work
        self._log.line("partition_assigned", partition=partition, offset=work.position, state_rows=work.state_rows)
        return offset

    def _topics_with(self, partition: int) -> Topics:
        topics = ensure_topics(self._kafka)
        if partition >= topics.partitions:
            raise KafkaUnavailableError(f"Kafka topic {topics.flows} has no partition {partition} yet")
        return topics

    def _first_offset(self, work: PartitionWork) -> int:
        """Return the offset to read from, as far as the topic still has it."""
        if work.position is None:
            return int(OFFSET_BEGINNING)
        topic = self._topics.flows
        first, last = self._patiently(lambda: self._ends(TopicPartition(topic, work.partition)))
        if work.position > last:
            raise UserError(
                f"Kafka topic {topic}[{work.partition}] ends at offset {last}, but was read up to {work.position}: "
                "it was recreated",
                "set kafka.state_topic and kafka.group to new names",
            )
        if work.position < first:
            work.counters.add(Stage.READ, "messages_expired", first - work.position)
            self._log.error("messages_expired", partition=work.partition, count=first - work.position)
            work.position = first
        return work.position

    def _pass_over(self, work: PartitionWork) -> None:
        """Go on with the first message that is still there."""
        work.take(time.time())
        place = TopicPartition(self._topics.flows, work.partition, self._first_offset(work))
        # A seek is refused: it is not read at all any more.
        self._consumer.incremental_unassign([place])
        self._consumer.incremental_assign([place])
        if self._is_paused:
            self._consumer.pause([place])

    def _ends(self, place: TopicPartition) -> tuple[int, int]:
        try:
            found = self._consumer.get_watermark_offsets(place, _BROKER_SECONDS)
        except KafkaException as error:
            raise self._trouble.explain(error.args[0]) from error
        self._trouble.clear()
        return found

    def _revoked(self, _: Consumer, places: list[TopicPartition]) -> None:
        """Hand partitions over: remember everything, and write it while the group still waits for us.

        What is remembered next forgets the windows that memory has let go of, so the points of the flush before have
        to be written by then. Otherwise a successor finds them, and the messages since, where that flush has left them.
        """
        is_written = self._finishes()
        held = [self._works[place.partition] for place in places if place.partition in self._works]
        works = [work for work in held if work not in self._unwritten]
        if not is_written:
            self._lease.end()
        elif works and not self._is_broken:
            now = time.time()
            for work in works:
                work.take(now)
            points = self._commit(works, now)
            if points is not None:
                # At the end also what was counted since the last report: there may be no successor to tell it.
                self._send(works, points + (self._reports(works, now) if self._stop.is_set() else []))
            if not self._finishes():
                self._lease.end()
        self._drop(places)

    def _lost(self, _: Consumer, places: list[TopicPartition]) -> None:
        """Forget partitions that already belong to another worker."""
        self._lease.end()
        self._drop(places)
        self._log.warning("partitions_lost", partitions=len(places))

    def _drop(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            if (work := self._works.pop(place.partition, None)) is not None:
                work.close()

    # -- one round ---------------------------------------------------------------------------------

    def _round(self) -> None:
        self._poll()
        self._mind_clock()
        self._around.enrichment.look()
        now = time.time()
        self._tidy_if_due()
        for work in self._works.values():
            work.take(now)
        # Without brokers the membership ends with the session, and there is nothing to do but to wait.
        if self._consumer.memberid():
            self._alive = time.monotonic()
            # What a broker complained of before is no reason of what goes wrong from here on.
            self._trouble.clear()
        if self._is_sending():
            # Looks at the topic go on, or the group would take us for dead; but what comes stays there.
            self._pause(is_wanted=self._pending_rows() >= _MOST_ROWS)
            return
        # Before the next flush: it would have the brokers forget what was not written.
        if self._begin_anew():
            # That may have taken longer than a session: without news of the group nothing of it would be written.
            return
        # What cannot be committed stays in memory: the topic keeps the rest meanwhile.
        self._pause(is_wanted=self._is_refused)
        self._flush_if_due(now)
        self._renew()

    def _renew(self) -> None:
        """Take up another configuration where there is one, in a moment in which nothing waits for a flush."""
        renewal, before = self._renewal, self._around
        if renewal is None or self._pending_rows():
            return
        coming = renewal.look(before.cluster, before.enrichment)
        if coming is None:
            return
        cluster, enrichment = coming
        with renewal.reload.refusing():
            normaliser = Normaliser(cluster, Clock.LIVE)
            around = replace(before, cluster=cluster, normaliser=normaliser, enrichment=enrichment)
            # None of them if one of them cannot: a worker counts all its partitions by one configuration.
            for take_up in [work.renewed(around) for work in self._works.values()]:
                take_up()
            self._around, self._settings = around, cluster.bridge
            for work in list(self._works.values())[:1]:
                work.counters.add(Stage.BRIDGE, "reloads")
            renewal.reload.taken_up(before.cluster, cluster)
            self._elsewhere |= listed_since(before.cluster, cluster, time.time())
            if enrichment is not before.enrichment:
                before.enrichment.close()
        renewal.drop(self._around.enrichment)

    def _mind_clock(self) -> None:
        """Forget what was measured by a wall clock that was set since."""
        ahead = time.time() - time.monotonic()
        step, self._clock_ahead = ahead - self._clock_ahead, ahead
        if abs(step) < _STEP_SECONDS:
            return
        self._log.warning("clock_stepped", seconds=step)
        now = time.time()
        self._around = replace(self._around, started=now)
        self._elsewhere = {name: min(moment, now) for name, moment in self._elsewhere.items()}
        for work in self._works.values():
            work.counters.add(Stage.BRIDGE, "clock_steps")
            work.clock_stepped(now)

    def _begin_anew(self) -> bool:
        """Take up again what partitions were whose points were not written to the end; return whether there were any.

        Memory has let go of windows already that only the brokers still remember.
        """
        unwritten, self._unwritten = self._unwritten, ()
        for work in unwritten:
            if self._works.get(work.partition) is work:
                work.close()
                self._consumer.seek(TopicPartition(self._topics.flows, work.partition, self._begin(work.partition)))
        return bool(unwritten)

    def _poll(self) -> None:
        deadline = time.monotonic() + _POLL_SECONDS
        size = 0
        while size < _BATCH_BYTES and (left := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is None:
                break
            size += self._put(message)
        self._lease.renew()

    def _put(self, message: Message) -> int:
        """Take a message to its partition; returns its size in bytes."""
        error = message.error()
        work = self._works.get(message.partition() or 0)
        if error is None:
            return work.put(message.offset() or 0, message.value()) if work is not None else 0
        if error.code() == _AT_END:
            if work is not None:
                work.at_end = True
        elif error.code() == _NOT_THERE:
            if work is not None:
                self._pass_over(work)
        elif error.fatal():
            raise self._trouble.explain(error)
        else:
            self._log.sparse("kafka_failed", why=error.str())
        return 0

    def _pending_rows(self) -> int:
        return sum(work.pending_rows for work in self._works.values())

    def _pause(self, *, is_wanted: bool) -> None:
        if is_wanted == self._is_paused:
            return
        self._is_paused = is_wanted
        if is_wanted:
            # From here on nobody looks whether there is more, and silence says nothing.
            for work in self._works.values():
                work.at_end = False
        places = [TopicPartition(self._topics.flows, partition) for partition in self._works]
        (self._consumer.pause if is_wanted else self._consumer.resume)(places)

    def _tidy_if_due(self) -> None:
        """Have the archives looked after whose partitions are with other workers."""
        clock = time.monotonic()
        if self._tidying is not None and self._tidying.done():
            tidying, self._tidying = self._tidying, None
            if (error := tidying.exception()) is not None:
                # Files that no partition here writes to: the worker's own are well.
                why = f"{type(error).__name__}: {error}"
                self._log.sparse("archives_not_tidied", why=why, hint=f"tried again in {_TIDY_SECONDS / 60:.0f} min")
        if self._around.archive is None or self._tidying is not None or clock - self._tidied < _TIDY_SECONDS:
            return
        self._tidied = clock
        settings = archive_settings(self._around.cluster, self._topics.partitions)
        root, log, merger = self._around.archive, self._log, self._around.merger
        self._tidying = self._tidier.submit(tidy_idle, root, settings, log, self._marks, time.time(), merger=merger)

    def _marks(self, partition: int) -> Marks | None:
        """Return how far the archives of a partition go, as its last transaction says; None if nobody can tell."""
        state = self._topics.state
        if partition >= self._topics.partitions:
            return None
        try:
            values = newest_values(self._kafka, state, partition, stop=self._stop)
            before = remembered(values, f"Kafka topic {state}[{partition}]")
        except ClusterflowError as error:
            # Whoever has the partition is told what is to be done.
            if not self._stop.is_set():
                self._log.sparse("archive_undecided", partition=partition, why=error.message)
            return None
        return {} if before is None else before.notes.get("archive", {})

    # -- flush -------------------------------------------------------------------------------------

    def _flush_if_due(self, now: float) -> None:
        clock = time.monotonic()
        flushes = clock - self._flushed >= self._settings.flush or self._pending_rows() >= _MERGE_ROWS
        reports = clock - self._reported >= self._settings.window
        rolls_up = clock - self._rolled >= _ROLLUP_SECONDS
        if not self._works:
            self._is_refused, self._remembered = False, clock
        if not self._works or not (flushes or reports or rolls_up):
            return
        works = list(self._works.values())
        points: Points = []
        if flushes:
            self._flushed = clock
            committed = self._commit([work for work in works if work.is_due], now)
            self._is_refused = committed is None
            if committed is None:
                return
            self._remembered = time.monotonic()
            points = committed
        if reports and not self._is_refused:
            self._reported = clock
            points += self._reports(works, now)
        if rolls_up:
            self._rolled = clock
        if points or rolls_up:
            self._send(works, points, rolls_up=rolls_up, asks=reports)

    def _commit(self, works: list[PartitionWork], now: float) -> Points | None:
        """Have the brokers remember what changed; return the points that may be written then, None if not now."""
        if not works:
            return []
        # First, so that the state holds whatever the store is told: a total that a successor set back would lie.
        sent = self._sent.take()
        for (_, reason), amount in sent:
            works[0].counters.add(Stage.WRITE, reason, amount)
        points = [part for work in works for part in work.gather(now)]
        self._around.enrichment.see(points)
        records = {work.partition: work.records() for work in works}
        positions = {work.partition: work.position for work in works if work.position is not None}
        if not self._committer.commit(records, positions, self._consumer):
            # Still in memory, if it is still ours: with the next flush it is remembered and written as a whole.
            for work in works:
                work.rewrite = True
            if not self._committer.is_doubtful:
                self._take_back(works[0], sent)
            return None
        for work in works:
            work.committed()
        return points

    def _take_back(self, work: PartitionWork, sent: Iterable[tuple[Key, float]]) -> None:
        """Keep the count of what was sent to the store for the next commit, whichever partition then remembers it.

        Left with a partition that is lost now, it would be lost too, and nobody else has sent these points. What was
        read is another matter: it belongs to the offsets. Where those were not committed, whoever gets the partition
        reads again and counts again, so our own count has to go with the partition. Nothing was sent of it either: what
        a successor sends counts for itself.

        Of a commit that may have got through after all it stays with the partition: the successor has it then, or it is
        lost, but it is never counted twice.
        """
        for (_, reason), amount in sent:
            work.counters.add(Stage.WRITE, reason, -amount)
            self._sent.add(Stage.WRITE, reason, amount)

    def _reports(self, works: list[PartitionWork], now: float) -> Points:
        """Return what the partitions say of themselves; what is the worker's own, the first of them says."""
        first = min(works, key=lambda work: work.partition)
        first.counters.read(Stage.BRIDGE, "memory_bytes", resident_bytes())
        found: Points = []
        for work in works:
            found += work.report(now, self._elsewhere, self._backlog(work))
        window = int(now) // self._settings.window * self._settings.window
        lists = self._around.enrichment.points(self._around.cluster, now, window)
        found.append((schema.ENRICHMENT, lists.with_columns(pl.lit(first.shard).alias(schema.SHARD))))
        return [*found, (schema.ADDRESS_NAME, self._around.enrichment.addresses(now, window))]

    def _backlog(self, work: PartitionWork) -> int:
        """Return how many messages wait in the topic, as far as is known without asking."""
        with contextlib.suppress(KafkaException):
            _, last = self._consumer.get_watermark_offsets(
                TopicPartition(self._topics.flows, work.partition), cached=True
            )
            return max(last - (work.position or 0), 0)
        return 0

    # -- the sending thread --------------------------------------------------------------------------

    def _send(self, works: list[PartitionWork], points: Points, *, rolls_up: bool = False, asks: bool = False) -> None:
        errand = _Errand(tuple(works), _together(points), rolls_up, asks, self._lease.term)
        self._sending = errand, self._sender.submit(self._run, errand)

    def _is_sending(self) -> bool:
        """Whether points are on their way; what went wrong with them goes wrong here."""
        if self._sending is not None and self._sending[1].done():
            (errand, future), self._sending = self._sending, None
            if not future.result():
                self._unwritten += errand.works
        return self._sending is not None

    def _finishes(self) -> bool:
        """Wait a while for points on their way; whether there are none any more."""
        if self._sending is not None:
            wait([self._sending[1]], timeout=_HANDOVER_SECONDS)
        return not self._is_sending()

    def _permit(self) -> None:
        """Refuse to write for a term of the lease that is over."""
        if self._term is not None:
            self._lease.check(self._term)

    def _run(self, errand: _Errand) -> bool:
        """Do what is to be done; return whether it was."""
        self._term = errand.term
        try:
            for measurement, points in errand.points:
                self._writer.write(measurement, points, measurement.kept)
            if errand.asks:
                self._ask_elsewhere()
            if errand.rolls_up:
                self._roll_up(errand.works)
        except (StoppedError, LeaseError) as error:
            self._log.warning("points_not_written", why=error.message)
            return False
        else:
            return True
        finally:
            self._term = None

    def _roll_up(self, works: tuple[PartitionWork, ...]) -> None:
        for work in works:
            try:
                work.rollup.run()
            except StoreError as error:
                self._sent.add(Stage.WRITE, "rollups_failed")
                self._log.sparse("rollup_failed", why=" ".join(error.lines()))

    def _ask_elsewhere(self) -> None:
        """Learn when others heard the exporters: one whose flows all go to another partition is not silent."""
        now = time.monotonic()
        unknown = _HEARD_SECONDS if self._asked is None else min(now - self._asked, _HEARD_SECONDS)
        since = int(unknown) + 6 * self._settings.window
        asked = Select(schema.EXPORTER_STATUS, RAW).take(highest(schema.LAST_SEEN)).by(schema.EXPORTER)
        try:
            found = [*self._store.rows(asked.where(ago(">=", f"{since}s")).between())]
        except StoreError as error:
            self._log.sparse("exporters_unknown", why=error.message)
            return
        heard = {exporter: float(moment or 0) for _, exporter, moment in found}
        self._elsewhere |= {name: max(moment, self._elsewhere.get(name, 0.0)) for name, moment in heard.items()}
        self._asked = now


def _together(points: Points) -> Points:
    """Put the partitions' points of a measurement into one frame: a request for each would be many small ones."""
    found: dict[tuple[str, ...], tuple[Measurement, list[pl.DataFrame]]] = {}
    for measurement, frame in points:
        found.setdefault((measurement.name, *frame.columns), (measurement, []))[1].append(frame)
    return [(measurement, pl.concat(frames)) for measurement, frames in found.values()]
