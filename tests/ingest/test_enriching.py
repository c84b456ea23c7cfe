"""The files of a process: what a reload keeps of them, and what an end does not wait for."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import ingest.enriching as module
from cluster.load import parse_cluster
from ingest.enriching import Enrichment
from ingest.logs import Log

TEXT = """
cluster: demo
groups:
  training: {role: training, prefixes: [10.20.0.0/16]}
threat_feeds: {bad: bad.txt}
"""


def test_a_reload_keeps_the_files_where_nothing_that_they_depend_on_changes(tmp_path: Path) -> None:
    cluster = parse_cluster(TEXT, folder=tmp_path)
    (tmp_path / "bad.txt").write_text("203.0.113.9\n")
    enrichment = Enrichment(cluster, Log(quiet=True))
    assert enrichment.serves(replace(cluster, bridge=replace(cluster.bridge, flush=1.0)))
    assert not enrichment.serves(parse_cluster(TEXT.replace("10.20", "203.0"), folder=tmp_path))
    assert not enrichment.serves(parse_cluster(TEXT.replace("bad.txt", "worse.txt"), folder=tmp_path))
    partner = "  partner: {role: approved_external, prefixes: [192.0.2.0/24]}\nthreat_feeds"
    assert not enrichment.serves(parse_cluster(TEXT.replace("threat_feeds", partner), folder=tmp_path))
    enrichment.close()


def test_an_end_waits_for_no_file_that_does_not_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe put in place between the look at the file and its reading stands for a disk that does not answer."""
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    path = tmp_path / "bad.txt"
    path.write_text("203.0.113.9\n")
    enrichment = Enrichment(parse_cluster(TEXT, folder=tmp_path), Log(quiet=True))
    (file,) = enrichment.labels.files
    load, is_reading = file._load, threading.Event()

    def hang(path: Path) -> object:
        path.unlink()
        os.mkfifo(path)
        is_reading.set()
        return load(path)

    monkeypatch.setattr(file, "_load", hang)
    path.write_text("203.0.113.9\n203.0.113.10\n")
    enrichment.look()
    assert is_reading.wait(10)
    enrichment.look()
    begun = time.monotonic()
    enrichment.close()
    assert time.monotonic() - begun < 1
    (reader,) = [one for one in threading.enumerate() if one.name == "files"]
    assert reader.is_alive()
    assert reader.daemon
    with path.open("w") as pipe:
        pipe.write("203.0.113.9\n")
    reader.join(timeout=10)
    assert not reader.is_alive()
