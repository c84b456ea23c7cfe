"""The filter in front of nfacctd: what would kill it is refused and told, all else passes and is counted."""

import errno
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from test_pmacct_daemons import EXPORTERS, NOW, UPTIME, a_cluster, free_udp_port, send, spooled, v5, wait_for

from cluster.dump import dump_cluster
from ingest.collect import hangs, supervise
from ingest.collect.kernel import bpf
from ingest.collect.kernel.bpf import BpfError
from ingest.collect.kernel.guard import LONGEST, Guard
from ingest.collect.kernel.sockets import udp_sockets
from ingest.collect.supervise import Collector
from ingest.collect.trouble_file import LATELY, Troubles, lately

BASE = ((8, 4), (12, 4), (1, 4), (2, 4))
LISTED, OTHER = "127.0.0.12", "127.0.0.99"


def a_set(number: int, body: bytes) -> bytes:
    return struct.pack("!HH", number, len(body) + 4) + body


def spec(fields: Sequence[tuple[int, int]]) -> bytes:
    return b"".join(struct.pack("!HH", *field) for field in fields)


def template(fields: Sequence[tuple[int, int]], number: int = 300) -> bytes:
    return struct.pack("!HH", number, len(fields)) + spec(fields)


def options(fields: Sequence[tuple[int, int]], number: int = 301, *, scopes: int = 1) -> bytes:
    """A template of options of IPFIX."""
    return struct.pack("!HHH", number, len(fields), scopes) + spec(fields)


def of_enterprise(element: int, size: int) -> bytes:
    return struct.pack("!HHI", 0x8000 | element, size, 9)


def message(version: int, *sets: bytes) -> bytes:
    body = b"".join(sets)
    if version == 9:
        return struct.pack("!HHIIII", 9, 2, UPTIME, NOW, 1, 7) + body
    return struct.pack("!HHIII", 10, 16 + len(body), NOW, 1, 7) + body


def killer(version: int, element: int, size: int = 300) -> bytes:
    fields = (*BASE, (element, size))
    data = b"A" * sum(length for _, length in fields)
    return message(version, a_set(0 if version == 9 else 2, template(fields)), a_set(300, data))


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Guard, socket.socket]]:
    """A socket of our own with the filter on it, which the kernel tries out for half a second."""
    port = free_udp_port()
    try:
        guard = Guard(port)
    except BpfError as error:
        pytest.skip(f"no filter in this kernel: {error}")
    with closing(guard), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", port))
        receiver.settimeout(5)
        assert guard.protect(os.getpid())
        yield guard, receiver


def arrives(receiver: socket.socket, *payloads: bytes) -> int:
    """Send datagrams, then one that is let through; return how many came before that."""
    port = receiver.getsockname()[1]
    send(port, [*payloads, b"end"], source=LISTED)
    count = 0
    while receiver.recv(1 << 16) != b"end":
        count += 1
    return count


GOOD = {
    "types of their own size": message(9, a_set(0, template([*BASE, *LONGEST.items()]))),
    "smaller ones": message(10, a_set(2, template([(element, 1) for element in LONGEST]))),
    "texts": message(10, a_set(2, template([*BASE, (82, 64), (83, 65_535), (96, 255)]))),
    "an enterprise's element of that number": message(
        10, a_set(2, struct.pack("!HH", 300, 1) + struct.pack("!HHI", 0x8000 | 21, 300, 9))
    ),
    "fifteen templates of twenty fields": message(9, *(a_set(0, template(BASE * 5, 300 + i)) for i in range(15))),
    "data alone": message(10, a_set(300, bytes(1400))),
    "data that looks like a field": message(9, a_set(300, spec([(21, 300)] * 20))),
    "a field of a template of options": message(9, a_set(1, struct.pack("!HHH", 301, 4, 4) + spec([(1, 4), (34, 4)]))),
    "a template of options with padding": message(
        9, a_set(1, struct.pack("!HHH", 301, 4, 8) + spec([(2, 4), (48, 1), (50, 4)]) + bytes(2)), a_set(301, bytes(12))
    ),
    "scopes of v9 with the numbers of other elements": message(
        9, a_set(1, struct.pack("!HHH", 301, 8, 4) + spec([(4, 4), (5, 2), (34, 4)]))
    ),
    "a template of options of IPFIX": message(
        10, a_set(3, struct.pack("!HHH", 301, 2, 1) + spec([(149, 4), (305, 4)]))
    ),
    "a text alone": message(10, a_set(2, template([(82, 65_535)]))),
    "padding": message(9, a_set(0, template(BASE) + bytes(2)), a_set(300, bytes(16))),
    "more padding": message(10, a_set(2, template(BASE) + bytes(9)), a_set(3, bytes(8)), a_set(300, bytes(16))),
    "two templates of options in a set": message(
        10, a_set(3, options([(149, 4), (41, 8), (42, 8)]) + options([(144, 4), (34, 4), (35, 1)], 302) + bytes(2))
    ),
    "two templates of options in a set of v9": message(
        9, a_set(1, (struct.pack("!HHH", 301, 4, 12) + spec([(1, 4), (48, 1), (49, 1), (50, 4)])) * 2)
    ),
    "a long field of options": message(10, a_set(3, options([(149, 4), (21, 300), (82, 65_535)]))),
    "IPFIX withdraws all templates": message(10, a_set(2, struct.pack("!HH", 2, 0))),
    "numbers that no records have": message(10, a_set(2, template([(8, 0)], 5)), a_set(3, options([], 3, scopes=0))),
    "as many elements of enterprises as there is room for": message(
        10, a_set(2, struct.pack("!HH", 300, 256) + b"".join(of_enterprise(element, 1) for element in range(8, 264)))
    ),
    "a set that ends behind the datagram": message(10, a_set(2, template([(8, 0)])))[:-1],
    "v5": v5(0, 30),
    "cut short": message(9)[:11],
    "a set without a length": message(9, struct.pack("!HH", 0, 0) + spec([(21, 300)])),
    "nothing": b"",
}
BAD = {
    f"{element} in {'v9' if version == 9 else 'IPFIX'}, {size} bytes": killer(version, element, size)
    for version in (9, 10)
    for element, most in LONGEST.items()
    for size in (most + 1, 300)
} | {
    "a template without fields": message(9, a_set(0, struct.pack("!HH", 330, 0))),
    "fields without a length": message(10, a_set(2, template([(8, 0), (12, 0)]))),
    "a second template without a length": message(9, a_set(0, template(BASE) + template([(8, 0)], 301))),
    "options without fields": message(9, a_set(1, struct.pack("!HHH", 330, 1, 0) + spec([(479, 900)]))),
    "options of IPFIX without fields": message(10, a_set(3, struct.pack("!HHH", 330, 0, 0))),
    "options without a length": message(9, a_set(1, struct.pack("!HHH", 330, 4, 4) + spec([(1, 0), (34, 0)]))),
    "a VRF in options": message(10, a_set(3, options([(149, 4), (235, 300)]))),
    "behind data": message(9, a_set(300, bytes(7)), a_set(0, template([(21, 5)]))),
    "in the second template of a set": message(10, a_set(2, template(BASE) + template([(152, 9)], 301))),
    "behind an enterprise's element": message(
        10, a_set(2, struct.pack("!HH", 300, 2) + struct.pack("!HHI", 0x8001, 8, 9) + spec([(4, 2)]))
    ),
    "of varying length": message(10, a_set(2, template([*BASE, (153, 65_535)]))),
    "in a set of the other protocol's number": message(9, a_set(2, template([(21, 300)]))),
    "options that IPFIX withdraws": message(10, a_set(3, struct.pack("!HH", 330, 0))),
    **{
        f"in set {number} behind {before.hex()}": message(9, a_set(number, before + template([(21, 300)])))
        for number in (0, 2)
        for before in (bytes(4), bytes(8), struct.pack("!HH", 2, 0), struct.pack("!HHI", 5, 1, 1 << 16))
    },
    "of the end of a set and the begin of the next": message(
        9, a_set(0, template(BASE) + b"\1\x2e"), a_set(0, template(BASE, 301))
    ),
    "more fields than a frame holds": message(9, a_set(0, template([(1, 4)] * 600))),
    "options where nfacctd takes up the next ones": message(
        10, a_set(3, options([(149, 4)]) + struct.pack("!HH", 303, 2) + options([], 302, scopes=0) + spec([(8, 4)]))
    ),
    "options where nfacctd of v9 takes up the next ones": message(
        9, a_set(1, struct.pack("!HHH", 301, 4, 0) + spec([(1, 4)]) + bytes(12) + struct.pack("!HHH", 302, 0, 0))
    ),
    "more scopes than the set has room for": message(10, a_set(3, options([(149, 4)], scopes=16_382))),
    "no enterprise in a set of v9": message(10, a_set(0, template([*BASE, (0x8001, 8), (21, 300)]))),
    "options of v9 in IPFIX": message(10, a_set(1, struct.pack("!HHH", 301, 3, 3) + spec([(149, 4)]))),
    "lengths that are none in 16 bits": message(9, a_set(0, template([(82, 0x8000), (83, 0x8000)]))),
    "such options": message(10, a_set(3, options([(149, 1), (82, 65_535)]))),
    "such a length behind one that varies": message(10, a_set(2, template([(82, 65_535), (83, 65_534)]))),
    "more fields than nfacctd takes": message(9, a_set(0, template([*((8, 0),) * 256, (8, 4)]))),
    "more options than nfacctd takes": message(10, a_set(3, options([(400, 4)] * 256))),
    "33 elements in one place": message(9, a_set(0, template([(400, 4)] * 33))),
    "33 options in one place": message(10, a_set(3, options([(400, 4)] * 33))),
    "33 elements of enterprises in one place": message(
        10, a_set(2, struct.pack("!HH", 300, 33) + of_enterprise(8, 1) * 33)
    ),
    "a field that the datagram before ends": message(9, a_set(0, template([(8, 4)])[:-2])),
    "a number that the datagram before ends": message(10, a_set(2, template(BASE) + b"\1")),
    "options that the datagram before ends": message(10, a_set(3, options([(149, 4)], scopes=0) + b"\1")),
    "options whose counts the datagram before ends": message(9, a_set(1, struct.pack("!HH", 330, 0))),
}


RECORDS = [a_set(number, bytes(40)) for number in range(300, 304)]


def garbled(chance: random.Random) -> bytes:
    """A set's content of numbers that mean something to nfacctd, in any order: templates begin and end anywhere."""
    words = chance.choices((0, 0, 1, 2, 4, 8, 300, 301, 302, 303, 392, 0x8008, 0xFFFF), k=chance.randrange(2, 40))
    return struct.pack(f"!{len(words)}H", *words) + bytes(chance.choice((0, 0, 1, 3)))


@pytest.mark.parametrize("payload", GOOD.values(), ids=GOOD)
def test_what_harms_nobody_passes(guarded: tuple[Guard, socket.socket], payload: bytes) -> None:
    guard, receiver = guarded
    assert arrives(receiver, payload) == 1
    assert guard.refusals() == []


def test_what_would_kill_is_refused_and_its_sender_named(guarded: tuple[Guard, socket.socket]) -> None:
    guard, receiver = guarded
    for what, payload in BAD.items():
        assert arrives(receiver, payload) == 0, what
        if guard.names_senders:
            (refusal,) = guard.refusals()
            assert str(refusal.source) == LISTED, what
            if refusal.element:
                assert refusal.size > LONGEST[refusal.element], what


def test_an_ipv6_sender_is_named() -> None:
    port = free_udp_port()
    try:
        guard = Guard(port)
    except BpfError as error:
        pytest.skip(f"no filter in this kernel: {error}")
    with closing(guard), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as receiver:
        try:
            receiver.bind(("::1", port))
        except OSError:
            pytest.skip("no IPv6 here")
        assert guard.protect(os.getpid())
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
            sender.sendto(killer(9, 21), ("::1", port))
            sender.sendto(b"end", ("::1", port))
        assert receiver.recv(100) == b"end"
        if guard.names_senders:
            assert [str(one.source) for one in guard.refusals()] == ["::1"]


@pytest.mark.service
@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
def test_nfacctd_lives_and_counts_on(tmp_path: Path) -> None:
    """Thousands of random templates and records of them from a listed exporter, flows of another between them."""
    cluster = a_cluster(*EXPORTERS[:2])
    port = cluster.collector.netflow_port
    chance = random.Random(7)
    told: list[tuple[str, dict[str, object]]] = []
    sent = 0
    with Collector(
        cluster, tmp_path / "run", spool=tmp_path / "spool", log=lambda event, **values: told.append((event, values))
    ) as collector:
        if any(event == "guard_unavailable" for event, _ in told):
            pytest.skip("no filter in this kernel")
        (sock,) = udp_sockets(port)
        for _ in range(60):
            payloads = []
            for _ in range(50):
                fields = [
                    *BASE,
                    *(
                        (chance.choice((*LONGEST, chance.randrange(1, 512))), chance.choice((1, 8, 41, 300, 1300)))
                        for _ in range(chance.randrange(1, 4))
                    ),
                ]
                version = chance.choice((9, 10))
                data = a_set(300, b"A" * min(sum(size for _, size in fields), 1400))
                payloads.append(message(version, a_set(0 if version == 9 else 2, template(fields)), data))
                payloads.append(message(10, a_set(chance.randrange(4), garbled(chance)), *RECORDS))
            send(port, payloads, source=LISTED)
            send(port, [v5(sent + i * 30, 30) for i in range(10)])
            sent += 300
            wait_for(lambda: not any(one.waiting for one in udp_sockets(port)), 60)
            collector.poll()
        assert collector.restarts == {"nfacctd": 0}
        assert udp_sockets(port)[0].inode == sock.inode
        assert collector.refused > 1000
        assert collector.dropped() == {"nfacctd": 0}
    # The other exporter's records are of harmless templates, and nonsense: the rows of the first are read as they are.
    lines = [
        line.split(",") for path in (tmp_path / "spool").glob("nfacct-*.csv") for line in path.read_text().splitlines()
    ]
    columns = next(line for line in lines if "BYTES" in line)
    counted = [int(line[columns.index("BYTES")]) for line in lines if "127.0.0.11" in line]
    assert sorted(counted) == [1000 + i for i in range(sent)]
    refused = [values for event, values in told if event == "datagrams_refused"]
    assert {str(values["source"]) for values in refused} == {LISTED}
    assert {values["exporter"] for values in refused} == {"leaf-2"}
    assert lately(tmp_path / "spool", time.time()).keys() == {"refused leaf-2"}


@pytest.mark.service
@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
def test_a_daemon_that_starts_again_is_guarded_too(tmp_path: Path) -> None:
    cluster = a_cluster(*EXPORTERS[:2])
    port = cluster.collector.netflow_port
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool") as collector:
        if collector.is_guarded is False:
            pytest.skip("no filter in this kernel")
        os.kill(collector.pids["nfacctd"], 9)

        def is_back() -> bool:
            collector.poll()
            return collector.restarts == {"nfacctd": 1} and bool(udp_sockets(port))

        wait_for(is_back, 60)
        wait_for(lambda: bool(collector.poll() or collector.is_guarded), 60)
        send(port, [killer(9, 21)] * 5, source=OTHER)
        send(port, [killer(9, 4)] * 5, source=LISTED)
        wait_for(lambda: bool(collector.poll() or collector.refused == 10), 60)
        assert collector.restarts == {"nfacctd": 1}
    befell = lately(tmp_path / "spool", time.time())
    assert befell == {"died nfacctd": 1, "refused leaf-2": 5, "refused unlisted": 5}


def test_the_socket_of_a_process_that_just_died_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever kills nfacctd again and again must not be rid of the guard by it."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        subprocess.Popen(["sleep", "60"], pass_fds=[one.fileno()]) as child,
    ):
        one.bind(("127.0.0.1", 0))

        def dies(*_: object) -> int:
            child.kill()
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))

        monkeypatch.setattr(bpf, "_call", dies)
        with bpf.sockets_of(child.pid, one.getsockname()[1]) as found:
            assert found == []


@pytest.mark.service
@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
def test_a_daemon_that_the_system_refuses_to_start_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory, no process free, or its package is being upgraded: the other daemon goes on."""
    told: list[str] = []
    with Collector(
        a_cluster(*EXPORTERS), tmp_path / "run", spool=tmp_path / "spool", log=lambda event, **_: told.append(event)
    ) as collector:
        before = collector.pids
        os.kill(before["nfacctd"], 9)
        with monkeypatch.context() as meanwhile:
            refuses = Mock(side_effect=BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
            meanwhile.setattr(supervise.subprocess, "Popen", refuses)
            wait_for(lambda: bool(collector.poll() or "daemon_not_started" in told))
        assert collector.restarts["nfacctd"] == 0
        wait_for(lambda: bool(collector.poll() or collector.restarts["nfacctd"] == 1))
        assert collector.pids["sfacctd"] == before["sfacctd"]


def test_troubles_are_told_for_a_while_and_outlive_the_collector(tmp_path: Path) -> None:
    now = 1_000_000.0
    troubles = Troubles(tmp_path, lambda: now)
    troubles.add("refused", "leaf-1", 3)
    now += 600
    troubles.add("refused", "leaf-1", 2)
    assert lately(tmp_path, now) == {"refused leaf-1": 5}
    now += 400
    again = Troubles(tmp_path, lambda: now)
    again.add("died", "nfacctd", 1)
    assert lately(tmp_path, now) == {"refused leaf-1": 2, "died nfacctd": 1}
    assert lately(tmp_path, now + LATELY) == {}
    (tmp_path / ".collector.state").write_text("{")
    assert lately(tmp_path, now) == {}
    assert lately(tmp_path / "none", now) == {}


@pytest.mark.service
@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
def test_the_command_guards_a_collector_without_rights(tmp_path: Path) -> None:
    cluster = a_cluster(*EXPORTERS[:2])
    cluster = replace(cluster, collector=replace(cluster.collector, guard=False, spool=str(tmp_path / "spool")))
    config = tmp_path / "cluster.yaml"
    config.write_text(dump_cluster(cluster))
    port = cluster.collector.netflow_port
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool") as collector:
        command = [sys.executable, "-m", "clusterflow", "guard", "-c", str(config)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as guard:
            assert guard.stderr is not None
            for line in guard.stderr:
                if "event=socket_guarded" in line:
                    break
                if "CAP_BPF" in line:
                    pytest.skip("no filter in this kernel")
            send(port, [killer(9, 21)] * 5, source=LISTED)
            send(port, [v5(0, 30)])
            wait_for(lambda: lately(tmp_path / "spool", time.time()) == {"refused leaf-2": 5}, 60)
            guard.terminate()
            assert guard.wait(60) == 0
        collector.poll()
        assert collector.restarts == {"nfacctd": 0}
    assert spooled(tmp_path / "spool").height == 30


@pytest.mark.service
@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
def test_a_daemon_that_computes_for_ever_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the filter, one datagram does it: nothing is read any more, and the process does not die."""
    # It takes a whole core all the while.
    monkeypatch.setattr(hangs, "SECONDS", hangs.SECONDS / 3)
    plain = a_cluster(*EXPORTERS[:2])
    cluster = replace(plain, collector=replace(plain.collector, guard=False))
    port = cluster.collector.netflow_port
    told: list[str] = []
    with Collector(
        cluster, tmp_path / "run", spool=tmp_path / "spool", log=lambda event, **_: told.append(event)
    ) as collector:
        send(port, [message(9, a_set(0, template([(8, 0)])), a_set(300, bytes(900)))], source=LISTED)
        send(port, [v5(0, 30)])

        def is_back() -> bool:
            collector.poll()
            return collector.restarts == {"nfacctd": 1} and bool(udp_sockets(port))

        wait_for(is_back, 90)
        assert told.count("daemon_hung") == 1
        # The template is forgotten, too: more of its data do no harm.
        send(port, [message(9, a_set(300, bytes(900)))], source=LISTED)
        send(port, [v5(30, 30)])
        wait_for(lambda: not any(one.waiting for one in udp_sockets(port)), 30)
        assert lately(tmp_path / "spool", time.time()) == {"died nfacctd": 1}
