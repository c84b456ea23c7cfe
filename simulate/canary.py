"""A canary: one tiny flow through the real pipeline, and how long it takes to be seen and to raise an alert.

It flows inside a group of its own (role ``canary``), between addresses that are nobody's: so it is in no egress, is no
first contact, no violation and no unknown node, and no other traffic can be taken for it.
"""

import itertools
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.errors import StoreError, UserError
from cluster.model import Address, Cluster, Exporter, Role
from dashboards.registry import panel_ref
from rules.common import texts
from rules.evaluate.evaluator import Evaluator
from rules.rule import INTERVAL_SECONDS, Comparison, Measure, Rule, Severity, Threshold
from simulate.packets.flows import UDP
from simulate.packets.netflow import RecordColumns
from simulate.packets.own_exporter import HELP, only_group, own_exporter, rate_of, send
from simulate.packets.udp import Target
from store import schema
from store.influx import Store
from store.influxql import Query, Select, is_in, total, window_seconds

DOMAIN = 0x0CA7
"""Observation domain of its packets: with its own templates and sequence numbers."""

RULE = "canary"
_PORT = 9
"""The discard port."""

_SMALLEST, _LARGEST = 1_000, 1_000_000
_PACKET = 1_000
_POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent.

    Attributes:
        group: id of the canary's group.
        src, dst: its addresses.
        exporter: whose address the packet comes from.
        octets: IP bytes as exported.
        stored: bytes that must arrive, scaled by the exporter's sampling.
    """

    group: str
    src: Address
    dst: Address
    exporter: Exporter
    octets: int
    stored: int


@dataclass(frozen=True, slots=True)
class Sighting:
    """How it went.

    Attributes:
        plan: what was sent.
        sent_at: epoch seconds.
        queryable: seconds until InfluxDB had it; None if it did not in time.
        alert: seconds until the first evaluation at which its alert fires; None if there was none in time.
        trouble: what was wrong; empty if nothing.
    """

    plan: Plan
    sent_at: float
    queryable: float | None
    alert: float | None
    trouble: str = ""

    def json(self) -> dict[str, Any]:
        """Return it for machines."""
        return {
            "ok": not self.trouble,
            "sent_at": round(self.sent_at, 3),
            "queryable_seconds": None if self.queryable is None else round(self.queryable, 3),
            "alert_seconds": None if self.alert is None else round(self.alert, 3),
            "bytes": self.plan.stored,
            "exporter": self.plan.exporter.name,
            "group": self.plan.group,
            "trouble": self.trouble,
        }


def plan(cluster: Cluster, exporter: str | None = None) -> Plan:
    """Return what a canary of this cluster sends.

    Args:
        cluster: has the canary's group, and an exporter with an address of this machine.
        exporter: name of the exporter to speak for; by default the first that this machine can speak for.

    Raises:
        UserError: cluster.yaml has no place for it.
    """
    group = only_group(cluster, Role.CANARY)
    addresses = [entry.address for node in cluster.nodes if node.group == group.id for entry in node.addresses]
    src, dst = next(
        ((one, other) for one, other in itertools.pairwise(addresses) if one.version == other.version), (None, None)
    )
    if src is None or dst is None:
        raise UserError(f"nodes: {len(addresses)} addresses in group {group.id}: expected two of one family", HELP)
    speaker = own_exporter(cluster, exporter)
    octets = _SMALLEST + secrets.randbelow(_LARGEST - _SMALLEST)
    return Plan(group.id, src, dst, speaker, octets, octets * rate_of(speaker))


def records(what: Plan, at: float) -> RecordColumns:
    """Return the flow as one record of a moment (epoch seconds)."""
    packets = -(-what.octets // _PACKET)
    return RecordColumns.alike(
        [(what.src, what.dst)], int(at * 1000), octets=what.octets, packets=packets, src_port=_PORT, dst_port=_PORT,
        proto=UDP,
    )  # fmt: skip


# Watching -----------------------------------------------------------------------------------------


def _bytes_of(group: str) -> Query:
    inside = is_in(schema.SRC_GROUP, [group]), is_in(schema.DST_GROUP, [group])
    return (
        Select(schema.TRAFFIC, schema.RAW).where(*inside).take(total(schema.BYTES)).per_series("Bytes of the canary.")
    )


def alert_rule(group: str, since: int, expected: int) -> Rule:
    """Return the rule that fires on the canary, as other rules are made: one query, one threshold.

    Args:
        group: the canary's.
        since: seconds before the evaluation from which bytes count.
        expected: bytes at which it fires.
    """
    return Rule(
        id=RULE,
        title="Canary",
        family="pipeline",
        severity=Severity.WARNING,
        measures=(Measure("bytes", _bytes_of(group), since),),
        threshold=Threshold(RULE, Comparison.AT_LEAST, expected),
        annotations=((texts.SUMMARY, f"The canary of {texts.bytes_of('bytes')} has arrived."),),
        panel=panel_ref("pipeline", "data_age"),
    )


def watch(
    cluster: Cluster, store: Store, what: Plan, *, target: Target, within: float, told: Callable[[str], None]
) -> Sighting:
    """Send a canary and wait until its alert fires, or until it is too late.

    Args:
        cluster: whose pipeline.
        store: where the flow must appear.
        what: see `plan`.
        target: where to send it.
        within: seconds that all of it may take.
        told: called with what is being waited for.

    Raises:
        StoreError: InfluxDB does not answer before anything is sent.
    """
    window = window_seconds(cluster, schema.RAW)
    sent_at = time.time()
    begin = int(sent_at) // window * window
    before = _stored(store, what.group, begin, begin + window)
    send(what.exporter, records(what, sent_at), target, domain=DOMAIN, at=sent_at)
    told("waiting until InfluxDB has it")
    wanted = before + what.stored
    queryable: float | None = None
    trouble = ""
    while queryable is None and time.time() - sent_at < within:
        try:
            if _stored(store, what.group, begin, begin + 2 * window) >= wanted:
                queryable = time.time() - sent_at
                break
            trouble = ""
        except StoreError as error:
            trouble = error.message
        time.sleep(_POLL_SECONDS)
    if queryable is None:
        why = trouble or "it is not in InfluxDB"
        return Sighting(
            what, sent_at, None, None, f"{why} after {within:g} s; `clusterflow status` shows what is stuck"
        )
    told("waiting for the next evaluation")
    evaluation = -(-int(time.time() + 1) // INTERVAL_SECONDS) * INTERVAL_SECONDS
    time.sleep(max(evaluation - time.time(), 0))
    rule = alert_rule(what.group, evaluation - begin, wanted)
    evaluator = Evaluator(store, [rule], datasource=cluster.grafana.datasource_uid)
    evaluator.tick(evaluation)
    alert = evaluation - sent_at
    if not any(one.is_firing and not one.error for one in evaluator.alerts()):
        return Sighting(what, sent_at, queryable, None, "it is in InfluxDB, but its rule did not fire")
    late = f"its alert would fire after {alert:.1f} s, more than {within:g} s" if alert > within else ""
    return Sighting(what, sent_at, queryable, alert, late)


def _stored(store: Store, group: str, first: int, last: int) -> int:
    return sum(int(series.values[0][1] or 0) for series in store.query(_bytes_of(group).between(first, last)))
