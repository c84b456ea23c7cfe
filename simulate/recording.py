"""A scenario straight into a store: its records through the bridge's own engine, points, rollups, at full speed.

What is left out is what carries records from a switch to the bridge: packets, pmacct, files. Records are what pmacct
would have printed; from there on everything is the real thing, with the clock of a live bridge. What a live bridge says
of itself (its heartbeat, the age of each exporter) is written as one would that reads without a backlog, once a minute.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import polars as pl

from app.log import Log
from cluster.model import Cluster
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.read import records
from ingest.read.counter_samples import read_counter_samples
from ingest.rollup import Rollup
from ingest.writer import Writer
from simulate.incidents.incident import LOSSES, Incident, IncidentKind
from simulate.incidents.staged_feed import staged_labels
from simulate.incidents.staging_pipeline import STAGED_LIST, STAGED_RELAYS
from simulate.packets.flows import FLOW_SCHEMA, FlowBatch, Ints, column
from simulate.packets.marks import Marks
from simulate.packets.netflow import FlowFormat
from simulate.packets.polls import Poll, as_printed
from simulate.packets.wire import SequenceNumbers, arriving, lost, plan, source_id
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth
from store import schema
from store.influx import Store
from store.points import WINDOW, columns, encode
from store.schema import ListState, Measurement, Stage

SHARD = "0"

SIGN_SECONDS = 30
"""How often the bridge says how it is: every third window, as behind a backlog; and every other time, how its
exporters are."""

_BODY_BYTES = 6 << 20
"""Line protocol of one request: each of them waits for the store's disk."""
_LOSS_STEP = 60
"""Seconds of records that the engine takes at once where some are lost, so that losses are noted where they occur."""

_VERSIONS = {FlowFormat.V5: 5, FlowFormat.V9: 9, FlowFormat.IPFIX: 10, FlowFormat.SFLOW: records.SFLOW}

Progress = Callable[[float], None]
"""Called with the epoch second that is reached."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was written: flow records read, raw points, points of the rollups."""

    records: int
    points: int
    rolled_up: int


def record(workload: Workload, store: Store, truth: GroundTruth, progress: Progress = lambda _: None) -> Recorded:
    """Play the live phase of a workload into a store.

    Args:
        workload: what is played.
        store: where to; its retentions are made if they are missing.
        truth: gets exactly what is stored.
        progress: told how far it is.

    Raises:
        StoreError: the store refuses something.
    """
    return _Recorder(workload, store, truth).run(progress)


class RecordFrames:
    """Turns flow records of the simulator into what the bridge's readers make of pmacct's files.

    Args:
        workload: its addresses, exporters and what they lose.
    """

    def __init__(self, workload: Workload) -> None:
        self._addresses = workload.cast.addresses
        self._styles = workload.fabric.styles
        self._losses = workload.fabric.losses
        self._marks = Marks(self._addresses, workload.scenario.incidents)
        self._sequence = SequenceNumbers(self._styles)
        exporters = workload.cluster.exporters
        self._peers = pl.Series([str(exporter.address) for exporter in exporters], dtype=pl.String)
        self._versions = np.array([_VERSIONS[style.flow_format] for style in self._styles], np.int64)
        is_sflow = self._versions == records.SFLOW
        self._domains = np.where(is_sflow, 0, [source_id(number) for number in range(len(exporters))])

    def arrived(self, batch: FlowBatch) -> tuple[pl.DataFrame, Ints]:
        """Return the records (FLOW_SCHEMA) that reach pmacct, and the sequence number of each one's datagram."""
        frame = batch.frame
        planned = plan(frame, self._addresses, self._styles)
        numbers = self._sequence.assign(planned, batch.polls)
        return arriving(frame, planned, lost(planned, self._losses), numbers)

    def named(self, frame: pl.DataFrame, numbers: Ints) -> pl.DataFrame:
        """Return records with their sequence numbers as a record frame (RECORD_SCHEMA)."""
        exporter, text = column(frame, "exporter"), self._addresses.text
        version = self._versions[exporter]
        # sFlow has no times; nfacctd works out those of v5 in whole seconds.
        whole = pl.Series(version == _VERSIONS[FlowFormat.V5])
        timeless = pl.Series(version == records.SFLOW)
        start, end = (
            pl.when(timeless).then(None).when(whole).then(pl.col(name) // 1000 * 1000).otherwise(pl.col(name))
            for name in ("start", "end")
        )
        columns = {
            records.EXPORTER: pl.lit(self._peers.gather(frame["exporter"])),
            records.IFACE_IN: pl.col("in_iface"),
            records.IFACE_OUT: pl.col("out_iface"),
            records.SRC: pl.lit(text.gather(frame["src"])),
            records.DST: pl.lit(text.gather(frame["dst"])),
            records.SRC_PORT: pl.col("src_port"),
            records.DST_PORT: pl.col("dst_port"),
            records.PROTOCOL: pl.col("proto"),
            records.TCP_FLAGS: pl.col("tcp_flags"),
            records.TOS: pl.lit(pl.Series(self._marks.tos(frame))),
            records.SAMPLING_RATE: pl.col("rate"),
            records.START: start,
            records.END: end,
            records.ARRIVAL: pl.col("export"),
            records.SEQ: pl.lit(pl.Series(numbers)),
            records.VERSION: pl.lit(pl.Series(version)),
            records.DOMAIN: pl.lit(pl.Series(self._domains[exporter])),
            records.BYTES: pl.col("bytes"),
            records.PACKETS: pl.col("packets"),
            records.FLOWS: pl.lit(1, pl.Int64),
        }
        return frame.select(columns[name].cast(kind).alias(name) for name, kind in records.RECORD_SCHEMA.items())


class _Recorder:
    def __init__(self, workload: Workload, store: Store, truth: GroundTruth) -> None:
        self._workload, self._truth = workload, truth
        self._phase = workload.scenario.live
        cluster = workload.cluster
        counters, stop = Counters(), threading.Event()
        labels = staged_labels(cluster, workload.scenario.incidents)
        self._engine = Engine(cluster, Clock.LIVE, counters, labels=labels)
        self._frames = RecordFrames(workload)
        self._signs = Signs(cluster, workload.scenario.incidents, self._phase.start)
        self._writer = Writer(
            store, cluster.retentions(), shard=SHARD, counters=counters, stop=stop, log=Log(quiet=True)
        )
        self._rollup = Rollup(store, self._writer, cluster.retentions(), SHARD)
        self._bodies = _Bodies(store)
        self._polled: Counter[int] = Counter()

    def run(self, progress: Progress) -> Recorded:
        self._writer.prepare()
        count = 0
        # One thread writes the last windows while this one draws and sums the next.
        with ThreadPoolExecutor(1, "write") as sender:
            sending: Future[None] | None = None
            for batch in _cut(self._workload.batches(self._phase), _loss_times(self._workload.scenario.incidents)):
                frame, numbers = self._frames.arrived(batch)
                count += frame.height
                self._truth.add(frame)
                if frame.height:
                    self._engine.take(self._frames.named(frame, numbers), batch.until / 1000)
                self._take_polls(batch.polls)
                changed = [*self._engine.merge(), *self._signs.upto(batch.until // 1000, frame, batch.polls)]
                for _, points in changed:
                    self._rollup.touch(points.get_column(WINDOW).unique())
                if sending is not None:
                    sending.result()
                sending = sender.submit(self._bodies.add, changed)
                self._engine.evict()
                progress(batch.until / 1000)
            if sending is not None:
                sending.result()
        self._bodies.flush()
        self._truth.complete = True
        return Recorded(count, self._bodies.points, self._rollup.run())

    def _take_polls(self, polls: Iterable[Poll]) -> None:
        """Take interface counters by way of the lines that sfacctd would have written."""
        lines = []
        for poll in polls:
            self._truth.add_poll(poll)
            self._polled[poll.exporter] += 1
            agent = str(self._workload.cluster.exporters[poll.exporter].address)
            lines += as_printed(poll, agent, self._polled[poll.exporter])
        if lines:
            self._engine.take_counters(read_counter_samples("\n".join([*lines, ""]).encode()).frame)


class _Bodies:
    """Gathers points of all measurements into few large requests."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[bytes]] = {}
        self.points = 0

    def add(self, changed: list[tuple[Measurement, pl.DataFrame]]) -> None:
        for measurement, frame in changed:
            own = frame.with_columns(pl.lit(SHARD).alias(schema.SHARD)) if schema.SHARD in measurement.tags else frame
            lines = encode(measurement, own)
            if lines:
                self._waiting.setdefault(measurement.kept, []).append(lines)
                self.points += frame.height
        if sum(len(lines) for waiting in self._waiting.values() for lines in waiting) >= _BODY_BYTES:
            self.flush()

    def flush(self) -> None:
        for retention, waiting in self._waiting.items():
            self._store.write(b"\n".join(waiting), retention)
        self._waiting = {}


# -- what the bridge says of itself --------------------------------------------------------------------


class Signs:
    """The readings that a live bridge writes of itself and of its exporters.

    Args:
        cluster: its exporters.
        incidents: those of the bridge itself are in them.
        start: epoch second at which it starts.
    """

    def __init__(self, cluster: Cluster, incidents: tuple[Incident, ...], start: int) -> None:
        self._names = [exporter.name for exporter in cluster.exporters]
        self._window = cluster.bridge.window
        self._next = -(-start // SIGN_SECONDS) * SIGN_SECONDS + SIGN_SECONDS
        size = len(self._names)
        # Of each exporter: newest arrival (epoch ms), mean lag, largest skew (seconds), sampling rate.
        self._seen, self._rate = [start * 1000] * size, [1] * size
        self._lag, self._skew = [0.0] * size, [0.0] * size
        self._waiting = pl.DataFrame(schema={name: FLOW_SCHEMA[name] for name in ("exporter", "export", "end", "rate")})
        self._polls: list[Poll] = []
        self._stops = [(i.start, i.end) for i in incidents if i.kind is IncidentKind.INGEST_STOPPED]
        self._delays = [(i.start, i.end, i.seconds) for i in incidents if i.kind is IncidentKind.INGEST_BEHIND]
        self._broken = [(i.start, i.end) for i in incidents if i.kind is IncidentKind.LIST_BROKEN]
        self._silences = [(i.start, i.end) for i in incidents if i.kind is IncidentKind.RELAY_SILENT]

    def upto(self, end: int, frame: pl.DataFrame, polls: Sequence[Poll] = ()) -> list[tuple[Measurement, pl.DataFrame]]:
        """Return the readings from the last call until `end` (epoch seconds), of what arrived meanwhile."""
        self._polls += polls
        self._waiting = pl.concat([self._waiting, frame.select(self._waiting.columns)])
        beats = np.arange(self._next, end + 1, SIGN_SECONDS)
        if not len(beats):
            return []
        self._next = int(beats[-1]) + SIGN_SECONDS
        rows = [row for beat in beats.tolist() if beat % (2 * SIGN_SECONDS) == 0 for row in self._readings(beat)]
        kinds = columns(schema.EXPORTER, schema.AGE, schema.LAST_SEEN, schema.LAG, schema.SKEW, schema.SAMPLING)
        return [
            (schema.EXPORTER_STATUS, pl.DataFrame(rows, schema=kinds, orient="row")),
            (schema.PIPELINE, self._heartbeats(beats.tolist())),
            *([(schema.ENRICHMENT, self._lists(beats.tolist()))] if self._broken else []),
            *([(schema.RELAY_STATUS, self._relays(beats.tolist()))] if self._silences else []),
        ]

    def _readings(self, moment: int) -> list[tuple[int, str, float, float, float, float, int]]:
        """Return what is known of each exporter at a moment; none while the bridge is away."""
        is_due = pl.col("export") <= moment * 1000
        due, self._waiting = self._waiting.filter(is_due), self._waiting.filter(~is_due)
        lag = (pl.col("export") - pl.col("end")) / 1000
        found = due.group_by("exporter").agg(
            pl.max("export"), lag.mean().alias("lag"), lag.abs().max().alias("skew"), pl.max("rate")
        )
        for number, seen, mean, skew, rate in found.iter_rows():
            self._seen[number], self._lag[number], self._skew[number], self._rate[number] = seen, mean, skew, rate
        # Who sends counters is not silent.
        for poll in self._polls:
            if poll.at <= moment * 1000:
                self._seen[poll.exporter] = max(self._seen[poll.exporter], poll.at)
        self._polls = [poll for poll in self._polls if poll.at > moment * 1000]
        if self._is_stopped(moment):
            return []
        return [
            (moment, name, max(moment - seen / 1000, 0.0), seen / 1000, mean, skew, rate)
            for name, seen, mean, skew, rate in zip(
                self._names, self._seen, self._lag, self._skew, self._rate, strict=True
            )
        ]

    def _heartbeats(self, moments: list[int]) -> pl.DataFrame:
        rows = []
        for moment in moments:
            if self._is_stopped(moment):
                continue
            behind = max((seconds for start, end, seconds in self._delays if start <= moment < end), default=0)
            rows += [
                (moment, Stage.BRIDGE.value, schema.HEARTBEAT, float(moment)),
                (moment, Stage.BRIDGE.value, schema.LAG_SECONDS, float(max(behind, 1))),
                (moment, Stage.READ.value, schema.BACKLOG_BYTES, 0.0),
            ]
        return pipeline_rows(rows)

    def _lists(self, moments: list[int]) -> pl.DataFrame:
        name, kind = STAGED_LIST
        states = [
            ListState.BROKEN if any(start <= moment < end for start, end in self._broken) else ListState.OK
            for moment in moments
        ]
        age = [3600.0] * len(moments)
        columns = {WINDOW: moments, schema.LIST_STATE.name: states, schema.LIST_AGE.name: age}
        return pl.DataFrame(columns).with_columns(pl.lit(name).alias(schema.NAME), pl.lit(kind).alias(schema.KIND))

    def _relays(self, moments: list[int]) -> pl.DataFrame:
        silent, _ = STAGED_RELAYS
        rows = []
        for moment in moments:
            heard = min((start for start, end in self._silences if start <= moment < end), default=moment)
            last = {relay: heard if relay == silent else moment for relay in STAGED_RELAYS}
            rows += [(moment, relay, float(at), float(moment - at), 0) for relay, at in last.items()]
        kinds = columns(schema.RELAY, schema.RELAY_LAST_SEEN, schema.RELAY_AGE, schema.RELAY_BACKLOG)
        return pl.DataFrame(rows, schema=kinds, orient="row")

    def _is_stopped(self, moment: int) -> bool:
        return any(start <= moment < end for start, end in self._stops)


def pipeline_rows(rows: list[tuple[int, str, str, float]]) -> pl.DataFrame:
    """Return readings (epoch second, stage, reason, value) as a frame for ``encode(schema.PIPELINE, ...)``."""
    kinds = columns(schema.STAGE, schema.REASON, schema.VALUE)
    return pl.DataFrame(rows, schema=kinds, orient="row")


# -- batches -------------------------------------------------------------------------------------------


def _loss_times(incidents: tuple[Incident, ...]) -> list[int]:
    """Return the moments (epoch ms) at which batches end where records are lost."""
    return sorted(
        {
            at * 1000
            for incident in incidents
            if incident.kind in LOSSES
            # A gap counts as a loss when it is still there some batches later.
            for at in range(incident.start, incident.end + 6 * _LOSS_STEP, _LOSS_STEP)
        }
    )


def _cut(batches: Iterator[FlowBatch], times: list[int]) -> Iterator[FlowBatch]:
    """Yield the batches, cut at some moments."""
    begin = 0
    for batch in batches:
        rest = batch.frame
        for at in times:
            if begin < at < batch.until:
                polls = tuple(poll for poll in batch.polls if begin < poll.at <= at)
                yield FlowBatch(rest.filter(pl.col("export") < at), at, polls)
                rest, begin = rest.filter(pl.col("export") >= at), at
        yield FlowBatch(rest, batch.until, tuple(poll for poll in batch.polls if poll.at > begin))
        begin = batch.until
