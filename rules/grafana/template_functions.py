"""Values and functions of the template subset: those of Go's text/template, of Prometheus, and of its Alertmanager."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote_plus

from rules.grafana.go_numbers import (
    go_shortest,
    go_special,
    humanize,
    humanize1024,
    humanize_duration,
    humanize_percentage,
    humanize_timestamp,
)

NO_VALUE = "[no value]"


class TemplateError(ValueError):
    """The template is not in the subset, or cannot be carried out with these values."""


@dataclass(frozen=True, slots=True)
class Number:
    """An entry of ``$values``: a measure's number and its labels."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Print as Grafana's Value.String does: at least two significant digits, no exponent."""
        size = abs(self.value)
        if size == 0:
            return "0"
        if not math.isfinite(self.value):
            return go_special(self.value)
        return f"{self.value:.{max(0, 1 - math.floor(math.log10(size)))}f}"


@dataclass(frozen=True, slots=True)
class Missing:
    """What Go prints as ``<no value>``."""


MISSING = Missing()


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct of Go's: fields and methods by name. A name that it does not have is an error, as in Go.

    Attributes:
        fields: values; functions are methods.
        text: how it prints; None: not at all.
    """

    fields: Mapping[str, Any]
    text: str | None = None


class Texts(dict[str, str]):
    """Labels or annotations of a notification, Go's ``template.KV``."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """Return its methods."""
        return {"SortedPairs": [Struct({"Name": name, "Value": text}) for name, text in sorted(self.items())]}


class Alerts(list[Struct]):
    """Alerts of a notification, Go's ``ExtendedAlerts``."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """Return its methods."""
        return {word: [one for one in self if one.fields["Status"] == word.lower()] for word in ("Firing", "Resolved")}


Value: TypeAlias = "str | float | int | bool | Number | Missing | Struct | Mapping[str, Any] | Sequence[Any]"


def _present(value: Value) -> Value:
    if isinstance(value, Missing):
        raise TemplateError("a function is given no value")
    return value


def _number(value: Value) -> float:
    match _present(value):
        case bool() | Number() | Missing() | Struct() | Mapping():
            raise TemplateError(f"cannot read {value!r} as a number")
        case str() as text:
            try:
                return float(text)
            except ValueError as error:
                raise TemplateError(f"cannot read {text!r} as a number") from error
        case float() | int() as number:
            return float(number)
    raise TemplateError(f"cannot read {value!r} as a number")


def _text(value: Value) -> str:
    if not isinstance(_present(value), str):
        raise TemplateError(f"expected a string, not {value!r}")
    return str(value)


def truth(value: Value) -> bool:
    """Whether Go's ``if`` takes the value for true."""
    if isinstance(value, Number | Struct):
        return True
    return not isinstance(value, Missing) and bool(value)


def printed(value: Value) -> str:
    """Print a value as a template action does."""
    match value:
        case Missing():
            return NO_VALUE
        case bool():
            return "true" if value else "false"
        case float():
            return go_shortest(value)
        case Struct(text=str() as text):
            return text
        case Mapping() | Struct() | list() | tuple():
            raise TemplateError("a map is no text: name the label or value")
        case _:
            return str(value)


_BASIC = {bool: "bool", int: "int", float: "float", str: "string"}


def _kind(value: Value) -> str:
    kind = _BASIC.get(type(_present(value)))
    if kind is None:
        raise TemplateError(f"cannot compare {value!r}")
    return kind


def _equal(first: Value, *others: Value) -> bool:
    if not others:
        raise TemplateError("eq needs two values")
    for other in others:
        # Nothing is comparable with everything, and equals nothing only.
        if MISSING not in (first, other) and _kind(first) != _kind(other):
            raise TemplateError(f"incompatible types for comparison: {first!r} and {other!r}")
    return any(first == other for other in others)


def _less(first: Value, second: Value) -> bool:
    kind = _kind(first)
    if kind != _kind(second):
        raise TemplateError(f"incompatible types for comparison: {first!r} and {second!r}")
    if isinstance(first, str) and isinstance(second, str):
        return first < second
    if kind == "bool":
        raise TemplateError("invalid type for comparison: bool")
    return _number(first) < _number(second)


_VERB = re.compile(r"%(?:%|(\.\d+)?([sdvfgqe]))")


def _printf(layout: Value, *arguments: Value) -> str:
    remaining = list(arguments)

    def one(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        if not remaining:
            raise TemplateError(f"printf: no argument for {match[0]}")
        return _verb(match[1], match[2], remaining.pop(0))

    layout_text = _text(layout)
    if "%" in _VERB.sub("", layout_text):
        raise TemplateError(f"printf: a verb in {layout_text!r} is not supported")
    text = _VERB.sub(one, layout_text)
    if remaining:
        raise TemplateError("printf: too many arguments")
    return text


def _verb(precision: str | None, verb: str, value: Value) -> str:
    if verb in "sqv" and precision is None and not isinstance(value, Missing | Mapping):
        if verb == "v":
            return printed(value)
        if isinstance(value, str):
            return value if verb == "s" else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if verb in "fge" and isinstance(value, float):
        if not math.isfinite(value):
            return go_special(value)
        if verb == "g" and precision is None:
            return go_shortest(value)
        return f"{value:{precision or '.6'}{verb}}"
    if verb == "d" and precision is None and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise TemplateError(f"printf: %{precision or ''}{verb} does not take {value!r}")


def _index(container: Value, *keys: Value) -> Value:
    result = container
    for key in keys:
        if isinstance(result, list | tuple):
            result = _element(result, key)
            continue
        if not isinstance(result, Mapping):
            raise TemplateError(f"cannot index {result!r}")
        if _text(key) not in result:
            # Go's index gives the zero value of the map's elements.
            if all(isinstance(item, str) for item in result.values()):
                return ""
            return Number(0.0)
        result = result[_text(key)]
    return result


def _element(sequence: Sequence[Any], key: Value) -> Value:
    if not isinstance(key, int) or not 0 <= key < len(sequence):
        raise TemplateError(f"index out of range: {key!r}")
    found: Value = sequence[key]
    return found


def _length(value: Value) -> int:
    if not isinstance(value, str | Mapping | list | tuple):
        raise TemplateError(f"len of {value!r}")
    return len(value.encode()) if isinstance(value, str) else len(value)


def _slice(value: Value, *ends: int) -> Value:
    if not isinstance(value, list) or len(ends) > 2 or any(end > len(value) for end in ends):
        raise TemplateError(f"slice of {value!r}")
    return value[slice(*ends, *(len(value),) * (2 - len(ends)))] if ends else value


def _match(pattern: Value, text: Value) -> bool:
    return re.search(_text(pattern), _text(text)) is not None


def _replaced(pattern: Value, replacement: Value, text: Value) -> str:
    if "$" in _text(replacement):
        raise TemplateError("reReplaceAll: groups in the replacement are not supported")
    return re.sub(_text(pattern), lambda _: _text(replacement), _text(text))


def _and(*values: Value) -> Value:
    return next((value for value in values if not truth(value)), values[-1])


def _or(*values: Value) -> Value:
    return next((value for value in values if truth(value)), values[-1])


def _of_moment(moment: Value, method: str) -> Callable[[str], Value]:
    if not isinstance(moment, Struct) or method not in moment.fields:
        raise TemplateError(f"{moment!r} is no time")
    found: Callable[[str], Value] = moment.fields[method]
    return found


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "humanize": lambda value: humanize(_number(value)),
    "humanize1024": lambda value: humanize1024(_number(value)),
    "humanizeDuration": lambda value: humanize_duration(_number(value)),
    "humanizeTimestamp": lambda value: humanize_timestamp(_number(value)),
    "humanizePercentage": lambda value: humanize_percentage(_number(value)),
    "printf": _printf,
    "print": printed,
    "index": _index,
    "len": _length,
    "slice": _slice,
    "match": _match,
    "reReplaceAll": _replaced,
    "urlquery": lambda value: quote_plus(_text(value)),
    "tz": lambda zone, moment: _of_moment(moment, "In")(_text(zone)),
    "date": lambda layout, moment: _of_moment(moment, "Format")(_text(layout)),
    "toUpper": lambda value: _text(value).upper(),
    "toLower": lambda value: _text(value).lower(),
    "eq": _equal,
    "ne": lambda first, second: not _equal(first, second),
    "lt": _less,
    "le": lambda first, second: _less(first, second) or _equal(first, second),
    "gt": lambda first, second: not (_less(first, second) or _equal(first, second)),
    "ge": lambda first, second: not _less(first, second),
    "and": _and,
    "or": _or,
    "not": lambda value: not truth(value),
}
