"""Beacons on a real InfluxDB: found with half of their period as jitter; clocks, fleets, people, streams are none."""

from collections.abc import Sequence

import egress_scene as month
import numpy as np
import polars as pl
import pytest
import scene
from egress_scene import COLUMNS, DAY, HOUR, NOW, TALK

from analysis.detectors.egress.beacons import BeaconStudy
from analysis.detectors.study import Span
from cluster.model import Cluster, Retention, Thresholds
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW

TO = "203.0.113.20"
LIMIT = Thresholds().beacon_score


def talk(
    src: str, dst: str = TO, *, proto: str = "tcp", service: str = "https", answers: bool = False
) -> dict[str, str]:
    group = "models" if src.startswith("store") else "training"
    outside = "partner" if dst.startswith("198.51.100.") else "external"
    initiator = schema.BY_DESTINATION if answers else schema.BY_SOURCE
    return dict(zip(TALK, (src, group, dst, outside, proto, service, schema.NO, initiator), strict=True))


def starts(period: float, jitter: float = 0.0, *, hours: float = 24, seed: int = 1) -> np.ndarray:
    """Return moments from NOW on: a sleep of `period` that varies evenly by `jitter` of itself."""
    rng = np.random.default_rng(seed)
    sleeps = period * (1 + jitter * rng.uniform(-1, 1, int(hours * HOUR / period * 2) + 10))
    moments = NOW + rng.uniform(0, period) + np.cumsum(sleeps)
    return moments[moments < NOW + hours * HOUR]


def at_random(per_day: int, seed: int = 2) -> np.ndarray:
    return NOW + np.sort(np.random.default_rng(seed).uniform(0, DAY, per_day))


def sent(tags: dict[str, str], moments: np.ndarray, volume: float = 3_000, *, spread: float = 0.0) -> pl.DataFrame:
    """Return windows of ten seconds, as the bridge would store them."""
    rng = np.random.default_rng(7)
    windows = moments.astype(np.int64) // 10 * 10
    sizes = volume * np.exp(rng.normal(0, spread, len(windows)))
    frame = pl.DataFrame({WINDOW: windows, "bytes": sizes.astype(np.int64)}).group_by(WINDOW).agg(pl.col("bytes").sum())
    return frame.with_columns(pl.lit(value).alias(name) for name, value in tags.items()).select(*COLUMNS)


def put(cluster: Cluster, truth: Sequence[pl.DataFrame]) -> Store:
    store = Store(cluster.store)
    store.ensure(tuple(Retention(one.name, one.window, 0) for one in cluster.retentions()))
    scene.write(store, schema.EGRESS, pl.concat(truth).sort(WINDOW), schema.RAW)
    return store


def judged(cluster: Cluster, store: Store, stop: int = NOW + DAY + HOUR) -> pl.DataFrame:
    study = BeaconStudy(cluster, store)
    frames = []
    for at in range(NOW, stop, HOUR):
        frames += [frame for _, frame in study.judge(Span(at, at + HOUR, at + HOUR, at + HOUR), ())]
    return pl.concat(frames)


def told(found: pl.DataFrame, sources: int = 3) -> pl.DataFrame:
    """Return what the rule would compare and find too high."""
    is_rare = pl.col(schema.EVENT_SOURCES.name) <= sources
    return found.filter(pl.col(schema.BEACON_SCORE.name) >= LIMIT, is_rare)


@pytest.fixture
def cluster(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Cluster:
    return month.cluster_of(influxdb_v1.url, fresh_database)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("jitter", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("period", [60, 300, 1800])
def test_a_beacon_is_found_whatever_its_jitter(cluster: Cluster, period: int, jitter: float, seed: int) -> None:
    store = put(cluster, [sent(talk("gpu-1"), starts(period, jitter, seed=seed), spread=0.2)])
    found = told(judged(cluster, store))
    store.close()
    assert found.height
    last = found.row(-1, named=True)
    assert (last[schema.SRC], last[schema.DST]) == ("gpu-1", TO)
    assert last[schema.CALL_PERIOD.name] == pytest.approx(period, rel=0.15, abs=10)
    assert last[schema.CALL_JITTER.name] == pytest.approx(jitter, abs=0.2)
    assert found[0, WINDOW] <= NOW + DAY


FLEET = [f"gpu-{number}" for number in range(4)]
NEAR_MISSES = {
    "time": [sent(talk("gpu-1", proto="udp", service="ntp"), starts(64), 90)],
    "telemetry of the fleet, each minute": [sent(talk(src), starts(60, seed=n)) for n, src in enumerate(FLEET)],
    "a health check from outside": [sent(talk("store-1", answers=True), starts(30))],
    "a VPN to a partner that keeps itself alive": [
        sent(talk("store-1", "198.51.100.7", proto="udp", service="other"), starts(25), 200)
    ],
    "a resolver": [sent(talk("gpu-1", proto="udp", service="dns"), at_random(2_000), 300, spread=0.5)],
    "a resolver whose questions are alike": [sent(talk("gpu-1", proto="udp", service="dns"), at_random(2_000), 300)],
    "a resolver that is asked a lot": [sent(talk("gpu-1", proto="udp", service="dns"), at_random(4_000), 300)],
    "people": [sent(talk("gpu-1"), at_random(300), spread=1.0)],
    "a download": [sent(talk("gpu-1"), np.arange(NOW, NOW + DAY, 10.0), 60_000)],
    "a script that ran four hours": [sent(talk("gpu-1"), starts(60, hours=4))],
    "once an hour": [sent(talk("gpu-1"), starts(HOUR, hours=16))],
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_is_regular_by_right_is_none(cluster: Cluster, name: str) -> None:
    store = put(cluster, NEAR_MISSES[name])
    found = told(judged(cluster, store))
    store.close()
    assert found.is_empty(), found


def test_live_ticks_and_a_later_run_agree(cluster: Cluster) -> None:
    store = put(cluster, [sent(talk("gpu-1"), starts(120, 0.3)), sent(talk("store-1", "203.0.113.9"), starts(600))])
    first, stop = NOW + 20 * HOUR, NOW + 22 * HOUR
    later = judged(cluster, store).filter(pl.col(WINDOW) >= first, pl.col(WINDOW) < stop)
    live, frames = BeaconStudy(cluster, store), []
    for now in range(first + 300, stop + 300, 40):
        span = Span(max(now - 340, first), max(now - 300, first), now, now + 20)
        frames += [frame for _, frame in live.judge(span, ())]
    seen = pl.concat(frames).unique([WINDOW, *schema.BEACON.tags], keep="last").sort(WINDOW, schema.SRC)
    store.close()
    assert later.get_column(schema.SRC).n_unique() == 2
    assert seen.filter(pl.col(WINDOW) < stop).equals(later.sort(WINDOW, schema.SRC))
