import os
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.load import load_cluster, parse_cluster
from cluster.model import Cluster, GroupPair
from cluster.reload import Change, changes, plain_changes

ROOT = Path(__file__).resolve().parents[2]
SMALL = """
cluster: lab
groups:
  a: {role: training, prefixes: [10.0.0.0/8]}
  b: {role: storage, prefixes: [192.168.0.0/16]}
store: {username: writer, password: {env: INFLUX_PASSWORD}}
"""


@pytest.fixture
def cluster() -> Cluster:
    return load_cluster(ROOT / "cluster.yaml")


def test_equal_clusters_differ_in_nothing(cluster: Cluster) -> None:
    assert changes(cluster, load_cluster(ROOT / "cluster.yaml")) == []


def test_a_value_that_changed_is_told_with_its_path_and_both_values(cluster: Cluster) -> None:
    other = replace(cluster, thresholds=replace(cluster.thresholds, exfil_volume=20_000_000_000))
    assert [str(one) for one in changes(cluster, other)] == ['thresholds.exfil_volume: "50 GB" -> "20 GB"']


def test_what_was_added_or_removed_is_told_whole(cluster: Cluster) -> None:
    fewer = replace(cluster, nodes=cluster.nodes[:-1])
    name = cluster.nodes[-1].name
    (gone,), (come,) = changes(cluster, fewer), changes(fewer, cluster)
    assert (gone.path, gone.new) == (f"nodes.{name}", None)
    assert (come.path, come.old, come.new) == (gone.path, None, gone.old)


def test_of_a_list_only_the_entries_that_differ_are_told(cluster: Cluster) -> None:
    more = replace(cluster, allowed=(*cluster.allowed, GroupPair("inference", "storage")))
    assert changes(cluster, more) == [Change("allowed", None, '{"from": "inference", "to": "storage"}')]


def test_an_entry_that_stands_twice_and_then_once_is_told() -> None:
    assert plain_changes({"a": [1, 1, 2]}, {"a": [2, 1]}) == [Change("a", "1", None)]


def test_another_order_of_a_list_is_told_since_the_first_match_wins() -> None:
    assert plain_changes({"a": [1, 2]}, {"a": [2, 1]}) == [Change("a", "[1, 2]", "[2, 1]")]


def test_a_long_value_is_cut() -> None:
    (change,) = plain_changes({"a": "x" * 10_000}, {"a": "y"})
    assert len(str(change)) < 300


def test_text_that_a_terminal_would_obey_is_escaped() -> None:
    (change,) = plain_changes({"a": "x"}, {"a": "\x1b[2J\nfalse line"})
    assert str(change).isprintable()


def test_a_secret_never_shows_only_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFLUX_PASSWORD", "hunter2")
    moved = SMALL.replace("{env: INFLUX_PASSWORD}", "{file: /run/secrets/influx}")
    told = [str(change) for change in changes(parse_cluster(SMALL), parse_cluster(moved))]
    assert told == [
        'store.password.env: removed "INFLUX_PASSWORD"',
        'store.password.file: added "/run/secrets/influx"',
    ]
    assert os.environ["INFLUX_PASSWORD"] not in "".join(told)
