"""Queries that boards and rules share: built from the schema, rendered as InfluxQL.

A `Select` says what is asked; `over_time` makes the form for a time series, `per_series` the form for tables, tiles and
alert rules (one value a series, no ``time()``). The result is a `Query`: text, unit and meaning, ready for a panel or a
rule. The text runs on InfluxDB 1.x, 2.x (database/retention mapping) and 3.x. Names are checked against
``cluster.schema`` when a `Select` is made.

    volume = (
        Select(schema.EGRESS, schema.RAW)
        .take(total(schema.BYTES))
        .where(is_in(schema.SRC_GROUP, ["model_storage"]), not_in(schema.DST_GROUP, ["approved_external"]))
        .by(schema.SRC, schema.DST, schema.PROTO)
    )
    volume.per_series(meaning="Bytes sent outside.")
    # SELECT sum("bytes") AS "bytes" FROM "raw"."egress" WHERE "src_group" = 'model_storage' AND
    # "dst_group" != 'approved_external' AND $timeFilter GROUP BY "src", "dst", "proto"

Several bridges write partial totals side by side (the shard tag): no query groups by it, and sums add them up.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from cluster import schema
from cluster.model import Cluster

BITS = 8
_MILLISECONDS = 1000
_FUNCTION = re.compile(r"\w+\(")

_OF_NODES = frozenset(
    one.name
    for one in schema.MEASUREMENTS
    if schema.NODE in one.tags or one in (schema.PAIR, schema.INTERFACE_TRAFFIC, schema.CAPACITY)
)
"""Measurements with the more series, the more nodes there are."""

_BINS_OF_NODES, _MOST_POINTS, _FEWEST_POINTS, _FEWEST_OF_SEVERAL = 80_000, 800, 60, 30
"""InfluxDB 1.x spends some microseconds on each bin of each series, again for each function of a query: a panel about
all nodes is given about so many bins of nodes, and never fewer than make a curve; fewer where nodes are read for
several functions."""

_SUMMED = 96
WHOLE_HOURS = "Three days and more are summed by whole hours."
"""Bins that a table's range is divided into, and what follows: of bins of 45 min and more Grafana makes hours."""

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
    RECORDS_PER_SECOND = "cps"
    COUNT = "short"
    STATE = "none"


class Fill(StrEnum):
    """What stands in a time bin without points. GAP is the honest one: no record is not zero bytes."""

    GAP = "null"
    NONE = "none"
    ZERO = "0"
    PREVIOUS = "previous"


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
        name: the column's name in the answer.
        unit: unit of its values.
        reads: names that must be fields of the source.
    """

    expression: str
    name: str
    unit: Unit
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """One term of WHERE, and the tags and fields it looks at."""

    text: str
    tags: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


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


def _aggregate(function: str, field: schema.Field, name: str) -> Column:
    return Column(f"{function}({identifier(field.name)})", name or field.name, _unit(field), (field.name,))


def total(field: schema.Field, name: str = "") -> Column:
    """Sum of a field over time, shards and whatever is not grouped by."""
    return _aggregate("sum", field, name)


def newest(field: schema.Field, name: str = "") -> Column:
    """Last value of a field."""
    return _aggregate("last", field, name)


def highest(field: schema.Field, name: str = "") -> Column:
    """Largest value of a field."""
    return _aggregate("max", field, name)


def lowest(field: schema.Field, name: str = "") -> Column:
    """Smallest value of a field."""
    return _aggregate("min", field, name)


def beside(field: schema.Field) -> Column:
    """Value of a field in the row that the one selector of the same question picked (`newest`, `highest`, `lowest`)."""
    return Column(identifier(field.name), field.name, _unit(field), (field.name,))


def count(field: schema.Field, name: str = "") -> Column:
    """Number of points that have the field."""
    return replace(_aggregate("count", field, name), unit=Unit.COUNT)


def bit_rate(field: schema.Field, name: str = "") -> Column:
    """Mean bit/s in each time bin: sum of bytes x 8 over the bin's length. Only with `Select.over_time`."""
    expression = f"sum({identifier(field.name)}) * {BITS * _MILLISECONDS}.0 / $__interval_ms"
    return Column(expression, name or "rate", Unit.BITS_PER_SECOND, (field.name,))


def event_rate(field: schema.Field, name: str = "") -> Column:
    """Mean events a second in each time bin (records, packets). Only with `Select.over_time`."""
    expression = f"sum({identifier(field.name)}) * {_MILLISECONDS}.0 / $__interval_ms"
    return Column(expression, name or "rate", Unit.RECORDS_PER_SECOND, (field.name,))


def scaled(column: Column, factor: str, name: str, unit: Unit) -> Column:
    """A column times a number (or a dashboard variable that holds one)."""
    return Column(f"{column.expression} * {factor}", name, unit, column.reads)


def is_in(tag: str, values: Iterable[str]) -> Condition:
    """The tag has one of these values; with no values, nothing matches."""
    terms = [f"{identifier(tag)} = {literal(value)}" for value in values]
    if not terms:
        return Condition(f"{identifier(tag)} = ''", (tag,))
    return Condition(terms[0] if len(terms) == 1 else f"({' OR '.join(terms)})", (tag,))


def not_in(tag: str, values: Iterable[str]) -> Condition:
    """The tag has none of these values; with no values, everything matches."""
    terms = [f"{identifier(tag)} != {literal(value)}" for value in values] or [f"{identifier(tag)} != ''"]
    return Condition(" AND ".join(terms), (tag,))


def chosen(tag: str, variable: str) -> Condition:
    """The tag has one of the values chosen in a multi-value dashboard variable (`All` has the value ``.*``)."""
    return Condition(f"{identifier(tag)} =~ /^${{{variable}:regex}}$/", (tag,))


def narrowed(variable: str) -> Condition:
    """Something was chosen in a multi-value dashboard variable, not `All`: InfluxDB compares two texts."""
    return Condition(f"{literal(f'${{{variable}:raw}}')} != '.*'")


def compare(field: schema.Field, operator: str, value: float) -> Condition:
    """A field compared with a number: ``compare(schema.STATE, ">=", 2)``."""
    return Condition(f"{identifier(field.name)} {operator} {value}", (), (field.name,))


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
    )


@dataclass(frozen=True, slots=True)
class Query:
    """InfluxQL with its meaning: with a panel it is drawn, with a rule it is compared.

    Attributes:
        influxql: text with ``$timeFilter`` (and ``$__interval``, ``$__interval_ms`` where binned), which Grafana's
            InfluxDB source expands in panels and in alert queries.
        unit: unit of the first column's values.
        meaning: what one value is, in a sentence.
        tags: labels of each series, in order.
        alias: Grafana's series name pattern, e.g. ``$tag_node``; empty for its default.
        shape: how Grafana reads the answer.
        interval: smallest sensible bin in seconds; 0 where nothing is binned.
        retention: the retention it reads.
        points: about how many bins a range has; 0 for as many as the panel has pixels.
    """

    influxql: str
    unit: Unit
    meaning: str
    tags: tuple[str, ...]
    retention: str
    alias: str = ""
    shape: Shape = Shape.SERIES
    interval: int = 0
    points: int = 0

    def at_least(self, seconds: int) -> "Query":
        """Return the same question in bins no shorter than this: where points are further apart than windows."""
        return replace(self, interval=max(self.interval, seconds))

    def at_most(self, points: int) -> "Query":
        """Return the same question in about so many bins a range, or fewer."""
        return replace(self, points=min(points, self.points or points))

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

    Raises:
        ValueError: a tag or field is none of the source's.
    """

    source: "schema.Measurement | Select | tuple[Select, ...]"
    retention: str = ""
    columns: tuple[Column, ...] = ()
    conditions: tuple[Condition, ...] = ()
    tags: tuple[str, ...] = ()
    bins: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.source, schema.Measurement):
            known_tags: tuple[str, ...] = self.source.tags
            known_fields = tuple(field.name for field in self.source.fields)
            if not self.retention:
                raise ValueError(f"{self.source.name}: name a retention")
        else:
            known_tags = tuple(dict.fromkeys(tag for inner in self.inner() for tag in inner.tags))
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

    def inner(self) -> "tuple[Select, ...]":
        """Return the inner questions; none where the source is a measurement."""
        if isinstance(self.source, schema.Measurement):
            return ()
        return self.source if isinstance(self.source, tuple) else (self.source,)

    @property
    def name(self) -> str:
        """Name of the (first) measurement at the bottom."""
        return self.source.name if isinstance(self.source, schema.Measurement) else self.inner()[0].name

    def measurements(self) -> frozenset[str]:
        """Names of all measurements at the bottom."""
        if isinstance(self.source, schema.Measurement):
            return frozenset({self.source.name})
        return frozenset().union(*(inner.measurements() for inner in self.inner()))

    @property
    def base_retention(self) -> str:
        """Retention of the (first) measurement at the bottom."""
        return self.retention if isinstance(self.source, schema.Measurement) else self.inner()[0].base_retention

    def functions(self) -> int:
        """Return for how many functions the measurement is read: InfluxDB 1.x reads a source anew for each."""
        own = sum(len(_FUNCTION.findall(column.expression)) for column in self.columns)
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
        return Query(self.text(), self.columns[0].unit, meaning, self.tags, self.base_retention, alias)

    def over_time(
        self,
        cluster: Cluster,
        meaning: str = "",
        *,
        alias: str = "",
        fill: Fill = Fill.GAP,
        settled: bool = True,
    ) -> Query:
        """Return the form with one value a series and time bin.

        Args:
            cluster: says how long the retention's windows are.
            meaning: what one value is.
            alias: Grafana's series name pattern.
            fill: what an empty bin holds.
            settled: leave out windows that are still filling, whose sums would look like a drop at the right edge.
        """
        interval = whole_interval(cluster, self.base_retention)
        settle = (Condition(f"time < now() - {settle_seconds(cluster, self.base_retention)}s"),) if settled else ()
        text = replace(self, conditions=(*self.conditions, *settle), bins=f"time($__interval) fill({fill})").text()
        unit = self.columns[0].unit
        points = _most_points(cluster, self.measurements(), self.functions())
        return Query(text, unit, meaning, self.tags, self.base_retention, alias, interval=interval, points=points)

    def each(self, seconds: int) -> "Select":
        """Bin by a fixed length: for an inner `Select` whose bins an outer one reduces."""
        return replace(self, bins=f"time({seconds}s) fill({Fill.NONE})")

    def binned(self) -> "Select":
        """Bin as the panel does: for an inner `Select` whose bins are those of the outer one.

        Empty bins stay out: with ``fill(0)`` in a subquery, InfluxDB 1.x loses most values of several series.
        """
        return replace(self, bins=f"time($__interval) fill({Fill.NONE})")

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
            fits += [f"time < now() - {settle_seconds(cluster, name)}s"] if settled else []
            conditions = (*self.conditions, *map(Condition, fits))
            found.append(replace(self, retention=name, conditions=conditions))
        return tuple(found)

    def text(self) -> str:
        """Return the InfluxQL; ValueError if nothing was taken."""
        if not self.columns:
            raise ValueError(f"{self.name}: nothing selected")
        columns = ", ".join(f"{column.expression} AS {identifier(column.name)}" for column in self.columns)
        if isinstance(self.source, schema.Measurement):
            source = f"{identifier(self.retention)}.{identifier(self.source.name)}"
        else:
            source = ", ".join(f"({inner.text()})" for inner in self.inner())
        where = " AND ".join([*(condition.text for condition in self.conditions), "$timeFilter"])
        # time() stands last because fill() must follow it.
        groups = [*(identifier(tag) for tag in self.tags), *([self.bins] if self.bins else [])]
        tail = f" GROUP BY {', '.join(groups)}" if groups else ""
        return f"SELECT {columns} FROM {source} WHERE {where}{tail}"  # noqa: S608 - every part is quoted above


def top_rows(inner: Select | tuple[Select, ...], rows: int | str) -> Query:
    """Return the rows with the largest values of the inner question's first column, as a table.

    Args:
        inner: its tags and all its columns are those of the table; of several, those of the first.
        rows: at most so many; a dashboard variable that holds a number is allowed.
    """
    asked = inner[0] if isinstance(inner, tuple) else inner
    first, *others = asked.columns
    tags = ", ".join(identifier(tag) for tag in asked.tags)
    top = Column(f"top({identifier(first.name)}, {tags}, {rows})", first.name, first.unit, (first.name,))
    kept = (Column(identifier(column.name), column.name, column.unit, (column.name,)) for column in others)
    return Select(inner).take(top, *kept).per_series("One row a combination of tags.").as_table()


def top_sums(cluster: Cluster, inner: Select, rows: int | str) -> Query:
    """Return the same rows of what is summed over the range: from three days on in whole hours.

    The hour in which such a range begins is left out then, unless it is whole.
    """
    query = top_rows(inner.by_interval(cluster, settled=False), rows)
    return query.at_least(whole_interval(cluster, inner.retention)).at_most(_SUMMED)


def _most_points(cluster: Cluster, measurements: frozenset[str], functions: int) -> int:
    """Return about how many bins a range may have, so that the answer comes in seconds with thousands of nodes too."""
    points = _BINS_OF_NODES // max(len(cluster.nodes) * functions, 1)
    fewest = _FEWEST_POINTS if functions == 1 else _FEWEST_OF_SEVERAL
    return 0 if points >= _MOST_POINTS or measurements.isdisjoint(_OF_NODES) else max(points, fewest)


def window_seconds(cluster: Cluster, retention: str) -> int:
    """Return the length of a retention's windows; of the finest one where the name is a dashboard variable."""
    retentions = cluster.retentions()
    return next((one.window for one in retentions if one.name == retention), retentions[0].window)


def settle_seconds(cluster: Cluster, retention: str) -> int:
    """Return how old a window's start must be before its total is nearly whole: length, lateness, two flushes."""
    bridge = cluster.bridge
    return window_seconds(cluster, retention) + bridge.lateness + round(2 * bridge.flush)


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
