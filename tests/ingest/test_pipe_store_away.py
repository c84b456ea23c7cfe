"""Records that came through a pipe, which nobody can read again, while the store is away."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from test_bridge import HEADER, a_bridge, line, sent_bytes
from test_engine import cluster

from cluster.model import Cluster
from ingest.flows.normalise import Clock
from ingest.read.source import StreamSource
from store.local_influxdb import LocalInfluxDB


@pytest.fixture
def server(influxdb_v1: LocalInfluxDB, tmp_path: Path) -> Iterator[LocalInfluxDB]:
    """A store of our own, since it is to go away."""
    with LocalInfluxDB(tmp_path / "influxdb", binary=influxdb_v1.binary) as server:
        yield server


@pytest.fixture
def known(server: LocalInfluxDB) -> Cluster:
    base = cluster()
    return replace(
        base,
        store=replace(base.store, url=server.url),
        bridge=replace(base.bridge, flush=0.2, metrics_listen=None),
    )


def follow(
    known: Cluster,
    tmp_path: Path,
    records: bytes,
    *,
    stop_after: float | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Follow a pipe to its end; or, where it is not to end, until stopped."""
    reader, writer = os.pipe()
    os.write(writer, HEADER + records)
    stop = threading.Event()
    if stop_after is None:
        os.close(writer)
    else:
        threading.Timer(stop_after, stop.set).start()
    with os.fdopen(reader, "rb") as stream:
        a_bridge(known, StreamSource(stream), tmp_path, stop, Clock.LIVE).run(progress)
    if stop_after is not None:
        os.close(writer)


def test_a_start_without_a_store_that_is_stopped_leaves_the_checkpoint(
    known: Cluster, server: LocalInfluxDB, tmp_path: Path
) -> None:
    now = time.time()
    follow(known, tmp_path, line(now, size=1000))
    server.stop()
    follow(known, tmp_path, b"", stop_after=0.5)
    server.start()
    # More for the same window: its point is the total of both.
    follow(known, tmp_path, line(now, size=200))
    assert sent_bytes(known) == 1200


def test_windows_let_go_before_their_points_were_written_are_in_the_last_checkpoint(
    known: Cluster, server: LocalInfluxDB, tmp_path: Path
) -> None:
    now = time.time()
    # The older record's window is beyond the grace as soon as the newer one is read.
    records = line(now - 600, size=1000) + line(now, size=200)
    follow(known, tmp_path, records, stop_after=3, progress=lambda _: server.stop())
    server.start()
    assert sent_bytes(known) == 0
    follow(known, tmp_path, b"")
    assert sent_bytes(known) == 1200


def test_records_that_were_read_outlive_an_error_that_ends_the_process(known: Cluster, tmp_path: Path) -> None:
    def fail(_size: int) -> None:
        raise RuntimeError("whatever it is")

    with pytest.raises(RuntimeError, match="whatever it is"):
        follow(known, tmp_path, line(time.time(), size=1000), progress=fail)
    follow(known, tmp_path, b"")
    assert sent_bytes(known) == 1000


class _Ingress(BaseHTTPRequestHandler):
    """What an ingress says while its backend restarts."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(404, "404 page not found")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_an_ingress_whose_backend_restarts_is_waited_for(known: Cluster, server: LocalInfluxDB, tmp_path: Path) -> None:
    done = threading.Event()

    def restart() -> None:
        with ThreadingHTTPServer(("127.0.0.1", server.port), _Ingress) as ingress:
            threading.Timer(1.5, ingress.shutdown).start()
            ingress.serve_forever(0.05)
        server.start()
        done.set()

    def away(_size: int) -> None:
        server.stop()
        threading.Thread(target=restart).start()

    now = time.time()
    follow(known, tmp_path, line(now - 600, size=1000) + line(now, size=200), progress=away)
    assert done.wait(60)
    assert sent_bytes(known) == 1200
