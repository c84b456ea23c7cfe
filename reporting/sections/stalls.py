"""What waiting cost: time that jobs lost, by cause, in GPU-hours and USD."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from app.words import lasting
from dashboards import palette
from reporting.content import Bars, Cells, Column, Fact, Kind, Section, Stack, Table, Tone, Word
from reporting.look import FIRST, LAST, Look, Row, split
from reporting.words import counted, plain, usd
from store import schema
from store.influxql import Select, highest, total
from store.schema import Cause

_CAUSES = {
    Cause.DROPOUT.value: ("a node dropped out", palette.LOOK),
    Cause.SLOW.value: ("slow as a whole", palette.QUIET),
    Cause.STALLED.value: ("stalled", palette.BLIND),
    Cause.PAUSE.value: ("short pauses", palette.OTHER_COLOUR),
    Cause.STORAGE.value: ("waits for storage", palette.DIM),
    Cause.LOADING.value: ("slow loading", palette.DIM),
    Cause.CHECKPOINT.value: ("long checkpoints", palette.DIM),
    Cause.DISTURBED.value: ("disturbed by others", palette.ACT),
}
_LOST, _USD, _GPUS = schema.LOST_SECONDS.name, schema.USD.name, schema.STALL_GPUS.name
_GPU_HOURS, _JOBS = "gpu_hours", "jobs"
_TAGS = (schema.JOB, schema.JOB_CLASS, schema.CAUSE)


def section(look: Look) -> Section:
    """Return the section."""
    stalls = _stalls(look)
    lost, hours, cost = (sum(row[name] for row in stalls) for name in (_LOST, _GPU_HOURS, _USD))
    price = look.cluster.cost.usd_per_gpu_hour
    jobs = len({row[schema.JOB] for row in stalls})
    lead = f"{counted(jobs, 'job')} lost {lasting(lost)} in all: {hours:,.1f} GPU-hours, {usd(cost)}."
    return Section(
        "stalls",
        "Stalls and their cost",
        lead if stalls else "No job lost time, as far as flow records tell.",
        facts=(
            Fact(_LOST, "Time that jobs lost", lost, Kind.SECONDS),
            Fact(_GPU_HOURS, "GPUs waited", hours, Kind.GPU_HOURS),
            Fact(_USD, "Cost of stalls", cost, Kind.USD, Tone.LOOK if cost else Tone.QUIET, in_summary=True),
        ),
        attention=tuple(_attention(stalls, cost)),
        blocks=(_chart(look), _by_cause(stalls), _by_job(stalls)),
        notes=(
            f"At {price:g} USD a GPU-hour. All GPUs of a job wait alike, as its steps are synchronous: an upper bound.",
            "Time lost before a verdict is in the verdict's window.",
        ),
    )


def _stalls(look: Look) -> list[Row]:
    """Return what each job lost by each cause, the most expensive first."""
    ledger = Select(schema.STALL, schema.STALL.kept)
    waited = look.rows(ledger.take(highest(schema.STALL_GPUS)).by(*_TAGS))
    gpus = {tuple(row[tag] for tag in _TAGS): row[_GPUS] for row in waited}
    found = []
    for row in look.seen(ledger, (schema.LOST_SECONDS, schema.USD), _TAGS):
        waiting = gpus.get(tuple(row[tag] for tag in _TAGS)) or 0
        found.append(row | {_USD: row[_USD] or 0.0, _GPUS: waiting, _GPU_HOURS: row[_LOST] * waiting / 3600})
    return sorted(found, key=lambda row: (-row[_USD], *(row[tag] for tag in _TAGS)))


def _attention(stalls: Sequence[Row], cost: float) -> Iterable[Word]:
    if stalls:
        row = stalls[0]
        yield Word(
            f"Stalls cost {usd(cost)}; the most: {plain(row[schema.JOB])}, {_cause(row[schema.CAUSE])}, "
            f"{lasting(row[_LOST])} of {counted(row[_GPUS], 'GPU')}, {usd(row[_USD])}",
            Tone.LOOK,
        )


def _cause(cause: str) -> str:
    return _CAUSES[cause][0] if cause in _CAUSES else cause


def _chart(look: Look) -> Bars:
    rows = look.over_time(Select(schema.STALL, schema.STALL.kept).take(total(schema.USD)).by(schema.CAUSE))
    sums, bins = split(rows, schema.CAUSE, _USD, look.bins), look.bins
    stacks = (
        Stack(_cause(cause), _CAUSES.get(cause, ("", palette.OTHER_COLOUR))[1], tuple(values))
        for cause, values in sorted(sums.items())
    )
    return Bars("over_time", "Cost of stalls, by cause", Kind.USD, bins.starts, bins.stop, tuple(stacks))


def _lost_columns() -> tuple[Column, ...]:
    return (
        Column(_LOST, "Lost", Kind.SECONDS), Column(_GPU_HOURS, "GPUs waited", Kind.GPU_HOURS),
        Column(_USD, "Cost", Kind.USD, bar=True),
    )  # fmt: skip


def _by_cause(stalls: Sequence[Row]) -> Table:
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0])
    for row in stalls:
        one = sums[row[schema.CAUSE]]
        one[:] = [one[0] + 1, *(old + row[name] for old, name in zip(one[1:], (_LOST, _GPU_HOURS, _USD), strict=True))]
    rows: list[Cells] = [
        (_cause(cause), *numbers) for cause, numbers in sorted(sums.items(), key=lambda item: (-item[1][3], item[0]))
    ]
    columns = (Column(schema.CAUSE, "Cause"), Column(_JOBS, "Jobs", Kind.COUNT), *_lost_columns())
    return Table("by_cause", "By cause", columns, tuple(rows), "None in this period.")


def _by_job(stalls: Sequence[Row]) -> Table:
    rows = tuple(
        (row[schema.JOB], row[schema.JOB_CLASS], _cause(row[schema.CAUSE]), row[_GPUS], row[FIRST], row[LAST],
         *(row[name] for name in (_LOST, _GPU_HOURS, _USD)))
        for row in stalls
    )  # fmt: skip
    columns = (
        Column(schema.JOB, "Job"), Column(schema.JOB_CLASS, "Class"), Column(schema.CAUSE, "Cause"),
        Column(_GPUS, "GPUs", Kind.COUNT), Column(FIRST, "First", Kind.MOMENT), Column(LAST, "Last", Kind.MOMENT),
        *_lost_columns(),
    )  # fmt: skip
    return Table("by_job", "By job", columns, rows, "None in this period.")
