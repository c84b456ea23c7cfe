"""Render the Go templates of annotations as Grafana does, so that evaluator and Grafana say the same words.

Semantics: Go's text/template with the functions of prometheus/template, called as in Grafana 12's
``pkg/services/ngalert/state/template/template.go``: ``$labels``, ``$values`` and ``$value`` are set, a missing label
prints ``[no value]``. The subset: text, ``if`` / ``else if`` / ``else`` / ``end``, comments, trim markers, pipelines,
parentheses and the functions below; anything else is a `TemplateError` when the template is parsed, never wrong text.
tests/rules/template_goldens.yaml holds the same cases as rendered by Go.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from rules.template_functions import FUNCTIONS, MISSING, Missing, Number, TemplateError, Value, printed, truth

__all__ = ["Context", "Number", "TemplateError", "parse", "render"]


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
class _Field:
    of: "_Expression"
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    arguments: "tuple[_Expression, ...]"


_Expression: TypeAlias = "_Literal | _Path | _Field | _Call"


@dataclass(frozen=True, slots=True)
class _If:
    branches: "tuple[tuple[_Expression, tuple[_Node, ...]], ...]"
    otherwise: "tuple[_Node, ...]"


_Node: TypeAlias = "str | _If | _Literal | _Path | _Field | _Call"

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
        case "word" if text in FUNCTIONS:
            return text, at + 1
        case "mark" if text == "(":
            return _parenthesised(tokens, at)
        case _:
            raise TemplateError(f"{text!r} is not supported")


def _parenthesised(tokens: list[tuple[str, str]], at: int) -> tuple[_Expression, int]:
    inner, at = _commands(tokens, at + 1)
    if at >= len(tokens) or tokens[at] != ("mark", ")"):
        raise TemplateError("a ( is not closed")
    at += 1
    if at < len(tokens) and tokens[at][0] == "path" and tokens[at][1].startswith("."):
        return _Field(inner, tuple(tokens[at][1].split(".")[1:])), at + 1
    return inner, at


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
            roots: dict[str, Value] = {"Labels": context.labels, "Values": context.values, "Value": context.value}
            return _looked_up(roots[root], names)
        case _Field(of, names):
            return _looked_up(_evaluated(of, context), names)
        case _Call(function, arguments):
            try:
                return FUNCTIONS[function](*(_evaluated(argument, context) for argument in arguments))
            except TypeError as error:
                raise TemplateError(f"{function}: wrong number of arguments") from error


def _looked_up(start: Value, names: tuple[str, ...]) -> Value:
    result = start
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
