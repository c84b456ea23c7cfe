"""Much goes to unapproved addresses through tunnels, ICMP, DNS, NTP, or to ports without a service."""

from app.units import format_size
from cluster.model import Cluster
from rules.common import shapes
from rules.rule import RuleSet
from store.schema import Shape

ID = "hidden_channel"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for all groups that hold weights or can read them."""
    limits = cluster.thresholds
    much, little = (f"more than {format_size(one)}" for one in (limits.channel_bytes, limits.channel_small_bytes))
    return shapes.rule_of(
        cluster,
        ID,
        title="Hidden channel to unapproved addresses",
        words={
            Shape.TUNNEL: f" through tunnels: {much} within an hour",
            Shape.COVERT: f" over ICMP, DNS or NTP: {little} within an hour",
            Shape.NO_SERVICE: f" on ports without a service: {much} within an hour",
        },
        threshold="channel_bytes",
        what_to_do=(
            "Find the process on the largest source and who runs it. A VPN that belongs there: list its far end in a "
            "group of role approved_external. Nobody claims it: block the destination at the border and call security."
        ),
    )
