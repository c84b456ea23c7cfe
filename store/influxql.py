"""Every query to the store: built from the schema, rendered as InfluxQL.

A `Select` says what is asked; `over_time` makes the form for a time series, `per_series` the form for tables, tiles and
alert rules (one value a series, no ``time()``). The result is a `Query`: text, unit and meaning, ready for a panel or a
rule. Who asks for an answer at once says of which time (`Select.between`) and sends `Select.text`. The text runs on
InfluxDB 1.x and 2.x (database/retention mapping). Names are checked against ``store.schema`` when a `Select` is
made. No other module quotes a name or a value, and none reads a query's text: what it says stands in its objects.

    volume = (
        Select(schema.EGRESS, schema.RAW)
        .take(total(schema.BYTES))
        .where(is_in(schema.SRC_GROUP, ["model_storage"]), not_in(schema.DST_GROUP, ["approved_external"]))
        .by(schema.SRC, schema.DST, schema.PROTO)
    )
    volume.per_series(meaning="Bytes sent outside.")
    # SELECT sum("bytes") AS "bytes"
    # FROM "raw"."egress"
    # WHERE "src_group" = 'model_storage'
    # AND "dst_group" != 'approved_external'
    # AND $timeFilter
    # GROUP BY "src", "dst", "proto"

Each column, source and condition has a line of its own: where a ``/`` stands before ``$__interval`` and another one
after it on a line, Grafana's browser side takes what lies between for a regular expression, escapes the ``$``, and
InfluxDB refuses the query. Alert rules, which no browser touches, have the same text in one line.

Several bridges write partial totals side by side (the shard tag): no query groups by it, and sums add them up.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from cluster.model import BridgeSettings, Cluster, Retention
from store import schema

BITS = 8
PANEL = -1
"""Bins of time as long as the panel that draws them wants them (``$__interval``)."""

_END = "${__to}ms"
"""End of a board's range, as Grafana's browser side fills it in."""

LASTING = re.compile(rf"time >= {re.escape(_END)} - (\w+)")
"""Begin of the range of a question with one of its own: its length (`Query.lasting`)."""

_BIN = "$__interval_ms"

BESIDE = "beside"
"""Function of a column that `beside` makes."""

_MILLISECONDS = 1000

_OF_NODES = frozenset(
    one
    for one in schema.MEASUREMENTS
    if schema.NODE in one.tags or one in (schema.PAIR, schema.INTERFACE_TRAFFIC, schema.CAPACITY)
)
"""Measurements with the more series, the more nodes there are."""

_BINS_OF_NODES, _MOST_POINTS, _FEWEST_POINTS = 80_000, 800, 60
_BINS_OF_SEVERAL, _FEWEST_OF_SEVERAL = 48_000, 15
"""InfluxDB 1.x spends some microseconds on each bin of each series, again for each function of a query: a panel about
all nodes is given about so many bins of nodes, and never fewer than make a curve; fewer where nodes are read for
several functions."""

ROWS = 50
"""Of a table, where it does not say otherwise."""

_SUMMED = 24
WHOLE_HOURS = "18 hours and more are summed by whole hours."
"""Bins that a table's range is divided into, and what follows: of bins of 45 min and more Grafana makes hours."""

_ROLLED = 90
"""Seconds after which rollups hold what is stored: one begins a minute after the last one ended, and takes seconds."""

NICE_INTERVALS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Grafana rounds a panel's interval to the nearest of these (seconds), never below the panel's minimum."""


class Unit(StrEnum):
    """Grafana's unit ids for what the store's base units become."""

    BITS_PER_SECOND = "bps"
    BYTES = "decbytes"
    SECONDS = "s"
    MOMENT = "dateTimeAsIso"
    USD = "currencyUSD"
    RATIO = "percentunit"
    RECORDS_PER_SECOND = "suffix:records/s"
    COUNT = "short"
    STATE = "none"


class Fill(StrEnum):
    """What stands in a time bin without points. GAP is the honest one: no record is not zero bytes."""

    GAP = "null"
    NONE = "none"


class Shape(StrEnum):
    """How Grafana reads the answer: a frame a series, or one table with tags as columns."""

    SERIES = "time_series"
    TABLE = "table"


def identifier(name: str) -> str:
    r"""Quote a name for InfluxQL: ``a"b`` becomes ``"a\"b"``."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def literal(value: str) -> str:
    r"""Quote a string value for InfluxQL: ``it's`` becomes ``'it\'s'``."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of an answer.

    Attributes:
        expression: InfluxQL, e.g. ``sum("bytes")``.
        name: the column's name in the answer; empty: InfluxDB's.
        unit: unit of its values.
        reads: names that must be fields of the source.
        function: of ``function("field") * factor``; `BESIDE`; empty for any other expression.
        factor: 1 where there is none.
        above: fields whose sums stand above the line of a `ratio`.
    """

    expression: str
    name: str
    unit: Unit
    reads: tuple[str, ...]
    function: str = ""
    factor: float = 1.0
    above: tuple[str, ...] = ()


Named: TypeAlias = schema.Field | Column
"""What a column or a condition is about: a stored field, or a column of the inner question."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One term of WHERE.

    Attributes:
        text: InfluxQL.
        tags, fields: what it looks at.
        values: (tag, value) of each tag that may have this value.
        comparison: operator and number of a `compare` with a number.
        is_moving: its meaning depends on when, or on which board, it is asked.
    """

    text: str
    tags: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    values: tuple[tuple[str, str], ...] = ()
    comparison: tuple[str, float] | None = None
    is_moving: bool = False


_UNITS = {
    "bytes": Unit.BYTES,
    "seconds": Unit.SECONDS,
    "epoch seconds": Unit.MOMENT,
    "USD": Unit.USD,
    "ratio": Unit.RATIO,
    "state": Unit.STATE,
}


def _unit(field: schema.Field) -> Unit:
    return _UNITS.get(field.unit, Unit.COUNT)


def aggregate(function: str, of: Named, name: str = "") -> Column:
    """A function of InfluxQL over one field: ``aggregate("spread", schema.TOTAL)``."""
    unit = of.unit if isinstance(of, Column) else _unit(of)
    return Column(f"{function}({identifier(of.name)})", name or of.name, unit, (of.name,), function)


def total(of: Named, name: str = "") -> Column:
    """Sum of a field over time, shards and whatever is not grouped by."""
    return aggregate("sum", of, name)


def newest(of: Named, name: str = "") -> Column:
    """Last value of a field."""
    return aggregate("last", of, name)


def earliest(of: Named) -> Column:
    """First value of a field."""
    return aggregate("first", of)


def highest(of: Named, name: str = "") -> Column:
    """Largest value of a field."""
    return aggregate("max", of, name)


def lowest(of: Named, name: str = "") -> Column:
    """Smallest value of a field."""
    return aggregate("min", of, name)


def merged(field: schema.Field) -> Column:
    """Value of a field over several windows or shards, as the schema says it is made of theirs."""
    # InfluxQL compares no texts.
    return newest(field) if field.kind is schema.Kind.STRING else aggregate(field.merge.value, field)


def bit(of: Named, mask: int) -> Column:
    """One bit of a field of bits, as it stands: `mask` or 0."""
    return Column(f"{identifier(of.name)} & {mask:d}", of.name, Unit.COUNT, (of.name,))


def moment(column: Column) -> Column:
    """Epoch seconds in milliseconds, as Grafana reads moments."""
    return scaled(column, "1000", column.name, Unit.MOMENT)


def combined(columns: Iterable[Column], sign: str, name: str, unit: Unit) -> Column:
    """Columns added (``+``), subtracted, or divided by each other, as they stand."""
    several = tuple(columns)
    reads = tuple(name for column in several for name in column.reads)
    return Column(f" {sign} ".join(column.expression for column in several), name, unit, reads)


def larger(one: Column, other: Column) -> Column:
    """The larger of two columns, as they stand: floats, for of integers InfluxDB 1.x takes no `abs`."""
    a, b = one.expression, other.expression
    # Each stands there twice.
    return Column(f"({a} + {b} + abs({a} - {b})) * 0.5", "", one.unit, 2 * (*one.reads, *other.reads))


def added(fields: Iterable[Named], name: str, unit: Unit) -> Column:
    """Sums of fields, added up."""
    return combined(map(total, fields), "+", name, unit)


def bottom(of: Named, tag: str, rows: int) -> Column:
    """So many rows with the smallest values, each of another value of a tag."""
    return Column(f"bottom({identifier(of.name)}, {identifier(tag)}, {rows})", "", Unit.COUNT, (of.name,))


def ratio(above: Iterable[Named], below: Named, name: str, each: Callable[[Named], Column] = total) -> Column:
    """Sums of fields, added up, over the sum of another one; with ``each=beside``, columns as they stand."""
    sums = combined(map(each, above), "+", name, Unit.RATIO)
    # Around a quotient of integers InfluxDB 1.x reads an integer: 1.3 % would be 0.
    upper = f"1.0 * {sums.expression}" if len(sums.reads) == 1 else f"1.0 * ({sums.expression})"
    both = combined((replace(sums, expression=upper), each(below)), "/", name, Unit.RATIO)
    return replace(both, above=sums.reads)


def beside(of: Named) -> Column:
    """Value of a field in the row that the one selector of the same question picked (`newest`, `highest`, `lowest`).

    Of every row where nothing is picked.
    """
    return replace(aggregate(BESIDE, of), expression=identifier(of.name))


def labelled(tag: str, name: str | None = None) -> Column:
    """A tag's value in each row. Only beside fields of every row."""
    return Column(identifier(tag), tag if name is None else name, Unit.STATE, ())


def everything() -> Column:
    """Every tag and field that is stored, as a column each; for rows as they are."""
    return Column("*", "", Unit.COUNT, ())


def middle(of: Named, name: str = "") -> Column:
    """Median of a field's values."""
    return aggregate("median", of, name)


def count(of: Named, name: str = "") -> Column:
    """Number of points that have the field."""
    return replace(aggregate("count", of, name), unit=Unit.COUNT)


def bit_rate(field: schema.Field) -> Column:
    """Mean bit/s in each time bin: sum of bytes x 8 over the bin's length. Only with `Select.over_time`."""
    expression = f"sum({identifier(field.name)}) * {BITS * _MILLISECONDS}.0 / $__interval_ms"
    return Column(expression, "rate", Unit.BITS_PER_SECOND, (field.name,))


def event_rate(field: schema.Field) -> Column:
    """Mean events a second in each time bin (records, packets). Only with `Select.over_time`."""
    expression = f"sum({identifier(field.name)}) * {_MILLISECONDS}.0 / $__interval_ms"
    return Column(expression, "rate", Unit.RECORDS_PER_SECOND, (field.name,))


def scaled(column: Column, factor: str, name: str, unit: Unit) -> Column:
    """A column times a number (or a dashboard variable that holds one)."""
    try:
        function, number = column.function, column.factor * float(factor)
    except ValueError:
        function, number = "", 1.0
    return Column(f"{column.expression} * {factor}", name, unit, column.reads, function, number)


def is_in(tag: str, values: Iterable[str]) -> Condition:
    """The tag has one of these values; with no values, nothing matches."""
    allowed = tuple(values) or ("",)
    terms = [f"{identifier(tag)} = {literal(value)}" for value in allowed]
    text = terms[0] if len(terms) == 1 else f"({' OR '.join(terms)})"
    return Condition(text, (tag,), values=tuple((tag, value) for value in allowed))


def not_in(tag: str, values: Iterable[str]) -> Condition:
    """The tag has none of these values; with no values, everything matches."""
    terms = [f"{identifier(tag)} != {literal(value)}" for value in values] or [f"{identifier(tag)} != ''"]
    return Condition(" AND ".join(terms), (tag,))


def chosen(tag: str, variable: str) -> Condition:
    """The tag has one of the values chosen in a multi-value dashboard variable (`All` has the value ``.*``)."""
    return Condition(f"{identifier(tag)} =~ /^${{{variable}:regex}}$/", (tag,), is_moving=True)


def matches(tag: str, pattern: str, *, holds: bool = True) -> Condition:
    """The tag's value matches a regular expression of Go, or does not."""
    escaped = pattern.replace("/", "\\/")
    return Condition(f"{identifier(tag)} {'=~' if holds else '!~'} /{escaped}/", (tag,))


def narrowed(variable: str, *, holds: bool = True) -> Condition:
    """Something was chosen in a multi-value dashboard variable, not `All`; or else `All`: InfluxDB compares texts."""
    return Condition(f"{literal(f'${{{variable}:raw}}')} {'!=' if holds else '='} '.*'", is_moving=True)


def compare(one: Named, operator: str, value: float, times: Named | None = None) -> Condition:
    """A field compared with a number, ``compare(schema.STATE, ">=", 2)``, or with a number times another field."""
    text = f"{identifier(one.name)} {operator} {value}"
    if times is not None:
        return Condition(f"{text} * {identifier(times.name)}", (), (one.name, times.name))
    return Condition(text, (), (one.name,), comparison=(operator, value))


def says(field: schema.Field, text: str, operator: str = "=") -> Condition:
    """A field of text has this value, or with ``!=`` another one."""
    return Condition(f"{identifier(field.name)} {operator} {literal(text)}", (), (field.name,))


def begins(field: schema.Field, letters: str) -> Condition:
    """A field of text begins with these letters or digits."""
    return Condition(f"{identifier(field.name)} =~ /^{letters}/", (), (field.name,))


def ago(operator: str, length: str) -> Condition:
    """The point is older (``<``) or younger (``>``) than a length of time, such as ``90s``, when it is asked."""
    return Condition(f"time {operator} now() - {length}", is_moving=True)


def lasts_up_to(seconds: int) -> Condition:
    """The board's range is no longer: InfluxDB compares the numbers."""
    return Condition(f"${{__to}} - ${{__from}} <= {seconds * _MILLISECONDS}", is_moving=True)


def whole_bins(settle: int, window: int) -> tuple[Condition, ...]:
    """The point is so old (seconds), and in a bin that lies in the panel's range and whose last point is so old, too.

    There is a point each `window` seconds.
    """
    # InfluxDB reads a number as nanoseconds, and does such sums before it looks at a point. A bin of one window is
    # whole by itself: then this remainder is 0, and a short range in the past is drawn to its end.
    late = f"{(settle - window) * _MILLISECONDS} % (({_BIN} - {window * _MILLISECONDS}) * 10000 + 1)"
    begin, end = f"${{__from}} + {_BIN} - 1", f"${{__to}} - {late}"
    since, until = (f"({moment} - ({moment}) % {_BIN}) * 1000000" for moment in (begin, end))
    edges = (Condition(f"time {text}", is_moving=True) for text in (f">= {since}", f"< {until}"))
    return ago("<", f"{settle}s"), *edges


def any_of(*conditions: Condition) -> Condition:
    """At least one of the conditions holds."""
    return _joined(" OR ", conditions)


def all_of(*conditions: Condition) -> Condition:
    """All of the conditions hold."""
    return _joined(" AND ", conditions)


def _joined(word: str, conditions: tuple[Condition, ...]) -> Condition:
    text = word.join(f"({condition.text})" for condition in conditions)
    return Condition(
        f"({text})",
        tuple(dict.fromkeys(tag for condition in conditions for tag in condition.tags)),
        tuple(dict.fromkeys(name for condition in conditions for name in condition.fields)),
        tuple(pair for condition in conditions for pair in condition.values),
        is_moving=any(condition.is_moving for condition in conditions),
    )


@dataclass(frozen=True, slots=True)
class Query:
    """InfluxQL with its meaning: with a panel it is drawn, with a rule it is compared.

    Attributes:
        text: InfluxQL with ``$timeFilter`` (and ``$__interval``, ``$__interval_ms`` where binned), which Grafana's
            InfluxDB source expands in panels and in alert queries.
        unit: unit of the first column's values.
        meaning: what one value is, in a sentence.
        tags: labels of each series, in order.
        alias: Grafana's series name pattern, e.g. ``$tag_node``; empty for its default.
        shape: how Grafana reads the answer.
        interval: smallest sensible bin in seconds; 0 where nothing is binned.
        retention: the retention it reads.
        points: about how many bins a range has; 0 for as many as the panel has pixels.
        select: what the text was made of; None where only the text is known.
    """

    text: str
    unit: Unit
    meaning: str
    tags: tuple[str, ...]
    retention: str
    alias: str = ""
    shape: Shape = Shape.SERIES
    interval: int = 0
    points: int = 0
    select: "Select | None" = None

    @property
    def influxql(self) -> str:
        """The text in one line. Names and values hold no line ends: they are escaped there."""
        return self.text.replace("\n", " ")

    @property
    def interval_ms(self) -> int:
        """Bin of an alert rule's query in milliseconds."""
        return max(_MILLISECONDS, self.interval * _MILLISECONDS)

    def between(self, start: int, end: int) -> str:
        """Return the InfluxQL that Grafana sends for a rule's range in epoch seconds; both ends belong to it."""
        return filled(self.influxql, start, end, self.interval_ms)

    def at_least(self, seconds: int) -> "Query":
        """Return the same question in bins no shorter than this: where points are further apart than windows."""
        return replace(self, interval=max(self.interval, seconds))

    def at_most(self, points: int) -> "Query":
        """Return the same question in about so many bins a range, or fewer."""
        return replace(self, points=min(points, self.points or points))

    def lasting(self, length: str) -> "Query":
        """Return the same question of so much time, such as ``15m``, up to the end of the board's range.

        Grafana's own override holds only while a range ends now, not over a fixed one, as after a zoom.
        """
        return replace(self, text=self.text.replace("$timeFilter", f"time >= {_END} - {length}\nAND time <= {_END}"))

    def as_table(self) -> "Query":
        """Return the same question, answered as one table with tags as columns."""
        return replace(self, shape=Shape.TABLE, alias="")


@dataclass(frozen=True, slots=True)
class Select:
    """One question to the store; each method returns a new object.

    Args:
        source: a measurement of the schema, or one or more inner `Select`s (then `retention` is theirs). InfluxDB puts
            the rows of several inner ones together only where they name their column the same.
        retention: ``schema.RAW``, ``MINUTE`` or ``HOUR``; ``${resolution}`` style variables are allowed.
        columns, conditions, tags: what `take`, `where` and `by` added.
        bins: seconds of each bin of time; 0: none, `PANEL`: those of the panel.
        fill: what an empty bin holds.
        span: its time, see `between`; None: Grafana's ``$timeFilter``.
        newest: only so many rows, the newest first; 0: all.

    Raises:
        ValueError: a tag or field is none of the source's.
    """

    source: "schema.Measurement | Select | tuple[Select, ...]"
    retention: str = ""
    columns: tuple[Column, ...] = ()
    conditions: tuple[Condition, ...] = ()
    tags: tuple[str, ...] = ()
    bins: int = 0
    fill: Fill = Fill.NONE
    span: tuple[int | None, int | None] | None = None
    newest: int = 0

    def __post_init__(self) -> None:
        known_tags = self.known_tags()
        if isinstance(self.source, schema.Measurement):
            known_fields = tuple(field.name for field in self.source.fields)
            if not self.retention:
                raise ValueError(f"{self.source.name}: name a retention")
        else:
            known_fields = tuple(dict.fromkeys(column.name for inner in self.inner() for column in inner.columns))
        used_tags = [*self.tags, *(tag for condition in self.conditions for tag in condition.tags)]
        used_fields = [name for column in self.columns for name in column.reads]
        used_fields += [name for condition in self.conditions for name in condition.fields]
        for tag in used_tags:
            if tag not in known_tags and not tag.startswith("$"):
                raise ValueError(f"{self.name}: no tag {tag!r}; there are {', '.join(known_tags)}")
        for name in used_fields:
            if name not in known_fields:
                raise ValueError(f"{self.name}: no field {name!r}; there are {', '.join(known_fields)}")

    def known_tags(self) -> tuple[str, ...]:
        """Return the tags that the source has."""
        if isinstance(self.source, schema.Measurement):
            return self.source.tags
        return tuple(dict.fromkeys(tag for inner in self.inner() for tag in inner.tags))

    def inner(self) -> "tuple[Select, ...]":
        """Return the inner questions; none where the source is a measurement."""
        if isinstance(self.source, schema.Measurement):
            return ()
        return self.source if isinstance(self.source, tuple) else (self.source,)

    def bottoms(self) -> "tuple[Select, ...]":
        """Return the questions, this or inner ones, that read measurements."""
        if isinstance(self.source, schema.Measurement):
            return (self,)
        return tuple(bottom for inner in self.inner() for bottom in inner.bottoms())

    def levels(self) -> "Iterator[Select]":
        """Yield this question and all inner ones, as their texts stand one in the other: the innermost first."""
        for inner in self.inner():
            yield from inner.levels()
        yield self

    def column(self, name: str) -> Column | None:
        """Return the column of this name."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def is_fixed(self) -> bool:
        """Whether the answer depends on nothing but the points in its time, and on fields and tags that are named."""
        return all(
            one.bins != PANEL
            and all(column.reads for column in one.columns)
            and all((term.tags or term.fields) and not term.is_moving for term in one.conditions)
            for one in self.levels()
        )

    @property
    def name(self) -> str:
        """Name of the (first) measurement at the bottom."""
        return self.measurement.name

    @property
    def measurement(self) -> schema.Measurement:
        """The (first) measurement at the bottom."""
        return self.source if isinstance(self.source, schema.Measurement) else self.inner()[0].measurement

    def measurements(self) -> frozenset[schema.Measurement]:
        """All measurements at the bottom."""
        return frozenset(bottom.measurement for bottom in self.bottoms())

    @property
    def base_retention(self) -> str:
        """Retention of the (first) measurement at the bottom."""
        return self.bottoms()[0].retention

    def functions(self) -> int:
        """Return for how many fields the measurement is read: InfluxDB 1.x reads it once for each function."""
        own = sum(len(column.reads) for column in self.columns)
        return own * max((inner.functions() for inner in self.inner()), default=1)

    def take(self, *columns: Column) -> "Select":
        """Add columns to the answer."""
        return replace(self, columns=(*self.columns, *columns))

    def where(self, *conditions: Condition) -> "Select":
        """Add conditions; all must hold."""
        return replace(self, conditions=(*self.conditions, *conditions))

    def by(self, *tags: str) -> "Select":
        """Group by tags as well: one series for each combination of their values."""
        return replace(self, tags=(*self.tags, *tags))

    def per_series(self, meaning: str = "", *, alias: str = "") -> Query:
        """Return the form with one value a series over the whole time range: for tiles, tables and alert rules."""
        return Query(self.text(), self.columns[0].unit, meaning, self.tags, self.base_retention, alias, select=self)

    def over_time(
        self, cluster: Cluster, meaning: str = "", *, alias: str = "", fill: Fill = Fill.GAP, settled: bool = True
    ) -> Query:
        """Return the form with one value a series and time bin.

        Args:
            cluster: says how long the retention's windows are.
            meaning: what one value is.
            alias: Grafana's series name pattern.
            fill: what an empty bin holds.
            settled: leave out windows that are still filling, and bins of which the range has only a part, whose sums
                would look like a drop at the edges.
        """
        interval = whole_interval(cluster, self.base_retention)
        window = window_seconds(cluster, self.base_retention)
        settle = whole_bins(settle_seconds(cluster, self.base_retention), window) if settled else ()
        binned = replace(self.where(*settle), bins=PANEL, fill=fill)
        points = _most_points(cluster, self.measurements(), self.functions())
        return replace(binned.per_series(meaning, alias=alias), interval=interval, points=points)

    def newest_rows(self, rows: int, meaning: str = "") -> Query:
        """Return the form with the newest rows as they are stored, the newest first, as a table."""
        return replace(self, newest=rows).per_series(meaning).as_table()

    def between(self, start: int | None = None, stop: int | None = None) -> "Select":
        """Ask of [start, stop), epoch seconds, inner questions too; without an end, of all that is stored."""
        if isinstance(self.source, schema.Measurement):
            return replace(self, span=(start, stop))
        inner = tuple(one.between(start, stop) for one in self.inner())
        return replace(self, source=inner, span=(start, stop))

    def each(self, seconds: int) -> "Select":
        """Bin by a fixed length; bins without points stay out."""
        return replace(self, bins=seconds)

    def binned(self) -> "Select":
        """Bin as the panel does: for an inner `Select` whose bins are those of the outer one.

        Empty bins stay out: with ``fill(0)`` in a subquery, InfluxDB 1.x loses most values of several series.
        """
        return replace(self, bins=PANEL)

    def by_interval(self, cluster: Cluster, *, settled: bool = True) -> "tuple[Select, ...]":
        """Return this question to its retention and to each coarser one: inner ones, of which a single one answers.

        It is the coarsest whose windows are no longer than the panel's bins: long ranges read minutes or hours in place
        of windows, and their sums are the same. What InfluxDB gets to read are two numbers to compare: it leaves the
        others out before it looks at a series.

        Args:
            cluster: says how long the retentions' windows are.
            settled: leave out windows that are still filling, each retention its own.

        Raises:
            ValueError: the source is not rolled up.
        """
        if not isinstance(self.source, schema.Measurement) or not self.source.rollup:
            raise ValueError(f"{self.name}: has no rollups")
        windows = {one.name: one.window * _MILLISECONDS for one in cluster.retentions()}
        names = list(windows)[list(windows).index(self.retention) :]
        found = []
        for place, name in enumerate(names):
            fits = [f"$__interval_ms >= {windows[name]}"] if place else []
            fits += [f"$__interval_ms < {windows[longer]}" for longer in names[place + 1 : place + 2]]
            of_interval = [Condition(text, is_moving=True) for text in fits]
            settle = [ago("<", f"{settle_seconds(cluster, name)}s")] if settled else []
            found.append(replace(self, retention=name).where(*of_interval, *settle))
        return tuple(found)

    def text(self) -> str:
        """Return the InfluxQL, a line for each column, source and condition; ValueError if nothing was taken."""
        if not self.columns:
            raise ValueError(f"{self.name}: nothing selected")
        columns = ",\n".join(
            f"{column.expression} AS {identifier(column.name)}" if column.name else column.expression
            for column in self.columns
        )
        if isinstance(self.source, schema.Measurement):
            source = f"{identifier(self.retention)}.{identifier(self.source.name)}"
        else:
            source = ",\n".join(f"({inner.text()})" for inner in self.inner())
        terms = "\nAND ".join([*(condition.text for condition in self.conditions), *self._time()])
        where = f"\nWHERE {terms}" if terms else ""
        # time() stands last because fill() must follow it.
        length = "$__interval" if self.bins == PANEL else f"{self.bins}s"
        bins = [f"time({length}) fill({self.fill})"] if self.bins else []
        groups = ", ".join([*map(identifier, self.tags), *bins])
        tail = f"\nGROUP BY {groups}" if groups else ""
        newest = f" ORDER BY time DESC LIMIT {self.newest}" if self.newest else ""
        return f"SELECT {columns}\nFROM {source}{where}{tail}{newest}"

    def _time(self) -> Iterator[str]:
        if self.span is None:
            yield "$timeFilter"
            return
        start, stop = self.span
        if start is not None:
            yield f"time >= {start}s"
        if stop is not None:
            yield f"time < {stop}s"


def filled(text: str, start: int, end: int, milliseconds: int) -> str:
    """Return a text with Grafana's time filter and interval as it fills them in.

    Args:
        text: of a panel or a rule.
        start: epoch seconds.
        end: epoch seconds; belongs to the range, as `start` does.
        milliseconds: length of a bin.
    """
    bins = f"{milliseconds}ms" if milliseconds % _MILLISECONDS else f"{milliseconds // _MILLISECONDS}s"
    return (
        text.replace("$timeFilter", f"time >= {start * 1000}ms and time <= {end * 1000}ms")
        .replace("$__interval_ms", str(milliseconds))
        .replace("$__interval", bins)
    )


def tag_values(measurement: schema.Measurement, tag: str) -> str:
    """Return the question which values of a tag are stored."""
    return f"SHOW TAG VALUES FROM {identifier(measurement.name)} WITH KEY = {identifier(tag)}"


def top_rows(inner: Select | tuple[Select, ...], rows: int | str = ROWS) -> Query:
    """Return the rows with the largest values of the inner question's first column, as a table.

    Args:
        inner: its tags and all its columns are those of the table; of several, those of the first.
        rows: at most so many; a dashboard variable that holds a number is allowed.
    """
    asked = inner[0] if isinstance(inner, tuple) else inner
    first, *others = asked.columns
    tags = ", ".join(identifier(tag) for tag in asked.tags)
    top = Column(f"top({identifier(first.name)}, {tags}, {rows})", first.name, first.unit, (first.name,))
    kept = (beside(column) for column in others)
    return Select(inner, span=asked.span).take(top, *kept).per_series("One row a combination of tags.").as_table()


def top_sums(
    cluster: Cluster, inner: Select, rows: int | str = ROWS, known: Select | None = None, *, sign: str = "1"
) -> Query:
    """Return the same rows of what is summed over the range: from 18 hours on in whole hours.

    The hour in which such a range begins is left out then, unless it is whole.

    Args:
        cluster: says how long the retentions' windows are.
        inner: see `top_rows`.
        rows: at most so many.
        known: a question of a time of its own; what it finds has a row, too, with 0 if the range has nothing of it.
        sign: of the ranks: 1, -1, or a dashboard variable that holds one of them.
    """
    asked = inner.by_interval(cluster, settled=False)
    if known is not None:
        # The last value of a series is cheap to find, whatever it is.
        last = [(newest(replace(column, name=column.reads[0])), column) for column in inner.columns]
        zeros = replace(known, columns=tuple(scaled(value, "0", column.name, column.unit) for value, column in last))
        above, below = (Condition(f"{sign} {side} 0", is_moving=True) for side in "><")
        every = (*asked, zeros)
        # InfluxDB cuts an inner question's time to the outer one's: only the inner ones have any. Of rows with equal
        # tags top() takes the largest, which is not the 0; of negative ones it would be: those cost a sum, six times
        # as much.
        summed = Select(tuple(one.where(below) for one in every), span=(None, None))
        summed = summed.take(*(map(total, inner.columns))).by(*inner.tags)
        asked = (summed, *(one.where(above) for one in every))
    query = top_rows(asked, rows)
    return query.at_least(whole_interval(cluster, inner.retention)).at_most(_SUMMED)


def _most_points(cluster: Cluster, measurements: frozenset[schema.Measurement], functions: int) -> int:
    """Return about how many bins a range may have, so that the answer comes in seconds with thousands of nodes too."""
    bins, fewest = (_BINS_OF_NODES, _FEWEST_POINTS) if functions == 1 else (_BINS_OF_SEVERAL, _FEWEST_OF_SEVERAL)
    points = bins // max(len(cluster.nodes) * functions, 1)
    return 0 if points >= _MOST_POINTS or measurements.isdisjoint(_OF_NODES) else max(points, fewest)


def finest(cluster: Cluster, start: float, stop: float, now: float, longest: tuple[int, int]) -> Retention | None:
    """Return the finest retention that has all of a range and answers soon; None if it begins before all that is kept.

    Args:
        cluster: says how long each keeps its windows.
        start: epoch seconds.
        stop: epoch seconds.
        now: epoch seconds.
        longest: seconds of the longest ranges that are read from the raw windows and from minutes.
    """
    for retention, most in zip(cluster.retentions(), (*longest, stop - start), strict=True):
        if start >= now - retention.keep and stop - start <= most:
            return retention
    return None


def window_seconds(cluster: Cluster, retention: str) -> int:
    """Return the length of a retention's windows; of the finest one where the name is a dashboard variable."""
    retentions = cluster.retentions()
    return next((one.window for one in retentions if one.name == retention), retentions[0].window)


def settle_seconds(cluster: Cluster, retention: str) -> int:
    """Return how old a window's start must be before its total is nearly whole: length, lateness, two flushes.

    A rollup has it later still: until the next one, what the last one found amid the window stands there.
    """
    bridge = cluster.bridge
    rolled = _ROLLED if retention in (schema.MINUTE, schema.HOUR) else 0
    return window_seconds(cluster, retention) + bridge.lateness + round(2 * bridge.flush) + rolled


def logged_late(cluster: Cluster) -> int:
    """Return by how many seconds a cloud's flow logs are later than exporters' records; 0 without a cloud."""
    return max(cluster.bridge.lateness - BridgeSettings().lateness, 0) if cluster.cloud.format else 0


def whole_interval(cluster: Cluster, retention: str) -> int:
    """Return the smallest panel interval above which every interval that Grafana picks holds whole windows.

    With 10 s windows Grafana may pick 15 s: such bins hold one or two windows in turn, and a rate would jump up and
    down by half. From 20 s on all choices are multiples of 10 s.
    """
    window = window_seconds(cluster, retention)
    interval = window
    for nice in reversed(NICE_INTERVALS):
        if nice < window or nice % window:
            break
        interval = nice
    return interval
