"""The command: what it writes, and what it says to wrong input."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from app.errors import UserError
from cluster.load import load_cluster
from simulate.cli import simulate
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

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
        (["--nodes", "5"], "--nodes: only with --flows"),
        (["--write-cluster", "x.yaml"], "--nodes: only with --flows; --write-cluster: with --flows or --scenario"),
        (["--flows", "5", "--nodes", "100000"], "--nodes 100000: expected 2 to 4,096"),
        (["--for", "1m", "--incident", "flood@1s"], "--incident flood@1s"),
        (["--for", "1m", "--incident", "bulk_exfil@2h"], "--incident bulk_exfil@2h"),
        (["--for", "1m", "--incident", "bulk_exfil@soon"], "--incident bulk_exfil@soon"),
        (["--for", "1m", "--netflow", "192.0.2.7:2055"], "192.0.2.7:2055: not on this machine"),
        (["--into-store"], "--into-store: of what?"),
        (["--scenario", "node-death", "--database", "x"], "--database: of what?"),
        (["--scenario", "node-death", "--nodes", "5"], "--nodes: not with --scenario"),
        (["--scenario", "node-death", "--into-store", "--for", "1m"], "--for: not with --into-store"),
        (["--scenario", "node-death", "--spool", "x", "--for", "1m"], "--for: not with --scenario and --spool"),
        (["--scenario", "node-deth"], "node-deth: no such scenario"),
        (["--for", "1m", "--incident", "job_stalled@1s=3"], "--incident job_stalled@1s=3"),
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


def test_the_help_tells_what_a_written_cluster_fits() -> None:
    """docs/reference/scenarios.md needs it with a scenario, the load test with --flows."""
    (option,) = (one for one in simulate.params if one.name == "write_cluster")
    assert isinstance(option, click.Option)
    assert {"--scenario", "--flows"} <= set(re.findall(r"--\w+", option.help or ""))


@pytest.mark.thorough
def test_the_library_is_listed() -> None:
    """Name, length, title, and what must fire."""
    result = run("--list")
    assert result.exit_code == 0, result.output
    assert "node-death" in result.output
    assert "must fire: nothing" in result.output


SCENARIO = """
title: An hour
about: A shadow node in an hour without jobs.
days: 0.05
incidents: [{kind: shadow_node, on: 1, at: "00:20", lasting: 2m}]
"""


def test_a_scenario_as_files(tmp_path: Path) -> None:
    """The whole scenario, at its own time, with the cluster that fits."""
    (tmp_path / "hour.yaml").write_text(SCENARIO)
    truth = tmp_path / "truth.json"
    fitting = tmp_path / "cluster.yaml"
    result = run(
        "--scenario", str(tmp_path / "hour.yaml"), "--spool", str(tmp_path / "spool"), "--truth", str(truth),
        "--write-cluster", str(fitting),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    document = json.loads(truth.read_text())
    assert document["incidents"][0]["expected"] == ["shadow_node"]
    assert document["first"].startswith("2026-09-06T22:0")
    assert load_cluster(fitting).store.keep_raw == 3650 * 86_400
    assert list((tmp_path / "spool").glob("*.csv"))


def test_a_scenario_into_a_store(influxdb_v1: LocalInfluxDB, tmp_path: Path) -> None:
    """Recorded, analysed, and told where it is; never into the database of cluster.yaml."""
    path = tmp_path / "hour.yaml"
    path.write_text(SCENARIO)
    fitting = tmp_path / "cluster.yaml"
    store = ("--into-store", "--influx-url", influxdb_v1.url)
    result = run("--scenario", str(path), *store, "--database", "hour", "--write-cluster", str(fitting))
    assert result.exit_code == 0, result.output
    assert "database hour, 2026-09-06T22:00:00Z to 2026-09-06T23:12:00Z" in " ".join(result.output.split())
    cluster = load_cluster(fitting)
    assert cluster.store.url == influxdb_v1.url
    found = Store(cluster.store).query('SELECT sum("bytes") FROM "raw"."breach" WHERE "kind" = \'shadow\'')
    assert found[0].values[0][1] > 10_000_000
    again = run("--scenario", str(path), *store, "--database", "hour")
    assert isinstance(again.exception, UserError)
    assert again.exception.message == "database hour: it holds points already"
    refused = run("--scenario", str(path), *store, "--database", "clusterflow")
    assert isinstance(refused.exception, UserError)
    assert refused.exception.message.startswith("--database clusterflow: cluster.yaml's own")


def as_packets(scenario: str, folder: Path) -> dict[str, Any]:
    truth = folder / "truth.json"
    targets = ("--netflow", "127.0.0.1:9", "--sflow", "127.0.0.1:9")
    result = run("--scenario", scenario, "--for", "90s", "--speed", "0", "--truth", str(truth), *targets)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(truth.read_text())
    return document


def test_a_scenario_as_packets_is_the_part_around_its_first_incident(tmp_path: Path) -> None:
    """It begins now, a minute before the incident, however late in the scenario that is."""
    # In the middle of a run: something is sent from the first moment on.
    document = as_packets("node-death", tmp_path)
    begin = datetime.fromisoformat(document["first"])
    assert abs((datetime.now(UTC) - begin).total_seconds()) < 600
    first, *_ = document["incidents"]
    assert 50 <= (datetime.fromisoformat(first["start"]) - begin).total_seconds() <= 75
    assert first["expected"] == [], "while the class is learnt nobody is told"


def test_the_truth_of_a_part_counts_what_the_incident_sent(tmp_path: Path) -> None:
    first, *_ = as_packets("shadow-node", tmp_path)["incidents"]
    assert first["expected"] == ["shadow_node"]
    assert first["sent"]["bytes"] > 10**5
