"""The ledger on a real InfluxDB: exact to the byte over a month of rolled-up windows, live as well as later."""

from collections.abc import Iterator
from dataclasses import replace

import egress_scene as month
import numpy as np
import polars as pl
import pytest
from egress_scene import DAY, HOUR, NOW, Month, sent, talk

from analysis.detectors.egress.history import EgressHistory
from analysis.detectors.egress.ledger import LedgerPolicy, LedgerStudy
from analysis.detectors.egress.recurrence import RecurrenceStudy
from analysis.detectors.study import Span
from bench.evasions.scene import add, put
from cluster.model import Cluster
from store import schema
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW

HORIZONS = {
    schema.BYTES_1H.name: HOUR,
    schema.BYTES_24H.name: DAY,
    schema.BYTES_7D.name: 7 * DAY,
    schema.BYTES_30D.name: 30 * DAY,
}
PAIRS = [
    ("store-1", "203.0.113.9"),
    ("store-2", "198.51.100.7"),
    ("gpu-0", "203.0.113.9"),
    ("gpu-1", "other"),
    ("gpu-2", "203.0.113.77"),
]


def truth() -> pl.DataFrame:
    """Five pairs over 33 days: random windows, one pair by two services and from both sides, one only of late."""
    rng = np.random.default_rng(7)
    begin = NOW - 33 * DAY
    frames = []
    for number, (src, dst) in enumerate(PAIRS):
        first = NOW - 2 * HOUR if number == 4 else begin
        count = 300 if number == 4 else 2_500
        windows = np.unique(rng.integers(first // 10, (NOW + HOUR) // 10, count)) * 10
        frames.append(sent(talk(src, dst), windows, rng.integers(1, 10**8, len(windows))))
    extra = np.unique(rng.integers(begin // 10, NOW // 10, 1_000)) * 10
    frames.append(sent(talk("store-1", "203.0.113.9", service="ssh"), extra, rng.integers(1, 10**7, len(extra))))
    replies = talk("store-1", "203.0.113.9", initiator=schema.BY_DESTINATION)
    frames.append(sent(replies, extra, rng.integers(1, 10**6, len(extra))))
    return pl.concat(frames)


@pytest.fixture(scope="module")
def stored(influxdb_v1: LocalInfluxDB) -> Iterator[tuple[Cluster, Month]]:
    cluster = month.cluster_of(influxdb_v1.url, "ledger_month")
    found = month.store_month(cluster, truth(), raw_from=NOW - 7 * DAY)
    yield cluster, found
    found.store.close()


def rows(study: LedgerStudy, *spans: Span) -> pl.DataFrame:
    """Return what a study says in one pass after another, the last word on each moment."""
    frames = [frame for span in spans for _, frame in study.judge(span, ())]
    keys = [WINDOW, schema.SRC, schema.DST]
    return pl.concat(frames).unique(keys, keep="last", maintain_order=True).sort(keys)


def passes(start: int, stop: int, step: int = HOUR) -> list[Span]:
    """Return the passes of a later run over the past."""
    return [
        Span(at, min(at + step, stop), min(at + step, stop), min(at + step, stop)) for at in range(start, stop, step)
    ]


@pytest.mark.parametrize("at", [NOW, NOW + 5 * 60, NOW + 35 * 60, NOW - 2 * DAY, NOW - 2 * DAY + 55 * 60])
def test_sums_are_exact_to_the_byte(stored: tuple[Cluster, Month], at: int) -> None:
    cluster, held = stored
    study = LedgerStudy(cluster, EgressHistory(cluster, held.store))
    found = rows(study, Span(at, at + 10, at + 10, at + 10))
    assert found.get_column(WINDOW).unique().to_list() == [at]
    for row in found.iter_rows(named=True):
        for name, horizon in HORIZONS.items():
            wanted = held.total(row[schema.SRC], row[schema.DST], at - horizon, at)
            assert row[name] == wanted, (row[schema.SRC], row[schema.DST], name)
    assert {(row[schema.SRC], row[schema.DST]) for row in found.iter_rows(named=True)} == {
        pair for pair in PAIRS if held.total(*pair, at - 30 * DAY, at)
    }


def test_one_study_stays_exact_from_moment_to_moment(stored: tuple[Cluster, Month]) -> None:
    """Three hours and a bit: whole hours move on, horizons begin within hours."""
    cluster, held = stored
    found = rows(LedgerStudy(cluster, EgressHistory(cluster, held.store)), *passes(NOW - 2 * HOUR - 600, NOW + 900))
    moments = found.get_column(WINDOW).unique()
    assert len(moments) == (2 * HOUR + 1500) // 300
    for row in found.iter_rows(named=True):
        for name, horizon in HORIZONS.items():
            at = row[WINDOW]
            assert row[name] == held.total(row[schema.SRC], row[schema.DST], at - horizon, at), (at - NOW, name)


def test_live_ticks_and_a_later_run_agree(stored: tuple[Cluster, Month]) -> None:
    cluster, held = stored
    start, stop = NOW - HOUR - 600, NOW + 900
    grace = 300
    live = LedgerStudy(cluster, EgressHistory(cluster, held.store))
    ticks = [
        Span(max(now - grace - 40, start), max(now - grace, start), now, now + 20) for now in range(start, stop + 1, 40)
    ]
    # The process is started again in the middle.
    again = LedgerStudy(cluster, EgressHistory(cluster, held.store))
    half = len(ticks) // 2
    seen = pl.concat([rows(live, *ticks[:half]), rows(again, *ticks[half:])])
    seen = seen.unique([WINDOW, schema.SRC, schema.DST], keep="last").sort(WINDOW, schema.SRC, schema.DST)
    later = rows(LedgerStudy(cluster, EgressHistory(cluster, held.store)), *passes(start, stop))
    assert seen.filter(pl.col(WINDOW) < stop).equals(later)


def test_late_bytes_reach_the_rows_that_may_still_change(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    cluster = month.cluster_of(influxdb_v1.url, fresh_database)
    early = sent(talk("gpu-0", "203.0.113.9"), np.array([NOW - 1000]), np.array([70]))
    held = month.store_month(cluster, early, raw_from=0)
    study = LedgerStudy(cluster, EgressHistory(cluster, held.store))
    before = rows(study, Span(NOW - 300, NOW - 290, NOW + 10, NOW + 20))
    late = sent(talk("gpu-0", "203.0.113.9"), np.array([NOW - 200]), np.array([5]))
    month.scene.write(held.store, schema.EGRESS, late.with_columns(pl.lit("0").alias(schema.SHARD)))
    after = rows(study, Span(NOW - 300, NOW + 50, NOW + 350, NOW + 360))
    held.store.close()
    at = dict(zip(after.get_column(WINDOW), after.iter_rows(named=True), strict=True))
    assert before.filter(pl.col(WINDOW) == NOW).get_column(schema.BYTES_1H.name).to_list() == [70]
    assert at[NOW - 300][schema.BYTES_1H.name] == 70
    assert at[NOW][schema.BYTES_1H.name] == 75
    assert at[NOW + 300][schema.BYTES_24H.name] == 75


def test_bytes_that_an_outage_held_back_for_hours_are_in_later_rows(
    influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    """Its hours were read empty: windows are final an hour after their time, whether or not the bridge has come."""
    cluster = month.cluster_of(influxdb_v1.url, fresh_database)
    windows = np.arange(NOW - 3 * DAY, NOW + 7 * HOUR, 600)
    truth = sent(talk("gpu-0", "203.0.113.9"), windows, np.full(len(windows), 10))
    store, out, back = put(cluster, truth.filter(pl.col(WINDOW) < NOW)), NOW, NOW + 5 * HOUR
    history = EgressHistory(cluster, store)
    studies = LedgerStudy(cluster, history), RecurrenceStudy(cluster, history)
    final, last = NOW - 300, [pl.DataFrame(), pl.DataFrame()]
    for closed in (NOW, back, *range(back + 300, back + 2 * HOUR, 300)):
        if closed == back + 300:
            add(store, truth.filter(pl.col(WINDOW) >= out), "late")
        # At the first look after the outage the bridge has not read its backlog yet.
        start, final = final, back - 3_900 if closed == back else closed - 300
        span = Span(start, final, closed, closed)
        last = [pl.concat(frame for _, frame in study.judge(span, ())).sort(WINDOW).tail(1) for study in studies]
    store.close()
    at = int(last[0][0, WINDOW])
    hours, sums = -(-(at - windows[0]) // HOUR), 10 * -(-(at - windows[0]) // 600)
    asked = [schema.BYTES_24H.name, schema.SLOW_7D.name, schema.ACTIVE_HOURS.name]
    assert last[0].select(asked).row(0) == (10 * DAY // 600, sums, hours)
    assert last[1].select(schema.BYTES_30D.name, schema.ACTIVE_HOURS.name).row(0) == (sums, hours)


def test_hours_and_days_are_counted_by_the_site_s_clock(stored: tuple[Cluster, Month]) -> None:
    cluster, held = stored
    found = rows(LedgerStudy(cluster, EgressHistory(cluster, held.store)), Span(NOW, NOW + 10, NOW + 10, NOW + 10))
    offset = 2 * HOUR  # Amsterdam in May; the month before has it, too
    for row in found.iter_rows(named=True):
        mine = held.truth.filter(
            pl.col(schema.SRC) == row[schema.SRC], pl.col(schema.DST) == row[schema.DST], pl.col(WINDOW) < NOW
        ).get_column(WINDOW)
        hours = {window // HOUR for window in mine if window >= NOW - 7 * DAY}
        today = (NOW + offset) // DAY
        days = {(window + offset) // DAY for window in mine if (window + offset) // DAY > today - 30}
        assert row[schema.ACTIVE_HOURS.name] == len(hours)
        assert row[schema.ACTIVE_DAYS.name] == len(days)


def test_what_the_minutes_no_longer_hold_makes_a_horizon_shorter_not_longer(
    influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    """Retention 1m of three days: a week begins within an hour of which only the whole is known."""
    cluster = month.cluster_of(influxdb_v1.url, fresh_database)
    windows = np.arange(NOW - 8 * DAY, NOW, 600)
    held = month.store_month(
        cluster, sent(talk("gpu-0", "203.0.113.9"), windows, np.full(len(windows), 10)),
        raw_from=NOW - 2 * DAY, minutes_from=NOW - 3 * DAY,
    )  # fmt: skip
    at = NOW + 1200
    found = rows(LedgerStudy(cluster, EgressHistory(cluster, held.store)), Span(at, at + 10, at + 10, at + 10))
    held.store.close()
    row = found.row(0, named=True)
    assert row[schema.BYTES_7D.name] == 10 * len(windows[windows >= at - 7 * DAY + 2400])
    assert row[schema.BYTES_24H.name] == held.total("gpu-0", "203.0.113.9", at - DAY, at)


def test_a_destination_that_was_approved_since_is_one_row(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """Its old rows say external; cluster.yaml lists its address now."""
    cluster = month.cluster_of(influxdb_v1.url, fresh_database)
    old = talk("store-1", "198.51.100.50") | {schema.DST_GROUP: "external"}
    held = month.store_month(
        cluster,
        pl.concat([
            sent(old, np.array([NOW - 5 * DAY]), np.array([30])),
            sent(talk("store-1", "198.51.100.50"), np.array([NOW - 600]), np.array([4])),
        ]),
        raw_from=0,
    )  # fmt: skip
    found = rows(LedgerStudy(cluster, EgressHistory(cluster, held.store)), Span(NOW, NOW + 10, NOW + 10, NOW + 10))
    held.store.close()
    assert found.select(schema.DST_GROUP, schema.BYTES_7D.name).rows() == [("partner", 34)]


def test_a_pair_is_one_row_with_what_was_last_known_of_its_destination(
    influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    """A new file of places splits what is stored, and neither sums nor rows; without any the last word stands."""
    cluster = month.cluster_of(influxdb_v1.url, fresh_database)
    windows, change, gone = np.arange(NOW - 3 * DAY, NOW + 900, 600), NOW - 2 * HOUR, NOW - HOUR
    network = (
        pl.when(pl.col(WINDOW) < change)
        .then(pl.lit("AS1 One"))
        .when(pl.col(WINDOW) < gone)
        .then(pl.lit("AS2 Two"))
        .otherwise(pl.lit(""))
    )
    named = sent(talk("store-1", "203.0.113.9"), windows, np.full(len(windows), 10)).with_columns(
        network.alias(schema.NETWORK)
    )
    folded = sent(talk("store-1", schema.OTHER), windows, np.full(len(windows), 1)).with_columns(
        pl.lit(schema.OTHER).alias(schema.NETWORK)
    )
    held = month.store_month(cluster, pl.concat([named, folded]), raw_from=0)
    study = LedgerStudy(cluster, EgressHistory(cluster, held.store))
    found = rows(study, *passes(NOW - 3 * HOUR, NOW + 900))
    held.store.close()
    moments = found.get_column(WINDOW).unique().sort()
    assert found.height == 2 * len(moments)
    for row in found.iter_rows(named=True):
        at, dst = row[WINDOW], row[schema.DST]
        known = "AS1 One" if at <= change else "AS2 Two"
        assert row[schema.NETWORK] == ("" if dst == schema.OTHER else known), at - NOW
        assert row[schema.BYTES_7D.name] == held.total("store-1", dst, at - 7 * DAY, at)


# -- bursts that exfil_volume has told of ----------------------------------------------------------------

GB = 10**9


def drip_and_burst(start: int, *, volume: int = 60 * GB, seconds: int = 600, dst: str = "203.0.113.9") -> pl.DataFrame:
    """1 GB an hour for a week, and a burst on top of it that begins at `start`."""
    drip = np.arange(NOW - 7 * DAY, NOW, HOUR)
    burst = np.arange(start, start + seconds, 10)
    return pl.concat([
        sent(talk("store-1", dst), drip, np.full(len(drip), GB)),
        sent(talk("store-1", dst, service="ssh"), burst, np.full(len(burst), volume // len(burst))),
    ])  # fmt: skip


def week(cluster: Cluster, frame: pl.DataFrame, *moments: int) -> list[dict[str, int]]:
    """Return the row of the pair at each moment, by one study after the other."""
    held = month.store_month(cluster, frame, raw_from=NOW - 7 * DAY)
    found = []
    for at in moments:
        study = LedgerStudy(cluster, EgressHistory(cluster, held.store))
        found.append(rows(study, Span(at, at + 10, at + 10, at + 10)).row(0, named=True))
    held.store.close()
    return found


@pytest.mark.parametrize("ago", [1200, 2 * HOUR + 700, 3 * HOUR - 300, 30 * HOUR + 500, 6 * DAY + 40])
def test_a_burst_that_was_told_is_taken_off(influxdb_v1: LocalInfluxDB, fresh_database: str, ago: int) -> None:
    cluster = month.cluster_of(influxdb_v1.url, fresh_database)
    (row,) = week(cluster, drip_and_burst(NOW - ago), NOW)
    assert row[schema.BYTES_7D.name] == (168 + 60) * GB
    assert row[schema.SLOW_7D.name] == 168 * GB
    assert row[schema.SLOW_24H.name] == 24 * GB
    assert row[schema.BYTES_24H.name] == (24 + 60 * (ago < DAY)) * GB
    assert row[schema.PEAK_24H.name] == 24 * GB


def test_a_burst_is_taken_off_as_soon_as_it_is_one(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """100 MB a second: after 500 s it is more than 50 GB, and what came before belongs to it, too."""
    cluster = month.cluster_of(influxdb_v1.url, fresh_database)
    begin = NOW - 600
    early, later = week(cluster, drip_and_burst(begin), NOW - 300, NOW)
    assert early[schema.BYTES_24H.name] == early[schema.SLOW_24H.name] == (24 + 30) * GB
    assert (later[schema.BYTES_24H.name], later[schema.SLOW_24H.name]) == ((24 + 60) * GB, 24 * GB)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (drip_and_burst(NOW - 4000, volume=49 * GB), "not enough"),
        (drip_and_burst(NOW - 4000, seconds=3000), "not within the window"),
        (drip_and_burst(NOW - 4000, dst="198.51.100.7"), "approved: exfil_volume does not look at it"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_was_not_told_is_not_taken_off(
    influxdb_v1: LocalInfluxDB, fresh_database: str, frame: pl.DataFrame, why: str
) -> None:
    cluster = month.cluster_of(influxdb_v1.url, fresh_database)
    (row,) = week(cluster, frame, NOW)
    assert row[schema.SLOW_7D.name] == row[schema.BYTES_7D.name], why


@pytest.mark.long_form
def test_one_study_knows_bursts_as_well_as_a_fresh_one(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    cluster = month.cluster_of(influxdb_v1.url, fresh_database)
    frame = pl.concat([drip_and_burst(NOW - 5 * HOUR - 300), drip_and_burst(NOW - 2 * HOUR - 100, dst="203.0.113.8")])
    held = month.store_month(cluster, frame, raw_from=NOW - 7 * DAY)
    one = rows(LedgerStudy(cluster, EgressHistory(cluster, held.store)), *passes(NOW - 6 * HOUR, NOW + 1))
    for at in range(NOW - 6 * HOUR, NOW + 1, 1500):
        fresh = rows(LedgerStudy(cluster, EgressHistory(cluster, held.store)), Span(at, at + 1, at + 1, at + 1))
        assert fresh.equals(one.filter(pl.col(WINDOW) == at)), at - NOW
    held.store.close()


# -- names and artefacts ---------------------------------------------------------------------------------


def test_beyond_the_largest_pairs_of_a_group_the_rest_is_other(stored: tuple[Cluster, Month]) -> None:
    cluster, held = stored
    study = LedgerStudy(cluster, EgressHistory(cluster, held.store), LedgerPolicy(named=1))
    found = rows(study, Span(NOW, NOW + 10, NOW + 10, NOW + 10))
    named = {(row[schema.SRC], row[schema.DST]): row[schema.BYTES_30D.name] for row in found.iter_rows(named=True)}
    whole = {pair: held.total(*pair, NOW - 30 * DAY, NOW) for pair in PAIRS}
    largest = max(PAIRS[2:], key=lambda pair: whole[pair])
    assert sum(named.values()) == sum(whole.values())
    assert largest in named
    assert {pair for pair in named if pair[0].startswith("gpu")} == {
        largest, *((src, "other") for src, dst in PAIRS[2:] if (src, dst) != largest)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("volume", "name", "share"),
    [(500, "adapter", 0.5), (11_000, "adapter", 11.0), (12_690, "llama-70b", 0.09), (131_130, "llama-70b", 0.93)],
)
def test_a_volume_is_compared_with_the_artefact_nearest_in_size(
    influxdb_v1: LocalInfluxDB, fresh_database: str, volume: int, name: str, share: float
) -> None:
    """Volumes in MB; the border between 1 GB and 141 GB is their geometric mean, 11.87 GB."""
    cluster = month.cluster_of(influxdb_v1.url, fresh_database)
    held = month.store_month(
        cluster, sent(talk("gpu-0", "203.0.113.9"), np.array([NOW - 2 * DAY]), np.array([volume * 10**6])), raw_from=0
    )
    study = LedgerStudy(cluster, EgressHistory(cluster, held.store))
    row = rows(study, Span(NOW, NOW + 10, NOW + 10, NOW + 10)).row(0, named=True)
    nothing = LedgerStudy(replace(cluster, artefacts=()), EgressHistory(cluster, held.store))
    without = rows(nothing, Span(NOW, NOW + 10, NOW + 10, NOW + 10)).row(0, named=True)
    held.store.close()
    assert row[schema.ARTEFACT.name] == name
    assert row[schema.ARTEFACT_SHARE.name] == pytest.approx(share, rel=1e-3)
    assert row[schema.ARTEFACT_SHARE_24H.name] == 0
    assert (without[schema.ARTEFACT.name], without[schema.ARTEFACT_SHARE.name]) == ("", 0.0)


def test_one_artefact_is_compared_with_every_pair(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    plain = month.cluster_of(influxdb_v1.url, fresh_database)
    cluster = replace(plain, artefacts=plain.artefacts[-1:])
    moment, volume = np.array([NOW - 2 * DAY]), np.array([10**9])
    truth = pl.concat(sent(talk(f"gpu-{n}", "203.0.113.9"), moment, volume) for n in range(2))
    held = month.store_month(cluster, truth, raw_from=0)
    found = rows(LedgerStudy(cluster, EgressHistory(cluster, held.store)), Span(NOW, NOW + 10, NOW + 10, NOW + 10))
    held.store.close()
    assert found.get_column(schema.ARTEFACT.name).to_list() == [cluster.artefacts[0].name] * 2
