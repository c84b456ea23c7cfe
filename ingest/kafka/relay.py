"""The relay: spool files in, messages on a Kafka topic out, each record once.

What it must not forget (how far it has read, what is known of sequence numbers) is committed in the same transaction as
the messages made of what it has read: a restart after whatever death goes on exactly there. Spool files are released
only when a transaction covers them. Losses on the way to the collector are counted here, since a worker sees but one
part of an exporter's stream. About once a window it says how it is, also when nothing else is to be said: workers
cannot tell a relay that is dead from one whose exporters are quiet. The last thing that it says, when it is stopped, is
what it has counted in all.
"""

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from app.errors import UserError
from app.log import Log
from ingest.collect.template_file import TemplateFile
from ingest.count.sequence import SequenceTracker
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters, bury
from ingest.flows.known_rates import KnownRates, RateChange, tell_changes
from ingest.flows.two_way import with_replies
from ingest.kafka.flow_messages import MAX_TEXT_BYTES, Kind, bodies, compact, encode, envelope
from ingest.kafka.partitioner import Partitions
from ingest.kafka.publisher import Sender, StoppedError
from ingest.kafka.relay_status import status_of, told
from ingest.read import counter_samples, records
from ingest.read.counter_samples import read_counter_samples
from ingest.read.numbered import Habits
from ingest.read.readers import read_chunk
from ingest.read.records import Parsed, Reason
from ingest.read.source import Position
from ingest.read.spool import Spool
from store import schema
from store.schema import Stage

_CHUNK_BYTES = 24 << 20
"""As much as the bridge reads at once."""

_COUNTER_BYTES = 4 << 20
_AHEAD = 2
"""Chunks that are made ready while the one before them is sent, and while brokers commit."""
_LOST_SHARE, _LEAST_ROOM = 16, 512
"""Of a message, one part in so many, or so many bytes, is for the envelope: losses that it has no room for, further
messages tell."""
_TRANSACTION_BYTES = 64 << 20
"""Text of records in a transaction: more makes it no cheaper, but what has to be sent again longer."""

_TRANSACTION_SECONDS = 1.0
_IDLE_SECONDS = 0.2
_REPORT_SECONDS = 5.0
_HEALTHY_SECONDS = 60.0

Progress = Callable[[int], None]
"""Called with the bytes of each chunk read."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did."""

    records: int
    transactions: int
    dead_letters: int
    seconds: float
    is_whole: bool
    """Whether all that it read was committed, and with `once` all that was there."""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A chunk of which all is made that can be without knowing what becomes of those before it.

    Attributes:
        frame: its records.
        long: those whose addresses are too long to be any, which no message has: it must not grow with them.
        dead: lines that are no records.
        bodies: partitions and what messages have for them behind their envelopes, in this order.
        repeated: records that pmacct had read twice.
        is_numbered: whether each row is one record.
    """

    frame: pl.DataFrame
    long: pl.DataFrame
    dead: pl.DataFrame
    repeated: int
    is_numbered: bool
    bodies: list[tuple[int, bytes]]
    changes: list[RateChange]
    known_rates: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A chunk that is being made ready."""

    size: int
    source: str
    position: Position
    ready: Future[_Ready]


class Relay:
    """One process that follows one spool.

    Args:
        relay: its id.
        source: the spool of flow records.
        counters_source: the spool of samples of interface counters, if there is one.
        status_seconds: how often it says how it is; None: never, as of one that reads to an end and is gone then.
        sender: where messages go.
        dead_letter: where bad records go.
        stop: set it to end in order.
        log: where it tells what it does.
        counters: shared with the metrics endpoint.
    """

    def __init__(
        self,
        relay: str,
        source: Spool,
        sender: Sender,
        *,
        dead_letter: DeadLetters,
        stop: threading.Event,
        log: Log,
        counters: Counters,
        counters_source: Spool | None = None,
        status_seconds: float | None = None,
    ) -> None:
        self._relay = relay
        self._source = source
        self._counters_source = counters_source
        self._sender = sender
        self._dead_letter = dead_letter
        self._stop = stop
        self._log = log
        self._counters = counters
        self._status_seconds = status_seconds
        self._told = self._drained = 0.0
        self._sequence = SequenceTracker()
        self._partitions: Partitions | None = None
        self._lost: Counter[str] = Counter()
        self._position: Position = {}
        self._counters_position: Position = {}
        self._committed: tuple[Position, Position] = {}, {}
        self._waiting_bytes = 0
        self._waiting_since: float | None = None
        self._alive = time.monotonic()
        # One thread parses, one makes messages, one sends and waits for brokers: the work is in polars and librdkafka,
        # which leave the interpreter to the others.
        self._parser = ThreadPoolExecutor(1, "parse")
        # Each thread has the templates for itself: looking at them changes what is known of them.
        self._habits = Habits(TemplateFile(Path(source.place)))
        self._templates = TemplateFile(Path(source.place))
        self._templates_to_tell = TemplateFile(Path(source.place))
        self._rates = KnownRates(self._templates)
        self._known_rates: dict[str, Any] = {}
        self._encoder = ThreadPoolExecutor(1, "encode")
        self._ahead: deque[_Ahead] = deque()
        self._source_counts: Counter[str] = Counter()

    def health(self) -> str:
        """Return why the relay is not well; empty if it is."""
        silent = time.monotonic() - self._alive
        return f"no progress for {silent:.0f} s: is Kafka there?" if silent > _HEALTHY_SECONDS else ""

    def run(self, progress: Progress = lambda _: None) -> Summary:
        """Work until the spool ends (one that is read once) or `stop` is set.

        Raises:
            TakenOverError: another relay with this id has begun.
            UserError: the brokers refuse us, or this id has relayed another spool.
        """
        begun = time.monotonic()
        is_whole = True
        try:
            self._restore()
            self._follow(progress)
            # Its last words go with what is left: what it counted since it last spoke, nobody else knows.
            self._commit(tells=self._status_seconds is not None)
            is_whole = not self._source.once or not self._stop.is_set()
        except StoppedError as error:
            is_whole = False
            self._log.warning("stopped", why=error.message)
        finally:
            # In this order: who makes messages waits for what is parsed.
            self._parser.shutdown(cancel_futures=True)
            self._encoder.shutdown(cancel_futures=True)
            self._sender.close()
        total = self._counters.total
        return Summary(
            int(total(Stage.READ, "records")),
            int(total(Stage.WRITE, "transactions")),
            int(total(Stage.READ, "dead_letters")),
            time.monotonic() - begun,
            is_whole,
        )

    def _follow(self, progress: Progress) -> None:
        reported = 0.0
        # Not at once: one that is killed soon after its start should not leave a transaction that its next start has to
        # wait for, and has nothing to tell yet.
        self._told = time.monotonic()
        while not self._stop.is_set():
            looked = time.time()
            # A position is taken over only with all that was read up to it.
            got = self._step(progress)
            got = self._step_counters() or got
            if not got:
                self._drained = looked
            now = time.monotonic()
            if self._is_status_due(now):
                self._commit(tells=True)
            elif self._is_due(now):
                self._commit()
            if self._waiting_since is None:
                self._alive = now
            if now - reported >= _REPORT_SECONDS:
                self._report()
                reported = now
            if not got:
                if self._source.is_finished:
                    break
                self._stop.wait(_IDLE_SECONDS)

    # -- what is read ------------------------------------------------------------------------------

    def _step(self, progress: Progress) -> bool:
        """Read one chunk and send what is in it; False if there is none now."""
        self._read_ahead()
        if not self._ahead:
            return False
        chunk = self._ahead.popleft()
        self._read_ahead()
        ready = chunk.ready.result()
        self._counters.add(Stage.READ, "bytes", chunk.size)
        self._counters.add(Stage.READ, "records", ready.frame.height)
        if ready.repeated:
            self._counters.add(Stage.READ, "repeated_records", ready.repeated)
        self._bury(ready.dead, chunk.source)
        self._bury_long(ready.long, chunk.source)
        lost = self._sequence.lost(ready.frame, is_numbered=ready.is_numbered)
        self._lost.update({exporter: count for exporter, count in lost.items() if len(exporter) <= MAX_TEXT_BYTES})
        for partition, body in ready.bodies:
            self._sender.add([(partition, envelope(self._relay, lost=self._some_lost()) + body)])
        tell_changes(ready.changes, self._counters, self._log, {})
        self._position, self._known_rates = chunk.position, ready.known_rates
        self._note_waiting(chunk.size)
        progress(chunk.size)
        return True

    def _step_counters(self) -> bool:
        """Read a chunk of samples of interface counters; False if there is none now."""
        chunk = self._counters_source.next_chunk(_COUNTER_BYTES) if self._counters_source else None
        if chunk is None:
            return False
        parsed = read_counter_samples(chunk.raw, chunk.fmt.time_zone)
        self._bury(parsed.dead, chunk.source)
        self._counters.add(Stage.READ, "counter_samples", parsed.frame.height)
        samples, long = _without_long_texts(parsed.frame)
        self._bury_long(long, chunk.source)
        topics = self._sender.topics
        for partition, part in Partitions(topics.partitions).split(samples, counter_samples.EXPORTER):
            values = encode(part, relay=self._relay, kind=Kind.COUNTERS, limit=topics.message_bytes)
            self._sender.add((partition, value) for value in values)
        self._counters_position = chunk.position
        self._note_waiting(len(chunk.raw))
        return True

    def _read_ahead(self) -> None:
        """Begin to make the next chunks ready."""
        while len(self._ahead) < _AHEAD:
            chunk = self._source.next_chunk(_CHUNK_BYTES)
            if chunk is None:
                return
            parsing = self._parser.submit(read_chunk, chunk.raw, chunk.fmt, self._habits)
            ready = self._encoder.submit(self._made_ready, parsing, chunk.source)
            self._ahead.append(_Ahead(len(chunk.raw), chunk.source, chunk.position, ready))

    def _made_ready(self, parsing: Future[Parsed], source: str) -> _Ready:
        parsed = parsing.result()
        whole, changes = self._rates.take(parsed, source)
        frame, long = _without_long_texts(with_replies(whole, self._templates.two_way()))
        topics = self._sender.topics
        if self._partitions is None:
            self._partitions = Partitions(topics.partitions)
        limit = topics.message_bytes - self._room()
        made = [
            (partition, body)
            for partition, part in self._partitions.split(compact(frame), records.SRC)
            for body in bodies(part, limit)
        ]
        rates = changes, self._rates.dump()
        return _Ready(parsed.frame, long, parsed.dead, parsed.repeated, parsed.is_numbered, made, *rates)

    def _bury_long(self, long: pl.DataFrame, source: str) -> None:
        if long.is_empty():
            return
        self._counters.add(Stage.READ, "dead_letters", long.height)
        self._counters.add(Stage.READ, Reason.BAD_ADDRESS.value, long.height)
        self._dead_letter.add_records(source, long, Reason.BAD_ADDRESS)

    def _bury(self, dead: pl.DataFrame, source: str) -> None:
        bury(self._dead_letter, dead, source, counters=self._counters, log=self._log)

    # -- what is sent ------------------------------------------------------------------------------

    def _room(self) -> int:
        """Return the bytes of a message that are for its envelope."""
        return max(self._sender.topics.message_bytes // _LOST_SHARE, _LEAST_ROOM)

    def _some_lost(self) -> dict[str, int]:
        """Return losses that were not reported yet, as many as an envelope has room for; they are reported now."""
        if not self._lost:
            return {}
        room = self._room() - len(envelope(self._relay))
        told: dict[str, int] = {}
        for address, count in self._lost.items():
            room -= len(json.dumps({address: count}))
            if told and room < 0:
                break
            told[address] = count
        self._lost = Counter({address: count for address, count in self._lost.items() if address not in told})
        return told

    def _note_waiting(self, size: int) -> None:
        self._waiting_bytes += size
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()

    def _is_due(self, now: float) -> bool:
        if self._waiting_since is None:
            return False
        return self._waiting_bytes >= _TRANSACTION_BYTES or now - self._waiting_since >= _TRANSACTION_SECONDS

    def _is_status_due(self, now: float) -> bool:
        return self._status_seconds is not None and now - self._told >= self._status_seconds

    def _tell(self) -> None:
        """Send how this relay is; what it says is true of the moment at which it is committed."""
        status = status_of(self._counters, backlog=self._report(), drained=self._drained, now=time.time())
        topics = self._sender.topics
        (partition,) = Partitions(topics.partitions).of(pl.Series([self._relay], dtype=pl.String()))
        news = told(self._templates_to_tell, Path(self._source.place), time.time(), self._sequence.doubled.told())
        values = encode(status, relay=self._relay, kind=Kind.STATUS, told=news, limit=topics.message_bytes)
        self._sender.add((int(partition), value) for value in values)
        self._told = time.monotonic()

    def _commit(self, *, tells: bool = False) -> None:
        """Commit what was sent and read, and let go of files that are thereby safe.

        Args:
            tells: whether to say how this relay is, be there anything else or not. It waits until brokers have that, as
                for all that it commits: where they are away, one status waits, and no second one.
        """
        if tells:
            self._tell()
        elif (self._position, self._counters_position) == self._committed:
            return
        self._sender.commit(self._notes())
        self._committed = self._position, self._counters_position
        self._release()
        self._waiting_bytes, self._waiting_since = 0, None

    def _release(self) -> None:
        self._source.release(self._position)
        if self._counters_source is not None:
            self._counters_source.release(self._counters_position)

    # -- what must not be forgotten ----------------------------------------------------------------

    def _notes(self) -> dict[str, Any]:
        return {
            "spool": str(self._spool),
            "position": self._position,
            "counters_position": self._counters_position,
            "sequence": self._sequence.dump(),
            "lost": dict(self._lost),
            "rates": self._known_rates,
        }

    @property
    def _spool(self) -> Path:
        return self._source.folder.resolve()

    def _restore(self) -> None:
        notes = self._sender.open(self._accept)
        if notes is None:
            self._log.line("start", relay=self._relay, state="new", topic=self._sender.topics.flows)
            return
        self._sequence.load(notes["sequence"])
        self._lost = Counter(notes["lost"])
        # Notes of before this was kept have none.
        self._known_rates = notes.get("rates", {})
        self._rates.load(self._known_rates)
        self._position, self._counters_position = notes["position"], notes["counters_position"]
        self._committed = self._position, self._counters_position
        self._source.resume(self._position)
        if self._counters_source is not None:
            self._counters_source.resume(self._counters_position)
        self._release()
        self._log.line("start", relay=self._relay, state="restored", topic=self._sender.topics.flows)

    def _accept(self, notes: dict[str, Any]) -> None:
        if notes["spool"] != str(self._spool):
            raise UserError(
                f"the relay {self._relay} has relayed {notes['spool']}, not {self._spool}",
                "give this spool's relay its own --id",
            )

    def _report(self) -> int:
        """Bring the counters up to date with what the spools say; return the bytes that wait in them."""
        sources = [source for source in (self._source, self._counters_source) if source is not None]
        happened = sum((Counter(source.counts) for source in sources), Counter[str]())
        for reason, count in happened.items():
            self._counters.add(Stage.READ, reason, count - self._source_counts.get(reason, 0))
        self._source_counts = happened
        backlog = sum(source.backlog_bytes() for source in sources)
        self._counters.read(Stage.READ, schema.BACKLOG_BYTES, backlog)
        return backlog


def _without_long_texts(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows whose addresses are short enough to be some, and the others."""
    texts = pl.col([name for name, dtype in frame.schema.items() if dtype == pl.String()]).str.len_bytes()
    # To look for the longest is quicker than to look at all.
    if max((longest or 0 for longest in frame.select(texts.max()).row(0)), default=0) <= MAX_TEXT_BYTES:
        return frame, frame.clear()
    is_long = pl.any_horizontal(texts > MAX_TEXT_BYTES).fill_null(value=False)
    return frame.filter(~is_long), frame.filter(is_long)
