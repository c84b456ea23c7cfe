"""nfacctd is killed, or has no room to write: what it loses is counted, and it goes on."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from conftest import Record
from staged import Staged, stage, start
from trouble import Bridge, account, await_that, fill_up, small_disk

from cluster import schema
from ingest.local_influxdb import LocalInfluxDB
from ingest.store import Store
from simulate.netflow import FlowFormat
from simulate.reckoning import Reckoning
from simulate.stack import has_socket
from simulate.truth import GroundTruth
from simulate.udp import Clock, Target, UdpEmitter

QUICK = {"flush": "0.2s"}


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


def play(staged: Staged, truth: GroundTruth, speed: float) -> threading.Thread:
    """Send the staged minute, faster than it was, in a thread."""
    port = staged.cluster.collector
    netflow, sflow = Target("127.0.0.1", port.netflow_port), Target("127.0.0.1", port.sflow_port)

    def run() -> None:
        with UdpEmitter(staged.workload, truth, netflow=netflow, sflow=sflow) as udp:
            udp.run(
                staged.workload.batches(staged.scenario.live), Clock(staged.scenario.start, speed), threading.Event()
            )

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_what_a_killed_nfacctd_had_is_counted_as_lost(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, begins_in=-120, seconds=60, bridge=QUICK)
    truth = GroundTruth(staged.workload)
    with Bridge(staged, "--keep-files") as bridge, collecting(staged) as log:
        sender = play(staged, truth, 5)
        time.sleep(4.3)
        os.kill(nfacctd_of(log), signal.SIGKILL)
        sender.join()
        time.sleep(5)
        assert has_socket(staged.cluster.collector.netflow_port)
        document = truth.document()
        sent = {one["exporter"]: one["records"] for one in document["exporters"]}
        result, lost, stored = account(staged, document), seq_lost(staged), received(staged)
        assert bridge.stop() == 0
    missing = {name: count - stored.get(name, 0) for name, count in sent.items()}
    formats = {
        exporter.name: style.flow_format
        for exporter, style in zip(staged.cluster.exporters, staged.workload.fabric.styles, strict=True)
    }
    numbered = {name for name, kind in formats.items() if kind in {FlowFormat.V5, FlowFormat.IPFIX}}
    assert sum(missing[name] for name in numbered) > 50
    assert {name: lost[name] for name in numbered} == {name: missing[name] for name in numbered}
    # NetFlow v9 numbers datagrams: how many records a missing one held is an estimate.
    estimated = [name for name, kind in formats.items() if kind is FlowFormat.V9]
    assert all(0.5 * missing[name] < lost[name] < 1.5 * missing[name] for name in estimated)
    told = "its records of up to 2 s, and those of the second until it listens again: `exporter` seq_lost, "
    told += "exact for NetFlow v5 and IPFIX, an estimate for v9"
    record("collector-killed", result, stated=lost_of(result), counted=told)


def lost_of(result: Reckoning) -> int:
    return result.sent_bytes - result.stored_bytes


def test_a_full_disk_under_the_spool_costs_what_could_not_be_written(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    with small_disk(tmp_path / "disk", 20_000) as disk:
        staged = stage(tmp_path, influxdb_v1.url, fresh_database, begins_in=-120, seconds=60, bridge=QUICK)
        settings = yaml.safe_load(staged.config.read_text())
        settings["collector"]["spool"] = str(disk)
        staged.config.write_text(yaml.safe_dump(settings))
        truth = GroundTruth(staged.workload)
        with collecting(staged) as log, Bridge(staged, "--keep-files") as bridge:
            sender = play(staged, truth, 5)
            time.sleep(4)
            ballast = fill_up(disk)
            time.sleep(3.2)
            ballast.unlink()
            sender.join()
            time.sleep(5)
            document = truth.document()
            sent = {one["exporter"]: one["records"] for one in document["exporters"]}
            result, lost, stored = account(staged, document), seq_lost(staged), received(staged)
            assert bridge.stop() == 0
        missing = {name: count - stored.get(name, 0) for name, count in sent.items()}
        assert "event=spool_full" in log.read_text()
        assert "event=spool_has_room" in log.read_text()
        assert bridge.said().count("event=dead_letters") == 1
    formats = {
        exporter.name: style.flow_format
        for exporter, style in zip(staged.cluster.exporters, staged.workload.fabric.styles, strict=True)
    }
    numbered = {name for name, kind in formats.items() if kind in {FlowFormat.V5, FlowFormat.IPFIX}}
    assert sum(missing[name] for name in numbered) > 50
    assert {name: lost[name] for name in numbered} == {name: missing[name] for name in numbered}
    told = "what arrived meanwhile: `exporter` seq_lost, exact for NetFlow v5 and IPFIX; half lines are dead letters"
    record("spool-disk-full", result, stated=lost_of(result), counted=told)
