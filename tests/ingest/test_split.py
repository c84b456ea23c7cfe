"""Several nfacctd behind one port: each exporter stays with one of them, whatever its source port and whoever dies."""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from test_guard import BASE, a_set, killer, message, template
from test_pmacct_daemons import a_cluster, free_udp_port, send, spooled, wait_for

from cluster.dump import dump_cluster
from cluster.model import Cluster, Exporter
from ingest.collect import template_file
from ingest.collect.kernel.bpf import BpfError
from ingest.collect.kernel.sockets import udp_sockets
from ingest.collect.kernel.split import Split, share_of
from ingest.collect.supervise import Collector
from ingest.collect.template_file import TemplateFile
from ingest.collect.trouble_file import lately

SHARES = 2
ADDRESSES = tuple(f"127.0.0.{last}" for last in range(11, 21))


def shared() -> Cluster:
    """A cluster whose ten exporters two nfacctd share."""
    cluster = a_cluster(*(Exporter(f"leaf-{address.rpartition('.')[2]}", ip_address(address)) for address in ADDRESSES))
    return replace(cluster, collector=replace(cluster.collector, netflow_daemons=SHARES))


def data(first: int) -> bytes:
    """A NetFlow v9 datagram of ten records, without its template; flow i has 1000 + i bytes."""
    rows = (
        struct.pack("!4s4sII", bytes([10, 20, 0, i & 255]), bytes([10, 30, 0, 1]), 1000 + i, 3)
        for i in range(first, first + 10)
    )
    return message(9, a_set(300, b"".join(rows)))


TEMPLATE = message(9, a_set(0, template(BASE)))


def share(address: str) -> int:
    return share_of(ip_address(address), SHARES)


@pytest.fixture(autouse=True)
def _needs_the_right() -> None:
    try:
        Split("127.0.0.1", free_udp_port(), SHARES)
    except BpfError as error:
        pytest.skip(f"no program in this kernel: {error}")


@pytest.mark.parametrize("pattern", ["10.0.0.{}", "10.0.{}.1", "10.0.{0}.{0}", "fd00::{:x}", "fd00:{:x}::1"])
@pytest.mark.parametrize("shares", [2, 3, 4])
def test_shares_are_about_equal(pattern: str, shares: int) -> None:
    counts = Counter(share_of(ip_address(pattern.format(n)), shares) for n in range(60))
    assert sorted(counts) == list(range(shares))
    assert max(counts.values()) <= 60 / shares * 1.35


@pytest.mark.parametrize("listen", ["127.0.0.1", "::"])
def test_the_kernel_and_share_of_agree(listen: str) -> None:
    """Over both families: an IPv4 exporter of a socket of IPv6 has the share of its IPv4 address."""
    port = free_udp_port()
    split = Split(listen, port, SHARES)
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    with split.starting():
        receivers = [socket.socket(family, socket.SOCK_DGRAM) for _ in range(SHARES)]
        for number, receiver in enumerate(receivers):
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            receiver.settimeout(2)
            receiver.bind((listen, port))
            split.give(receiver, number)
    for address in ADDRESSES:
        send(port, [address.encode()] * 3, source=address)
    if family == socket.AF_INET6:
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"::1", ("::1", port))
    wanted = [*ADDRESSES] * 3 + (["::1"] if family == socket.AF_INET6 else [])
    for number, receiver in enumerate(receivers):
        mine = sorted(address for address in wanted if share(address) == number)
        assert sorted(receiver.recv(99).decode() for _ in mine) == mine
        receiver.close()


@pytest.mark.service
@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
def test_an_exporter_stays_with_its_daemon_and_one_that_dies_is_missed_by_its_own_alone(tmp_path: Path) -> None:
    """Each template is sent once, each datagram from a source port of its own; the second daemon is killed."""
    cluster, spool = shared(), tmp_path / "spool"
    port = cluster.collector.netflow_port
    events: list[tuple[str, object]] = []

    def log(event: str, **values: object) -> None:
        events.append((event, values.get("daemon")))

    with Collector(cluster, tmp_path / "run", spool=spool, log=log) as collector:
        assert set(collector.pids) == {"nfacctd", "nfacctd-2"}
        for address in ADDRESSES:
            send(port, [TEMPLATE], source=address)
        for first in range(0, 100, 10):
            for address in ADDRESSES:
                send(port, [data(first)], source=address)
        wait_for(lambda: spooled(spool).height == 1000)
        files = {path.name.partition("-2")[0] for path in spool.glob("*.csv")}
        assert files == {"nfacct", "nfacct-b"}
        dead = collector.pids["nfacctd-2"]
        os.kill(dead, signal.SIGKILL)
        # The first one goes on, and gets nothing of the second's.
        for address in ADDRESSES:
            if not share(address):
                send(port, [data(100)], source=address)
        wait_for(lambda: collector.poll() is None and collector.pids.get("nfacctd-2") not in (None, dead))
        assert len(udp_sockets(port)) == SHARES
        # It knows the templates of before, and nobody else has to.
        for address in ADDRESSES:
            send(port, [data(110)], source=address)
        assert collector.dropped() == {"nfacctd": 0, "nfacctd-2": 0}
    assert collector.restarts == {"nfacctd": 0, "nfacctd-2": 1}
    assert lately(spool, spool.stat().st_mtime) == {"died nfacctd-2": 1}
    assert ("daemon_died", "nfacctd-2") in events
    found = spooled(spool)
    for address in ADDRESSES:
        mine = sorted(found.filter(exporter=address)["bytes"])
        firsts = [*range(100), *(() if share(address) else range(100, 110)), *range(110, 120)]
        assert mine == [1000 + i for i in firsts], address
    told = TemplateFile(spool)
    assert all(told.lacks_flow_count(address) for address in ADDRESSES), "both files of templates are read"


@pytest.mark.service
@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
def test_refused_datagrams_are_no_drops_of_either(tmp_path: Path) -> None:
    cluster, spool = shared(), tmp_path / "spool"
    port = cluster.collector.netflow_port
    with Collector(cluster, tmp_path / "run", spool=spool) as collector:
        if not collector.is_guarded:
            pytest.skip("no filter in this kernel")
        for address in ADDRESSES:
            send(port, [killer(9, 21)] * 3, source=address)
        wait_for(lambda: collector.poll() is None and collector.refused == 3 * len(ADDRESSES))
        assert collector.dropped() == {"nfacctd": 0, "nfacctd-2": 0}
        assert collector.restarts == {"nfacctd": 0, "nfacctd-2": 0}


def test_templates_go_to_whose_exporters_they_are_of(tmp_path: Path) -> None:
    """When there are more daemons than before, or fewer."""
    lines = {address: json.dumps({"agent": address, "template_type": 0}) + "\n" for address in ADDRESSES}
    (tmp_path / template_file.NAME).write_text("".join(lines.values()) + "half a li\n")
    template_file.deal(tmp_path, SHARES)
    for number in range(SHARES):
        text = (tmp_path / template_file.name_of(number)).read_text()
        assert text == "".join(lines[one] for one in ADDRESSES if share(one) == number) + "half a li\n" * (not number)
    template_file.deal(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == [template_file.NAME]
    assert sorted((tmp_path / template_file.NAME).read_text().splitlines(keepends=True)) == sorted(
        [*lines.values(), "half a li\n"]
    )


@pytest.mark.service
@pytest.mark.skipif(shutil.which("nfacctd") is None or os.geteuid() != 0, reason="pmacct and rights to give up")
def test_without_the_right_one_daemon_has_all(tmp_path: Path) -> None:
    cluster, config = shared(), tmp_path / "cluster.yaml"
    port = cluster.collector.netflow_port
    cluster = replace(cluster, collector=replace(cluster.collector, spool=str(tmp_path / "spool")))
    config.write_text(dump_cluster(cluster))
    command = ["setpriv", "--bounding-set", "-bpf,-sys_admin", "--inh-caps", "-bpf,-sys_admin", sys.executable]
    process = subprocess.Popen(
        [*command, "-m", "clusterflow", "collect", "-c", str(config)], stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: len(udp_sockets(port)) == 1)
    finally:
        process.send_signal(signal.SIGTERM)
        told = process.communicate(timeout=30)[1]
    assert process.returncode == 0
    (line,) = (line for line in told.splitlines() if "event=split_unavailable" in line)
    assert "CAP_BPF" in line
    assert "netflow_daemons: 1" in line
    assert told.count("event=daemon_started") == 1


_REFUSED = """
import ctypes, struct
from ingest.collect.kernel.bpf import BpfError
from ingest.collect.kernel.split import Split
# Of classic BPF: the number of the call; another one than pidfd_getfd passes, that one is EPERM.
steps = (0x20, 0, 0, 0), (0x15, 0, 1, 438), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)
code = b"".join(struct.pack("=HBBI", *one) for one in steps)
held = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("@HP", 4, ctypes.addressof(held)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
try:
    Split("127.0.0.1", PORT, 2)
except BpfError as error:
    print(error)
"""


def test_where_sockets_of_daemons_cannot_be_had_there_is_no_split() -> None:
    """A container's seccomp may leave us CAP_BPF and refuse pidfd_getfd: the program would find no socket."""
    code = _REFUSED.replace("PORT", str(free_udp_port()))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "pidfd_getfd: Operation not permitted\n"
