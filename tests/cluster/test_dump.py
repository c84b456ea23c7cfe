from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.dump import dump_cluster
from cluster.load import load_cluster, parse_cluster
from cluster.model import BridgeSettings, Cluster, Cost, GroupPair, Thresholds

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FILES = (HERE / "rich.yaml", ROOT / "cluster.yaml", ROOT / "cluster" / "starter.yaml")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_dumped_loads_as_an_equal_cluster(file: Path) -> None:
    cluster = load_cluster(file)
    assert parse_cluster(dump_cluster(cluster)) == cluster


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_dumping_again_gives_the_same_text(file: Path) -> None:
    text = dump_cluster(load_cluster(file))
    assert dump_cluster(parse_cluster(text)) == text


def test_a_job_source_with_nothing_but_its_type_comes_back() -> None:
    """A selector that is not given is no text, which no key takes."""
    kinds = "file, path: jobs.csv", "kubernetes", "slurm, sacct: off", "inferred"
    given = "".join(f"- {{type: {kind}}}\n" for kind in kinds)
    cluster = parse_cluster(f"cluster: lab\ngroups: {{a: {{role: custom}}}}\njob_sources:\n{given}")
    assert [source.kind for source in cluster.job_sources] == ["file", "kubernetes", "slurm", "inferred"]
    assert parse_cluster(dump_cluster(cluster)) == cluster


def test_every_default_is_written_out() -> None:
    small = parse_cluster("cluster: lab\ngroups: {a: {role: custom}}\n")
    dumped = yaml.safe_load(dump_cluster(small))
    assert dumped["thresholds"]["exfil_volume"] == "50 GB"
    assert dumped["bridge"]["metrics_listen"] == "127.0.0.1:9105"
    assert dumped["store"]["retention"] == {"raw": "7d", "1m": "90d", "1h": "730d"}
    assert dumped["site"] == {
        "time_zone": "UTC",
        "off_hours": {"from": "23:00", "to": "06:00", "weekends": False, "holidays": []},
        "maintenance": [],
    }


def test_secrets_are_named_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFLUX_TOKEN", "hunter2")
    text = dump_cluster(load_cluster(HERE / "rich.yaml"))
    assert "token: {env: INFLUX_TOKEN}" in text
    assert "hunter2" not in text


thresholds = st.builds(
    Thresholds,
    exfil_volume=st.integers(1, 10**17),
    exfil_window=st.integers(1, 6_000).map(lambda count: count * 60),
    first_contact_bytes=st.integers(0, 10**17),
    off_hours_bytes=st.integers(1, 10**17),
    dropout_spreads=st.floats(1, 100),
    dropout_for=st.integers(0, 86_400),
    exporter_silent=st.integers(10, 86_400),
)
bridges = st.builds(
    BridgeSettings,
    window=st.sampled_from([1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60]),
    grace=st.integers(60, 86_400),
    flush=st.integers(100, 60_000).map(lambda milliseconds: milliseconds / 1_000),
    shard=st.from_regex(r"[A-Za-z0-9_-]{1,16}", fullmatch=True),
    metrics_listen=st.sampled_from([None, "0.0.0.0:1", "[::1]:9105", "localhost:65535"]),
)
costs = st.builds(Cost, gpus_per_node=st.integers(1, 1_024), usd_per_gpu_hour=st.floats(0, 100_000))
groups = st.sampled_from(["a", "external", "local", "*"])
pairs = st.lists(st.builds(GroupPair, groups, groups), unique=True).map(tuple)


@settings(deadline=None)
@given(thresholds, bridges, costs, pairs)
def test_any_settings_come_back(
    limits: Thresholds, bridge: BridgeSettings, cost: Cost, allowed: tuple[GroupPair, ...]
) -> None:
    small: Cluster = parse_cluster("cluster: lab\ngroups: {a: {role: custom}}\n")
    cluster = replace(small, thresholds=limits, bridge=bridge, cost=cost, allowed=allowed)
    assert parse_cluster(dump_cluster(cluster)) == cluster
