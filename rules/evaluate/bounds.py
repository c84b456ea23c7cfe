"""Where a rule could fire at all: bounds on its first measure, asked of InfluxDB for long stretches at once.

A week has 60,000 evaluations, nearly all of them quiet. Four facts spare their queries, without guessing:

- *No point, no answer.* A window in which the query's measurement holds no point gives no series.
- *A chosen value is a stored value.* ``last``, ``first``, ``max``, ``min``, ``mean``, ``median`` of a field lie between
  the smallest and the largest value that is stored in the window; so does a ``last`` of a ``last``. If no stored value
  can hold the condition, nor can the choice. The same goes for an outer condition on a chosen value (``"state" >= 2``).
- *A ratio above zero has something above the line.* Where all that it adds up is 0, so is the ratio.
- *Sums of what is not negative only grow.* The sum over a longer stretch is no smaller than that over any window in it.

Everything else is evaluated tick by tick: a bound that does not apply lets all ticks through. The smallest and largest
values come from InfluxDB itself, binned by time; tests hold the outcome against evaluation of every tick.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from app.errors import StoreError
from rules.rule import Comparison, Measure, Reducer, Rule
from store import schema
from store.influx import Store
from store.influxql import BESIDE, Column, Condition, Select, compare, count, highest, lowest, total

_CHOOSING = frozenset({"last", "first", "max", "min", "mean", "median", BESIDE})
_GROWING = frozenset({"sum", "count", "max"})
_SLACK = 1e-9
"""Relative error of sums in another order."""

_BLOCK = 86_400
"""Seconds that one question covers: InfluxDB answers in time, and a progress bar moves."""

_FINE_CELL = 10

CELL = 60
"""Seconds of a bin in which smallest and largest values are asked."""


@dataclass(frozen=True, slots=True)
class Range:
    """Evaluations from `first` to `last`, epoch seconds, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Window:
    """What one evaluation of a measure looks at: from `since` to `until` seconds before it, both ends included."""

    since: int
    until: int

    def ticks_that_see(self, first: int, last: int) -> tuple[int, int]:
        """Return the earliest and latest evaluation whose window holds a moment from `first` to `last`."""
        return first + self.until, last + self.since


class Cells:
    """Answers of bin questions, kept while a backtest runs: several rules ask the same.

    Args:
        store: where the data is.
        start, end: epoch seconds between which evaluations may look, both included.
    """

    def __init__(self, store: Store, start: int, end: int) -> None:
        self._store = store
        self._start, self._end = start, end
        self._kept: dict[Select, npt.NDArray[np.float64]] = {}

    def ask(
        self, column: Column, bottom: Select, extra: Sequence[Condition] = (), cell: int = CELL
    ) -> npt.NDArray[np.float64]:
        """Return [bin start, value] of each bin that has a value.

        Args:
            column: what is asked of the measurement.
            bottom: reads it; its conditions hold.
            extra: more conditions.
            cell: seconds of a bin.

        Raises:
            StoreError: InfluxDB refuses, or is away.
        """
        question = replace(bottom, columns=(column,), tags=()).where(*extra).each(cell)
        if question not in self._kept:
            self._kept[question] = np.array([*self._asked(question)], np.float64).reshape(-1, 2)
        return self._kept[question]

    def _asked(self, question: Select) -> Iterator[list[float]]:
        first = self._start - self._start % _BLOCK
        for block in range(first, self._end + 1, _BLOCK):
            begin, stop = max(block, self._start), min(block + _BLOCK - 1, self._end)
            for series in self._store.query(question.between(begin, stop + 1).text()):
                yield from ([row[0] / 1000, float(row[1])] for row in series.values if row[1] is not None)


def may_fire(rule: Rule, windows: Sequence[Window], cells: Cells, whole: Range) -> list[Range]:
    """Return the ranges of evaluations outside of which the rule's first measure cannot hold its condition.

    Args:
        rule: its first measure is looked at.
        windows: of its measures.
        cells: asked about the data.
        whole: the evaluations in question.
    """
    measure, window = rule.measures[0], windows[0]
    asked = _bounded(measure)
    if asked is None:
        return [whole]
    try:
        ranges = [whole]
        for hot in _necessary(rule, asked, cells):
            ranges = _intersected(ranges, _seen(hot, window))
            if not ranges:
                return []
        if _is_growing(asked) and _is_above(rule) and not asked.inner():
            ranges = _intersected(ranges, _by_totals(rule, asked, window, cells, ranges))
    except StoreError:
        # What is wrong shows where the rule itself is asked.
        return [whole]
    return ranges


def may_be_empty(rule: Rule, windows: Sequence[Window], cells: Cells, whole: Range) -> list[Range]:
    """Return the ranges of evaluations outside of which every measure gives at least one series."""
    found: list[Range] = []
    step = rule.interval
    for measure, window in zip(rule.measures, windows, strict=True):
        asked = _bounded(measure)
        if asked is None or asked.inner():
            # Which rows an outer asked lets pass is not known.
            return [whole]
        # Points lie at whole seconds. Bins much shorter than the window leave little of it that is not known.
        cell = max(min((window.since - window.until) // 2, _FINE_CELL), 1)
        try:
            filled = cells.ask(count(fields_read(asked)[0]), asked, cell=cell)
        except StoreError:
            return [whole]
        at = np.arange(-(-whole.first // step) * step, whole.last + 1, step)
        found += _runs(at, _without_a_full_bin(at, np.unique(filled[:, 0]), cell, window), step)
    return merged(found)


def may_reach(rule: Rule, window: Window) -> Callable[[Store, Range], bool] | None:
    """Return what tells whether a rule could fire in a range, by its own query over all of it; None if nothing does.

    Only for measures that grow with their window, held against an upper limit.
    """
    measure = rule.measures[0]
    asked = _bounded(measure)
    if asked is None or not _is_growing(asked) or not _is_above(rule):
        return None

    def reaches(store: Store, ticks: Range) -> bool:
        first, last = ticks.first - window.since, ticks.last - window.until
        rows = (row for series in store.query(measure.query.between(first, last)) for row in series.values)
        return any(row[1] is not None and _may_hold(rule, float(row[1])) for row in rows)

    return reaches


def is_not_negative(rule: Rule, cells: Cells) -> bool:
    """Whether all values that the first measure adds up are 0 or more: what `may_reach` relies on."""
    asked = _bounded(rule.measures[0])
    if asked is None:
        return False
    try:
        return all(_has_no_negative(bottom, cells) for bottom in asked.bottoms())
    except StoreError:
        return False


# Bounds -------------------------------------------------------------------------------------------


def _bounded(measure: Measure) -> Select | None:
    """Return the question of a measure that gives one value a series over its window; None if it does not."""
    asked = measure.query.select
    if asked is None or not asked.is_fixed or asked.bins or measure.reducer is Reducer.COUNT:
        return None
    return asked if len(asked.columns) == 1 else None


def fields_read(bottom: Select) -> tuple[schema.Field, ...]:
    """Return what a question reads of its measurement; of a ratio, what stands above the line."""
    names = dict.fromkeys(name for column in bottom.columns for name in column.above or column.reads)
    return tuple(map(bottom.measurement.field, names))


def _bins_that_may_hold(rule: Rule, bins: npt.NDArray[np.float64], factor: float) -> npt.NDArray[np.float64]:
    hot = np.array([_may_hold(rule, float(value) * factor) for value in bins[:, 1]], np.bool_)
    return np.asarray(bins[hot, 0])


def _necessary(rule: Rule, asked: Select, cells: Cells) -> Iterator[npt.NDArray[np.float64]]:
    """Yield sets of bins: in each of them, an evaluation that fires must see at least one."""
    yield from _rows(asked, cells)
    column = asked.columns[0]
    if column.factor <= 0:
        return
    reads = _chosen_fields(asked, column)
    if reads is not None:
        extreme = highest if _is_above(rule) else lowest
        hot = [_bins_that_may_hold(rule, cells.ask(extreme(field), bottom), factor) for bottom, field, factor in reads]
        yield np.unique(np.concatenate(hot))
    elif column.above and _is_above(rule) and not _may_hold(rule, 0):
        yield from _bins_with_more_than_nothing(asked, column.above, cells)
    elif column.function == "count" and column.factor == 1 and _is_beyond_one(rule):
        # Where there is a row, there is at least one of it.
        yield np.empty(0)


def _bins_with_more_than_nothing(
    asked: Select, names: Sequence[str], cells: Cells
) -> Iterator[npt.NDArray[np.float64]]:
    """Yield the bins with a stored value other than 0 from which these columns come; nothing if that is not clear."""
    stored = _stored(asked, names)
    if stored is not None:
        hot = [cells.ask(count(field), bottom, [compare(field, "!=", 0)])[:, 0] for bottom, field in stored]
        yield np.unique(np.concatenate([*hot, np.empty(0)]))


def _stored(asked: Select, names: Sequence[str]) -> list[tuple[Select, schema.Field]] | None:
    """Return the stored fields that must all be 0 for the columns of these names to be 0; None if others may be."""
    if not asked.inner():
        return [(asked, asked.measurement.field(name)) for name in names]
    found: list[tuple[Select, schema.Field]] = []
    for inner in asked.inner():
        columns = [column for column in map(inner.column, names) if column is not None and column.factor]
        if any(column.function not in _CHOOSING | {"sum"} for column in columns):
            return None
        deeper = _stored(inner, [field for column in columns for field in column.reads])
        if deeper is None:
            return None
        found += deeper
    return found


def _is_beyond_one(rule: Rule) -> bool:
    """Whether neither 1 nor anything above it is on the alerting side."""
    return not _is_above(rule) and not rule.threshold.comparison.holds(1, rule.threshold.value)


def _rows(asked: Select, cells: Cells) -> Iterator[npt.NDArray[np.float64]]:
    """Yield the bins without which the question has no row."""
    if not asked.inner():
        filled = [cells.ask(count(field), asked) for field in fields_read(asked)]
        yield np.unique(np.concatenate([one[:, 0] for one in filled]))
        return
    by_field: dict[str, list[tuple[str, float]]] = {}
    for condition in asked.conditions:
        if condition.comparison is not None:
            by_field.setdefault(condition.fields[0], []).append(condition.comparison)
    for name, comparisons in by_field.items():
        found: list[npt.NDArray[np.float64]] = []
        for inner in asked.inner():
            column = inner.column(name)
            reads = None if column is None else _chosen_fields(inner, column, exactly=True)
            if reads is None:
                break
            for bottom, field, _ in reads:
                conditions = [compare(field, *comparison) for comparison in comparisons]
                found.append(cells.ask(count(field), bottom, conditions)[:, 0])
        else:
            yield np.unique(np.concatenate(found))
    if len(asked.inner()) == 1:
        yield from _rows(asked.inner()[0], cells)


def _chosen_fields(
    asked: Select, column: Column, *, exactly: bool = False
) -> list[tuple[Select, schema.Field, float]] | None:
    """Return the stored fields of which a column is a choice, with their factors; None if it is something else.

    Args:
        asked: has the column.
        column: which one.
        exactly: a choice must be one of the stored values, not only between them.
    """
    allowed = _CHOOSING - {"mean", "median"} if exactly else _CHOOSING
    if column.function not in allowed or column.factor <= 0 or (exactly and column.factor != 1):
        return None
    (name,) = column.reads
    if not asked.inner():
        return [(asked, asked.measurement.field(name), column.factor)]
    found: list[tuple[Select, schema.Field, float]] = []
    for inner in asked.inner():
        deeper = inner.column(name)
        reads = None if deeper is None else _chosen_fields(inner, deeper, exactly=exactly)
        if reads is None:
            return None
        found += [(bottom, field, factor * column.factor) for bottom, field, factor in reads]
    return found


def _is_growing(asked: Select) -> bool:
    """Whether a value is at least that over any part of its window, given that no stored value is negative."""
    if any(column.function not in _GROWING or column.factor <= 0 for column in asked.columns):
        return False
    # Which rows pass a comparison may change; conditions on tags stay as they are.
    if asked.inner() and any(condition.fields for condition in asked.conditions):
        return False
    return all(map(_is_growing, asked.inner()))


def _has_no_negative(bottom: Select, cells: Cells) -> bool:
    summed = [bottom.measurement.field(column.reads[0]) for column in bottom.columns if column.function != "count"]
    return all(bool((cells.ask(lowest(field), bottom)[:, 1] >= 0).all()) for field in summed)


def _by_totals(rule: Rule, asked: Select, window: Window, cells: Cells, ranges: Sequence[Range]) -> list[Range]:
    """Return the evaluations whose window's total over all series together could hold the condition."""
    (column,) = asked.columns
    if column.function == "max" or not _has_no_negative(asked, cells):
        return list(ranges)
    (field,) = fields_read(asked)
    bins = cells.ask(count(field) if column.function == "count" else total(field), asked)
    if not len(bins):
        return []
    starts = bins[:, 0]
    sums = np.concatenate([[0.0], np.cumsum(bins[:, 1])])
    found: list[Range] = []
    for ticks in ranges:
        at = np.arange(ticks.first, ticks.last + 1, rule.interval)
        # Bins that begin after first - CELL overlap the window.
        low = np.searchsorted(starts, at - window.since - CELL, side="right")
        high = np.searchsorted(starts, at - window.until, side="right")
        sent = (sums[np.maximum(high, low)] - sums[low]) * column.factor
        # Differences of running sums carry the error of the largest.
        error = sums[-1] * column.factor * _SLACK
        hot = np.array([_may_hold(rule, float(value)) for value in sent + error])
        found += _runs(at, hot, rule.interval)
    return found


def _is_above(rule: Rule) -> bool:
    return rule.threshold.comparison in (Comparison.ABOVE, Comparison.AT_LEAST)


def _may_hold(rule: Rule, number: float) -> bool:
    """Whether a number, or one that rounding makes of it, is on the alerting side."""
    limit = rule.threshold.value
    slack = _SLACK * max(abs(limit), abs(number))
    return any(rule.threshold.comparison.holds(one, limit) for one in (number, number - slack, number + slack))


# Ranges -------------------------------------------------------------------------------------------


def _seen(starts: npt.NDArray[np.float64], window: Window) -> list[Range]:
    """Return the evaluations that see at least one of the bins."""
    return merged(Range(*window.ticks_that_see(int(start), int(start) + CELL - 1)) for start in np.sort(starts))


def _without_a_full_bin(
    at: npt.NDArray[np.int64], filled: npt.NDArray[np.float64], cell: int, window: Window
) -> npt.NDArray[np.bool_]:
    """Return the evaluations whose window holds no bin, from its beginning to its end, that holds a point."""
    first = np.searchsorted(filled, at - window.since, side="left")
    ends = np.append(filled, np.inf)[first] + cell - 1
    return np.asarray(ends > at - window.until)


def _runs(at: npt.NDArray[np.int64], hot: npt.NDArray[np.bool_], step: int) -> list[Range]:
    chosen = at[hot]
    if not len(chosen):
        return []
    cuts = np.flatnonzero(np.diff(chosen) > step)
    firsts = chosen[np.concatenate([[0], cuts + 1])]
    lasts = chosen[np.concatenate([cuts, [len(chosen) - 1]])]
    return [Range(int(first), int(last)) for first, last in zip(firsts, lasts, strict=True)]


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges in order, those that touch or overlap as one; empty ones are left out."""
    found: list[Range] = []
    for one in sorted((one for one in ranges if one.first <= one.last), key=lambda each: each.first):
        if found and one.first <= found[-1].last + 1:
            found[-1] = Range(found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    return found


def _intersected(left: Sequence[Range], right: Sequence[Range]) -> list[Range]:
    """Return what lies in both; both are in order and do not overlap themselves."""
    found: list[Range] = []
    i = j = 0
    while i < len(left) and j < len(right):
        first, last = max(left[i].first, right[j].first), min(left[i].last, right[j].last)
        if first <= last:
            found.append(Range(first, last))
        if left[i].last < right[j].last:
            i += 1
        else:
            j += 1
    return found
