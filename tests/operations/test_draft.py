"""`clusterflow init --from-traffic`: what it makes of two clusters' traffic, against what these clusters are."""

import re
import socket
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

from app.errors import ClusterflowError, UserError
from cluster.load import load_cluster, parse_cluster
from cluster.model import Cluster, Role
from ingest.flows.classify import AddressBook
from ingest.read.records import PRINTED_COLUMNS
from operations.check_cli import check
from operations.draft.draft_cli import init
from operations.draft.seen import ONE, OTHER, look
from simulate.packets.spool_files import SpoolWriter
from simulate.scenarios.scenario import Phase, Run, Scenario
from simulate.traffic.cast import Cast
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth

START = 1_795_248_000
DEMO = Path(__file__).parents[2] / "cluster.yaml"

HELD_BACK = """\
cluster: held-back
groups:
  gpus: {role: training, prefixes: [172.20.0.0/16], plane: compute}
  files: {role: storage, prefixes: [192.168.40.0/24], plane: storage}
  models: {role: model_storage, prefixes: [192.168.41.0/24], plane: storage}
  serving: {role: inference, prefixes: [192.168.50.0/24], plane: frontend}
  office: {role: custom, prefixes: [10.9.8.0/24], plane: frontend}
  ops: {role: management, prefixes: [192.168.1.0/24], plane: management}
  mirror: {role: approved_external, prefixes: [198.51.100.0/24]}
nodes:
  "h{100..123}":
    group: gpus
    addresses:
      - {address: "172.20.16.{100..123}", plane: compute, rail: 0}
      - {address: "172.20.17.{100..123}", plane: compute, rail: 1}
      - {address: "172.20.18.{100..123}", plane: compute, rail: 2}
      - {address: "172.20.19.{100..123}", plane: compute, rail: 3}
      - {address: "172.20.99.{100..123}", plane: storage}
  "f{1..6}": {group: files, addresses: ["192.168.40.{21..26}"]}
  "m{1..3}": {group: models, addresses: ["192.168.41.{5..7}"]}
  "s{1..8}": {group: serving, addresses: ["192.168.50.{200..207}"]}
  "o{1..3}": {group: ops, addresses: ["192.168.1.{1..3}"]}
exporters:
  a: {address: 127.0.0.21, protocol: netflow}
  b: {address: 127.0.0.22, protocol: netflow, sampling: 100}
allowed: [{from: "*", to: "*"}]
"""


@dataclass(frozen=True)
class Found:
    """Precision and recall of a kind of finding."""

    precision: float
    recall: float


def _found(truth: set[object], drafted: set[object]) -> Found:
    both = len(truth & drafted)
    return Found(both / max(len(drafted), 1), both / max(len(truth), 1))


def _write(cluster: Cluster, folder: Path) -> None:
    live = Phase(START, START + 300, 10, 10)
    run = Run("live", tuple(Cast(cluster).training), START, START + 300, 30)
    workload = Workload(cluster, Scenario(3, live, runs=(run,)))
    with SpoolWriter(workload, folder, GroundTruth(workload)) as writer:
        for batch in workload.batches(live):
            writer.write(batch)


@cache
def _drafted(name: str, folder: Path) -> tuple[Cluster, Cluster, frozenset[str]]:
    """Return the cluster, the draft of it, and the addresses seen."""
    cluster = load_cluster(DEMO) if name == "demo" else parse_cluster(HELD_BACK)
    spool = folder / f"spool-{name}"
    _write(cluster, spool)
    file = folder / f"{name}.yaml"
    result = CliRunner().invoke(init, ["--from-traffic", str(spool), str(file)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    checked = CliRunner().invoke(check, [str(file)], catch_exceptions=False)
    assert checked.exit_code == 0, checked.output
    seen = look(spool, None).conversations
    return cluster, load_cluster(file), frozenset(seen[ONE].to_list()) | frozenset(seen[OTHER].to_list())


@pytest.fixture(scope="module", params=["demo", "held-back"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Cluster, Cluster, set[str]]:
    truth, draft, seen = _drafted(request.param, tmp_path_factory.mktemp("draft"))
    return truth, draft, set(seen)


def test_a_conversation_takes_few_bytes_and_each_is_there_once(tmp_path: Path) -> None:
    """There are millions in an hour: as texts each took 54 bytes, and several times that while they were added up."""
    _write(load_cluster(DEMO), tmp_path)
    found = look(tmp_path, None).conversations
    assert found.estimated_size() < 48 * found.height
    assert found.height > 1_000
    assert not found.select(ONE, OTHER, "one_port", "other_port", "protocol").is_duplicated().any()


def test_samples_last_from_their_first_arrival_to_the_last(tmp_path: Path) -> None:
    sample = "{0},127.0.0.1,0,0,10.0.0.1,10.0.0.2,9,99,0,6,0,1,0.000000,0.000000,{1}.000000,{0},5,0,1,1,1500"
    rows = [sample.format(1_000_000 + number, START + 600 * number) for number in (0, 1)]
    (tmp_path / "flows.csv").write_text("\n".join([",".join(PRINTED_COLUMNS), *rows, ""]))
    assert look(tmp_path, None).seconds == 600


@pytest.mark.parametrize("clock", [0, 757_382_400, START + 30 * 365 * 86_400])
def test_an_exporter_with_a_wrong_clock_makes_an_hour_no_longer(tmp_path: Path, clock: int) -> None:
    row = "{0},127.0.0.1,0,0,10.0.0.1,10.0.0.2,9,99,0,6,0,9,{2}.000000,{2}.000000,{1}.000000,{0},9,0,1,1,1500"
    rows = [row.format(1_000_000 + n, START + 600 * n, clock if n == 1 else START + 600 * n) for n in range(3)]
    (tmp_path / "flows.csv").write_text("\n".join([",".join(PRINTED_COLUMNS), *rows, ""]))
    assert look(tmp_path, None).seconds == 1200


def _roles(cluster: Cluster, seen: set[str]) -> set[object]:
    book = AddressBook(cluster)
    role_of = {group.id: group.role for group in cluster.groups}
    ordered = sorted(seen)
    texts = pl.Series("a", ordered, pl.String)
    numbers, _ = book.number(texts, texts)
    groups = [book.groups[book.group_codes[number]] for number in numbers.to_list()]
    return {
        (text, role_of[group])
        for text, group in zip(ordered, groups, strict=True)
        if group in role_of and role_of[group] is not Role.APPROVED_EXTERNAL
    }


def _same_node(cluster: Cluster, seen: set[str]) -> set[object]:
    nodes = ([str(entry.address) for entry in node.addresses] for node in cluster.nodes)
    return {frozenset(pair) for own in nodes for pair in combinations(sorted(set(own) & seen), 2)}


def _rails(cluster: Cluster, seen: set[str]) -> set[object]:
    return {
        (str(entry.address), entry.rail)
        for node in cluster.nodes
        for entry in node.addresses
        if entry.rail is not None and str(entry.address) in seen
    }


@pytest.mark.thorough
def test_groups_have_their_roles(case: tuple[Cluster, Cluster, set[str]]) -> None:
    truth, draft, seen = case
    found = _found(_roles(truth, seen), _roles(draft, seen))
    assert found.precision >= 0.95
    assert found.recall >= 0.95


def test_addresses_of_a_node_are_one_node(case: tuple[Cluster, Cluster, set[str]]) -> None:
    truth, draft, seen = case
    assert _found(_same_node(truth, seen), _same_node(draft, seen)) == Found(1.0, 1.0)


def test_rails_are_found(case: tuple[Cluster, Cluster, set[str]]) -> None:
    truth, draft, seen = case
    assert _found(_rails(truth, seen), _rails(draft, seen)) == Found(1.0, 1.0)


def test_exporters_are_those_that_sent(case: tuple[Cluster, Cluster, set[str]]) -> None:
    truth, draft, _ = case
    sent = {(exporter.address, exporter.protocol) for exporter in draft.exporters}
    assert sent <= {(exporter.address, exporter.protocol) for exporter in truth.exporters}
    assert sent


def test_what_is_not_meant_with_the_outside_is_not_allowed(case: tuple[Cluster, Cluster, set[str]]) -> None:
    _, draft, _ = case
    assert draft.is_allowed("training", "storage")
    assert not draft.is_allowed("training", "external")


def _from_logs(folder: Path, *talks: tuple[str, str, int, int]) -> Cluster:
    """Return the draft of a cloud's flow logs; talks: source, destination, port that is called, IP protocol."""
    (folder / "logs").mkdir()
    lines = (
        f"2 1 eni-1 {src} {dst} {40_000 + number if called else 0} {called} {proto} 6 9000 1700000000 1700000060 "
        "ACCEPT OK\n"
        for number, (src, dst, called, proto) in enumerate(talks)
    )
    (folder / "logs" / "a.log").write_text("".join(lines))
    file = folder / "cluster.yaml"
    told = CliRunner().invoke(init, [str(file), "--from-traffic", str(folder / "logs"), "--format", "aws-vpc"])
    assert told.exception is None, "\n".join(getattr(told.exception, "lines", list)()) or told.exception
    return load_cluster(file)


def test_networks_whose_traffic_does_not_say_what_they_are_for_are_groups(tmp_path: Path) -> None:
    draft = _from_logs(tmp_path, ("10.7.0.5", "10.8.0.9", 7777, 6), ("fd00:7::5", "fd00:8::9", 7777, 6))
    assert {group.id: [*map(str, group.prefixes)] for group in draft.groups} == {
        "other_10_7_0_0": ["10.7.0.0/24"],
        "other_10_8_0_0": ["10.8.0.0/24"],
        "other_fd00_7": ["fd00:7::/64"],
        "other_fd00_8": ["fd00:8::/64"],
    }
    assert draft.is_allowed("other_10_7_0_0", "other_10_8_0_0")


def test_addresses_of_ipv6_that_end_alike_are_nodes_of_their_own(tmp_path: Path) -> None:
    """Numbered by rack and place: in a /64 the last part alone does not tell them apart."""
    ring = [f"fd00:7::{rack}:{place}" for rack in (1, 2) for place in range(1, 5)]
    draft = _from_logs(tmp_path, *((src, dst, 29500, 6) for src, dst in zip(ring, [*ring[1:], ring[0]], strict=True)))
    assert [group.role for group in draft.groups] == [Role.TRAINING]
    found = {str(address.address): node.name for node in draft.nodes for address in node.addresses}
    assert set(found) == {*ring}
    assert found["fd00:7::2:4"] == "gpu-2-4"


@pytest.mark.parametrize("fabrics", [("10.7.0.", "10.7.1.", "fd00:7::", "fd00:7:0:1::"), ("10.7.0.", "10.7.1.")])
def test_both_ip_versions_of_a_machine_are_one_node(tmp_path: Path, fabrics: tuple[str, ...]) -> None:
    ring = [(f"{net}{one}", f"{net}{one % 8 + 1}", 29500, 6) for net in fabrics for one in range(1, 9)]
    files = [(f"fd00:9::{one}", "fd00:30::1", 2049, 6) for one in range(1, 9)]
    found = {node.name: node.addresses for node in _from_logs(tmp_path, *ring, *files).nodes}
    assert [(str(one.address), one.plane, one.rail) for one in found["gpu-8"]] == [
        *((f"{net}8", "compute", number % 2) for number, net in enumerate(fabrics)), ("fd00:9::8", "storage", None),
    ]  # fmt: skip


def test_a_scan_of_many_networks_makes_no_more_groups_than_a_cluster_may_have(tmp_path: Path) -> None:
    scan = (("10.7.0.5", f"10.{one}.{two}.1", 22_022, 6) for one in (8, 9) for two in range(256))
    draft = _from_logs(tmp_path, *scan)
    assert len(draft.groups) < 60
    found = [prefix for group in draft.groups for prefix in group.prefixes]
    assert sum(prefix.num_addresses for prefix in found) == 513 * 256
    assert draft.is_allowed("other_10_7_0_0", "others")


def test_a_fabric_of_tunnels_has_no_port_to_name_a_service_by(tmp_path: Path) -> None:
    talks = ((f"10.7.0.{one}", f"10.7.0.{one % 8 + 1}", 0, 4) for one in range(1, 9))
    draft = _from_logs(tmp_path, *talks)
    assert [group.role for group in draft.groups] == [Role.TRAINING]
    assert "collective" not in {service.name for service in draft.services}


def test_a_port_of_file_servers_that_nodes_serve_each_other_too_is_of_one_service(tmp_path: Path) -> None:
    """Scratch space on the GPU nodes themselves."""
    ring = [(f"10.7.0.{one}", f"10.7.0.{one % 8 + 1}") for one in range(1, 9)]
    talks = [(*pair, port, 6) for pair in ring for port in (29500, 29501, 2049)]
    draft = _from_logs(tmp_path, *talks, *((src, "10.8.0.1", 2049, 6) for src, _ in ring[:5]))
    ports = {service.name: service.ports for service in draft.services}
    assert ports["checkpoint"] == (2049,)
    assert ports["collective"] == (29500, 29501)


def test_the_recipe_drafts_from_where_its_collector_writes() -> None:
    text = (DEMO.parent / "docs/deployment.md").read_text(encoding="utf-8")
    ((described, folder),) = re.findall(r"echo '(.+)' > new.yaml\n.*\nclusterflow init --from-traffic (\S+)", text)
    assert str(parse_cluster(described).collector.spool) == folder


@pytest.mark.parametrize(
    ("files", "arguments", "said"),
    [
        ({}, ["--from-traffic", "spool"], "spool spool: No such file or directory"),
        ({"spool/x.txt": "nothing\n"}, ["--from-traffic", "spool"], "spool: no flow records found"),
        ({}, ["--from-traffic", "spool", "--inside", "nowhere"], "expected a prefix such as"),
        ({"cluster.yaml": "x\n"}, ["--from-traffic", "spool"], "cluster.yaml: is there already"),
    ],
)
def test_what_cannot_be_drafted(
    files: dict[str, str], arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    result = CliRunner().invoke(init, arguments)
    assert result.exit_code != 0
    assert said in f"{result.output} {result.exception}"


SLURM = "".join(
    f"NodeName={name} NodeAddr={address} Gres={gres} Partitions={partitions}\n"
    for name, address, gres, partitions in (
        *((f"gpu-{n:02d}", f"10.20.{n // 9}.{n % 9 + 1}", "gpu:h100:8", "gpu,all") for n in range(1, 19)),
        ("c9", "10.21.0.9", "(null)", "batch"),
        ("c10", "10.21.0.10", "(null)", "batch"),
        ("login1", "10.21.0.200", "(null)", "Login-2"),
        ("nas-1", "fd00:30::1", "(null)", ""),
        ("x", "10.22.0.1", "(null)", "7"),
    )
)


def test_what_slurm_lists_becomes_nodes_in_ranges_and_groups_by_partition(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text(SLURM)
    path = tmp_path / "cluster.yaml"
    said = CliRunner().invoke(init, [str(path), "--from", "slurm", "--at", str(tmp_path / "nodes")])
    assert said.exit_code == 0, said.output
    cluster = load_cluster(path)
    assert {group.id: (group.role.value, [str(one) for one in group.prefixes]) for group in cluster.groups} == {
        "gpu": ("training", ["10.20.0.0/23", "10.20.2.0/24"]),
        "batch": ("custom", ["10.21.0.9/32", "10.21.0.10/32"]),
        "login_2": ("management", ["10.21.0.200/32"]),
        "nas": ("storage", ["fd00:30::/64"]),
        "g_7": ("custom", ["10.22.0.0/24"]),
    }
    found = {node.name: (node.group, node.gpus, str(node.addresses[0].address)) for node in cluster.nodes}
    assert len(found) == 23
    assert found["gpu-09"] == ("gpu", 8, "10.20.1.1")
    assert found["gpu-18"] == ("gpu", 8, "10.20.2.1")
    assert found["c10"] == ("batch", 0, "10.21.0.10")
    text = path.read_text()
    assert '  "gpu-{01..08}":\n    group: gpu\n    gpus: 8\n    addresses: ["10.20.0.{2..9}"]\n' in text
    assert '  "c{9..10}":\n' in text
    # What it proposes in place of the nodes loads, too.
    before, _, proposed = text.partition("nodes`:\n")
    proposed = proposed.partition("nodes:\n")[0].replace("\n# ", "\n").removeprefix("# ")
    (source,) = parse_cluster(before.rpartition("#")[0] + proposed).inventory.sources
    assert (source.kind, source.file) == ("slurm", str(tmp_path / "nodes"))


def test_names_that_each_hosts_file_has_are_no_machines(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("::1 localhost\nfe00::0 ip6-localnet\nff02::1 ip6-allnodes\nfd00:7::1 gpu-1\n")
    path = tmp_path / "cluster.yaml"
    said = CliRunner().invoke(init, [str(path), "--from", "ansible", "--at", str(tmp_path / "hosts")])
    assert said.exit_code == 0, said.output
    cluster = load_cluster(path)
    assert ([one.id for one in cluster.groups], [one.name for one in cluster.nodes]) == (["gpu"], ["gpu-1"])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--from", "netbox"], "--from netbox: where is it? (name its file or URL with --at)"),
        (["--from", "slurm", "--at", "http://it"], "--from slurm: takes no url"),
        (["--from", "ansible", "--at", "x", "--namespace", "a"], "--from ansible: takes no namespaces"),
        (["--from", "slurm", "--from-traffic", "."], "--from and --from-traffic: one of them"),
        (["--from", "ansible", "--at", "nowhere"], "nowhere: No such file"),
    ],
)
def test_what_cannot_be_drafted_from_is_told(tmp_path: Path, given: list[str], told: str) -> None:
    error = CliRunner().invoke(init, [str(tmp_path / "cluster.yaml"), *given]).exception
    assert isinstance(error, ClusterflowError)
    assert told in error.lines()[0]


ANSIBLE = """\
[gpu_nodes]
gpu[001:064].train.invalid
gpu065 ansible_host=10.20.0.75

[storage]
nas1 ansible_host=10.30.0.11

[cluster:children]
gpu_nodes
"""
NETBOX = """\
Name,Status,Role,Type,IP Address
dgx-001,Active,GPU Node,DGX H100,10.20.0.11/24
dgx-002,Active,GPU Node,DGX H100,10.20.0.12/24
leaf-01,Active,Leaf Switch,7060X,10.0.0.1/24
"""


@pytest.mark.parametrize(
    ("kind", "answer", "nodes", "told"),
    [
        ("ansible", ANSIBLE, {"gpu065", "nas1"}, "gpu001.train.invalid, gpu002.train.invalid"),
        ("netbox", NETBOX, {"dgx-001", "dgx-002", "leaf-01"}, ""),
    ],
)
def test_hosts_of_a_file_become_nodes_and_those_without_an_address_are_told(
    kind: str, answer: str, nodes: set[str], told: str, *, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: object, **__: object) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    (tmp_path / "answer").write_text(answer)
    path = tmp_path / "cluster.yaml"
    said = CliRunner().invoke(init, [str(path), "--from", kind, "--at", str(tmp_path / "answer")])
    assert said.exit_code == 0, said.output
    assert {node.name for node in load_cluster(path).nodes} == nodes
    assert told in said.stderr
    assert ("and 61 more. Does DNS know them?" in said.stderr) is bool(told)
    assert told in path.read_text()
    if kind == "ansible":
        assert "10.30.0.0/24: {plane: storage}" in path.read_text()


def test_hosts_of_more_kinds_than_a_cluster_may_have_groups_share_one(tmp_path: Path) -> None:
    """A file of hosts, each named after something else."""
    letters = "abcdefghijklmnop"
    hosts = [f"10.3.{n}.1 {letters[n // 16]}{letters[n % 16]}-1\n" for n in range(256)]
    (tmp_path / "hosts").write_text("".join([*hosts, *(f"10.4.0.{n} gpu{n:03}\n" for n in range(1, 9))]))
    path = tmp_path / "cluster.yaml"
    said = CliRunner().invoke(init, [str(path), "--from", "ansible", "--at", str(tmp_path / "hosts")])
    assert said.exception is None, str(said.exception)[:300]
    draft = load_cluster(path)
    assert len(draft.nodes) == 264
    assert {node.group for node in draft.nodes if node.name.startswith("gpu")} == {"gpu"}
    assert sum(node.group == "others" for node in draft.nodes) > 100


def test_an_inventory_that_is_not_there_is_the_users_error(tmp_path: Path) -> None:
    said = CliRunner().invoke(init, [str(tmp_path / "c.yaml"), "--from", "slurm", "--at", str(tmp_path / "none")])
    assert isinstance(said.exception, UserError)
    assert not (tmp_path / "c.yaml").exists()
