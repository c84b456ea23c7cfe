"""Render Go templates as Grafana does, so that evaluator, preview and Grafana say the same words.

Annotations: Go's text/template with the functions of prometheus/template, called as in Grafana 12's
``pkg/services/ngalert/state/template/template.go``: ``$labels``, ``$values`` and ``$value`` are set, a missing label
prints ``[no value]``. Notifications: the same with the functions of Alertmanager; a missing label prints nothing. The
subset: text, ``if``, ``with``, ``range``, ``else if`` / ``else`` / ``end``, ``define`` and ``template``, comments, trim
markers, pipelines, parentheses, methods and the functions of `rules.grafana.template_functions`; anything else is a
`TemplateError`, never wrong text. tests/rules/template_goldens.yaml holds the same cases as rendered by Go.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

from rules.grafana.template_functions import (
    FUNCTIONS,
    MISSING,
    Missing,
    Number,
    Struct,
    TemplateError,
    Value,
    printed,
    truth,
)

__all__ = ["Context", "Number", "Struct", "TemplateError", "definitions", "parse", "render", "render_message"]


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


_Expression: TypeAlias = "_Literal | _Path | _Field | _Call | _Method"


@dataclass(frozen=True, slots=True)
class _Method:
    of: "_Path | _Field"
    arguments: "tuple[_Expression, ...]"


@dataclass(frozen=True, slots=True)
class _Block:
    """``if``, ``with`` or ``range``."""

    word: str
    branches: "tuple[tuple[_Expression, tuple[_Node, ...]], ...]"
    otherwise: "tuple[_Node, ...]"


@dataclass(frozen=True, slots=True)
class _Template:
    name: str
    argument: "_Expression"


_Node: TypeAlias = "str | _Block | _Template | _Literal | _Path | _Field | _Call | _Method"

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
_VARIABLES = {"$labels": "Labels", "$values": "Values", "$value": "Value"}
_BLOCKS = {"if", "with", "range"}
_KEYWORDS = {*_BLOCKS, "else", "end", "define", "template", "block", "break", "continue"}
_TEMPLATE = re.compile(r'template\s+"([^"]+)"\s+(.+)', re.DOTALL)
_DEFINE = re.compile(r'\{\{(-\s)?\s*define\s+"([^"]+)"\s*(\s-)?\}\}')


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
        if word in _BLOCKS:
            node, at = _branches(pieces, at, word, body)
            nodes.append(node)
        elif (called := _TEMPLATE.fullmatch(body)) is not None:
            nodes.append(_Template(called[1], _pipeline(called[2])))
        elif body.startswith("/*"):
            continue
        elif word in _KEYWORDS:
            raise TemplateError(f"{{{{ {word} }}}} is not supported")
        else:
            nodes.append(_pipeline(body))
    return tuple(nodes), "", at


def _branches(pieces: list[tuple[bool, str]], at: int, word: str, body: str) -> tuple[_Block, int]:
    branches: list[tuple[_Expression, tuple[_Node, ...]]] = []
    condition: _Expression | None = _pipeline(body.removeprefix(word))
    otherwise: tuple[_Node, ...] = ()
    while True:
        nodes, ended_by, at = _block(pieces, at)
        if condition is not None:
            branches.append((condition, nodes))
        else:
            otherwise = nodes
        if ended_by == "end":
            return _Block(word, tuple(branches), otherwise), at
        if not ended_by or condition is None:
            raise TemplateError(f"{{{{ {word} }}}} has no {{{{ end }}}}")
        rest = ended_by.removeprefix("else").strip()
        if rest and (word != "if" or not rest.startswith("if")):
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
        kind = match.lastgroup
        # Right after a parenthesis it is a field of what stands in it, after a space the next argument.
        if kind == "path" and match.start(kind) == position and tokens and tokens[-1] == ("mark", ")"):
            kind = "field"
        tokens.append((kind, match[match.lastgroup]))
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
    if not arguments:
        return first
    if not isinstance(first, _Path | _Field):
        raise TemplateError("only a function or a method takes arguments")
    return _Method(first, arguments)


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
    if at < len(tokens) and tokens[at][0] == "field":
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
    root, *names = text.split(".")
    if root and root not in _VARIABLES:
        raise TemplateError(f"undefined variable {root!r}")
    return _Path(root, tuple(name for name in names if name))


# Rendering ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a template sees: its dot, what the variables stand for, what a map lacks, and other templates by name."""

    dot: Value
    root: Struct
    missing: Value
    defined: "Mapping[str, tuple[_Node, ...]]"


def render(text: str, context: Context) -> str:
    """Render a template of an annotation.

    Raises:
        TemplateError: where Go would give up as well; Grafana then keeps the text as it stands.
    """
    root = Struct({"Labels": context.labels, "Values": context.values, "Value": context.value})
    return _text(parse(text), _Scope(root, root, MISSING, {}))


def definitions(text: str) -> "dict[str, tuple[_Node, ...]]":
    """Return the templates that a file of notification templates defines, by name; it holds nothing else."""
    starts = [*_DEFINE.finditer(text)]
    if not starts or text[: starts[0].start()].strip():
        raise TemplateError("expected definitions only")
    found = {}
    for start, after in zip(starts, [*starts[1:], None], strict=True):
        body = text[start.start() : after.start() if after else len(text)]
        opening = start[0].replace(f'define "{start[2]}"', "if true")
        (block,) = (node for node in parse(opening + body[len(start[0]) :].rstrip()) if not isinstance(node, str))
        if not isinstance(block, _Block):
            raise TemplateError(f"{start[2]}: {{{{ define }}}} has no {{{{ end }}}}")
        found[start[2]] = block.branches[0][1]
    return found


def render_message(text: str, data: Struct, defined: "Mapping[str, tuple[_Node, ...]]") -> str:
    """Render a template of a contact point's settings; TemplateError where Go would give up as well."""
    return _text(parse(text), _Scope(data, data, "", defined))


def _text(nodes: "tuple[_Node, ...]", scope: _Scope) -> str:
    return "".join(_rendered(node, scope) for node in nodes)


def _rendered(node: _Node, scope: _Scope) -> str:
    match node:
        case str():
            return node
        case _Block(word, branches, otherwise):
            for test, nodes in branches:
                value = _evaluated(test, scope)
                if truth(value):
                    return "".join(_text(nodes, inner) for inner in _inner(word, value, scope))
            return _text(otherwise, scope)
        case _Template(name, argument):
            if name not in scope.defined:
                raise TemplateError(f"template {name!r} is not defined")
            return _text(scope.defined[name], replace(scope, dot=_evaluated(argument, scope)))
        case _:
            return printed(_evaluated(node, scope))


def _inner(word: str, value: Value, scope: _Scope) -> list[_Scope]:
    """Return the scope of each pass through a block."""
    if word == "if":
        return [scope]
    if word == "with":
        return [replace(scope, dot=value)]
    if not isinstance(value, list | tuple):
        raise TemplateError(f"range over {value!r} is not supported")
    return [replace(scope, dot=item) for item in value]


def _evaluated(expression: _Expression, scope: _Scope) -> Value:
    found = _found(expression, scope)
    # A method without arguments is called by its name alone.
    value: Value = found() if callable(found) else found
    return value


def _found(expression: _Expression, scope: _Scope) -> Any:  # noqa: ANN401 - a value or a method
    match expression:
        case _Literal(value):
            return value
        case _Path("", names):
            return _looked_up(scope.dot, names, scope)
        case _Path(variable, names):
            return _looked_up(scope.root, (_VARIABLES[variable], *names), scope)
        case _Field(of, names):
            return _looked_up(_evaluated(of, scope), names, scope)
        case _Method(of, arguments):
            method = _found(of, scope)
            if not callable(method):
                raise TemplateError("only a function or a method takes arguments")
            return method(*(_evaluated(argument, scope) for argument in arguments))
        case _Call(function, arguments):
            try:
                return FUNCTIONS[function](*(_evaluated(argument, scope) for argument in arguments))
            except TypeError as error:
                raise TemplateError(f"{function}: wrong number of arguments") from error


def _looked_up(start: Value, names: tuple[str, ...], scope: _Scope) -> Any:  # noqa: ANN401 - a value or a method
    result: Any = start
    for name in names:
        result = result() if callable(result) else result
        if isinstance(result, Missing):
            # Go: a field of no value is no value.
            return MISSING
        fields: Mapping[str, Any] = getattr(result, "fields", {})
        if name in fields:
            result = fields[name]
        elif isinstance(result, Mapping):
            result = result.get(name, scope.missing)
        elif isinstance(result, Number) and name in ("Value", "Labels"):
            result = result.value if name == "Value" else result.labels
        else:
            raise TemplateError(f"{result!r} has no field {name}")
    return result
