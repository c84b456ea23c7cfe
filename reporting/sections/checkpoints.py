"""Did the checkpoints land? Per job class its rhythm, what came on time and what did not, and how long each took."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from app.units import format_duration
from app.words import lasting
from cluster.model import CheckpointMode
from dashboards.boards.checkpoints import stood
from dashboards.palette import CHECKPOINT_COLOURS
from reporting.content import Column, Fact, Kind, Mark, Marks, Section, Table, Tone, Word
from reporting.look import TIME, Look, Row
from reporting.words import plain
from store import schema
from store.influxql import Select, beside, compare, highest, newest
from store.schema import CheckpointState

_STATE, _BYTES, _SECONDS = schema.CHECKPOINT_STATE.name, schema.EVENT_BYTES.name, schema.EVENT_SECONDS.name
_PERIOD, _GAP = schema.PERIOD.name, schema.GAP.name
_FAULTS = (
    CheckpointState.MISSED,
    CheckpointState.LATE,
    CheckpointState.SHORT,
    CheckpointState.OVER_LONG,
    CheckpointState.NODES_MISSING,
)
_JOB = (schema.JOB, schema.JOB_CLASS)


def section(look: Look) -> Section:
    """Return the section."""
    checkpoints = _checkpoints(look)
    standings = _standings(look)
    if not checkpoints and not standings:
        return Section(
            "checkpoints", "Checkpoint discipline",
            "No job wrote a checkpoint, and none that should have was running, as far as flow records tell.",
            notes=tuple(_notes(look)),
        )  # fmt: skip
    states = Counter(row[_STATE] for row in checkpoints)
    judged = len(checkpoints) - states[CheckpointState.UNJUDGED]
    on_time = states[CheckpointState.ON_TIME]
    faults = {state: states[state] for state in _FAULTS if states[state]}
    words = ", ".join(f"{number:,} {schema.CHECKPOINT_WORDS[state]}" for state, number in faults.items())
    share = on_time / judged if judged else None
    lead = f"{on_time:,} of {judged:,} checkpoints came on time and whole" + (f"; {words}." if words else ".")
    return Section(
        "checkpoints",
        "Checkpoint discipline",
        lead if judged else f"{len(checkpoints):,} checkpoints came, none of which could be judged.",
        facts=(
            Fact("on_time_share", "Checkpoints on time and whole", share, Kind.SHARE,
                 Tone.LOOK if faults else Tone.QUIET, in_summary=True),
            *(
                Fact(word, f"Checkpoints {word}", states[state], Kind.COUNT)
                for state, word in schema.CHECKPOINT_WORDS.items()
                if state in (CheckpointState.MISSED, CheckpointState.LATE, CheckpointState.SHORT)
            ),
        ),
        attention=(Word(_attention(checkpoints, words), Tone.LOOK),) if faults else (),
        blocks=(
            _timeline(look, checkpoints),
            _by_class(look, checkpoints, standings),
            _faulty(checkpoints),
            _by_job(standings),
        ),
        notes=tuple(_notes(look)),
    )  # fmt: skip


def _checkpoints(look: Look) -> list[Row]:
    """Return every checkpoint that is over or awaited no longer, and every one that was missed, in order of time."""
    fields = (
        schema.CHECKPOINT_STATE, schema.EVENT_BYTES, schema.EXPECTED_BYTES, schema.EVENT_SECONDS, schema.EVENT_NODES,
        schema.EXPECTED_NODES, schema.DUE, schema.GAP,
    )  # fmt: skip
    asked = Select(schema.CHECKPOINT, schema.CHECKPOINT.kept).take(*map(beside, fields)).where(stood())
    stands = _stands(look)
    nothing = (0, 0)

    def is_over(row: Row) -> bool:
        asked_at, counted_from = stands.get(row[schema.JOB], nothing)
        # One whose job ended amid it never is.
        is_awaited = look.now - row[TIME] < schema.CHECKPOINT_AWAITED and row[_STATE] != CheckpointState.MISSED
        return not (is_awaited and counted_from < row[TIME] <= asked_at)

    rows = filter(is_over, look.rows(asked.by(*_JOB)))
    return sorted(rows, key=lambda row: (row[TIME], row[schema.JOB]))


def _stands(look: Look) -> dict[str, tuple[int, float]]:
    """Return for each job when it was last judged, and from when on a crash would have lost its work then.

    A checkpoint's row is written while it is under way, too: it is over once the latter counts from it.
    """
    status = Select(schema.CHECKPOINT_STATUS, schema.CHECKPOINT_STATUS.kept).take(newest(schema.CHECKPOINT_AGE))
    window, age = look.cluster.bridge.window, schema.CHECKPOINT_AGE.name
    # What was under way when the period ended may be over by now.
    rows = look.rows(status.by(schema.JOB), until=look.now)
    return {row[schema.JOB]: (row[TIME], row[TIME] + window - row[age]) for row in rows}


def _standings(look: Look) -> list[Row]:
    """Return how jobs stood at worst between two checkpoints, and the rhythm by which those were judged that were."""
    status = Select(schema.CHECKPOINT_STATUS, schema.CHECKPOINT_STATUS.kept)
    worst = map(highest, (schema.CHECKPOINT_AGE, schema.OVERDUE, schema.USD_AT_RISK))
    rows = look.rows(status.take(*worst).by(*_JOB))
    judged = status.where(compare(schema.IS_REGULAR, "=", 1)).take(newest(schema.PERIOD)).by(*_JOB)
    periods = {row[schema.JOB]: row[_PERIOD] for row in look.rows(judged)}
    found = [row | {_PERIOD: periods.get(row[schema.JOB])} for row in rows]
    return sorted(found, key=lambda row: (-(row[schema.OVERDUE.name] or 0), row[schema.JOB]))


def _attention(checkpoints: Sequence[Row], words: str) -> str:
    jobs = list(dict.fromkeys(plain(row[schema.JOB]) for row in checkpoints if row[_STATE] in _FAULTS))
    more = f" and {len(jobs) - 3:,} more" if len(jobs) > 3 else ""
    return f"Checkpoints that were not as they should be: {words}; of {', '.join(jobs[:3])}{more}"


def _timeline(look: Look, checkpoints: Sequence[Row]) -> Marks:
    marks = tuple(
        Mark(row[schema.JOB_CLASS], row[TIME], row[TIME], schema.CHECKPOINT_WORDS[row[_STATE]],
             CHECKPOINT_COLOURS[row[_STATE]])
        for row in checkpoints
    )  # fmt: skip
    rows = tuple(sorted({row[schema.JOB_CLASS] for row in checkpoints}))
    return Marks("timeline", "Checkpoints by job class", rows, marks, look.period.start, look.period.stop)


def _by_class(look: Look, checkpoints: Sequence[Row], standings: Sequence[Row]) -> Table:
    rows = []
    for name in sorted({row[schema.JOB_CLASS] for row in (*checkpoints, *standings)}):
        mine = [row for row in checkpoints if row[schema.JOB_CLASS] == name]
        written_ones = [row for row in mine if row[_STATE] != CheckpointState.MISSED]
        states = Counter(row[_STATE] for row in mine)
        judged = len(mine) - states[CheckpointState.UNJUDGED]
        lengths = [row[_SECONDS] for row in written_ones]
        rows.append(
            (
                name, _rhythm(look, name, mine, standings), len(written_ones),
                states[CheckpointState.ON_TIME] / judged if judged else None,
                *(states[state] for state in _FAULTS), states[CheckpointState.UNJUDGED],
                median(lengths) if lengths else None, max(lengths, default=None),
                median(row[_BYTES] for row in written_ones) if written_ones else None,
            )
        )  # fmt: skip
    columns = (
        Column(schema.JOB_CLASS, "Job class"), Column("rhythm", "Rhythm"), Column("written", "Written", Kind.COUNT),
        Column("on_time_share", "On time and whole", Kind.SHARE),
        *(Column(re.sub(r"\W", "_", schema.CHECKPOINT_WORDS[state]), schema.CHECKPOINT_WORDS[state].capitalize(),
                 Kind.COUNT) for state in (*_FAULTS, CheckpointState.UNJUDGED)),
        Column("median_seconds", "Took, median", Kind.SECONDS), Column("longest_seconds", "Longest", Kind.SECONDS),
        Column("median_bytes", "Bytes, median", Kind.BYTES),
    )  # fmt: skip
    return Table("by_class", "By job class", columns, tuple(rows), "No checkpoint in this period.")


def _rhythm(look: Look, name: str, checkpoints: Sequence[Row], standings: Sequence[Row]) -> str:
    """Return by what a class's checkpoints are judged to be due."""
    plan = look.cluster.job_class(name).checkpoint
    if plan.mode is CheckpointMode.SCHEDULED and plan.every is not None:
        return f"every {format_duration(plan.every)}, declared"
    if plan.mode is CheckpointMode.IRREGULAR:
        return "irregular, declared"
    learnt = [row[_PERIOD] for row in standings if row[schema.JOB_CLASS] == name and row[_PERIOD]]
    if learnt:
        return f"every {lasting(median(learnt))}, learnt"
    gaps = [row[_GAP] for row in checkpoints if row[_GAP]]
    return f"about every {lasting(median(gaps))}, not judged" if gaps else "not known"


def _verdict(state: int) -> Word:
    return Word(schema.CHECKPOINT_WORDS[state], Tone.ACT if state == CheckpointState.MISSED else Tone.LOOK)


def _faulty(checkpoints: Sequence[Row]) -> Table:
    rows = tuple(
        (
            row[TIME], row[schema.JOB], row[schema.JOB_CLASS],
            _verdict(row[_STATE]),
            row[schema.DUE.name] or None, row[_BYTES], row[schema.EXPECTED_BYTES.name] or None, row[_SECONDS],
            row[schema.EVENT_NODES.name], row[schema.EXPECTED_NODES.name] or None,
        )
        for row in checkpoints
        if row[_STATE] in _FAULTS
    )  # fmt: skip
    columns = (
        Column(TIME, "Began, or given up", Kind.MOMENT), Column(schema.JOB, "Job"), Column(schema.JOB_CLASS, "Class"),
        Column(_STATE, "Verdict"), Column(schema.DUE.name, "Due", Kind.MOMENT), Column(_BYTES, "Bytes", Kind.BYTES),
        Column(schema.EXPECTED_BYTES.name, "Expected", Kind.BYTES), Column(_SECONDS, "Took", Kind.SECONDS),
        Column(schema.EVENT_NODES.name, "Nodes", Kind.COUNT), Column(schema.EXPECTED_NODES.name, "Of", Kind.COUNT),
    )  # fmt: skip
    return Table("not_as_expected", "Not as they should be", columns, rows, "None in this period.")


def _by_job(standings: Sequence[Row]) -> Table:
    rows = tuple(
        (row[schema.JOB], row[schema.JOB_CLASS], row[schema.CHECKPOINT_AGE.name], row[schema.OVERDUE.name] or None,
         row[schema.USD_AT_RISK.name])
        for row in standings
    )  # fmt: skip
    columns = (
        Column(schema.JOB, "Job"), Column(schema.JOB_CLASS, "Class"),
        Column(schema.CHECKPOINT_AGE.name, "Longest without one", Kind.SECONDS),
        Column(schema.OVERDUE.name, "Overdue at most", Kind.SECONDS),
        Column(schema.USD_AT_RISK.name, "A crash would have cost up to", Kind.USD),
    )  # fmt: skip
    return Table("by_job", "Jobs at their worst moment", columns, rows, "No job ran in this period.")


def _notes(look: Look) -> Iterable[str]:
    yield (
        "Found by bursts of writing to storage: flow records show neither the content nor whether it can be restored."
    )
    yield from look.gone(schema.CHECKPOINT_STATUS, "Standings of jobs between checkpoints")
