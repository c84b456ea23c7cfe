"""Commands are listed by their source text: that must say what importing them would."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from cluster.listing import listed
from clusterflow import main

REPOSITORY = Path(__file__).resolve().parents[2]
LISTS = [
    (f"{package}.cli", "COMMANDS")
    for package in ("cluster", "ingest", "analysis", "dashboards", "rules", "delivery", "reporting", "simulate")
] + [
    ("rules.lists_cli", "LISTS_COMMANDS"),
    ("simulate.alerts_cli", "ALERT_COMMANDS"),
    ("cluster.config_log_cli", "CONFIG_LOG_COMMANDS"),
    ("analysis.backup_cli", "BACKUP_COMMANDS"),
]


@pytest.mark.parametrize(("module", "name"), LISTS)
def test_what_is_read_is_what_is_imported(module: str, name: str) -> None:
    imported: list[click.Command] = getattr(import_module(module), name)
    found = list(listed(module, name))
    assert [one.name for one in found] == [one.name for one in imported]
    assert [one.help for one in found] == [one.get_short_help_str(limit=120) for one in imported]
    assert [one.load() for one in found] == imported


def test_every_list_is_shown() -> None:
    assert set(main.commands) == {one.name for module, name in LISTS for one in listed(module, name)}


def test_help_imports_nothing_that_is_slow() -> None:
    code = (
        "import sys, clusterflow\n"
        "try: clusterflow.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'polars', 'numpy', 'grafanalib', 'requests', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]"
    assert "analyze" in done.stdout


def test_a_list_that_cannot_be_read_is_a_defect() -> None:
    with pytest.raises(LookupError, match=r"no list cluster\.cli\.NOTHING"):
        list(listed("cluster.cli", "NOTHING"))
