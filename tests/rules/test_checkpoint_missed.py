"""For which clusters the rule on missed checkpoints is generated, and what it says where it is not."""

from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

from cluster.load import load_cluster
from cluster.model import Cluster, DeclaredTransport, Group, GroupPair, Role, Transport
from rules.alerts.training import checkpoint_missed
from rules.rule import built

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")


def hidden(*pairs: tuple[str, str]) -> Cluster:
    return replace(CLUSTER, transport=tuple(DeclaredTransport(GroupPair(a, b), Transport.ROCE) for a, b in pairs))


def reasons(cluster: Cluster) -> list[str]:
    return [str(skipped) for skipped in built(checkpoint_missed.build, cluster).skipped]


def test_where_training_is_seen_to_write_to_storage() -> None:
    found = built(checkpoint_missed.build, CLUSTER)
    assert [rule.id for rule in found.rules] == ["checkpoint_missed"]
    assert found.skipped == ()


def test_not_where_storage_is_reached_by_rdma() -> None:
    found = built(checkpoint_missed.build, hidden(("training", "storage")))
    assert found.rules == ()
    assert reasons(hidden(("training", "storage"))) == [
        "checkpoint_missed: training -> storage: declared as roce, which flow records do not see"
    ]


def test_not_where_a_part_of_storage_is_hidden() -> None:
    """The checkpoint may go to the part that nobody sees."""
    scratch = Group("scratch", "Scratch", Role.STORAGE, (ip_network("10.31.0.0/16"),))
    cluster = replace(hidden(("training", "scratch")), groups=(*CLUSTER.groups, scratch))
    assert built(checkpoint_missed.build, cluster).rules == ()
    assert len(reasons(cluster)) == 1


def test_collectives_do_not_matter() -> None:
    assert len(built(checkpoint_missed.build, hidden(("training", "training"))).rules) == 1


def test_model_storage_stands_in_for_storage() -> None:
    groups = tuple(group for group in CLUSTER.groups if group.role is not Role.STORAGE)
    (rule,) = built(checkpoint_missed.build, replace(CLUSTER, groups=groups)).rules
    assert dict(rule.annotations)["destination"] == "Model Storage"


def test_not_without_storage() -> None:
    groups = tuple(group for group in CLUSTER.groups if group.role not in (Role.STORAGE, Role.MODEL_STORAGE))
    assert reasons(replace(CLUSTER, groups=groups)) == [
        "checkpoint_missed: the whole rule: no group has the role storage"
    ]
