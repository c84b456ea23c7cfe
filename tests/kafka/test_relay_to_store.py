"""All of the way: files of a collector, a relay, the topic, workers, InfluxDB. The totals are the simulator's."""

import threading
from pathlib import Path

import pytest
from relay_stage import RelayProcess, moments
from topic_stage import stage

from cluster.model import KafkaSettings
from ingest.local_influxdb import LocalInfluxDB
from simulate.faults import Record


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
