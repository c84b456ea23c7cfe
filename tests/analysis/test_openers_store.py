"""Management sessions on a real InfluxDB: learnt, new ones found live and later alike, and the ledger of all."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_network
from pathlib import Path

import polars as pl
import pytest
import scene

from analysis.detectors.inference.asked import Asked
from analysis.detectors.management.opener_study import OpenerStudy
from analysis.detectors.management.session_study import SessionStudy
from analysis.detectors.study import Span
from analysis.state import State
from app.log import Log
from cluster.model import Cluster, Group, GroupPair, Role, StoreSettings, Thresholds
from cluster.sections.identity import IdentitySettings, SignInColumns, SignInFormat, SignInSource
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW

NOW = 1_780_000_000 // 3600 * 3600
LEARNING = 1200
LATER = NOW + 3600


@dataclass
class Site:
    cluster: Cluster
    store: Store
    folder: Path

    def open(
        self, at: int, src: str, dst_group: str, *, size: int = 6_000, service: str = "ssh", node: str = ""
    ) -> None:
        """Write a window in which a manager, or with a dot in its name a user, opened a service of `gpu-1` or so."""
        row = {
            WINDOW: at, schema.SRC: src, schema.SRC_GROUP: "users" if "." in src else "management",
            schema.DST: node or f"{dst_group}-1", schema.DST_GROUP: dst_group, schema.PROTO: "tcp",
            schema.SERVICE: service, schema.SHARD: "0", schema.BYTES.name: size, schema.TX_BYTES.name: size // 3,
            schema.FLOWS.name: 2,
        }  # fmt: skip
        scene.write(self.store, schema.MANAGED, pl.DataFrame([row]))

    def judged(self, state: State, *spans: Span) -> pl.DataFrame:
        """Return what a process says in one pass after another, the last word on each window."""
        study = OpenerStudy(self.cluster, self.store, state, Log(quiet=True))
        frames = [frame for span in spans for _, frame in study.judge(span, ())]
        keys = [WINDOW, *schema.NEW_SESSION.tags]
        return pl.concat(frames).unique(keys, keep="last").sort(keys)


@pytest.fixture
def site(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> Iterator[Site]:
    cluster = Cluster(
        "lab",
        (
            Group("training", "Training", Role.TRAINING, (ip_network("10.20.0.0/16"),)),
            Group("management", "Management", Role.MANAGEMENT, (ip_network("10.60.0.0/24"),)),
            Group("users", "Users", Role.CUSTOM, (ip_network("10.70.0.0/16"),)),
        ),
        allowed=(GroupPair("management", "*"), GroupPair("*", "management")),
        thresholds=Thresholds(session_learning=LEARNING),
        store=StoreSettings(url=influxdb_v1.url, database=fresh_database),
    )
    store = Store(cluster.store)
    store.ensure(tuple(replace(one, keep=0) for one in cluster.retentions()))
    made = Site(cluster, store, tmp_path)
    made.open(NOW, "mgmt-1", "training")
    yield made
    store.close()


def passes(start: int, stop: int) -> list[Span]:
    return [Span(at, at + 300, at + 300, at + 300) for at in range(start, stop, 300)]


def test_live_ticks_a_restart_and_a_later_run_agree(site: Site) -> None:
    site.open(LATER, "mgmt-1", "training")  # known
    site.open(LATER + 10, "mgmt-1", "training", service="netconf")
    site.open(LATER + 20, "mgmt-2", "training", size=1_500)
    site.open(LATER + 310, "mgmt-2", "training", size=1_500)  # together beyond the limit
    site.open(LATER + 30, "mgmt-3", "training", size=1_500)  # refused
    site.open(LATER + 40, "10.70.0.1", "training")  # not allowed: another rule tells of it
    site.open(LATER + 50, "10.70.0.1", "management")  # allowed, but no service that others may open there
    site.open(LATER + 60, schema.OTHER, "training")
    site.open(LATER + 70, "10.70.0.2", "management", service="https")  # a page that everybody may open
    spans = passes(NOW, LATER + 900)
    with State.open(site.folder / "whole") as state:
        whole = site.judged(state, *spans)
    with State.open(site.folder / "parts") as state:
        first = site.judged(state, *spans[:13], spans[12], spans[12])
    with State.open(site.folder / "parts") as state:
        parts = pl.concat([first, site.judged(state, *spans[13:])]).sort(WINDOW, *schema.NEW_SESSION.tags)
    found = whole.select(WINDOW, schema.SRC, schema.DST, schema.SERVICE, schema.BYTES.name, schema.CONTACT_FIRST.name)
    assert found.rows() == [
        (LATER + 10, "mgmt-1", "training-1", "netconf", 6_000, LATER + 10.0),
        (LATER + 310, "mgmt-2", "training-1", "ssh", 3_000, LATER + 310.0),
    ]
    assert parts.equals(whole)


def test_windows_that_come_late_make_no_second_alert(site: Site) -> None:
    """With them the session begins earlier, at another node; rows name the node that was first told."""
    site.open(LATER + 30, "mgmt-2", "training")
    with State.open(site.folder) as state:
        study = OpenerStudy(site.cluster, site.store, state, Log(quiet=True))
        found = []
        for closed in range(LATER + 40, LATER + 600, 10):
            start = max(closed - 310, LATER)
            found += [frame for _, frame in study.judge(Span(start, max(closed - 300, start), closed, closed), ())]
            if closed == LATER + 40:
                site.open(LATER, "mgmt-2", "training", node="training-2")
    assert found[1].select(WINDOW, schema.EVENT_DESTINATIONS.name).rows() == [(LATER, 1), (LATER + 30, 2)]
    assert pl.concat(found).select(schema.NEW_SESSION.tags).unique().height == 1


def test_a_later_start_knows_what_history_holds(site: Site) -> None:
    site.open(NOW + 600, "mgmt-2", "training")
    site.open(NOW + 1800, "mgmt-3", "training", size=100)  # refused
    site.open(NOW + 1800, "mgmt-4", "training")
    for number in range(2, 5):
        site.open(LATER, f"mgmt-{number}", "training")
    with State.open(site.folder) as state:
        assert site.judged(state, *passes(LATER - 600, LATER + 900))[schema.SRC].to_list() == ["mgmt-3"]


@pytest.mark.parametrize("is_another", [False, True])
def test_a_renamed_group_is_no_news_and_another_one_is(site: Site, *, is_another: bool) -> None:
    """It is known again by its prefixes."""
    site.open(NOW, "mgmt-1", "training")
    changes = {"id": "gpus"} | ({"prefixes": (ip_network("10.99.0.0/16"),)} if is_another else {})
    groups = (replace(one, **changes) if one.id == "training" else one for one in site.cluster.groups)
    fresh = replace(site.cluster, groups=tuple(groups))
    with State.open(site.folder) as state:
        assert state.follow_groups(site.cluster) == {}
        study = OpenerStudy(site.cluster, site.store, state, Log(quiet=True))
        for span in passes(NOW, LATER):
            study.judge(span, ())
    site.open(LATER, "mgmt-1", "gpus")
    with State.open(site.folder) as state:
        assert state.follow_groups(fresh) == ({} if is_another else {"training": "gpus"})
        assert state.follow_groups(fresh) == {}
        study = OpenerStudy(fresh, site.store, state, Log(quiet=True))
        assert bool(study.judge(Span(LATER, LATER + 300, LATER + 300, LATER + 300), ())) is is_another


def test_the_ledger_has_every_session_expected_or_not(site: Site) -> None:
    for at in range(LATER, LATER + 1800, 600):
        site.open(at, "mgmt-1", "training")
    site.open(LATER + 40, "10.70.0.1", "training")
    (site.folder / "vpn.csv").write_text(f"at,who,ip\n{LATER - 60},ada,10.70.0.1\n")
    columns = SignInColumns("ip", "who", "at")
    source = SignInSource("vpn", SignInFormat.CSV, str(site.folder / "vpn.csv"), columns=columns)
    cluster = replace(site.cluster, identity=IdentitySettings((source,)))
    study = SessionStudy(cluster, Asked(cluster, site.store, Log(quiet=True), clock=lambda: LATER + 2400))
    rows = pl.concat([frame for span in passes(NOW, LATER + 2400) for _, frame in study.judge(span, ())])
    sums = rows.unique([WINDOW, *schema.SESSION.tags]).group_by(schema.SRC, schema.USER)
    sums = sums.agg(pl.sum(schema.SESSIONS.name, schema.OPEN_SECONDS.name, schema.BYTES.name)).sort(schema.SRC)
    assert sums.rows() == [("10.70.0.1", "ada", 1, 10, 6_000), ("mgmt-1", "-", 2, 1220, 24_000)]
