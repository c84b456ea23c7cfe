"""The history of alerts as the store has it: what fired when, how it ended, and how people marked it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from app.errors import UserError
from dashboards import questions
from operations.sightings import Sighting, sighting_of
from rules.common import texts
from store import schema
from store.influx import Store
from store.influxql import Condition, any_of, begins, beside, compare, labelled, says
from store.points import WINDOW, encode
from store.schema import Change

MOST = 10_000
"""Alerts that are read at a time."""

_KEPT_SECONDS = 3 * 366 * 86_400
"""Further back than anything is kept."""

_SLACK_SECONDS = 60
"""By how much Grafana's clock and ours may differ."""

_PREFIX = re.compile(r"[0-9a-f]{4,32}")
_TAGS = (schema.RULE, schema.SEVERITY, schema.SRC, schema.ALERT_KEY)
_FACTS = {
    texts.SOURCE: schema.ALERT_SOURCE,
    texts.DESTINATION: schema.ALERT_DESTINATION,
    texts.PROTOCOL: schema.ALERT_PROTOCOL,
    texts.BYTES: schema.BYTES_TEXT,
    texts.DURATION: schema.DURATION_TEXT,
}


@dataclass(frozen=True, slots=True)
class StoredAlert:
    """One alert of the history.

    Attributes:
        id: of the incident.
        tags: of its rows, but CHANGE.
        began: epoch second.
        ended: epoch second; None while it fires.
        facts: source, destination, protocol, bytes, duration, as the notification says them.
        acknowledged: epoch second at which somebody said that they had seen it; None if nobody did.
        is_false: whether somebody marked it as false.
        why: their words.
        labels: all that it had; those of alerts of before they were kept are not known.
        seen: addresses, the server's port, and where it entered.
        size: bytes, where the rule has them.
        job: that it is about.
        what_to_do: the next step, as the notification says it.
        maintenance: the planned work during which it began: nobody was notified before the end of that.
    """

    id: str
    tags: Mapping[str, str]
    state: str
    title: str
    summary: str
    began: int
    ended: int | None
    facts: Mapping[str, str]
    acknowledged: int | None = None
    is_false: bool = False
    why: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    seen: Sighting = field(default_factory=Sighting)
    size: int | None = None
    job: str = ""
    what_to_do: str = ""
    maintenance: str = ""

    @property
    def rule(self) -> str:
        """Id of its rule, or the name of an alert about missing data."""
        return self.tags[schema.RULE]

    @property
    def source(self) -> str:
        """Its source as conversations have it: the tag has the name that a directory gives an address outside."""
        own = self.labels.get(schema.SRC, schema.OTHER)
        return self.tags[schema.SRC] if own == schema.OTHER else own

    @property
    def severity(self) -> str:
        """Its severity."""
        return self.tags[schema.SEVERITY]

    def json(self) -> dict[str, Any]:
        """Return it for machines: times in epoch seconds."""
        return {
            "id": self.id,
            "rule": self.rule,
            "severity": self.severity,
            "state": self.state,
            "title": self.title,
            "summary": self.summary,
            "began": self.began,
            "ended": self.ended,
            **self.facts,
            schema.ALERT_SRC_ADDRESS.name: self.seen.src_address,
            schema.ALERT_DST_ADDRESS.name: self.seen.dst_address,
            "port": self.seen.port,
            "port_max": self.seen.port_max,
            "exporter": self.seen.exporter,
            "interface": self.seen.interface,
            "acknowledged": self.acknowledged,
            "false": self.is_false,
            "why": self.why,
            "maintenance": self.maintenance,
        }


_COLUMNS = (
    schema.INCIDENT, schema.ALERT_STATE, schema.ALERT_TITLE, schema.ALERT_SUMMARY, schema.ENDED, schema.ACKNOWLEDGED,
    schema.FALSE_ALERT, schema.MARKED_WHY, *_FACTS.values(), schema.ALERT_LABELS, schema.ALERT_SRC_ADDRESS,
    schema.ALERT_DST_ADDRESS, schema.ALERT_PORT, schema.ALERT_PORT_MAX, schema.ALERT_ENTERED, schema.ALERT_BYTES,
    schema.ALERT_JOB, schema.WHAT_TO_DO, schema.MAINTENANCE,
)  # fmt: skip


def stored_alerts(store: Store, start: int, end: int, *where: Condition) -> list[StoredAlert]:
    """Return the alerts that began in [start, end], epoch seconds: the newest `MOST`, newest first.

    Raises:
        StoreError: the store is away.
    """
    asked = questions.alerts().where(*where).take(*map(beside, _COLUMNS), *map(labelled, _TAGS)).newest_rows(MOST)
    return [
        _alert(dict(zip(series.columns, row, strict=True)))
        for series in store.query(asked.between(start, end))
        for row in series.values
    ]


def open_alerts(store: Store, moment: int, *where: Condition) -> list[StoredAlert]:
    """Return the alerts that began before a moment, epoch seconds, and had not ended by then, newest first.

    Raises:
        StoreError: the store is away.
    """
    is_open = any_of(says(schema.ALERT_STATE, schema.FIRING), compare(schema.ENDED, ">=", moment))
    return stored_alerts(store, moment - _KEPT_SECONDS, moment - 1, is_open, *where)


def find_alert(store: Store, prefix: str, now: int) -> StoredAlert:
    """Return the alert whose id begins so.

    Raises:
        UserError: there is none, or several.
    """
    hint = "`clusterflow alerts` lists them with their ids"
    if not _PREFIX.fullmatch(prefix):
        raise UserError(f"ID: {prefix!r}: expected 4 to 32 of the digits 0-9a-f", hint)
    found = stored_alerts(store, now - _KEPT_SECONDS, now, begins(schema.INCIDENT, prefix))
    if not found:
        raise UserError(f"ID: {prefix}: no alert of the history has it", hint)
    if len(found) > 1:
        raise UserError(f"ID: {prefix}: {len(found)} alerts begin so: expected one", "give more of its digits")
    return found[0]


def alert_like(store: Store, labels: Mapping[str, str], began: int) -> StoredAlert:
    """Return the alert that a notification tells of, by its labels and the epoch second of its begin.

    Raises:
        UserError: the history has none that began within a minute of it, or has not got it yet.
    """
    near = stored_alerts(store, began - _SLACK_SECONDS, began + _SLACK_SECONDS)
    known = {name: text for name, text in labels.items() if text}
    found = [one for one in near if known.items() <= {schema.RULE: one.rule, **one.tags, **one.labels}.items()]
    if not found:
        raise UserError(
            "no alert of the history has these labels and this begin", "it may take some seconds to get there"
        )
    return min(found, key=lambda one: abs(one.began - began))


def mark(
    store: Store, alert: StoredAlert, *, is_false: bool | None = None, acknowledged: int | None = None, why: str = ""
) -> None:
    """Mark an alert in the history; what is not given stays."""
    said = {
        schema.FALSE_ALERT: None if is_false is None else int(is_false),
        schema.ACKNOWLEDGED: acknowledged,
        schema.ACKNOWLEDGE_SECONDS: None if acknowledged is None else max(acknowledged - alert.began, 0),
        schema.MARKED_WHY: " ".join(why.split()) or None,
    }
    row = {field.name: value for field, value in said.items() if value is not None}
    row |= {WINDOW: alert.began, **alert.tags, schema.CHANGE: Change.FIRED.value}
    store.write(encode(schema.ALERT, pl.DataFrame([row])), schema.ALERT.kept)


def _alert(row: Mapping[str, Any]) -> StoredAlert:
    def moment(field: schema.Field) -> int | None:
        return None if row[field.name] is None else int(row[field.name])

    return StoredAlert(
        id=row[schema.INCIDENT.name],
        tags={tag: row[tag] or "" for tag in _TAGS},
        state=row[schema.ALERT_STATE.name] or "",
        title=row[schema.ALERT_TITLE.name] or "",
        summary=row[schema.ALERT_SUMMARY.name] or "",
        began=int(row["time"]) // 1000,
        ended=moment(schema.ENDED),
        facts={name: row[field.name] or "" for name, field in _FACTS.items()},
        acknowledged=moment(schema.ACKNOWLEDGED),
        is_false=bool(row[schema.FALSE_ALERT.name]),
        why=row[schema.MARKED_WHY.name] or "",
        labels=json.loads(row[schema.ALERT_LABELS.name] or "{}"),
        seen=sighting_of(row),
        size=None if row[schema.ALERT_BYTES.name] is None else int(row[schema.ALERT_BYTES.name]),
        job=row[schema.ALERT_JOB.name] or "",
        what_to_do=row[schema.WHAT_TO_DO.name] or "",
        maintenance=row[schema.MAINTENANCE.name] or "",
    )
