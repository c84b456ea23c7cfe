"""The bridge on a real store: what it says of exporters and of itself after trouble."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_engine import cluster

from analysis.cli import _prepare
from app.errors import StoreError
from app.log import Log
from cluster.model import Cluster, Retention
from cluster.reload import Reload
from ingest.bridge import Bridge
from ingest.checkpoint import Checkpoint
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from ingest.flows.normalise import Clock
from ingest.read.records import SPOOL_COLUMNS
from ingest.read.source import Source, StreamSource
from ingest.read.spool import Spool
from ingest.writer import Writer
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.schema import Stage


def line(arrival: float, exporter: str = "127.0.0.1", size: int = 1000) -> bytes:
    moment = f"{arrival:.6f}"
    values = {
        "PEER_SRC_IP": exporter, "SRC_IP": "10.1.0.1", "DST_IP": "203.0.113.5", "PROTOCOL": "6", "SAMPLING_RATE": "1",
        "TIMESTAMP_START": moment, "TIMESTAMP_END": moment, "TIMESTAMP_ARRIVAL": moment, "PACKETS": "1", "FLOWS": "1",
        "BYTES": str(size),
    }  # fmt: skip
    return (",".join(values.get(name, "0") for name in SPOOL_COLUMNS) + "\n").encode()


HEADER = (",".join(SPOOL_COLUMNS) + "\n").encode()


def a_bridge(
    known: Cluster,
    source: Source,
    tmp_path: Path,
    stop: threading.Event,
    clock: Clock,
    *,
    reload: Reload | None = None,
    counters: Counters | None = None,
) -> Bridge:
    return Bridge(
        known,
        Store(known.store),
        source,
        clock=clock,
        state=tmp_path / "state",
        dead_letter=DeadLetters(tmp_path / "dead.jsonl"),
        stop=stop,
        log=Log(quiet=True),
        counters=counters or Counters(),
        reload=reload,
    )


@pytest.fixture
def known(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Cluster:
    base = cluster()
    return replace(
        base,
        store=replace(base.store, url=influxdb_v1.url, database=fresh_database),
        bridge=replace(base.bridge, window=1, flush=0.2, metrics_listen=None),
    )


def sent_bytes(known: Cluster, retention: str = schema.RAW) -> int:
    answer = Store(known.store).query(f'SELECT sum("bytes") FROM "{retention}"."{schema.TRAFFIC.name}"')
    return int(answer[0].values[0][1]) if answer else 0


def raw_hours(known: Cluster) -> str:
    with Store(known.store) as store:
        (policies,) = store.query(f'SHOW RETENTION POLICIES ON "{known.store.database}"')
    return next(str(row[1]) for row in policies.values if row[0] == schema.RAW)


def run_after(known: Cluster, tmp_path: Path, *moments: float) -> Counters:
    """Have a live bridge begin, read a file with a record of each moment, and end; return its counters."""
    (file := tmp_path / "spool" / f"flows-{time.monotonic_ns()}.csv").parent.mkdir(exist_ok=True)
    file.write_bytes(HEADER + b"".join(map(line, moments)))
    stop, counters = threading.Event(), Counters()
    with Spool(file.parent) as spool:
        a_bridge(known, spool, tmp_path, stop, Clock.LIVE, counters=counters).run(lambda _: stop.set())
    file.unlink()
    return counters


@pytest.fixture
def frozen_pid(influxdb_v1: LocalInfluxDB) -> Iterator[int]:
    assert influxdb_v1.pid
    yield influxdb_v1.pid
    os.kill(influxdb_v1.pid, signal.SIGCONT)


def test_while_the_store_is_away_no_exporter_falls_silent(
    known: Cluster, tmp_path: Path, frozen_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that what waits after the outage is many chunks.
    monkeypatch.setattr("ingest.bridge._CHUNK_BYTES", 400)
    folder = tmp_path / "spool"
    folder.mkdir()
    stop, quiet = threading.Event(), threading.Event()

    def export() -> None:
        with (folder / "flows-1.csv").open("ab", buffering=0) as file:
            file.write(HEADER)
            while not quiet.wait(0.1):
                file.write(line(time.time()))

    with Spool(folder) as spool:
        bridge = a_bridge(known, spool, tmp_path, stop, Clock.LIVE)
        threads = [threading.Thread(target=export), threading.Thread(target=bridge.run)]
        for thread in threads:
            thread.start()
        time.sleep(2)
        os.kill(frozen_pid, signal.SIGSTOP)
        time.sleep(6)
        os.kill(frozen_pid, signal.SIGCONT)
        # One that really sends nothing is as silent as it is.
        deadline = time.monotonic() + 30
        while not (ages := ages_of(known)) or ages["spine"] <= 8:
            assert time.monotonic() < deadline, ages
            time.sleep(0.5)
        stop.set()
        quiet.set()
        for thread in threads:
            thread.join(20)
    assert ages_of(known)["leaf"] < 3


def test_an_exporter_that_is_listed_while_it_runs_is_awaited_from_then_on(known: Cluster, tmp_path: Path) -> None:
    config, folder = tmp_path / "cluster.yaml", tmp_path / "spool"
    config.write_text("cluster: lab\ngroups: {a: {role: training, prefixes: [10.0.0.0/8]}}\n")
    folder.mkdir()
    Store(known.store).ensure(known.retentions())
    stop = threading.Event()
    few = replace(known, exporters=tuple(one for one in known.exporters if one.name != "spine"))
    reload = Reload(config, lambda _: known, Log(quiet=True))
    with Spool(folder) as spool:
        running = threading.Thread(target=a_bridge(few, spool, tmp_path, stop, Clock.LIVE, reload=reload).run)
        running.start()
        deadline = time.monotonic() + 60
        while ages_of(known).get("leaf", 0.0) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        reload.on_signal()
        while not (ages := ages_of(known)).get("spine", 0.0):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        stop.set()
        running.join()
    assert ages["spine"] < 6


def ages_of(cluster: Cluster) -> dict[str, float]:
    query = f'SELECT max("age") FROM "{schema.RAW}"."exporter" WHERE "exporter" =~ /^(leaf|spine)$/ GROUP BY "exporter"'
    return {series.tags["exporter"]: series.values[0][1] for series in Store(cluster.store).query(query)}


def test_a_second_run_tells_what_it_did_itself(known: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "flows-1.csv").write_bytes(HEADER + line(time.time() - 60) * 5 + b"rubbish\n")
    seen = []
    for _ in range(2):
        with Spool(folder, once=True) as spool:
            summary = a_bridge(known, spool, tmp_path, threading.Event(), Clock.BACKFILL).run()
        seen.append((summary.records, summary.dead_letters, summary.is_whole))
    assert seen == [(5, 1, True), (0, 0, True)]
    assert sent_bytes(known) == 5000


def test_what_comes_after_a_clock_that_was_ahead_is_seen_when_it_comes(known: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    path, now, stop = folder / "flows-1.csv", time.time(), threading.Event()
    path.write_bytes(HEADER + line(now + 18_000))

    def go_on(_: int) -> None:
        if path.stat().st_size > len(HEADER + line(now)):
            stop.set()
        with path.open("ab") as file:
            file.write(line(now, size=500))

    with Spool(folder) as spool:
        a_bridge(known, spool, tmp_path, stop, Clock.LIVE).run(go_on)
    found = Store(known.store).query(f'SELECT "bytes" FROM "{schema.RAW}"."{schema.TRAFFIC.name}"')
    assert [(at // 1000, size) for at, size in found[0].values] == [(int(now), 500), (int(now) + 18_000, 1000)]


def test_a_backfill_has_no_heartbeat(known: Cluster, tmp_path: Path) -> None:
    """It says how large it is, but must not pass for the bridge that follows the spool, which may be dead."""
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "flows-1.csv").write_bytes(HEADER + line(time.time() - 60))
    with Spool(folder, once=True) as spool:
        a_bridge(known, spool, tmp_path, threading.Event(), Clock.BACKFILL).run()
    query = f'SELECT last("value") FROM "{schema.RAW}"."pipeline" WHERE "stage" = \'bridge\' GROUP BY "reason"'
    reasons = {series.tags["reason"] for series in Store(known.store).query(query)}
    assert "state_rows" in reasons
    assert schema.HEARTBEAT not in reasons


def test_a_backfill_that_is_stopped_says_so_and_goes_on_later(known: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    for number in range(3):
        (folder / f"flows-{number}.csv").write_bytes(HEADER + line(time.time() - 60) * 5)
    stop = threading.Event()
    with Spool(folder, once=True) as spool:
        bridge = a_bridge(known, spool, tmp_path, stop, Clock.BACKFILL)
        summary = bridge.run(lambda _: stop.set())
    assert not summary.is_whole
    with Spool(folder, once=True) as spool:
        assert a_bridge(known, spool, tmp_path, threading.Event(), Clock.BACKFILL).run().is_whole
    assert sent_bytes(known) == 15_000


def test_what_came_through_a_pipe_is_stored_when_stopped(known: Cluster, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    stop = threading.Event()
    written = 0

    def export() -> None:
        nonlocal written
        while not stop.is_set():
            os.write(writer, line(time.time()))
            written += 1
        os.close(writer)

    def enough(_: int) -> None:
        if written > 100:
            stop.set()

    os.write(writer, HEADER)
    exporter = threading.Thread(target=export)
    with os.fdopen(reader, "rb") as stream:
        exporter.start()
        a_bridge(known, StreamSource(stream), tmp_path, stop, Clock.LIVE).run(enough)
        left = stream.read()
        exporter.join()
    assert written > 100
    # Nothing was taken out of the pipe and dropped: the exporter wrote on while the last chunk was worked at.
    assert sent_bytes(known) == (written - left.count(b"\n")) * 1000


def test_what_waited_for_longer_than_raw_points_are_kept_is_stored_and_rolled_up(
    known: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, waited = Store(known.store), time.time() - 10.5 * 86_400

    def hours_kept_after(moment: float) -> str:
        assert not run_after(known, tmp_path, moment, moment + 1).total(Stage.WRITE, "points_refused")
        return raw_hours(known)

    assert hours_kept_after(waited) == "288h0m0s"
    # Neither an analysis nor another bridge that starts meanwhile sets it back, as somebody may by hand.
    _prepare(store, known, Log(quiet=True))
    another = Writer(
        store, known.retentions(), shard="1", counters=Counters(), stop=threading.Event(), log=Log(quiet=True)
    )
    another.prepare()
    assert raw_hours(known) == "288h0m0s"
    store.ensure(known.retentions())
    assert hours_kept_after(waited + 3) == "288h0m0s"
    assert sent_bytes(known) == sent_bytes(known, schema.MINUTE) == sent_bytes(known, schema.HOUR) == 4_000
    monkeypatch.setattr("ingest.writer._CATCHES_UP_SECONDS", -1)
    assert hours_kept_after(time.time()) == "168h0m0s"
    store.close()


def test_a_bridge_that_may_not_lengthen_the_retention_counts_what_is_refused_and_goes_on(
    known: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure = Store.ensure

    def refusing(store: Store, retentions: tuple[Retention, ...], tell: Callable[[str], None]) -> None:
        if retentions[0].keep != known.store.keep_raw:
            raise StoreError("user writer may not run: ALTER")
        ensure(store, retentions, tell)

    monkeypatch.setattr(Store, "ensure", refusing)
    for moment in (time.time() - 10 * 86_400, time.time()):
        counters = run_after(known, tmp_path, moment)
        assert counters.total(Stage.WRITE, schema.POINTS_TOO_OLD) > 0
        # That is as configured, and alerts nobody.
        assert (("write", schema.POINTS_REFUSED), 0) in counters.totals()
    assert sent_bytes(known) == 1_000


def test_a_bridge_that_dies_after_each_start_finds_no_more_at_the_next(known: Cluster, tmp_path: Path) -> None:
    (folder := tmp_path / "spool").mkdir()
    found = []
    for life in range(4):
        (folder / f"flows-{life}.csv").write_bytes(HEADER + line(time.time() - 6 * 3600 + life * 3600))
        with Spool(folder) as spool:
            bridge = a_bridge(known, spool, tmp_path, threading.Event(), Clock.LIVE)
            bridge._restore()
            found.append(bridge._engine.state_rows)
            assert bridge._step(lambda _: None)
            # Its checkpoint is saved before windows are let go. Now it dies.
            bridge._flush()
            bridge._finish_writing()
            bridge._checkpoint.close()
    assert found[1] == found[2] == found[3] > 0
    assert sent_bytes(known) == 4_000


def test_a_checkpoint_from_a_backup_takes_nothing_from_a_store_that_went_on(known: Cluster, tmp_path: Path) -> None:
    known = replace(known, bridge=replace(known.bridge, window=10, grace=10))
    moment = time.time() // 10 * 10 - 60
    run_after(known, tmp_path, moment)
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    checkpoint = Checkpoint(tmp_path / "backup")
    frames, notes = checkpoint.load() or ({}, {})
    checkpoint.save({**frames}, notes | {"saved": notes["saved"] - 60})
    checkpoint.close()
    run_after(known, tmp_path, moment + 1, moment + 2)
    assert sent_bytes(known) == 3_000
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "backup").rename(tmp_path / "state")
    run_after(known, tmp_path, time.time())
    assert sent_bytes(known) == sent_bytes(known, schema.MINUTE) == 4_000
