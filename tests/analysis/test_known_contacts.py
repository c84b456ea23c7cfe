"""The memory of contacts: it stays in its file, takes up older files, and forgets what the store has forgotten."""

import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import polars as pl
import pytest
import scene

from analysis.detectors.egress.contact_study import ContactStudy
from analysis.detectors.egress.contacts import CONTACT_COLUMNS, FIRST_SEEN, KNOWN_COLUMNS, LAST_SEEN, NEW
from analysis.detectors.study import Span
from analysis.evidence import Reader
from analysis.state import FILE, State
from app.log import Log
from cluster.model import Cluster, Job, Node, NodeAddress
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

DAY = 86_400
NOW = 1_780_000_000 // DAY * DAY
KEEP = 90 * DAY
PAIR = ("gpu-1", "203.0.113.8")
OLD_TABLE = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE contact (
    src TEXT NOT NULL, dst TEXT NOT NULL, src_group TEXT NOT NULL, dst_group TEXT NOT NULL, proto TEXT NOT NULL,
    service TEXT NOT NULL, first_seen INTEGER NOT NULL, new INTEGER NOT NULL, digest INTEGER NOT NULL,
    PRIMARY KEY (src, dst)
) WITHOUT ROWID;
"""


@dataclass
class Site:
    cluster: Cluster
    store: Store
    folder: Path

    def look(self, state: State, *moments: int) -> list[tuple[str, str, int]]:
        """Return whom one process calls new in a window after another: source, destination, when."""
        study = ContactStudy(self.cluster, Reader(self.store, self.cluster), state, Log(quiet=True))
        found = []
        for at in moments:
            ((_, rows),) = study.judge(Span(at, at + 10, at + 10, at + 10), ())
            found += rows.filter(pl.col(NEW) == 1).select(schema.SRC, schema.DST, FIRST_SEEN).rows()
        return found


@pytest.fixture
def site(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> Iterator[Site]:
    cluster = scene.cluster_of(influxdb_v1.url, fresh_database, str(tmp_path / "state"), ())
    cluster = replace(cluster, store=replace(cluster.store, keep_1h=KEEP))
    store = Store(cluster.store)
    store.ensure(tuple(replace(one, keep=0) for one in cluster.retentions()))
    yield Site(cluster, store, tmp_path / "state")
    store.close()


def contacts(*rows: tuple[str, str, int]) -> pl.DataFrame:
    full = [(src, dst, "training", "external", "", "", first, 0, 0) for src, dst, first in rows]
    return pl.DataFrame(full, schema=CONTACT_COLUMNS, orient="row")


def listed(**nodes: str) -> Cluster:
    """Return a cluster with these nodes, each with its addresses."""
    found = (
        Node(name, "training", tuple(NodeAddress(ip_address(one)) for one in told.split()))
        for name, told in nodes.items()
    )
    return replace(scene.cluster_of("", ""), nodes=tuple(found))


@pytest.mark.parametrize(
    ("before", "now", "is_known"),
    [
        pytest.param({"old": "10.20.0.1 10.20.1.1"}, {"new": "10.20.0.1 10.20.1.1"}, True, id="renamed"),
        pytest.param({"old": "10.20.0.1 10.20.1.1"}, {"new": "10.20.1.1"}, True, id="and lost an address"),
        pytest.param({}, {"new": "10.20.0.9"}, True, id="listed with its address at last"),
        pytest.param({"old": "10.20.0.1"}, {"new": "10.20.0.2"}, False, id="another one"),
        pytest.param({"old": "10.20.0.1"}, {"new": "10.20.0.1", "old": "10.20.0.3"}, False, id="took an address over"),
        pytest.param({"old": "10.20.0.1", "new": "10.20.0.2"}, {"new": "10.20.0.1"}, False, id="was there before"),
        pytest.param(
            {"old": "10.20.0.1 10.20.1.1"}, {"new": "10.20.0.1", "other": "10.20.1.1"}, False, id="taken apart"
        ),
    ],
)
def test_a_node_that_is_renamed_keeps_what_is_known_of_it(
    tmp_path: Path, before: dict[str, str], now: dict[str, str], *, is_known: bool
) -> None:
    """Its contacts and what runs taught of it; windows that are judged again hold the old name."""
    src, dst = next(iter(before), "10.20.0.9"), "203.0.113.8"
    run = Job("run", "llm", (src, "gpu-9"), datetime.fromtimestamp(NOW, UTC), datetime.fromtimestamp(NOW + 600, UTC))
    with State.open(tmp_path) as state:
        state.follow_nodes(listed(**before))
        state.save_contacts(0, contacts((src, dst, NOW)), contacts().with_columns(pl.lit(0).alias(LAST_SEEN)))
        state.acknowledge(src, dst, NOW)
        state.remember(run, {"dropout": {"nodes": [src, "gpu-9"]}, "cohort": {"nodes": 2}})
        state.follow_nodes(listed(**now))
        assert state.follow_nodes(listed(**now)) == {}
        expected = {src, "new"} if is_known else {src}
        assert {*state.contacts().get_column(schema.SRC)} == expected == {*state.decisions().get_column(schema.SRC)}
        name = "new" if is_known and before else src
        assert state.memories("dropout", "llm", NOW + 600, 1) == [{"nodes": [name, "gpu-9"]}]


def test_a_pair_is_forgotten_when_the_store_tells_nothing_of_it_any_more(site: Site) -> None:
    """One that is seen now and then stays known, however long ago it was first seen."""
    often = ("gpu-2", "203.0.113.9")
    seen = [NOW + day * DAY for day in (0, 1, 60, 120, 180, 240)]
    scene.write_egress(site.store, *((at, *often, 5) for at in seen), *((at, *PAIR, 5) for at in seen[1::2]))
    with State.open(site.folder) as state:
        state.begin(NOW, NOW + 10, contacts((*PAIR, NOW - DAY), ("gpu-3", "203.0.113.1", NOW - DAY)))
        assert site.look(state, *seen[:3]) == []
        # Ninety days and two after day 1: what is noted once a day may be one day older.
        assert site.look(state, NOW + 92 * DAY) == []
        assert state.contacts().height == 2
        assert site.look(state, NOW + 93 * DAY) == []
        assert state.contacts().select(schema.SRC).rows() == [("gpu-2",)]
        assert site.look(state, *seen[3:]) == [(*PAIR, seen[3])]
        assert state.contacts().height == 2


def test_when_a_pair_was_seen_is_noted_once_a_day(site: Site) -> None:
    times = [NOW, NOW + 3600, NOW + DAY, NOW + DAY + 10]
    scene.write_egress(site.store, *((at, *PAIR, 5) for at in times))
    with State.open(site.folder) as state:
        state.begin(NOW - 10, NOW - 10, contacts((*PAIR, NOW - DAY)))
        noted = []
        for at in times:
            site.look(state, at)
            (row,) = state.known_contacts(contacts((*PAIR, 0)), NOW).iter_rows(named=True)
            noted.append(row[LAST_SEEN])
    assert noted == [NOW, NOW, NOW + DAY, NOW + DAY]


@pytest.mark.parametrize("opened", [State.open, State.copy_of])
def test_a_file_of_before_is_taken_up_and_all_in_it_stays_known(site: Site, opened: Callable[[Path], State]) -> None:
    site.folder.mkdir()
    with closing(sqlite3.connect(site.folder / FILE)) as old:
        old.executescript(OLD_TABLE)
        old.execute("INSERT INTO meta VALUES ('position', ?)", (NOW,))
        old.execute(
            "INSERT INTO contact VALUES (?, ?, 'training', 'external', 'tcp', 'https', ?, 1, 0)",
            (*PAIR, NOW - 900 * DAY),
        )
        old.commit()
    scene.write_egress(site.store, (NOW + 80 * DAY, *PAIR, 5))
    with opened(site.folder) as state:
        assert state.position == NOW
        assert not state.broken
        assert site.look(state, NOW, NOW + 80 * DAY) == []
        assert state.contacts().get_column(FIRST_SEEN).to_list() == [NOW - 900 * DAY]


def test_a_round_holds_what_it_meets_not_all_that_is_known(site: Site) -> None:
    many = contacts(*((f"gpu-{n % 100}", f"203.{n >> 16}.{n >> 8 & 255}.{n & 255}", NOW - DAY) for n in range(200_000)))
    scene.write_egress(site.store, (NOW, *many.select(schema.SRC, schema.DST).row(7), 5), (NOW, *PAIR, 5))
    with State.open(site.folder) as state:
        state.begin(NOW, NOW - DAY, many)
        del many
        tracemalloc.start()
        assert site.look(state, NOW) == [(*PAIR, NOW)]
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert state.contacts().height == 200_001
    # All of them as objects took 70 MB.
    assert most < 5e6


def test_what_is_found_again_is_not_written_again(site: Site) -> None:
    found = contacts(("gpu-1", "203.0.113.1", NOW), ("gpu-2", "203.0.113.2", NOW))
    nothing = pl.DataFrame(schema=KNOWN_COLUMNS)
    with State.open(site.folder) as state, closing(sqlite3.connect(site.folder / FILE)) as other:
        state.begin(NOW, 0, found)

        def version() -> int:
            return int(other.execute("PRAGMA data_version").fetchone()[0])

        before = version()
        state.save_contacts(NOW, found, nothing)
        assert version() == before
        state.save_contacts(NOW, found[:1], nothing)
        assert version() != before
        assert state.contacts().sort(schema.SRC).equals(found[:1])
