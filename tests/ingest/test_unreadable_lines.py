"""A server that refuses a whole request for one line that it cannot read, as InfluxDB 2.x does.

No InfluxDB 2.x can be had here: a server of our own that answers like one stands in for it.
"""

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cluster.model import Secret, StoreApi, StoreSettings
from store.influx import PartialWriteError, Store


class _Picky(BaseHTTPRequestHandler):
    """Keeps the lines of a request unless one of them is bad."""

    server: "_Server"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        lines = body.decode().splitlines()
        self.server.requests += 1
        bad = [line for line in lines if line.startswith("bad")]
        if bad:
            reasons = "\n".join(f"unable to parse '{line}': missing fields" for line in bad)
            answer = json.dumps({"code": "invalid", "message": reasons}).encode()
        else:
            self.server.kept += lines
            answer = b""
        self.send_response(400 if bad else 204)
        self.send_header("X-Influxdb-Version", "v2.7.11")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Picky)
        self.kept: list[str] = []
        self.requests = 0


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def store(server: _Server, tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "token").write_text("secret")
    url = f"http://127.0.0.1:{server.server_port}"
    store = Store(StoreSettings(url=url, api=StoreApi.V2, token=Secret(file=str(tmp_path / "token"))))
    yield store
    store.close()


@pytest.mark.parametrize("bad", [(0,), (99,), (0, 50, 51, 99), tuple(range(100))])
def test_what_can_be_read_is_written_and_the_rest_counted(server: _Server, store: Store, bad: tuple[int, ...]) -> None:
    lines = [f"{'bad' if number in bad else 'good'},n={number} v=1i 1" for number in range(100)]
    with pytest.raises(PartialWriteError, match="unable to parse") as refused:
        store.write("\n".join(lines).encode(), "raw")
    assert refused.value.dropped == len(bad)
    assert sorted(server.kept) == sorted(line for line in lines if line.startswith("good"))


def test_the_search_has_an_end_and_what_it_leaves_is_counted(server: _Server, store: Store) -> None:
    lines = [f"{'bad' if number % 2 else 'good'},n={number} v=1i 1" for number in range(2_000)]
    with pytest.raises(PartialWriteError) as refused:
        store.write("\n".join(lines).encode(), "raw")
    assert server.requests <= 500
    assert refused.value.dropped == len(lines) - len(server.kept)
