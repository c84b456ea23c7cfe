"""Two collectors behind one address, by the recipe of docs/deployment.md, in network namespaces: what it loses.

It needs root, and keepalived on the PATH.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from trouble import await_that

from simulate.packets import netflow
from simulate.packets.netflow import FlowFormat, NetflowEncoder, RecordColumns

ROOT = Path(__file__).resolve().parents[2]
RECIPE = re.compile(r"```\n(global_defs.*?)```", re.DOTALL)
ADDRESS, MACHINES = "192.0.2.10", {"a": 1, "b": 2}
RATE, RECORDS = 200, 10
"""Datagrams a second, and records in each."""

TEMPLATES = 5.0
"""Seconds between two of the exporter's templates."""

PATH = f"{os.environ['PATH']}:/usr/sbin"
CLUSTER = """\
cluster: pair
groups: {all: {role: custom, prefixes: [10.0.0.0/8]}}
exporters: {leaf-1: {address: 192.0.2.9}}
collector: {spool: SPOOL}
bridge: {state: SPOOL/state}
"""


def ip(*words: object) -> None:
    subprocess.run(["ip", *map(str, words)], check=True)


@contextmanager
def network() -> Iterator[None]:
    """Two machines and an exporter on one switch."""
    spaces = [f"cfp-{name}" for name in ("net", "x", *MACHINES)]
    try:
        for space in spaces:
            ip("netns", "add", space)
        ip("-n", "cfp-net", "link", "add", "br0", "type", "bridge")
        ip("-n", "cfp-net", "link", "set", "br0", "up")
        for name, last in {**MACHINES, "x": 9}.items():
            ip("link", "add", f"cfv-{name}", "netns", "cfp-net", "type", "veth", "peer", "eth0", "netns", f"cfp-{name}")
            ip("-n", "cfp-net", "link", "set", f"cfv-{name}", "master", "br0", "up")
            ip("-n", f"cfp-{name}", "addr", "add", f"192.0.2.{last}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", f"cfp-{name}", "link", "set", device, "up")
        yield
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)


class Machine:
    """A collector and keepalived."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.folder = name, folder / name
        self.spool = self.folder / "spool"
        self.spool.mkdir(parents=True)
        (self.folder / "cluster.yaml").write_text(CLUSTER.replace("SPOOL", str(self.spool)))
        text = RECIPE.search((ROOT / "docs/deployment.md").read_text())
        assert text is not None
        (self.folder / "keepalived.conf").write_text(text[1])
        self.collector = self.start("collect", sys.executable, "-m", "clusterflow", "collect", "-c", "cluster.yaml")
        await_that(lambda: "event=collecting" in (self.folder / "collect.log").read_text(), "the daemons listen")
        self.keepalived = self.start("keepalived", "keepalived", "-nlD", "-f", "keepalived.conf", "-p", "p", "-r", "v")

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            inside = ["ip", "netns", "exec", f"cfp-{self.name}", *command]
            environment = {**os.environ, "PATH": PATH, "PYTHONPATH": str(ROOT)}
            return subprocess.Popen(inside, cwd=self.folder, env=environment, stdout=log, stderr=log)

    @property
    def has_address(self) -> bool:
        shown = subprocess.run(
            ["ip", "-n", f"cfp-{self.name}", "-br", "addr"], capture_output=True, text=True, check=True
        )
        return f" {ADDRESS}/" in shown.stdout

    def die(self) -> None:
        """As a machine whose power is cut: its cable first, or it would say good-bye."""
        ip("-n", "cfp-net", "link", "set", f"cfv-{self.name}", "down")
        self.kill()

    def kill(self, but: str = "") -> None:
        """Kill what runs on it, but for programs of a name."""
        shown = subprocess.run(["ip", "netns", "pids", f"cfp-{self.name}"], capture_output=True, text=True, check=True)
        for process in map(int, shown.stdout.split()):
            with suppress(OSError):
                if Path(f"/proc/{process}/comm").read_text().strip() != but:
                    os.kill(process, signal.SIGKILL)

    def end(self) -> None:
        for process in (self.keepalived, self.collector):
            if process.poll() is None:
                process.terminate()
            process.wait(30)

    def received(self) -> set[int]:
        """The numbers of the records that it has in its spool."""
        files = [path for path in self.spool.glob("nfacct-*.csv") if path.stat().st_size]
        found = [
            pl.read_csv(path, infer_schema=False, truncate_ragged_lines=True, comment_prefix="-") for path in files
        ]
        return {int(text) for frame in found for text in frame.get_column("BYTES").drop_nulls()}


def export(flow_format: str, seconds: str) -> None:
    """Send for so long; print how many records went out."""
    import socket  # noqa: PLC0415

    netflow.TEMPLATE_EVERY = netflow.IPFIX_OPTIONS_EVERY = 10**9  # type: ignore[misc]
    encoder = NetflowEncoder(FlowFormat(flow_format), 1, int(time.time()) * 1000 - 60_000)
    addresses = np.tile(np.frombuffer(ip_address("10.0.0.1").packed, np.uint8), (RECORDS, 1))
    ones = np.ones(RECORDS, np.int64)
    began, sent, told = time.monotonic(), 0, -TEMPLATES
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaker:
        while (at := time.monotonic() - began) < float(seconds):
            now = int(time.time() * 1000)
            if at >= told + TEMPLATES:
                told = at
                if hello := encoder.hello(now):
                    speaker.sendto(hello, (ADDRESS, 2055))
            numbers = np.arange(sent + 1, sent + RECORDS + 1)
            packed = encoder.pack(
                RecordColumns(addresses, addresses, numbers % 60_000, ones, ones * 17, ones, ones, ones, ones, numbers,
                              ones, ones * (now - 1000), ones * (now - 500))
            )  # fmt: skip
            speaker.sendto(encoder.message(packed, 0, RECORDS, now), (ADDRESS, 2055))
            sent += RECORDS
            time.sleep(max(began + sent / RECORDS / RATE - time.monotonic(), 0))
    print(sent)  # noqa: T201


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """Both, of which one has the address."""
    if os.geteuid() or not all(shutil.which(name, path=PATH) for name in ("keepalived", "nfacctd", "ip")):
        pytest.skip("only root, with keepalived, nfacctd and iproute2")
    with network():
        made = {name: Machine(tmp_path, name) for name in MACHINES}
        await_that(lambda: sum(one.has_address for one in made.values()) == 1, "one has the address", 20)
        yield made
        for one in made.values():
            one.end()


@pytest.mark.long_form
@pytest.mark.parametrize("flow_format", [FlowFormat.V5, FlowFormat.IPFIX])
@pytest.mark.parametrize(
    ("how", "most"), [("machine dies", 5.0), ("keepalived is stopped", 1.0), ("collector is killed", 8.0)]
)
def test_what_a_fail_over_loses(
    machines: dict[str, Machine], how: str, most: float, flow_format: FlowFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records of so many seconds at most; with templates, those until the next ones as well."""
    first = next(one for one in machines.values() if one.has_address)
    second = next(one for one in machines.values() if one is not first)
    command = ["ip", "netns", "exec", "cfp-x", sys.executable, str(Path(__file__)), flow_format, "30"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests/end_to_end"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as exporter:
        time.sleep(12)
        assert first.has_address
        if how == "machine dies":
            first.die()
        elif how == "keepalived is stopped":
            first.keepalived.terminate()
        else:
            first.kill(but="keepalived")
        await_that(lambda: second.has_address, "the other one takes the address", 20)
        sent = int(exporter.communicate(timeout=60)[0])
    time.sleep(3)
    received = [one.received() for one in (first, second)]
    assert not received[0] & received[1]
    lost = (sent - len(received[0] | received[1])) / RATE / RECORDS
    with capsys.disabled():
        print(f"\n{how}, {flow_format}: {lost:.2f} s of records lost")  # noqa: T201
    assert lost < most + (0 if flow_format is FlowFormat.V5 else TEMPLATES)


if __name__ == "__main__":
    export(*sys.argv[1:])
