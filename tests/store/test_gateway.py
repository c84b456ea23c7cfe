"""Somebody answers in InfluxDB's place: a gateway, its login page, an ingress whose backend restarts."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from app.errors import StoreError
from cluster.model import Retention, Secret, StoreApi, StoreSettings
from store import schema_version
from store.influx import LacksDatabaseError, Store, StoreUnavailableError

LINE = b"traffic,a=b bytes=1i 1700000000"
PAGE = b"<html>please log in</html>"


class _Answers(BaseHTTPRequestHandler):
    """Answers all requests alike, but has a page where it sends others to."""

    server: "_Gateway"

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(f"{self.command} {self.path.partition('?')[0]}")
        status, headers, body = (200, {}, PAGE) if self.path == "/login" else self.server.reply
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Gateway(ThreadingHTTPServer):
    reply: tuple[int, dict[str, str], bytes] = 200, {}, PAGE

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.asked: list[str] = []


@pytest.fixture
def gateway() -> Iterator[_Gateway]:
    with _Gateway() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(params=[StoreApi.V1, StoreApi.V2])
def store(request: pytest.FixtureRequest, gateway: _Gateway, tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "token").write_text("secret")
    url = f"http://127.0.0.1:{gateway.server_port}"
    store = Store(StoreSettings(url=url, api=request.param, token=Secret(file=str(tmp_path / "token"))))
    yield store
    store.close()


def test_a_write_is_taken_by_204_alone(gateway: _Gateway, store: Store) -> None:
    gateway.reply = 204, {"X-Influxdb-Version": "1.8.10"}, b""
    store.write(LINE, "raw")
    gateway.reply = 204, {}, b""
    store.write(LINE, "raw")


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (200, {}, PAGE),
        (200, {"X-Influxdb-Version": "1.8.10"}, b""),
        (200, {}, "<html>gewartet wird bis zwölf</html>".encode("latin-1")),
        (202, {}, b"queued"),
        (301, {"Location": "/login"}, b""),
        (302, {"Location": "/login"}, b""),
        (307, {"Location": "/login"}, b""),
        (304, {}, b""),
    ],
)
def test_a_page_in_answer_to_a_write_is_not_taken_for_a_yes(
    gateway: _Gateway, store: Store, status: int, headers: dict[str, str], body: bytes
) -> None:
    gateway.reply = status, headers, body
    with pytest.raises(StoreUnavailableError, match="InfluxDB does not") as refused:
        store.write(LINE, "raw")
    assert "store.url" in refused.value.hint
    # Whoever is sent elsewhere arrives there without the lines.
    assert [one for one in gateway.asked if one.endswith("login")] == []


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_question_is_not_sent_elsewhere(gateway: _Gateway, store: Store, status: int) -> None:
    gateway.reply = status, {"Location": "/login"}, b""
    for attempt in (store.version, lambda: store.query("SHOW MEASUREMENTS"), lambda: schema_version.read_mark(store)):
        with pytest.raises(StoreUnavailableError, match=f"answers {status}, which InfluxDB does not"):
            attempt()
    assert [one for one in gateway.asked if one.endswith("login")] == []


@pytest.mark.parametrize("reply", [(200, {}, PAGE), (200, {}, b"[]"), (302, {"Location": "/login"}, b"")])
def test_a_page_in_answer_to_the_question_for_buckets_is_waited_out(
    gateway: _Gateway, store: Store, reply: tuple[int, dict[str, str], bytes]
) -> None:
    gateway.reply = reply
    with pytest.raises(StoreUnavailableError):
        store.ensure((Retention("raw", 10, 86_400),))


KEPT = (Retention("raw", 10, 86_400),)


class _Bucket(_Answers):
    """A bucket of InfluxDB 2 that was made to keep points for ever, and its refusal of what its shards do not fit."""

    def answer(self) -> None:
        rule = {"type": "expire", "everySeconds": 0, "shardGroupDurationSeconds": 604_800}
        bucket = {"id": "1", "orgID": "2", "name": "x/raw", "retentionRules": [rule]}
        found: dict[str, Any] = {"buckets": [bucket]} if self.command == "GET" else bucket
        status = 200
        if self.command == "PATCH":
            (rule,) = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["retentionRules"]
            self.server.asked.append(f"{rule['everySeconds']} s")
            if rule["everySeconds"] < rule.get("shardGroupDurationSeconds", 604_800):
                status, found = 422, {"code": "unprocessable entity", "message": "shard-group duration must also be"}
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Influxdb-Version", "v2.7.12")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PATCH = answer  # noqa: N815 - http.server's names


@pytest.mark.parametrize("store", [StoreApi.V2], indirect=True)
def test_a_bucket_made_to_keep_points_for_ever_may_be_told_to_keep_them_for_a_day(
    gateway: _Gateway, store: Store
) -> None:
    gateway.RequestHandlerClass = _Bucket
    told: list[str] = []
    store.ensure((replace(KEPT[0], at_least=True),), told.append)
    assert gateway.asked == []
    store.ensure(KEPT, told.append)
    assert gateway.asked == ["86400 s"]
    assert told == ["retention raw: points were kept for ever, and are for 1 days from now on"]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"404 page not found\n"),
        (404, b"default backend - 404"),
        (401, b"<html>please log in</html>"),
        (403, b""),
        (400, b"no"),
    ],
)
def test_a_refusal_that_is_not_influxdbs_own_passes(gateway: _Gateway, store: Store, status: int, body: bytes) -> None:
    gateway.reply = status, {}, body
    for attempt in (
        lambda: store.write(LINE, "raw"),
        lambda: store.query("SHOW MEASUREMENTS"),
        lambda: store.ensure(KEPT),
        # Nor is it an empty store, or one without a mark.
        lambda: schema_version.read_mark(store),
        lambda: schema_version._has_points(store),
        lambda: schema_version.prepare(store, KEPT, may_migrate=True),
    ):
        with pytest.raises(StoreUnavailableError, match=str(status)):
            attempt()


@pytest.mark.parametrize("headers", [{}, {"X-Influxdb-Version": "1.8.10"}])
def test_a_body_that_is_too_large_is_tried_again_and_the_limit_named(
    gateway: _Gateway, store: Store, headers: dict[str, str]
) -> None:
    gateway.reply = 413, headers, b"<title>413 Request Entity Too Large</title>"
    with pytest.raises(StoreUnavailableError, match="answers 413") as refused:
        store.write(LINE, "raw")
    assert "client_max_body_size" in refused.value.hint


@pytest.mark.parametrize(("status", "words"), [(404, "404 page not found"), (401, "unauthorized"), (403, "forbidden")])
def test_a_refusal_of_influxdb_itself_does_not_pass(gateway: _Gateway, store: Store, status: int, words: str) -> None:
    gateway.reply = status, {"X-Influxdb-Version": "1.8.10"}, words.encode()
    for attempt in (lambda: store.write(LINE, "raw"), lambda: schema_version.read_mark(store)):
        with pytest.raises(StoreError, match=words) as refused:
            attempt()
        assert type(refused.value) is StoreError


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b'{"error":"database not found: \\"x\\""}'),
        # What 1.6 and 1.8 say to a write; it does not pass.
        (500, b'{"error":"retention policy not found: raw"}'),
        (404, b'{"code":"not found","message":"bucket \\"x/raw\\" not found"}'),
    ],
)
def test_a_database_that_is_not_there_is_known_by_influxdbs_words(
    gateway: _Gateway, store: Store, status: int, body: bytes
) -> None:
    # A proxy may have taken the header.
    gateway.reply = status, {}, body
    with pytest.raises(LacksDatabaseError):
        store.write(LINE, "raw")
    assert schema_version.read_mark(store) is None
