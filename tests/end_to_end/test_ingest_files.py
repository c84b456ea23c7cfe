"""Whose files `ingest` may delete, and what it says of those that it cannot read."""

import gzip
import os
import signal
import time
from pathlib import Path

from staged import Staged, record_files, stage, start

from ingest.collect.counter_files import FOLDER
from store.local_influxdb import LocalInfluxDB


def follow_until_read(staged: Staged, *arguments: str) -> None:
    """Follow until everything is read, and some flushes longer."""
    process = start("ingest", staged, *arguments)
    deadline = time.monotonic() + 30
    position = staged.config.with_name("state") / "bridge" / "manifest.json"
    while not position.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def old_files(staged: Staged, folder: Path) -> list[Path]:
    """Fill a folder with files that their writer has left long ago."""
    staged.fill(folder)
    files = record_files(folder)
    for file in (*files, *record_files(folder / FOLDER)):
        os.utime(file, (time.time() - 600, time.time() - 600))
    assert len(files) > 2
    return files


def test_read_files_go_from_our_spool_and_from_nobody_elses(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "ours").mkdir()
    theirs = stage(tmp_path / "theirs", influxdb_v1.url, fresh_database, bridge={"flush": "0.2s"})
    files = old_files(theirs, tmp_path / "daemon")
    counters = record_files(tmp_path / "daemon" / FOLDER)
    assert len(counters) > 1
    follow_until_read(theirs, "--spool", str(tmp_path / "daemon"))
    assert all(file.exists() for file in (*files, *counters))

    ours = stage(tmp_path / "ours", influxdb_v1.url, fresh_database, bridge={"flush": "0.2s"})
    files = old_files(ours, ours.spool)
    counters = record_files(ours.spool / FOLDER)
    follow_until_read(ours, "--spool", str(ours.spool))
    # The newest may still be written to.
    assert [file for file in files if file.exists()] == files[-1:]
    assert [file for file in counters if file.exists()] == counters[-1:]


def test_a_broken_archive_is_told_and_the_rest_is_stored(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database)
    staged.fill(tmp_path / "files")
    first = record_files(tmp_path / "files")[0]
    (tmp_path / "files" / "flows-0.csv.gz").write_bytes(gzip.compress(first.read_bytes())[:-100])
    dead = str(tmp_path / "dead-letters.jsonl")
    process = start("ingest", staged, "--spool", str(tmp_path / "files"), "--once", "--dead-letters", dead)
    assert process.wait(60) == 1
    said = staged.config.with_name("ingest.log").read_text()
    assert "not read to the end: flows-0.csv.gz (mend or replace" in said
    assert "event=done" in said


def test_a_folder_without_records_says_so(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "flows.txt").write_text("not for us\n")
    process = start("ingest", staged, "--spool", str(tmp_path / "files"), "--once")
    assert process.wait(60) == 1
    said = staged.config.with_name("ingest.log").read_text()
    assert "no flow records found (files are read whose names match *.csv, *.json, *.csv.gz, *.json.gz)" in said
