"""Workers on a real topic and a real store: every total is the simulator's, whatever happens to them on the way."""

from pathlib import Path

import pytest
from topic_stage import TopicStage, stage

from cluster.model import KafkaSettings
from ingest.local_influxdb import LocalInfluxDB


@pytest.fixture
def staged(
    influxdb_v1: LocalInfluxDB, fresh_database: str, kafka_settings: KafkaSettings, tmp_path: Path
) -> TopicStage:
    return stage(tmp_path, influxdb_v1.url, fresh_database, kafka_settings)


def test_totals_of_one_worker_are_the_simulators(staged: TopicStage) -> None:
    with staged:
        worker = staged.start()
        for part in staged.parts(5):
            staged.send(part)
        staged.check()
        worker.stop()
        staged.check(0)
    assert worker.assigned() == {0, 1, 2, 3}
