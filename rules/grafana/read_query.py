"""Queries of a rules file, which another version of us may have written, as the `Select`s that they were made of.

Only files need this: a rule that is built here has its `Select`. Without one, a backtest of an earlier rule is right,
but must ask at every evaluation and takes hours.
"""

import re
from collections.abc import Iterator

from store import schema
from store.influxql import BESIDE, Column, Condition, Fill, Select, Unit

_NAME = r'"((?:\\.|[^"\\])+)"'
_NUMBER = r"-?[0-9.]+(?:e[-+]?[0-9]+)?"
_NAMED = re.compile(rf"(.+) AS {_NAME}")
_FUNCTION = re.compile(rf"([a-z]+)\({_NAME}\)(?: \* ({_NUMBER}))?")
_ABOVE = rf"(?:(?:sum|max)\({_NAME}\)|abs\({_NAME} - {_NAME}\)|{_NAME})"
_BELOW = rf"(?:[a-z]+\({_NAME}\)|{_NAME})"
_RATIO = re.compile(rf"(?:1\.0 \* )?({_ABOVE}|\({_ABOVE}(?: \+ {_ABOVE})*\))(?: \* {_NUMBER})? / {_BELOW}")
_COMPARISON = re.compile(rf"{_NAME} (>=|<=|!=|=|>|<) ({_NUMBER})")
_BINS = re.compile(r"time\((\d+)s\) fill\((\w+)\)")
_VALUE = re.compile(r"'(?:\\.|[^'\\])*'")


def select_of(text: str) -> Select | None:
    """Return what makes this text, one line of InfluxQL; None if it is not of our form, or names what is not stored."""
    try:
        found = _select(text)
    except (KeyError, ValueError):
        return None
    return found if found.per_series().influxql == text else None


def _select(text: str) -> Select:
    columns, rest = _split(text.removeprefix("SELECT "), " FROM ")
    sources, rest = _split(rest, " WHERE ")
    where, *groups = _split(rest, " GROUP BY ")
    found = _source(sources)
    for column in _split(columns, ", "):
        found = found.take(_column(column))
    for part in _split(", ".join(groups), ", ") if groups else ():
        bins = _BINS.fullmatch(part)
        found = found.each(int(bins[1])) if bins and bins[2] == Fill.NONE else found.by(*_names(part))
    # The last one is the time filter.
    return found.where(*(_condition(found, term) for term in _split(where, " AND ")[:-1]))


def _source(text: str) -> Select:
    if text.startswith("("):
        return Select(tuple(_select(part[1:-1]) for part in _split(text, ", ")))
    retention, name = _names(text)
    return Select({one.name: one for one in schema.MEASUREMENTS}[name], retention)


def _column(text: str) -> Column:
    named = _NAMED.fullmatch(text)
    if named is None:
        raise ValueError(f"{text}: no column with a name")
    expression, name = named.groups()
    reads = _names(expression)
    if re.fullmatch(_NAME, expression):
        return Column(expression, name, Unit.COUNT, reads, BESIDE)
    if match := _FUNCTION.fullmatch(expression):
        return Column(expression, name, Unit.COUNT, reads, match[1], float(match[3] or 1))
    ratio = _RATIO.fullmatch(expression)
    return Column(expression, name, Unit.COUNT, reads, above=_names(ratio[1]) if ratio else ())


def _condition(select: Select, text: str) -> Condition:
    if len(_split(text, " OR ")) > 1:
        raise ValueError(f"{text}: OR binds less than AND")
    match = _COMPARISON.fullmatch(text)
    bare = _VALUE.sub("", text)
    names = _names(bare)
    fields = tuple(name for name in names if name not in select.known_tags())
    is_moving = re.search(r"=~|!~|\btime\b", re.sub(_NAME, "", bare)) is not None
    comparison = (match[2], float(match[3])) if match else None
    return Condition(text, tuple(set(names) - set(fields)), fields, comparison=comparison, is_moving=is_moving)


def _names(text: str) -> tuple[str, ...]:
    return tuple(re.findall(_NAME, text))


def _split(text: str, mark: str) -> list[str]:
    """Return the parts between marks that stand in no quotes and no parentheses."""
    cuts = [at for at in _top_level(text) if text.startswith(mark, at)]
    return [text[a:b] for a, b in zip([0, *(cut + len(mark) for cut in cuts)], [*cuts, len(text)], strict=True)]


def _top_level(text: str) -> Iterator[int]:
    depth = 0
    for match in re.finditer(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[()]|.", text):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if not depth and match.end() - match.start() == 1:
            yield match.start()
