"""nfacctd is killed, or has no room to write: what it loses is counted, and it goes on."""

import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from malformed import everything, killers
from staged import Staged, stage, start
from trouble import Bridge, account, await_account, await_that, fill_up, small_disk

from bench.faults import Record
from cluster.model import ExportProtocol
from ingest.collect.kernel.guard import LONGEST
from ingest.collect.kernel.sockets import udp_sockets
from ingest.collect.kernel.split import share_of
from ingest.collect.trouble_file import lately
from simulate.packets.netflow import FlowFormat
from simulate.packets.udp import Clock, Progress, Target, UdpEmitter
from simulate.truth.ground_truth import GroundTruth
from simulate.truth.reckoning import Reckoning
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

QUICK = {"flush": "0.2s"}
SECONDS, SPEED = 75, 5
"""A gap counts as a loss once three purges of two seconds have come after it: traffic lasts long enough for that."""
HELD = 400
"""Records that wait for nfacctd at least when it is killed."""


@contextmanager
def collecting(staged: Staged) -> Iterator[Path]:
    """`clusterflow collect` on a staged cluster; yields its log."""
    if shutil.which("nfacctd", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("no nfacctd: apt-get install pmacct")
    log = staged.config.with_name("collect.log")
    process = start("collect", staged, PATH=f"{os.environ['PATH']}:/usr/sbin")
    try:
        await_that(lambda: log.exists() and "event=collecting" in log.read_text(), "the daemons listen")
        yield log
        process.send_signal(signal.SIGTERM)
        assert process.wait(40) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def nfacctd_of(log: Path) -> int:
    lines = [line for line in log.read_text().splitlines() if "event=daemon_started daemon=nfacctd" in line]
    return int(lines[-1].split(" pid=")[1].split()[0])


def seq_lost(staged: Staged) -> dict[str, int]:
    """Return the records that are counted as lost, by exporter."""
    found = Store(staged.cluster.store).query(
        f'SELECT sum("{schema.SEQ_LOST.name}") FROM "{schema.RAW}"."{schema.EXPORTER_STATUS.name}" '
        f'GROUP BY "{schema.EXPORTER}"'
    )
    return {series.tags[schema.EXPORTER]: int(series.values[0][1] or 0) for series in found}


def received(staged: Staged) -> dict[str, int]:
    """Return the records that are stored, by exporter."""
    found = Store(staged.cluster.store).query(
        f'SELECT sum("{schema.EXPORTER_RECORDS.name}") FROM "{schema.RAW}"."{schema.EXPORTER_STATUS.name}" '
        f'GROUP BY "{schema.EXPORTER}"'
    )
    return {series.tags[schema.EXPORTER]: int(series.values[0][1] or 0) for series in found}


def play(
    staged: Staged, truth: GroundTruth, speed: float, progress: Callable[[Progress], None] | None = None
) -> threading.Thread:
    """Send the staged minute, faster than it was, in a thread."""
    port = staged.cluster.collector
    netflow, sflow = Target("127.0.0.1", port.netflow_port), Target("127.0.0.1", port.sflow_port)

    def run() -> None:
        with UdpEmitter(staged.workload, truth, netflow=netflow, sflow=sflow) as udp:
            udp.run(
                staged.workload.batches(staged.scenario.live),
                Clock(staged.scenario.start, speed),
                threading.Event(),
                progress,
            )

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@dataclass(frozen=True, slots=True)
class Loss:
    """What became of records on their way, by exporter.

    Attributes:
        missing: how many fewer are stored than were sent.
        counted: how many are counted as lost.
        exact, estimated: exporters whose numbers count records (NetFlow v5, IPFIX), or datagrams (v9).
    """

    missing: dict[str, int]
    counted: dict[str, int]
    exact: frozenset[str]
    estimated: frozenset[str]

    def of(self, names: frozenset[str]) -> tuple[dict[str, int], dict[str, int]]:
        """Return what is missing of some exporters, and what is counted."""
        return {name: self.missing[name] for name in names}, {name: self.counted.get(name, 0) for name in names}


def loss_of(staged: Staged, document: dict[str, Any]) -> Loss:
    stored = received(staged)
    formats = {
        exporter.name: style.flow_format
        for exporter, style in zip(staged.cluster.exporters, staged.workload.fabric.styles, strict=True)
    }
    return Loss(
        missing={one["exporter"]: one["records"] - stored.get(one["exporter"], 0) for one in document["exporters"]},
        counted=seq_lost(staged),
        exact=frozenset(name for name, kind in formats.items() if kind in {FlowFormat.V5, FlowFormat.IPFIX}),
        estimated=frozenset(name for name, kind in formats.items() if kind is FlowFormat.V9),
    )


def await_loss(staged: Staged, document: dict[str, Any], seconds: float = 20) -> Loss:
    """Return the loss as soon as all that was printed is stored and the count is right, or as it stands after a while.

    nfacctd and sfacctd print what they have within `collector.refresh`, 1 s.
    """
    time.sleep(3)
    deadline = time.monotonic() + seconds
    while True:
        loss = loss_of(staged, document)
        missing, counted = loss.of(loss.exact)
        if missing == counted or time.monotonic() > deadline:
            return loss
        time.sleep(0.5)


def test_what_a_killed_nfacctd_had_is_counted_as_lost(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, begins_in=-120, seconds=SECONDS, bridge=QUICK)
    truth = GroundTruth(staged.workload)
    with Bridge(staged, "--keep-files") as bridge, collecting(staged) as log:
        sent: list[Progress] = []
        sender = play(staged, truth, SPEED, sent.append)
        time.sleep(3)
        # Its printing child prints what it has got, and a busy machine may send nothing while it is away: it stands
        # still first, so that it has what comes meanwhile. The first report after that has all from before it.
        os.kill(nfacctd_of(log), signal.SIGSTOP)
        first = len(sent)
        await_that(
            lambda: len(sent) > first and sent[-1].records - sent[first].records > HELD, f"{HELD} records come", 20
        )
        os.kill(nfacctd_of(log), signal.SIGKILL)
        sender.join()
        document = truth.document()
        loss = await_loss(staged, document)
        assert udp_sockets(staged.cluster.collector.netflow_port)
        result = account(staged, document)
        assert bridge.stop() == 0
    missing, counted = loss.of(loss.exact)
    assert sum(missing.values()) > 50
    assert counted == missing
    # How many records a missing datagram held is an estimate.
    missing, counted = loss.of(loss.estimated)
    assert all(0.5 * missing[name] < counted[name] < 1.5 * missing[name] for name in loss.estimated)
    told = "its records of up to 1 s, and those of the second until it listens again: `exporter` seq_lost, "
    told += "exact for NetFlow v5 and, but for options records, IPFIX, an estimate for v9"
    record("collector-killed", result, stated=lost_of(result), counted=told)


def test_of_two_nfacctd_the_other_loses_nothing_when_one_is_killed(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, begins_in=-120, seconds=SECONDS, bridge=QUICK)
    settings = yaml.safe_load(staged.config.read_text())
    settings["collector"]["netflow_daemons"] = 2
    staged.config.write_text(yaml.safe_dump(settings))
    truth = GroundTruth(staged.workload)
    addresses = {one.name: one.address for one in staged.cluster.exporters if one.protocol is ExportProtocol.NETFLOW}
    theirs = frozenset(name for name, address in addresses.items() if share_of(address, 2))
    assert theirs
    assert addresses.keys() - theirs
    with Bridge(staged, "--keep-files") as bridge, collecting(staged) as log:
        if "event=split_unavailable" in log.read_text():
            pytest.skip("no program in this kernel")
        sender = play(staged, truth, SPEED)
        time.sleep(6)
        # The last that was started.
        os.kill(nfacctd_of(log), signal.SIGKILL)
        sender.join()
        document = truth.document()
        loss = await_loss(staged, document)
        result = account(staged, document)
        assert lately(staged.spool, time.time()) == {"died nfacctd-2": 1}
        assert bridge.stop() == 0
    missing, counted = loss.of(loss.exact)
    assert counted == missing
    assert {name for name, count in loss.missing.items() if count} <= theirs
    assert sum(loss.missing.values()) > 0
    told = "only of that daemon's exporters: `exporter` seq_lost; its death: `collector_attacked`"
    record("collector-shared-killed", result, stated=lost_of(result), counted=told)


def lost_of(result: Reckoning) -> int:
    return result.sent_bytes - result.stored_bytes


def throw(staged: Staged, payload: bytes) -> None:
    """Send a datagram from the address of a listed exporter, as anybody could who forges it."""
    (listed, *_) = (one for one in staged.cluster.exporters if one.protocol is ExportProtocol.NETFLOW)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((str(listed.address), 0))
        sender.sendto(payload, ("127.0.0.1", staged.cluster.collector.netflow_port))


@pytest.mark.long_form
def test_datagrams_that_would_kill_nfacctd_cost_nothing(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, begins_in=-120, seconds=SECONDS, bridge=QUICK)
    truth = GroundTruth(staged.workload)
    port = staged.cluster.collector.netflow_port
    refused = 0
    with Bridge(staged, "--keep-files") as bridge, collecting(staged) as log:
        if "event=guard_unavailable" in log.read_text():
            pytest.skip("no filter in this kernel")
        before = nfacctd_of(log)
        sender = play(staged, truth, SPEED)
        for number, (element, payload) in enumerate(everything()):
            throw(staged, payload)
            refused += element in LONGEST
            if number % 20 == 0:
                await_that(lambda: not any(one.waiting for one in udp_sockets(port)), "nfacctd keeps up", 60)
        sender.join()
        result = await_account(staged, truth.document())
        assert nfacctd_of(log) == before
        told = lambda: sum(lately(staged.spool, time.time()).values())  # noqa: E731
        await_that(lambda: told() >= refused, "who sent them is noted", 30)
        assert told() == refused
        assert bridge.stop() == 0
    # What passed has records of no bytes between no addresses.
    theirs = "groups local -> local"
    differences = tuple(one for one in result.differences if (one.what, one.unit) != (theirs, schema.FLOWS.name))
    record(
        "killers-refused",
        replace(result, differences=differences),
        trials=number + 1,
        counted=f"{refused} refused and told: `collector_attacked`",
    )


@pytest.mark.long_form
def test_without_the_guard_each_killer_costs_a_second(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, begins_in=-120, seconds=4 * SECONDS, bridge=QUICK)
    settings = yaml.safe_load(staged.config.read_text())
    settings["collector"]["guard"] = False
    staged.config.write_text(yaml.safe_dump(settings))
    truth = GroundTruth(staged.workload)
    port = staged.cluster.collector.netflow_port
    down = []
    with Bridge(staged, "--keep-files") as bridge, collecting(staged) as log:
        sender = play(staged, truth, SPEED)
        time.sleep(2)
        for payload in killers()[:3]:
            before = nfacctd_of(log)
            throw(staged, payload)
            await_that(lambda: not udp_sockets(port), "it kills", 20)
            began = time.monotonic()
            await_that(lambda before=before: udp_sockets(port) and nfacctd_of(log) != before, "it is started again", 60)
            down.append(time.monotonic() - began)
        sender.join()
        document = truth.document()
        loss = await_loss(staged, document)
        result = account(staged, document)
        assert lately(staged.spool, time.time())["died nfacctd"] == len(down)
        assert bridge.stop() == 0
    missing, counted = loss.of(loss.exact)
    assert sum(missing.values()) > 0
    assert counted == missing
    told = f"nfacctd was away for {min(down):.1f} to {max(down):.1f} s a time: `exporter` seq_lost; its deaths: "
    record("killers", result, trials=len(down), stated=lost_of(result), counted=f"{told}`collector_attacked`")


def test_a_full_disk_under_the_spool_costs_what_could_not_be_written(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    with small_disk(tmp_path / "disk", 20_000) as disk:
        staged = stage(tmp_path, influxdb_v1.url, fresh_database, begins_in=-120, seconds=SECONDS, bridge=QUICK)
        settings = yaml.safe_load(staged.config.read_text())
        settings["collector"]["spool"] = str(disk)
        staged.config.write_text(yaml.safe_dump(settings))
        truth = GroundTruth(staged.workload)
        with collecting(staged) as log, Bridge(staged, "--keep-files") as bridge:
            sender = play(staged, truth, SPEED)
            time.sleep(3)
            ballast = fill_up(disk)
            time.sleep(3.2)
            ballast.unlink()
            sender.join()
            document = truth.document()
            loss = await_loss(staged, document)
            result = account(staged, document)
            assert bridge.stop() == 0
        assert "event=spool_full" in log.read_text()
        assert "event=spool_has_room" in log.read_text()
        assert bridge.said().count("event=dead_letters") == 1
    missing, counted = loss.of(loss.exact)
    assert sum(missing.values()) > 50
    # What is lost of a purge are lines here and there; of IPFIX, one number alone may be that of options.
    assert all(0 <= missing[name] - counted[name] <= 2 for name in loss.exact)
    told = "what arrived meanwhile: `exporter` seq_lost, exact for NetFlow v5 and, but for a lone record now and then, "
    told += "IPFIX; half lines are dead letters"
    record("spool-disk-full", result, stated=lost_of(result), counted=told)
