"""What is written again, and what is taken back."""

import gzip
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scene

from analysis.detectors.rows import QUIET, Rows
from analysis.evidence import heartbeat
from analysis.writing import Output, gathered, retracted
from app.errors import StoreError
from app.log import Log
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB, free_port
from store.points import WINDOW

T0 = int(time.time()) // 10 * 10 - 3600
JOB = schema.JOB_STATUS


def rows(*jobs: tuple[int, str, int]) -> pl.DataFrame:
    """Rows of (seconds after T0, job, nodes)."""
    full = [(T0 + at, name, "llm", 1, nodes, "start") for at, name, nodes in jobs]
    names = [WINDOW, schema.JOB, schema.JOB_CLASS, schema.ACTIVE.name, schema.JOB_NODES.name, schema.JOB_EVENT.name]
    return pl.DataFrame(full, schema=names, orient="row")


def test_what_is_gone_becomes_zero_and_empty() -> None:
    before = rows((0, "a", 5), (10, "a", 6))
    gone = retracted(JOB, before, rows((10, "a", 7)))
    assert gone.rows() == [(T0, "a", "llm", 0, 0, "")]
    assert gone.schema == before.schema
    assert retracted(JOB, before, before).is_empty()
    assert retracted(JOB, before, None).height == 2


def test_frames_of_one_measurement_are_put_together() -> None:
    parts = [(JOB, rows((0, "a", 5))), (schema.COHORT, pl.DataFrame()), (JOB, rows((0, "b", 5)))]
    assert {name: frame.height for name, frame in gathered(parts).items()} == {"job": 2}


@pytest.fixture
def store(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Store:
    cluster = scene.cluster_of(influxdb_v1.url, fresh_database)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    return store


def stored(store: Store) -> list[tuple[int, str, int, str]]:
    frame = store.frame('SELECT * FROM "raw"."job"').sort("time", "job")
    return [(row["time"] // 1000 - T0, row["job"], row["nodes"], row["event"]) for row in frame.iter_rows(named=True)]


def test_only_what_changed_is_written(store: Store) -> None:
    output = Output(store)
    assert output.update(JOB, rows((0, "a", 5), (10, "a", 5), (10, "b", 5)), T0, T0 + 10) == 3
    assert output.update(JOB, rows((10, "a", 5), (10, "b", 6), (20, "b", 6)), T0 + 10, T0 + 10) == 2
    assert output.update(JOB, rows((10, "a", 5), (10, "b", 6), (20, "b", 6)), T0 + 10, T0 + 10) == 0
    # A row that vanishes is taken back once, and stays taken back.
    assert output.update(JOB, rows((10, "a", 5)), T0 + 10, T0 + 10) == 2
    assert output.update(JOB, rows((10, "a", 5)), T0 + 10, T0 + 10) == 0
    assert output.update(JOB, None, T0 + 10, T0 + 10) == 1
    output.flush()
    assert stored(store) == [(0, "a", 5, "start"), (10, "a", 0, ""), (10, "b", 0, ""), (20, "b", 0, "")]


def test_what_is_final_is_forgotten(store: Store) -> None:
    output = Output(store)
    output.update(JOB, rows((0, "a", 5)), T0, T0 + 10)
    assert output.update(JOB, None, T0, T0 + 10) == 0
    output.flush()
    assert stored(store) == [(0, "a", 5, "start")]


def test_what_begins_after_the_range_is_left_out(store: Store) -> None:
    output = Output(store)
    output.until = T0 + 10
    assert output.update(JOB, rows((0, "a", 5), (10, "a", 5)), T0, T0 + 10) == 1
    output.flush()
    assert stored(store) == [(0, "a", 5, "start")]


def test_rows_that_say_nothing_are_written_only_in_place_of_others(store: Store) -> None:
    output = Output(store)
    quiet = rows((0, "a", 5), (10, "a", 5)).with_columns(pl.Series(QUIET, [True, False]))
    assert output.update(JOB, quiet, T0, T0) == 1
    assert output.update(JOB, rows((0, "a", 7), (10, "a", 5)), T0, T0) == 1
    assert output.update(JOB, quiet, T0, T0) == 1
    output.flush()
    assert stored(store) == [(0, "a", 5, "start"), (10, "a", 5, "start")]


def test_of_quiet_rows_only_those_are_made_that_may_replace_others(store: Store) -> None:
    """A job of thousands of nodes has as many in each window, and most windows hold nothing else."""
    output = Output(store)

    def windows(job: str) -> list[int]:
        columns = {WINDOW: T0 + np.arange(0, 40, 10), QUIET: np.array([True, False, True, True])}
        found = output.thinned(Rows(JOB, columns, {schema.JOB: job}))
        return [window - T0 for window in found[WINDOW].tolist()]

    assert windows("a") == [10]
    output.update(JOB, rows((0, "a", 5), (20, "a", 5)), T0, T0)
    assert (windows("a"), windows("b")) == ([0, 10, 20], [10])
    output.update(JOB, rows((0, "b", 5)), T0, T0 + 10)
    assert (windows("a"), windows("b")) == ([10, 20], [10]), "20 was taken back, 0 is final"


def test_what_another_process_wrote_is_set_right(store: Store) -> None:
    first = Output(store)
    first.update(JOB, rows((0, "a", 5), (10, "a", 5), (10, "b", 5)), T0, T0)
    first.flush()
    second = Output(store)
    second.recall([JOB, schema.COHORT], T0 + 10, T0 + 20)
    assert second.update(JOB, rows((10, "a", 5)), T0 + 10, T0 + 20) == 1
    second.flush()
    assert stored(store) == [(0, "a", 5, "start"), (10, "a", 5, "start"), (10, "b", 0, "")]


def test_points_that_the_store_refuses_for_good_hold_up_nothing(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Output(store, Log())
    output.write(JOB, rows((-30 * 86_400, "old", 5), (0, "a", 5)))
    output.write(JOB, rows((0, "b", 5)))
    output.flush()
    assert stored(store) == [(0, "a", 5, "start"), (0, "b", 5, "start")]
    assert output.refused == 0, "the retention is to keep nothing so old"
    assert "event=points_refused dropped=1" in capsys.readouterr().err
    store.write(f'pipeline,stage=another value="program" {T0}'.encode(), schema.RAW)
    output.write(schema.PIPELINE, heartbeat(T0, "0", {"a": 1.0}))
    output.flush()
    assert output.refused == 1


def test_a_store_that_is_away_is_told_when_it_matters(tmp_path: Path) -> None:
    cluster = scene.cluster_of(f"http://127.0.0.1:{free_port()}", "nowhere", str(tmp_path))
    output = Output(Store(cluster.store))
    output.write(JOB, rows((0, "a", 5)))
    with pytest.raises(StoreError, match="does not answer"):
        output.flush()
    output.flush()


class _Away(BaseHTTPRequestHandler):
    """A store that is away for one write, and there for all that follow."""

    asked: list[str]

    def do_GET(self) -> None:
        self.send_response(204)
        self.send_header("X-Influxdb-Version", "1.8.10")
        self.end_headers()

    def do_POST(self) -> None:
        lines = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"]))).decode()
        self.asked.append(lines.partition("job=")[2][:1])
        self.send_response(503 if len(self.asked) == 1 else 204)
        self.send_header("X-Influxdb-Version", "1.8.10")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_nothing_is_written_after_what_failed() -> None:
    _Away.asked = []
    with HTTPServer(("127.0.0.1", 0), _Away) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        output = Output(Store(scene.cluster_of(f"http://127.0.0.1:{server.server_port}", "any").store))
        for name in "abcdefgh":
            output.write(JOB, rows((0, name, 5)))
        with pytest.raises(StoreError):
            output.flush()
        asked = list(_Away.asked)
        output.write(JOB, rows((0, "z", 5)))
        output.flush()
        server.shutdown()
    assert _Away.asked == [*asked, "z"]
    assert asked[0] == "a"
