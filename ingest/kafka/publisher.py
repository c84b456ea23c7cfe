"""Messages and the position they stand for go to Kafka together, in one transaction, or not at all.

A transaction that fails, for whatever reason, is sent again by a new producer under the same ``transactional.id``:
brokers thereby end what is left of the old one. What was committed last says whether the failed one got through after
all, so nothing is sent twice.

The notes of a relay are records of a compacted topic: compressed, in pieces that brokers accept, for positions grow
with the files in a spool and pass any limit of one message. The key of a piece is ``ID/notes/NUMBER``. All pieces are
written each time, in one transaction; those that a longer note has left behind are removed by records without a value.
"""

import json
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from itertools import count, takewhile
from threading import Event
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from app.errors import ClusterflowError, UserError
from app.log import Log
from cluster.model import KafkaSettings
from ingest.counters import Counters
from ingest.kafka.client import (
    TRANSACTION_SECONDS,
    KafkaUnavailableError,
    TooLargeError,
    Topics,
    Trouble,
    ensure_topics,
    newest_values,
    open_producer,
)
from store.schema import Stage

VERSION = 2
"""Format of the notes; another version refuses to read them."""

_QUICKLY = 1

Piece = tuple[bytes, bytes | None]
"""Key and value."""


def pieces(relay: str, document: Mapping[str, Any], limit: int, before: int = 0) -> list[Piece]:
    """Return a document of plain values as records.

    Args:
        relay: whose it is.
        document: what `joined` returns.
        limit: bytes that no value passes.
        before: how many pieces the topic has now.
    """
    text = zlib.compress(json.dumps({"version": VERSION, **document}).encode(), _QUICKLY)
    values: list[bytes | None] = [text[start : start + limit] for start in range(0, len(text), limit)]
    values += [None] * (before - len(values))
    return [(_key(relay, number), value) for number, value in enumerate(values)]


def joined(relay: str, values: Mapping[bytes, bytes]) -> tuple[dict[str, Any] | None, int]:
    """Return the document and how many pieces it has; None and 0 if there is none. ValueError if it is damaged.

    Args:
        relay: whose it is.
        values: newest value of each key of the topic, without those removed.
    """
    found = [values[key] for key in takewhile(values.__contains__, (_key(relay, number) for number in count()))]
    if not found:
        return None, 0
    try:
        document = json.loads(zlib.decompress(b"".join(found)))
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not isinstance(document, dict):
        raise ValueError("no notes")  # noqa: TRY004 - the value is wrong, whatever its type
    return document, len(found)


def _key(relay: str, number: int) -> bytes:
    return f"{relay}/notes/{number}".encode()


_CALL_SECONDS = 1.0
"""How long one call of librdkafka may take; between calls a signal is heeded."""

_QUIET_SECONDS = 5.0
"""How long brokers may hesitate before a log line says so."""

_LAST_SECONDS = 5.0
"""How long a transaction is still tried after we were asked to stop; then it is left, and will be sent again."""

_RETRY_SECONDS = 0.5
_CLAIM_SECONDS = 2.0
"""Time in which another relay that has just fenced us says so."""

_QUEUE_KBYTES = 96 << 10

_ANOTHER_ID = "move the files that are relayed out of the spool, and take another --id"

T = TypeVar("T")

Addressed = tuple[str, int, bytes | None, bytes | None]
"""Topic, partition, key, value."""


class StoppedError(ClusterflowError):
    """We were asked to stop while Kafka was away. What was not committed will be sent again."""


class TakenOverError(UserError):
    """Another relay with the same id has begun: brokers take nothing from us any more."""


class Sender:
    """The transactional producer of one relay.

    Args:
        settings: brokers and topics.
        relay: its id, which no other may have at the same time; one that begins later takes over.
        stop: set it to end in order.
        log: where it tells that brokers are away, and back.
        counters: of transactions, retries and bytes.
        patience: seconds after which it gives up; None waits for ever.
        transaction_seconds: age at which brokers end our transactions.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        relay: str,
        *,
        stop: Event,
        log: Log,
        counters: Counters,
        patience: float | None = None,
        transaction_seconds: int = TRANSACTION_SECONDS,
    ) -> None:
        self._settings = settings
        self._relay = relay
        self._stop = stop
        self._log = log
        self._counters = counters
        self._patience = patience
        self._transaction_ms = transaction_seconds * 1000
        self._instance = uuid.uuid4().hex
        self._number = 0
        self._note_pieces = 0
        self._topics: Topics | None = None
        self._producer: Producer | None = None
        self._trouble = Trouble(settings)
        self._pending: list[Addressed] = []
        self._is_begun = False
        self._is_broken = False
        self._waiting_since: float | None = None
        self._is_away = False
        self._stopping_since: float | None = None
        self._is_open = False

    @property
    def topics(self) -> Topics:
        """The topics, once `open` has found or made them."""
        if self._topics is None:
            raise RuntimeError("not open")
        return self._topics

    def open(self, accept: Callable[[Any], None] = lambda _: None) -> Any:  # noqa: ANN401 - whatever was committed
        """Take over from the process that had this id, and return what it committed last; None if nothing.

        Args:
            accept: raises where what was committed is nothing that we can go on with. Asked before we take over: a
                relay that was given the wrong id must not end the one that has it.

        Raises:
            StoppedError: we were asked to stop.
            KafkaUnavailableError: no broker answered for as long as we are patient.
            UserError: the brokers refuse us, or a topic is not as it must be.
        """
        self._topics = self._insist(lambda: ensure_topics(self._settings))
        self._accepted(accept)
        self._insist(self._begin_anew)
        # What was open at the first look is committed or ended by now.
        newest = self._accepted(accept)
        self._is_open = True
        self._number = newest["number"] if newest else 0
        return newest["notes"] if newest else None

    def add(self, messages: Iterable[tuple[int, bytes]]) -> None:
        """Send values of the flows topic to their partitions; waits while librdkafka's own memory is full."""
        for partition, value in messages:
            self._counters.add(Stage.WRITE, "messages")
            self._counters.add(Stage.WRITE, "message_bytes", len(value))
            self._produce((self.topics.flows, partition, None, value))

    def commit(self, notes: object) -> None:
        """Commit what was added, together with `notes` (plain values), which `open` returns after a restart.

        Raises:
            StoppedError, KafkaUnavailableError: as `open` does. Nothing is committed then.
            TakenOverError: another relay has this id now.
            TooLargeError: brokers take no messages of this size any more.
        """
        self._number += 1
        document = {"instance": self._instance, "number": self._number, "notes": notes}
        records = pieces(self._relay, document, self.topics.note_bytes, self._note_pieces)
        for key, value in records:
            self._produce((self.topics.relays, 0, key, value))
        self._insist(self._commit_or_resend)
        self._pending = []
        self._note_pieces = sum(value is not None for _, value in records)
        self._is_begun = False
        self._counters.add(Stage.WRITE, "transactions")

    def close(self) -> None:
        """Let go of the producer; an open transaction is ended by the successor, or by the brokers in time."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _accepted(self, accept: Callable[[Any], None]) -> Any:  # noqa: ANN401 - JSON
        newest = self._insist(self._newest)
        if newest is not None:
            accept(newest["notes"])
        return newest

    # -- one transaction ---------------------------------------------------------------------------

    def _produce(self, message: Addressed) -> None:
        self._pending.append(message)
        if self._producer is None or self._is_broken:
            return
        try:
            if not self._is_begun:
                self._producer.begin_transaction()
                self._is_begun = True
            self._hand_over(self._producer, message)
        except KafkaException:
            # `commit` finds out what it is, and sends everything again.
            self._is_broken = True

    def _hand_over(self, producer: Producer, message: Addressed) -> None:
        topic, partition, key, value = message
        while True:
            try:
                producer.produce(topic, value, key, partition=partition, on_delivery=self._note_refusal)
            except BufferError:
                producer.poll(_CALL_SECONDS / 4)
                self._wait(self._trouble.explain(KafkaError(KafkaError._QUEUE_FULL)))  # noqa: SLF001
            else:
                producer.poll(0)
                return

    def _commit_or_resend(self) -> None:
        """Commit; KafkaUnavailableError where that is not known to have worked, and is to be tried again."""
        if self._producer is None or self._is_broken:
            self._counters.add(Stage.WRITE, "transactions_retried")
            if self._was_committed():
                return
            self._resend()
        try:
            self._live().commit_transaction(_CALL_SECONDS)
        except KafkaException as error:
            # Even a fatal one: brokers speak of fencing where they have but ended a transaction that took too long.
            self._is_broken = not error.args[0].retriable()
            raise self._complaint(error) from error

    def _was_committed(self) -> bool:
        """Begin again, and return whether the transaction that failed was committed all the same."""
        newest = self._reopened()
        number = newest["number"] if newest else 0
        if newest is not None and newest["instance"] != self._instance and number >= self._number:
            raise self._taken_over()
        return bool(number == self._number)

    def _reopened(self) -> Any:  # noqa: ANN401 - JSON
        time.sleep(_CLAIM_SECONDS if self._producer is not None else 0)
        self.close()
        owner = newest_values(self._settings, self.topics.relays, stop=self._stop).get(self._owner_key)
        if owner != self._instance.encode():
            raise self._taken_over()
        self._begin_anew()
        return self._newest()

    def _resend(self) -> None:
        producer = self._live()
        try:
            producer.begin_transaction()
            for message in self._pending:
                self._hand_over(producer, message)
        except KafkaException as error:
            self._is_broken = True
            raise self._complaint(error) from error
        self._is_begun, self._is_broken = True, False

    # -- whose turn it is --------------------------------------------------------------------------

    @property
    def _owner_key(self) -> bytes:
        return f"{self._relay}/owner".encode()

    def _begin_anew(self) -> None:
        """Open a producer, which fences every other one with our id, and say that it is ours."""
        self._is_broken = self._is_begun = False
        producer = open_producer(
            self._settings,
            self._trouble,
            # Hosts may share a name and a broker; neither a topic's name nor an id has a slash.
            transactional_id=f"clusterflow-relay-{self.topics.flows}/{self._relay}",
            transaction_timeout_ms=self._transaction_ms,
            message_timeout_ms=self._transaction_ms,
            # Of what lz4 needs on disk and wire it takes little more than half, for a tenth more of our time.
            compression_type="zstd",
            compression_level=1,
            linger_ms=20,
            # What brokers limit is a batch of messages.
            batch_size=min(self.topics.message_bytes, self.topics.note_bytes),
            queue_buffering_max_kbytes=_QUEUE_KBYTES,
            delivery_report_only_error=True,
        )
        try:
            producer.init_transactions(10 * _CALL_SECONDS)
            producer.begin_transaction()
            producer.produce(self.topics.relays, self._instance.encode(), self._owner_key, partition=0)
            producer.commit_transaction(10 * _CALL_SECONDS)
        except KafkaException as error:
            producer.poll(0)
            raise self._complaint(error) from error
        self._producer = producer

    def _note_refusal(self, error: KafkaError | None, message: object) -> None:
        """Keep why a message was refused where trying again is in vain: `commit_transaction` says but that one was."""
        del message
        if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._trouble.note(error)

    def _newest(self) -> Any:  # noqa: ANN401 - JSON
        """Return what was committed last under our id; None if nothing was."""
        where = f"Kafka topic {self.topics.relays}: relay {self._relay}"
        values = newest_values(self._settings, self.topics.relays, stop=self._stop)
        try:
            document, self._note_pieces = joined(self._relay, values)
        except ValueError as error:
            raise UserError(f"{where}: what it must not forget is damaged: {error}", _ANOTHER_ID) from error
        if document is not None and document.get("version") != VERSION:
            raise UserError(
                f"{where} was of another version (format {document.get('version')}, expected {VERSION})",
                f"let that version relay its spool to the end; then {_ANOTHER_ID}",
            )
        return document

    def _taken_over(self) -> TakenOverError:
        return TakenOverError(f"another relay with the id {self._relay} has taken over", "give each relay its own --id")

    # -- patience ----------------------------------------------------------------------------------

    def _live(self) -> Producer:
        if self._producer is None:
            raise RuntimeError("not open")
        return self._producer

    def _complaint(self, error: KafkaException) -> ClusterflowError:
        if self._producer is not None:
            self._producer.poll(0)
        return self._trouble.explain(error.args[0])

    def _insist(self, step: Callable[[], T]) -> T:
        """Do a step until it works; errors as `open` and `commit` say."""
        while True:
            try:
                result = step()
            except (StoppedError, TakenOverError, TooLargeError):
                raise
            except ClusterflowError as error:
                # What brokers refuse at first is the user's mistake; later it may be a broker that has just started.
                if not self._is_open and not isinstance(error, KafkaUnavailableError):
                    raise
                self._wait(error)
                self._stop.wait(_RETRY_SECONDS)
            else:
                self._note_success()
                return result

    def _note_success(self) -> None:
        if self._is_away and self._waiting_since is not None:
            self._log.line("kafka_recovered", seconds=time.monotonic() - self._waiting_since)
        self._waiting_since, self._is_away = None, False
        self._trouble.clear()

    def _wait(self, error: ClusterflowError) -> None:
        """Take note that something does not work yet: tell it in time, and end where it is time to."""
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since >= _QUIET_SECONDS:
            self._is_away = True
            self._log.sparse("kafka_unavailable", why=error.message, seconds=now - self._waiting_since)
        if self._patience is not None and now - self._waiting_since >= self._patience:
            raise error
        if self._stop.is_set():
            self._stopping_since = self._stopping_since or now
            if not self._is_open or now - self._stopping_since >= _LAST_SECONDS:
                raise StoppedError("stopped while Kafka was away: what it has not taken is sent after a restart")
            time.sleep(_RETRY_SECONDS / 5)
