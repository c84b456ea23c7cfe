"""The sample that spreads exporters over collectors, run by a real nfacctd."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from store.local_influxdb import free_port

TEE = Path(__file__).resolve().parents[2] / "provisioning" / "tee"
PREFIX, ELSEWHERE = [f"127.0.0.{last}" for last in range(96, 104)], [f"127.0.1.{last}" for last in range(1, 9)]


def _configure(folder: Path, port: int, collectors: tuple[int, int], others: int = 0) -> Path:
    """Write the sample with addresses of this machine, and lines for so many others; return nfacctd's configuration."""
    for name, changes in {
        "nfacctd.conf": {"/etc/clusterflow/tee": str(folder), "2055": str(port), "ip: 0.0.0.0": "ip: 127.0.0.1"},
        "collectors.map": {f"10.60.0.{11 + i}:2055": f"127.0.0.1:{collectors[i]}" for i in range(2)},
        "exporters.map": {"10.60.0.96/28": "127.0.0.96/28"},
    }.items():
        text = (TEE / name).read_text(encoding="utf-8")
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        if name == "exporters.map":
            text = "".join(f"set_tag=1 ip=10.61.{i // 250}.{i % 250}/32\n" for i in range(others)) + text
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "nfacctd.conf"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sends with the addresses of others")
@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="nfacctd is not installed")
@pytest.mark.parametrize("others", [0, 500])
def test_each_exporter_reaches_one_collector_under_its_own_address(others: int, tmp_path: Path) -> None:
    """With more lines than pmacct reads by default, too: the last ones catch what no other does."""
    collectors = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for collector in collectors:
        collector.bind(("127.0.0.1", 0))
        collector.settimeout(2)
    port = free_port()
    config = _configure(tmp_path, port, (collectors[0].getsockname()[1], collectors[1].getsockname()[1]), others)
    log = tmp_path / "nfacctd.log"
    with log.open("wb") as output:
        daemon = subprocess.Popen(["nfacctd", "-f", str(config)], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 20
        while "map successfully (re)loaded" not in (text := log.read_text()) or "waiting for NetFlow" not in text:
            assert daemon.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
        while "collectors.map] map successfully" not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        for sequence in range(3):
            for address in [*PREFIX, *ELSEWHERE]:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as exporter:
                    exporter.bind((address, 0))
                    header = struct.pack("!HHIIIIBBH", 5, 1, 1000, int(time.time()), 0, sequence, 0, 0, 0)
                    exporter.sendto(header + bytes(48), ("127.0.0.1", port))
        got = [_received(collector) for collector in collectors]
    finally:
        daemon.send_signal(signal.SIGINT)
        daemon.wait(10)
        for collector in collectors:
            collector.close()
    assert got == [dict.fromkeys(PREFIX, 3), dict.fromkeys(ELSEWHERE, 3)]
    assert "file cut" not in log.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sends with the addresses of others")
@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="nfacctd is not installed")
@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
def test_an_exporter_with_an_ipv6_address_reaches_the_last_collector(tmp_path: Path) -> None:
    """Where nfacctd listens to IPv6 and the collector has an address of it."""
    collector = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    collector.bind(("::1", 0))
    collector.settimeout(2)
    port = free_port()
    config = _configure(tmp_path, port, (9, 9))
    config.write_text(config.read_text().replace("nfacctd_ip: 127.0.0.1", "nfacctd_ip: ::"))
    receivers = tmp_path / "collectors.map"
    receivers.write_text(
        receivers.read_text().replace("id=2 ip=127.0.0.1:9", f"id=2 ip=[::1]:{collector.getsockname()[1]}")
    )
    log = tmp_path / "nfacctd.log"
    with log.open("wb") as output:
        daemon = subprocess.Popen(["nfacctd", "-f", str(config)], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 20
        while not all(
            word in (text := log.read_text()) for word in ("waiting for NetFlow", "collectors.map] map succ")
        ):
            assert daemon.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as exporter:
            header = struct.pack("!HHIIIIBBH", 5, 1, 1000, int(time.time()), 0, 0, 0, 0, 0)
            exporter.sendto(header + bytes(48), ("::1", port))
        got = _received(collector)
    finally:
        daemon.send_signal(signal.SIGINT)
        daemon.wait(10)
        collector.close()
    assert got == {"::1": 1}, log.read_text()


def _received(collector: socket.socket) -> Counter[str]:
    """Return datagrams by their source, until none comes any more."""
    found: Counter[str] = Counter()
    while True:
        try:
            found[collector.recvfrom(4096)[1][0]] += 1
        except TimeoutError:
            return found
