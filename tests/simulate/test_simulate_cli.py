"""The command: what it writes, and what it says to wrong input."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cluster.errors import UserError
from cluster.load import load_cluster
from simulate.cli import simulate

REPOSITORY = Path(__file__).parents[2]
CLUSTER = str(REPOSITORY / "cluster.yaml")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(simulate, ["-c", CLUSTER, *arguments])


def test_spool_and_truth(tmp_path: Path) -> None:
    """Two minutes of files, with an incident, and the truth about them."""
    truth = tmp_path / "truth.json"
    spool = tmp_path / "spool"
    result = run("--spool", str(spool), "--for", "2m", "--truth", str(truth), "--incident", "node_dropout@30s+1m=0.5")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(truth.read_text())
    lines = sum(len(path.read_text().splitlines()) - 3 for path in spool.glob("*.csv"))
    assert document["totals"]["records"] == lines > 1000
    assert document["complete"]
    assert document["incidents"][0]["kind"] == "node_dropout"
    assert f"{lines:,} records" in result.output


def test_load_writes_its_cluster(tmp_path: Path) -> None:
    """A load of a larger cluster comes with the cluster.yaml that fits it, as JSON if asked."""
    fitting = tmp_path / "large.yaml"
    result = run(
        "--flows", "5000", "--nodes", "130", "--spool", str(tmp_path / "s"), "--format", "json", "--write-cluster",
        str(fitting),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (path,) = (tmp_path / "s").iterdir()
    assert sum('"event_type":"purge",' in line for line in path.read_text().splitlines()) == 5000
    assert sum(node.group == "training" for node in load_cluster(fitting).nodes) == 130


def test_packets_to_nobody(tmp_path: Path) -> None:
    """As fast as possible to ports where nobody listens: all is sent."""
    truth = tmp_path / "truth.json"
    targets = ("--netflow", "127.0.0.1:9", "--sflow", "localhost:9")
    result = run("--for", "20s", "--speed", "0", "--truth", str(truth), *targets)
    assert result.exit_code == 0, result.output
    document = json.loads(truth.read_text())
    assert all(entry["datagrams"] for entry in document["exporters"] if entry["format"] != "sflow")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--spool", "x"], "--spool: for how long?"),
        (["--nodes", "5"], "--nodes, --write-cluster: only with --flows"),
        (["--flows", "5", "--nodes", "100000"], "--nodes 100000: expected 2 to 4,096"),
        (["--for", "1m", "--incident", "flood@1s"], "--incident flood@1s"),
        (["--for", "1m", "--incident", "bulk_exfil@2h"], "--incident bulk_exfil@2h"),
        (["--for", "1m", "--incident", "bulk_exfil@soon"], "--incident bulk_exfil@soon"),
        (["--for", "1m", "--netflow", "192.0.2.7:2055"], "192.0.2.7:2055: not on this machine"),
    ],
)
def test_wrong_input_is_told(arguments: list[str], message: str) -> None:
    """One line with what is wrong; the application's handler makes it exit code 2."""
    result = run(*arguments)
    assert isinstance(result.exception, UserError)
    assert result.exception.message.startswith(message)


@pytest.mark.parametrize("arguments", [["--for", "soon"], ["--netflow", "nowhere"], ["--format", "xml"]])
def test_wrong_values_are_usage_errors(arguments: list[str]) -> None:
    """click says which option is meant."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.output
