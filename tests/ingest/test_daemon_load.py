"""How many nfacctd share a port where cluster.yaml leaves it to `collect`."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from test_pmacct_daemons import a_cluster, free_udp_port

from app.log import Log
from app.signals import SignalEvent
from cluster.model import Cluster, Exporter
from ingest.collect import collect_cli, daemon_load
from ingest.collect.daemon_load import DaemonLoad, busy_seconds
from ingest.collect.kernel.bpf import BpfError
from ingest.collect.kernel.split import Split
from ingest.collect.supervise import Collector

TODAY = int(time.time()) // 86_400


def cluster_of(exporters: int) -> Cluster:
    return a_cluster(*(Exporter(f"leaf-{n}", ip_address(f"127.0.0.{n}")) for n in range(11, 11 + exporters)))


def cores(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(daemon_load.os, "sched_getaffinity", lambda _pid: set(range(count)))


def after_a_minute(folder: Path, *used: dict[int, float]) -> DaemonLoad:
    """Return what was measured of daemons whose processes took so many cores for a minute."""
    load = DaemonLoad(folder)
    load.measure({daemon: dict.fromkeys(of, 5.0) for daemon, of in enumerate(used)}, 100.0)
    now = {daemon: {pid: 5 + of[pid] * 60 for pid in of} for daemon, of in enumerate(used)}
    # A process that prints was not there before.
    now[0][99] = 10_000.0
    load.measure(now, 160.0)
    return load


def test_the_busiest_process_of_each_counts(tmp_path: Path) -> None:
    load = after_a_minute(tmp_path, {1: 0.2, 2: 0.6}, {3: 0.1, 4: 0.5})
    assert load.now == pytest.approx(1.1)
    assert not load.is_full
    assert after_a_minute(tmp_path, {1: 0.2, 2: 0.99}, {3: 0.1, 4: 0.5}).is_full


@pytest.mark.service
def test_who_waits_for_a_core_is_busy_too() -> None:
    """Two that want one core get half of it each, and are full all the same."""
    one = min(os.sched_getaffinity(0))
    spin = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{one}}})\nwhile True: pass"]
    with subprocess.Popen(spin) as first, subprocess.Popen(spin) as second:
        try:
            time.sleep(0.5)
            began, before = time.monotonic(), busy_seconds(first.pid, 0)
            time.sleep(1)
            share = (busy_seconds(first.pid, 0) - before) / (time.monotonic() - began)
        finally:
            first.kill()
            second.kill()
    assert share == pytest.approx(1.0, abs=0.1)


def test_where_the_kernel_does_not_tell_ticks_count() -> None:
    assert busy_seconds(0, 250) == 250 / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(("used", "daemons"), [(0.0, 1), (0.69, 1), (0.71, 2), (1.39, 2), (1.45, 3), (9.0, 8)])
def test_no_daemon_gets_more_than_its_share(
    used: float, daemons: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores(monkeypatch, 8)
    after_a_minute(tmp_path, {1: used})
    assert DaemonLoad(tmp_path).daemons(cluster_of(20)) == daemons


def test_no_more_than_cores_or_exporters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after_a_minute(tmp_path, {1: 5.0})
    cores(monkeypatch, 4)
    assert DaemonLoad(tmp_path).daemons(cluster_of(20)) == 4
    assert DaemonLoad(tmp_path).daemons(cluster_of(3)) == 3
    assert DaemonLoad(tmp_path).daemons(replace(cluster_of(3), exporters=())) == 4


def test_a_peak_is_known_for_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores(monkeypatch, 8)
    file = tmp_path / daemon_load.NAME
    file.write_text(json.dumps({TODAY - 7: 5.0, TODAY - 6: 2.0}))
    assert DaemonLoad(tmp_path).daemons(cluster_of(20)) == 3
    after_a_minute(tmp_path, {1: 0.3})
    assert json.loads(file.read_text()) == {str(TODAY - 6): 2.0, str(TODAY): 0.3}
    after_a_minute(tmp_path, {1: 0.2})
    assert json.loads(file.read_text())[str(TODAY)] == 0.3


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}', '{"1": null}'])
def test_a_file_that_is_none_means_one(text: str, tmp_path: Path) -> None:
    (tmp_path / daemon_load.NAME).write_text(text)
    assert DaemonLoad(tmp_path).daemons(cluster_of(20)) == 1


@pytest.mark.service
@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
def test_collect_starts_more_when_a_queue_ran_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        Split("127.0.0.1", free_udp_port(), 2)
    except BpfError as error:
        pytest.skip(f"no program in this kernel: {error}")
    cores(monkeypatch, 2)
    monkeypatch.setattr(collect_cli, "_SUMMARY_SECONDS", 2.0)
    cluster, spool, run, log, events = cluster_of(4), tmp_path / "spool", tmp_path / "run", Log(), []
    monkeypatch.setattr(log, "warning", lambda event, **_values: events.append(event))
    stopped = SignalEvent()
    # Never leaves a test hanging.
    threading.Timer(40, stopped.set).start()
    with Collector(cluster, run, spool=spool) as collector:
        assert list(collector.pids) == ["nfacctd"]
        (spool / daemon_load.NAME).write_text(json.dumps({TODAY: 0.9}))
        assert not collector.is_outgrown
        # As it writes it, at a moment that a test cannot bring about.
        with (run / "nfacctd.log").open("a") as said:
            said.write("2026-01-01T00:00:00Z WARN ( default/print ): Missing data detected (plugin_buffer_size=1).\n")
        collect_cli._look_after(collector, stopped, log)
        assert not stopped.is_set()
        assert events == ["daemons_outgrown"]
    with Collector(cluster, run, spool=spool) as collector:
        assert list(collector.pids) == ["nfacctd", "nfacctd-2"]
        assert not collector.is_outgrown


def test_a_number_in_cluster_yaml_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores(monkeypatch, 8)
    after_a_minute(tmp_path, {1: 3.0})
    cluster = cluster_of(4)
    set_ = replace(cluster, collector=replace(cluster.collector, netflow_daemons=1))
    collector = Collector(set_, tmp_path / "run", spool=tmp_path)
    assert collector._wanted == 1
    assert not collector.is_outgrown
