"""From stored egress over the ledger to alerts: a week in which one pair drips, one bursts, and hubs are called."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_network

import egress_scene as month
import numpy as np
import polars as pl
import pytest
import scene
from egress_scene import DAY, HOUR, NOW, Month, sent, talk

from analysis.detectors.egress.history import EgressHistory
from analysis.detectors.egress.ledger import LedgerStudy
from analysis.detectors.egress.recurrence import RecurrenceStudy
from analysis.detectors.study import Span
from cluster.model import Cluster
from rules.alerts.slow import low_and_slow_7d, low_and_slow_24h, recurring_dependency
from rules.evaluate.evaluator import Alert, Evaluator
from rules.registry import rules_of
from rules.rule import Rule
from store import schema
from store.local_influxdb import LocalInfluxDB

GB = 10**9
START = NOW - 8 * DAY
DRIP = START + 150 * HOUR + 600
BURST = START + 6 * DAY
FAST = START + 7 * DAY + 20 * HOUR + 300
FIFTH = START + 4 * DAY + 9 * HOUR
LOOKED_AT = sorted(
    (FIFTH - HOUR, FIFTH + 600, BURST + 1200, DRIP - HOUR, DRIP, BURST + 12 * HOUR, FAST - HOUR, FAST, NOW)
)
"""Moments of which rows are made: the studies skip what lies between."""


def on_list(frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows with what a list of applications, and a file of places, say of the destination."""
    return frame.with_columns(
        pl.lit("model hub").alias(schema.APPLICATION), pl.lit("AS64500 ExampleHost").alias(schema.NETWORK)
    )


def truth() -> pl.DataFrame:
    """Eight days.

    - store-1 drips 16 GB a day to a partner: 100 GB within 7 days after 6.25 days, never 50 GB in one.
    - store-2 sends 60 GB within ten minutes to a stranger, on the seventh day: told by exfil_volume, not again.
    - store-2 sends 2.5 GB an hour to another stranger from the eighth day on: 50 GB after 20 hours.
    - gpu-0 and gpu-1 call a hub for an hour each day; gpu-2 calls another for a whole day and a half.
    """
    hours = np.arange(START, NOW, HOUR)
    burst = np.arange(BURST, BURST + 600, 10)
    fast = np.arange(START + 7 * DAY, NOW, 600)
    daily = np.concatenate([np.arange(START + n * DAY + 9 * HOUR, START + n * DAY + 10 * HOUR, 60) for n in range(8)])
    long = np.arange(START + 5 * DAY, START + 5 * DAY + 36 * HOUR, 600)
    return pl.concat([
        sent(talk("store-1", "198.51.100.7"), hours + 300, np.full(len(hours), 16 * GB // 24)),
        sent(talk("store-2", "203.0.113.9"), burst, np.full(len(burst), GB)),
        sent(talk("store-2", "203.0.113.10"), fast, np.full(len(fast), 5 * GB // 12)),
        on_list(sent(talk("gpu-0", "203.0.113.80"), daily, np.full(len(daily), 7000))),
        on_list(sent(talk("gpu-1", "203.0.113.80"), daily + 10, np.full(len(daily), 5000))),
        sent(talk("gpu-2", "203.0.113.81"), long, np.full(len(long), 900)),
    ], how="diagonal")  # fmt: skip


@dataclass(frozen=True)
class Week:
    cluster: Cluster
    held: Month
    rules: dict[str, Rule]

    def alerts(self, rule: str, at: int) -> list[Alert]:
        """Return what fires at the first evaluation after a moment: its row of the ledger must have closed."""
        evaluator = Evaluator(self.held.store, [self.rules[rule]])
        evaluator.tick(at + 60)
        return evaluator.alerts()


@pytest.fixture(scope="module")
def week(influxdb_v1: LocalInfluxDB) -> Iterator[Week]:
    cluster = month.cluster_of(influxdb_v1.url, "slow_week")
    held = month.store_month(cluster, truth(), raw_from=NOW - 7 * DAY)
    history = EgressHistory(cluster, held.store)
    studies = LedgerStudy(cluster, history), RecurrenceStudy(cluster, history)
    for at in LOOKED_AT:
        span = Span(at - 300, at + 10, at + 10, at + 10)
        for study in studies:
            for measurement, frame in study.judge(span, ()):
                scene.write(held.store, measurement, frame)
    yield Week(cluster, held, {rule.id: rule for rule in rules_of(cluster).rules})
    held.store.close()


def test_a_drip_fires_when_a_week_of_it_is_too_much(week: Week) -> None:
    """16 GB a day in 24 portions; the 151st brings it over 100 GB."""
    assert week.alerts(low_and_slow_7d.ID, DRIP - HOUR) == []
    (alert,) = week.alerts(low_and_slow_7d.ID, DRIP)
    assert {name: alert.labels[name] for name in ("src", "dst", "dst_group")} == {
        "src": "store-1", "dst": "198.51.100.7", "dst_group": "partner",
    }  # fmt: skip
    assert alert.annotations["summary"] == (
        "store-1 (Model Storage) sent 100.7GB to 198.51.100.7 (Partner Labs) within 7 days, about 0.71 of llama-70b: "
        "more than 100 GB, though on no day more than 50 GB."
    )


def test_a_burst_that_was_told_is_told_by_no_slow_rule(week: Week) -> None:
    for at in (BURST + 1200, BURST + 12 * HOUR, NOW):
        for rule in (low_and_slow_24h.ID, low_and_slow_7d.ID):
            assert "203.0.113.9" not in {alert.labels["dst"] for alert in week.alerts(rule, at)}


def test_a_fast_drip_fires_within_the_day_and_not_again_for_the_week(week: Week) -> None:
    assert week.alerts(low_and_slow_24h.ID, FAST - HOUR) == []
    (alert,) = week.alerts(low_and_slow_24h.ID, FAST)
    assert (alert.labels["src"], alert.labels["dst"]) == ("store-2", "203.0.113.10")
    assert alert.annotations["bytes"].startswith("50.42GB in 24h, 2.5GB of it in the last hour; 50.42GB in 7d")
    assert {one.labels["dst"] for one in week.alerts(low_and_slow_7d.ID, NOW)} == {"198.51.100.7"}


def test_what_comes_back_fires_on_its_fifth_day(week: Week) -> None:
    assert week.alerts(recurring_dependency.ID, FIFTH - HOUR) == []
    (alert,) = week.alerts(recurring_dependency.ID, FIFTH + 600)
    assert (alert.labels["dst"], alert.labels["src_group"]) == ("203.0.113.80", "training")
    assert alert.annotations["source"] == "2 nodes of GPU Training Nodes"
    assert alert.annotations["destination"] == "203.0.113.80 (model hub, AS64500 ExampleHost, Unknown External)"
    assert alert.values["days"] == 5


def test_a_day_and_a_half_is_no_dependency(week: Week) -> None:
    """36 hours on two or three days: less than 48 hours and than five days."""
    assert {alert.labels["dst"] for alert in week.alerts(recurring_dependency.ID, NOW)} == {"203.0.113.80"}


def test_a_partner_that_moved_to_other_addresses_is_no_dependency(week: Week) -> None:
    """It was called on each of eight days where nobody calls it any more."""
    groups = tuple(
        replace(one, prefixes=(ip_network("198.51.99.0/24"),)) if one.id == "partner" else one
        for one in week.cluster.groups
    )
    cluster = replace(week.cluster, groups=groups)
    study = RecurrenceStudy(cluster, EgressHistory(cluster, week.held.store))
    found = pl.concat(frame for _, frame in study.judge(Span(NOW - 300, NOW + 10, NOW + 10, NOW + 10), ()))
    assert set(found.get_column(schema.DST)) == {"203.0.113.10", "203.0.113.80", "203.0.113.81"}
