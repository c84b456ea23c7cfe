"""What a worker in the group bears with: complaints of before, and brokers that refuse it for a while."""

import threading
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest
from confluent_kafka import KafkaError, KafkaException
from test_kafka_state import CLUSTER

from app.errors import UserError
from app.log import Log
from ingest.dead_letter import DeadLetters
from ingest.kafka.client import KafkaUnavailableError, RefusedError, Topics, explain
from ingest.kafka.commit import Committer
from ingest.kafka.worker import KafkaWorker
from store.influx import Store

KAFKA = replace(CLUSTER.kafka, brokers=("b:9092",))
TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
REFUSALS = [
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
]


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaWorker:
    """A worker in the group, whose brokers are told what to say."""
    monkeypatch.setattr("ingest.kafka.worker._RETRY_SECONDS", 0.01)
    monkeypatch.setattr("ingest.kafka.worker._POLL_SECONDS", 0.01)
    made = KafkaWorker(
        replace(CLUSTER, kafka=KAFKA),
        Store(CLUSTER.store),
        dead_letter=DeadLetters(tmp_path / "dead.jsonl"),
        stop=threading.Event(),
        log=Log(quiet=True),
    )
    made._topics = Topics("flows", "state", "relays", 4, 1000, 1000)
    made._consumer = Mock()
    made._consumer.poll.return_value = None
    made._has_begun = True
    return made


@pytest.mark.parametrize("code", REFUSALS)
def test_an_old_complaint_is_not_the_reason_of_a_later_timeout(code: int, worker: KafkaWorker) -> None:
    worker._trouble.note(KafkaError(code, "one broker, days ago"))
    worker._round()
    # Nobody would take such a timeout for a refusal that is to end the worker at once.
    worker._has_begun = False
    worker._consumer.get_watermark_offsets.side_effect = [TIMED_OUT, (0, 10)]
    assert worker._first_offset(Mock(position=5, partition=0)) == 5


@pytest.mark.parametrize("code", REFUSALS)
def test_an_answer_clears_what_was_complained_of_while_it_was_waited_for(code: int, worker: KafkaWorker) -> None:
    worker._trouble.note(KafkaError(code, "just now"))
    worker._consumer.get_watermark_offsets.side_effect = [TIMED_OUT, (0, 10)]
    assert worker._first_offset(Mock(position=5, partition=0)) == 5
    assert not worker._trouble._errors


def test_a_refusal_of_brokers_that_took_the_worker_before_ends_it_after_a_while(
    worker: KafkaWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = explain(KafkaError(KafkaError._AUTHENTICATION), KAFKA)
    attempt = Mock(side_effect=[refusal, refusal, 7])
    assert worker._patiently(attempt) == 7
    monkeypatch.setattr("ingest.kafka.worker.REFUSED_SECONDS", 0.1)
    attempt = Mock(side_effect=refusal)
    with pytest.raises(RefusedError):
        worker._patiently(attempt)
    assert attempt.call_count > 1


def test_a_refusal_at_first_is_told_at_once(worker: KafkaWorker) -> None:
    worker._has_begun = False
    attempt = Mock(side_effect=explain(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), KAFKA))
    with pytest.raises(RefusedError, match="not allowed"):
        worker._patiently(attempt)
    assert attempt.call_count == 1


# -- archives whose partitions are elsewhere ---------------------------------------------------------


@pytest.mark.parametrize("values", [{b"notes/0/0": b"garbage"}, UserError("refused"), KafkaUnavailableError("away")])
def test_the_state_of_a_partition_of_others_that_makes_no_sense_ends_nobody(
    values: dict[bytes, bytes] | Exception, worker: KafkaWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.kafka.worker.newest_values", Mock(side_effect=[values]))
    assert worker._marks(1) is None


@pytest.mark.parametrize("error", [OSError("disk"), pl.exceptions.ComputeError("file"), UserError("bucket")])
def test_archives_that_cannot_be_looked_after_are_told_and_tried_again(
    error: Exception,
    worker: KafkaWorker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    tidy = Mock(side_effect=[error, None])
    monkeypatch.setattr("ingest.kafka.worker.tidy_idle", tidy)
    monkeypatch.setattr("ingest.kafka.worker._TIDY_SECONDS", 0.0)
    worker._around = replace(worker._around, archive=tmp_path)
    worker._log = Log()
    for _ in range(2):
        worker._tidy_if_due()
        assert worker._tidying is not None
        wait([worker._tidying])
    assert capsys.readouterr().err.count("event=archives_not_tidied") == 1
    assert tidy.call_count == 2


# -- brokers that refuse commits ---------------------------------------------------------------------


def committer(producer: Mock) -> Committer:
    producer.flush.return_value = 0
    return Committer(
        lambda: producer,
        state_topic="state",
        topic="flows",
        explain=lambda error: explain(error, KAFKA),
        log=Log(quiet=True),
    )


def test_a_commit_that_is_refused_where_one_was_taken_before_is_offered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = Mock()
    made = committer(producer)
    assert made.commit({}, {}, Mock())
    producer.send_offsets_to_transaction.side_effect = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert not made.commit({}, {}, Mock())
    producer.send_offsets_to_transaction.side_effect = None
    assert made.commit({}, {}, Mock())
    producer.send_offsets_to_transaction.side_effect = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert not made.commit({}, {}, Mock())
    monkeypatch.setattr("ingest.kafka.commit.REFUSED_SECONDS", 0.0)
    with pytest.raises(RefusedError):
        made.commit({}, {}, Mock())


def test_a_first_commit_that_is_refused_is_told_at_once() -> None:
    producer = Mock()
    producer.send_offsets_to_transaction.side_effect = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(RefusedError):
        committer(producer).commit({}, {}, Mock())
