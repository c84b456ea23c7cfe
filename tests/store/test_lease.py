"""The lease on a real InfluxDB, with real processes: one leads, whatever dies, sleeps or is cut off."""

import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from lease_holder import SHORTER
from trouble import PASS, Answer, Proxy

from app.errors import UserError
from app.log import Log
from cluster.model import Retention, StoreApi, StoreSettings
from store import lease, schema
from store.influx import Store, StoreUnavailableError
from store.lease import BEAT_SECONDS, DEAD_SECONDS, LEADS_SECONDS, Lease, Standing, refuse_once, stored_leases
from store.local_influxdb import LocalInfluxDB

pytestmark = pytest.mark.service

REPOSITORY = Path(__file__).resolve().parents[2]
TAKEN_OVER = (DEAD_SECONDS + 3 * BEAT_SECONDS) / SHORTER
"""Seconds from a death to the next leader, with something for a slow machine."""


class Holder:
    """A process of lease_holder.py."""

    def __init__(self, settings: StoreSettings, name: str, url: str = "") -> None:
        command = [sys.executable, str(REPOSITORY / "tests/store/lease_holder.py")]
        command += [url or settings.url, settings.database, settings.api, name]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(REPOSITORY)}, cwd=REPOSITORY
        )
        self.told: list[tuple[str, float]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, clock = line.split()
            self.told.append((word, float(clock)))

    @property
    def leads(self) -> bool:
        return bool(self.told) and self.told[-1][0] == "on"

    def times(self) -> list[tuple[float, float]]:
        """From when to when it led."""
        clocks = [clock for _, clock in self.told]
        return list(itertools.zip_longest(clocks[::2], clocks[1::2], fillvalue=clock_now()))

    def kill(self) -> float:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.leads:
            self.told.append(("off", clock_now()))
        return clock_now()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self._reader.join()


def clock_now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wait_for(holders: list[Holder], seconds: float) -> Holder:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        found = [one for one in holders if one.leads]
        if found:
            return found[0]
        time.sleep(0.01)
    raise AssertionError(f"nobody leads after {seconds} s")


def assert_one_at_a_time(holders: list[Holder]) -> None:
    times = sorted(times for one in holders for times in one.times())
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(times)), times


@pytest.fixture(params=[("influxdb_v1", StoreApi.V1)])
def settings(request: pytest.FixtureRequest, fresh_database: str) -> StoreSettings:
    fixture, api = request.param
    server: LocalInfluxDB = request.getfixturevalue(fixture)
    made = StoreSettings(url=server.url, database=fresh_database, api=api, lease=True)
    with closing(Store(made)) as store:
        store.ensure((Retention(schema.RAW, 10, 7 * 86_400),))
    return made


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    """Those that a test starts; ended with it."""
    started: list[Holder] = []
    yield started
    for one in started:
        one.process.kill()
        one.process.wait()


@pytest.mark.parametrize(
    "settings", [("influxdb_v1", StoreApi.V1), ("influxdb_v2", StoreApi.V2)], ids=["v1", "v2"], indirect=True
)
def test_who_ends_gives_up_at_once_and_who_is_killed_is_followed(
    settings: StoreSettings, holders: list[Holder]
) -> None:
    first = Holder(settings, "first")
    holders.append(first)
    wait_for(holders, 20)
    second = Holder(settings, "second")
    holders.append(second)
    time.sleep(2 * DEAD_SECONDS / SHORTER)
    assert (first.leads, second.leads) == (True, False)
    with closing(Store(settings)) as store:
        found = {name.rpartition("/")[2]: row for (_, name), row in stored_leases(store).items()}
    assert (found["first"].standing, found["second"].standing) == (Standing.LEADS, Standing.WAITS)
    first.stop()
    assert wait_for([second], 4 * BEAT_SECONDS / SHORTER) is second
    third = Holder(settings, "third")
    holders.append(third)
    time.sleep(2)
    died = second.kill()
    wait_for([third], TAKEN_OVER)
    assert LEADS_SECONDS / SHORTER < third.times()[0][0] - died < TAKEN_OVER
    # Started again it does not wait for itself.
    again = Holder(settings, "second")
    holders.append(again)
    time.sleep(2)
    third.stop()
    wait_for([again], 4 * BEAT_SECONDS / SHORTER)
    assert_one_at_a_time(holders)


def test_of_many_that_start_at_once_one_leads_again_and_again(settings: StoreSettings, holders: list[Holder]) -> None:
    holders += [Holder(settings, f"holder-{number}") for number in range(5)]
    left = list(holders)
    while len(left) > 1:
        leader = wait_for(left, 30)
        time.sleep(1)
        leader.process.send_signal(signal.SIGTERM)
        leader.process.wait(20)
        left.remove(leader)
        wait_for(left, TAKEN_OVER)
    assert_one_at_a_time(holders)


def test_two_with_one_name_do_not_both_lead(settings: StoreSettings, holders: list[Holder]) -> None:
    holders += [Holder(settings, "twin")]
    wait_for(holders, 20)
    holders += [Holder(settings, "twin")]
    time.sleep(2 * DEAD_SECONDS / SHORTER)
    assert [one.leads for one in holders] == [True, False]
    assert_one_at_a_time(holders)


def test_who_was_held_up_does_not_go_on_where_another_leads(settings: StoreSettings, holders: list[Holder]) -> None:
    """As a machine that slept, or one whose disk did not answer."""
    holders += [Holder(settings, "sleeper")]
    wait_for(holders, 20)
    holders += [Holder(settings, "heir")]
    time.sleep(1)
    holders[0].process.send_signal(signal.SIGSTOP)
    wait_for(holders[1:], 2 * TAKEN_OVER)
    holders[0].process.send_signal(signal.SIGCONT)
    time.sleep(DEAD_SECONDS / SHORTER)
    assert [one.leads for one in holders] == [False, True]
    assert_one_at_a_time(holders)


@pytest.mark.parametrize("how", ["refused", "held up"])
def test_who_is_cut_off_from_the_store_stops_before_another_leads(
    settings: StoreSettings, holders: list[Holder], how: str
) -> None:
    with Proxy(settings.url) as proxy:
        holders += [Holder(settings, "cut-off", proxy.url)]
        wait_for(holders, 20)
        holders += [Holder(settings, "heir")]
        time.sleep(1)
        # Held up, rows of the old leader still arrive when another one leads.
        cut = Answer(status=503) if how == "refused" else Answer(delay=TAKEN_OVER)
        proxy.plan = lambda _path, _number: cut
        wait_for(holders[1:], 2 * TAKEN_OVER)
        assert not holders[0].leads
        proxy.plan = lambda _path, _number: PASS
        time.sleep(DEAD_SECONDS / SHORTER)
        assert [one.leads for one in holders] == [False, True]
    assert_one_at_a_time(holders)


def test_a_store_that_is_away_for_all_gives_the_lease_back_to_who_had_it_or_another_but_one(
    settings: StoreSettings, holders: list[Holder]
) -> None:
    with Proxy(settings.url) as proxy:
        holders += [Holder(settings, name, proxy.url) for name in ("one", "other")]
        wait_for(holders, 20)
        proxy.plan = lambda _path, _number: Answer(status=503)
        time.sleep(2 * DEAD_SECONDS / SHORTER)
        assert not any(one.leads for one in holders)
        proxy.plan = lambda _path, _number: PASS
        wait_for(holders, TAKEN_OVER)
        time.sleep(1)
    assert_one_at_a_time(holders)


def test_who_does_not_lead_writes_nothing(settings: StoreSettings) -> None:
    lease = Lease(settings, "analyze", Path("/state"), Log(quiet=True), threading.Event())
    with closing(Store(settings, may_write=lease.leads)) as store, closing(store.another()) as other:
        for one in (store, other):
            with pytest.raises(StoreUnavailableError, match="the lease is lost"):
                one.write(b"traffic bytes=1i 0", schema.RAW)


def test_once_is_refused_where_another_may_lead(settings: StoreSettings) -> None:
    refuse_once(StoreSettings())
    with pytest.raises(UserError, match=r"--once does not go with store\.lease"):
        refuse_once(settings)


def test_a_store_slower_than_a_claim_holds_is_asked_again(
    settings: StoreSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def written(_: Standing) -> None:
        nonlocal now
        now += LEADS_SECONDS

    one = Lease(settings, "analyze", Path("/state"), Log(quiet=True), threading.Event())
    monkeypatch.setattr(lease, "_clock", lambda: now)
    monkeypatch.setattr(one, "_write", written)
    monkeypatch.setattr(one, "_look", dict)
    one._step()
    assert not one.leads()
    assert one.term == 0
