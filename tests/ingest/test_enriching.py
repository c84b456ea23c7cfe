"""The files of a process: what a reload keeps of them, and what neither it, nor a start, nor an end waits for."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hanging_disk import hanging
from test_bridge import HEADER, a_bridge, known, line, sent_bytes  # noqa: F401 - a fixture

import ingest.flows.enriching as module
from app.log import Log
from cluster.load import parse_cluster
from cluster.model import Cluster
from cluster.reload import Reload
from ingest.counters import Counters
from ingest.flows.enriching import Enrichment
from ingest.flows.normalise import Clock
from ingest.read.spool import Spool
from store import schema
from store.influx import Store

TEXT = """
cluster: demo
groups:
  training: {role: training, prefixes: [10.20.0.0/16]}
threat_feeds: {bad: bad.txt}
"""
MORE = TEXT.replace("bad.txt", "bad.txt, worse: worse.txt")


def feeds(enrichment: Enrichment, address: str) -> str:
    (row,) = enrichment.labels.of([address])
    return dict(zip(schema.LABELS, row, strict=True))[schema.FEED]


def await_ready(enrichment: Enrichment) -> None:
    deadline = time.monotonic() + 30
    while not enrichment.is_ready:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        enrichment.look()


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


def test_lists_that_a_reload_changes_are_read_beside_and_what_is_good_stays(tmp_path: Path) -> None:
    """One list is broken by now, and the one that is added is on a disk that does not answer."""
    bad, worse = tmp_path / "bad.txt", tmp_path / "worse.txt"
    bad.write_text("203.0.113.9\n")
    worse.write_text("203.0.113.10\n")
    before = Enrichment(parse_cluster(TEXT, folder=tmp_path), Log(quiet=True))
    bad.write_text("no address\n")
    with hanging(worse):
        begun = time.monotonic()
        fresh = Enrichment(parse_cluster(MORE, folder=tmp_path), Log(quiet=True), before=before)
        fresh.look()
        assert time.monotonic() - begun < 5
        assert not fresh.is_ready
        assert feeds(fresh, "203.0.113.9") == "bad"
    await_ready(fresh)
    assert (feeds(fresh, "203.0.113.9"), feeds(fresh, "203.0.113.10")) == ("bad", "worse")
    broken, good = (file.reading() for file in fresh.labels.files)
    assert (broken.in_use, broken.broken, good.broken) == (True, True, False)


def test_neither_a_start_nor_an_end_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.2)
    path = tmp_path / "bad.txt"
    path.write_text("203.0.113.9\n")
    with hanging(path):
        begun = time.monotonic()
        enrichment = Enrichment(parse_cluster(TEXT, folder=tmp_path), Log(quiet=True))
        enrichment.close()
        assert time.monotonic() - begun < 5
        assert not enrichment.is_ready
        (reader,) = [one for one in threading.enumerate() if one.name == "files"]
        assert reader.daemon
    await_ready(enrichment)
    assert feeds(enrichment, "203.0.113.9") == "bad"
    reader.join(timeout=10)
    assert not reader.is_alive()


def test_flows_go_on_while_a_reload_waits_for_its_lists(
    known: Cluster,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    config, spool_folder, worse = tmp_path / "cluster.yaml", tmp_path / "spool", tmp_path / "worse.txt"
    spool_folder.mkdir()
    (tmp_path / "bad.txt").write_text("203.0.113.9\n")
    worse.write_text("203.0.113.5\n")
    config.write_text(MORE)
    reload = Reload(
        config,
        lambda fresh: replace(known, threat_feeds=fresh.threat_feeds),
        Log(quiet=True),
    )
    Store(known.store).ensure(known.retentions())
    stop = threading.Event()

    def send(number: int) -> None:
        (spool_folder / f"part-{number}").write_bytes(HEADER + line(time.time()))
        (spool_folder / f"part-{number}").rename(spool_folder / f"flows-{number}.csv")

    def await_bytes(wanted: int, feed: str) -> None:
        query = f'SELECT sum("bytes") FROM "{schema.RAW}"."egress" WHERE "{schema.FEED}" = \'{feed}\''
        deadline = time.monotonic() + 30
        while True:
            answer = Store(known.store).query(query)
            if answer and answer[0].values[0][1] == wanted:
                return
            assert time.monotonic() < deadline
            time.sleep(0.1)

    with Spool(spool_folder) as spool:
        counters = Counters()
        running = threading.Thread(
            target=a_bridge(known, spool, tmp_path, stop, Clock.LIVE, reload=reload, counters=counters).run
        )
        running.start()
        try:
            with hanging(worse):
                reload.on_signal()
                time.sleep(1)
                send(0)
                await_bytes(1000, "")
            deadline = time.monotonic() + 30
            while counters.total(schema.Stage.BRIDGE, "reloads") < 1:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            send(1)
            await_bytes(1000, "worse")
        finally:
            stop.set()
            running.join()
    assert sent_bytes(known) == 2000
