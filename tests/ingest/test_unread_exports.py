"""What nfacctd does not read is read otherwise, or said: real packets, real daemons, a store, `clusterflow status`."""

import contextlib
import shutil
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pytest
from test_bridge import a_bridge, known, sent_bytes
from test_listen import heard
from test_pmacct_daemons import a_cluster, send, sflow, wait_for

from app.errors import StoreError
from cluster.model import Cluster, Exporter, ExportProtocol
from ingest.collect.kernel.vlan_watch import VlanWatch
from ingest.collect.supervise import Collector
from ingest.collect.trouble_file import TAGS, Troubles, lately
from ingest.flows.normalise import Clock
from ingest.read.spool import Spool
from operations.status.status import Status, status_of
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
SHORT = [*ADDRESSES, (0, 1, 6), (0, 2, 4)]
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
    "short": ("127.0.6.9", [templates(SHORT), message(a_set(300, record(SHORT, 7000, 2, host=9)))]),
    "leaf": (
        "127.0.6.6",
        [
            templates([*ADDRESSES, *COUNTERS]),
            message(a_set(300, record([*ADDRESSES, *COUNTERS], 60_000_000, 2, host=6))),
        ],
    ),
    "twice": (
        "127.0.6.10",
        [
            templates([*ADDRESSES, *COUNTERS]),
            # As a packet enters and as it leaves: what tells that apart is not printed.
            *(
                message(a_set(300, 2 * b"".join(record([*ADDRESSES, *COUNTERS], 10**9, 2, host=at) for at in hosts)))
                for hosts in np.arange(100, 180).reshape(5, 16).tolist()
            ),
        ],
    ),
}
QINQ = "127.0.6.7"
"""An sFlow agent."""


def tagged(tags: int) -> bytes:
    """Return an sFlow datagram of QINQ whose sampled packet has so many VLAN tags, in a record as long as it is."""
    plain = sflow(QINQ)
    frame = b"\x02" * 12 + b"\x08\x00"
    assert frame in plain
    longer = plain.replace(frame, b"\x02" * 12 + b"\x81\x00\x00\x64" * tags + b"\x08\x00")
    # The lengths before it: of the sample, of the record, of the header.
    for place in (32, 72, 88):
        (size,) = struct.unpack_from("!I", longer, place)
        longer = longer[:place] + struct.pack("!I", size + 4 * tags) + longer[place + 4 :]
    return longer


def may_copy() -> bool:
    """Whether the kernel gives us copies of packets."""
    with contextlib.suppress(PermissionError), socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0):
        return True
    return False


COUNTED = 1000 + 20_000 + 3000 + 400_000 + 5_000_000 + 60_000_000 + 2 * 80 * 10**9
"""Bytes, distinct by their digits: what of them is missing tells whose."""


@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
def test_what_is_not_read_is_said_by_status(known: Cluster, tmp_path: Path) -> None:
    exporters = (
        *(Exporter(name, ip_address(source)) for name, (source, _) in SENT.items()),
        Exporter("qinq", ip_address(QINQ), protocol=ExportProtocol.SFLOW),
    )
    known = replace(known, exporters=exporters, collector=a_cluster(*exporters).collector)
    spool, stop = tmp_path / "spool", threading.Event()
    unread = 7 if may_copy() else 6
    with Collector(known, tmp_path / "run", spool=spool) as collector, Spool(spool) as source:
        send(known.collector.sflow_port, [tagged(2)], source="127.0.6.8")
        for address, payloads in SENT.values():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.bind((address, 0))
                for payload in payloads:
                    sender.sendto(dated(payload), ("127.0.0.1", known.collector.netflow_port))
                    time.sleep(0.05)
        running = threading.Thread(target=a_bridge(known, source, tmp_path, stop, Clock.LIVE).run)
        running.start()

        def is_told() -> bool:
            collector.poll()
            with contextlib.suppress(StoreError):
                return sent_bytes(known) >= COUNTED and len([one for one in status().exporters if one.notes]) == unread
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
        "short": (UNREAD_WORDS[Unread.SIZES],),
        "leaf": (),
        "twice": (UNREAD_WORDS[Unread.TWICE],),
        "qinq": (UNREAD_WORDS[Unread.TAGGED],) if unread == 7 else (),
    }
    assert found["wlc"].age is None, "never heard, and yet it says why"


def test_listen_says_the_same() -> None:
    for name, (source, payloads) in SENT.items():
        wrong = " ".join(heard(source, 2055, payloads))
        expected = {
            "wlc": Unread.ADDRESSES, "biflow": Unread.REPLIES, "xr": Unread.RATES, "huawei": Unread.REPEATED,
            "short": Unread.SIZES,
        }.get(name)  # fmt: skip
        assert wrong == (f"pmacct does not read {UNREAD_WORDS[expected]}" if expected else "")


def test_listen_counts_sampled_packets_with_two_tags() -> None:
    for tags, wrong in ((1, ()), (2, ("1 sampled packets have two VLAN tags: pmacct drops them silently",))):
        assert heard(QINQ, 6343, [tagged(tags)]) == wrong


def watched(tmp_path: Path, agent: str, datagram: bytes, target: str) -> Mapping[str, int]:
    """Return what is noted when an agent that is listed so sends a datagram, and then one that is certain to be."""
    known = a_cluster(Exporter("qinq", ip_address(agent), protocol=ExportProtocol.SFLOW), LAST)
    watch, moment = VlanWatch(known, Troubles(tmp_path, time.time, TAGS)), time.time()
    family = socket.AF_INET6 if ":" in target else socket.AF_INET
    last = tagged(2).replace(ip_address(QINQ).packed, LAST.address.packed)
    with contextlib.closing(watch), socket.socket(family, socket.SOCK_DGRAM) as sender:
        for payload in (datagram, datagram, last):
            sender.sendto(payload, (target, known.collector.sflow_port))
        for other in (known.collector.sflow_port + 1, known.collector.netflow_port):
            sender.sendto(tagged(2), (target, other))

        def is_noted() -> bool:
            watch.look(moment)
            return f"tagged {LAST.address}" in lately(tmp_path, moment, (TAGS,))

        wait_for(is_noted, 60)
    return lately(tmp_path, moment, (TAGS,))


LAST = Exporter("last", ip_address("127.0.6.9"), protocol=ExportProtocol.SFLOW)


@pytest.mark.skipif(not may_copy(), reason="no CAP_NET_RAW")
@pytest.mark.parametrize("target", ["127.0.0.1", "::1"])
def test_two_tags_are_noted_once_a_minute(tmp_path: Path, target: str) -> None:
    assert watched(tmp_path, QINQ, tagged(2), target) == {f"tagged {QINQ}": 1, f"tagged {LAST.address}": 1}
    assert lately(tmp_path, time.time()) == {}, "no daemon is in danger"


@pytest.mark.skipif(not may_copy(), reason="no CAP_NET_RAW")
@pytest.mark.parametrize(
    ("agent", "datagram"),
    [(QINQ, tagged(1)), ("127.0.6.10", tagged(2)), (QINQ, tagged(2)[:50]), (QINQ, b""), (QINQ, b"\0" * 40)],
)
def test_nothing_else_is_noted(tmp_path: Path, agent: str, datagram: bytes) -> None:
    assert watched(tmp_path, agent, datagram, "127.0.0.1") == {f"tagged {LAST.address}": 1}
