"""A spool and senders with pauses short enough for a test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.log import Log
from cluster.load import parse_cluster
from cluster.model import Destination
from delivery.deliver import transport_of
from delivery.queue import Spool
from delivery.sender import MOST_REFUSED, Sender
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    """An empty spool."""
    found = Spool(tmp_path / "spool", 100_000_000)
    yield found
    found.close()


@pytest.fixture
def deliver(spool: Spool, counters: Counters, tmp_path: Path) -> Iterator[Callable[[Destination], Sender]]:
    """Start the sender of a destination; stopped at the end of the test."""
    cluster = parse_cluster("cluster: lab\ngroups: {a: {role: custom}}\n")
    senders: list[Sender] = []

    def start(destination: Destination) -> Sender:
        sender = Sender(
            destination,
            transport_of(destination, cluster),
            spool,
            counters=counters,
            dead=DeadLetters(tmp_path / "refused.jsonl", max_line=MOST_REFUSED),
            log=Log(quiet=True),
            pauses=(0.05, 0.2),
        )
        spool.register([one.destination.name for one in [*senders, sender]])
        senders.append(sender)
        sender.start()
        return sender

    yield start
    for sender in senders:
        sender.stop(10)
