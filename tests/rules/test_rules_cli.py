"""`clusterflow build` and `clusterflow status`, as a user runs them."""

import json
import time
from datetime import datetime
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from cluster.errors import UserError
from cluster.load import load_cluster
from dashboards import provision
from ingest.local_influxdb import LocalInfluxDB
from ingest.store import Store
from rules.cli import build, status
from rules.generated import artefacts
from rules.status import Status
from rules.status_view import show, written

CASES = Path(__file__).parent / "cluster.yaml"
WINDOW = 10
TRAFFIC = "traffic,src_group=training,dst_group=storage,proto=tcp,service=other,plane=storage,shard=0 bytes=1i"


def _build(*arguments: str) -> Result:
    return CliRunner().invoke(build, ["--config", str(CASES), *arguments])


def test_build_writes_everything_once(tmp_path: Path) -> None:
    first = _build("--out", str(tmp_path))
    assert first.exit_code == 0
    wanted = artefacts(load_cluster(CASES))
    assert f"{len(wanted)} files generated, {len(wanted) + 1} changed" in first.output
    assert {path: (tmp_path / path).read_text(encoding="utf-8") for path in wanted} == wanted
    assert {"grafana/alerting/rules.yaml", "grafana/dashboards/noc-wall.json", "pmacct/nfacctd.conf"} <= set(wanted)
    again = _build("--out", str(tmp_path)).output.splitlines()
    assert again[0] == f"{len(wanted)} files generated, 0 changed"
    assert all(line.startswith("rule not generated: ") for line in again[1:]), "no secret, no word of one"


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
            self.write(f"exporter,exporter={exporter},shard=0 age=3,records=50i,seq_lost=0i")
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
    assert found["exporters"][0] == {
        "name": "leaf-1", "age_seconds": 3.0, "records_last_hour": 100, "lost_last_hour": 0, "silent": False,
    }  # fmt: skip
    assert found["nodes"] == {"counts": {"learning": 0, "ok": 2, "low": 0, "down": 0, "blind": 0}, "low": []}
    assert found["alerts"] == []
    assert found["pipeline"]["read.records"] == 1200
    text = site.status()
    assert text.exit_code == 0
    assert "alerts: none" in text.output
    assert "nodes: 2 ok" in text.output
    assert "3s ago" in text.output


def test_job_sources_and_the_analysis_say_how_they_are(site: Site) -> None:
    site.write_a_healthy_cluster(analysed=False)
    assert "analysis: silent: is `clusterflow analyze` running?" in site.status().output
    site.write("pipeline,stage=analysis,reason=heartbeat,shard=0 value=25")
    for reading, value in (("failing_seconds", 737), ("known", 12), ("running", 3), ("unknown_nodes", 2)):
        site.write(f"pipeline,stage=jobs,reason=slurm.{reading},shard=0 value={value}")
    site.write("pipeline,stage=jobs,reason=hooks.failing_seconds,shard=0 value=0")
    found = json.loads(site.status("--json").output)
    assert found["analysis"] == {"alive": True, "lag_seconds": 25}
    assert found["job_sources"] == [
        {"name": "hooks", "ok": True, "failing_seconds": 0, "known": 0, "running": 0, "unknown_nodes": 0},
        {"name": "slurm", "ok": False, "failing_seconds": 737, "known": 12, "running": 3, "unknown_nodes": 2},
    ]
    lines = site.status().output.splitlines()
    assert "analysis: judges what is 25s old" in lines
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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.4, "0.4s"), (3.0, "3s"), (59.6, "1m"), (137, "2m 17s"), (3600, "1h"), (3661, "1h 1m"),
     (86_400 * 3 + 7200, "3d 2h"), (86_400, "1d"), (86_405, "1d")],
)  # fmt: skip
def test_lengths_of_time_in_two_units(seconds: float, text: str) -> None:
    assert written(seconds) == text


def test_a_server_that_does_not_tell_its_version_is_not_called_unknown() -> None:
    told = Status("lab", "http://store", version="unknown", age=3.0, is_stale=False)
    console = Console(file=StringIO(), width=200)
    show(told, console, str)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().startswith("lab  newest data 3s old; InfluxDB at http://store\n")


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
    head = "Alerting critical Model storage sends much to an unapproved address since "
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
    assert "no data in the last day" in site.status().output


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
