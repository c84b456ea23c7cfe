"""The assembled command ``clusterflow``."""

from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from clusterflow import main


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"clusterflow {version('clusterflow')}\n")


def test_help_shows_every_command_once_under_its_heading() -> None:
    text = CliRunner().invoke(main, ["--help"]).stdout
    shown = [
        line.split()[0] for line in text.split("-h, --help")[1].splitlines() if line.startswith("  ") and line[2] != " "
    ]
    listed = [name for names in main.headings.values() for name in names]
    assert [name for name in shown if name in listed] == listed
    assert len(set(listed)) == len(listed), "two packages have a command of the same name"


@pytest.mark.parametrize("path", commands(main), ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--help needs no cluster.yaml; the first line says what the command does."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0, result.output
    first = result.stdout.split("\n\n")[1].strip()
    assert first.split("\n")[0]
    assert first[0].isupper()
    assert first.endswith((".", ":", ")"))
