"""Transactions of a worker: what it remembers and how far it has read go to the brokers together, or not at all.

Who reads the state of a partition waits until no transaction on it is open any more. So the records are in the log
before the brokers are asked whether we are still a member of the group: a worker that was thrown out meanwhile has
either committed before its successor reads, and is read, or is refused. The same order keeps one that was stopped in
the middle from committing later what its successor could not have seen.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from app.errors import ClusterflowError
from app.log import Log
from ingest.kafka.client import REFUSED_SECONDS, RefusedError
from ingest.kafka.partition_state import Record

_CALL_SECONDS = 5.0
_PATIENCE_SECONDS = 20.0
"""How long one step of a transaction is tried: the consumer has to be polled again long before it counts as dead."""

_POLL_SECONDS = 0.2
_TIMED_OUT = KafkaError._TIMED_OUT  # noqa: SLF001 - that is how the library names its own errors

_FINAL = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
    }
)
"""What no second attempt mends, or none soon."""


class NotAMemberError(ClusterflowError):
    """The group has expelled us without notice yet."""


class Committer:
    """The transactional producer of one worker.

    Args:
        opened: makes a producer, always with the same ``transactional.id``.
        state_topic: where records go: a partition of it has the state of the same partition of `topic`.
        topic: whose offsets are committed.
        explain: makes of librdkafka's error one for a person.
        log: for trouble.

    Attributes:
        refused: why the last commit failed; empty if it did not.
        is_doubtful: whether the last commit failed and may be in the log all the same.
    """

    def __init__(
        self,
        opened: Callable[[], Producer],
        *,
        state_topic: str,
        topic: str,
        explain: Callable[[KafkaError], ClusterflowError],
        log: Log,
    ) -> None:
        self.refused = ""
        self.is_doubtful = False
        self._open = opened
        self._explain = explain
        self._state_topic = state_topic
        self._topic = topic
        self._log = log
        self._producer: Producer | None = None
        self._undelivered: KafkaError | None = None
        self._was_taken = False
        self._refused_since: float | None = None

    def commit(self, records: Mapping[int, Sequence[Record]], positions: Mapping[int, int], consumer: Consumer) -> bool:
        """Commit; return whether it is known to be in the log. If not, it may be there or not: commit again.

        Args:
            records: what the state topic lacks, by partition.
            positions: next offset to read, by partition.
            consumer: the member of the group that has read so far.

        Raises:
            UserError: brokers refuse it, and would refuse it for ever; where they took one before, only after minutes.
        """
        self.is_doubtful = False
        try:
            producer = self._opened()
            producer.begin_transaction()
            for partition, rows in records.items():
                for key, value in rows:
                    self._produce(producer, partition, key, value)
            self._deliver(producer)
            offsets = [TopicPartition(self._topic, partition, position) for partition, position in positions.items()]
            metadata = _membership(consumer)
            _within(lambda: producer.send_offsets_to_transaction(offsets, metadata, _CALL_SECONDS), 2 * _CALL_SECONDS)
            self.is_doubtful = True
            _insist(producer.commit_transaction)
        except (KafkaException, NotAMemberError, BufferError, SystemError) as error:
            self._give_up(_told(error))
            return False
        self.refused, self.is_doubtful = "", False
        self._was_taken, self._refused_since = True, None
        return True

    def _give_up(self, error: Exception) -> None:
        """Take note of why a commit failed; UserError where the next one would fail as well."""
        self.refused = _words(error)
        self._log.sparse("commit_failed", why=self.refused)
        # A new producer ends what this one left open, and has learnt nothing that is not so any more.
        self._producer = None
        cause = error.args[0] if error.args else None
        if not isinstance(cause, KafkaError):
            return
        # What has to be aborted was not committed.
        self.is_doubtful = self.is_doubtful and not cause.txn_requires_abort()
        if cause.code() in _FINAL:
            explained = self._explain(cause)
            if not (isinstance(explained, RefusedError) and self._may_pass()):
                raise explained from error

    def _may_pass(self) -> bool:
        """Whether brokers that took commits before have refused them for a short while only."""
        now = time.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        return self._was_taken and now - self._refused_since < REFUSED_SECONDS

    def _opened(self) -> Producer:
        if self._producer is None:
            producer = self._open()
            # Ends what an earlier producer of this worker left open.
            _insist(producer.init_transactions)
            self._producer = producer
        return self._producer

    def _produce(self, producer: Producer, partition: int, key: bytes, value: bytes | None) -> None:
        while True:
            try:
                producer.produce(self._state_topic, value, key, partition, on_delivery=self._delivered)
            except BufferError:
                producer.poll(_POLL_SECONDS)
            else:
                return

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        self._undelivered = self._undelivered or error

    def _deliver(self, producer: Producer) -> None:
        """Wait until all records are in the log."""
        self._undelivered = None
        waiting = producer.flush(_PATIENCE_SECONDS)
        if self._undelivered is not None:
            raise KafkaException(self._undelivered)
        if waiting:
            raise KafkaException(KafkaError(_TIMED_OUT, f"{waiting} records not delivered"))


def _membership(consumer: Consumer) -> object:
    """Return what tells the brokers which member commits; NotAMemberError if we are none any more."""
    try:
        metadata = consumer.consumer_group_metadata()
    except RuntimeError as error:
        # The library's word for it where the consumer is being closed meanwhile.
        raise NotAMemberError(str(error)) from error
    # Asked after the metadata were taken: of one that has timed out they name no member at all, and such offsets
    # brokers take from anybody.
    if not consumer.memberid():
        raise NotAMemberError("thrown out of the group")
    return metadata


def _insist(call: Callable[[float], None]) -> None:
    """Call with a timeout, again while it says that it may be called again; KafkaException if that takes too long."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            call(_CALL_SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


def _within(call: Callable[[], None], seconds: float) -> None:
    """Call; KafkaException if it has not come back by then.

    librdkafka does not heed its own timeout here: where brokers were restarted it may wait for an old connection to
    the group's coordinator without end (librdkafka issue 5456). Its producer is given up with it.
    """
    future: Future[None] = Future()

    def run() -> None:
        try:
            call()
            future.set_result(None)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            future.set_exception(error)

    # A daemon: what hangs in it must not keep the process.
    threading.Thread(target=run, name="commit", daemon=True).start()
    if not wait([future], timeout=seconds).done:
        raise KafkaException(KafkaError(_TIMED_OUT, "no answer to the offsets of a transaction"))
    future.result()


def _told(error: Exception) -> Exception:
    """Return what went wrong.

    What is fatal to a producer, such as brokers that have ended a transaction which took too long, its library raises
    whenever it serves callbacks: where it calls one in the same moment, Python makes a SystemError of the two.
    """
    if not isinstance(error, SystemError):
        return error
    if not isinstance(error.__cause__, KafkaException):
        raise error
    return error.__cause__


def _words(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return cause.str() if isinstance(cause, KafkaError) else str(cause)
