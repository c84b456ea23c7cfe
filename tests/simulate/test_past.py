"""The days before the demo: what they hold is stored to the byte, and judged before anything is live."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from rich.progress import Progress

from cluster.load import load_cluster, parse_cluster
from cluster.scalars.names import DAY
from simulate.demo.past import Past
from simulate.demo.plan import Places, demo_cluster, demo_scenario
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

REPOSITORY = Path(__file__).resolve().parents[2]
END = 1_795_000_200
BEFORE = 1800
KEPT = 100 * 365 * DAY
"""Whenever this test runs, END is not too old for the store."""


def _progress() -> Progress:
    return Progress(disable=True)


@pytest.mark.end_to_end
@pytest.mark.parametrize("records", ["packets", "logs"])
def test_the_past_is_stored_and_judged(
    records: str, influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path
) -> None:
    """Half an hour of a job that goes on, and what passes while that is read in."""
    logs = tmp_path / "logs" if records == "logs" else None
    places = Places(influxdb_v1.url, 1, 2, 3, tmp_path / "spool", tmp_path / "state", tmp_path, logs=logs)
    cluster = parse_cluster(demo_cluster(load_cluster(REPOSITORY / "cluster.yaml"), start=END, places=places))
    cluster = replace(
        cluster, store=replace(cluster.store, database=fresh_database, keep_raw=KEPT, keep_1m=KEPT, keep_1h=KEPT)
    )
    scenario = demo_scenario(cluster, start=END, seconds=60, quiet=True)
    assert scenario.history is not None
    assert scenario.recent is not None
    history = replace(scenario.history, start=scenario.recent.start - BEFORE)
    store = Store(cluster.store)
    past = Past(
        cluster, replace(scenario, history=history), store, tmp_path, stop=threading.Event(), progress=_progress
    )
    assert past.fill()
    assert past.judge()
    assert past.catch_up(END + 60)
    reckoning = past.reckon()
    assert reckoning.differences == ()
    assert reckoning.sent_bytes > 0
    judged = store.query(
        f'SELECT last("{schema.ACTIVE.name}") FROM "{schema.RAW}"."{schema.JOB_STATUS.name}" WHERE time < {END}s'
    )
    assert judged[0].values[0][0] >= (END - 60) * 1000
    store.close()
