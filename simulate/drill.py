"""A drill: a theft that harms nobody, from the exporter to the alert, and how long each leg took.

Flow records say that addresses that nobody has (a group of role ``drill``) sent a model to others that nobody has.
Collector, bridge, store, analyser, rule and Grafana take them for real. The group has sums of its own, so a drill
neither hides a theft nor adds to one.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network
from typing import Any

import polars as pl

from app.errors import StoreError, UserError
from app.units import format_duration, format_size
from cluster.model import EXTERNAL, NOBODYS_PREFIXES, Address, AlertsFrom, Cluster, Exporter, Group, Role
from rules.alerts.security import exfiltration
from rules.evaluate.evaluator import Evaluator
from rules.rule import INTERVAL_SECONDS
from simulate.packets.addresses import group_of
from simulate.packets.netflow import RecordColumns
from simulate.packets.own_exporter import HELP, only_group, own_exporter, rate_of, send
from simulate.packets.udp import Target
from store import schema
from store.influx import Store
from store.influxql import Select, compare, everything, is_in, total, window_seconds
from store.points import WINDOW, encode

DOMAIN = 0x0D11
"""Observation domain of its packets: with its own templates and sequence numbers."""

USUAL = 140_000_000_000
"""Bytes: a model of 70 billion parameters at 16 bits, where cluster.yaml names no artefact."""

_PACKET = 1_400
_POLL_SECONDS = 0.5
_TCP, _GRE = 6, 47
_LONGEST_HOLD = 90_000
"""Seconds for which an incident may stay open: a day and an hour."""


class Shape(StrEnum):
    """How it is sent."""

    BULK = "bulk"
    SPLIT = "split"
    TUNNEL = "tunnel"
    ODD_PORT = "odd_port"


@dataclass(frozen=True, slots=True)
class _Form:
    sources: int = 1
    destinations: int = 1
    protocol: int = _TCP
    port: int = 443


_FORMS = {
    Shape.BULK: _Form(),
    Shape.SPLIT: _Form(sources=5, destinations=20),
    Shape.TUNNEL: _Form(protocol=_GRE, port=0),
    Shape.ODD_PORT: _Form(port=4444),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent.

    Attributes:
        shape: how.
        group: in whose name.
        exporter: whose address the packets come from.
        pairs: sources and destinations; each sends the same.
        octets: bytes of each pair as exported.
        stored: bytes that must arrive in all, scaled by the exporter's sampling.
    """

    shape: Shape
    group: Group
    exporter: Exporter
    pairs: tuple[tuple[Address, Address], ...]
    octets: int
    stored: int


LEGS = {
    schema.STORED_AFTER: "stored",
    schema.JUDGED_AFTER: "found",
    schema.FIRED_AFTER: "alert fired",
    schema.TOLD_AFTER: "Grafana's contact point had it",
}
"""Field of the store -> what is reached then, in this order."""


@dataclass(slots=True)
class Course:
    """How it went.

    Attributes:
        plan: what was sent.
        sent_at: epoch seconds.
        after: seconds from then to each leg that was reached, by the name of its field.
        trouble: what was wrong; empty if nothing.
    """

    plan: Plan
    sent_at: float
    after: dict[str, float] = field(default_factory=dict)
    trouble: str = ""

    def json(self) -> dict[str, Any]:
        """Return it for machines; a leg that was not reached is null."""
        legs = {leg.name: round(self.after[leg.name], 3) if leg.name in self.after else None for leg in LEGS}
        return {
            "ok": not self.trouble,
            "shape": self.plan.shape.value,
            "bytes": self.plan.stored,
            "sent_at": round(self.sent_at, 3),
            **legs,
            "exporter": self.plan.exporter.name,
            "group": self.plan.group.id,
            "trouble": self.trouble,
        }


def plan(cluster: Cluster, shape: Shape, size: int | None = None, exporter: str | None = None) -> Plan:
    """Return what a drill of this cluster sends.

    Args:
        cluster: has a group of role drill, and an exporter with an address of this machine.
        shape: how.
        size: bytes; by default the smallest artefact that is more than may leave.
        exporter: name of the exporter to speak for; by default the first that this machine can speak for.

    Raises:
        UserError: cluster.yaml has no place for it, or the size is no theft.
    """
    group, form = only_group(cluster, Role.DRILL), _FORMS[shape]
    sources = [*itertools.islice(_addresses(group), form.sources)]
    if len(sources) < form.sources:
        raise UserError(f"groups.{group.id}.prefixes: {len(sources)} IPv4 addresses: expected {form.sources}", HELP)
    outside = next(
        (one for one in _outside(form.destinations) if {group_of(cluster.groups, to) for to in one} == {EXTERNAL}), ()
    )
    if not outside:
        raise UserError(
            f"groups: all of {', '.join(map(str, NOBODYS_PREFIXES))} are in groups: expected one outside", HELP
        )
    limit = round(cluster.thresholds.exfil_volume * group.exfil_scale)
    sizes = [one.size for one in cluster.artefacts if one.size > limit] or [max(USUAL, 2 * limit)]
    wanted = sizes[0] if size is None else size
    if wanted <= limit:
        hint = f"{format_size(limit)} may leave within {format_duration(cluster.thresholds.exfil_window)}"
        raise UserError(f"--size {format_size(wanted)}: expected more than {format_size(limit)}", hint)
    speaker = own_exporter(cluster, exporter)
    rate, pairs = rate_of(speaker), tuple(itertools.product(sources, outside))
    octets = -(-wanted // (len(pairs) * rate))
    return Plan(shape, group, speaker, pairs, octets, octets * rate * len(pairs))


def _outside(count: int) -> Iterator[tuple[Address, ...]]:
    for network in NOBODYS_PREFIXES:
        yield tuple(network[1 + place] for place in range(count))


def _addresses(group: Group) -> Iterator[Address]:
    for prefix in group.prefixes:
        if isinstance(prefix, IPv4Network):
            yield from prefix.hosts()


def records(what: Plan, at: float) -> RecordColumns:
    """Return its flows, all of one moment (epoch seconds): what the line could carry is not asked."""
    form, packets = _FORMS[what.shape], -(-what.octets // _PACKET)
    return RecordColumns.alike(
        what.pairs, int(at * 1000), octets=what.octets, packets=packets, src_port=50_000 if form.port else 0,
        dst_port=form.port, proto=form.protocol,
    )  # fmt: skip


class Drill:
    """A drill that runs.

    Args:
        cluster: whose pipeline.
        store: where each leg shows.
        what: see `plan`.
    """

    def __init__(self, cluster: Cluster, store: Store, what: Plan) -> None:
        self._store, self._plan = store, what
        self._ours = is_in(schema.SRC_GROUP, [what.group.id])
        self._window = window_seconds(cluster, schema.RAW)
        self._history = cluster.delivery.alerts
        (rule,) = exfiltration.build(cluster).rules
        # Without a history nobody says when it fired: then our evaluator does.
        self._evaluator = Evaluator(store, [rule], datasource=cluster.grafana.datasource_uid)
        self._evaluated = 0

    def run(self, target: Target, within: float, told: Callable[[str], None]) -> Course:
        """Send it and wait for each leg, or until it is too late; what came of it is stored.

        Args:
            target: where the collector listens.
            within: seconds that all of it may take.
            told: called with what is being waited for.

        Raises:
            UserError: the incident of an earlier drill is still open.
            StoreError: InfluxDB does not answer before anything is sent.
        """
        sent_at = time.time()
        begin = int(sent_at) // self._window * self._window
        if (until := self._open_until(begin)) > sent_at:
            left = format_duration(-(-int(until - sent_at) // 60) * 60)
            raise UserError(
                "the incident of the last drill is still open", f"try again in {left}: it would be no new alert"
            )
        before = self._bytes(begin)
        course = Course(self._plan, sent_at)
        send(self._plan.exporter, records(self._plan, sent_at), target, domain=DOMAIN, at=sent_at)
        looks: dict[schema.Field, tuple[str, Callable[[], float | None]]] = {
            schema.STORED_AFTER: (
                "InfluxDB has not got it", lambda: self._since(self._bytes(begin) >= before + self._plan.stored)
            ),
            schema.JUDGED_AFTER: (
                "`clusterflow analyze` has found no incident", lambda: self._since(self._open_until(begin) > sent_at)
            ),
            schema.FIRED_AFTER: ("no alert has fired", lambda: self._fired(begin)),
        }  # fmt: skip
        if self._history is AlertsFrom.GRAFANA:
            looks[schema.TOLD_AFTER] = ("Grafana has told nobody", lambda: self._since(self._told(begin) is not None))
        for leg, (lack, look) in looks.items():
            told(f"waiting: {LEGS[leg]}")
            moment, why = self._wait(look, sent_at + within)
            if moment is None:
                course.trouble = f"{why or lack} after {within:g} s; `clusterflow status` shows what is stuck"
                break
            course.after[leg.name] = max(moment - sent_at, 0.0)
        self._keep(course)
        return course

    @staticmethod
    def _wait(look: Callable[[], float | None], until: float) -> tuple[float | None, str]:
        """Return the moment that a look gives in time, else None, and what the store said last."""
        trouble = ""
        while True:
            try:
                moment = look()
                trouble = ""
            except StoreError as error:
                moment, trouble = None, error.message
            if moment is not None or time.time() >= until:
                return moment, trouble
            time.sleep(_POLL_SECONDS)

    @staticmethod
    def _since(is_there: bool) -> float | None:  # noqa: FBT001 - a look's answer
        return time.time() if is_there else None

    def _bytes(self, begin: int) -> int:
        asked = Select(schema.EGRESS, schema.RAW).where(self._ours).take(total(schema.BYTES)).per_series("Bytes.")
        answer = self._store.query(asked.between(begin, begin + 2 * self._window))
        return sum(int(series.values[0][1] or 0) for series in answer)

    def _open_until(self, begin: int) -> float:
        """Return when the newest incident of the group ends, epoch seconds; 0 if there is none."""
        asked = Select(schema.EXFILTRATION, schema.EXFILTRATION.kept).where(
            self._ours, compare(schema.LEAK_UNTIL, ">", 0)
        )
        found = self._store.frame(asked.take(everything()).between(begin - _LONGEST_HOLD, None).text())
        return 0.0 if found.is_empty() else float(found.get_column(schema.LEAK_UNTIL.name).max() or 0)  # type: ignore[arg-type]

    def _fired(self, begin: int) -> float | None:
        if self._history is not AlertsFrom.OFF:
            return self._told(begin)
        at = int(time.time()) // INTERVAL_SECONDS * INTERVAL_SECONDS
        if at > self._evaluated:
            self._evaluated = at
            self._evaluator.tick(at)
        group = self._plan.group.id
        firing = (
            one for one in self._evaluator.alerts()
            if one.is_firing and not one.error and one.labels.get(schema.SRC_GROUP) == group
        )  # fmt: skip
        return self._since(any(firing))

    def _told(self, begin: int) -> float | None:
        """Return when the alert fired, if the history has it."""
        fired = is_in(schema.RULE, [exfiltration.ID]), is_in(schema.CHANGE, [schema.Change.FIRED.value])
        asked = Select(schema.ALERT, schema.ALERT.kept).where(*fired).take(everything()).between(begin, None)
        found = self._store.frame(asked.text())
        for row in found.iter_rows(named=True):
            labels = json.loads(row.get(schema.ALERT_LABELS.name) or "{}")
            if labels.get(schema.SRC_GROUP) == self._plan.group.id:
                return float(row[schema.BEGAN.name])
        return None

    def _keep(self, course: Course) -> None:
        legs = {leg.name: course.after.get(leg.name) for leg in LEGS}
        row = {
            WINDOW: int(course.sent_at),
            schema.KIND: self._plan.shape.value,
            schema.EVENT_BYTES.name: self._plan.stored,
            **legs,
            schema.TROUBLE.name: course.trouble,
        }
        frame = pl.DataFrame([row], schema_overrides=dict.fromkeys(legs, pl.Float64))
        try:
            self._store.write(encode(schema.DRILL, frame), schema.DRILL.kept)
        except StoreError as error:
            course.trouble = course.trouble or f"its result is not stored: {error.message}"
