"""`clusterflow build` and `clusterflow status`, as a user runs them."""

import json
import time
from dataclasses import replace
from datetime import datetime
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from app.errors import UserError
from cluster.load import load_cluster
from dashboards import provision
from operations.cli import build, status
from operations.generated import artefacts
from operations.status.status import Status
from operations.status.status_view import show
from rules.evaluate.evaluator import Alert
from rules.evaluate.states import State
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

CASES = Path(__file__).parent / "cluster.yaml"
WINDOW = 10
TRAFFIC = "traffic,src_group=training,dst_group=storage,proto=tcp,service=other,plane=storage,shard=0 bytes=1i"


def _build(*arguments: str) -> Result:
    return CliRunner().invoke(build, ["--config", str(CASES), *arguments])


def test_build_writes_everything_once(tmp_path: Path) -> None:
    first = _build("--out", str(tmp_path))
    assert first.exit_code == 0
    wanted = artefacts(load_cluster(CASES))
    assert f"{len(wanted)} files generated, {len(wanted)} changed" in first.output
    assert {path: (tmp_path / path).read_text(encoding="utf-8") for path in wanted} == wanted
    assert {"grafana/alerting/rules.yaml", "grafana/dashboards/noc-wall.json", "pmacct/nfacctd.conf"} <= set(wanted)
    again = _build("--out", str(tmp_path)).output.splitlines()
    assert again[0] == f"{len(wanted)} files generated, 0 changed"
    assert all(line.startswith("rule not generated: ") for line in again[1:]), "no secret, no word of one"


@pytest.mark.thorough
def test_check_tells_drift_and_writes_nothing(tmp_path: Path) -> None:
    _build("--out", str(tmp_path))
    assert _build("--out", str(tmp_path), "--check").output == f"{tmp_path}: up to date\n"
    rules = tmp_path / "grafana/alerting/rules.yaml"
    edited = rules.read_text(encoding="utf-8").replace("- 50000000000\n", "- 90000000000\n")
    rules.write_text(edited, encoding="utf-8")
    (tmp_path / "pmacct/nfacctd.conf").unlink()
    result = _build("--out", str(tmp_path), "--check")
    assert result.exit_code == 1
    lines = [line.strip() for line in result.output.splitlines()]
    assert f"{tmp_path}/grafana/alerting/rules.yaml: different" in lines
    assert "-                      - 90000000000" in lines
    assert "+                      - 50000000000" in lines
    assert f"{tmp_path}/pmacct/nfacctd.conf: missing" in lines
    assert "2 files differ: run `clusterflow build`" in result.output
    assert rules.read_text(encoding="utf-8") == edited


def test_build_names_the_secrets_that_grafana_reads_each_once(tmp_path: Path) -> None:
    """Those of contact points and of what reads the store; what only looks like a reference is none."""
    config = tmp_path / "cluster.yaml"
    sections = """
store: {api: v2, org: lab, token: {env: OF_THE_BRIDGE}, ca_file: /etc/clusterflow/ca.pem}
grafana: {token: {file: "/etc/grafana/a token"}}
notify:
  noc: {type: webhook, url: {env: NOC}, username: "$__env{NO_REFERENCE}", password: {file: /etc/grafana/noc}}
  night: {type: slack, url: {env: NOC}}
"""
    config.write_text(CASES.read_text(encoding="utf-8") + sections, encoding="utf-8")
    result = CliRunner().invoke(build, ["--config", str(config), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("Grafana")]
    assert line.partition(": ")[2] == (
        "file /etc/clusterflow/ca.pem, file /etc/grafana/a token, variable NOC, file /etc/grafana/noc"
    )


def test_build_leaves_what_people_put_there(tmp_path: Path) -> None:
    own = tmp_path / "grafana/alerting/mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("apiVersion: 1\n")
    _build("--out", str(tmp_path))
    assert own.exists()


def test_build_says_which_rules_are_missing(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    text = CASES.read_text(encoding="utf-8")
    config.write_text(text + "\ntransport:\n  - {between: [training, training], is: roce}\n", encoding="utf-8")
    result = CliRunner().invoke(build, ["--config", str(config), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0
    assert (
        "rule not generated: node_dropout: training -> training: declared as roce, which flow records do not see"
        in result.output
    )


def test_a_folder_that_cannot_be_written_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/grafana").write_text("in the way")
    result = _build("--out", str(tmp_path / "out"))
    assert isinstance(result.exception, UserError)


def test_grafana_may_look_elsewhere(tmp_path: Path) -> None:
    _build("--out", str(tmp_path), "--grafana-folder", "/srv/grafana")
    provider = (tmp_path / "grafana/dashboards/clusterflow.yaml").read_text(encoding="utf-8")
    assert "/srv/grafana/dashboards" in provider
    assert provision.INSTALLED not in provider


# status -------------------------------------------------------------------------------------------


class Site:
    """A cluster.yaml whose store is a test's database."""

    def __init__(self, folder: Path, server: LocalInfluxDB, database: str) -> None:
        self.config = folder / "cluster.yaml"
        store = f"\nstore:\n  url: {server.url}\n  database: {database}\n"
        self.config.write_text(CASES.read_text(encoding="utf-8") + store, encoding="utf-8")
        self.cluster = load_cluster(self.config)
        self.store = Store(self.cluster.store)
        self.store.ensure(self.cluster.retentions())
        self.now = int(time.time()) // WINDOW * WINDOW

    def write(self, line: str, ago: int = 2 * WINDOW) -> None:
        """Write a point of a window that began so many seconds ago, and of the one before."""
        lines = "\n".join(f"{line} {self.now - seconds}" for seconds in (ago, ago + WINDOW))
        self.store.write(lines.encode(), "raw")

    def write_a_healthy_cluster(self, *, analysed: bool = True) -> None:
        self.write(TRAFFIC)
        if analysed:
            self.write("pipeline,stage=analysis,reason=heartbeat,shard=0 value=25")
        self.write("pipeline,stage=bridge,reason=heartbeat,shard=0 value=1")
        self.write("pipeline,stage=read,reason=records,shard=0 total=1000")
        self.write("pipeline,stage=read,reason=records,shard=1 total=200")
        for exporter in ("leaf-1", "leaf-2", "mgmt-sw"):
            seen = self.now - 5
            fields = f"age=3,last_seen={seen},sampling=1000i,records=50i,seq_lost=0i,skewed=0i,unknown_rate=0i"
            self.write(f"exporter,exporter={exporter},shard=0 {fields}")
        for node in ("gpu-01", "gpu-02"):
            self.write(f"baseline,node={node},group=training,job=j1,job_class=c state=1i,low_for=0")

    def status(self, *arguments: str) -> Result:
        return CliRunner().invoke(status, ["--config", str(self.config), *arguments])


@pytest.fixture
def site(tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str) -> Site:
    return Site(tmp_path, influxdb_v1, fresh_database)


def test_all_is_well(site: Site) -> None:
    site.write_a_healthy_cluster()
    result = site.status("--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["ok"] is True
    assert found["store"] == {
        "url": site.store.url, "reachable": True, "version": site.store.version(), "error": "",
    }  # fmt: skip
    assert 0 <= found["data"]["age_seconds"] < 60
    leaf = found["exporters"][0]
    # Aged to now, whenever the bridge wrote it last.
    assert 5 <= leaf.pop("age_seconds") < 60
    assert leaf == {
        "name": "leaf-1", "records_last_hour": 100, "lost_last_hour": 0, "silent": False, "sampling": 1000, "notes": [],
    }  # fmt: skip
    assert found["nodes"] == {"counts": {"learning": 0, "ok": 2, "low": 0, "down": 0, "blind": 0}, "low": []}
    assert found["alerts"] == []
    assert found["pipeline"]["read.records"] == 1200
    text = site.status()
    assert text.exit_code == 0
    assert "alerts: none" in text.output
    assert "nodes: 2 ok" in text.output
    assert "never heard" not in text.output


def test_job_sources_and_the_analysis_say_how_they_are(site: Site) -> None:
    site.write_a_healthy_cluster(analysed=False)
    assert "analysis: has not started: start `clusterflow analyze`" in site.status().output
    site.write("pipeline,stage=analysis,reason=heartbeat,shard=0 value=25", 7200)
    assert "analysis: silent for 2h: is `clusterflow analyze` running?" in site.status().output
    site.write("pipeline,stage=analysis,reason=heartbeat,shard=0 value=25")
    for reading, value in (("failing_seconds", 737), ("known", 12), ("running", 3), ("unknown_nodes", 2)):
        site.write(f"pipeline,stage=jobs,reason=slurm.{reading},shard=0 value={value}")
    site.write("pipeline,stage=jobs,reason=hooks.failing_seconds,shard=0 value=0")
    found = json.loads(site.status("--json").output)
    assert found["analysis"]["alive"] is True
    assert 25 + 2 * WINDOW <= found["analysis"]["lag_seconds"] < 25 + 60, "of what was judged, up to now"
    assert found["job_sources"] == [
        {"name": "hooks", "ok": True, "failing_seconds": 0, "known": 0, "running": 0, "unknown_nodes": 0},
        {"name": "slurm", "ok": False, "failing_seconds": 737, "known": 12, "running": 3, "unknown_nodes": 2},
    ]
    lines = site.status().output.splitlines()
    assert any(line.startswith("analysis: judges what is ") for line in lines)
    assert "jobs from hooks: 0 running, 0 known" in lines
    assert (
        "jobs from slurm: 3 running, 12 known; 2 nodes that the inventory does not know; no answer for 12m 17s: "
        "`clusterflow jobs` says why"
    ) in lines
    assert not any(line.startswith("jobs ") and "failing_seconds" in line for line in lines)


def test_numbers_of_the_pipeline_have_units(site: Site) -> None:
    site.write_a_healthy_cluster()
    site.write(f"pipeline,stage=bridge,reason=heartbeat,shard=0 value={1_772_352_000}")
    site.write("pipeline,stage=read,reason=backlog_bytes,shard=0 value=1234567890")
    site.write("pipeline,stage=bridge,reason=lag_seconds,shard=0 value=4000")
    lines = [" ".join(line.split()) for line in site.status().output.splitlines()]
    zone = site.cluster.site.time_zone
    assert f"bridge heartbeat {datetime.fromtimestamp(1_772_352_000, zone):%H:%M:%S %Z}" in lines
    assert "bridge lag_seconds 1h 6m" in lines
    assert "read backlog_bytes 1.23 GB" in lines


def test_a_server_that_does_not_tell_its_version_is_not_called_unknown() -> None:
    told = Status("lab", "http://store", version="unknown", age=3.0, is_stale=False)
    console = Console(file=StringIO(), width=200)
    show(told, console, str)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().startswith("lab  newest data 3s old; InfluxDB at http://store\n")


def test_a_rule_whose_query_is_refused_is_named() -> None:
    """Grafana keeps what it said before, and tells nobody."""
    refused = (("exfil_volume", "retention policy not found: raw"),)
    told = Status("lab", "http://store", version="1.8", age=3.0, is_stale=False, failing=refused)
    console = Console(file=StringIO(), width=200)
    show(told, console, str)
    assert isinstance(console.file, StringIO)
    assert "rule exfil_volume sees nothing: retention policy not found: raw\n" in console.file.getvalue()
    assert not told.is_well


def test_what_maintenance_mutes_is_shown_and_is_no_alarm() -> None:
    alert = Alert("node_dropout", "Dropped out", "critical", {}, State.ALERTING, "", 0, 0, {}, {})
    for muted, is_well in (("rack 3 power", True), ("", False)):
        told = Status("lab", "http://store", age=3.0, is_stale=False, alerts=(replace(alert, muted=muted),))
        console = Console(file=StringIO(), width=200)
        show(told, console, str)
        assert isinstance(console.file, StringIO)
        assert ("nobody is notified: rack 3 power\n" in console.file.getvalue()) == is_well == told.is_well


def test_what_fires_is_told_with_its_five_facts(site: Site) -> None:
    site.write_a_healthy_cluster()
    site.write(
        "egress,src=model-store-1,src_group=model_storage,dst=203.0.113.9,dst_group=external,proto=tcp,service=https,"
        "off_hours=no,initiator=src,shard=0 bytes=40000000000i,duration=10"
    )
    site.write("baseline,node=gpu-03,group=training,job=j1,job_class=c state=4i,low_for=0")
    result = site.status()
    assert result.exit_code == 1
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    head = "Alerting warning Model storage sends much to an unapproved address since "
    assert any(line.startswith(head) for line in lines)
    for fact in (
        "source model-store-1 (Model Storage)",
        "destination 203.0.113.9 (Unknown External)",
        "protocol tcp (https)",
        "bytes 80GB",
        "duration 20s",
    ):
        assert fact in lines
    assert "nodes: 2 ok, 1 blind" in lines
    assert "gpu-03 blind (job j1)" in lines
    (alert,) = json.loads(site.status("--json").output)["alerts"]
    assert (alert["rule"], alert["state"], alert["labels"]["dst"]) == ("exfil_volume", "Alerting", "203.0.113.9")


def test_an_empty_store_is_stale(site: Site) -> None:
    result = site.status("--json")
    assert result.exit_code == 1
    found = json.loads(result.output)
    assert found["data"] == {"age_seconds": None, "stale": True}
    assert [alert["rule"] for alert in found["alerts"]] == ["ingest_deadman", "analysis_stalled"]
    assert all(exporter["silent"] for exporter in found["exporters"])
    text = site.status().output
    assert "cases  `clusterflow ingest` has not started; " in text
    assert "Alerting critical  `clusterflow ingest` has not started\n" in text
    assert text.count("never heard") == len(found["exporters"])


def test_a_bridge_that_runs_without_data_has_started(site: Site) -> None:
    site.write("pipeline,stage=bridge,reason=heartbeat,shard=0 value=1")
    assert "no data in the last day" in site.status().output


def test_a_database_that_is_not_there_yet_is_no_store_that_is_away(site: Site) -> None:
    site.store.execute(f'DROP DATABASE "{site.cluster.store.database}"')
    result = site.status()
    assert result.exit_code == 1
    assert result.output == "cases  the database is not there yet: start `clusterflow ingest`, which makes it\n"
    assert json.loads(site.status("--json").output)["store"]["reachable"] is True


def test_exporters_say_what_is_wrong_with_them(site: Site) -> None:
    site.write_a_healthy_cluster()
    hours = site.now - 7500
    site.write(f"exporter,exporter=leaf-1,shard=1 age=7500,last_seen={hours},records=0i,seq_lost=0i")
    site.write("exporter,exporter=leaf-2,shard=0 records=50i,skewed=50i,skew=7200")
    site.write("exporter,exporter=mgmt-sw,shard=1 records=10i,unknown_rate=10i")
    found = {one["name"]: one for one in json.loads(site.status("--json").output)["exporters"]}
    assert found["leaf-1"]["age_seconds"] < 60, "of two bridges the one that heard it last counts"
    assert found["leaf-2"]["notes"] == ["clock off by 2h"]
    assert found["mgmt-sw"]["notes"] == ["samples, rate unknown: 20 records count 1:1"]
    lines = [" ".join(line.split()) for line in site.status().output.splitlines()]
    assert any(line.startswith("leaf-2 ") and line.endswith("1:1000 clock off by 2h") for line in lines)


def test_old_data_is_stale(site: Site) -> None:
    site.write(TRAFFIC, 300)
    found = json.loads(site.status("--json").output)
    assert found["data"]["stale"] is True
    assert 290 <= found["data"]["age_seconds"] <= 320


def test_a_store_that_is_away_is_said_in_one_line(site: Site) -> None:
    text = site.config.read_text(encoding="utf-8").replace(site.store.url, "http://127.0.0.1:9")
    site.config.write_text(text, encoding="utf-8")
    result = site.status()
    assert result.exit_code == 1
    assert " ".join(result.output.split()).startswith(
        "cases store away: InfluxDB at http://127.0.0.1:9 does not answer"
    )
    assert json.loads(site.status("--json").output)["store"]["reachable"] is False
