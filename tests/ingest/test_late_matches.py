"""Late matches on a real InfluxDB: what the bridge's engine stored before a feed knew better, each byte told once."""

import os
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl
import pytest
from test_engine import T0, cluster, one, take

from analysis.analyser import Analyser
from analysis.cli import _run
from analysis.detectors.egress.late_matches import LateSearch, LateSearching
from analysis.detectors.roles.role_watch import RoleWatching
from analysis.jobs.all_sources import JobSources
from analysis.jobs.register import Register
from analysis.state import State
from app.log import Log
from cluster.model import Cluster, StoreSettings, ThreatFeed, Thresholds
from cluster.reload import Reload
from enrichment.labels import Labels
from enrichment.providers import labels_of
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.rollup import Rollup
from ingest.writer import Writer
from store import schema, schema_version
from store.influx import Store
from store.lease import Lease
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW
from store.schema_version import Migration, NewerStoreError

FIRST = T0 // 1000
LONG = 400 * 86_400
FAR, OTHER, THIRD = "203.0.113.5", "203.0.113.77", "203.0.113.99"
HOUR = 3_600
VAULT, INFERENCE = "10.2.9.1", "10.3.0.1"


@dataclass
class Site:
    """A cluster with one feed, its bridge's engine, and the store that it writes to."""

    cluster: Cluster
    folder: Path
    now: int = FIRST
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(self.cluster.store)
        self.store.ensure(self.cluster.retentions())
        self.lists("# nothing yet")
        self.labels: Labels = labels_of(self.cluster)
        self._engine = Engine(self.cluster, Clock.LIVE, Counters(), labels=self.labels)
        retentions = self.cluster.retentions()
        writer = Writer(
            self.store, retentions, shard="0", counters=Counters(), stop=threading.Event(), log=Log(quiet=True)
        )
        self._writer, self._rollup = writer, Rollup(self.store, writer, retentions, "0")
        self.restart()

    def restart(self) -> None:
        self.search = LateSearch(
            self.cluster, self.store, self.folder, Log(quiet=True), patience=0, clock=lambda: self.now
        )

    def lists(self, *lines: str) -> None:
        """Replace the feed, as a file that is dated now."""
        path = Path(self.cluster.threat_feeds[0].file)
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (self.now, self.now))

    def sent(self, src: str, dst: str, size: int) -> None:
        """Have the bridge store a flow of this moment."""
        at = self.now * 1000
        rows = one(src=src, dst=dst, bytes=size, start=at, end=at, arrival=at)
        for name, points in take(self._engine, rows, at).items():
            measurement = next(one for one in schema.MEASUREMENTS if one.name == name)
            self._writer.write(measurement, points, schema.RAW)
            self._rollup.touch(points.get_column(WINDOW).unique())
        self._rollup.run()

    def look(self, later: int = 120) -> int:
        """Search some time later; return how many rows that gave."""
        self.now += later
        return self.search.look()

    def late(self, retention: str = schema.RAW) -> list[tuple[str, str, str, int, int]]:
        """Return direction, source, destination, bytes of each late row, and the second of its newest minute."""
        frame = self.store.frame(f'SELECT * FROM "{retention}"."threat" WHERE "late" = \'yes\'')
        if frame.is_empty():
            return []
        frame = frame.sort("time", "direction", "src")
        return [
            (row["direction"], row["src"], row["dst"], row["bytes"], row["seen_at"] - FIRST)
            for row in frame.iter_rows(named=True)
        ]


@pytest.fixture
def site(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> Site:
    store = StoreSettings(url=influxdb_v1.url, database=fresh_database, keep_raw=LONG, keep_1m=LONG, keep_1h=LONG)
    feed = ThreatFeed("bad", str(tmp_path / "bad.txt"))
    limits = Thresholds(threat_bytes=0)
    return Site(replace(cluster(), store=store, threat_feeds=(feed,), thresholds=limits), tmp_path / "state")


MINUTE = FIRST // 60 * 60 - FIRST
"""The minute of the first flows."""
OUT = ("out", "vault-1", FAR, 1_000, MINUTE)
IN = ("in", FAR, "infer-1", 500, MINUTE)


def test_a_feed_that_comes_after_the_flows_tells_of_each_byte_once(site: Site) -> None:
    """What was matched as it happened is not told again, nor is anything when a feed is read again or we start anew."""
    site.lists(OTHER)
    site.labels.refresh()
    site.sent(VAULT, FAR, 1_000)
    site.sent(FAR, INFERENCE, 500)
    site.sent(VAULT, OTHER, 7_000)
    site.sent(VAULT, THIRD, 9_000)
    assert site.look() == 0, "matched as it happened"

    site.now += 3 * HOUR
    site.lists(OTHER, f"{FAR}/32")
    site.labels.refresh()
    site.sent(VAULT, FAR, 2_000)
    assert site.look() == 2
    assert site.late() == site.late(schema.HOUR) == [IN, OUT]
    (row,) = site.store.frame('SELECT * FROM "raw"."threat" WHERE "late" = \'yes\' AND "src" = \'vault-1\'').to_dicts()
    assert (row["feed"], row["indicator"], row["src_group"], row["service"]) == ("bad", FAR, "vault", "https")
    assert row["known_since"] == row["listed_since"] == site.now - 120
    assert row["time"] == site.now * 1000, "where the rule looks"

    site.lists(f"{FAR}/32", OTHER)
    assert site.look() == 0, "the same in another order"
    site.restart()
    assert site.look() == 0, "a restart"
    site.lists(OTHER)
    assert site.look() == 0
    site.lists(OTHER, FAR)
    assert site.look() == 0, "removed and taken up again"
    for file in site.folder.glob("searched-*"):
        file.unlink()
    site.restart()
    assert site.look() == 0, "what was searched for is forgotten; what was told is not"
    assert site.late() == [IN, OUT]


def test_what_was_sent_while_an_entry_was_away_is_told(site: Site) -> None:
    site.sent(VAULT, FAR, 1_000)
    site.lists(FAR)
    assert site.look() == 1
    site.lists(OTHER)
    site.look()
    site.now += 9 * HOUR
    site.sent(VAULT, FAR, 300)
    at = site.now // 60 * 60 - FIRST
    site.lists(OTHER, FAR)
    assert site.look() == 1
    assert site.late() == [OUT, ("out", "vault-1", FAR, 300, at)]


def test_a_feed_that_is_put_back_is_searched_for_whole(site: Site) -> None:
    """While it was not configured nobody matched what was sent."""
    site.lists(FAR)
    assert site.look() == 0
    with_feed, site.cluster = site.cluster, replace(site.cluster, threat_feeds=())
    site.restart()
    site.sent(VAULT, FAR, 1_000)
    site.now += 2 * HOUR
    site.cluster = with_feed
    site.restart()
    assert site.look() == 1


def test_how_far_back_is_searched(site: Site) -> None:
    """What is older than the look-back is left alone; without one nothing is searched."""
    site.sent(VAULT, FAR, 1_000)
    site.now += 2 * HOUR
    limits = Thresholds(threat_bytes=0, threat_look_back=HOUR)
    site.cluster = replace(site.cluster, thresholds=limits)
    site.restart()
    site.lists(FAR)
    assert site.look() == 0
    off = replace(site.cluster, thresholds=Thresholds(threat_look_back=0))
    assert not LateSearch(off, site.store, site.folder, Log(quiet=True)).has_feeds


def test_what_no_window_would_have_told_is_not_told_as_a_sum(site: Site) -> None:
    """Answers to a scanner are below the limit each time, and above it in a month."""
    site.cluster = replace(site.cluster, thresholds=Thresholds(threat_bytes=1_000, threat_window=900))
    site.restart()
    site.now = FIRST // 900 * 900 + 900
    for size in (600, 600, 600):
        site.sent(VAULT, FAR, size)
        site.now += 900
    for _ in range(2):
        site.sent(VAULT, THIRD, 600)
        site.now += 120
    site.now += 9 * HOUR
    site.sent(VAULT, THIRD, 10)
    site.lists(FAR, THIRD)
    assert site.look() == 1
    assert [(row[2], row[3]) for row in site.late()] == [(THIRD, 1_210)]


def test_bridges_get_time_to_take_a_feed_up(site: Site) -> None:
    """Until then what they store may lack what they are about to tell."""
    site.sent(VAULT, FAR, 1_000)
    site.lists(FAR)
    patient = LateSearch(site.cluster, site.store, site.folder, Log(quiet=True), patience=120, clock=lambda: site.now)
    site.now += 110
    assert patient.look() == 0
    site.now += 110
    assert patient.look() == 0
    site.now += 10
    assert patient.look() == 1


def test_a_feed_that_is_replaced_every_minute_is_searched_for(site: Site) -> None:
    """Each version when bridges have had time for it, the last one too; no search looks further than they have."""
    site.sent(VAULT, FAR, 1_000)
    site.sent(VAULT, OTHER, 2_000)
    site.now += 2 * HOUR
    patient = LateSearch(site.cluster, site.store, site.folder, Log(quiet=True), patience=120, clock=lambda: site.now)
    found = []
    for listed in ((FAR,), (FAR, THIRD), (FAR, OTHER), (FAR, OTHER), (FAR, OTHER), (FAR, OTHER)):
        site.lists(*listed)
        found.append(patient.look())
        site.now += 60
    assert found == [0, 0, 1, 0, 0, 1]


def test_a_note_that_is_damaged_is_as_if_there_were_none(site: Site) -> None:
    site.sent(VAULT, FAR, 1_000)
    site.lists(FAR)
    assert site.look() == 1
    (note,) = site.folder.glob("searched-*")
    assert pl.read_ipc(note.read_bytes()).height == 1
    note.write_bytes(b"no such file" * 100)
    site.restart()
    assert site.look() == 0
    assert site.late() == [OUT]


def test_beside_the_analysis_it_goes_on_until_it_is_stopped(site: Site) -> None:
    site.sent(VAULT, FAR, 1_000)
    site.lists(FAR)
    limits = Thresholds(threat_bytes=0, threat_look_back=LONG)
    limited = replace(site.cluster, thresholds=limits)
    searching = LateSearching(limited, site.store, site.folder, Log(quiet=True), patience=0)
    searching.start()
    ends = time.monotonic() + 30
    while not list(site.folder.glob("searched-*.arrow")) and time.monotonic() < ends:
        time.sleep(0.1)
    searching.stop()
    assert site.late() == site.late(schema.HOUR) == [OUT]
    assert "late-search" not in {thread.name for thread in threading.enumerate()}


def test_nothing_is_searched_for_before_the_store_is_known_to_be_ours(site: Site) -> None:
    """Beside an analysis that starts on a store which a newer clusterflow has upgraded."""
    site.sent(VAULT, FAR, 1_000)
    site.lists(FAR)
    steps = (*schema_version.MIGRATIONS, Migration("of tomorrow", lambda _: None))
    schema_version.prepare(site.store, site.cluster.retentions(), may_migrate=True, migrations=steps)
    log = Log(quiet=True)
    limits = Thresholds(threat_bytes=0, threat_look_back=LONG)
    cluster_ = replace(site.cluster, thresholds=limits)
    with State.open(site.folder) as state, Register.open(site.folder) as register:
        sources = JobSources(cluster_, site.store, register, log)
        analyser = Analyser(cluster_, site.store, state, sources, log=log)
        searching = LateSearching(cluster_, site.store, site.folder, log, patience=0)
        roles = RoleWatching(cluster_, site.store, log)
        lease = Lease(cluster_.store, "analyze", site.folder, log, threading.Event())
        with pytest.raises(NewerStoreError, match="its schema has version 2"):
            _run(
                (analyser, sources), (searching, roles), site.store, log, lease, 1.0,
                Reload(site.folder / "cluster.yaml", lambda fresh: fresh, log), lambda _: (analyser, sources),
            )  # fmt: skip
    assert not list(site.folder.glob("searched-*"))
    assert site.late() == site.late(schema.HOUR) == []
