"""Totals of the windows that can still change, one table a measurement.

A table hands out a changed window's points as whole totals, to be written over what the store has. Where addresses are
tags, only the largest conversations of a window get a name; the rest is summed as ``other``. Where kinds are told apart
(`Bound.kinds`), the largest of each get names beside them: one client from abroad is not lost among 5,000 of the house.
A name once given in a window stays: a point already in the store is then always written again with its new total, never
left behind.
"""

from collections.abc import Collection, Iterator, Sequence

import polars as pl

from ingest.count.aggregate import FIRST, LAST
from ingest.count.entry_places import ORDER_DIGITS
from ingest.read.records import MAX_TOTAL
from store import schema
from store.points import WINDOW
from store.schema import Bound, Field, Kind, Measurement, Merge

NAMED = "named"
"""Whether a row of a bounded table has a point of its own; else it is part of an ``other`` row."""

_INT64 = (1 << 63) - 1
_FRESH = "fresh"
_HASH = "hash"
_LEAST_FOREIGN = 1_000_000
"""Bytes in a window from which on a conversation of `foreign` gets a name: what scans the internet gets none."""
_MANY_ROWS = 100_000
"""Rows that are merged at a time, or those of one window."""

_MAX_CANDIDATES = 20_000
"""Unnamed conversations remembered per window; the smallest beyond them fold into ``other`` for good."""
_RARE = "rare"
_NEW_SECONDS = 3600
"""For so long after they were first seen clients are a kind of their own."""
_MOST_KNOWN = 200_000
"""Clients of which that is remembered: 3 MB. A flood of forged ones makes the others new again."""


class WindowTable:
    """The windows of one measurement.

    Args:
        measurement: its schema.
        listed: names of the inventory's nodes; they keep their name within ``other`` rows.
        named: how many names a window may give per value of the bound's `per`; later, larger conversations may
            double that.
        budget: named series kept alive over all windows of the raw retention.
        keep: seconds for which a named series counts against the budget after its last window.
        fields: those that this table fills, where the measurement has several sources; by default all.
        optional: whether a sum that nobody gave is absent rather than 0.
        foreign: values of the bound's `per` whose small conversations get no names.
        seconds: length of its windows, where they are longer than those of the partial points.

    Attributes:
        long_from: windows from this second on have that length; earlier ones are of before a table had it.
        over_budget: series that the budget refused a name, since somebody set it to 0.
        capped: totals that MAX_TOTAL held back, likewise.
        evicted_before: windows that begin before this second are no longer here.
        series: hashes of the series that were named, each with its newest window.
        known: hashes of those who are in the first tag of a bound with kinds, each with its first window.
    """

    def __init__(
        self,
        measurement: Measurement,
        *,
        listed: Sequence[str] = (),
        named: int = 0,
        budget: int = 0,
        keep: int = 0,
        fields: Sequence[Field] | None = None,
        optional: bool = False,
        foreign: Sequence[str] = (),
        seconds: int = 1,
    ) -> None:
        self.measurement = measurement
        self.seconds, self.long_from = seconds, 0
        self.tags = [tag for tag in measurement.tags if tag != schema.SHARD]
        self.keys = [WINDOW, *self.tags]
        self._labels = [tag for tag in self.tags if tag in schema.LABELS]
        self.over_budget = 0
        self.capped = 0
        self.evicted_before = 0
        filled = measurement.fields if fields is None else fields
        self._has_duration = any(field.name == schema.DURATION.name for field in filled)
        numbers = [field for field in filled if field.kind is Kind.INT and field.name != schema.DURATION.name]
        self._sums = [field.name for field in numbers if field.merge is Merge.SUM]
        self._least = [field.name for field in numbers if field.merge is Merge.MIN]
        self._largest = [field.name for field in numbers if field.merge is Merge.MAX]
        self._texts = [field.name for field in filled if field.kind is Kind.STRING and field.merge is Merge.MAX]
        self._details = [field.name for field in schema.DETAILS if field in filled]
        self._values = [*self._sums, *self._least, *self._largest, *self._texts]
        self._optional = optional
        self._listed = pl.Series("listed", list(listed), pl.String)
        self._named, self._budget, self._keep = named, budget, keep
        self._foreign = pl.Series("foreign", list(foreign), pl.String)
        self._pending: list[pl.DataFrame] = []
        self.state = self.empty()
        self.series = pl.DataFrame(schema={_HASH: pl.UInt64, WINDOW: pl.Int64})
        self.known = self.series

    def empty(self) -> pl.DataFrame:
        """Return a state without rows."""
        columns: dict[str, type[pl.DataType]] = {WINDOW: pl.Int64, **dict.fromkeys(self.tags, pl.String)}
        columns |= dict.fromkeys(self._values, pl.Int64) | dict.fromkeys(self._texts, pl.String)
        if self._has_duration:
            columns |= {FIRST: pl.Int64, LAST: pl.Int64}
        if self.measurement.bound:
            columns[NAMED] = pl.Boolean
        return pl.DataFrame(schema=columns)

    @property
    def pending_rows(self) -> int:
        """Rows of partial points that wait for `merge`."""
        return sum(frame.height for frame in self._pending)

    def add(self, partial: pl.DataFrame) -> None:
        """Take the partial points of a batch: key columns and fields.

        Sums not present count as 0, or not at all; labels not present are unknown.
        """
        if self.seconds > 1:
            window = pl.col(WINDOW)
            begin = pl.when(window >= self.long_from).then(window // self.seconds * self.seconds).otherwise(window)
            partial = partial.with_columns(begin.alias(WINDOW))
        self._pending.append(self._with_values(self._labelled(partial)))

    def pending_windows(self) -> pl.Series:
        """Return the distinct windows that wait for `merge`."""
        parts = [frame.get_column(WINDOW) for frame in self._pending]
        return pl.concat(parts).unique() if parts else pl.Series(WINDOW, [], pl.Int64)

    def rows_of(self, windows: Collection[int]) -> pl.DataFrame:
        """Return the state of some windows."""
        return self.state.filter(pl.col(WINDOW).is_in(list(windows)))

    def put_back(self, rows: pl.DataFrame) -> None:
        """Take rows of windows that had been evicted."""
        self.state = pl.concat([self.state, self._as_state(rows)])

    def restore(self, rows: pl.DataFrame) -> None:
        """Take the state that this table had before a restart, for what it has now."""
        self.state = self._as_state(rows)

    def _as_state(self, rows: pl.DataFrame) -> pl.DataFrame:
        return (
            self._with_values(self._labelled(rows))
            .select(self.state.columns)
            .with_columns(pl.col(self._labels).fill_null(""))
        )

    def _labelled(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with all labels: rows of before they were kept have none."""
        missing = [tag for tag in self._labels if tag not in rows.columns]
        return rows.with_columns(pl.lit("").alias(tag) for tag in missing) if missing else rows

    def _with_values(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with all values, those of a version that did not keep them without."""
        nothing = None if self._optional else 0
        missing = [pl.lit(nothing, pl.Int64).alias(name) for name in self._sums if name not in rows.columns]
        extremes = (*self._least, *self._largest)
        missing += [pl.lit(None, pl.Int64).alias(name) for name in extremes if name not in rows.columns]
        missing += [pl.lit(None, pl.String).alias(name) for name in self._texts if name not in rows.columns]
        return rows.with_columns(missing)

    def merge(self) -> pl.DataFrame:
        """Fold what is pending into the state; return the points that changed, as whole totals (without the shard)."""
        if not self.pending_rows:
            self._pending.clear()
            return self._points(self.empty())
        fresh = pl.concat([frame.drop(NAMED, strict=False) for frame in self._pending], how="diagonal")
        self._pending.clear()
        return pl.concat([self._with(part) for part in _parts(fresh)])

    def _with(self, fresh: pl.DataFrame) -> pl.DataFrame:
        """Fold rows into the state; return the points that changed."""
        is_hot = self.state.get_column(WINDOW).is_in(fresh.get_column(WINDOW).unique().implode())
        merged, changed = self._merged(self.state.filter(is_hot), fresh)
        self.state = pl.concat([self.state.filter(~is_hot), merged.select(self.state.columns)])
        return self._points(changed)

    def _merged(self, hot: pl.DataFrame, fresh: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Fold rows into those of their windows; return the windows' rows, and of them those that changed."""
        bound = self.measurement.bound
        marks = [pl.lit(True).alias(_FRESH), *([pl.lit(False).alias(NAMED)] if bound else [])]
        hot = hot.with_columns(pl.lit(False).alias(_FRESH))
        merged = self._sum(pl.concat([hot, fresh.with_columns(marks).select(hot.columns)]))
        return self._name(merged, bound) if bound else (merged, merged.filter(_FRESH))

    def evict(self, before: int, held: Collection[int] = ()) -> pl.DataFrame:
        """Forget the windows that begin before this second and are not held; return their rows."""
        # A longer window goes as a whole: until then its rows are one total.
        before = before // self.seconds * self.seconds
        self.evicted_before = max(self.evicted_before, before)
        oldest = self.state.get_column(WINDOW).min()
        if oldest is None or int(str(oldest)) >= before:
            return self.state.clear()
        is_old = pl.col(WINDOW) < before
        if held:
            is_old &= ~pl.col(WINDOW).is_in(list(held))
        old = self.state.filter(is_old)
        if old.height:
            self.state = self.state.filter(~is_old)
        return old

    def all_points(self) -> pl.DataFrame:
        """Return every point of the state, as after a restart, when it is not known which were written."""
        if not self.measurement.bound:
            return self._points(self.state)
        rest = self._others(self.state, self.measurement.bound)
        return self._points(pl.concat([self.state.filter(pl.col(NAMED) & ~self._is_other()), rest], how="diagonal"))

    def unnamed(self, windows: Collection[int] | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows that ``other`` points sum up, as points; and their places: WINDOW, the bound's `per`.

        Args:
            windows: of these; by default of all.
        """
        rows = self.state if windows is None else self.rows_of(windows)
        bound = self.measurement.bound
        places = rows.filter(self._is_other()).select(WINDOW, *([bound.per] if bound else [])).unique()
        is_rest = (~pl.col(NAMED) | self._is_other()) & (pl.sum_horizontal(self._sums) > 0)
        return self._points(rows.filter(is_rest)), places

    def recount_names(self) -> None:
        """Take the names that the state's windows bear into `series`, where that was saved some time before them."""
        used = self.state.filter(NAMED).select(self._series_hash(), WINDOW)
        self.series = pl.concat([self.series, used]).group_by(_HASH).agg(pl.max(WINDOW))

    # -- sums --------------------------------------------------------------------------------------

    def _sum(self, rows: pl.DataFrame, *extra: pl.Expr) -> pl.DataFrame:
        """Sum rows with equal keys, up to MAX_TOTAL."""
        totals = [self._total(name, rows) for name in self._sums]
        if self._optional:
            present = (pl.col(name).count() > 0 for name in self._sums)
            totals = [pl.when(is_there).then(total) for is_there, total in zip(present, totals, strict=True)]
        totals += [pl.min(name) for name in self._least]
        totals += [pl.max(name) for name in (*self._largest, *self._texts)]
        if self._has_duration:
            totals += [pl.min(FIRST), pl.max(LAST)]
        totals += [pl.col(flag).any() for flag in (_FRESH, NAMED) if flag in rows.columns]
        sums = rows.group_by(self.keys).agg(*totals, *extra)
        largest = sums.select(pl.max_horizontal(pl.max(name) for name in self._sums)).item() if self._sums else 0
        if (largest or 0) <= MAX_TOTAL:
            return sums
        is_over = pl.any_horizontal(pl.col(name) > MAX_TOTAL for name in self._sums)
        self.capped += sums.select(is_over.sum()).item()
        return sums.with_columns(pl.col(name).clip(upper_bound=MAX_TOTAL) for name in self._sums)

    @staticmethod
    def _total(name: str, rows: pl.DataFrame) -> pl.Expr:
        """Sum a column, in wider numbers where 64 bits might run over."""
        largest = rows.get_column(name).max()
        if isinstance(largest, int) and largest * rows.height > _INT64:
            return pl.col(name).cast(pl.Int128).sum().clip(upper_bound=_INT64).cast(pl.Int64)
        return pl.sum(name)

    def _points(self, rows: pl.DataFrame) -> pl.DataFrame:
        columns: list[str | pl.Expr] = [*self.keys, *self._values]
        if schema.ENTERED.name in self._texts:
            columns[columns.index(schema.ENTERED.name)] = pl.col(schema.ENTERED.name).str.slice(ORDER_DIGITS)
        if not self._has_duration:
            return rows.select(columns)
        seconds = ((pl.col(LAST) - pl.col(FIRST)) / 1000).fill_null(0.0)
        return rows.select(*columns, seconds.alias(schema.DURATION.name))

    # -- names -------------------------------------------------------------------------------------

    def _is_other(self) -> pl.Expr:
        bound = self.measurement.bound
        return pl.col(bound.tags[0] if bound else "") == schema.OTHER

    def _series_hash(self) -> pl.Expr:
        """Return the number of a row's series. Labels are functions of its addresses: another one spends no budget."""
        return pl.struct(*(tag for tag in self.tags if tag not in self._labels)).hash().alias(_HASH)

    def _name(self, merged: pl.DataFrame, bound: Bound) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Give names to the largest unnamed rows while there is room; return the rows, and the points that changed."""
        merged = merged.with_columns(self._promoted(merged, bound).alias("promoted"))
        promoted = pl.col("promoted")
        is_other = self._is_other()
        merged = merged.with_columns((pl.col(NAMED) | promoted).alias(NAMED), (pl.col(_FRESH) | promoted).alias(_FRESH))
        merged = self._forget_smallest(merged.select(*self.state.columns, _FRESH), bound)
        rest = self._others(merged, bound)
        # Once an `other` point was written it stays in the table, if only as zero: it must be written again when its
        # conversations get names.
        merged = pl.concat([merged, self._zeros(merged, rest)], how="diagonal_relaxed")
        changed = pl.concat([merged.filter(pl.col(NAMED) & ~is_other & pl.col(_FRESH)), rest], how="diagonal")
        return merged, changed

    def _promoted(self, merged: pl.DataFrame, bound: Bound) -> pl.Series:
        """Return whether each row gets a name now: the largest unnamed ones of each place that has room."""
        size, place = self._sums[0], [WINDOW, bound.per]
        is_other = self._is_other()
        has_name = pl.col(NAMED) & ~is_other
        is_small = pl.col(bound.per).is_in(self._foreign.implode()) & (pl.col(size) < _LEAST_FOREIGN)
        is_candidate = ~pl.col(NAMED) & ~is_other & ~is_small
        places = merged.group_by(place).agg(
            has_name.sum().cast(pl.Int64).alias("names"),
            pl.col(size).filter(has_name).top_k(self._named).min().alias("smallest"),
            pl.col(size).filter(is_candidate).top_k(2 * self._named).min().alias("least"),
        )
        # Columns are narrow and rows are few as early as can be: a flood has a million rows of long texts.
        sizes = merged.select(*place, size, is_candidate.alias("is_candidate"))
        sizes = sizes.join(places, on=place, how="left", maintain_order="left")
        sizes = sizes.with_columns(self._rare(merged, bound).alias(_RARE))
        is_near = pl.col("is_candidate") & ((pl.col(size) >= pl.col("least")) | pl.col(_RARE))
        rows = sizes.select(is_near.arg_true()).to_series()
        few = merged[rows].with_columns(
            *sizes[rows].select("names", "smallest", _RARE), rows.alias("row"), self._order()
        )
        rank = pl.col("order").rank("ordinal").over(place)
        free = self._named - pl.col("names")
        wanted = few.filter(
            (rank <= free)
            | ((rank <= free + self._named) & (pl.col(size) > pl.col("smallest"))).fill_null(False)
            | (pl.col(_RARE) & (free > -self._named))
        )
        promoted = self._within_budget(wanted.sort(~pl.col(_RARE), "order"), merged)
        return pl.repeat(False, merged.height, dtype=pl.Boolean, eager=True).scatter(promoted, True)

    def _order(self) -> pl.Expr:
        """Return the place of each row, the largest first.

        Ties are broken by the tags, so that the same rows get the same names whatever the order they came in.
        """
        return pl.struct(-pl.col(self._sums[0]), *self.tags).rank("ordinal").alias("order")

    def _rare(self, merged: pl.DataFrame, bound: Bound) -> pl.Series:
        """Return which rows are the largest of their kinds: of each the first, then of each the second, and so on.

        A quarter of K for all kinds together: whoever forges addresses of every country takes no more.
        """
        is_rare = pl.repeat(False, merged.height, dtype=pl.Boolean, eager=True)
        if not bound.kinds:
            return is_rare
        size, most, place = self._sums[0], max(self._named // 4, 1), [WINDOW, bound.per]
        client = pl.struct(bound.per, bound.tags[0]).hash().alias(_HASH)
        rows = merged.select(*place, *bound.kinds, size, client, (~self._is_other()).alias("is_one"))
        both = pl.concat([self.known, rows.filter("is_one").select(_HASH, WINDOW)]).group_by(_HASH).agg(pl.min(WINDOW))
        self.known = both.sort(WINDOW, _HASH).tail(_MOST_KNOWN)
        since = self.known.select(_HASH, pl.col(WINDOW).alias("since"))
        is_new = pl.col(WINDOW) - pl.col("since") < _NEW_SECONDS
        rows = rows.join(since, on=_HASH, how="left", maintain_order="left").with_columns(is_new.alias("is_new"))
        kind = [*place, *bound.kinds, "is_new"]
        least = pl.col(size).filter("is_one").top_k(most).min().over(kind)
        near = rows.select((pl.col("is_one") & (pl.col(size) >= least)).arg_true()).to_series()
        few = merged[near].with_columns(rows[near].get_column("is_new"), self._order())
        few = few.with_columns(pl.col("order").rank("ordinal").over(kind).alias("turn"))
        turn = pl.struct("turn", "order").rank("ordinal").over(place)
        return is_rare.scatter(near.filter(few.select(turn <= most).to_series()), True)

    def _within_budget(self, wanted: pl.DataFrame, merged: pl.DataFrame) -> pl.Series:
        """Return the ``row`` of those wanted, the first first, that the series budget allows; remember the series."""
        newest = merged.get_column(WINDOW).max()
        alive = self.series.filter(pl.col(WINDOW) >= (int(newest) if isinstance(newest, int) else 0) - self._keep)
        wanted = wanted.with_columns(self._series_hash())
        known = pl.col(_HASH).is_in(alive.get_column(_HASH).implode())
        fresh = wanted.filter(~known).get_column(_HASH).unique(maintain_order=True)
        room = max(self._budget - alive.height, 0)
        if len(fresh) > room:
            refused = fresh.slice(room)
            self.over_budget += len(refused)
            wanted = wanted.filter(~pl.col(_HASH).is_in(refused.implode()))
        named = merged.filter(NAMED).select(self._series_hash(), WINDOW)
        used = pl.concat([alive, wanted.select(_HASH, WINDOW), named])
        self.series = used.group_by(_HASH).agg(pl.max(WINDOW))
        return wanted.get_column("row")

    def _forget_smallest(self, merged: pl.DataFrame, bound: Bound) -> pl.DataFrame:
        """Bound the number of unnamed conversations that a window remembers."""
        if merged.height - merged.get_column(NAMED).sum() <= _MAX_CANDIDATES:
            return merged
        # Of what has a name there is no size here, nor a place. The rows themselves, of a flood, are copied once.
        size = pl.when(~pl.col(NAMED)).then(self._sums[0])
        place = size.rank("ordinal", descending=True).over(WINDOW)
        is_small = merged.select(place.fill_null(0) > _MAX_CANDIDATES).to_series()
        if not is_small.any():
            return merged
        accumulated = self._fold(merged.filter(is_small), bound, merged).with_columns(pl.lit(True).alias(NAMED))
        return self._sum(pl.concat([merged.filter(~is_small), accumulated.select(merged.columns)]))

    def _fold(self, rows: pl.DataFrame, bound: Bound, among: pl.DataFrame) -> pl.DataFrame:
        """Sum rows under ``other``; rows that are ``other`` already stay what they are.

        A name beside `other` stays where it is a node's, or has several names of its own in the window: whoever scans
        a thousand addresses is to be known by more than its first hundred.

        Args:
            rows: what is folded.
            bound: which tags become ``other``.
            among: all rows of these windows, with NAMED.
        """
        known = self._listed.implode()
        has_name = among.filter(pl.col(NAMED) & ~self._is_other())
        for tag in bound.unlisted:
            talkers = has_name.group_by(WINDOW, tag).len("names").filter(pl.col("names") > 1)
            # Also of a node that cluster.yaml no longer has: the point is in the store under its name.
            stays = pl.col(tag).is_in(known) | pl.col("names").is_not_null() | self._is_other()
            rows = (
                rows.join(talkers, on=[WINDOW, tag], how="left")
                .with_columns(pl.when(stays).then(pl.col(tag)).otherwise(pl.lit(schema.OTHER)).alias(tag))
                .drop("names")
            )
        # An `other` point of before labels were kept has none of them.
        is_other = self._is_other()
        return self._sum(
            rows.with_columns(
                *(pl.when(is_other).then(pl.col(tag)).otherwise(pl.lit(schema.OTHER)).alias(tag) for tag in bound.tags),
                # What is said of one conversation would be wrong of several.
                *(pl.lit(None).cast(rows.schema[name]).alias(name) for name in self._details),
            )
        )

    def _others(self, rows: pl.DataFrame, bound: Bound) -> pl.DataFrame:
        """Return the ``other`` points: what was folded for good plus what has no name now."""
        unnamed = rows.filter(~pl.col(NAMED) | self._is_other())
        return self._fold(unnamed, bound, rows) if unnamed.height else unnamed

    def _zeros(self, merged: pl.DataFrame, rest: pl.DataFrame) -> pl.DataFrame:
        """Return empty ``other`` rows for those points of `rest` that have none in the table yet."""
        if rest.is_empty():
            return rest
        absent = rest.join(merged.filter(self._is_other()), on=self.keys, how="anti")
        return absent.with_columns(
            *(pl.lit(0, pl.Int64).alias(name) for name in self._sums),
            *(pl.lit(None, pl.Int64).alias(name) for name in (FIRST, LAST) if self._has_duration),
            pl.lit(True).alias(NAMED),
        )


def _parts(rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of a few windows after the other: a flood of addresses takes several times its own memory."""
    if rows.height <= _MANY_ROWS:
        yield rows
        return
    before = pl.col("len").cum_sum() - pl.col("len")
    windows = rows.group_by(WINDOW).len().sort(WINDOW).with_columns((before // _MANY_ROWS).alias("part"))
    for part in windows.partition_by("part"):
        yield rows.filter(pl.col(WINDOW).is_in(part.get_column(WINDOW).implode()))
