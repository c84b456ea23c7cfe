"""What else was there around an alert: jobs on the node, other alerts, and what could not be seen."""

from collections.abc import Iterator
from itertools import pairwise

import polars as pl

from analysis.jobs.hostlist import expand
from app.words import lasting
from operations.alert_history import MOST, StoredAlert, stored_alerts
from reporting.content import Cells, Column, Kind, Section, Table, Tone, Word
from reporting.look import Look
from reporting.words import counted
from rules.rule import Severity
from store import schema
from store.influxql import Select, compare, count, highest, is_in, newest, says, total
from store.points import WINDOW
from store.sums import binned

_DAYS = 30
_MOST = 40
_JOB_DAYS = 14
"""How long ago a job that still runs may have started: its nodes stand in the row of its start."""


def jobs_nearby(look: Look, node: str, job: str) -> Iterator[Section]:
    """Yield the jobs that ran on a node in the time looked at, or the one that the alert names."""
    if not node and not job:
        return
    running = Select(schema.JOB_STATUS, schema.RAW).where(compare(schema.ACTIVE, "=", 1))
    tags = (schema.JOB, schema.JOB_CLASS)
    ran = {
        (row[schema.JOB], row[schema.JOB_CLASS]): row for row in look.rows(running.by(*tags).take(count(schema.ACTIVE)))
    }
    # Texts of rows that were taken back are empty.
    named = Select(schema.JOB_STATUS, schema.RAW).where(says(schema.JOB_NODE_NAMES, "", "!="))
    names = named.by(*tags).take(newest(schema.JOB_NODE_NAMES), newest(schema.JOB_ORIGIN))
    nodes = {
        (row[schema.JOB], row[schema.JOB_CLASS]): row
        for row in look.rows(names, since=look.period.start - _JOB_DAYS * 86_400)
    }
    cells: list[Cells] = []
    for key in sorted(ran):
        told = nodes.get(key, {})
        listed = told.get(schema.JOB_NODE_NAMES.name) or ""
        if key[0] == job or (node and node in _names(listed)):
            cells.append((*key, listed, told.get(schema.JOB_ORIGIN.name) or ""))
    columns = Column("job", "Job"), Column("class", "Class"), Column("nodes", "Nodes"), Column("origin", "Told by")
    gone = look.gone(schema.JOB_STATUS, "Rows of jobs")
    none = "Which jobs ran there is not known any more." if gone else "No job ran there, as far as job sources tell."
    lead = f"{counted(len(cells), 'job')} ran." if cells else none
    where = f"Jobs on {node}" if node else "Job"
    table = Table("jobs", "Jobs", columns, tuple(cells), "Not known any more." if gone else "None.")
    yield Section("jobs", where, lead, blocks=(table,), notes=gone)


def _names(listed: str) -> list[str]:
    try:
        return expand(listed)
    except ValueError:
        return []


def alerts_nearby(look: Look, alert: StoredAlert, node: str, destination: str, job: str) -> Section:
    """Return other alerts with its ends, job, exporter or labels, in the days before and since."""
    start = alert.began - _DAYS * 86_400
    cells: list[Cells] = []
    known = stored_alerts(look.store, start, look.now)
    for other in known:
        if other.id == alert.id:
            continue
        # Who sent most need not have opened the connection: of one conversation, rules name the ends either way round.
        ends = {other.source, other.labels.get(schema.NODE, ""), other.labels.get(schema.DST, "")}
        shared = [
            word
            for word, mine, theirs in (
                ("source", node, ends),
                ("destination", destination, ends),
                ("job", job, {other.job, other.labels.get(schema.JOB, "")}),
                ("exporter", alert.labels.get(schema.EXPORTER), {other.labels.get(schema.EXPORTER)}),
            )
            if mine and mine in theirs
        ]
        if not shared and (other.rule, other.labels) == (alert.rule, alert.labels):
            shared = ["rule and labels"]
        if shared:
            tone = Tone.ACT if other.severity == Severity.CRITICAL else Tone.LOOK
            lasted = None if other.ended is None else other.ended - other.began
            cells.append(
                (
                    other.began,
                    Word(other.rule, tone),
                    ", ".join(shared),
                    other.summary or other.title,
                    lasted,
                    other.id[:8],
                )
            )
    columns = (
        Column("began", "Began", Kind.MOMENT), Column("rule", "Rule"), Column("shared", "The same"),
        Column("summary", "What happened"), Column("lasted", "Lasted", Kind.SECONDS), Column("id", "Id"),
    )  # fmt: skip
    since = f"in the {_DAYS} days before it, or since"
    lead = f"{counted(len(cells), 'other alert')} with an end, the job, exporter or labels of this one {since}."
    notes = [f"The newest {_MOST} are shown."] if len(cells) > _MOST else []
    if len(known) == MOST:
        notes.append(f"Of alerts before {look.words.moment(known[-1].began)} nothing was read: {MOST:,} came after.")
    table = Table("others", "Other alerts, the newest first", columns, tuple(cells[:_MOST]), "None.")
    return Section(
        "others", "Other alerts", lead if cells else f"No other alert {since}.", blocks=(table,), notes=tuple(notes)
    )


def unseen(look: Look) -> Section:
    """Return what nobody could see in this time."""
    said = Select(schema.EXPORTER_STATUS, look.period.retention).by(schema.EXPORTER)
    rows = look.rows(said.take(total(schema.SEQ_LOST), highest(schema.SAMPLING)))
    losses = {row[schema.EXPORTER]: row[schema.SEQ_LOST.name] or 0 for row in rows}
    rates = sorted((row[schema.EXPORTER], int(row[schema.SAMPLING.name] or 1)) for row in rows)
    sampled = [f"{name} 1 packet in {rate:,}" for name, rate in rates if rate > 1]
    silences = _silences(look)
    cells: list[Cells] = []
    for exporter in look.cluster.exporters:
        state = silences.get(exporter.name, "")
        if state or losses.get(exporter.name):
            cells.append((exporter.name, Word(state, Tone.LOOK) if state else "", losses.get(exporter.name, 0)))
    columns = Column("exporter", "Exporter"), Column("state", "State"), Column("lost", "Records lost", Kind.COUNT)
    lead = (
        f"{counted(len(cells), 'exporter')} silent or with losses." if cells else "Every exporter was heard throughout."
    )
    none = "None was silent, and none lost records."
    left = counted(len(cells) - _MOST, "more exporter") if len(cells) > _MOST else ""
    return Section(
        "unseen", "What was not seen", lead,
        blocks=(Table("exporters", "Exporters", columns, tuple(cells[:_MOST]), none),),
        notes=(
            *((f"{left} left out: clusterflow report of this time has all.",) if left else ()),
            "Flow records do not show RDMA that bypasses the exporters, NVLink, or what was in a transfer.",
            *((f"Sampling exporters: {', '.join(sampled[:_MOST])}. Bytes that only they saw are estimates.",)
              if sampled else ()),
            "What an exporter that was silent would have reported is missing from every number above.",
        ),
    )  # fmt: skip


def _silences(look: Look) -> dict[str, str]:
    """Return how long exporters were silent, in words; pauses that a quiet device makes are none."""
    step, stop, number = max(60, look.period.window), look.period.stop, schema.EXPORTER_RECORDS
    # With bins that begin before what is asked for, InfluxDB answers nothing.
    start = look.period.start // step * step
    heard = Select(schema.EXPORTER_STATUS, look.period.retention).where(compare(number, ">", 0)).by(schema.EXPORTER)
    # Counted by the store: a thousand exporters have a million minutes in a day.
    minutes = Select(heard.take(count(number)).each(step)).by(schema.EXPORTER).take(count(number))
    counts = {row[schema.EXPORTER]: row[number.name] * step for row in look.rows(minutes, since=start)}
    limit = max(look.cluster.thresholds.exporter_silent, step)
    # Nobody expects anything of others.
    watched = [exporter.name for exporter in look.cluster.exporters if exporter.watched]
    missing = [name for name in watched if stop - start - counts.get(name, 0) > limit]
    if not missing:
        return {}
    bins = binned(
        look.store, schema.EXPORTER_STATUS, look.period.retention, (number,), (schema.EXPORTER,),
        start=start, stop=stop, seconds=step, where=[is_in(schema.EXPORTER, missing)],
    ).filter(pl.col(number.name) > 0)  # fmt: skip
    moments = dict(bins.group_by(schema.EXPORTER).agg(WINDOW).iter_rows())
    found = {name: "never heard" for name in missing if name not in moments}
    for name, at in moments.items():
        edges = [start - step, *sorted(at), stop]
        silent = sum(gap for one, other in pairwise(edges) if (gap := other - one - step) > limit)
        found |= {name: f"silent for {lasting(silent)}"} if silent else {}
    return found
