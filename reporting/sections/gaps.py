"""When were we blind? Exporters that were silent, parts of ours that did not run, times of which nothing is stored."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from app.words import lasting
from cluster.model import Role
from dashboards import palette
from reporting.content import Column, Fact, Kind, Mark, Marks, Section, Table, Tone, Word
from reporting.look import TIME, Look
from reporting.sections.alerts import was_kept
from reporting.sections.sight import exporter_table, hidden, job_sources, lists
from reporting.words import counted, percent, plain
from store import schema
from store.influxql import Condition, Select, beside, compare, count, is_in
from store.points import WINDOW
from store.schema import Stage
from store.sums import binned

_RECORDS = schema.EXPORTER_RECORDS.name
_ANYTHING = "all flow data"
_SILENT, _NOT_RUNNING, _NOTHING = "silent", "not running", "nothing stored"
_BEATS = "beats"
_LEGS = {
    schema.STORED_AFTER: "Stored",
    schema.JUDGED_AFTER: "Found",
    schema.FIRED_AFTER: "Alert",
    schema.TOLD_AFTER: "Notified",
}
_DRAWN = 30
"""Exporters that the time line has rows for; of more, those that were silent."""
_LISTED = 500
"""Gaps that a table lists; the sums by subject hold all."""


@dataclass(frozen=True, slots=True)
class _Gap:
    """A stretch of time in which nothing came from a subject; epoch seconds."""

    subject: str
    what: str
    start: int
    stop: int

    @property
    def seconds(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of ours that says that it runs.

    Attributes:
        limit: seconds of silence that an alert tells of.
        condition: which of its beats count.
    """

    title: str
    stage: Stage
    limit: int
    condition: tuple[Condition, ...] = ()
    is_expected: bool = True


def section(look: Look) -> Section:
    """Return the section."""
    heard = _heard(look)
    parts = _parts(look)
    exporters, running = list(_silences(look, heard)), list(_pauses(look, parts))
    blind = [
        _Gap(_ANYTHING, _NOTHING, start, stop)
        for start, stop in _stretches(look, {at for moments in heard.values() for at in moments}, look.audit.resolution)
    ]
    period = look.period.stop - look.period.start
    blind_seconds = sum(gap.seconds for gap in blind)
    lost, records = look.audit.lost, look.audit.records
    silent = {gap.subject for gap in exporters}
    gaps = [*blind, *exporters, *running]
    silence = f"{counted(len(silent), 'exporter')} fell silent" if silent else "no exporter fell silent"
    lead = f"Something was stored for {percent(1 - blind_seconds / period)} of the period; {silence}."
    return Section(
        "gaps",
        "Monitoring gaps",
        lead,
        facts=(
            Fact("blind_seconds", "Without any flow record", blind_seconds, Kind.SECONDS,
                 Tone.LOOK if blind_seconds else Tone.QUIET, in_summary=True),
            Fact("silent_exporters", "Exporters that fell silent", len(silent), Kind.COUNT,
                 Tone.LOOK if silent else Tone.QUIET),
            Fact("lost_share", "Flow records lost on their way", lost / (lost + records) if lost + records else 0.0,
                 Kind.SHARE),
        ),
        attention=tuple(_attention(look, blind_seconds, exporters, running)),
        blocks=(
            _timeline(look, gaps, parts),
            _by_subject(gaps),
            _list(gaps),
            exporter_table(look, heard),
            *job_sources(look),
            *_drills(look),
            *_floor(look),
            lists(look),
            hidden(look),
        ),
        notes=tuple(_notes(look, parts)),
    )  # fmt: skip


# -- drills ---------------------------------------------------------------------------------------------


def _drills(look: Look) -> Iterator[Table]:
    """Yield what drills said of the way from exporter to alert, where there is a group for them or there were some."""
    found = []
    fields = (schema.EVENT_BYTES, *_LEGS, schema.TROUBLE)
    for row in look.rows(Select(schema.DRILL, schema.DRILL.kept).take(*map(beside, fields)).by(schema.KIND)):
        trouble = row.get(schema.TROUBLE.name) or ""
        legs = (row.get(leg.name) for leg in _LEGS)
        outcome = Word(trouble, Tone.LOOK) if trouble else Word("told", Tone.QUIET)
        found.append((row[TIME], str(row[schema.KIND]), row[schema.EVENT_BYTES.name], *legs, outcome))
    if not found and not look.cluster.groups_with(Role.DRILL):
        return
    found.sort(key=lambda row: row[0])
    columns = (
        Column("at", "Sent", Kind.MOMENT), Column("theft", "Theft"), Column("bytes", "Bytes", Kind.BYTES),
        *(Column(leg.name, title, Kind.SECONDS) for leg, title in _LEGS.items()), Column("outcome", "Outcome"),
    )  # fmt: skip
    yield Table("drills", "Drills", columns, tuple(found), "No drill was held: `clusterflow drill` stages a theft.")


def _floor(look: Look) -> Iterator[Table]:
    """Yield how much could leave unseen as the last run of the period found it, if there was one."""
    fields = (schema.DAILY_UNSEEN, schema.SUSTAINED_UNSEEN, schema.DAYS_TO_LOSE)
    asked = Select(schema.FLOOR, schema.FLOOR.kept).take(*map(beside, fields)).by(schema.KIND, schema.ABOUT)
    rows = look.rows(asked)
    if not rows:
        return
    last = max(row[TIME] for row in rows)
    columns = (
        Column("way", "Way"), Column("about", "What"), Column("one_day", "In one day", Kind.BYTES),
        Column("lasting", "A day, for 30 days", Kind.BYTES), Column("models", "Days to lose each model"),
    )  # fmt: skip
    found = tuple(
        (row[schema.KIND], row[schema.ABOUT], *(row.get(field.name) for field in fields))
        for row in rows
        if row[TIME] == last
    )
    yield Table("unseen_floor", "How much could leave without an alert", columns, found, "")


# -- silence -------------------------------------------------------------------------------------------


def _heard(look: Look) -> dict[str, list[int]]:
    """Return for each exporter, those of cluster.yaml first, the bins in which flow records of it came."""
    step, period = look.audit.resolution, look.period
    # As a frame: a thousand exporters have millions of bins in a week.
    bins = binned(
        look.store, schema.EXPORTER_STATUS, period.retention, (schema.EXPORTER_RECORDS,), (schema.EXPORTER,),
        start=period.start // step * step, stop=period.stop, seconds=step,
    ).filter(pl.col(_RECORDS) > 0)  # fmt: skip
    found: dict[str, list[int]] = {exporter.name: [] for exporter in look.cluster.exporters}
    return found | dict(bins.group_by(schema.EXPORTER, maintain_order=True).agg(WINDOW).iter_rows())


def _silences(look: Look, heard: dict[str, list[int]]) -> Iterator[_Gap]:
    resolution = look.audit.resolution
    limit = max(look.cluster.thresholds.exporter_silent, resolution)
    # Nobody expects anything of others.
    for exporter in (one for one in look.cluster.exporters if one.watched):
        for start, stop in _stretches(look, set(heard[exporter.name]), resolution):
            if stop - start > limit:
                yield _Gap(exporter.name, _SILENT, start, stop)


def _stretches(look: Look, moments: set[int], step: int, since: int | None = None) -> list[tuple[int, int]]:
    """Return the stretches of the period, or from `since` on, without any of these bins, each `step` seconds long."""
    period = look.period
    edges = [
        period.start if since is None else since,
        *(edge for at in sorted(moments) for edge in (at, at + step)),
        period.stop,
    ]
    return [(start, stop) for start, stop in list(pairwise(edges))[::2] if stop > start]


def _parts(look: Look) -> tuple[_Part, ...]:
    limits = look.cluster.thresholds
    behind = compare(schema.VALUE, "<=", limits.analysis_silent)
    return (
        _Part("bridge (clusterflow ingest)", Stage.BRIDGE, limits.ingest_silent),
        # One that is far behind judges nothing of the present.
        _Part("analysis (clusterflow analyze)", Stage.ANALYSIS, limits.analysis_silent, (behind,)),
        _Part(
            "delivery (clusterflow deliver)", Stage.DELIVER, limits.ingest_silent,
            # Without destinations it keeps the history of alerts, where somebody started it.
            is_expected=bool(look.cluster.delivery.destinations) or was_kept(look),
        ),
    )  # fmt: skip


def _pauses(look: Look, parts: Sequence[_Part]) -> Iterator[_Gap]:
    # Only the bridge's own are rolled up.
    since, step = look.known_since(schema.RAW), 60
    for part in parts:
        if not part.is_expected:
            continue
        beats = (
            Select(schema.PIPELINE, schema.RAW)
            .take(count(schema.VALUE, _BEATS))
            .where(is_in(schema.STAGE, [part.stage]), is_in(schema.REASON, [schema.HEARTBEAT]), *part.condition)
        )
        moments = {row[TIME] for row in look.rows(beats.each(step), since=since)}
        for start, stop in _stretches(look, moments, step, since):
            if stop - start > max(part.limit, step):
                yield _Gap(part.title, _NOT_RUNNING, start, stop)


def _attention(look: Look, blind_seconds: int, exporters: Sequence[_Gap], running: Sequence[_Gap]) -> Iterator[Word]:
    if blind_seconds:
        yield Word(
            f"For {lasting(blind_seconds)} nothing at all was stored: nothing of that time was watched", Tone.LOOK
        )
    for gaps in (exporters, running):
        for subject in dict.fromkeys(gap.subject for gap in gaps):
            mine = [gap.seconds for gap in gaps if gap.subject == subject]
            if blind_seconds < sum(mine):
                what = next(gap.what for gap in gaps if gap.subject == subject)
                stretches = counted(len(mine), "stretch", "stretches")
                yield Word(f"{plain(subject)} was {what} for {lasting(sum(mine))} in {stretches}", Tone.LOOK)
    if look.audit.lost:
        share = look.audit.lost / (look.audit.lost + look.audit.records)
        if share > look.cluster.thresholds.flow_loss:
            yield Word(f"{percent(share)} of all flow records were lost on their way to the collector", Tone.LOOK)


def _timeline(look: Look, gaps: Sequence[_Gap], parts: Sequence[_Part]) -> Marks:
    colours = {_SILENT: palette.LOOK, _NOT_RUNNING: palette.BLIND, _NOTHING: palette.ACT}
    marks = tuple(Mark(gap.subject, gap.start, gap.stop, gap.what, colours[gap.what]) for gap in gaps)
    exporters = [one.name for one in look.cluster.exporters if one.watched]
    if len(exporters) > _DRAWN:
        silent = {gap.subject for gap in gaps}
        exporters = [name for name in exporters if name in silent][:_DRAWN]
    rows = (_ANYTHING, *exporters, *(part.title for part in parts if part.is_expected))
    marks = tuple(mark for mark in marks if mark.row in rows)
    return Marks("timeline", "When something was missing", rows, marks, look.period.start, look.period.stop)


def _by_subject(gaps: Sequence[_Gap]) -> Table:
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for gap in gaps:
        found[gap.subject, gap.what].append(gap.seconds)
    rows = tuple((subject, what, len(mine), sum(mine), max(mine)) for (subject, what), mine in found.items())
    columns = (
        Column("subject", "Who"), Column("what", "What"), Column("stretches", "Stretches", Kind.COUNT),
        Column("seconds", "In all", Kind.SECONDS, bar=True), Column("longest_seconds", "Longest", Kind.SECONDS),
    )  # fmt: skip
    return Table("by_subject", "What was missing", columns, rows, "Nothing was missing in this period.")


def _list(gaps: Sequence[_Gap]) -> Table:
    longest = sorted(gaps, key=lambda gap: (-gap.seconds, gap.start, gap.subject))[:_LISTED]
    rows = tuple((gap.subject, gap.what, gap.start, gap.stop, gap.seconds) for gap in longest)
    columns = (
        Column("subject", "Who"), Column("what", "What"), Column("from", "From", Kind.MOMENT),
        Column("to", "To", Kind.MOMENT), Column("seconds", "For", Kind.SECONDS, bar=True),
    )  # fmt: skip
    return Table("gaps", "The longest gaps", columns, rows, "Nothing was missing in this period.")


def _notes(look: Look, parts: Sequence[_Part]) -> Iterator[str]:
    yield (
        "Flow records never show NVLink, InfiniBand, most RDMA, traffic inside one host, or the content of anything; "
        "what sampling skipped is estimated. An absence anywhere in this report means that no exporter saw it."
    )
    limit = max(look.cluster.thresholds.exporter_silent, look.audit.resolution)
    yield f"Silences of {lasting(limit)} or less are left out."
    unexpected = [part.title for part in parts if not part.is_expected]
    if unexpected:
        yield f"Not watched, as cluster.yaml does not configure it: {', '.join(unexpected)}."
    yield "Whether Grafana evaluated the alert rules is not measured: it keeps no record in the store."
    yield from look.gone(schema.PIPELINE, "Records that bridge, analysis and delivery ran, and of job sources,")
    yield from look.gone(schema.COVERAGE, "Verdicts on what was seen of each pair of groups, and the state of lists,")
