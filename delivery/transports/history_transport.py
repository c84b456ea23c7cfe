"""The history of alerts: each begin and each end is a row of the store, kept for two years.

It is one more destination of the spool: what cannot be written waits there, in order, and a row that is written twice
is the same row. Between the two an alert's numbers grow; its row follows them.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from app.errors import StoreError
from cluster.model import Destination, EventKind
from cluster.sections.delivery import HISTORY
from delivery.event import Document, State, at, epoch, event_id
from delivery.transports.destination import AwayError, Refusal, RefusedBatchError, building
from rules.common import texts
from store import schema
from store.influx import PartialWriteError, Store
from store.points import WINDOW, columns, encode
from store.schema import Change

DESTINATION = Destination(name=HISTORY, events=(EventKind.ALERT,))

_KEY_DIGITS = 12
_LONGEST = 2_000
"""Characters of a text that are kept."""

_SOURCES = (schema.EXPORTER, schema.RELAY, schema.JOB, schema.NAME)
"""Labels that name the source where it is neither a node nor an address."""

_LONGEST_LABELS = 8_000

_COLUMNS = columns(*schema.ALERT.tags, *schema.ALERT.fields)


class StoredHistory:
    """Writes events of alerts into the store."""

    most = 500

    def __init__(self, store: Store) -> None:
        self._store = store

    def send(self, events: Sequence[Document]) -> list[Refusal]:
        """Write the changes that a batch tells of."""
        with building():
            lines = encode(schema.ALERT, changes(events))
        try:
            self._store.write(lines, schema.ALERT.kept)
        except PartialWriteError as error:
            raise RefusedBatchError(error.message) from error
        except StoreError as error:
            raise AwayError(error.message, error.hint) from error
        return []

    def follow(self, firing: Sequence[Document]) -> None:
        """Bring the rows of alerts that fire up to date; StoreError if the store does not take it.

        Their state is left alone: an end that is reported meanwhile must not be taken back.
        """
        rows = pl.DataFrame([_row(event, Change.FIRED) for event in firing], schema=_COLUMNS)
        self._store.write(encode(schema.ALERT, rows), schema.ALERT.kept)

    def close(self) -> None:
        """Nothing is kept open."""


def changes(events: Iterable[Document]) -> pl.DataFrame:
    """Return the rows of events of alerts: one for a begin; for an end its own, and the begin's with the end in it."""
    rows: dict[tuple[str, Change], dict[str, Any]] = {}
    for event in events:
        is_over = event["state"] == State.RESOLVED
        for change in (Change.FIRED, Change.RESOLVED) if is_over else (Change.FIRED,):
            state = schema.RESOLVED if is_over else schema.FIRING
            row = _row(event, change) | {schema.ALERT_STATE.name: state}
            if is_over:
                # Whether it was muted at last its row knows: planned work may have ended while it fired.
                del row[schema.MUTED.name]
            rows[event["incident"], change] = rows.get((event["incident"], change), {}) | row
    return pl.DataFrame(list(rows.values()), schema=_COLUMNS)


def _row(event: Document, change: Change) -> dict[str, Any]:
    labels, facts = event.get("labels", {}), event.get("facts", {})
    began, ended = epoch(event["time"]), epoch(event["end"]) if "end" in event else None
    source = [at(event, f"source.{name}") for name in (schema.NAME, schema.ADDRESS, schema.GROUP)]
    source += [labels.get(name) for name in _SOURCES]
    said = {
        schema.INCIDENT: event["incident"],
        schema.ALERT_TITLE: event["title"],
        schema.ALERT_SUMMARY: event["summary"].removeprefix("Resolved: "),
        schema.ALERT_SOURCE: facts.get(texts.SOURCE),
        schema.ALERT_DESTINATION: facts.get(texts.DESTINATION),
        schema.ALERT_PROTOCOL: facts.get(texts.PROTOCOL),
        schema.BYTES_TEXT: facts.get(texts.BYTES),
        schema.DURATION_TEXT: facts.get(texts.DURATION),
        schema.ALERT_NODE: facts.get(texts.NODE) or at(event, "job.node"),
        schema.ALERT_JOB: facts.get(texts.JOB) or at(event, "job.id"),
        schema.ALERT_COST: facts.get(texts.COST),
        schema.WHAT_TO_DO: facts.get(texts.WHAT_TO_DO),
        schema.RUNBOOK: event.get("runbook"),
        schema.MAINTENANCE: event.get("maintenance"),
        schema.ALERT_SRC_ADDRESS: at(event, "source.address"),
        schema.ALERT_DST_ADDRESS: at(event, "destination.address"),
        schema.ALERT_ENTERED: f"{at(event, 'traffic.exporter') or ''} {at(event, 'traffic.interface') or ''}".strip(),
    }
    return {
        WINDOW: int(began if change is Change.FIRED or ended is None else ended),
        schema.RULE: event["action"],
        schema.SEVERITY: event["severity"],
        schema.SRC: next((one for one in source if one), ""),
        schema.ALERT_KEY: event_id(event["action"], labels)[:_KEY_DIGITS],
        schema.CHANGE: change.value,
        **{field.name: None if text is None else " ".join(text.split())[:_LONGEST] for field, text in said.items()},
        # Whole: half a JSON is none.
        schema.ALERT_LABELS.name: json.dumps(labels) if len(json.dumps(labels)) <= _LONGEST_LABELS else None,
        schema.ALERT_PORT.name: _port(event, "port"),
        schema.ALERT_PORT_MAX.name: _port(event, "port_max"),
        schema.ALERT_BYTES.name: at(event, "traffic.bytes"),
        schema.ALERT_DURATION.name: at(event, "traffic.duration"),
        schema.MUTED.name: int(bool(event.get("maintenance"))),
        schema.BEGAN.name: began,
        schema.ENDED.name: ended,
        schema.FIRED_SECONDS.name: None if ended is None else ended - began,
    }


def _port(event: Document, name: str) -> int | None:
    """Return the port of the side that was called."""
    found: int | None = at(event, f"destination.{name}") or at(event, f"source.{name}")
    return found
