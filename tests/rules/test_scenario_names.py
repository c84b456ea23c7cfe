"""Scenarios that help texts and pages name can be played."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from clusterflow import main
from simulate.scenarios.script import library

REPOSITORY = Path(__file__).parents[2]
LIBRARY = {path.stem for path in library()}
# Not files, nor words of a sentence about the option.
NAMED = re.compile(r"--scenario[ =](?!and\b|or\b)([a-z][a-z0-9-]*)(?![\w.-])")


def _commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for own in group.list_commands(context):
        command = group.get_command(context, own)
        assert command is not None
        yield f"{name} {own}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{name} {own}")


def _texts() -> dict[str, str]:
    """Return what users read: help texts by command, and pages."""
    pages = [REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/**/*.md"))]
    texts = {str(page.relative_to(REPOSITORY)): page.read_text(encoding="utf-8") for page in pages}
    for name, command in _commands(main, "clusterflow"):
        options = (parameter.help or "" for parameter in command.params if isinstance(parameter, click.Option))
        texts[name] = "\n".join([command.help or "", *options])
    return texts


@pytest.mark.parametrize(("where", "text"), [(where, text) for where, text in _texts().items() if NAMED.search(text)])
def test_named_scenarios_exist(where: str, text: str) -> None:
    assert not set(NAMED.findall(text)) - LIBRARY, where


def test_names_are_found_where_they_stand() -> None:
    found = {where for where, text in _texts().items() if NAMED.search(text)}
    assert {"clusterflow backtest", "clusterflow simulate", "docs/reference/scenarios.md"} <= found
