"""One partition of the flows topic in the hands of a worker: messages in, changed points and records of its state out.

A partition has an engine, counters and a shard tag of its own. All of them follow the partition from worker to worker,
so whoever holds it writes the same series on.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from app.errors import UserError
from app.log import Log
from archive.merger import Merger
from archive.partition import Claim, Marks, PartitionArchive
from cluster.model import ArchiveSettings, Cluster, KafkaFormat
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters, as_dead_letters, bury
from ingest.flows.enriching import Enrichment
from ingest.flows.normalise import Clock, Normaliser
from ingest.kafka import flow_messages
from ingest.kafka.flow_messages import Kind, MessageError, OtherVersionError
from ingest.kafka.partition_state import Record, Remembered, StateRecords
from ingest.kafka.relay_status import RelayBook
from ingest.read import records
from ingest.read.readers import read_chunk
from ingest.read.readers_format import Format
from ingest.read.readers_format import Kind as TextKind
from ingest.read.records import DEAD_SCHEMA, Reason
from ingest.readings import exporter_readings
from ingest.rollup import Rollup, horizon
from ingest.writer import Writer
from store import schema
from store.influx import Store
from store.points import WINDOW
from store.schema import Measurement, Stage

Points = list[tuple[Measurement, pl.DataFrame]]
"""Points with their shard."""

_SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the partitions of a worker share.

    Attributes:
        cluster: the cluster.
        store, writer: where rollups are read from and written to.
        normaliser: its books.
        enrichment: what the user's files say.
        dead_letter: where bad records go.
        log: for trouble.
        started: when this worker began to listen, epoch seconds.
        time_zone: of times that pmacct prints without one.
        takeover_seconds: how long requests of a worker that was thrown out may still reach the store.
        topic_id: of the topic, as long as it lives; empty where brokers do not say it.
        archive: folder of the flow archive; None: none is kept.
        merger: merges the files of all partitions.
    """

    cluster: Cluster
    store: Store
    writer: Writer
    normaliser: Normaliser
    enrichment: Enrichment
    dead_letter: DeadLetters
    log: Log
    started: float
    time_zone: str
    takeover_seconds: float
    topic_id: str = ""
    archive: Path | None = None
    merger: Merger | None = None


def shard_of(shard: str, partition: int) -> str:
    """Return the shard tag of a partition's points: of several sites on one store, `bridge.shard` tells them apart."""
    return f"k{partition}" if shard == "0" else f"{shard}-k{partition}"


def archive_settings(cluster: Cluster, partitions: int) -> ArchiveSettings:
    """Return the limits of one partition's archive: a worker may have all of them."""
    return replace(cluster.archive, size=cluster.archive.size // max(partitions, 1))


class PartitionWork:
    """What a worker does for one partition, from its assignment to its loss.

    Args:
        around: what it shares with others.
        partitions: how many the topic has.
        partition: its number.
        before: what the worker before remembered of it, if there was one.

    Attributes:
        partition: its number.
        shard: tag of its points.
        counters: what it did, over all the workers it had.
        position: offset of the next message to read; None: of the first there is.
        rollup: of its points.
        rewrite: whether all points in memory have to be written: it is unknown which were.
        at_end: whether there was nothing more to read when somebody last looked.
    """

    def __init__(self, around: Surroundings, partitions: int, partition: int, before: Remembered | None) -> None:
        settings = around.cluster.bridge
        self._around = around
        self.partition, self._partitions = partition, partitions
        self.shard = shard_of(settings.shard, partition)
        self.counters = Counters()
        self._archive: PartitionArchive | None = None
        # Of the archives of all workers that it had: handed on also by one that keeps none.
        self._marks: Marks = before.notes.get("archive", {}) if before is not None else {}
        self._cluster, self._engine = self._engine_of(around)
        # Shorter than the grace: a name is written before its windows leave memory.
        self._records = StateRecords(names_each=settings.grace / 2)
        self.rollup = Rollup(around.store, around.writer, around.cluster.retentions(), self.shard)
        self.position: int | None = None
        self._saved_position: int | None = None
        self.rewrite = False
        self.at_end = False
        self._again: float | None = None
        self._held: dict[str, frozenset[int]] = {}
        self._waiting: list[tuple[int, bytes | None]] = []
        self._relays = RelayBook()
        self._befell: set[str] = set()
        self._lag = 0.0
        self._message_bytes = 0.0
        self._listened_since = around.started
        self._is_understood = False
        if before is not None:
            self._restore(before)
        if around.archive is not None:
            self._archive = PartitionArchive(
                Claim.of_shard(around.archive, self.shard),
                archive_settings(around.cluster, partitions),
                around.log,
                marks=self._marks,
                partitions=partitions,
                merger=around.merger,
            )
        self.counters.add(Stage.BRIDGE, "assignments")

    def _engine_of(self, around: Surroundings) -> tuple[Cluster, Engine]:
        """Return the cluster as this partition knows it, and an engine that counts by it."""
        settings = around.cluster.bridge
        budget = max(settings.series_budget // self._partitions, 1)
        cluster = replace(around.cluster, bridge=replace(settings, shard=self.shard, series_budget=budget))
        archived = None if around.archive is None else self._keep
        labels = around.enrichment.labels
        return cluster, Engine(cluster, Clock.LIVE, self.counters, around.normaliser, labels=labels, archived=archived)

    def renewed(self, around: Surroundings) -> Callable[[], None]:
        """Return what takes up another configuration, once all is ready for it; nothing may be pending.

        Open windows keep what they hold under its old names, as after a restart: totals stay exact.
        """
        cluster, engine = self._engine_of(around)
        engine.load(*self._engine.dump())

        def take_up() -> None:
            self._around, self._cluster, self._engine = around, cluster, engine
            if self._archive is not None:
                self._archive.configure(archive_settings(around.cluster, self._partitions))

        return take_up

    def _keep(self, rows: pl.DataFrame) -> None:
        if self._archive is not None:
            self._archive.take(rows)

    def close(self) -> None:
        """Let go of the partition: what was taken and not committed is somebody else's to take."""
        if self._archive is not None:
            self._archive.close()

    def _restore(self, before: Remembered) -> None:
        notes = before.notes
        self._check_topic(notes)
        for setting, value in (("window", self._cluster.bridge.window), ("shard", self.shard)):
            if notes["engine"][setting] != value:
                raise UserError(
                    f"bridge.{setting}: {value}: the workers' state was made with {notes['engine'][setting]}",
                    "set it back, or set kafka.state_topic and kafka.group to new names once the topic is read",
                )
        self._engine.load(before.frames, notes["engine"])
        for table in self._engine.tables.values():
            if table.measurement.bound:
                table.recount_names()
        self.counters.load(notes["counters"])
        self.position = self._saved_position = notes["position"]
        self.rollup.load(notes["rollup"], self._engine.minutes_from)
        self._relays.load(notes.get("relays", {}))
        self._records.restored(before.keys)
        self.rewrite = True
        self._again = time.monotonic() + self._around.takeover_seconds
        # Whoever was silent before this worker began, is silent still.
        self._listened_since = min(notes.get("listened_since", self._listened_since), self._listened_since)
        # What the worker before may still overwrite stays in memory until it was written once more.
        self._held = {
            name: frozenset(table.state.get_column(WINDOW).unique().to_list())
            for name, table in self._engine.tables.items()
        }

    def _check_topic(self, notes: Mapping[str, Any]) -> None:
        """Refuse a state whose offsets are those of another topic."""
        topic, number = self._around.cluster.kafka.topic, self._around.topic_id
        # States of before this was kept name none.
        of, of_number = notes.get("topic", topic), notes.get("topic_id", "")
        hint = "set kafka.state_topic and kafka.group to new names"
        if of != topic:
            raise UserError(
                f"kafka.topic: {topic}: the workers' state is that of topic {of}", f"set it back, or {hint}"
            )
        if number and of_number and number != of_number:
            raise UserError(f"Kafka topic {topic} was recreated: the workers' state belongs to the old one", hint)

    # -- in ----------------------------------------------------------------------------------------

    def put(self, offset: int, value: bytes | None) -> int:
        """Take a message, to be read with others; returns its size in bytes."""
        self._waiting.append((offset, value))
        self.at_end = False
        return len(value or b"")

    def take(self, now: float) -> None:
        """Read the messages that were put; UserError, and none of them is read, if all are written for others."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        source = f"{self._around.cluster.kafka.topic}[{self.partition}]"
        size = sum(len(value or b"") for _, value in waiting)
        self.counters.add(Stage.READ, "bytes", size)
        self.counters.add(Stage.READ, "messages", len(waiting))
        is_ours = self._around.cluster.kafka.format is KafkaFormat.CLUSTERFLOW
        batch = _read(waiting, source) if is_ours else _read_pmacct(waiting, self._around.time_zone)
        if not self._is_understood and not (batch.flows.height or batch.samples or batch.statuses):
            _check_format(waiting, self._around.cluster.kafka.format, source)
        else:
            # A setting changes with a start only: what is of no use from here on is somebody else's garbage.
            self._is_understood = True
        self.counters.add(Stage.READ, "records", batch.flows.height)
        self._bury(batch.dead, source)
        if batch.flows.height:
            self._bury(as_dead_letters(self._engine.take(batch.flows, now, batch.lost)), source)
        for samples in batch.samples:
            self._engine.take_counters(samples, now)
        for relay, status, told in batch.statuses:
            dead = self._relays.fresh_dead_letters(relay, status)
            for reason in ("dead_letters", Reason.AT_A_RELAY) if dead else ():
                self.counters.add(Stage.READ, reason, dead)
            if not self._relays.take(relay, status, now, told):
                self.counters.add(Stage.READ, "relays_ignored")
        self.position = waiting[-1][0] + 1
        # That a relay is there says nothing of what waits, and nothing but flows of how late they are.
        if len(batch.statuses) < len(waiting):
            self._message_bytes = size / len(waiting)
        if batch.flows.height and self._engine.newest is not None:
            self._lag = max(now - self._engine.newest, 0.0)

    def _bury(self, dead: pl.DataFrame, source: str) -> None:
        bury(self._around.dead_letter, dead, source, counters=self.counters, log=self._around.log)

    @property
    def pending_rows(self) -> int:
        """Partial points that wait for a flush."""
        return self._engine.pending_rows

    # -- out ---------------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether a flush has something to do here."""
        return self.rewrite or self.position != self._saved_position or self._is_due_again()

    def _is_due_again(self) -> bool:
        return self._again is not None and time.monotonic() >= self._again

    def gather(self, now: float) -> Points:
        """Fold what is pending into the windows; return the points to write once they are remembered."""
        if self._is_due_again():
            self.rewrite, self._again, self._held = True, None, {}
        self._records.touch(self._engine)
        changed = self._engine.merge()
        if self.rewrite:
            changed = self._engine.all_points()
            self.rollup.touch(horizon(now, self._cluster.bridge.grace))
        for _, points in changed:
            self.rollup.touch(points.get_column(WINDOW).unique())
        shard = pl.lit(self.shard).alias(schema.SHARD)
        return [(measurement, points.with_columns(shard)) for measurement, points in changed if points.height]

    def records(self) -> list[Record]:
        """Return what the state topic lacks."""
        marks = self._marks
        if self._archive is not None:
            marks = self._marks = self._archive.seal(time.time())
            self.counters.add_all(Stage.ARCHIVE, self._archive.take_counts())
        notes: dict[str, Any] = {
            "position": self.position,
            "counters": self.counters.dump(),
            "rollup": self.rollup.dump(),
            "topic": self._around.cluster.kafka.topic,
            "topic_id": self._around.topic_id,
            "listened_since": self._listened_since,
            "relays": self._relays.dump(),
            "archive": marks,
        }
        return self._records.records(self._engine, notes, time.monotonic())

    def committed(self) -> None:
        """Take note that the records are there; let go of windows that cannot change any more."""
        self._saved_position = self.position
        if self._archive is not None:
            self._archive.commit()
        self._records.committed(time.monotonic())
        self.rewrite = False
        # The records of what goes now are removed with the next flush, which comes after these points are written.
        self._records.forget(self._engine.evict(self._held))

    def clock_stepped(self, now: float) -> None:
        """Forget what was measured by a wall clock that was set since; `now` is by the new one."""
        # Nobody is silent for an hour because the clock jumped, nor heard of in the future because it went back.
        self._listened_since = now
        for reading in self._engine.exporters.values():
            reading.last_seen = min(reading.last_seen, now)
        self._relays.clock_stepped(now)

    # -- what it says of itself ----------------------------------------------------------------------

    def report(self, now: float, elsewhere: Mapping[str, float], backlog_messages: int) -> Points:
        """Return its counters, and its readings of itself, of the exporters and of the relays.

        Args:
            now: wall clock, epoch seconds.
            elsewhere: when other partitions heard an exporter, epoch seconds.
            backlog_messages: messages that wait in the topic, those included that only mark its transactions.
        """
        seconds = self._cluster.bridge.window
        window = int(now) // seconds * seconds
        self.counters.read(Stage.BRIDGE, schema.HEARTBEAT, now)
        self.counters.read(Stage.BRIDGE, "state_rows", self._engine.state_rows)
        if self._archive is not None:
            for reason, value in self._archive.readings.items():
                self.counters.read(Stage.ARCHIVE, reason, value)
        backlog = 0 if self.at_end else round(backlog_messages * self._message_bytes)
        self.counters.read(Stage.READ, schema.BACKLOG_BYTES, backlog)
        befell = self._relays.befell(now)
        for what in self._befell | befell.keys():
            self.counters.read(Stage.COLLECT, what, befell.get(what, 0))
        self._befell |= befell.keys()
        if self._engine.newest is not None:
            # Few addresses share a partition: that none of them says a thing for a while is no lateness. How late it
            # was what came last is. Up to when it is read, what relays say of themselves tells, too.
            behind = 0.0 if self.at_end else max(now - max(self._engine.newest, self._relays.newest), 0.0)
            self.counters.read(Stage.BRIDGE, schema.LAG_SECONDS, max(self._lag, behind))
        # What a relay says moves its end for a moment: silence up to then is known all the same. But what its spool
        # still holds, after brokers were away, nobody here has heard.
        reached = now if self.at_end else self._relays.newest
        spools = self._relays.drained(reached)
        readings = exporter_readings(
            self._cluster,
            self._engine.exporters,
            window=window,
            started=self._listened_since,
            drained=reached if spools is None else min(reached, spools),
            elsewhere=elsewhere,
            unread=self._relays.unread(),
        )
        heard = max(reached, *(reading.last_seen for reading in self._engine.exporters.values()), 0.0)
        relays = self._relays.readings(window, heard=min(heard, now), started=self._listened_since)
        self.rollup.touch(pl.Series(WINDOW, [window], pl.Int64))
        shard = pl.lit(self.shard).alias(schema.SHARD)
        return [
            (schema.PIPELINE, self.counters.points(window, self.shard)),
            (schema.EXPORTER_STATUS, readings.with_columns(shard)),
            (schema.RELAY_STATUS, relays.with_columns(shard)),
        ]

    @property
    def state_rows(self) -> int:
        """Rows in memory."""
        return self._engine.state_rows


@dataclass(frozen=True, slots=True)
class _Batch:
    """What messages held.

    Attributes:
        flows: records (RECORD_SCHEMA).
        samples: those of interface counters.
        lost: what was lost before the flows.
        dead: dead letters.
        statuses: what relays say: ids, STATUS_SCHEMA, what their collectors tell.
    """

    flows: pl.DataFrame
    samples: list[pl.DataFrame]
    lost: dict[str, int]
    dead: pl.DataFrame
    statuses: list[tuple[str, pl.DataFrame, dict[str, int]]]


def _check_format(messages: list[tuple[int, bytes | None]], configured: KafkaFormat, source: str) -> None:
    """Refuse to bury a topic that makes sense, but not as the settings say."""
    if configured is KafkaFormat.CLUSTERFLOW:
        other = KafkaFormat.PMACCT
        parsed = read_chunk(b"\n".join(value or b"" for _, value in messages), Format(TextKind.JSON))
        is_other = parsed.frame.height > 0 and parsed.dead.is_empty()
    else:
        other = KafkaFormat.CLUSTERFLOW
        is_other = all(_is_from_relay(value) for _, value in messages)
    if is_other:
        raise UserError(
            f"Kafka topic {source}: messages of format {other}, expected {configured}",
            f"set kafka.format to {other}, or name another kafka.topic",
        )


def _is_from_relay(value: bytes | None) -> bool:
    try:
        flow_messages.decode(value)
    except MessageError as error:
        return isinstance(error, OtherVersionError)
    return True


def _read(messages: list[tuple[int, bytes | None]], source: str) -> _Batch:
    """Return what messages of a relay hold; UserError for those of another version."""
    flows: list[pl.DataFrame] = []
    samples: list[pl.DataFrame] = []
    statuses: list[tuple[str, pl.DataFrame, dict[str, int]]] = []
    dead: list[tuple[str, str]] = []
    lost: dict[str, int] = {}
    for offset, value in messages:
        try:
            message = flow_messages.decode(value)
        except OtherVersionError as error:
            raise UserError(f"Kafka topic {source}: offset {offset}: {error.message}", error.hint) from error
        except MessageError as error:
            start = (value or b"")[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
            dead.append((f"offset {offset}: {error.message}: {start}", Reason.NOT_A_RECORD.value))
            continue
        match message.kind:
            case Kind.RECORDS:
                flows.append(message.frame)
            case Kind.COUNTERS:
                samples.append(message.frame)
            case Kind.STATUS:
                statuses.append((message.relay, message.frame, message.told))
        for exporter, amount in message.lost.items():
            lost[exporter] = lost.get(exporter, 0) + amount
    frame = pl.concat(flows) if flows else records.empty_records()
    return _Batch(frame, samples, lost, pl.DataFrame(dead, schema=DEAD_SCHEMA, orient="row"), statuses)


def _read_pmacct(messages: list[tuple[int, bytes | None]], time_zone: str) -> _Batch:
    """Return what messages of pmacct's own Kafka plugin hold: one JSON object a line, one or many a message.

    Its messages go to partitions by no rule that keeps an exporter's datagrams together: gaps in their numbers say
    nothing here.
    """
    text = b"\n".join(value or b"" for _, value in messages)
    parsed = read_chunk(text, Format(TextKind.JSON, time_zone=time_zone))
    return _Batch(parsed.frame, [], {}, parsed.dead, [])
