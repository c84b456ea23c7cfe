"""Thefts on a real InfluxDB: whatever the shape, one incident, before a model is gone; ordinary weeks have none."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_network

import egress_scene as month
import numpy as np
import polars as pl
import pytest
import scene
from egress_scene import COLUMNS, DAY, HOUR, NOW, TALK, sent

from analysis.detectors.egress.exfiltration_study import ExfiltrationStudy, drilled, learnt, watched
from analysis.detectors.egress.history import EgressHistory
from analysis.detectors.study import Span
from cluster.model import Cluster, Group, Retention, Role
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW
from store.schema import Leak

MODEL = 140 * 10**9
BEGIN = NOW - 20 * DAY
"""What the store holds begins here: thefts begin at NOW, 22:00 UTC of a Thursday: midnight in Amsterdam."""

_GROUPS = {
    "store": "models",
    "gpu": "training",
    "nas": "storage",
    "infer": "inference",
    "mgmt": "management",
    "user": "users",
}


def cluster_of(influxdb: LocalInfluxDB, database: str) -> Cluster:
    plain = month.cluster_of(influxdb.url, database)
    more = (
        Group("storage", "Checkpoints", Role.STORAGE, (ip_network("10.30.0.0/24"),)),
        Group("inference", "Inference", Role.INFERENCE, (ip_network("10.50.0.0/24"),)),
        Group("management", "Management", Role.MANAGEMENT, (ip_network("10.60.0.0/24"),)),
        Group("users", "Users", Role.CUSTOM, (ip_network("10.70.0.0/24"),)),
    )
    return replace(plain, groups=(*plain.groups, *more))


def talk(src: str, dst: str, *, answers: bool = False, service: str = "https") -> dict[str, str]:
    group = _GROUPS.get(src.partition("-")[0], "training")
    outside = "partner" if dst.startswith("198.51.100.") else "external"
    initiator = schema.BY_DESTINATION if answers else schema.BY_SOURCE
    return dict(zip(TALK, (src, group, dst, outside, "tcp", service, schema.NO, initiator), strict=True))


def ordinary(*, busy: float = 1.0) -> pl.DataFrame:
    """Twenty-two days: partners fetch 70 to 130 GB a day, 60 clients get 40 GB of answers, a little telemetry leaves.

    People send 30 to 50 GB a day, to other addresses each day.

    Args:
        busy: what clients get in the last two days, as a multiple.
    """
    rng, theirs = np.random.default_rng(11), np.random.default_rng(12)
    frames = []
    for day in range(22):
        start = BEGIN + day * DAY
        load = busy if day >= 20 else 1.0
        for src in ("store-1", "store-2"):
            for number in range(3):
                begin = start + int(rng.integers(10 * HOUR, 16 * HOUR)) // 60 * 60
                windows = begin + np.arange(5) * 60
                frames.append(
                    sent(talk(src, f"198.51.100.{10 + number}"), windows, np.full(5, rng.uniform(12e9, 22e9) / 5))
                )
        for client in range(60):
            windows = start + rng.choice(1440, 24, replace=False) * 60
            volume = rng.uniform(0.5, 1.5, 24) * 40e9 / 60 / 24 * load
            server = f"infer-{client % 4}"
            frames.append(sent(talk(server, f"192.0.2.{client + 1}", answers=True, service="api"), windows, volume))
        for number in range(8):
            windows = start + 8 * HOUR + theirs.choice(600, 40, replace=False) * 60
            tags = talk(f"user-{number}", f"2001:db8:{day:x}::{number}")
            frames.append(sent(tags, windows, theirs.uniform(0.75, 1.25, 40) * 5e9 / 40 * load))
        windows = start + np.arange(0, DAY, 600)
        frames.append(sent(talk("mgmt-1", "203.0.113.200"), windows, np.full(len(windows), 2e6)))
    return pl.concat(frames)


def stolen(pairs: Sequence[dict[str, str]], volume: int, seconds: int, *, delay: int = 0) -> pl.DataFrame:
    """Return what is sent in equal parts over pairs and time, from NOW on."""
    windows = NOW + delay + np.arange(0, seconds, 60 if seconds <= 2 * HOUR else 300)
    each = volume / len(pairs) / len(windows)
    return pl.concat(sent(tags, windows, np.full(len(windows), each)) for tags in pairs)


def put(cluster: Cluster, truth: pl.DataFrame) -> Store:
    """Store minutes in all three retentions, as rollups would hold them."""
    store = Store(cluster.store)
    store.ensure(tuple(Retention(one.name, one.window, 0) for one in cluster.retentions()))
    summed = truth.group_by(WINDOW, *TALK).agg(pl.col("bytes").sum()).select(*COLUMNS)
    hours = (
        summed.with_columns(pl.col(WINDOW) // HOUR * HOUR).group_by(WINDOW, *TALK).agg(pl.col("bytes").sum())
    ).select(*COLUMNS)
    for retention, frame in ((schema.RAW, summed), (schema.MINUTE, summed), (schema.HOUR, hours)):
        scene.write(store, schema.EGRESS, frame.sort(WINDOW), retention)
    return store


def study_of(cluster: Cluster, store: Store) -> ExfiltrationStudy:
    return ExfiltrationStudy(cluster, store, EgressHistory(cluster, store), watched(cluster), learnt(cluster))


def judged(study: ExfiltrationStudy, start: int, stop: int, step: int = 4 * HOUR) -> pl.DataFrame:
    """Return the rows of a run over the past."""
    spans = [
        Span(at, min(at + step, stop), min(at + step, stop), min(at + step, stop)) for at in range(start, stop, step)
    ]
    return pl.concat(frame for span in spans for _, frame in study.judge(span, ()))


@dataclass(frozen=True)
class Theft:
    """One way to carry a model out.

    Attributes:
        pairs: conversations that share it.
        seconds: how long it takes.
        gone: bytes that may have left when it is reported, as a multiple of the limit of 24 hours.
        name: source and destination in the alert.
    """

    pairs: tuple[dict[str, str], ...]
    seconds: int
    kinds: tuple[Leak, ...]
    name: tuple[str, str] = ("other", "other")
    gone: float = 1.3


MANY = tuple(f"203.0.113.{number}" for number in range(20, 60))
GPUS = tuple(f"gpu-{number}" for number in range(30))
PARTNERS = tuple(f"198.51.100.{10 + number}" for number in range(3))

FAST, SLOW = (Leak.BULK, Leak.OFF_HOURS), (Leak.DAY,)
THEFTS = {
    "one address": Theft((talk("store-1", MANY[0]),), 2400, FAST, ("store-1", MANY[0])),
    "many destinations": Theft(tuple(talk("store-1", dst) for dst in MANY), 3600, SLOW, ("store-1", "other")),
    "many sources": Theft(tuple(talk(src, MANY[0]) for src in GPUS), 3600, SLOW, ("other", MANY[0])),
    "many of both": Theft(tuple(talk(src, dst) for src, dst in zip(GPUS, MANY, strict=False)), 7200, SLOW),
    "all groups to one": Theft(
        tuple(talk(src, MANY[0]) for src in ("store-1", "gpu-1", "nas-1", "infer-1", "mgmt-1")), 23 * HOUR, SLOW,
        ("other", MANY[0]),
    ),
    "all groups to many": Theft(
        tuple(talk(src, dst) for src in ("store-1", "gpu-1", "nas-1", "infer-1", "mgmt-1") for dst in MANY),
        23 * HOUR, SLOW,
    ),
    "fast, to many": Theft(tuple(talk("store-1", dst) for dst in MANY), 1200, FAST, ("store-1", "other")),
    "slow over a day": Theft((talk("store-2", MANY[1]),), 23 * HOUR, SLOW, ("store-2", MANY[1])),
    "opened by inference": Theft((talk("infer-2", MANY[1]),), 20 * HOUR, SLOW, ("infer-2", MANY[1])),
    "management by https": Theft((talk("mgmt-1", MANY[1]),), 20 * HOUR, SLOW, ("mgmt-1", MANY[1])),
    "from a server's port": Theft((talk("store-1", MANY[1], answers=True),), 20 * HOUR, SLOW, ("store-1", MANY[1])),
    "ipv6": Theft((talk("store-1", "2001:db8:bad::9"),), 20 * HOUR, SLOW, ("store-1", "2001:db8:bad::9")),
    "checkpoint storage": Theft((talk("nas-1", MANY[1], service="ssh"),), 20 * HOUR, SLOW, ("nas-1", MANY[1])),
    "machine nobody knows": Theft((talk("10.20.0.99", MANY[1]),), 20 * HOUR, SLOW, ("10.20.0.99", MANY[1])),
    "approved addresses": Theft(
        tuple(talk(src, dst) for src in ("store-1", "store-2") for dst in PARTNERS), 20 * HOUR, (Leak.LEARNT,), gone=2.6
    ),
    "approved, never met": Theft(
        (talk("store-1", "198.51.100.77"),), 20 * HOUR, (Leak.LEARNT,), gone=2.6
    ),
    "approved by another source": Theft(
        (talk("gpu-3", "198.51.100.10"),), 20 * HOUR, (Leak.LEARNT,), ("gpu-3", "198.51.100.10")
    ),
    "answers to many clients": Theft(
        tuple(talk(f"infer-{n % 4}", f"192.0.2.{n + 1}", answers=True) for n in range(60)), 20 * HOUR, (Leak.LEARNT,),
        gone=2.6,
    ),
    "answers to one client": Theft(
        (talk("infer-0", "192.0.2.1", answers=True),), 20 * HOUR, (Leak.LEARNT,), ("infer-0", "192.0.2.1"), gone=2.6
    ),
    "by way of people's machines": Theft(
        tuple(talk(f"user-{n}", dst) for n, dst in enumerate(MANY[:8])), 20 * HOUR, (Leak.LEARNT,), gone=2.6
    ),
    "half approved, half not": Theft(
        (talk("store-1", MANY[0]), talk("gpu-3", "198.51.100.10")), 23 * HOUR, (Leak.DAY, Leak.LEARNT)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", THEFTS)
def test_a_model_does_not_leave_untold(influxdb_v1: LocalInfluxDB, fresh_database: str, name: str) -> None:
    """One incident, reported before half of the model is gone, whose names are those that have most of the bytes."""
    theft = THEFTS[name]
    cluster = cluster_of(influxdb_v1, fresh_database)
    taken = stolen(theft.pairs, MODEL, theft.seconds)
    store = put(cluster, pl.concat([ordinary(), taken]))
    found = judged(study_of(cluster, store), NOW - 4 * HOUR, NOW + DAY)
    store.close()
    begins = found.unique(list(schema.EXFILTRATION.tags), keep="first", maintain_order=True)
    assert begins.height == 1, begins
    first = begins.row(0, named=True)
    assert Leak(first[schema.KIND]) in theft.kinds
    gone = taken.filter(pl.col(WINDOW) < first[WINDOW]).get_column("bytes").sum()
    assert 0 < gone <= theft.gone * cluster.thresholds.exfil_24h
    if theft.name != ("other", "other"):
        assert (first[schema.SRC], first[schema.DST]) == theft.name


# -- what is ordinary ---------------------------------------------------------------------------------

NEAR_MISSES = {
    "an ordinary day": (),
    "a busy day of the API": (),
    "a partner's usual sync, a third larger": tuple(talk("store-1", dst) for dst in PARTNERS),
    "a new approved destination": (talk("store-2", "198.51.100.99"),),
    "an upgrade day: every machine asks a mirror": tuple(
        talk(src, "203.0.113.250") for src in (*GPUS, "nas-1", "infer-1", "mgmt-1")
    ),
    "a download by a stranger": (talk("store-1", "203.0.113.9", answers=True),),
}
_VOLUMES = (0, 0, 35e9, 40e9, 12e9, 9e9)


@pytest.mark.parametrize(("name", "volume"), list(zip(NEAR_MISSES, _VOLUMES, strict=True)))
def test_an_ordinary_day_is_no_theft(influxdb_v1: LocalInfluxDB, fresh_database: str, name: str, volume: float) -> None:
    cluster = cluster_of(influxdb_v1, fresh_database)
    frames = [ordinary(busy=2.0 if "busy" in name else 1.0)]
    if NEAR_MISSES[name]:
        frames.append(stolen(NEAR_MISSES[name], int(volume), 10 * HOUR, delay=10 * HOUR))
    store = put(cluster, pl.concat(frames))
    found = judged(study_of(cluster, store), NOW - 4 * HOUR, NOW + DAY)
    store.close()
    assert found.is_empty(), found.select(WINDOW, schema.KIND, schema.SRC, schema.DST, schema.EVENT_BYTES.name)


# -- one incident, once ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dripped(influxdb_v1: LocalInfluxDB) -> Iterator[tuple[Cluster, Store]]:
    """Model storage drips 70 GB a day for three days; on the second, training sends 60 GB in ten minutes."""
    cluster = cluster_of(influxdb_v1, "exfiltration_drip")
    drip = stolen([talk("store-1", MANY[0])], 210 * 10**9, 3 * DAY)
    burst = stolen([talk("gpu-7", MANY[3])], 60 * 10**9, 600, delay=40 * HOUR)
    store = put(cluster, pl.concat([drip, burst]))
    yield cluster, store
    store.close()


def begun(found: pl.DataFrame) -> list[tuple[str, str]]:
    """Return kind and source of each alert, in the order of time."""
    each = found.unique(list(schema.EXFILTRATION.tags), keep="first", maintain_order=True)
    return [(row[schema.KIND], row[schema.SRC]) for row in each.iter_rows(named=True)]


def test_a_drip_is_one_incident_and_a_burst_beside_it_another(dripped: tuple[Cluster, Store]) -> None:
    cluster, store = dripped
    found = judged(study_of(cluster, store), NOW - 4 * HOUR, NOW + 4 * DAY)
    assert begun(found) == [("24h", "store-1"), ("bulk", "gpu-7")]
    drip = found.filter(pl.col(schema.SRC) == "store-1")
    last = drip.row(-1, named=True)
    # From the first sum that was too large to the end every byte counts.
    assert last[schema.EVENT_BYTES.name] == pytest.approx(210e9, rel=0.01)
    assert (last[schema.ARTEFACT_NAME.name], round(last[schema.LEAK_SHARE.name], 1)) == ("llama-70b", 1.5)
    assert last[schema.LEAK_SINCE.name] == NOW
    assert set(drip.get_column(WINDOW).diff().drop_nulls()) <= {*range(10, 310, 10)}


def test_live_ticks_with_a_restart_and_a_later_run_agree(dripped: tuple[Cluster, Store]) -> None:
    """What a process wrote is all that the next one knows of open incidents and of what is reported."""
    cluster, store = dripped
    middle, stop = NOW + 40 * HOUR - 600, NOW + 41 * HOUR
    later = judged(study_of(cluster, store), NOW - 4 * HOUR, stop)
    before = later.filter(pl.col(WINDOW) < middle)
    scene.write(store, schema.EXFILTRATION, before, schema.EXFILTRATION.kept)
    assert judged(study_of(cluster, store), middle, stop).equals(later.filter(pl.col(WINDOW) >= middle))
    live, frames = study_of(cluster, store), []
    for now in range(middle + 300, stop + 600, 40):
        frames += [
            frame for _, frame in live.judge(Span(max(now - 340, middle), max(now - 300, middle), now, now + 20), ())
        ]
    seen = pl.concat(frames).unique([WINDOW, *schema.EXFILTRATION.tags], keep="last").sort(WINDOW, schema.SRC)
    wanted = later.filter(pl.col(WINDOW) >= middle).sort(WINDOW, schema.SRC)
    assert seen.filter(pl.col(WINDOW) < stop).equals(wanted)
    assert wanted.get_column(schema.SRC).n_unique() == 2


def test_a_group_that_may_send_more_counts_less(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    plain = cluster_of(influxdb_v1, fresh_database)
    store = put(plain, stolen([talk("gpu-1", MANY[0])], MODEL, 20 * HOUR))
    wide = replace(
        plain, groups=tuple(replace(one, exfil_scale=3.0) if one.id == "training" else one for one in plain.groups)
    )
    counts = [len(begun(judged(study_of(each, store), NOW - HOUR, NOW + DAY))) for each in (plain, wide)]
    store.close()
    assert counts == [1, 0]


def test_a_drill_neither_hides_a_theft_nor_adds_to_one(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """Its bytes are summed up by themselves: both are told, each once, with its own bytes."""
    plain = cluster_of(influxdb_v1, fresh_database)
    drill = Group("drill", "Drill", Role.DRILL, (ip_network("10.99.0.0/28"),))
    cluster = replace(plain, groups=(*plain.groups, drill))
    staged = dict(
        zip(TALK, ("10.99.0.1", "drill", MANY[5], "external", "tcp", "https", schema.NO, schema.BY_SOURCE), strict=True)
    )
    theft = stolen((talk("store-1", MANY[0]),), MODEL, 2 * HOUR, delay=60)
    store = put(cluster, pl.concat([ordinary(), stolen((staged,), MODEL, 60), theft]))
    history = EgressHistory(cluster, store)
    real = ExfiltrationStudy(cluster, store, history, watched(cluster))
    drills = ExfiltrationStudy(cluster, store, history, drilled(cluster))
    found, alone = (judged(one, NOW - 4 * HOUR, NOW + 6 * HOUR) for one in (real, drills))
    store.close()
    assert found.unique(list(schema.EXFILTRATION.tags)).select(schema.SRC, schema.DST).rows() == [("store-1", MANY[0])]
    # With a day's telemetry of management.
    largest = found.get_column(schema.EVENT_BYTES.name).max()
    assert isinstance(largest, int)
    assert MODEL <= largest < MODEL + 3e8
    assert set(alone.get_column(schema.SRC_GROUP)) == {"drill"}
    assert set(alone.get_column(schema.EVENT_BYTES.name)) == {MODEL}
