"""The assembled command ``clusterflow``."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from clusterflow import COMMANDS, main

CLUSTER = "cluster: one\ngroups: {nodes: {role: training, prefixes: [10.0.0.0/8]}}\n"


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        found.append((*path, name))
        command = group.get_command(context, name)
        assert command is not None
        assert command.name == name
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
    listed = [name for names in COMMANDS.values() for name in names]
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


def test_help_imports_nothing_that_is_slow() -> None:
    code = (
        "import sys, clusterflow\n"
        "try: clusterflow.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'polars', 'numpy', 'grafanalib', 'requests', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]"
    assert "analyze" in done.stdout


LEAVES = [one for one in commands(main) if one not in {("alerts",), ("contacts",)}]


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_takes_v(path: tuple[str, ...]) -> None:
    assert "-v, --verbose" in CliRunner().invoke(main, [*path, "--help"]).stdout


@pytest.mark.service
def test_v_tells_what_is_behind_an_error(tmp_path: Path) -> None:
    store = "store: {url: 'http://127.0.0.1:1'}\n"
    (path := tmp_path / "cluster.yaml").write_text(CLUSTER + store)
    asked = [sys.executable, "-m", "clusterflow", "access", "-c", str(path)]
    short, long = (
        subprocess.run([*asked, *more], capture_output=True, text=True, check=False).stderr for more in ([], ["-v"])
    )
    assert len(short.splitlines()) == 1
    assert long.startswith(short)
    assert "because of ConnectionRefusedError" in long


def test_check_tells_a_program_of_every_fault(tmp_path: Path) -> None:
    (path := tmp_path / "cluster.yaml").write_text(CLUSTER.replace("training", "trainig"))
    found = json.loads(CliRunner().invoke(main, ["check", str(path), "--json"]).stdout)
    assert (found["ok"], [one["path"] for one in found["faults"]]) == (False, ["groups.nodes.role"])
    path.write_text(CLUSTER)
    assert json.loads(CliRunner().invoke(main, ["check", str(path), "--json"]).stdout)["ok"]


@pytest.mark.service
@pytest.mark.parametrize("words", ["contacts list", "jobs", "flows --job 4711", "flows", "sessions"])
def test_who_may_not_read_the_state_is_told_so(words: str, tmp_path: Path) -> None:
    """It is for the services' user alone, and people ask as themselves."""
    (state := tmp_path / "state").mkdir()
    before = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    if before:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read everything")
        os.chown(state, 1, 1)
    state.chmod(0o700 if before else 0)
    (path := tmp_path / "cluster.yaml").write_text(f"{CLUSTER}bridge: {{state: {state}}}\n")
    asked = [*before, sys.executable, "-m", "clusterflow", *words.split(), "-c", str(path)]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    state.chmod(0o700)
    assert told.returncode == 2, told.stderr
    assert "Permission denied" in told.stderr
    assert "run it as the user of the services" in told.stderr
