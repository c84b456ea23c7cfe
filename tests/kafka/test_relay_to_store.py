"""All of the way: files of a collector, a relay, the topic, workers, InfluxDB. The totals are the simulator's."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from relay_stage import RelayProcess, moments
from topic_stage import TopicStage, stage

from bench.faults import Record
from cluster.model import KafkaSettings
from rules.evaluate.evaluator import Alert, Evaluator
from rules.registry import rules_of
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.schema import RAW, RELAY_AGE, RELAY_STATUS


@pytest.mark.timeout(240)
def test_relay_and_workers_are_killed_and_every_total_is_right(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str, kafka_settings: KafkaSettings, record: Record
) -> None:
    with stage(tmp_path, influxdb_v1.url, fresh_database, kafka_settings) as staged:
        relays: list[RelayProcess] = []
        spool, files = tmp_path / "filling", sorted((tmp_path / "files").glob("*.csv"))
        spool.mkdir()
        (tmp_path / "files" / "counters").rename(spool / "counters")
        try:
            worker = staged.start()
            waits = moments(3, 4, 0.6)
            for number in range(4):
                for file in files[number::4]:
                    file.rename(spool / file.name)
                relays.append(RelayProcess(staged.config, number, ("--spool", str(spool))))
                relays[-1].until("event=start")
                threading.Event().wait(next(waits))
                relays[-1].kill()
                if number == 1:
                    worker.kill()
                    staged.start()
            relays.append(RelayProcess(staged.config, 4, ("--spool", str(spool))))
            record("kafka-relay-killed", staged.reckoning(90), trials=5)
        finally:
            for relay in relays:
                relay.kill()


def _age(staged: TopicStage) -> float | None:
    """Return the newest age that the store has of the relay."""
    query = f'SELECT last("{RELAY_AGE.name}") FROM "{RAW}"."{RELAY_STATUS.name}" WHERE "relay" = \'lab\''
    series = Store(staged.cluster.store).query(query)
    return float(series[0].values[0][1] or 0) if series else None


def _until_age(staged: TopicStage, most: float) -> None:
    # A relay that is killed while brokers commit is waited for by the next one, for a minute at most.
    deadline = time.monotonic() + 100
    while (age := _age(staged)) is None or age > most:
        assert time.monotonic() < deadline, f"{age}\n{staged.said()}"
        time.sleep(0.2)


def _alerts(staged: TopicStage) -> list[Alert]:
    """Return what fires now, by a limit and a range that a test can wait for."""
    limits = replace(staged.cluster.thresholds, relay_silent=5)
    # Of a window of 10 s a few readings in the range are enough.
    bridge = replace(staged.cluster.bridge, window=10)
    rule = rules_of(replace(staged.cluster, thresholds=limits, bridge=bridge)).rule("relay_silent")
    measures = tuple(replace(measure, since=5) for measure in rule.measures)
    evaluator = Evaluator(Store(staged.cluster.store), [replace(rule, measures=measures)])
    evaluator.tick(int(time.time()), since=0)
    return evaluator.alerts()


def _until_silent(staged: TopicStage) -> Alert:
    deadline = time.monotonic() + 30
    while not (alerts := _alerts(staged)):
        assert time.monotonic() < deadline, staged.said()
        time.sleep(0.5)
    return alerts[0]


@pytest.mark.timeout(240)
def test_a_relay_that_dies_shows_in_the_store(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str, kafka_settings: KafkaSettings
) -> None:
    """Idle it is there, killed it grows old, and started again it is there, brings everything, and nothing twice."""
    bridge = {"window": "1s"}
    with stage(tmp_path, influxdb_v1.url, fresh_database, kafka_settings, bridge=bridge) as staged:
        spool = tmp_path / "filling"
        spool.mkdir()
        staged.start()
        relays = [RelayProcess(staged.config, 0, ("--spool", str(spool)))]
        try:
            _until_age(staged, 3)
            assert _alerts(staged) == []
            relays[0].kill()
            alert = _until_silent(staged)
            assert (alert.labels["relay"], alert.annotations["destination"]) == (
                "lab", f"Kafka topic {kafka_settings.topic}",
            )  # fmt: skip
            for path in (tmp_path / "files").iterdir():
                path.rename(spool / path.name)
            relays.append(RelayProcess(staged.config, 1, ("--spool", str(spool))))
            _until_age(staged, 3)
            assert _alerts(staged) == []
            staged.check(90)
        finally:
            for relay in relays:
                relay.kill()
