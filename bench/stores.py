"""`scripts/bench stores`: hours of a simulated cluster in each InfluxDB: what it costs to write, to keep and to ask.

The points are those that bridge, rollups and analysis wrote as a scenario was played; each server gets what they sent.
"""

import gzip
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import requests

from app.errors import StoreError, UserError
from app.local_process import LocalProcess, end_of
from bench.boards import SETTLING, Filled, environment, measured, settled_bytes
from bench.costs.processes import line, processor_seconds, tell_machine, version
from cluster.model import Cluster, Secret, StoreSettings
from simulate.scenarios.script import Script, load_script
from simulate.trial import analyse, put
from store.influx import Store
from store.influxql import Select, count
from store.local_influxdb import LocalInfluxDB, free_port
from store.schema import HOUR, MEASUREMENTS
from store.schema_version import META

_NODES = 64
_SCENARIO = """\
title: A busy day
about: A job on all nodes, nearly all of the time.
cluster: {nodes} nodes
days: {days}
jobs:
  - at: ["00:10"]
    lasting: {minutes}m
    checkpoints: {{every: 30m}}
"""
_BY_SFLOW = """\
settings:
  exporters:
    leaf-01: &leaf {protocol: sflow, sampling: 65535}
    leaf-02: *leaf
    leaf-03: *leaf
    leaf-04: *leaf
"""
_KINDS = {"NetFlow": "", "sFlow": _BY_SFLOW}
_DATABASE, _TOKEN, _TOKEN_IN = "bench", "bench-token", "CLUSTERFLOW_BENCH_TOKEN"
_SPANS = {"1h": 3600, "24h": 86_400, "7d": 7 * 86_400}
_WEEK = 7 * 24

Tape = list[tuple[bytes, str]]
"""Packed line protocol, and the retention that it was written to."""


class _Recorded(Store):
    """A store that keeps a copy of all that it is given, on whatever connection."""

    tape: Tape

    def write(self, lines: bytes, retention: str) -> None:
        super().write(lines, retention)
        self.tape.append((gzip.compress(lines, 1), retention))

    def another(self) -> "Store":
        return _recorded(self.settings, self.tape)


def _recorded(settings: StoreSettings, tape: Tape) -> _Recorded:
    found = _Recorded(settings)
    found.tape = tape
    return found


class _InfluxDB2(LocalProcess):
    """A private influxd of 2.x."""

    def __init__(self, folder: Path, binary: str) -> None:
        super().__init__()
        self.folder, self._binary, self._port = folder.resolve(), binary, free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, and set it up where it is new."""
        self.folder.mkdir(parents=True, exist_ok=True)
        log, is_new = self.folder / "influxd.log", not (self.folder / "influxd.bolt").exists()
        at = {
            "bolt-path": self.folder / "influxd.bolt", "sqlite-path": self.folder / "influxd.sqlite",
            "engine-path": self.folder, "http-bind-address": f"127.0.0.1:{self._port}",
            "storage-cache-snapshot-write-cold-duration": "3s", "storage-compact-full-write-cold-duration": "10s",
            "log-level": "error",
        }  # fmt: skip
        self._launch([self._binary, "--reporting-disabled", *(f"--{key}={value}" for key, value in at.items())], log)
        for _ in range(600):
            try:
                if requests.get(f"{self.url}/ping", timeout=1).status_code == 204:
                    break
            except requests.RequestException:
                time.sleep(0.1)
        else:
            raise StoreError(f"influxd did not start: {end_of(log)}", f"see {log}")
        if is_new:
            who = {"username": "bench", "password": "bench-bench", "org": "bench", "bucket": "none", "token": _TOKEN}
            requests.post(f"{self.url}/api/v2/setup", json=who, timeout=30).raise_for_status()


@click.command()
@click.option(
    "--influxd", "binaries", multiple=True, help="InfluxDB 1.x or 2.x to run, several times. [default: influxd]"
)
@click.option("--hours", default=12, show_default=True, help="Hours that are simulated, of 64 nodes.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(list(_KINDS)), help="What leaves send. [default: both]"
)
@click.option("--runs", default=3, show_default=True, help="Times that boards are asked: the middle one counts.")
def stores(binaries: tuple[str, ...], hours: int, kinds: tuple[str, ...], runs: int) -> None:
    """Write, keep and ask the same hours of 64 busy nodes in each InfluxDB; a line each. The first one is 1.x."""
    os.environ[_TOKEN_IN] = _TOKEN
    binaries = binaries or ("influxd",)
    tell_machine(binaries[0])
    for kind in kinds or _KINDS:
        with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name, environment(SETTLING):
            script, tape, held = _played(kind, hours, Path(name), binaries[0])
            copies = _WEEK // hours
            whole = [*tape, *(one for copy in range(1, copies) for one in _earlier(tape, copy * hours * 3600))]
            for number, binary in enumerate(binaries):
                told = _kept(script, whole, Path(name, str(number)), binary, runs)
                about = {"nodes": _NODES, "hours": hours, "points_by_retention": held, "hours_times": copies}
                line(step="store", exports=kind, **about, **told)


def _played(kind: str, hours: int, folder: Path, binary: str) -> tuple[Script, Tape, dict[str, int]]:
    """Return a scenario, what was written as it was played, and the points that are left of it in each retention."""
    text = _SCENARIO.format(nodes=_NODES, days=round(hours / 24, 4), minutes=hours * 60 - 20)
    path = folder / "busy.yaml"
    path.write_text(text + _KINDS[kind])
    script, tape = load_script(path), Tape()
    with LocalInfluxDB(folder / "played", binary=_found(binary)) as server:
        store = _recorded(replace(script.cluster.store, url=server.url, database=_DATABASE), tape)
        cluster = replace(script.cluster, store=store.settings)
        store.ensure(cluster.retentions())
        put(script, store)
        analyse(script, cluster, store, folder / "state")
        held = {one.name: sum(_points(store, one.name)) for one in cluster.retentions()}
        store.close()
    return script, tape, held


def _earlier(tape: Tape, seconds: int) -> Tape:
    """Return the hours once more, so much earlier: a file of InfluxDB holds a week of them, not half a day."""
    found: Tape = []
    for packed, retention in tape:
        if retention == HOUR:
            parts = (one.rpartition(b" ") for one in gzip.decompress(packed).split(b"\n"))
            lines = [b"%s %d" % (head, int(moment) - seconds) for head, _, moment in parts if moment.isdigit()]
            found.append((gzip.compress(b"\n".join(lines), 1), retention))
    return found


def _points(store: Store, retention: str) -> Iterator[int]:
    for measurement in MEASUREMENTS:
        if retention in measurement.retentions:
            counts = [count(field, field.name) for field in measurement.fields]
            asked = Select(measurement, retention).take(*counts).by(*measurement.tags)
            for _, *values in store.rows(asked.between()):
                yield max(int(value or 0) for value in values[len(measurement.tags) :])


def _kept(script: Script, tape: Tape, folder: Path, binary: str, runs: int) -> dict[str, Any]:
    """Return what a new server takes for the points: to write them, on disk, in memory, and for boards."""
    found = _found(binary)
    number = (version(found) or "unknown").split()[-1]
    is_v2 = number.startswith("2.")
    server = _InfluxDB2(folder, found) if is_v2 else LocalInfluxDB(folder, binary=found)
    with server:
        settings = replace(script.cluster.store, url=server.url, database=_DATABASE, org="bench")
        if is_v2:
            settings = replace(settings, token=Secret(env=_TOKEN_IN))
        cluster = replace(script.cluster, store=settings)
        store, pid = Store(settings), server.pid or 0
        store.ensure((*cluster.retentions(), META))
        began, worked = time.monotonic(), processor_seconds(pid)
        for lines, retention in tape:
            store.write(gzip.decompress(lines), retention)
        seconds = time.monotonic() - began
        lines_sent = sum(gzip.decompress(lines).count(b"\n") + 1 for lines, _ in tape)
        disk = settled_bytes(folder)
        told = {
            "server": f"InfluxDB {number}", "written": lines_sent, "seconds": round(seconds, 1),
            "cpu_seconds": round(processor_seconds(pid) - worked, 1), "disk_bytes": disk,
            "bytes_by_retention": _by_retention(store, cluster, folder, is_v2=is_v2),
        }  # fmt: skip
        filled = Filled(cluster, _NODES, script.end, server)
        boards = list(measured(filled, _SPANS, (), runs=runs, is_cold=False))
        store.close()
        asked = {span: round(sum(one["warm_seconds"] for one in boards if one["span"] == span), 3) for span in _SPANS}
        return told | {"boards_seconds": asked, "peak_mib": _peak_mib(pid)}


def _by_retention(store: Store, cluster: Cluster, folder: Path, *, is_v2: bool) -> dict[str, int]:
    """Return the bytes of compacted points, without the index."""
    places = {one.name: folder / "data" / _DATABASE / one.name for one in cluster.retentions()}
    if is_v2:
        asked = requests.get(
            f"{store.url}/api/v2/buckets?limit=100", headers={"Authorization": f"Token {_TOKEN}"}, timeout=30
        ).json()
        ids = {one["name"]: one["id"] for one in asked["buckets"]}
        places = {name: folder / "data" / ids[f"{_DATABASE}/{name}"] for name in places}
    return {name: sum(path.stat().st_size for path in place.rglob("*.tsm")) for name, place in places.items()}


def _peak_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


def _found(binary: str) -> str:
    found = shutil.which(binary)
    if found is None:
        raise UserError(f"--influxd {binary}: not there", "name an influxd of 1.x or 2.x")
    return found
