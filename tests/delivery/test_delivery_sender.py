"""A sender: an event goes out once, whatever becomes of the note that it did; a try that does not end is seen."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from receivers import Hec, event, listening, numbers, until

from app.errors import StoreError
from app.log import Log
from cluster.model import Destination, EventKind, Secret, SplunkDestination
from delivery import sender as sending
from delivery.event import Document
from delivery.outbox import Outbox
from delivery.queue import Spool
from delivery.sender import Sender
from delivery.transports.destination import Refusal
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters


class Copy:
    """The spool's copy in a store that refuses positions for a while."""

    def __init__(self) -> None:
        self.refuses = False
        self.asked = 0
        self.position = 0

    def read(self, destinations: Collection[str]) -> None:
        pass

    def append(
        self, first: int, events: Sequence[str], notes: Mapping[str, str], positions: Mapping[str, int] | None = None
    ) -> None:
        pass

    def delivered(self, name: str, position: int) -> None:
        self.asked += 1
        if self.refuses:
            raise StoreError(f"InfluxDB refuses access (401), also to {name}")
        self.position = position

    def close(self) -> None:
        pass


@pytest.fixture
def copied(spool: Spool) -> Copy:
    """Have the spool keep a copy."""
    copy = Copy()
    spool.share(cast("Outbox", copy), ["siem"])
    return copy


def test_an_event_goes_out_once_though_the_store_refuses_its_position(
    spool: Spool, copied: Copy, deliver: Callable[[Destination], Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_TOKEN", "s3cret")
    monkeypatch.setattr(sending, "_IDLE_SECONDS", 0.02)
    hec = Hec("s3cret")
    copied.refuses = True
    with listening(hec) as receiver:
        sender = deliver(SplunkDestination(name="siem", url=receiver.url, token=Secret(env="TEST_TOKEN")))
        spool.append([event(0)], {})
        until(lambda: sender.failing_seconds() > 0.6)
        # It is tried again, but with pauses of up to 0.2 s.
        assert 2 <= copied.asked < 20
        assert sender.away_seconds() == 0
        # Others go on meanwhile.
        spool.append([event(1)], {})
        until(lambda: len(hec.events) > 1)
        copied.refuses = False
        until(lambda: copied.position == 2)
        until(lambda: sender.failing_seconds() == 0)
        asked = copied.asked
        spool.append([event(2)], {})
        until(lambda: copied.position == 3)
    assert copied.asked == asked + 1
    assert len(receiver.requests) == 3
    assert [numbers([one]) for one in hec.events] == [[0], [1], [2]]


def test_what_could_not_be_noted_is_noted_at_the_end(
    spool: Spool, copied: Copy, deliver: Callable[[Destination], Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_TOKEN", "s3cret")
    copied.refuses = True
    with listening(Hec("s3cret")) as receiver:
        sender = deliver(SplunkDestination(name="siem", url=receiver.url, token=Secret(env="TEST_TOKEN")))
        spool.append([event(0)], {})
        until(lambda: copied.asked)
        # By its thread, as soon as it ends: before it is time to try again.
        copied.refuses = False
        sender.stop(10)
    assert copied.position == 1


class Endless:
    """A receiver that never answers."""

    most = 10

    def __init__(self) -> None:
        self.ends = threading.Event()

    def send(self, events: Sequence[Document]) -> list[Refusal]:
        del events
        self.ends.wait(60)
        return []

    def close(self) -> None:
        pass


def test_a_try_that_does_not_end_is_a_failure(spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_LONGEST_PAUSE", 0.1)
    transport = Endless()
    destination = Destination(name="siem", events=(EventKind.VIOLATION,))
    dead = DeadLetters(tmp_path / "refused.jsonl")
    sender = Sender(destination, transport, spool, counters=Counters(), dead=dead, log=Log(quiet=True))
    spool.register(["siem"])
    spool.append([event(0)], {})
    assert sender.failing_seconds() == 0
    sender.start()
    until(lambda: sender.failing_seconds() > 0.1)
    transport.ends.set()
    until(lambda: sender.failing_seconds() == 0)
    sender.stop(10)
