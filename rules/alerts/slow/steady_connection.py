"""A connection to an unapproved address stays open for half a day at a constant rate."""

from analysis.detectors.egress.shapes import STEADY_HOURS
from app.units import format_size
from cluster.model import Cluster
from rules.common import shapes
from rules.rule import RuleSet
from store.schema import Shape

ID = "steady_connection"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for all groups that hold weights or can read them."""
    limit = format_size(cluster.thresholds.steady_bytes)
    return shapes.rule_of(
        cluster,
        ID,
        title="Connection to an unapproved address stays open at a constant rate",
        words={
            Shape.STEADY: f" over connections that were open at a constant rate for {STEADY_HOURS} hours: more than "
            f"{limit} in them"
        },
        threshold="steady_bytes",
        what_to_do=(
            "Find the process on the source. Backups, replication and VPNs look like this: list their far end in a "
            "group of role approved_external. A program that limits its own rate so as not to be seen does, too."
        ),
    )
