"""What the fault tests share: a bridge that is watched and ended, a store behind a bad line, a disk of a few pages."""

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
import requests
from staged import Staged, move_counters, record_files, start

from simulate.truth.reckoning import Reckoning, reckon
from store.influx import Store

# -- the bridge -------------------------------------------------------------------------------------


class Bridge:
    """`clusterflow ingest` on a staged cluster, as a process of its own. As a context manager it is there at once."""

    def __init__(self, staged: Staged, *arguments: str, **environment: str) -> None:
        self.staged = staged
        self._arguments, self._environment = arguments, environment
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.await_start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            self.kill()

    def start(self) -> None:
        self.process = start("ingest", self.staged, *self._arguments, **self._environment)

    def await_start(self) -> None:
        """Wait until it reads."""
        before = self.said().count("event=start ")
        self.start()
        await_that(lambda: self.said().count("event=start ") > before, "the bridge starts")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM, within: float = 60) -> int:
        """End it in order; return its exit code."""
        assert self.process is not None
        self.send(number)
        return self.process.wait(within)

    def wait(self, within: float = 60) -> int:
        assert self.process is not None
        return self.process.wait(within)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def said(self) -> str:
        log = self.staged.config.with_name("ingest.log")
        return log.read_text(errors="replace") if log.exists() else ""

    def metrics(self) -> dict[tuple[str, str], float]:
        """Return the running totals, by stage and reason."""
        text = requests.get(f"http://{self.staged.cluster.bridge.metrics_listen}/metrics", timeout=5).text
        found: dict[tuple[str, str], float] = {}
        for line in text.splitlines():
            if line.startswith("clusterflow_pipeline_total{"):
                labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
                found[labels["stage"], labels["reason"]] = float(line.rpartition(" ")[2])
        return found

    def health(self) -> tuple[int, str]:
        answer = requests.get(f"http://{self.staged.cluster.bridge.metrics_listen}/healthz", timeout=5)
        return answer.status_code, answer.text.strip()


def await_that(is_so: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)


# -- the account ------------------------------------------------------------------------------------


def filled(staged: Staged, folder: Path) -> tuple[dict[str, Any], list[Path]]:
    """Return the truth of a staged minute and its files, yet to be moved into the spool; counters are there already."""
    truth = staged.fill(folder)
    move_counters(folder, staged.spool)
    return truth, record_files(folder)


def feed(staged: Staged, files: list[Path], pause: float = 0.1) -> Iterator[int]:
    """Move files into the spool, one after the other; yield how many are there."""
    for count, file in enumerate(files, 1):
        file.rename(staged.spool / file.name)
        yield count
        time.sleep(pause)


def records_in(files: list[Path]) -> int:
    """Return how many records are in files: beside them each has a mark at both ends and the names of its columns."""
    return sum(file.read_text(encoding="ascii").count("\n") - 3 for file in files)


def await_read(bridge: Bridge, files: list[Path]) -> None:
    """Wait until the bridge has counted every record of these files, which must be all that it was given."""
    wanted = records_in(files)
    await_that(lambda: bridge.metrics().get(("normalise", "records"), 0) >= wanted, f"{wanted} records are read")


def account(staged: Staged, truth: dict[str, Any], shard: str | None = None) -> Reckoning:
    return reckon(Store(staged.cluster.store), truth, shard or staged.cluster.bridge.shard)


def await_account(staged: Staged, truth: dict[str, Any], seconds: float = 60) -> Reckoning:
    """Return the account as soon as it is even, or as it stands after a while."""
    deadline = time.monotonic() + seconds
    while True:
        result = account(staged, truth)
        if not result.differences or time.monotonic() > deadline:
            return result
        time.sleep(0.3)


# -- a bad line -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """What the proxy does with a request instead of passing it on.

    Attributes:
        status: answered at once; 0: the request is passed on.
        headers, body: of that answer.
        delay: seconds before anything else.
        reset: where the connection is reset: "body" (half of the request read), "answer" (after the server has it).
        cut: whether the server's answer ends in its middle.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0.0
    reset: str = ""
    cut: bool = False


PASS = Answer()
Plan = Callable[[str, int], Answer]
"""Called with the path and the number of the request to it."""


class _Line(BaseHTTPRequestHandler):
    """One connection to a `Proxy`."""

    protocol_version = "HTTP/1.1"
    server: "_Server"

    def handle_any(self) -> None:
        path = urlsplit(self.path).path
        answer = self.server.proxy.next_answer(path)
        length = int(self.headers.get("Content-Length", 0))
        if answer.reset == "body":
            self.rfile.read(length // 2)
            self.reset()
            return
        body = self.rfile.read(length)
        time.sleep(answer.delay)
        if answer.status:
            self.reply(answer.status, answer.headers, answer.body)
            return
        try:
            self.forward(body, answer)
        except (OSError, HTTPException):
            self.reset()

    do_GET = do_POST = handle_any  # noqa: N815 - http.server's names

    def forward(self, body: bytes, answer: Answer) -> None:
        connection = HTTPConnection(self.server.proxy.target, timeout=60)
        connection.request(self.command, self.path, body, dict(self.headers))
        response = connection.getresponse()
        data = response.read()
        connection.close()
        if answer.reset == "answer":
            self.reset()
            return
        own = {"transfer-encoding", "content-length", "connection"}
        kept = {name: value for name, value in response.getheaders() if name.lower() not in own}
        self.reply(response.status, kept, data, cut=answer.cut)

    def reply(self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut

    def reset(self) -> None:
        # With no time to linger the kernel sends RST instead of FIN.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, proxy: "Proxy") -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Line)

    def handle_error(self, *_: object) -> None:
        """Stay silent: whoever resets connections breaks handlers."""


class Proxy:
    """An HTTP proxy in front of InfluxDB that does what a plan says. Use it as a context manager.

    Attributes:
        plan: asked for each request; may be exchanged at any time.
        seen: when requests came, by path, by the monotonic clock.
    """

    def __init__(self, url: str, plan: Plan = lambda _path, _number: PASS) -> None:
        self.target = urlsplit(url).netloc
        self.plan = plan
        self.seen: dict[str, list[float]] = {}
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def next_answer(self, path: str) -> Answer:
        times = self.seen.setdefault(path, [])
        times.append(time.monotonic())
        return self.plan(path, len(times))

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


# -- a small disk -----------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of its own, mounted on a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = shutil.which("mount", path=f"{os.environ.get('PATH', '')}:/bin:/usr/bin")
    if mount is None or os.geteuid():
        pytest.skip("only root may mount a small disk")
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={kilobytes}k,mode=0700", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
    )
    if done.returncode:
        pytest.skip(f"no small disk here: {done.stderr.decode(errors='replace').strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_up(disk: Path) -> Path:
    """Take all the room that a disk has left; return the file to remove when it is to have room again."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast
