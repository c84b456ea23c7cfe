"""What commands there are, without importing what they need: polars and grafanalib take a second, reading names none.

A package lists its commands in a list of its cli module: functions there, or imported ones, or lists of other modules
with a star. That list is the one place where they stand; it is read here as source text.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

LIST = "COMMANDS"
_SHORT = 120


@dataclass(frozen=True, slots=True)
class Listed:
    """A command that is not loaded yet.

    Attributes:
        name: as it is typed.
        help: what it does, in a line.
        module, function: where it is.
    """

    name: str
    help: str
    module: str
    function: str

    def load(self) -> click.Command:
        """Import the command."""
        found = getattr(import_module(self.module), self.function)
        if not isinstance(found, click.Command):
            raise TypeError(f"{self.module}.{self.function} is no command")
        return found


def listed(module: str, name: str = LIST) -> Iterator[Listed]:
    """Yield the commands of a module's list, in its order.

    Raises:
        LookupError: the list holds something that cannot be read without importing it.
    """
    tree = _tree(module)
    for item in _items(tree, module, name):
        inner = item.value if isinstance(item, ast.Starred) else item
        if not isinstance(inner, ast.Name):
            raise LookupError(f"{module}.{name}: expected names of commands")  # noqa: TRY004 - of a source text
        origin, original = _origin(tree, module, inner.id)
        if isinstance(item, ast.Starred):
            yield from listed(origin, original)
        else:
            yield _command(origin, original)


@cache
def _tree(module: str) -> ast.Module:
    # The package's own specification alone: looking for a module in it would import the package.
    package, *path = module.split(".")
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise LookupError(f"no package {package}")
    file = Path(spec.submodule_search_locations[0], *path).with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _items(tree: ast.Module, module: str, name: str) -> list[ast.expr]:
    for node in tree.body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        value = getattr(node, "value", None)
        if any(isinstance(one, ast.Name) and one.id == name for one in targets) and isinstance(value, ast.List):
            return value.elts
    raise LookupError(f"no list {module}.{name}")


def _origin(tree: ast.Module, module: str, name: str) -> tuple[str, str]:
    """Return the module that defines a name, and its name there."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return node.module, alias.name
    return module, name


def _command(module: str, function: str) -> Listed:
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            name = _name(node)
            short = click.Command(name, help=ast.get_docstring(node)).get_short_help_str(_SHORT)
            return Listed(name, short, module, function)
    raise LookupError(f"no function {module}.{function}")


def _name(node: ast.FunctionDef) -> str:
    """Return the name that the decorator gives, else the function's."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in {"click.command", "click.group"}:
            given = [*decorator.args[:1], *(word.value for word in decorator.keywords if word.arg == "name")]
            if given and isinstance(given[0], ast.Constant):
                return str(given[0].value)
    return node.name.replace("_", "-")
