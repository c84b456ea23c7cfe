"""Bytes that counters saw and flows did not, on a real InfluxDB, against what was planned."""

from collections.abc import Callable

import egress_scene as month
import numpy as np
import polars as pl
import pytest
import scene
from egress_scene import DAY, HOUR, NOW

from analysis.detectors.fabric.unseen import UnseenStudy
from analysis.detectors.study import Span
from cluster.model import Cluster, Retention
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW

RATE = 6_000_000_000 / 60
"""Bytes of a minute through the link, by its counters: 6 GB an hour. Flow records reach 96 % of them."""
OFF = NOW + 13 * HOUR

Share = Callable[[np.ndarray], np.ndarray]


def link(name: str, share: Share, *, has_counters: bool = True, rate: float = RATE) -> pl.DataFrame:
    """Return minutes of a day of one interface whose flow records reach a share, by time, of its counters."""
    windows = NOW + np.arange(0, DAY, 60)
    carried = rate * np.random.default_rng(5).uniform(0.8, 1.2, len(windows))
    seen = carried * share(windows)
    frame = pl.DataFrame(
        {
            WINDOW: windows.astype(np.int64),
            schema.IN_BYTES.name: (seen / 2).astype(np.int64),
            schema.OUT_BYTES.name: (seen / 2).astype(np.int64),
            schema.COUNTER_IN_BYTES.name: (carried / 2 * has_counters).astype(np.int64),
            schema.COUNTER_OUT_BYTES.name: (carried / 2 * has_counters).astype(np.int64),
        }
    )
    tags = {schema.EXPORTER: "leaf-1", schema.INTERFACE: name, schema.PLANE: "frontend", schema.KIND: "edge"}
    return frame.with_columns(pl.lit(value).alias(tag) for tag, value in tags.items())


def always(share: float) -> Share:
    return lambda windows: np.full(len(windows), share)


def off(seconds: int, share: float = 0.96) -> Share:
    return lambda windows: np.where((windows >= OFF) & (windows < OFF + seconds), 0.0, share)


@pytest.fixture
def cluster(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Cluster:
    return month.cluster_of(influxdb_v1.url, fresh_database)


def judged(cluster: Cluster, *links: pl.DataFrame, step: int = 4 * HOUR) -> pl.DataFrame:
    store = Store(cluster.store)
    store.ensure(tuple(Retention(one.name, one.window, 0) for one in cluster.retentions()))
    minutes = pl.concat(links)
    tags = (schema.EXPORTER, schema.INTERFACE, schema.PLANE, schema.KIND)
    hours = minutes.with_columns(pl.col(WINDOW) // HOUR * HOUR).group_by(WINDOW, *tags).sum()
    for retention, frame in ((schema.MINUTE, minutes), (schema.HOUR, hours)):
        scene.write(store, schema.INTERFACE_TRAFFIC, frame.select(minutes.columns), retention)
    study, frames = UnseenStudy(cluster, store), []
    for at in range(NOW, NOW + DAY, step):
        frames += [frame for _, frame in study.judge(Span(at, at + step, at + step, at + step), ())]
    store.close()
    return pl.concat(frames).unique([WINDOW, schema.EXPORTER]).sort(WINDOW)


def test_export_that_is_off_is_told_with_its_bytes(cluster: Cluster) -> None:
    """Half of the exporter's links go dark for two hours: the bytes of the last hour, to a tenth."""
    found = judged(cluster, link("a", off(2 * HOUR)), link("b", off(2 * HOUR)))
    assert found.get_column(schema.EXPORTER).unique().to_list() == ["leaf-1"]
    first, last = found.row(0, named=True), found.filter(pl.col(WINDOW) == OFF + 2 * HOUR).row(0, named=True)
    assert OFF + 300 < first[WINDOW] <= OFF + 1500
    assert last["bytes"] == pytest.approx(2 * 0.96 * RATE * 60, rel=0.1)
    assert (last["flow_bytes"], last["seconds"]) == (0, HOUR)
    # It is over with the first five minutes that are told of again.
    assert found[-1, WINDOW] <= OFF + 2 * HOUR + 600


def test_a_later_run_finds_the_same(cluster: Cluster) -> None:
    links = link("a", off(2 * HOUR)), link("b", off(2 * HOUR))
    once, again = judged(cluster, *links), judged(cluster, *links, step=DAY)
    assert once.equals(again)
    assert once.height


NEAR_MISSES = {
    "all is told of": [link("a", always(0.96))],
    "sampled, with its noise": [link("a", lambda windows: np.random.default_rng(3).uniform(0.7, 1.3, len(windows)))],
    "never told of": [link("a", always(0.1))],
    "off for five minutes, little went through": [link("a", off(300), rate=RATE / 4)],
    "a third of what it carries is lost": [link("a", lambda windows: np.where(windows >= OFF, 0.6, 0.96))],
    "a device without counters": [link("a", off(2 * HOUR), has_counters=False)],
    "the link itself is quiet": [
        link("a", always(0.96)).with_columns(
            pl.when(pl.col(WINDOW) >= OFF).then(0).otherwise(pl.col(name)).alias(name)
            for name in ("in_bytes", "out_bytes", "counter_in_bytes", "counter_out_bytes")
        )
    ],
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_as_usual_is_none(cluster: Cluster, name: str) -> None:
    assert judged(cluster, *NEAR_MISSES[name]).is_empty()


def test_before_six_busy_hours_nothing_is_known(cluster: Cluster) -> None:
    """Export stopped after four hours: that is told once two more are known, and whole for an hour."""
    early = link("a", lambda windows: np.where(windows >= NOW + 4 * HOUR, 0.0, 0.96))
    assert judged(cluster, early)[0, WINDOW] == NOW + 7 * HOUR
