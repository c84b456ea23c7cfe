"""Render the Go templates of annotations as Grafana does, so that evaluator and Grafana say the same words.

Semantics: Go's text/template with the functions of prometheus/template, called as in Grafana 12's
``pkg/services/ngalert/state/template/template.go``: ``$labels``, ``$values`` and ``$value`` are set, a missing label
prints ``[no value]``. The subset: text, ``if`` / ``else if`` / ``else`` / ``end``, comments, trim markers, pipelines,
parentheses and the functions below; anything else is a `TemplateError` when the template is parsed, never wrong text.
tests/rules/template_goldens.yaml holds the same cases as rendered by Go.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import TypeAlias

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
            return _go_special(self.value)
        return f"{self.value:.{max(0, 1 - math.floor(math.log10(size)))}f}"


@dataclass(frozen=True, slots=True)
class Missing:
    """What Go prints as ``<no value>``."""


MISSING = Missing()

Value: TypeAlias = "str | float | int | bool | Number | Missing | Mapping[str, str] | Mapping[str, Number]"


# Numbers as Go prints them -------------------------------------------------------------------------


def _go_special(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else '+'}Inf"


def go_shortest(value: float) -> str:
    """Print a float as Go's ``%v``: shortest digits that read back, exponent below 1e-4 and from 1e+21."""
    if not math.isfinite(value):
        return _go_special(value)
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    sign, digits, exponent = Decimal(repr(float(value))).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    scale = len(digits) + int(exponent) - 1
    minus = "-" if sign else ""
    if scale < -4 or scale >= 21:
        mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
        return f"{minus}{mantissa}e{'-' if scale < 0 else '+'}{abs(scale):02d}"
    return minus + format(Decimal(repr(abs(float(value)))).normalize(), "f")


def go_general(value: float, precision: int) -> str:
    """Print a float as Go's ``%.<precision>g``; Python differs for what is no finite number only."""
    return f"{value:.{precision}g}" if math.isfinite(value) else _go_special(value)


def _scaled(value: float, base: float, prefixes: tuple[str, ...]) -> str:
    prefix = ""
    for candidate in prefixes:
        if abs(value) < base:
            break
        prefix = candidate
        value /= base
    return go_general(value, 4) + prefix


def _small(value: float, suffix: str) -> str:
    prefix = ""
    for candidate in ("m", "u", "n", "p", "f", "a", "z", "y"):
        if abs(value) >= 1:
            break
        prefix = candidate
        value *= 1000
    return go_general(value, 4) + prefix + suffix


def humanize(value: float) -> str:
    """Print with metric prefixes: ``41.2G``."""
    if value == 0 or not math.isfinite(value):
        return go_general(value, 4)
    if abs(value) >= 1:
        return _scaled(value, 1000, ("k", "M", "G", "T", "P", "E", "Z", "Y"))
    return _small(value, "")


def humanize1024(value: float) -> str:
    """Print with binary prefixes: ``38.37Gi``."""
    if abs(value) <= 1 or not math.isfinite(value):
        return go_general(value, 4)
    return _scaled(value, 1024, ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"))


def humanize_duration(value: float) -> str:
    """Print seconds: ``2m 5s``."""
    if not math.isfinite(value):
        return go_general(value, 4)
    if value == 0:
        return "0s"
    if abs(value) < 1:
        return _small(value, "s")
    sign, size = ("-", -value) if value < 0 else ("", value)
    minutes, seconds = divmod(int(size), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if size < 60:
        return f"{sign}{go_general(size, 4)}s"
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    first = next(position for position, (number, _) in enumerate(parts) if number)
    return sign + " ".join(f"{number}{unit}" for number, unit in parts[first:])


def humanize_percentage(value: float) -> str:
    """Print a ratio: ``12.35%``."""
    return f"{go_general(value * 100, 4)}%"


# Functions ----------------------------------------------------------------------------------------


def _present(value: Value) -> Value:
    if isinstance(value, Missing):
        raise TemplateError("a function is given no value")
    return value


def _number(value: Value) -> float:
    match _present(value):
        case bool() | Number() | Missing() | Mapping():
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
    if isinstance(value, Number):
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
        case Mapping():
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
        if _kind(first) != _kind(other):
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
            return _go_special(value)
        if verb == "g" and precision is None:
            return go_shortest(value)
        return f"{value:{precision or '.6'}{verb}}"
    if verb == "d" and precision is None and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise TemplateError(f"printf: %{precision or ''}{verb} does not take {value!r}")


def _index(container: Value, *keys: Value) -> Value:
    result = container
    for key in keys:
        if not isinstance(result, Mapping):
            raise TemplateError(f"cannot index {result!r}")
        if _text(key) not in result:
            # Go's index gives the zero value of the map's elements.
            if all(isinstance(item, str) for item in result.values()):
                return ""
            return Number(0.0)
        result = result[_text(key)]
    return result


def _match(pattern: Value, text: Value) -> bool:
    return re.search(_text(pattern), _text(text)) is not None


def _and(*values: Value) -> Value:
    return next((value for value in values if not truth(value)), values[-1])


def _or(*values: Value) -> Value:
    return next((value for value in values if truth(value)), values[-1])


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "humanize": lambda value: humanize(_number(value)),
    "humanize1024": lambda value: humanize1024(_number(value)),
    "humanizeDuration": lambda value: humanize_duration(_number(value)),
    "humanizePercentage": lambda value: humanize_percentage(_number(value)),
    "printf": _printf,
    "print": printed,
    "index": _index,
    "match": _match,
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


# Parsing ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Context:
    """What a template sees."""

    labels: Mapping[str, str]
    values: Mapping[str, Number]
    value: str = ""


@dataclass(frozen=True, slots=True)
class _Literal:
    value: Value


@dataclass(frozen=True, slots=True)
class _Path:
    root: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    arguments: "tuple[_Expression, ...]"


_Expression: TypeAlias = "_Literal | _Path | _Call"


@dataclass(frozen=True, slots=True)
class _If:
    branches: "tuple[tuple[_Expression, tuple[_Node, ...]], ...]"
    otherwise: "tuple[_Node, ...]"


_Node: TypeAlias = "str | _If | _Literal | _Path | _Call"

_ACTION = re.compile(
    r"\{\{(?P<left>-\s)?\s*(?P<body>(?:/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|`[^`]*`|[^\"`}]|\}(?!\}))*?)\s*(?P<right>(?<=\s)-)?\}\}",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"\s*(?:(?P<string>\"(?:\\.|[^\"\\])*\"|`[^`]*`)|(?P<number>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"|(?P<path>\$[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|(?:\.[A-Za-z_]\w*)+|\.(?!\w))"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<mark>[()|]))"
)
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}
_ROOTS = {"$labels": ".Labels", "$values": ".Values", "$value": ".Value", "$": "."}
_KEYWORDS = {"if", "else", "end", "range", "with", "define", "template", "block", "break", "continue"}


@cache
def parse(text: str) -> "tuple[_Node, ...]":
    """Parse a template; TemplateError for what the subset does not have."""
    pieces: list[tuple[bool, str]] = []
    position = 0
    trim = False
    for match in _ACTION.finditer(text):
        before = text[position : match.start()]
        before = before.lstrip() if trim else before
        pieces.append((False, before.rstrip() if match["left"] else before))
        pieces.append((True, match["body"].strip()))
        position, trim = match.end(), bool(match["right"])
    rest = text[position:]
    if "{{" in rest or any("{{" in piece for is_action, piece in pieces if not is_action):
        raise TemplateError(f"an action is not closed: {text!r}")
    pieces.append((False, rest.lstrip() if trim else rest))
    nodes, end, at = _block(pieces, 0)
    if end != "":
        raise TemplateError(f"unexpected {{{{ {end} }}}}")
    assert at == len(pieces)  # noqa: S101 - the parser's own invariant
    return nodes


def _block(pieces: list[tuple[bool, str]], at: int) -> "tuple[tuple[_Node, ...], str, int]":
    """Parse until an `else`, an `end` or the end of the text; return nodes, what ended them, and the next position."""
    nodes: list[_Node] = []
    while at < len(pieces):
        is_action, body = pieces[at]
        at += 1
        if not is_action:
            if body:
                nodes.append(body)
            continue
        word = body.split(maxsplit=1)[0] if body else ""
        if word in ("else", "end"):
            return tuple(nodes), body, at
        if word == "if":
            node, at = _if(pieces, at, body)
            nodes.append(node)
        elif body.startswith("/*"):
            continue
        elif word in _KEYWORDS:
            raise TemplateError(f"{{{{ {word} }}}} is not supported")
        else:
            nodes.append(_pipeline(body))
    return tuple(nodes), "", at


def _if(pieces: list[tuple[bool, str]], at: int, body: str) -> tuple[_If, int]:
    branches: list[tuple[_Expression, tuple[_Node, ...]]] = []
    condition: _Expression | None = _pipeline(body.removeprefix("if"))
    otherwise: tuple[_Node, ...] = ()
    while True:
        nodes, ended_by, at = _block(pieces, at)
        if condition is not None:
            branches.append((condition, nodes))
        else:
            otherwise = nodes
        if ended_by == "end":
            return _If(tuple(branches), otherwise), at
        if not ended_by or condition is None:
            raise TemplateError("{{ if }} has no {{ end }}")
        rest = ended_by.removeprefix("else").strip()
        if rest and not rest.startswith("if"):
            raise TemplateError(f"unexpected {{{{ {ended_by} }}}}")
        condition = _pipeline(rest.removeprefix("if")) if rest else None


def _pipeline(body: str) -> _Expression:
    tokens: list[tuple[str, str]] = []
    position = 0
    stripped = body.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None or match.lastgroup is None:
            raise TemplateError(f"cannot read {body!r}")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    expression, at = _commands(tokens, 0)
    if at != len(tokens):
        raise TemplateError(f"unexpected {tokens[at][1]!r} in {body!r}")
    return expression


def _commands(tokens: list[tuple[str, str]], at: int) -> tuple[_Expression, int]:
    piped: _Expression | None = None
    while True:
        operands: list[_Expression | str] = []
        while at < len(tokens) and tokens[at] != ("mark", "|") and tokens[at] != ("mark", ")"):
            operand, at = _operand(tokens, at)
            operands.append(operand)
        if piped is not None:
            operands.append(piped)
        piped = _command(operands)
        if at < len(tokens) and tokens[at] == ("mark", "|"):
            at += 1
            continue
        return piped, at


def _command(operands: "list[_Expression | str]") -> _Expression:
    if not operands:
        raise TemplateError("missing value for command")
    first, rest = operands[0], operands[1:]
    # A function without arguments of its own may still be an argument: none of the subset is.
    arguments = tuple(operand for operand in rest if not isinstance(operand, str))
    if len(arguments) != len(rest):
        raise TemplateError("a function as an argument needs parentheses")
    if isinstance(first, str):
        return _Call(first, arguments)
    if arguments:
        raise TemplateError("only a function takes arguments")
    return first


def _operand(tokens: list[tuple[str, str]], at: int) -> "tuple[_Expression | str, int]":
    kind, text = tokens[at]
    match kind:
        case "string":
            return _Literal(_unquoted(text)), at + 1
        case "number":
            return _Literal(int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)), at + 1
        case "path":
            return _path(text), at + 1
        case "word" if text in ("true", "false"):
            return _Literal(text == "true"), at + 1
        case "word" if text in _FUNCTIONS:
            return text, at + 1
        case "mark" if text == "(":
            inner, at = _commands(tokens, at + 1)
            if at >= len(tokens) or tokens[at] != ("mark", ")"):
                raise TemplateError("a ( is not closed")
            return inner, at + 1
        case _:
            raise TemplateError(f"{text!r} is not supported")


def _unquoted(text: str) -> str:
    if text.startswith("`"):
        return text[1:-1]

    def escape(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise TemplateError(f"the escape \\{match[1]} is not supported")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", escape, text[1:-1])


def _path(text: str) -> _Path:
    if text.startswith("$"):
        root, *names = text.split(".")
        if root not in _ROOTS:
            raise TemplateError(f"undefined variable {root!r}")
        full = [*_ROOTS[root].split(".")[1:], *names]
    else:
        full = text.split(".")[1:]
    names_left = [name for name in full if name]
    if not names_left or names_left[0] not in ("Labels", "Values", "Value"):
        raise TemplateError(f"{text!r} is neither a label nor a value")
    return _Path(names_left[0], tuple(names_left[1:]))


# Rendering ----------------------------------------------------------------------------------------


def render(text: str, context: Context) -> str:
    """Render a template.

    Raises:
        TemplateError: where Go would give up as well; Grafana then keeps the text as it stands.
    """
    return "".join(_rendered(node, context) for node in parse(text))


def _rendered(node: _Node, context: Context) -> str:
    match node:
        case str():
            return node
        case _If(branches, otherwise):
            nodes = next((nodes for test, nodes in branches if truth(_evaluated(test, context))), otherwise)
            return "".join(_rendered(inner, context) for inner in nodes)
        case _:
            return printed(_evaluated(node, context))


def _evaluated(expression: _Expression, context: Context) -> Value:
    match expression:
        case _Literal(value):
            return value
        case _Path(root, names):
            return _looked_up(root, names, context)
        case _Call(function, arguments):
            try:
                return _FUNCTIONS[function](*(_evaluated(argument, context) for argument in arguments))
            except TypeError as error:
                raise TemplateError(f"{function}: wrong number of arguments") from error


def _looked_up(root: str, names: tuple[str, ...], context: Context) -> Value:
    roots: dict[str, Value] = {"Labels": context.labels, "Values": context.values, "Value": context.value}
    result = roots[root]
    for name in names:
        if isinstance(result, Missing):
            # Go: a field of no value is no value.
            return MISSING
        if isinstance(result, Mapping):
            result = result.get(name, MISSING)
        elif isinstance(result, Number) and name in ("Value", "Labels"):
            result = result.value if name == "Value" else result.labels
        else:
            raise TemplateError(f"{result!r} has no field {name}")
    return result
