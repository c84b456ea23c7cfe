"""All sections of a report, and the report as data."""

from typing import Any

from analysis.audit import Period
from app.units import format_moment
from cluster.model import Cluster
from reporting.content import Bars, Column, Fact, Kind, Report, Section, Table, Value, Word
from reporting.look import Look
from reporting.sections import alerts, checkpoints, contacts, egress, gaps, inference, segmentation, stalls
from rules.evaluate.backtest import Told
from store.influx import Store

SCHEMA = "clusterflow.report/1"
"""Name of the JSON's form: keys may be added to it, none is renamed."""

_SECTIONS = (
    segmentation.section,
    egress.section,
    contacts.section,
    inference.section,
    checkpoints.section,
    stalls.section,
    gaps.section,
)


def report_of(cluster: Cluster, store: Store, period: Period, now: int, told: Told | None = None) -> Report:
    """Return the report of a period.

    Args:
        cluster: what it is about.
        store: asked.
        period: whole windows.
        now: epoch seconds.
        told: told how far the evaluation of rules is; None: they are not evaluated.

    Raises:
        StoreError: the store is away.
    """
    look = Look(cluster, store, period, now)
    found = [section(look) for section in _SECTIONS]
    found.append(alerts.history(look) if told is None else alerts.section(look, told))
    is_empty = look.audit.blind >= period.stop - period.start
    return Report(cluster.name, look.zone, period, now, is_empty, tuple(found))


def document(report: Report) -> dict[str, Any]:
    """Return the report for machines: base units (bytes, seconds, USD, shares of 1), times as ISO 8601 in UTC."""
    period = report.period
    return {
        "schema": SCHEMA,
        "cluster": report.cluster,
        "period": {
            "from": format_moment(period.start),
            "to": format_moment(period.stop),
            "time_zone": report.zone.key,
            "retention": period.retention,
            "window_seconds": period.window,
        },
        "made_at": format_moment(report.made_at),
        "is_empty": report.is_empty,
        "attention": [
            {"section": section.id, "tone": word.tone.value, "text": word.text} for section, word in report.attention()
        ],
        "sections": {section.id: _section(section) for section in report.sections},
    }


def _section(section: Section) -> dict[str, Any]:
    tables = [block for block in section.blocks if isinstance(block, Table)]
    charts = [block for block in section.blocks if isinstance(block, Bars)]
    return {
        "title": section.title,
        "is_measured": section.is_measured,
        "lead": section.lead,
        "facts": {fact.key: _fact(fact) for fact in section.facts},
        "tables": {table.key: _rows(table) for table in tables},
        "charts": {chart.key: _bars(chart) for chart in charts},
        "notes": list(section.notes),
    }


def _fact(fact: Fact) -> dict[str, Any]:
    return {"title": fact.title, "unit": fact.kind.value, "value": _value(fact.value, fact.kind)}


def _rows(table: Table) -> list[dict[str, Any]]:
    return [_row(table.columns, row) for row in table.rows]


def _row(columns: tuple[Column, ...], row: tuple[Value, ...]) -> dict[str, Any]:
    return {column.key: _value(value, column.kind) for column, value in zip(columns, row, strict=True)}


def _value(value: Value, kind: Kind) -> str | int | float | None:
    if isinstance(value, Word):
        return value.text
    if kind is Kind.MOMENT and isinstance(value, int | float):
        return format_moment(value)
    return value


def _bars(chart: Bars) -> dict[str, Any]:
    return {
        "title": chart.title,
        "unit": chart.kind.value,
        "from": [format_moment(start) for start in chart.starts],
        "to": format_moment(chart.stop),
        "values": {stack.name: list(stack.values) for stack in chart.stacks},
    }
