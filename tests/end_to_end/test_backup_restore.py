"""A site is wrecked in the middle of its stream; its backup and InfluxDB's own bring it back to the byte."""

import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from staged import Staged, finish, move_counters, record_files, stage, start

from simulate.truth.reckoning import Reckoning, reckon
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

BINARY = shutil.which("influxd")


def ask(server: LocalInfluxDB, verb: str, *arguments: str) -> None:
    """Run InfluxDB's own backup or restore against a server of ours."""
    text = (server.folder / "influxdb.conf").read_text()
    (address,) = re.findall(r'(?m)^bind-address = "([^"]+)"', text)
    done = subprocess.run(
        [server.binary, verb, "-portable", "-host", address, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout


def give(staged: Staged, files: list[Path]) -> None:
    for file in files:
        file.rename(staged.spool / file.name)


def points_so_far(staged: Staged) -> int:
    query = 'SELECT sum("flows") FROM "raw"."traffic"'
    series = Store(staged.cluster.store).query(query)
    return int(series[0].values[0][1]) if series else 0


def wait_for_rest(staged: Staged) -> int:
    """Return how many flows are stored, once that no longer grows."""
    deadline = time.monotonic() + 60
    last, since = -1, time.monotonic()
    while time.monotonic() < deadline:
        now = points_so_far(staged)
        if now != last:
            last, since = now, time.monotonic()
        elif now > 0 and time.monotonic() - since > 3:
            return now
        time.sleep(0.3)
    raise AssertionError(staged.config.with_name("ingest.log").read_text())


def wait_for_equal(staged: Staged, truth: dict[str, object]) -> Reckoning:
    deadline = time.monotonic() + 60
    while True:
        result = reckon(Store(staged.cluster.store), truth, staged.cluster.bridge.shard)
        if not result.differences or time.monotonic() > deadline:
            return result
        time.sleep(0.5)


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


@pytest.mark.skipif(BINARY is None, reason="no InfluxDB 1.x: apt-get install influxdb")
@pytest.mark.parametrize(
    "running",
    [pytest.param(True, id="running, spool kept"), pytest.param(False, id="stopped", marks=pytest.mark.long_form)],
)
def test_a_wrecked_site_comes_back_and_goes_on_to_the_byte(tmp_path: Path, *, running: bool) -> None:
    server = LocalInfluxDB(tmp_path / "influxdb", binary=BINARY)
    server.start()
    staged = stage(tmp_path, server.url, "site", bridge={"flush": "0.2s"})
    Store(staged.cluster.store).ensure(staged.cluster.retentions())
    truth = staged.fill(tmp_path / "files")
    files = record_files(tmp_path / "files")
    move_counters(tmp_path / "files", staged.spool)
    third = len(files) // 3
    arguments = ("--keep-files",) if running else ()
    archive, dump = tmp_path / "site.tar.gz", tmp_path / "influxdb-backup"
    processes: list[subprocess.Popen[bytes]] = []

    def ingest() -> subprocess.Popen[bytes]:
        processes.append(start("ingest", staged, *arguments))
        return processes[-1]

    try:
        bridge = ingest()
        give(staged, files[:third])
        before = wait_for_rest(staged)
        if not running:
            end(bridge)
        # First the state, then the store: the store then holds what the state knows, and perhaps more.
        finish(start("backup", staged, str(archive)), staged, "backup")
        if running:
            give(staged, files[third : 2 * third])
            assert wait_for_rest(staged) > before
        ask(server, "backup", "-database", "site", str(dump))

        # Everything but the spool and the backups is gone.
        if running:
            bridge.kill()
            bridge.wait()
        server.stop()
        shutil.rmtree(server.folder)
        shutil.rmtree(tmp_path / "state")
        staged.config.unlink()

        server.start()
        ask(server, "restore", "-db", "site", str(dump))
        finish(start("restore", staged, str(archive)), staged, "restore")
        assert staged.config.exists()
        bridge = ingest()
        give(staged, files[2 * third if running else third :])
        result = wait_for_equal(staged, truth)
        end(bridge)
        assert result.checked > 50
        assert result.sent_bytes > 10**9
        assert [str(difference) for difference in result.differences] == []
    finally:
        for process in processes:
            process.kill()
        server.stop()
