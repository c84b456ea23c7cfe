"""Questions that more than one board, or a board and a rule, ask: each is written once, here.

They choose groups by role or by `allowed`, never by id, and leave the form (`over_time`, `per_series`) to the asker.
"""

from collections.abc import Iterable
from dataclasses import replace

from analysis.detectors.inference.access import EVERY
from analysis.detectors.inference.asked import delay_of
from cluster.model import EXTERNAL, Cluster, Role
from ingest.read.records import Reason
from store import schema
from store.influxql import (
    Condition,
    Query,
    Select,
    aggregate,
    all_of,
    any_of,
    beside,
    bit_rate,
    compare,
    is_in,
    lowest,
    newest,
    not_in,
    total,
    whole_bins,
)

APPROVED = (Role.APPROVED_EXTERNAL,)


def approved_ids(cluster: Cluster) -> tuple[str, ...]:
    """Return the ids of the outside groups that cluster.yaml lists."""
    return tuple(group.id for group in cluster.groups_with(*APPROVED))


def watched_ids(cluster: Cluster) -> tuple[str, ...]:
    """Return the ids of model storage and of every sensitive group: those whose outbound volume is watched."""
    return tuple(group.id for group in cluster.inside_groups() if group.role is Role.MODEL_STORAGE or group.sensitive)


def sensitive_ids(cluster: Cluster) -> tuple[str, ...]:
    """Return the ids of the sensitive groups inside the cluster."""
    return tuple(group.id for group in cluster.inside_groups() if group.sensitive)


def role_ids(cluster: Cluster, *roles: Role) -> tuple[str, ...]:
    """Return the ids of the groups of these roles."""
    return tuple(group.id for group in cluster.groups_with(*roles))


def sent_outside(cluster: Cluster, retention: str) -> Select:
    """Bytes sent to the outside, approved or not, without what the outside says to itself on its way past us."""
    return (
        Select(schema.EGRESS, retention)
        .take(total(schema.BYTES))
        .where(not_in(schema.SRC_GROUP, cluster.outside_ids()))
    )


def sent_to_unknown(cluster: Cluster, retention: str) -> Select:
    """Bytes from model storage to destinations in no group: what the rule `exfil_volume` judges."""
    return sent_outside(cluster, retention).where(
        is_in(schema.SRC_GROUP, role_ids(cluster, Role.MODEL_STORAGE)), not_in(schema.DST_GROUP, approved_ids(cluster))
    )


LOCATED = (*schema.CONVERSATION, schema.COUNTRY, schema.NETWORK)
"""A conversation and, as far as it is known, where the outside address is: the rules about them alert for each."""

LISTED = (*LOCATED, schema.FEED)
"""The same where the threat feeds are told that list the address."""


def sent_off_hours(cluster: Cluster, retention: str) -> Select:
    """Bytes that sensitive groups sent outside in off-hours."""
    return sent_outside(cluster, retention).where(
        is_in(schema.SRC_GROUP, sensitive_ids(cluster)), is_in(schema.OFF_HOURS, [schema.YES])
    )


ALERT_COLUMNS = (
    schema.ALERT_TITLE, schema.ALERT_SOURCE, schema.ALERT_DESTINATION, schema.BYTES_TEXT, schema.DURATION_TEXT,
    schema.ALERT_STATE,
)  # fmt: skip
"""What an alert's row says in short; its time is when the alert fired."""


def alerts() -> Select:
    """Alerts of the history, one row each, as they are now: those that began within the time range."""
    return Select(schema.ALERT, schema.ALERT.kept).where(is_in(schema.CHANGE, [schema.Change.FIRED]))


def newest_alerts(rows: int) -> Query:
    """Return the newest alerts of the history: time (since when), title, source, destination, bytes, duration, state.

    A time range of its own, say 30 days, keeps the table full where a board looks at hours.
    """
    return alerts().take(*map(beside, ALERT_COLUMNS)).newest_rows(rows, "One row an alert, the newest first.")


def first_contacts(cluster: Cluster) -> Select:
    """First contacts of model storage and training nodes, approved destinations included: bytes, duration."""
    sources = role_ids(cluster, Role.MODEL_STORAGE, Role.TRAINING)
    return (
        Select(schema.CONTACT, schema.RAW)
        .take(total(schema.BYTES), total(schema.DURATION))
        .where(
            is_in(schema.SRC_GROUP, sources),
            compare(schema.CONTACT_NEW, "=", 1),
        )
    )


NOT_ALLOWED = is_in(schema.KIND, [schema.Violation.NOT_ALLOWED.value])
"""Violations of the allowed matrix, as opposed to those of planes."""


def violating(retention: str) -> Select:
    """Bytes of conversations that `allowed` does not list."""
    return Select(schema.VIOLATION, retention).take(total(schema.BYTES)).where(NOT_ALLOWED)


def exporter_ages() -> Select:
    """Seconds since the newest record of each exporter. Of several bridges, the one that heard it last counts."""
    return Select(schema.EXPORTER_STATUS, schema.RAW).take(lowest(schema.AGE)).by(schema.EXPORTER)


def exporter_ages_now() -> Select:
    """The latest of the same within the range. Of several bridges or partitions, the one that heard it last counts."""
    each = Select(schema.EXPORTER_STATUS, schema.RAW).take(newest(schema.AGE)).by(schema.EXPORTER, schema.SHARD)
    return Select(each).take(lowest(schema.AGE)).by(schema.EXPORTER)


def newest_age() -> Select:
    """Seconds since the newest record of any exporter."""
    return Select(exporter_ages_now()).take(lowest(schema.AGE))


def counter_growth(*conditions: Condition, name: str = "") -> Select:
    """How much running totals of the pipeline grew within the range; group it by stage or reason."""
    grown = aggregate("spread", schema.TOTAL, "growth")
    each = Select(schema.PIPELINE, schema.RAW).take(grown).where(*conditions)
    each = each.by(schema.STAGE, schema.REASON, schema.SHARD)
    return Select(each).take(total(grown, name))


def is_dead_letter() -> Condition:
    """The counter counts lines that were no flow records."""
    return is_in(schema.REASON, [reason.value for reason in Reason])


def dead_letters() -> Select:
    """Lines that were no flow records, within the range."""
    return counter_growth(is_dead_letter())


def accesses_late(cluster: Cluster) -> int:
    """Return the seconds after which accesses are kept: once a window is closed and clients are judged, in fives."""
    return EVERY + cluster.bridge.lateness + cluster.bridge.grace + delay_of(cluster) + 60


def clients_over_time(cluster: Cluster, asked: Select, meaning: str, alias: str) -> Query:
    """Return what clients sent, bit/s over time.

    Rows of ACCESS are of five minutes, though kept where others are of an hour, and as late as clients are judged.
    """
    rate = asked.take(bit_rate(schema.BYTES))
    if asked.source is not schema.ACCESS:
        return rate.over_time(cluster, meaning, alias=alias)
    told = rate.where(*whole_bins(accesses_late(cluster), EVERY)).over_time(
        cluster, meaning, alias=alias, settled=False
    )
    return replace(told, interval=EVERY)


def inference_pairs(cluster: Cluster, *, may: bool) -> tuple[tuple[str, str], ...]:
    """Return source and inference group of the clients that may ask it, or of those that may not."""
    sources = [*(group.id for group in cluster.groups), EXTERNAL]
    return tuple(
        (src, dst)
        for dst in role_ids(cluster, Role.INFERENCE)
        for src in sources
        if cluster.may_ask_inference(src, dst) is may
    )


def asked_by(pairs: tuple[tuple[str, str], ...], retention: str) -> Select:
    """Conversations that clients of these group pairs opened to inference nodes, nothing taken yet."""
    return Select(schema.INFERENCE, retention).where(is_any_pair(pairs))


def is_any_pair(pairs: Iterable[tuple[str, str]]) -> Condition:
    """Source and destination group are one of these pairs; with no pairs, nothing matches."""
    by_source: dict[str, list[str]] = {}
    for src, dst in pairs:
        by_source.setdefault(src, []).append(dst)
    by_destinations: dict[tuple[str, ...], list[str]] = {}
    for src, destinations in by_source.items():
        by_destinations.setdefault(tuple(destinations), []).append(src)
    terms = [
        all_of(is_in(schema.SRC_GROUP, sources), is_in(schema.DST_GROUP, destinations))
        for destinations, sources in by_destinations.items()
    ]
    if not terms:
        return is_in(schema.SRC_GROUP, [])
    return terms[0] if len(terms) == 1 else any_of(*terms)


def slow_sources(cluster: Cluster) -> tuple[str, ...]:
    """Return the ids of the groups whose ledger the low-and-slow rules judge: where weights and checkpoints lie."""
    roles = (Role.MODEL_STORAGE, Role.STORAGE, Role.TRAINING)
    return tuple(group.id for group in cluster.inside_groups() if group.role in roles or group.sensitive)


def recurrences(cluster: Cluster) -> Select:
    """Unlisted destinations that come back often enough for the rule `recurring_dependency`, nothing taken yet."""
    limits = cluster.thresholds
    return Select(schema.RECURRENCE, schema.RECURRENCE.kept).where(
        any_of(
            compare(schema.ACTIVE_DAYS, ">=", limits.recurrence_days),
            compare(schema.ACTIVE_HOURS, ">=", limits.recurrence_hours),
        )
    )


def stall_usd() -> Select:
    """Dollars of GPU time that jobs lost: a row a window in which one did, kept for years."""
    return Select(schema.STALL, schema.STALL.kept).take(total(schema.USD))


def between(src: tuple[str, ...], dst: tuple[str, ...], retention: str) -> Select:
    """Bytes from some groups to others, nothing taken yet."""
    return Select(schema.TRAFFIC, retention).where(is_in(schema.SRC_GROUP, src), is_in(schema.DST_GROUP, dst))


def allowed_sources(cluster: Cluster, dst: str) -> tuple[str, ...]:
    """Return the ids of the groups, reserved ones included, that may talk to a group; itself included."""
    sources = [*(group.id for group in cluster.groups), EXTERNAL]
    return tuple(src for src in sources if cluster.is_allowed(src, dst))
