"""How well could we see? What each exporter sent and lost, sources and lists that failed, and pairs that never show."""

from collections.abc import Iterator, Mapping, Sequence

from dashboards import palette
from dashboards.parts import transport
from reporting.content import Cells, Column, Kind, Table, Tone, Word
from reporting.look import Look
from store import schema
from store.influxql import Select, compare, count, highest, is_in, newest, total
from store.schema import CoverageState, JobReading, ListState, Stage

_RECORDS, _LOST = schema.EXPORTER_RECORDS.name, schema.SEQ_LOST.name
_NOT_DECLARED = (CoverageState.UNDECLARED, CoverageState.PARTIAL)


def exporter_table(look: Look, heard: Mapping[str, Sequence[int]]) -> Table:
    """Return what each exporter sent and lost, those of cluster.yaml first.

    Args:
        look: at the period.
        heard: for each exporter the moments at which something came.
    """
    each = Select(schema.EXPORTER_STATUS, look.period.retention).by(schema.EXPORTER)
    fields = schema.EXPORTER_RECORDS, schema.SEQ_LOST, schema.SKEWED, schema.UNKNOWN_RATE
    sums = {row[schema.EXPORTER]: row for row in look.rows(each.take(*map(total, fields)))}
    rows = []
    for exporter, moments in heard.items():
        row = sums.get(exporter, {})
        numbers = [row.get(one.name) or 0 for one in fields]
        share = numbers[1] / (numbers[0] + numbers[1]) if numbers[1] else 0.0
        state = Word("heard") if moments else Word("never heard", Tone.LOOK)
        rows.append((exporter, state, numbers[0], numbers[1], share, *numbers[2:]))
    columns = (
        Column(schema.EXPORTER, "Exporter"), Column("state", "State"), Column(_RECORDS, "Flow records", Kind.COUNT),
        Column(_LOST, "Lost", Kind.COUNT), Column("lost_share", "Share lost", Kind.SHARE),
        Column(schema.SKEWED.name, "With a wrong clock", Kind.COUNT),
        Column(schema.UNKNOWN_RATE.name, "With an unknown sampling rate", Kind.COUNT),
    )  # fmt: skip
    return Table("exporters", "Exporters", columns, tuple(rows), "cluster.yaml lists no exporters.")


def job_sources(look: Look) -> Iterator[Table]:
    """Yield what is known of job sources, where any says how it is."""
    # Not every process that writes readings has them rolled up.
    readings = Select(schema.PIPELINE, schema.RAW).take(highest(schema.VALUE)).where(is_in(schema.STAGE, [Stage.JOBS]))
    worst: dict[str, float] = {}
    for row in look.rows(readings.by(schema.REASON)):
        name, _, reading = row[schema.REASON].rpartition(".")
        if reading == JobReading.FAILING:
            worst[name] = row[schema.VALUE.name] or 0.0
    if worst:
        rows = tuple(sorted(worst.items()))
        columns = Column("source", "Job source"), Column("failing_seconds", "Longest without an answer", Kind.SECONDS)
        yield Table("job_sources", "Job sources", columns, rows, "")


def lists(look: Look) -> Table:
    """Return the files about outside addresses that were stale or broken at any time."""
    states = Select(schema.ENRICHMENT, schema.ENRICHMENT.kept).by(schema.NAME, schema.KIND)
    bad = states.where(compare(schema.LIST_STATE, ">", ListState.OK))
    words = schema.LIST_STATE_WORDS
    facts = look.rows(bad.take(highest(schema.LIST_STATE), highest(schema.LIST_AGE), newest(schema.LIST_ERROR)))
    rows = tuple(
        (row[schema.NAME], row[schema.KIND], Word(words.get(row[schema.LIST_STATE.name], ""), Tone.LOOK),
         row[schema.LIST_AGE.name], row[schema.LIST_ERROR.name] or "")
        for row in facts
    )  # fmt: skip
    columns = (
        Column(schema.NAME, "List"), Column(schema.KIND, "Kind"), Column("at_worst", "At worst"),
        Column(schema.LIST_AGE.name, "Oldest", Kind.SECONDS), Column(schema.LIST_ERROR.name, "What was wrong"),
    )  # fmt: skip
    is_measured = bool(rows or look.rows(states.take(count(schema.LIST_STATE))))
    empty = "All were well." if is_measured else "Not measured: cluster.yaml names no such files, or none was in use."
    return Table("lists", "Lists about outside addresses that were stale or broken", columns, rows, empty)


def hidden(look: Look) -> Table:
    """Return the pairs of groups that flow records do not show, or not as declared."""
    titles = palette.group_titles(look.cluster)
    rows: list[Cells] = [(a, b, f"declared {how}: not visible") for a, b, how in transport.hidden_pairs(look.cluster)]
    # All verdicts are read, so that a pair that was partly seen for an hour is reported, too.
    for state in _NOT_DECLARED:
        verdicts = Select(schema.COVERAGE, schema.COVERAGE.kept).where(compare(schema.COVERAGE_STATE, "=", state))
        for row in look.rows(verdicts.take(count(schema.COVERAGE_STATE)).by(schema.SRC_GROUP, schema.DST_GROUP)):
            a, b = (titles.get(row[tag], row[tag]) for tag in (schema.SRC_GROUP, schema.DST_GROUP))
            rows.append((a, b, f"{schema.COVERAGE_WORDS[state]}, at times"))
    columns = Column("one", "Group"), Column("other", "Group"), Column("why", "Why")
    empty = "No pair of groups is declared RDMA, and none was seen otherwise than declared."
    return Table(
        "not_visible", "Pairs of groups that flow records do not show, or not wholly", columns, tuple(rows), empty
    )
