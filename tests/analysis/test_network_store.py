"""New networks on a real InfluxDB: learnt, found live and later alike, and not where nobody knows whose they are."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_network
from pathlib import Path

import polars as pl
import pytest
import scene

from analysis.detectors.egress.network_study import NetworkStudy, network_studies
from analysis.detectors.study import Span
from analysis.state import State
from app.log import Log
from cluster.model import Cluster, Geography, Group, Role, StoreSettings, Thresholds
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW

NOW = 1_780_000_000 // 3600 * 3600
LEARNING = 600
END = NOW + LEARNING
"""When networks are learnt: the first label comes at NOW."""

MB = 1_000_000


@dataclass
class Site:
    cluster: Cluster
    store: Store
    folder: Path

    def send(
        self, at: int, src: str, dst: str, network: str, size: int, *, group: str = "models", answers: bool = False,
        **tags: str,
    ) -> None:  # fmt: skip
        """Write what a source sends in a window."""
        row = {
            WINDOW: at, schema.SRC: src, schema.SRC_GROUP: group, schema.DST: dst, schema.DST_GROUP: "external",
            schema.PROTO: "tcp", schema.SERVICE: "https", schema.OFF_HOURS: schema.NO,
            schema.INITIATOR: schema.BY_DESTINATION if answers else schema.BY_SOURCE,
            schema.NETWORK: network, schema.SHARD: "0", schema.BYTES.name: size, schema.DURATION.name: 4.0, **tags,
        }  # fmt: skip
        scene.write(self.store, schema.EGRESS, pl.DataFrame([row]))

    def judged(self, state: State, *spans: Span) -> pl.DataFrame:
        """Return what a process says in one pass after another, the last word on each window."""
        study = NetworkStudy(self.cluster, self.store, state, Log(quiet=True))
        frames = [frame for span in spans for _, frame in study.judge(span, ())]
        keys = [WINDOW, *schema.NEW_NETWORK.tags]
        return pl.concat(frames).unique(keys, keep="last").sort(keys) if frames else pl.DataFrame()


@pytest.fixture
def site(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> Iterator[Site]:
    cluster = Cluster(
        "lab",
        (
            Group("models", "Models", Role.MODEL_STORAGE, (ip_network("10.40.0.0/24"),)),
            Group("serving", "Inference", Role.INFERENCE, (ip_network("10.50.0.0/24"),)),
        ),
        geography=Geography((("places", "places.mmdb"),)),
        thresholds=Thresholds(contact_learning=LEARNING),
        store=StoreSettings(url=influxdb_v1.url, database=fresh_database),
    )
    store = Store(cluster.store)
    store.ensure(tuple(replace(one, keep=0) for one in cluster.retentions()))
    yield Site(cluster, store, tmp_path)
    store.close()


def passes(start: int, stop: int, step: int = 300) -> list[Span]:
    ends = [min(at + step, stop) for at in range(start, stop, step)]
    return [Span(at, end, end, end) for at, end in zip(range(start, stop, step), ends, strict=True)]


def test_live_ticks_a_restart_and_a_later_run_agree(site: Site) -> None:
    site.send(NOW, "store-1", "198.51.100.7", "AS64500 One", 1)
    for at in range(END + 300, END + 1800, 30):
        site.send(at, "store-1", "203.0.113.9", "AS64501 Two", 3 * MB, country="NL", feed="botnets")
        site.send(at + 10, "store-2", f"203.0.113.{at % 90 + 10}", "AS64501 Two Inc", 7 * MB // 2, country="NL")
        site.send(at, "store-1", "198.51.100.8", "AS64500 One", 90 * MB)
    start, stop, grace = NOW, END + 2400, 300
    ticks = [
        Span(max(now - grace - 40, start), max(now - grace, start), now, now + 20)
        for now in range(start + 40, stop + 1, 40)
    ]
    half = len(ticks) // 2
    with State.open(site.folder) as state:
        first = site.judged(state, *ticks[:half])
    with State.open(site.folder) as state:
        second = site.judged(state, *ticks[half:])
    live = pl.concat([frame for frame in (first, second) if frame.height])
    live = live.unique([WINDOW, *schema.NEW_NETWORK.tags], keep="last").sort(WINDOW)
    # 3 MB and 3.5 MB by turns: the fourth is beyond 10 MB.
    crossed = END + 300 + 40
    assert live.get_column(WINDOW).min() == crossed
    assert live.filter(pl.col(WINDOW) == crossed).select(
        "src", "dst", "network", "feed", "bytes", "sources"
    ).rows() == [("store-1", "203.0.113.9", "AS64501 Two", "botnets", 13 * MB, 2)]
    assert live.get_column(schema.BYTES.name).sum() == 32 * 3 * MB + 31 * 7 * MB // 2
    with State.copy_of(site.folder) as state:
        assert site.judged(state, *passes(start, stop)).equals(live)
    with State.copy_of(site.folder / "none") as state:
        assert site.judged(state, *passes(start, stop)).equals(live)


def test_bytes_that_come_late_make_no_second_alert(site: Site) -> None:
    """With them the limit is crossed earlier, by another conversation; rows are named as they were first told."""
    site.send(NOW, "store-1", "198.51.100.7", "AS64500 One", 1)
    at = END + 600
    site.send(at + 30, "store-1", "203.0.113.9", "AS64501 Two", 12 * MB)
    with State.open(site.folder) as state:
        study = NetworkStudy(site.cluster, site.store, state, Log(quiet=True))
        study.judge(Span(NOW, NOW + 300, NOW + 300, NOW + 300), ())
        found = []
        for closed in range(at + 40, at + 1200, 10):
            start = max(closed - 310, at)
            spans = Span(start, max(closed - 300, start), closed, closed)
            found += [frame for _, frame in study.judge(spans, ()) if frame.height]
            if closed == at + 40:
                site.send(at, "store-2", "203.0.113.80", "AS64501 Two", 14 * MB)
            if closed < at + 900:
                site.send(closed, "store-1", "203.0.113.10", "AS64501 Two", 3 * MB)
    first = found[1].row(0, named=True)
    assert (first[WINDOW], first[schema.EVENT_SOURCES.name]) == (at, 1)
    assert pl.concat(found).select(schema.NEW_NETWORK.tags).unique().height == 1


def test_what_no_file_knows_and_what_inference_answers_is_no_network(site: Site) -> None:
    site.send(NOW, "store-1", "198.51.100.7", "AS64500 One", 1)
    site.send(END + 300, "store-1", "203.0.113.1", "", 900 * MB)
    site.send(END + 300, "store-1", schema.OTHER, schema.OTHER, 900 * MB)
    site.send(END + 300, "infer-1", "203.0.113.2", "AS64501 Two", 900 * MB, group="serving", answers=True)
    with State.open(site.folder) as state:
        assert site.judged(state, *passes(NOW, END + 600)).is_empty()
        site.send(END + 600, "infer-1", "203.0.113.2", "AS64501 Two", 900 * MB, group="serving")
        assert site.judged(state, *passes(END + 600, END + 900)).height == 1


def test_networks_are_learnt_from_the_first_label_on_and_history_is_known(site: Site) -> None:
    """Files of places that come weeks after the flows make nothing new on that day."""
    site.send(NOW - 86_400, "store-1", "203.0.113.1", "", 900 * MB)
    with State.open(site.folder) as state:
        assert site.judged(state, *passes(NOW - 86_400, NOW - 86_100)).is_empty()
        assert state.networks.begun is None
        site.send(NOW - 900, "store-1", "203.0.113.1", "AS64500 One", 50 * MB)
        site.send(NOW, "store-1", "203.0.113.2", "AS64501 Two", 50 * MB)
        site.send(NOW + 300, "store-1", "203.0.113.1", "AS64500 One", 50 * MB)
        assert site.judged(state, *passes(NOW, NOW + 600)).get_column(schema.NETWORK).to_list() == ["AS64501 Two"]
        assert state.networks.begun == NOW - 900 + LEARNING


def test_who_knocked_once_is_not_known_when_memory_is_rebuilt(site: Site) -> None:
    """As after another analysis led: what was learnt is known, what was told, too, and no probe."""
    site.send(NOW, "store-1", "198.51.100.7", "AS64500 One", 1)
    site.send(END + 300, "store-1", "203.0.113.1", "AS64501 Two", 50 * MB)
    site.send(END + 300, "store-1", "203.0.113.2", "AS64502 Three", 100)
    with State.open(site.folder / "first") as state:
        told = site.judged(state, *passes(NOW, END + 600))
    scene.write(site.store, schema.NEW_NETWORK, told, schema.NEW_NETWORK.kept)
    later = END + 7200
    for number in range(3):
        site.send(later, "store-1", f"203.0.113.{number}", f"AS6450{number} One, two or three", 50 * MB)
    with State.open(site.folder / "second") as state:
        found = site.judged(state, *passes(later - 300, later + 300))
    assert found.get_column(schema.NETWORK).to_list() == ["AS64502 One, two or three"]


def test_a_group_that_is_renamed_knows_its_networks(site: Site) -> None:
    site.send(NOW, "store-1", "198.51.100.7", "AS64500 One", 1)
    site.send(END + 300, "store-1", "198.51.100.7", "AS64500 One", 90 * MB, group="stores")
    groups = (replace(one, id="stores") if one.id == "models" else one for one in site.cluster.groups)
    fresh = replace(site, cluster=replace(site.cluster, groups=tuple(groups)))
    with State.open(site.folder) as state:
        state.follow_groups(site.cluster)
        assert site.judged(state, *passes(NOW, END)).is_empty()
        state.follow_groups(fresh.cluster)
        assert fresh.judged(state, *passes(END, END + 600)).is_empty()


def test_without_files_of_places_nothing_is_judged(site: Site) -> None:
    with State.open(site.folder) as state:
        assert len(network_studies(site.cluster, site.store, state, Log(quiet=True))) == 1
        plain = replace(site.cluster, geography=Geography())
        assert network_studies(plain, site.store, state, Log(quiet=True)) == ()
