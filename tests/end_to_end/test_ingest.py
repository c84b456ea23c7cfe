"""Spool files in, an InfluxDB of each kind out: every total is the simulator's, whatever happens on the way."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from staged import Staged, finish, move_counters, record_files, stage, start

from ingest.collect.kernel.sockets import udp_sockets
from simulate.packets.spool_files import SpoolFormat
from simulate.packets.udp import Clock, Target, UdpEmitter
from simulate.truth.ground_truth import GroundTruth
from simulate.truth.reckoning import Reckoning, reckon
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

BACKFILL = "test"


def once(staged: Staged, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return start("ingest", staged, "--spool", str(folder), "--once", "--shard", BACKFILL, *arguments)


def differences(result: Reckoning) -> list[str]:
    assert result.checked > 50
    assert result.sent_bytes > 10**9
    return [str(difference) for difference in result.differences]


@pytest.mark.parametrize("file_format", list(SpoolFormat))
def test_totals_are_the_simulators_on_influxdb_1_6(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, file_format: SpoolFormat
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database)
    truth = staged.fill(tmp_path / "files", file_format)
    finish(once(staged, tmp_path / "files"), staged, "ingest")
    assert differences(reckon(Store(staged.cluster.store), truth, BACKFILL)) == []


def test_totals_are_the_simulators_through_the_v2_api(
    influxdb_v2: LocalInfluxDB, fresh_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_TOKEN", "user:password")
    settings = {"api": "v2", "token": {"env": "TEST_TOKEN"}}
    staged = stage(tmp_path, influxdb_v2.url, fresh_database, store=settings)
    truth = staged.fill(tmp_path / "files")
    finish(once(staged, tmp_path / "files"), staged, "ingest")
    assert differences(reckon(Store(staged.cluster.store), truth, BACKFILL)) == []


def test_rollups_hold_what_the_raw_points_hold(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database)
    staged.fill(tmp_path / "files")
    finish(once(staged, tmp_path / "files"), staged, "ingest")
    store = Store(staged.cluster.store)

    def totals(retention: str) -> list[object]:
        # The names are the schema's.
        query = f'SELECT sum("bytes"), sum("packets"), sum("flows") FROM "{retention}"."traffic" GROUP BY "src_group"'
        return [(series.tags, series.values[0][1:]) for series in store.query(query)]

    assert totals("1m") == totals("raw")
    assert totals("1h") == totals("raw")


def test_reading_the_same_folder_twice_changes_nothing(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database)
    truth = staged.fill(tmp_path / "files")
    for _ in range(2):
        finish(once(staged, tmp_path / "files"), staged, "ingest")
    assert differences(reckon(Store(staged.cluster.store), truth, BACKFILL)) == []
    assert list((tmp_path / "files").iterdir()), "a backfill deletes nobody's files"


@pytest.mark.long_form
def test_files_out_of_order_and_compressed_give_the_same_totals(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path
) -> None:
    # Windows are evicted after 10 s and come back: what was put aside has to be taken up again.
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge={"grace": "10s", "lateness": "1s"})
    truth = staged.fill(tmp_path / "files")
    files = record_files(tmp_path / "files")
    assert len(files) > 2
    shuffled = tmp_path / "shuffled"
    shuffled.mkdir()
    (tmp_path / "one").mkdir()
    move_counters(tmp_path / "files", tmp_path / "one")
    for position, file in enumerate(reversed(files)):
        (shuffled / f"flows-{position:03}.csv.gz").write_bytes(gzip.compress(file.read_bytes()))
    # Small chunks of work: a restart of the whole run for each file, on one state.
    for file in sorted(shuffled.iterdir()):
        file.rename(tmp_path / "one" / file.name)
        finish(once(staged, tmp_path / "one", "--state", str(tmp_path / "kept")), staged, "ingest")
    assert differences(reckon(Store(staged.cluster.store), truth, BACKFILL)) == []


def test_records_older_than_the_retention_are_refused_with_a_hint(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, begins_in=-9 * 86_400)
    staged.fill(tmp_path / "files")
    process = once(staged, tmp_path / "files")
    assert process.wait(60) == 2
    said = staged.config.with_name("ingest.log").read_text()
    assert "but the raw retention keeps 7 days (raise store.retention.raw" in said


PLAIN = """\
daemonize: false
nfacctd_ip: 127.0.0.1
nfacctd_port: {port}
plugins: print
aggregate: src_host, dst_host, src_port, dst_port, proto, in_iface, peer_src_ip, timestamp_start, timestamp_end
print_output: {output}
print_output_file: {file}
print_output_file_append: true
print_refresh_time: 2
plugin_pipe_size: 40960000
"""
"""What somebody might have written by hand: local times without a zone, protocol names, no arrival, no sampling."""


@pytest.mark.parametrize("output", ["json", pytest.param("csv", marks=pytest.mark.long_form)])
def test_files_of_a_plain_nfacctd_hold_what_the_store_holds(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, output: str
) -> None:
    nfacctd = shutil.which("nfacctd", path=f"{os.environ['PATH']}:/usr/sbin")
    if nfacctd is None:
        pytest.skip("no nfacctd: apt-get install pmacct")
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, begins_in=-120, seconds=30)
    files = tmp_path / "files"
    files.mkdir()
    config = tmp_path / "plain.conf"
    port = staged.cluster.collector.netflow_port
    config.write_text(PLAIN.format(port=port, output=output, file=files / f"flows.{output}"))
    daemon = subprocess.Popen([nfacctd, "-f", str(config)], stdout=subprocess.DEVNULL, env=os.environ | {"TZ": "UTC"})
    try:
        wait_until(lambda: udp_sockets(port))
        time.sleep(2)
        target = Target("127.0.0.1", port)
        with UdpEmitter(
            staged.workload, GroundTruth(staged.workload), netflow=target, sflow=Target("127.0.0.1", 9)
        ) as udp:
            udp.run(staged.workload.batches(staged.scenario.live), Clock(staged.scenario.start, 5), threading.Event())
        time.sleep(5)
    finally:
        daemon.send_signal(signal.SIGINT)
        daemon.wait(20)
    held = read_plain(files / f"flows.{output}")
    assert held > 10**9
    finish(once(staged, files), staged, "ingest")
    query = 'SELECT sum("seen_bytes") FROM "raw"."traffic"'
    assert Store(staged.cluster.store).query(query)[0].values[0][1] == held


def read_plain(path: Path) -> int:
    """Return the sum of the bytes that a file of nfacctd holds, the slow way."""
    lines = path.read_text().splitlines()
    if path.suffix == ".json":
        return sum(json.loads(line)["bytes"] for line in lines)
    column = lines[0].split(",").index("BYTES")
    return sum(int(line.split(",")[column]) for line in lines[1:])


def wait_until(is_so: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
