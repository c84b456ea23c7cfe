"""Splunk, Elasticsearch and webhooks: strict receivers that are away, overloaded, or dislike an event."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from receivers import RESET, RESET_AFTER, Answer, Bulk, Hec, HttpReceiver, event, listening, numbers, until

from app.log import Log
from cluster.model import Destination, ElasticDestination, EventKind, Secret, SplunkDestination, WebhookDestination
from delivery.event import Document
from delivery.queue import Spool
from delivery.sender import Sender
from delivery.transports import http_transport
from delivery.transports.http_transport import SIGNATURE_HEADER, TIMESTAMP_HEADER, Webhook, signature
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from store.local_influxdb import free_port
from store.schema import Stage

Deliver = Callable[[Destination], Sender]
EVERY_FAULT: list[tuple[int, dict[str, str]] | str] = [
    (500, {}), (503, {}), (429, {"Retry-After": "0"}), RESET, RESET_AFTER, (401, {}),
]  # fmt: skip


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_TOKEN", "s3cret")


TOKEN = Secret(env="TEST_TOKEN")


def _fill(spool: Spool, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        spool.append([event(number)], {})


class Hook:
    """A webhook that keeps what it gets."""

    def __init__(self) -> None:
        self.events: list[Document] = []
        self.poison = ""

    def __call__(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        assert path == "/in?key=s3cret"
        assert headers[SIGNATURE_HEADER] == signature(b"s3cret", headers[TIMESTAMP_HEADER], body)
        assert headers["Authorization"] == "Bearer s3cret"
        posted = json.loads(body)
        if self.poison and self.poison in json.dumps(posted):
            return 422, {}, {}
        assert posted["schema"] == "clusterflow.event/1"
        self.events += posted["events"]
        return 204, {}, {}


def test_splunk_gets_all_in_order_whatever_goes_wrong(spool: Spool, deliver: Deliver, counters: Counters) -> None:
    hec = Hec("s3cret")
    with listening(hec) as receiver:
        receiver.faults = list(EVERY_FAULT)
        deliver(SplunkDestination(name="siem", url=receiver.url, token=TOKEN, index="net"))
        _fill(spool, 100)
        until(lambda: spool.waiting("siem") == 0)
    assert numbers(hec.events) == list(range(100))
    assert {one["index"] for one in hec.envelopes} == {"net"}
    assert hec.envelopes[0]["time"] == 1_772_352_000
    assert counters.total(Stage.DELIVER, "siem.sent") == 100
    assert counters.total(Stage.DELIVER, "siem.retries") == len(EVERY_FAULT)
    # Only the batch whose answer was lost came twice, with the same ids.
    repeats = len(hec.events) - len({one["id"] for one in hec.events})
    assert 0 < repeats < 100


def test_splunk_acknowledges_by_its_index(spool: Spool, deliver: Deliver) -> None:
    hec = Hec("s3cret", acks=True)
    with listening(hec) as receiver:
        deliver(SplunkDestination(name="siem", url=receiver.url, token=TOKEN))
        _fill(spool, 1)
        until(lambda: spool.waiting("siem") == 0)
        assert [path.partition("?")[0].rpartition("/")[2] for _, path in receiver.requests] == ["event", "ack", "ack"]
    assert numbers(hec.events) == [0]


def test_a_wrong_index_of_splunk_costs_no_event(spool: Spool, deliver: Deliver, counters: Counters) -> None:
    hec = Hec("s3cret")
    hec.indexes = set()
    with listening(hec) as receiver:
        sender = deliver(SplunkDestination(name="siem", url=receiver.url, token=TOKEN, index="net"))
        _fill(spool, 20)
        until(lambda: counters.total(Stage.DELIVER, "siem.retries") > 1)
        assert sender.failing_seconds() > 0
        hec.indexes = {"net"}
        until(lambda: spool.waiting("siem") == 0)
    assert numbers(hec.events) == list(range(20))
    assert counters.total(Stage.DELIVER, "siem.refused") == 0


@pytest.mark.parametrize("kind", ["splunk", "elastic", "webhook"])
def test_one_event_that_is_refused_does_not_stop_the_others(
    kind: str, spool: Spool, deliver: Deliver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receivers = {"splunk": Hec("s3cret"), "elastic": Bulk("s3cret"), "webhook": Hook()}
    taker = receivers[kind]
    taker.poison = "number 7"
    with listening(taker) as receiver:
        monkeypatch.setenv("TEST_URL", f"{receiver.url}/in?key=s3cret")
        destinations: dict[str, Destination] = {
            "splunk": SplunkDestination(name="x", url=receiver.url, token=TOKEN),
            "elastic": ElasticDestination(name="x", url=receiver.url, api_key=TOKEN),
            "webhook": WebhookDestination(name="x", url=Secret(env="TEST_URL"), token=TOKEN, signing_key=TOKEN),
        }
        spool.register(["x"])
        spool.append([event(number) for number in range(20)], {})
        counters = deliver(destinations[kind]).counters
        until(lambda: spool.waiting("x") == 0)
    got = taker.order if isinstance(taker, Bulk) else numbers(taker.events)
    assert got == [number for number in range(20) if number != 7]
    assert counters.total(Stage.DELIVER, "x.refused") == 1
    assert counters.total(Stage.DELIVER, "x.sent") == 19
    (letter,) = (tmp_path / "refused.jsonl").read_text().splitlines()
    assert json.loads(letter)["source"] == "x"
    assert "number 7" in json.loads(letter)["line"]


def test_elasticsearch_has_each_document_once(spool: Spool, deliver: Deliver) -> None:
    bulk = Bulk("s3cret")
    with listening(bulk) as receiver:
        receiver.faults = list(EVERY_FAULT)
        bulk.item_faults = [(3, 429), (5, 503)]
        spool.register(["siem"])
        _fill(spool, 60)
        deliver(ElasticDestination(name="siem", url=receiver.url, api_key=TOKEN))
        until(lambda: spool.waiting("siem") == 0)
    assert sorted(bulk.order) == list(range(60))
    assert bulk.conflicts > 0
    document = next(iter(bulk.documents.values()))
    assert document["@timestamp"].startswith("2026-03-01T08:")
    assert document["destination"]["as"] == {"number": 64500, "organization": {"name": "ExampleHost"}}


def test_a_webhook_is_signed_and_ordered(spool: Spool, deliver: Deliver, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = Hook()
    with listening(hook) as receiver:
        monkeypatch.setenv("TEST_URL", f"{receiver.url}/in?key=s3cret")
        receiver.faults = list(EVERY_FAULT)
        deliver(WebhookDestination(name="soar", url=Secret(env="TEST_URL"), token=TOKEN, signing_key=TOKEN))
        _fill(spool, 60)
        until(lambda: spool.waiting("soar") == 0)
    assert numbers(hook.events) == list(range(60))


@pytest.mark.service
def test_retry_after_is_waited_for(spool: Spool, deliver: Deliver) -> None:
    hec = Hec("s3cret")
    with listening(hec) as receiver:
        receiver.faults = [(503, {"Retry-After": "1"})]
        deliver(SplunkDestination(name="siem", url=receiver.url, token=TOKEN))
        _fill(spool, 1)
        until(lambda: hec.events)
        (first, _), (second, _) = receiver.requests
    # The longest pause of its own would be 0.2 s.
    assert 1.0 <= second - first < 3.0


def test_a_receiver_that_was_away_gets_what_waited(spool: Spool, deliver: Deliver) -> None:
    port, hec = free_port(), Hec("s3cret")
    sender = deliver(SplunkDestination(name="siem", url=f"http://127.0.0.1:{port}", token=TOKEN))
    _fill(spool, 50)
    until(lambda: sender.failing_seconds() > 0.3)
    assert spool.waiting("siem") == 50
    receiver = HttpReceiver(hec, port)
    until(lambda: spool.waiting("siem") == 0)
    receiver.close()
    assert numbers(hec.events) == list(range(50))
    assert sender.failing_seconds() == 0


def test_a_slow_destination_does_not_hold_up_another(spool: Spool, deliver: Deliver) -> None:
    hec = Hec("s3cret")
    with listening(hec) as receiver:
        deliver(SplunkDestination(name="away", url=f"http://127.0.0.1:{free_port()}", token=TOKEN))
        deliver(SplunkDestination(name="here", url=receiver.url, token=TOKEN))
        _fill(spool, 50)
        until(lambda: spool.waiting("here") == 0)
    assert spool.waiting("away") == 50
    assert numbers(hec.events) == list(range(50))


def test_a_destination_gets_the_events_that_it_asked_for(spool: Spool, deliver: Deliver) -> None:
    hec = Hec("s3cret")
    with listening(hec) as receiver:
        deliver(SplunkDestination(name="siem", url=receiver.url, token=TOKEN, events=(EventKind.JOB,)))
        spool.append([event(0), event(1, EventKind.JOB), event(2)], {})
        until(lambda: spool.waiting("siem") == 0)
    assert numbers(hec.events) == [1]


def test_the_rate_is_kept(spool: Spool, deliver: Deliver) -> None:
    hec = Hec("s3cret")
    with listening(hec) as receiver:
        began = time.monotonic()
        deliver(SplunkDestination(name="siem", url=receiver.url, token=TOKEN, rate=100))
        for number in range(5):
            spool.append([event(10 * number + one) for one in range(10)], {})
            until(lambda: spool.waiting("siem") == 0)
    # The last batch waits for the four before it.
    assert time.monotonic() - began >= 0.4
    assert numbers(hec.events) == list(range(50))


@contextmanager
def _babbling(piece: bytes, pause: float) -> Iterator[str]:
    """Yield the address of a server whose answer goes on and on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=babble, args=(connection,), daemon=True).start()

        def babble(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                while True:
                    connection.sendall(piece)
                    time.sleep(pause)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("babble", "limit"),
    [((b": here\n", 0.05), ("_ANSWER_SECONDS", 0.3)), ((b"x" * 65536, 0.0), ("_MOST_BYTES", 1 << 20))],
    ids=["slowly", "quickly"],
)
def test_an_answer_without_end_is_a_failure(
    babble: tuple[bytes, float],
    limit: tuple[str, float],
    spool: Spool,
    deliver: Deliver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_transport, *limit)
    with _babbling(*babble) as url:
        sender = deliver(SplunkDestination(name="siem", url=url, token=TOKEN))
        _fill(spool, 1)
        # It is given up, and tried again.
        until(lambda: sender.counters.total(Stage.DELIVER, "siem.retries") > 1, 20)
        assert sender.failing_seconds() > 0
    assert spool.waiting("siem") == 1


def test_what_a_receiver_repeats_of_our_secrets_is_told_nobody(
    monkeypatch: pytest.MonkeyPatch, spool: Spool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As servers do that print the address that they do not know, or the token that they do not like."""

    def repeat(path: str, headers: dict[str, str], body: bytes) -> Answer:
        del body
        return 404, {"text": f"no {path} for {headers['Authorization']}, key s3cret"}, {}

    with listening(repeat) as receiver:
        monkeypatch.setenv("TEST_URL", f"{receiver.url}/hidden/place?key=s3cret")
        destination = WebhookDestination(name="hook", url=Secret(env="TEST_URL"), token=TOKEN)
        sender = Sender(
            destination,
            Webhook(destination),
            spool,
            counters=Counters(),
            dead=DeadLetters(tmp_path / "refused.jsonl"),
            log=Log(),
            pauses=(0.05, 0.2),
        )
        spool.register(["hook"])
        sender.start()
        _fill(spool, 1)
        until(lambda: sender.failing_seconds() > 0)
        sender.stop(10)
    told = capsys.readouterr().err
    assert "webhook hook answers 404" in told
    assert "no *** for Bearer ***, key ***" in told
    assert "hidden" not in told
    assert "s3cret" not in told
