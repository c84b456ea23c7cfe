"""`clusterflow explore`: what it says is what was stored, whatever is asked."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.application import Application
from cluster.load import load_cluster
from dashboards.explore_cli import explore
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

BEGIN = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 7200
CLUSTER = """cluster: lab
site: {time_zone: UTC}
groups:
  a: {role: training, prefixes: [10.1.0.0/16]}
  b: {role: training, prefixes: [10.2.0.0/16]}
  disks: {role: storage, prefixes: [10.3.0.0/16]}
nodes:
  a-1: {group: a, addresses: [{address: 10.1.0.1, plane: compute}]}
  a-2: {group: a, addresses: [{address: 10.1.0.2, plane: compute}]}
  b-1: {group: b, addresses: [{address: 10.2.0.1, plane: compute}]}
exporters: {leaf: {address: 192.0.2.1}}
"""


def line(tags: str, fields: str, second: int) -> str:
    return f"{tags} {fields} {BEGIN + second}"


POINTS = [
    line("node,node=a-1,group=a,peer_group=b,plane=compute", "tx_bytes=100i,tx_packets=1i,flows=1i", 600),
    line("node,node=a-1,group=a,peer_group=disks,plane=storage", "tx_bytes=20i,tx_packets=1i,flows=1i", 610),
    line("node,node=a-1,group=a,peer_group=b,plane=compute", "tx_bytes=4000i,tx_packets=1i,flows=1i", 3000),
    line("node,node=b-1,group=b,peer_group=a,plane=compute", "tx_bytes=7i,tx_packets=1i,flows=1i", 600),
    line("traffic,src_group=a,dst_group=b,proto=tcp,service=nfs,plane=compute", "bytes=100i,packets=1i,flows=1i", 600),
    line("traffic,src_group=b,dst_group=a,proto=udp,service=other,plane=compute", "bytes=7i,packets=1i,flows=1i", 600),
    line("interface,exporter=leaf,interface=e1,plane=compute,kind=edge", "in_bytes=5i,out_bytes=6i", 600),
    line("interface,exporter=leaf,interface=e2,plane=compute,kind=edge", "in_bytes=1i,out_bytes=2i", 600),
]


class Run:
    def __init__(self, config: Path) -> None:
        self.config = config

    def __call__(self, *arguments: str) -> Result:
        application = Application(name="clusterflow")
        application.add_command(explore)
        command = ["explore", "-c", str(self.config), *arguments]
        if not {"--job", "--from"} & {*arguments}:
            command += ["--from", str(BEGIN), "--to", str(BEGIN + 1800)]
        return CliRunner().invoke(application, command)

    def rows(self, *arguments: str) -> dict[str, Any]:
        found = self("--json", *arguments)
        assert found.exit_code == 0, found.output
        return {row[next(iter(row))]: row for row in json.loads(found.stdout)}

    def sums(self, *arguments: str) -> dict[str, int]:
        return {name: row["bytes"] for name, row in self.rows(*arguments).items()}


@pytest.fixture
def run(tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str) -> Run:
    config = tmp_path / "cluster.yaml"
    moments = [datetime.fromtimestamp(BEGIN + second, UTC).isoformat() for second in (0, 900)]
    job = f"{{id: run-7, class: llama, nodes: [a-1, a-2], start: '{moments[0]}', end: '{moments[1]}'}}"
    store = f"store: {{url: '{influxdb_v1.url}', database: {fresh_database}}}"
    config.write_text(f"{CLUSTER}jobs: [{job}]\nbridge: {{state: {tmp_path}}}\n{store}\n")
    cluster = load_cluster(config)
    opened = Store(cluster.store)
    opened.ensure(cluster.retentions())
    opened.write("\n".join(POINTS).encode(), schema.RAW)
    opened.close()
    return Run(config)


def test_every_choice_leaves_what_it_says(run: Run) -> None:
    asked: list[tuple[str, dict[str, int]]] = [
        ("", {"a-1": 120, "b-1": 7, "a-2": 0}),
        ("--src a --dst b", {"a-1": 100, "a-2": 0}),
        ("--src training --dst training", {"a-1": 100, "b-1": 7, "a-2": 0}),
        ("--src a --src b --dst storage --dst a", {"a-1": 20, "b-1": 7, "a-2": 0}),
        ("--node b-1", {"b-1": 7}),
        ("--src a-1", {"a-1": 120}),
        ("--job run-7", {"a-1": 120, "a-2": 0}),
        ("--job run-7 --by destination", {"b": 100, "disks": 20}),
        ("--job run-7 --by plane --dst b", {"compute": 100}),
        (f"--node a-1 --from {BEGIN} --to {BEGIN + 3600} --plane compute", {"a-1": 4100}),
        ("--by source", {"a": 100, "b": 7}),
        ("--by service --src a", {"nfs": 100}),
        ("--by protocol --service nfs --service other", {"tcp": 100, "udp": 7}),
        ("--by interface", {"leaf e1": 11, "leaf e2": 3}),
        ("--by interface --exporter leaf --interface e2", {"leaf e2": 3}),
        ("--by interface --exporter spine", {}),
    ]
    for words, expected in asked:
        assert run.sums(*words.split()) == expected, words
    assert run.rows("--by", "interface")["leaf e1"]["in"] == 5
    # What a node sent has no number of records: kept is that of both directions.
    assert run.rows("--src", "a-1")["a-1"].keys() == {"node", "bytes", "packets", "bits_per_second"}
    assert run.rows("--by", "source")["a"]["flows"] == 1
    assert "leaf e1" in run("--by", "interface").stdout


def test_where_no_node_is_listed_it_says_so_instead_of_no_traffic(run: Run) -> None:
    store = run.config.read_text().rpartition("\n")[0].rpartition("\n")[2]
    run.config.write_text(f"cluster: lab\ngroups: {{a: {{role: training}}}}\n{store}\n")
    assert run("--plane", "management").stdout == "cluster.yaml lists no nodes: ask --by source or another\n"


def test_what_no_measurement_keeps_together_is_refused(run: Run) -> None:
    asked = {
        "--job nobody": "--job nobody: no such job",
        "--node nobody": "--node nobody: no such node",
        "--job run-7 --by service": "--by service: nodes are kept without it (ask `clusterflow flows`",
        "--interface e1": "--exporter, --interface: of interfaces only",
        "--by interface --src a": "--src, --dst, --node or --job: interfaces are kept without it",
        "--src nobody": "--src nobody: no such group (there are a, b, disks",
    }
    for words, told in asked.items():
        found = run(*words.split())
        assert found.exit_code == 2, words
        assert told in found.stderr, found.stderr


def test_a_job_that_another_machine_knows_is_to_be_asked_for_there(run: Run) -> None:
    assert "nobody: no such job in cluster.yaml (it has no job_sources)" in run("--job", "nobody").stderr
    run.config.write_text(f"{run.config.read_text()}\njob_sources: [{{type: file, path: jobs.json}}]\n")
    found = run("--job", "nobody")
    assert "jobs.sqlite, which is not there (`clusterflow analyze` fills that on its own machine: ask" in found.stderr


@pytest.mark.parametrize(("start", "length"), [(0, 900), (1200, 900), (1200, 3600)])
def test_of_what_is_kept_by_the_hour_hours_count_whole(run: Run, start: int, length: int) -> None:
    """Of a hundred days ago no quarter is left: its rate is that of its hour."""
    begin = BEGIN - 100 * 86_400
    store = Store(load_cluster(run.config).store)
    lines = [f"traffic,src_group=a,dst_group=b,proto=tcp,service=nfs bytes=3600i {begin + 3600 * n}" for n in range(2)]
    store.write("\n".join(lines).encode(), schema.HOUR)
    store.close()
    at = begin + start
    row = run.rows("--by", "source", "--from", str(at), "--to", str(at + length))["a"]
    assert (row["bytes"], row["bits_per_second"]) == (3600 * (1 + (start + length > 3600)), 8.0)
