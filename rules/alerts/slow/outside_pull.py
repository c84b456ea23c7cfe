"""Unapproved outsiders connect in and fetch much."""

from app.units import format_size
from cluster.model import Cluster
from rules.common import shapes
from rules.rule import RuleSet
from store.schema import Shape

ID = "outside_pull"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for all groups that hold weights or can read them, inference aside."""
    limit = format_size(cluster.thresholds.pull_bytes)
    return shapes.rule_of(
        cluster,
        ID,
        title="Outsiders fetch from the cluster",
        words={Shape.PULL: f", which opened the connections: more than {limit} within an hour"},
        threshold="pull_bytes",
        what_to_do=(
            "See what listens on the source and since when: nothing there should answer the internet. Close the port "
            "at the border, keep the machine as it is, and look for who opened it."
        ),
    )
