"""Full disks: under the store, the bridge's state, the analysis' state, the spool."""

import time
from pathlib import Path

from conftest import Record
from staged import stage
from trouble import Bridge, await_account, await_that, feed, fill_up, filled, small_disk

from ingest.local_influxdb import LocalInfluxDB


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
