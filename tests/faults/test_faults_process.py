"""The bridge is killed, stopped, started twice, given another clock and another cluster.yaml."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from staged import REPOSITORY, Staged, record_files, stage, start
from trouble import (
    PASS,
    Answer,
    Bridge,
    Proxy,
    account,
    await_account,
    await_read,
    await_that,
    feed,
    filled,
    records_in,
)

from archive.query import Filter, archive_folder, ask
from bench.faults import Record
from store import schema
from store.influx import Store
from store.influxql import Select, total
from store.local_influxdb import LocalInfluxDB

QUICK = {"flush": "0.2s"}


# -- killed and stopped -----------------------------------------------------------------------------


def test_killed_at_random_moments_nothing_is_lost_or_doubled(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record, *, is_long: bool
) -> None:
    kills = 50 if is_long else 10
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth, files = filled(staged, tmp_path / "files")
    lines = b"".join(file.read_bytes() for file in files).splitlines(keepends=True)
    growing = staged.spool / "nfacct-20260101-0000.csv"
    rng = random.Random(7)
    position = 0
    begun = 0
    with Bridge(staged, "--keep-files") as bridge:
        for kill in range(1, kills + 1):
            until = len(lines) * kill // (kills + 1)
            with growing.open("ab") as file:
                file.writelines(lines[position:until])
            position = until
            if kill % 2:
                # Some flushes after it began to read; else at any moment of its start.
                await_that(lambda known=begun: bridge.said().count("event=start ") > known, "it reads")
            begun = bridge.said().count("event=start ")
            time.sleep(rng.uniform(0, 1.2))
            bridge.kill()
            bridge.start()
        with growing.open("ab") as file:
            file.writelines(lines[position:])
        result = await_account(staged, truth)
        assert bridge.stop() == 0
    record("bridge-killed", result, trials=kills)
    # The archive, too, has every record once, and those that count make the same sum as the points.
    archived = ask(archive_folder(staged.cluster), Filter(0, int(time.time()) + 86_400), ["exporter"])
    points = Select(schema.TRAFFIC, schema.RAW).take(total(schema.BYTES), total(schema.FLOWS)).between(0, 2**33)
    (row,) = Store(staged.cluster.store).rows(points)
    assert (archived.bytes, archived.flows) == (int(row[1] or 0), int(row[2] or 0))
    assert archived.bytes == archived.all_bytes > 0
    assert not archived.gaps


STOPS = [
    (PASS, signal.SIGTERM),
    (Answer(status=503), signal.SIGTERM),
    (Answer(status=503), signal.SIGINT),
    (Answer(delay=30), signal.SIGTERM),
]
"""What the store does, and how the bridge is told to stop."""


def test_asked_to_stop_it_ends_within_seconds(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    with Proxy(influxdb_v1.url) as proxy:
        staged = stage(tmp_path, proxy.url, fresh_database, bridge=QUICK)
        truth, files = filled(staged, tmp_path / "files")
        with Bridge(staged, "--keep-files") as bridge:
            for file, (answer, number) in zip(files, STOPS, strict=True):
                proxy.plan = lambda _path, _number, answer=answer: answer
                asked = sum(map(len, proxy.seen.values()))
                file.rename(staged.spool / file.name)
                await_that(lambda known=asked: sum(map(len, proxy.seen.values())) > known, "it writes")
                time.sleep(0.3)
                begun = time.monotonic()
                assert bridge.stop(number, within=20) == 0
                assert time.monotonic() - begun < 15
                proxy.plan = lambda _path, _number: PASS
                bridge.await_start()
            result = await_account(staged, truth)
            assert bridge.stop() == 0
        # What was counted since the last report of a window is not left to the next start.
        name = f'"{schema.RAW}"."{schema.PIPELINE.name}"'
        (series,) = Store(staged.cluster.store).query(f"SELECT last(total) FROM {name} WHERE reason = 'records'")
        assert series.values[0][1] == records_in(record_files(staged.spool))
    record("bridge-stopped", result, trials=len(STOPS))


@pytest.mark.long_form
def test_asked_to_stop_while_it_restores_it_ends_and_starts_again(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    with Proxy(influxdb_v1.url) as proxy:
        staged = stage(tmp_path, proxy.url, fresh_database, bridge=QUICK)
        truth, files = filled(staged, tmp_path / "files")
        with Bridge(staged, "--keep-files") as bridge:
            for _ in feed(staged, files):
                pass
            time.sleep(0.5)
            bridge.kill()
            proxy.plan = lambda path, _number: Answer(delay=1.5) if path == "/write" else PASS
            writes = len(proxy.seen.get("/write", []))
            bridge.start()
            await_that(lambda: len(proxy.seen["/write"]) > writes, "it writes its checkpoint's points")
            assert "state=restored" not in bridge.said()
            assert bridge.stop(within=20) == 0
            proxy.plan = lambda _path, _number: PASS
            bridge.await_start()
            result = await_account(staged, truth)
            assert bridge.stop() == 0
    record("bridge-stopped-restoring", result)


@pytest.mark.long_form
def test_what_came_through_a_pipe_outlives_a_stop_without_a_store(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record, request: pytest.FixtureRequest
) -> None:
    with Proxy(influxdb_v1.url) as proxy:
        staged = stage(tmp_path, proxy.url, fresh_database, bridge={"flush": "4s"})
        truth = staged.fill(tmp_path / "files")
        truth["interfaces"] = []
        text = [file.read_bytes() for file in record_files(tmp_path / "files")]

        def piped() -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "clusterflow", "ingest", "--config", str(staged.config), "--spool", "-"]
            with staged.config.with_name("ingest.log").open("ab") as log:
                process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=log, stderr=log)
            request.addfinalizer(process.kill)
            return process

        bridge, process = Bridge(staged), piped()
        assert process.stdin is not None
        await_that(lambda: "event=start" in bridge.said(), "it starts")
        proxy.plan = lambda _path, _number: Answer(status=503)
        process.stdin.write(text[0])
        process.stdin.flush()
        await_that(lambda: "event=store_unavailable" in bridge.said(), "the first flush waits for the store")
        # Read before the next flush, which would wait: while it does, the pipe is not read.
        for part in text[1:]:
            process.stdin.write(part)
        process.stdin.flush()
        size = sum(map(len, text))
        await_that(lambda: bridge.metrics()["read", "bytes"] >= size, "all is read")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        proxy.plan = lambda _path, _number: PASS
        process = piped()
        assert process.stdin is not None
        # Interfaces need the counters that only a spool has.
        deadline = time.monotonic() + 30
        while (result := without(account(staged, truth), "interfaces ")).differences and time.monotonic() < deadline:
            time.sleep(0.3)
        process.stdin.close()
        assert process.wait(20) == 0
    record("stdin-stopped", result)


def without(result: Any, prefix: str) -> Any:
    kept = tuple(gap for gap in result.differences if not gap.what.startswith(prefix))
    return type(result)(result.checked, result.sent_bytes, result.stored_bytes, kept)


# -- started twice, or elsewhere --------------------------------------------------------------------


def test_a_second_bridge_refuses(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth, files = filled(staged, tmp_path / "files")
    other = tmp_path / "other"
    other.mkdir()
    with Bridge(staged) as bridge:
        seconds = [
            start("ingest", staged, "--state", str(tmp_path / "its-own")),
            start("ingest", staged, "--spool", str(other)),
        ]
        for _ in feed(staged, files):
            pass
        assert [process.wait(30) for process in seconds] == [2, 2]
        assert "another bridge reads it (stop that one, or give each bridge its own spool)" in bridge.said()
        assert "another bridge uses this state (stop it, or set bridge.state)" in bridge.said()
        result = await_account(staged, truth)
        assert bridge.stop() == 0
    record("second-bridge", result, trials=2)


@pytest.mark.long_form
def test_another_spool_with_the_old_state_is_told(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth, files = filled(staged, tmp_path / "files")
    other = tmp_path / "other"
    other.mkdir()
    with Bridge(staged, "--keep-files") as bridge:
        for _ in feed(staged, files[:3]):
            pass
        await_read(bridge, [staged.spool / file.name for file in files[:3]])
        assert bridge.stop() == 0
    for file in files[3:]:
        shutil.move(file, other / file.name)
    with Bridge(staged, "--spool", str(other)) as bridge:
        result = await_account(staged, truth)
        assert f"event=other_source before={staged.spool} now={other}" in bridge.said()
        assert bridge.stop() == 0
    record("other-spool", result)


# -- the clock --------------------------------------------------------------------------------------


@pytest.mark.long_form
def test_a_clock_that_is_set_confuses_nothing(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.skip("no libfaketime: apt-get install faketime")
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth, files = filled(staged, tmp_path / "files")
    clock = tmp_path / "clock"
    clock.write_text("+0")
    faked = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
        "NO_FAKE_STAT": "1",
    }
    with Bridge(staged, **faked) as bridge:
        for count in feed(staged, files):
            if step := {1: "+3600s", 3: "-3600s"}.get(count):
                told = bridge.said().count("event=clock_stepped")
                clock.write_text(step)
                await_that(lambda known=told: bridge.said().count("event=clock_stepped") > known, "the step is told")
        result = await_account(staged, truth)
        time.sleep(0.5)
        used = cpu_seconds(bridge)
        time.sleep(1)
        assert cpu_seconds(bridge) - used < 0.5, "it waits for nothing in a loop"
        assert bridge.health() == (200, "ok")
        ages = Store(staged.cluster.store).query(
            f'SELECT max("{schema.AGE.name}") FROM "{schema.RAW}"."{schema.EXPORTER_STATUS.name}"'
        )
        assert not ages or ages[0].values[0][1] < 600
        assert bridge.stop() == 0
    record("clock-set", result, trials=2)


def cpu_seconds(bridge: Bridge) -> float:
    assert bridge.process is not None
    fields = Path(f"/proc/{bridge.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- another cluster.yaml ---------------------------------------------------------------------------


def totals(staged: Staged) -> dict[str, int]:
    """Return what each node sent, and under the empty name the bytes between all groups."""
    store = Store(staged.cluster.store)
    tx, size = schema.TX_BYTES.name, schema.BYTES.name
    nodes = store.query(f'SELECT sum("{tx}") FROM "{schema.RAW}"."{schema.NODE_TRAFFIC.name}" GROUP BY "{schema.NODE}"')
    found = {series.tags[schema.NODE]: int(series.values[0][1]) for series in nodes}
    groups = store.query(f'SELECT sum("{size}") FROM "{schema.RAW}"."{schema.TRAFFIC.name}"')
    return found | {"": int(groups[0].values[0][1])}


def test_another_cluster_yaml_is_taken_up_and_history_stays(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth, files = filled(staged, tmp_path / "files")
    half = len(files) // 2
    document = yaml.safe_load(staged.config.read_text())
    moved = next(group for group in document["groups"].values() if group.get("role") == "training")
    assert moved["prefixes"]
    with Bridge(staged, "--keep-files") as bridge:
        for _ in feed(staged, files[:half]):
            pass
        await_read(bridge, [staged.spool / file.name for file in files[:half]])
        time.sleep(1)
        before = totals(staged)
        # An address of the outside becomes a group of its own; windows that are open have both.
        document["groups"]["partner"] = {
            "title": "Partner", "role": "approved_external", "prefixes": ["203.0.113.0/24"],
        }  # fmt: skip
        staged.config.write_text(yaml.safe_dump(document))
        bridge.send(signal.SIGHUP)
        await_that(lambda: "groups.partner: added" in bridge.said(), "the change is told")
        assert bridge.metrics()["bridge", "reloads"] == 1
        for _ in feed(staged, files[half:]):
            pass
        wanted = sum(pair["bytes"] for pair in truth["group_pairs"])
        await_that(lambda: totals(staged)[""] == wanted, "every byte is counted")
        bridge.kill()
        bridge.await_start()
        time.sleep(1.5)
        after = totals(staged)
        assert bridge.stop() == 0
    assert {name: size for name, size in before.items() if after.get(name, 0) < size} == {}
    pairs = Store(staged.cluster.store).query(
        f'SELECT sum("bytes") FROM "{schema.RAW}"."{schema.TRAFFIC.name}" GROUP BY "{schema.DST_GROUP}"'
    )
    assert "partner" in {series.tags[schema.DST_GROUP] for series in pairs}
    # Apart from what has another group since, the account is that of any other run.
    result = merged_groups(account(staged, truth), "partner", "external")
    record("reload", result)


def merged_groups(result: Any, new: str, old: str) -> Any:
    """Return an account in which what went to and from a new group counts for the old one."""
    sums: dict[tuple[str, str], list[int]] = {}
    for gap in result.differences:
        name = " ".join(old if word == new else word for word in gap.what.split(" "))
        entry = sums.setdefault((name, gap.unit), [0, 0])
        entry[0] += gap.sent
        entry[1] += gap.stored
    kept = tuple(
        type(result.differences[0])(what, unit, sent, stored)
        for (what, unit), (sent, stored) in sums.items()
        if sent != stored
    )
    return type(result)(result.checked, result.sent_bytes, result.stored_bytes, kept)


def test_a_broken_or_impossible_cluster_yaml_changes_nothing(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, influxdb_v1.url, fresh_database, bridge=QUICK)
    truth, files = filled(staged, tmp_path / "files")
    good = staged.config.read_text()
    with Bridge(staged) as bridge:
        for count in feed(staged, files, 0.2):
            if count == 2:
                staged.config.write_text(good + "\nnonsense: 1\n")
                bridge.send(signal.SIGHUP)
                await_that(lambda: bridge.said().count("event=configuration_refused") == 1, "it is refused")
            if count == 4:
                document = yaml.safe_load(good)
                document["bridge"] |= {"window": "20s", "shard": "7"}
                document["store"] |= {"database": "elsewhere"}
                staged.config.write_text(yaml.safe_dump(document))
                bridge.send(signal.SIGHUP)
                await_that(lambda: bridge.said().count("event=configuration_refused") == 2, "it is refused")
        staged.config.unlink()
        bridge.send(signal.SIGHUP)
        await_that(lambda: bridge.said().count("event=configuration_refused") == 3, "it is refused")
        staged.config.write_text(good)
        bridge.send(signal.SIGHUP)
        await_that(lambda: 'event=configuration what="nothing changed"' in bridge.said(), "it is as before")
        assert "nonsense" in bridge.said()
        assert (
            'bridge.window, bridge.shard, store cannot change while it runs" in_force="the one before"' in bridge.said()
        )
        result = await_account(staged, truth)
        assert bridge.stop() == 0
    record("reload-broken", result, trials=3)
