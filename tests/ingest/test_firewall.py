"""The rules of nftables, in a kernel: a collector and four senders in network namespaces of their own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from cluster.model import Cluster, CollectorSettings, Exporter, ExportProtocol
from ingest.collect.firewall import nft_rules

NETFLOW = tuple(
    Exporter(f"e{at}", ip_address(address)) for at, address in enumerate(("10.9.0.2", "10.9.0.3", "fd09::2"))
)
SFLOW = Exporter("s", ip_address("10.9.0.99"), ExportProtocol.SFLOW)
SOURCES = (ip_network("10.9.0.4/30"), ip_network("10.9.0.5"))
CLUSTER = Cluster(
    "test", (), exporters=(*NETFLOW, SFLOW), collector=CollectorSettings(sflow_sources=SOURCES, netflow_port=2100)
)
SENDERS = ("10.9.0.2", "10.9.0.3", "10.9.0.6", "10.9.0.9", "fd09::2", "fd09::9")

_LISTEN = """
import socket, sys
sockets = [socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) for _ in range(2)]
for one, port in zip(sockets, map(int, sys.argv[1:])):
    one.bind(("::", port)); one.settimeout(1)
print("ready", flush=True)
for one in sockets:
    while True:
        try:
            data, place = one.recvfrom(100)
        except TimeoutError:
            break
        print(one.getsockname()[1], place[0].removeprefix("::ffff:"))
"""
_SEND = """
import socket, sys
for source in sys.argv[3:]:
    family, target = (socket.AF_INET6, "fd09::1") if ":" in source else (socket.AF_INET, "10.9.0.1")
    for port in sys.argv[1:3]:
        with socket.socket(family, socket.SOCK_DGRAM) as out:
            out.bind((source, 0)); out.sendto(b"x", (target, int(port)))
"""


def run(*command: str, **more: object) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def spaces() -> Iterator[tuple[str, str]]:
    """Two namespaces with a cable between them: the collector's and the senders'."""
    if os.geteuid() or not shutil.which("nft") or not shutil.which("ip"):
        pytest.skip("no nft, no ip or not root: apt-get install nftables iproute2")
    here, there = (f"cf{os.getpid()}{end}" for end in "ab")
    with ExitStack() as stack:
        for space in (here, there):
            made = subprocess.run(["ip", "netns", "add", space], capture_output=True, text=True, check=False)
            if made.returncode:
                pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
            stack.callback(run, "ip", "netns", "del", space)
        run("ip", "-n", here, "link", "add", "cf0", "type", "veth", "peer", "name", "cf1", "netns", there)
        for space, link, addresses in ((here, "cf0", ("10.9.0.1", "fd09::1")), (there, "cf1", SENDERS)):
            run("ip", "-n", space, "link", "set", link, "up")
            for address in addresses:
                length, more = ("64", ("nodad",)) if ":" in address else ("24", ())
                run("ip", "-n", space, "address", "add", f"{address}/{length}", "dev", link, *more)
        yield here, there


@pytest.mark.service
def test_only_listed_senders_reach_each_port(spaces: tuple[str, str], tmp_path: Path) -> None:
    here, there = spaces
    rules, ports = tmp_path / "exports.nft", ("2100", "6343")
    rules.write_text(nft_rules(CLUSTER), encoding="utf-8")
    inside = ["ip", "netns", "exec", here]
    for _ in range(2):
        # A second time in place of the first.
        run(*inside, "nft", "-f", str(rules))
    listen = subprocess.Popen([*inside, sys.executable, "-c", _LISTEN, *ports], stdout=subprocess.PIPE, text=True)
    assert listen.stdout is not None
    assert listen.stdout.readline() == "ready\n"
    run("ip", "netns", "exec", there, sys.executable, "-c", _SEND, *ports, *SENDERS)
    got = {tuple(line.split()) for line in listen.communicate(timeout=20)[0].splitlines()}
    assert got == {("2100", str(one.address)) for one in NETFLOW} | {("6343", "10.9.0.6")}
    # A port's three others and five others.
    assert run(*inside, "nft", "list", "table", "inet", "clusterflow").count("counter packets 3 ") == 1
    assert run(*inside, "nft", "list", "table", "inet", "clusterflow").count("counter packets 5 ") == 1


def test_a_port_of_which_no_sender_is_known_stays_open() -> None:
    open_sflow = replace(CLUSTER, collector=CollectorSettings())
    assert "2055" in nft_rules(open_sflow)
    assert "6343" not in nft_rules(open_sflow)
    assert nft_rules(replace(open_sflow, exporters=())) == ""
