"""Read back the InfluxQL that `dashboards.queries.Select` writes, as far as bounds on its answers need to know it.

Not a parser of InfluxQL: what is not of that form is None, and whoever asked does without.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

TIME_FILTER = "$timeFilter"

RATIO = "ratio"
"""Function of a column that divides sums."""

_KEYWORDS = ("FROM", "WHERE", "GROUP BY")
_COLUMN = re.compile(
    r'(?P<function>[a-z]+)\("(?P<field>(?:\\.|[^"\\])+)"\)(?: \* (?P<factor>[0-9.]+(?:e[-+]?[0-9]+)?))?'
    r' AS "(?P<name>(?:\\.|[^"\\])+)"'
)
_SUM = r'sum\("(?:\\.|[^"\\])+"\)'
_RATIO = re.compile(rf'(?P<above>{_SUM}|\({_SUM}(?: \+ {_SUM})*\)) / {_SUM} AS "(?P<name>(?:\\.|[^"\\])+)"')
_OTHER = re.compile(r'(?P<expression>.+) AS "(?P<name>(?:\\.|[^"\\])+)"')
_MEASUREMENT = re.compile(r'"(?:\\.|[^"\\])+"\."(?:\\.|[^"\\])+"')
_TAG = re.compile(r'"((?:\\.|[^"\\])+)"')
_BINS = re.compile(r"time\((\d+)s\) fill\(none\)")
_COMPARISON = re.compile(
    r'"(?P<field>(?:\\.|[^"\\])+)" (?P<operator>>=|<=|!=|=|>|<) (?P<number>-?[0-9.]+(?:e[-+]?[0-9]+)?)'
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of an answer.

    Attributes:
        function: of ``function("field") * factor AS "name"``; RATIO for ``(sum("a") + sum("b")) / sum("c")``; empty for
            any other expression.
        fields: what it reads; of a ratio, what stands above the line.
        factor: 1 where there is none.
        name: in the answer.
    """

    function: str
    fields: tuple[str, ...]
    factor: float
    name: str

    @property
    def field(self) -> str:
        """The field of a function, which reads one."""
        return self.fields[0]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition ``"field" operator number``."""

    field: str
    operator: str
    number: str

    def __str__(self) -> str:
        """Return it as InfluxQL."""
        return f'"{self.field}" {self.operator} {self.number}'


@dataclass(frozen=True, slots=True)
class Statement:
    """One SELECT.

    Attributes:
        columns: what it answers.
        measurement: ``"raw"."egress"`` at the bottom; empty where `inner` is the source.
        inner: the statements that it reads.
        conditions: terms of WHERE that all must hold, as text, without the time filter.
        tags: what it groups by.
        bins: seconds of ``GROUP BY time(...)``; 0 where it has none.
    """

    columns: tuple[Column, ...]
    measurement: str
    inner: "tuple[Statement, ...]"
    conditions: tuple[str, ...]
    tags: tuple[str, ...]
    bins: int

    def column(self, name: str) -> Column | None:
        """Return the column of this name."""
        return next((column for column in self.columns if column.name == name), None)

    def comparisons(self) -> tuple[Comparison, ...]:
        """Return the conditions that compare with a number."""
        found = (_COMPARISON.fullmatch(condition) for condition in self.conditions)
        return tuple(Comparison(match["field"], match["operator"], match["number"]) for match in found if match)

    def bottoms(self) -> "tuple[Statement, ...]":
        """Return the statements that read measurements."""
        if self.measurement:
            return (self,)
        return tuple(bottom for one in self.inner for bottom in one.bottoms())

    def all_bins(self) -> tuple[int, ...]:
        """Return the bins of this and all inner statements that have some."""
        own = (self.bins,) if self.bins else ()
        return own + tuple(bins for one in self.inner for bins in one.all_bins())


@cache
def read(text: str) -> Statement | None:
    """Return the statement of a rule's query; None where it is not of the form that is known."""
    # Regular expressions may hold quotes and keywords; now() makes an answer depend on when it is asked.
    if "=~" in text or "!~" in text or "now()" in text or ";" in text:
        return None
    return _statement(text.strip())


def _statement(text: str) -> Statement | None:
    if not text.startswith("SELECT "):
        return None
    parts = _split_clauses(text[len("SELECT ") :])
    if parts is None:
        return None
    selected, source, where, group_by = parts
    columns = [_column(part) for part in _split(selected, ",")]
    conditions = _conditions(where)
    groups = _groups(group_by)
    sources = _sources(source)
    known = [column for column in columns if column is not None]
    if len(known) != len(columns) or conditions is None or groups is None or sources is None:
        return None
    return Statement(tuple(known), *sources, conditions, *groups)


def _split_clauses(text: str) -> tuple[str, str, str, str] | None:
    """Return what stands before FROM, after it, after WHERE, and after GROUP BY (may be empty)."""
    cuts: dict[str, int] = {}
    for position in _top_level(text):
        for word in _KEYWORDS:
            if text.startswith(f" {word} ", position) and word not in cuts:
                cuts[word] = position
    if "FROM" not in cuts or "WHERE" not in cuts or cuts["FROM"] > cuts["WHERE"]:
        return None
    end = cuts.get("GROUP BY", len(text))
    if end < cuts["WHERE"]:
        return None
    return (
        text[: cuts["FROM"]],
        text[cuts["FROM"] + len(" FROM ") : cuts["WHERE"]],
        text[cuts["WHERE"] + len(" WHERE ") : end],
        text[end + len(" GROUP BY ") :],
    )


def _top_level(text: str) -> Iterator[int]:
    """Yield the positions that stand in no quotes and no parentheses."""
    quote, depth, position = "", 0, 0
    while position < len(text):
        sign = text[position]
        if quote:
            if sign == "\\":
                position += 1
            elif sign == quote:
                quote = ""
        elif sign in "'\"":
            quote = sign
        elif sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
        elif depth == 0:
            yield position
        position += 1


def _split(text: str, mark: str) -> list[str]:
    """Return the parts between marks at the top level, stripped."""
    cuts = [position for position in _top_level(text) if text.startswith(mark, position)]
    starts = [0, *(cut + len(mark) for cut in cuts)]
    return [text[start:end].strip() for start, end in zip(starts, [*cuts, len(text)], strict=True)]


def _column(text: str) -> Column | None:
    match = _COLUMN.fullmatch(text)
    if match is not None:
        return Column(match["function"], (match["field"],), float(match["factor"] or 1), match["name"])
    ratio = _RATIO.fullmatch(text)
    if ratio is not None:
        return Column(RATIO, tuple(_TAG.findall(ratio["above"])), 1.0, ratio["name"])
    other = _OTHER.fullmatch(text)
    fields = tuple(_TAG.findall(other["expression"])) if other is not None else ()
    return Column("", fields, 1.0, other["name"]) if other is not None and fields else None


def _conditions(text: str) -> tuple[str, ...] | None:
    if len(_split(text, " OR ")) > 1:
        return None
    terms = _split(text, " AND ")
    if terms[-1] != TIME_FILTER or TIME_FILTER in " ".join(terms[:-1]):
        return None
    # A time without quotes is the time itself.
    if any(re.search(r"(?<![\"'\w])time(?![\"'\w])", _without_quoted(term)) for term in terms[:-1]):
        return None
    return tuple(terms[:-1])


def _without_quoted(text: str) -> str:
    return re.sub(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", "", text)


def _groups(text: str) -> tuple[tuple[str, ...], int] | None:
    tags: list[str] = []
    bins = 0
    for part in _split(text, ",") if text else ():
        tag, binned = _TAG.fullmatch(part), _BINS.fullmatch(part)
        if tag is not None:
            tags.append(tag[1])
        elif binned is not None:
            bins = int(binned[1])
        else:
            return None
    return tuple(tags), bins


def _sources(text: str) -> tuple[str, tuple[Statement, ...]] | None:
    if _MEASUREMENT.fullmatch(text):
        return text, ()
    inner: list[Statement] = []
    for part in _split(text, ","):
        statement = _statement(part[1:-1].strip()) if part.startswith("(") and part.endswith(")") else None
        if statement is None:
            return None
        inner.append(statement)
    return "", tuple(inner)
