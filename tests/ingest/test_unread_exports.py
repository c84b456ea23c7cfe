"""What nfacctd does not read is read otherwise, or said: real packets, real daemons, a store, `clusterflow status`."""

import contextlib
import shutil
import socket
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from test_bridge import a_bridge, known, sent_bytes
from test_listen import heard
from test_pmacct_daemons import a_cluster, sflow, wait_for

from app.errors import StoreError
from cluster.model import Cluster, Exporter
from ingest.collect.supervise import Collector
from ingest.flows.normalise import Clock
from ingest.read.spool import Spool
from operations.status import Status, status_of
from store.influx import Store
from store.schema import UNREAD_WORDS, Unread

__all__ = ["known"]

Field = tuple[int, int, int]
"""Enterprise, element, bytes."""

REVERSE, VARIABLE = 29305, 65_535
ADDRESSES: list[Field] = [(0, 8, 4), (0, 12, 4), (0, 4, 1), (0, 10, 4), (0, 14, 4)]
COUNTERS: list[Field] = [(0, 1, 8), (0, 2, 8)]


def spec(fields: Sequence[Field]) -> bytes:
    return b"".join(
        struct.pack("!HH", element | 0x8000 * bool(enterprise), size) + struct.pack("!I", enterprise) * bool(enterprise)
        for enterprise, element, size in fields
    )


def a_set(number: int, body: bytes) -> bytes:
    return struct.pack("!HH", number, len(body) + 4) + body


def message(*sets: bytes) -> bytes:
    body = b"".join(sets)
    return struct.pack("!HHIII", 10, 16 + len(body), 0, 1, 7) + body


def dated(payload: bytes) -> bytes:
    """Return a message that is exported now: this file may have been imported long ago."""
    return payload[:4] + struct.pack("!I", int(time.time())) + payload[8:]


def templates(fields: Sequence[Field], options: Sequence[Field] = ()) -> bytes:
    sets = [a_set(2, struct.pack("!HH", 300, len(fields)) + spec(fields))]
    if options:
        sets.append(a_set(3, struct.pack("!HHH", 301, len(options), 1) + spec(options)))
    return message(*sets)


def record(fields: Sequence[Field], *values: int, host: int = 1) -> bytes:
    """Return a record from 10.1.0.`host` to 203.0.113.5 by TCP, interfaces 1 and 2, with the rest of its fields."""
    leading = [0x0A010000 + host, 0xCB007105, 6, 1, 2] if list(fields[: len(ADDRESSES)]) == ADDRESSES else []
    pairs = zip([*leading, *values], fields, strict=True)
    return b"".join(value.to_bytes(size, "big") for value, (_, _, size) in pairs)


NO_ADDRESSES = [(9, 12233, 4), (9, 12234, 4), (0, 4, 1), *COUNTERS]
REPLIES = [*ADDRESSES, *COUNTERS, (REVERSE, 1, 8), (REVERSE, 2, 8)]
ASA = [*ADDRESSES, (0, 231, 4), (0, 298, 4), (0, 232, 4), (0, 299, 4)]
SAMPLED = [*ADDRESSES, (0, 48, 1), *COUNTERS]
TWICE = [*ADDRESSES, (0, 210, 1), (0, 210, 1), *COUNTERS]
OPTIONS = [(0, 149, 4), (0, 48, 1), (0, 84, VARIABLE), (0, 50, 4)]
GARBLED = a_set(301, struct.pack("!IB", 7, 1) + b"\x03abc" + struct.pack("!I", 777))

# A conversation each: what several exporters see of one counts once.
SENT = {
    "wlc": ("127.0.6.1", [templates(NO_ADDRESSES), message(a_set(300, record(NO_ADDRESSES, 5, 6, 6, 9000, 2)))]),
    "biflow": ("127.0.6.2", [templates(REPLIES), message(a_set(300, record(REPLIES, 1000, 2, 500, 1, host=2)))]),
    "asa": ("127.0.6.3", [templates(ASA), message(a_set(300, record(ASA, 20_000, 20, 3000, 10, host=3)))]),
    "xr": (
        "127.0.6.4",
        [templates(SAMPLED, OPTIONS), message(GARBLED), message(a_set(300, record(SAMPLED, 1, 400_000, 2, host=4)))],
    ),
    "huawei": ("127.0.6.5", [templates(TWICE), message(a_set(300, record(TWICE, 0, 0, 5_000_000, 2, host=5)))]),
    "leaf": (
        "127.0.6.6",
        [
            templates([*ADDRESSES, *COUNTERS]),
            message(a_set(300, record([*ADDRESSES, *COUNTERS], 60_000_000, 2, host=6))),
        ],
    ),
}
COUNTED = 1000 + 20_000 + 3000 + 400_000 + 5_000_000 + 60_000_000
"""Bytes, distinct by their digits: what of them is missing tells whose."""


@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
def test_what_is_not_read_is_said_by_status(known: Cluster, tmp_path: Path) -> None:
    exporters = tuple(Exporter(name, ip_address(source)) for name, (source, _) in SENT.items())
    known = replace(known, exporters=exporters, collector=a_cluster(*exporters).collector)
    spool, stop = tmp_path / "spool", threading.Event()
    with Collector(known, tmp_path / "run", spool=spool), Spool(spool) as source:
        for address, payloads in SENT.values():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.bind((address, 0))
                for payload in payloads:
                    sender.sendto(dated(payload), ("127.0.0.1", known.collector.netflow_port))
                    time.sleep(0.05)
        running = threading.Thread(target=a_bridge(known, source, tmp_path, stop, Clock.LIVE).run)
        running.start()

        def is_told() -> bool:
            with contextlib.suppress(StoreError):
                return sent_bytes(known) >= COUNTED and any(one.notes for one in status().exporters)
            return False

        def status() -> Status:
            return status_of(known, Store(known.store), int(time.time()))

        try:
            wait_for(is_told, 30)
        finally:
            stop.set()
            running.join()
    assert sent_bytes(known) == COUNTED
    found = {one.name: one for one in status_of(known, Store(known.store), int(time.time())).exporters}
    assert {name: one.notes for name, one in found.items()} == {
        "wlc": (UNREAD_WORDS[Unread.ADDRESSES],),
        "biflow": (UNREAD_WORDS[Unread.REPLIES],),
        "asa": (),
        "xr": (UNREAD_WORDS[Unread.RATES], "samples, rate unknown: 1 records count 1:1"),
        "huawei": (UNREAD_WORDS[Unread.REPEATED],),
        "leaf": (),
    }
    assert found["wlc"].age is None, "never heard, and yet it says why"


def test_listen_says_the_same() -> None:
    for name, (source, payloads) in SENT.items():
        wrong = " ".join(heard(source, 2055, payloads))
        expected = {
            "wlc": Unread.ADDRESSES, "biflow": Unread.REPLIES, "xr": Unread.RATES, "huawei": Unread.REPEATED,
        }.get(name)  # fmt: skip
        assert wrong == (f"pmacct does not read {UNREAD_WORDS[expected]}" if expected else "")


def test_listen_counts_sampled_packets_with_two_tags() -> None:
    plain = sflow("10.0.0.2")
    frame = bytes(12) + b"\x08\x00"
    assert frame in plain
    for tags, wrong in ((1, ()), (2, ("1 sampled packets have two VLAN tags: pmacct drops them silently",))):
        tagged = plain.replace(frame, bytes(12) + b"\x81\x00\x00\x64" * tags + b"\x08\x00")
        assert heard("10.0.0.2", 6343, [tagged]) == wrong
