"""Full disks: under the store, the bridge's state, the analysis' state, the spool."""

import signal
import time
from pathlib import Path

import pytest
from staged import finish, stage, start
from trouble import Bridge, account, await_account, await_that, feed, fill_up, filled, small_disk

from bench.faults import Record
from store.local_influxdb import LocalInfluxDB


def test_a_full_disk_under_the_state_is_told_and_waited_for(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge={"flush": "0.2s"})
    truth, files = filled(staged, tmp_path / "files")
    with small_disk(tmp_path / "state", 3000) as disk, Bridge(staged, "--keep-files") as bridge:
        for count in feed(staged, files):
            if count == 2:
                ballast = fill_up(disk)
                await_that(lambda: "event=state_not_saved" in bridge.said(), "the full disk is told")
        time.sleep(1.5)
        assert bridge.is_running
        assert bridge.said().count("event=state_not_saved") == 1
        ballast.unlink()
        result = await_account(staged, truth)
        assert "event=state_saved" in bridge.said()
        assert bridge.stop() == 0
    record("state-disk-full", result)


@pytest.mark.long_form
def test_a_full_disk_under_the_analysis_is_told_and_tried_again(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database)
    truth = staged.fill(tmp_path / "files")
    shard = staged.cluster.bridge.shard
    finish(start("ingest", staged, "--spool", str(tmp_path / "files"), "--once", "--shard", shard), staged, "ingest")
    log = staged.config.with_name("analyze.log")
    with small_disk(tmp_path / "state", 8000) as disk:
        process = start("analyze", staged, "--every", "0.5s")
        try:
            await_that(lambda: "event=tick" in log.read_text(), "it judges", 60)
            ballast = fill_up(disk)
            # What a tick saves fills the room that the file still has within itself, then no more.
            await_that(lambda: "event=state_not_saved" in log.read_text(), "the full disk is told", 60)
            ballast.unlink()
            time.sleep(2)
            assert process.poll() is None
            process.send_signal(signal.SIGHUP)
            await_that(lambda: "event=reload_refused" in log.read_text(), "SIGHUP is answered")
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    assert log.read_text().count("event=state_not_saved") == 1
    record("analysis-disk-full", account(staged, truth))
