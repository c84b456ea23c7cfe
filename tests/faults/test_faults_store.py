"""The store stops, is slow, refuses, resets connections or takes a part only: nothing is lost, or it is counted."""

import time
from pathlib import Path

import pytest
from staged import Staged, record_files, stage
from trouble import (
    PASS,
    Answer,
    Bridge,
    Proxy,
    account,
    await_account,
    await_that,
    feed,
    fill_up,
    filled,
    small_disk,
)

from bench.faults import Record
from cluster.model import StoreSettings
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

QUICK = {"flush": "0.2s"}


def test_a_store_that_stops_for_a_while_gets_everything(tmp_path: Path, record: Record, *, is_long: bool) -> None:
    server = LocalInfluxDB(tmp_path / "influxdb")
    server.start()
    outages = [60.0, 120.0, 30.0] if is_long else [1.5, 3.0]
    try:
        staged = stage(tmp_path, server.url, "away", bridge=QUICK)
        truth, files = filled(staged, tmp_path / "files")
        with Bridge(staged) as bridge:
            for count in feed(staged, files, 0.3):
                if count < len(files) and outages and (is_long or count % 2):
                    server.stop()
                    time.sleep(outages.pop())
                    server.start()
            assert not outages
            result = await_account(staged, truth)
            assert bridge.metrics()["write", "retries"] > 0
            assert "event=store_recovered" in bridge.said()
            assert bridge.stop() == 0
    finally:
        server.stop()
    record("store-stopped", result, trials=2 + is_long)


@pytest.mark.long_form
def test_a_slow_store_gets_everything_and_holds_up_nobody(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record, *, is_long: bool
) -> None:
    with Proxy(influxdb_v1.url) as proxy:
        staged = stage(tmp_path, proxy.url, fresh_database, bridge=QUICK)
        truth, files = filled(staged, tmp_path / "files")
        with Bridge(staged) as bridge:
            proxy.plan = lambda _path, _number: Answer(delay=0.25)
            for _ in feed(staged, files):
                pass
            if is_long:
                time.sleep(1)
                # In the middle of it: asked to stop, it gives a slow store some seconds, then goes.
                proxy.plan = lambda _path, _number: Answer(delay=5)
                begun = time.monotonic()
                assert bridge.stop(within=20) == 0
                assert time.monotonic() - begun < 13
                proxy.plan = lambda _path, _number: PASS
                bridge.await_start()
            result = await_account(staged, truth)
            assert bridge.stop() == 0
    record("store-slow", result)


REFUSALS = [
    Answer(500, body=b'{"error":"timeout"}'),
    Answer(503, {"Retry-After": "1"}, b"overloaded"),
    Answer(429, {"Retry-After": "2"}, b"too many"),
    Answer(502, body=b"<html>bad gateway</html>"),
    # A proxy with a page of its own, and no word of trouble.
    Answer(200, {"Content-Type": "text/html"}, b"<html>please log in</html>"),
]


def test_refusals_are_waited_out_and_retry_after_is_honoured(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    refused: list[tuple[float, float]] = []

    def plan(path: str, number: int) -> Answer:
        if path != "/write" or number < 3 or number % 4 or len(refused) == len(REFUSALS):
            return PASS
        answer = REFUSALS[len(refused)]
        refused.append((time.monotonic(), float(answer.headers.get("Retry-After", 0))))
        return answer

    with Proxy(influxdb_v1.url, plan) as proxy:
        staged = stage(tmp_path, proxy.url, fresh_database, bridge=QUICK)
        truth, files = filled(staged, tmp_path / "files")
        with Bridge(staged) as bridge:
            for _ in feed(staged, files):
                pass
            result = await_account(staged, truth)
            await_that(lambda: len(refused) == len(REFUSALS), "each refusal came once")
            times = sorted(proxy.seen["/write"])
            for moment, pause in refused:
                following = [later for later in times if later > moment]
                assert not following or following[0] - moment >= pause
            assert bridge.stop() == 0
    record("store-refuses", result, trials=len(refused))


def test_a_page_instead_of_an_answer_is_told_and_waited_out(
    influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path
) -> None:
    with Proxy(
        influxdb_v1.url, lambda path, number: REFUSALS[-1] if path == "/query" and number < 3 else PASS
    ) as proxy:
        staged = stage(tmp_path, proxy.url, fresh_database)
        with Bridge(staged) as bridge:
            assert "answers what InfluxDB does not say: <html>please log in</html>" in bridge.said()
            assert bridge.stop() == 0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what asks for a `server` on InfluxDB 1.8, which the other tests do not; in the long form on 1.6 too."""
    if "server" in metafunc.fixturenames:
        is_long = metafunc.config.getoption("--long", default=False)
        metafunc.parametrize("server", ["v1", "v2"] if is_long else ["v2"], indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> LocalInfluxDB:
    found: LocalInfluxDB = request.getfixturevalue(f"influxdb_{request.param}")
    return found


def test_connections_that_are_reset_cost_nothing(
    server: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_TOKEN", "user:password")
    speaks_v2 = not Store(StoreSettings(url=server.url)).version().startswith("1.6")
    store = {"api": "v2", "token": {"env": "TEST_TOKEN"}} if speaks_v2 else {}
    troubles = [Answer(reset="body"), Answer(reset="answer"), Answer(cut=True)]
    done: list[int] = []

    def plan(path: str, number: int) -> Answer:
        if number % 2 or path == "/ping":
            return PASS
        done.append(number)
        return troubles[len(done) % 3]

    with Proxy(server.url) as proxy:
        staged = stage(tmp_path, proxy.url, fresh_database, bridge=QUICK, store=store)
        truth, files = filled(staged, tmp_path / "files")
        with Bridge(staged) as bridge:
            proxy.plan = plan
            for _ in feed(staged, files):
                pass
            await_that(lambda: bridge.metrics().get(("write", "retries"), 0) >= 3, "each trouble came")
            proxy.plan = lambda _path, _number: PASS
            result = await_account(staged, truth)
            assert bridge.stop() == 0
    record("store-resets", result, trials=len(done))


def test_a_field_of_another_type_costs_its_own_points_only(
    server: LocalInfluxDB, fresh_database: str, tmp_path: Path, record: Record
) -> None:
    staged = stage(tmp_path, server.url, fresh_database, bridge=QUICK)
    store = Store(staged.cluster.store)
    store.ensure(staged.cluster.retentions())
    # What some other tool wrote into a measurement of ours, in the week at hand.
    store.write(f"{schema.RAIL_TRAFFIC.name},node=x tx_bytes=1.5 {int(time.time())}".encode(), schema.RAIL_TRAFFIC.kept)
    truth, files = filled(staged, tmp_path / "files")
    with Bridge(staged) as bridge:
        for _ in feed(staged, files):
            pass
        truth["rails"] = []
        result = await_account(staged, truth, 20)
        assert bridge.metrics()["write", "points_refused"] > 0
        assert bridge.said().count("event=points_refused") == 1
        assert "field type conflict" in bridge.said()
        assert bridge.stop() == 0
    record("store-field-conflict", result, counted="points refused: `pipeline` write/points_refused, and a line")


@pytest.mark.long_form
def test_a_series_limit_costs_new_series_until_it_is_raised(tmp_path: Path, record: Record) -> None:
    data: dict[str, str | int] = {"index-version": "inmem"}
    server = LocalInfluxDB(tmp_path / "influxdb", data=data | {"max-series-per-database": 300})
    server.start()
    try:
        staged = stage(tmp_path, server.url, "limited", bridge=QUICK)
        truth, files = filled(staged, tmp_path / "files")
        with Bridge(staged, "--keep-files") as bridge:
            for _ in feed(staged, files):
                pass
            await_that(lambda: bridge.metrics().get(("write", "points_refused"), 0) > 0, "points are refused")
            await_that(lambda: bridge.metrics()["read", "bytes"] >= sum(f.stat().st_size for f in here(staged)), "read")
            assert "max-series-per-database limit exceeded" in bridge.said()
            assert bridge.stop() == 0
            short = account(staged, truth)
            assert short.differences
            assert short.stored_bytes > 0
            server.stop()
            server = LocalInfluxDB(tmp_path / "influxdb", server.port, data=data)
            server.start()
            # What is in the grace is written again at every start.
            bridge.await_start()
            result = await_account(staged, truth)
            assert bridge.stop() == 0
    finally:
        server.stop()
    counted = "0 once the limit is raised and the bridge restarted within its grace; until then `points_refused`"
    record("store-series-limit", result, counted=counted)


def here(staged: Staged) -> list[Path]:
    return record_files(staged.spool)


@pytest.mark.long_form
def test_a_full_disk_under_influxdb_is_waited_for(tmp_path: Path, record: Record) -> None:
    with small_disk(tmp_path / "influxdb", 24_000) as disk:
        server = LocalInfluxDB(disk)
        server.start()
        try:
            staged = stage(tmp_path, server.url, "full", bridge=QUICK)
            truth, files = filled(staged, tmp_path / "files")
            with Bridge(staged) as bridge:
                for count in feed(staged, files):
                    if count == 4:
                        # Not before it has a shard: what fails is then its log of writes.
                        await_that(lambda: bridge.metrics().get(("write", "points"), 0) > 200, "it takes points")
                        ballast = fill_up(disk)
                        await_that(lambda: "no space left on device" in bridge.said(), "InfluxDB refuses")
                        time.sleep(1)
                assert "then restart it" in bridge.said()
                ballast.unlink()
                # What it acknowledged must be there after it started anew.
                server.stop()
                server.start()
                result = await_account(staged, truth)
                assert bridge.stop() == 0
        finally:
            server.stop()
    record("store-disk-full", result)
