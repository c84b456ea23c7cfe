"""Thefts on a real InfluxDB: whatever the shape, one incident, before a model is gone; ordinary weeks have none."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, time
from ipaddress import ip_network

import numpy as np
import polars as pl
import pytest
import scene

from analysis.detectors.egress import exfiltration
from analysis.detectors.egress.exfiltration_study import ExfiltrationStudy, drilled, watched
from analysis.detectors.egress.history import BIN, BYTES, EgressHistory
from analysis.detectors.study import Span
from bench.evasions.library import MANY, NEAR_MISSES, PARTNERS, THEFTS, Theft
from bench.evasions.play import judged, play, study_of
from bench.evasions.scene import DAY, HOUR, MODEL, NOW, TALK, add, cluster_of, ordinary, put, sent, stolen, talk
from cluster.model import Cluster, Group, OffHours, Role
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW
from store.schema import Leak

# A part of the library, one of each kind of sum, which `python -m bench.evasions` plays as a whole.
TOLD = (
    "fast, to many", "many of both", "machine nobody knows", "by way of people's machines", "approved addresses",
    "answers to many clients", "half approved, half not", "sampled 1:4096, in an hour", "forged public sources, IPv6",
)  # fmt: skip
UNTOLD = (
    "a partner's usual sync, a third larger", "an upgrade day: every machine asks a mirror",
    "a network of no group fetches an upgrade",
)  # fmt: skip


@pytest.fixture(scope="module")
def usual(influxdb_v1: LocalInfluxDB) -> Iterator[tuple[Cluster, Store]]:
    """Three ordinary weeks."""
    cluster = cluster_of(influxdb_v1.url, "exfiltration_usual")
    store = put(cluster, ordinary())
    yield cluster, store
    store.close()


@pytest.mark.parametrize("name", TOLD)
def test_a_model_does_not_leave_untold(usual: tuple[Cluster, Store], name: str) -> None:
    """One incident, reported before half of the model is gone, whose names are those that have most of the bytes."""
    theft, (cluster, store) = THEFTS[name], usual
    told = play(cluster, store, theft)
    assert told.alerts == 1, told
    assert 0 < told.gone <= theft.gone * cluster.thresholds.exfil_24h
    if any(theft.name):
        assert told.name == theft.name


@pytest.mark.parametrize("name", UNTOLD)
def test_an_ordinary_day_is_no_theft(usual: tuple[Cluster, Store], name: str) -> None:
    cluster, store = usual
    assert not play(cluster, store, NEAR_MISSES[name]).alerts


def test_a_busy_day_of_the_api_is_no_theft(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    cluster = cluster_of(influxdb_v1.url, fresh_database)
    store = put(cluster, ordinary(busy=2.0))
    told = play(cluster, store, NEAR_MISSES["a busy day of the API and of people"])
    store.close()
    assert not told.alerts, told


def test_a_theft_is_told_where_approved_addresses_get_little(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """Half goes to an approved address, and neither half is too much by itself."""
    cluster = cluster_of(influxdb_v1.url, fresh_database)
    store = put(cluster, ordinary().filter(pl.col(schema.SRC) == "mgmt-1"))
    theft = Theft((talk("store-1", MANY[0]), talk("gpu-3", PARTNERS[0])), volume=90e9)
    told = play(cluster, store, theft)
    store.close()
    assert (told.alerts, told.gone < 60e9) == (1, True), told


@pytest.mark.parametrize("late", [0, 25])
def test_a_nightly_copy_is_no_theft(influxdb_v1: LocalInfluxDB, fresh_database: str, late: int) -> None:
    """500 GB within an hour, by the clock on the wall, which is put forward in the second night.

    Every other night it begins some minutes later.
    """
    cluster = cluster_of(influxdb_v1.url, fresh_database)
    nights = [datetime(2026, 3, day, 4, late * (day % 2), tzinfo=cluster.site.time_zone) for day in range(14, 30)]
    begins = [int(night.timestamp()) for night in nights]
    bins = np.arange(0, HOUR, BIN)
    copy = talk("store-1", PARTNERS[0])
    store = put(cluster, pl.concat(sent(copy, begin + bins, np.full(len(bins), 500e9 / len(bins))) for begin in begins))
    study = study_of(cluster, store)
    found = [begun(judged(study, begin // HOUR * HOUR, begin // HOUR * HOUR + 2 * HOUR)) for begin in begins[-2:]]
    store.close()
    assert found == [[], []]


# -- what is usual --------------------------------------------------------------------------------------

THEFT = 2 * 10**12


def limit_after(*reports: tuple[str, int], days: int = 28, dark: int | None = None, lost: int = THEFT) -> float:
    """Return the limit of people who send 100 GB a day, and lost 2 TB 6 days ago; a report: group, hours before now.

    Of the day `dark` nothing was heard: the newest that counts is 0.
    """
    study = ExfiltrationStudy.__new__(ExfiltrationStudy)
    study.cluster = scene.cluster_of("", "")
    hours = np.arange(NOW - (days + 2) * DAY, NOW, HOUR)
    sent = np.random.default_rng(1).normal(4e9, 2e8, len(hours)).astype(np.int64)
    sent[hours == NOW - 6 * DAY] += lost
    is_dark = np.arange(days) == (-1 if dark is None else dark)
    if dark is not None:
        sent[(hours >= NOW - (dark + 2) * DAY) & (hours < NOW - (dark + 1) * DAY)] = 0
    people = pl.DataFrame({schema.SRC_GROUP: ["office"]})
    past = pl.DataFrame({schema.SRC_GROUP: ["office"] * len(hours), WINDOW: hours, BYTES: sent})
    usual = study.usual_of(
        past, people, (schema.SRC_GROUP,), until=NOW, first=int(hours[0]),
        reports=[(group, NOW - ago * HOUR) for group, ago in reports], dark=is_dark[: max(days, 0)],
    )  # fmt: skip
    return float(usual.limit[0]) if usual.is_known[0] else 0.0


@pytest.mark.parametrize(
    ("group", "later"),
    [
        pytest.param("office", [], id="no other report"),
        pytest.param("office", [("office", 48)], id="a later one of the group"),
        pytest.param("office", [("training", 48)], id="a later one of another group"),
        pytest.param("training", [("training", 48)], id="under the name of a group that had a larger part"),
        pytest.param("office", [("training", 24 * day) for day in range(28)], id="another group, each day"),
        pytest.param("office", [("office", 24 * day) for day in range(28)], id="the group, each day"),
    ],
)
def test_a_reported_theft_does_not_become_usual(group: str, later: list[tuple[str, int]]) -> None:
    assert 95e9 < limit_after((group, 6 * 24 - 1), *later) < 115e9


def test_a_theft_that_nobody_reported_is_what_lifts_the_limit() -> None:
    assert limit_after() > THEFT


def test_a_day_without_a_collector_does_not_widen_the_limit() -> None:
    assert 95e9 < limit_after(lost=0, dark=12) < 115e9


def test_days_of_which_nothing_was_heard_are_known(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    cluster = cluster_of(influxdb_v1.url, fresh_database)
    store = put(cluster, ordinary().clear())
    study, until = study_of(cluster, store), NOW // HOUR * HOUR
    assert not study.dark_days(until, 28).any(), "where no bridge ever said what it heard"
    hours = [at for at in range(until - 30 * DAY, until, HOUR) if not until - 14 * DAY <= at < until - 13 * DAY + HOUR]
    frame = pl.DataFrame({WINDOW: hours}).with_columns(
        pl.lit("border").alias(schema.EXPORTER), pl.lit("0").alias(schema.SHARD), pl.lit(9).alias("records")
    )
    scene.write(store, schema.EXPORTER_STATUS, frame, schema.HOUR)
    fresh = study_of(cluster, store)
    for _ in range(2):
        assert np.flatnonzero(fresh.dark_days(until, 28)).tolist() == [12]
    store.close()


def test_a_short_past_with_too_few_days_left_says_nothing() -> None:
    assert limit_after(("office", 6 * 24 - 1), days=9) == 0


def test_reports_of_a_month_outlive_a_restart_and_no_older_ones() -> None:
    state, found = exfiltration.State(), []
    talks = pl.DataFrame(
        schema={**dict.fromkeys(exfiltration.TALK, pl.String()), WINDOW: pl.Int64(), BYTES: pl.Int64()}
    )
    horizon = exfiltration.Horizon(Leak.DAY, DAY, 1)
    for at, group in ((NOW - 40 * DAY, "office"), (NOW - 20 * DAY, "office"), (NOW - 2 * DAY + 10, "training")):
        state.close(at)
        found.append((at, exfiltration.report(state, at, horizon, talks=talks, sent=1.0, untold=0.0, group=group)))
    assert state.reports == {("office", NOW - 20 * DAY), ("training", NOW - 2 * DAY)}
    restored, _ = exfiltration.state_of(exfiltration.rows(found, ()), NOW)
    assert restored.reports == state.reports


# -- one incident, once ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dripped(influxdb_v1: LocalInfluxDB) -> Iterator[tuple[Cluster, Store]]:
    """Model storage drips 70 GB a day for three days; on the second, training sends 60 GB in ten minutes."""
    cluster = cluster_of(influxdb_v1.url, "exfiltration_drip")
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
    # It is open for long after its last byte, and lasted no longer for that.
    burst = found.filter(pl.col(schema.SRC) == "gpu-7")
    assert 3 * DAY - 600 < last[schema.EVENT_SECONDS.name] <= 3 * DAY
    assert 600 <= burst[-1, schema.EVENT_SECONDS.name] <= 900
    assert set(drip.get_column(WINDOW).diff().drop_nulls()) <= {*range(10, 310, 10)}


@pytest.mark.parametrize(
    ("hours", "volumes", "kind"),
    [
        pytest.param((2, 1), (800e9, 250e9), "bulk", id="minutes"),
        pytest.param((30, 1), (400e9, 250e9), "bulk", id="beneath a drip"),
    ],
)
def test_a_second_groups_theft_beneath_an_open_incident_has_its_own_source(
    influxdb_v1: LocalInfluxDB, fresh_database: str, hours: tuple[int, int], volumes: tuple[float, float], kind: str
) -> None:
    """The smaller of two thefts at once: each has its own names, and its own bytes once."""
    cluster = cluster_of(influxdb_v1.url, fresh_database)
    begin = NOW + 12 * HOUR
    pairs = [talk("store-1", MANY[0])], [talk("gpu-7", MANY[3])]
    thefts = [
        stolen(pair, volume, lasting * HOUR, delay=12 * HOUR + at)
        for pair, volume, lasting, at in zip(pairs, volumes, hours, (0, hours[0] * 900), strict=True)
    ]
    store = put(cluster, pl.concat(thefts))
    stop = begin + 2 * DAY
    found = judged(study_of(cluster, store), begin - HOUR, stop)
    (_, larger), (second, smaller) = begun(found)
    assert (larger, smaller, second) == ("store-1", "gpu-7", kind)
    for src, dst, volume in zip((larger, smaller), (MANY[0], MANY[3]), volumes, strict=True):
        last = found.filter(pl.col(schema.SRC) == src).row(-1, named=True)
        assert last[schema.DST] == dst
        assert last[schema.EVENT_BYTES.name] == pytest.approx(volume, rel=0.01)
    # A restart just after the second began knows of both from their rows.
    opened = int(found.filter(pl.col(schema.SRC) == smaller)[0, WINDOW])
    middle = -(-(opened + 10) // 10) * 10
    scene.write(store, schema.EXFILTRATION, found.filter(pl.col(WINDOW) < middle), schema.EXFILTRATION.kept)
    again = judged(study_of(cluster, store), middle, stop)
    store.close()
    assert again.equals(found.filter(pl.col(WINDOW) >= middle))


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param([talk(src, MANY[0]) for src in ("store-1", "store-2", "gpu-1", "nas-1")], id="of three groups"),
        pytest.param([talk("store-1", PARTNERS[0])], id="to an approved address"),
    ],
)
def test_an_incident_that_goes_on_has_all_that_was_reported(
    influxdb_v1: LocalInfluxDB, fresh_database: str, pairs: list[dict[str, str]]
) -> None:
    """Its last words are of two limits at least: after the second nobody else tells of those bytes."""
    cluster = cluster_of(influxdb_v1.url, fresh_database)
    past = ordinary().filter(pl.col(schema.SRC) == "mgmt-1")
    store = put(cluster, pl.concat([past, stolen(pairs, MODEL, 20 * HOUR)]))
    found = judged(study_of(cluster, store), NOW - HOUR, NOW + DAY)
    store.close()
    assert len(begun(found)) == 1
    assert 100e9 < float(found[-1, schema.EVENT_BYTES.name]) <= MODEL + 1e9


@pytest.mark.parametrize("restarts", [False, True])
def test_bytes_that_come_late_make_no_second_alert(
    influxdb_v1: LocalInfluxDB, fresh_database: str, *, restarts: bool
) -> None:
    """Records come once a minute: with those of the second conversation the incident begins 20 s earlier."""
    cluster, begin = cluster_of(influxdb_v1.url, fresh_database), NOW + 12 * HOUR
    windows = begin + np.arange(0, 600, 10)
    one, other = (sent(talk("store-1", dst), windows, np.full(60, 5e8)) for dst in MANY[:2])
    is_early = pl.col(WINDOW) < begin + 480
    store = put(cluster, pl.concat([one, other.filter(is_early)]))
    study = study_of(cluster, store)
    passes = []
    for closed in (begin + 600, begin + 610, begin + 900):
        passes += [frame for _, frame in study.judge(Span(begin, begin + 20, closed, closed), ())]
        if closed == begin + 600:
            add(store, other.filter(~is_early), "late")
            scene.write(store, schema.EXFILTRATION, passes[0], schema.EXFILTRATION.kept)
            study = study_of(cluster, store) if restarts else study
    store.close()
    assert [int(one[0, WINDOW]) - begin for one in passes] == [530, 510, 510]
    assert len(begun(pl.concat(passes))) == 1


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


@pytest.mark.parametrize(
    ("hours", "volume", "kind"), [pytest.param(5, 80e9, "24h", id="hours"), pytest.param(54, 110e9, "7d", id="days")]
)
def test_a_theft_that_an_outage_held_back_is_told(
    influxdb_v1: LocalInfluxDB, fresh_database: str, hours: int, volume: float, kind: str
) -> None:
    """Windows are final after an hour without their bytes, so no short sum has them; that of the day, or week, has."""
    cluster = cluster_of(influxdb_v1.url, fresh_database)
    store = put(cluster, ordinary(days=1))
    study, back = study_of(cluster, store), NOW + hours * HOUR
    found, final = [], NOW
    for closed in (NOW, back, *range(back + 300, back + (2 if hours < 24 else 5) * HOUR, 300)):
        if closed == back + 300:
            add(store, stolen([talk("store-1", MANY[0])], volume, 600, delay=300))
        # At the first look after the outage the bridge has not read its backlog yet.
        start, final = final, NOW if closed == NOW else back - 3_900 if closed == back else closed - 300
        found += [frame for _, frame in study.judge(Span(start, final, closed, closed), ())]
    store.close()
    assert begun(pl.concat(found)) == [(kind, "store-1")]


def test_a_burst_that_everybody_knows_hides_no_drip(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """Each night training sends 14 GB, which is told; 28 GB a day of model storage are in no short sum, and 7 days'."""
    cluster = cluster_of(influxdb_v1.url, fresh_database)
    night, days = 2 * HOUR, 4
    bursts = [stolen([talk("gpu-7", MANY[3])], 14e9, 900, delay=day * DAY + night) for day in range(days)]
    drip = stolen([talk("store-1", dst) for dst in MANY[:2]], 28e9 * days, days * DAY)
    store = put(cluster, pl.concat([drip, *bursts]))
    found = judged(study_of(cluster, store), NOW, NOW + days * DAY)
    is_night = pl.col(schema.SRC) == "gpu-7"
    assert found.filter(is_night).get_column(schema.LEAK_REPORTED.name).n_unique() >= 3
    week = found.filter(~is_night).row(0, named=True)
    assert (week[schema.KIND], week[schema.SRC]) == ("7d", "store-1")
    assert "gpu-7" not in week[schema.LARGEST]
    # The bursts are told already.
    assert week[schema.EVENT_BYTES.name] == pytest.approx(cluster.thresholds.exfil_7d, rel=0.01)
    # What is told already is read back from the rows.
    middle = NOW + 3 * DAY
    scene.write(store, schema.EXFILTRATION, found.filter(pl.col(WINDOW) < middle), schema.EXFILTRATION.kept)
    again = judged(study_of(cluster, store), middle, NOW + days * DAY)
    store.close()
    assert again.equals(found.filter(pl.col(WINDOW) >= middle))


def test_what_is_told_is_no_part_of_a_later_incident(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """60 GB in ten hours, of which 50 are told; three days later two times 46 GB in a day make the week too large."""
    cluster = cluster_of(influxdb_v1.url, fresh_database)
    days = [stolen([talk("store-2", MANY[1])], 46e9, 20 * HOUR, delay=day * DAY) for day in (3, 4)]
    store = put(cluster, pl.concat([stolen([talk("store-1", MANY[0])], 60e9, 10 * HOUR), *days]))
    found = judged(study_of(cluster, store), NOW, NOW + 5 * DAY)
    store.close()
    assert begun(found) == [("24h", "store-1"), ("7d", "store-2")]
    week = found.filter(pl.col(schema.KIND) == "7d").row(0, named=True)
    assert NOW + 8 * HOUR <= week[schema.LEAK_SINCE.name] <= NOW + 9 * HOUR
    assert week[schema.EVENT_BYTES.name] == pytest.approx(cluster.thresholds.exfil_7d, rel=0.01)


def test_a_group_that_may_send_more_counts_less(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    plain = cluster_of(influxdb_v1.url, fresh_database)
    store = put(plain, stolen([talk("gpu-1", MANY[0])], MODEL, 20 * HOUR))
    wide = replace(
        plain, groups=tuple(replace(one, exfil_scale=3.0) if one.id == "training" else one for one in plain.groups)
    )
    counts = [len(begun(judged(study_of(each, store), NOW - HOUR, NOW + DAY))) for each in (plain, wide)]
    store.close()
    assert counts == [1, 0]


def test_at_a_groups_own_off_hours_its_limit_is_the_lower_one(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    plain = cluster_of(influxdb_v1.url, fresh_database)
    limits, begin = plain.thresholds, datetime.fromtimestamp(NOW, plain.site.time_zone)
    store = put(plain, stolen([talk("gpu-1", MANY[0])], (limits.exfil_off_hours + limits.exfil_volume) // 2, 600))
    site, own = (OffHours(time((begin.hour + at) % 24), time((begin.hour + at + 2) % 24)) for at in (6, 0))
    day = replace(plain, site=replace(plain.site, off_hours=site))
    hours = replace(
        day, groups=tuple(replace(one, off_hours=own) if one.id == "training" else one for one in day.groups)
    )
    counts = [begun(judged(study_of(each, store), NOW - HOUR, NOW + HOUR)) for each in (day, hours)]
    store.close()
    assert counts == [[], [("off_hours", "gpu-1")]]


def test_a_group_keeps_its_past_when_it_is_renamed(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """What partners usually get is still known, and what a drip has brought out so far still counts."""
    plain = cluster_of(influxdb_v1.url, fresh_database)
    names = {"models": "weights"}
    cluster = replace(
        plain,
        groups=tuple(replace(one, id=names.get(one.id, one.id)) for one in plain.groups),
        nodes=tuple(replace(one, group=names.get(one.group, one.group)) for one in plain.nodes),
    )
    drip = stolen([talk("store-1", MANY[0])], 110e9, 5 * DAY, delay=-4 * DAY)
    truth = pl.concat([ordinary(), drip]).with_columns(
        pl.when(pl.col(WINDOW) < NOW)
        .then(schema.SRC_GROUP)
        .otherwise(pl.col(schema.SRC_GROUP).replace(names))
        .alias(schema.SRC_GROUP)
    )
    store = put(cluster, truth)
    found = judged(study_of(cluster, store), NOW, NOW + 2 * DAY)
    store.close()
    assert [*begun(found), *found.get_column(schema.SRC_GROUP).unique()] == [("7d", "store-1"), "weights"]


def test_what_was_approved_when_it_was_sent_is_no_theft_once_the_addresses_change(
    usual: tuple[Cluster, Store],
) -> None:
    """Partners got 100 GB a day; from now on they have other addresses, and what goes to the old ones is a theft."""
    cluster, store = usual
    moved = tuple(
        replace(one, prefixes=(ip_network("198.51.99.0/24"),)) if one.id == "partner" else one for one in cluster.groups
    )
    theft = talk("store-1", "198.51.100.11") | {schema.DST_GROUP: "external"}
    changed = replace(cluster, groups=moved)
    assert not begun(judged(study_of(changed, store), NOW, NOW + 2 * HOUR))
    told = play(changed, store, Theft((theft,)))
    assert (told.alerts, told.kind) == (1, Leak.DAY.value), told


def test_a_drill_neither_hides_a_theft_nor_adds_to_one(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """Its bytes are summed up by themselves: both are told, each once, with its own bytes."""
    plain = cluster_of(influxdb_v1.url, fresh_database)
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
    # With the telemetry of management, of a day and of the hours in which it went on.
    largest = found.get_column(schema.EVENT_BYTES.name).max()
    assert isinstance(largest, int)
    assert MODEL <= largest < MODEL + 4e8
    assert set(alone.get_column(schema.SRC_GROUP)) == {"drill"}
    assert set(alone.get_column(schema.EVENT_BYTES.name)) == {MODEL}


def test_what_samples_say_is_judged_by_what_left_at_least(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """Beside an exporter that sees one packet in 4,096, 50.5 GB may be less than 50; 52 GB are more."""
    cluster = cluster_of(influxdb_v1.url, fresh_database)
    store = put(cluster, stolen([talk("gpu-1", MANY[0])], 50.5e9, 5 * HOUR, delay=12 * HOUR))

    def told() -> int:
        return len(begun(judged(study_of(cluster, store), NOW + 11 * HOUR, NOW + DAY)))

    assert told() == 1
    moments = range(NOW - DAY, NOW + DAY, HOUR)
    store.write("\n".join(f"exporter,exporter=b,shard=0 sampling=4096i {at}" for at in moments).encode(), schema.MINUTE)
    assert told() == 0
    add(store, stolen([talk("gpu-2", MANY[0])], 1.5e9, 5 * HOUR, delay=12 * HOUR))
    assert told() == 1
    # One device that is told to see next to nothing must not silence the sum of all.
    store.write(f"exporter,exporter=c,shard=0 sampling={2**31 - 1}i {NOW}".encode(), schema.MINUTE)
    assert told() == 0
    add(store, stolen([talk("gpu-2", MANY[0])], 100e9, 5 * HOUR, delay=12 * HOUR))
    assert told() == 1
    store.close()
