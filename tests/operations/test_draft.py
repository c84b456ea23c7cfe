"""`clusterflow init --from-traffic`: what it makes of two clusters' traffic, against what these clusters are."""

from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from cluster.load import load_cluster, parse_cluster
from cluster.model import Cluster, Role
from ingest.flows.classify import AddressBook
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
