"""``--from`` and ``--to`` of every command: times of the site's zone, and what is meant without them."""

import json
import time
from datetime import datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from app.application import Application
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.options import period_options

AMSTERDAM = "cluster: c\nsite: {time_zone: Europe/Amsterdam}\ngroups: {a: {role: custom, prefixes: [10.0.0.0/8]}}\n"


@click.command()
@cluster_option
@period_options("7d")
def ask(cluster: Cluster, start: float, stop: float) -> None:
    del cluster
    click.echo(json.dumps([start, stop]))


def period(folder: Path, *arguments: str) -> tuple[float, float]:
    config = folder / "cluster.yaml"
    config.write_text(AMSTERDAM, encoding="utf-8")
    application = Application(name="clusterflow")
    application.add_command(ask)
    # The file stands last: it is read first all the same.
    result = CliRunner().invoke(application, ["ask", *arguments, "--config", str(config)])
    assert result.exit_code == 0, result.output
    start, stop = json.loads(result.stdout)
    return start, stop


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2025-06-09", "2025-06-09T00:00:00+02:00"),
        ("20250609", "2025-06-09T00:00:00+02:00"),
        ("2025-01-09T12:30", "2025-01-09T12:30:00+01:00"),
        ("2025-01-09T12:30Z", "2025-01-09T12:30:00+00:00"),
        ("1736425800", "2025-01-09T12:30:00+00:00"),
    ],
)
def test_a_time_without_a_zone_is_the_sites(tmp_path: Path, text: str, meant: str) -> None:
    assert period(tmp_path, "--from", text)[0] == datetime.fromisoformat(meant).timestamp()


def test_the_period_has_its_length_before_its_end(tmp_path: Path) -> None:
    assert period(tmp_path, "--to", "9000000") == (9_000_000 - 7 * 86_400, 9_000_000)
    start, stop = period(tmp_path)
    assert (stop - start, stop) == (7 * 86_400, pytest.approx(time.time(), abs=60))
    assert period(tmp_path, "--from", "90m")[0] == pytest.approx(time.time() - 5_400, abs=60)
