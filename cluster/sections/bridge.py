"""The section `bridge`: how flow records become windows."""

from dataclasses import replace

from app.units import format_duration
from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import SECRET, Secret, Table, Whole
from cluster.scalars.names import DAY

CLOUD_LATENESS = 1200
"""Seconds: AWS sums up over 10 minutes and takes up to 10 more to deliver, Azure and Google mostly less."""


# fmt: off
@record
class BridgeSettings:
    """How flow records become windows."""

    window: int = key(names.seconds(1, 60), "Length of a base window; it divides a minute.", default=10)
    lateness: int = key(names.seconds(0, 7200), "How far the watermark stays behind the newest record. With "
        f"`cloud.format` the default is `{format_duration(CLOUD_LATENESS)}`: a provider's logs come that late.",
        default=10)
    grace: int = key(names.seconds(10, DAY), "How long a closed window can still be rewritten.", default=300)
    past_skew: int = key(names.seconds(10, DAY), "A record older than this at arrival gets its arrival time.",
        default=900)
    future_skew: int = key(names.seconds(1, DAY), "A record further in the future than this gets its arrival time.",
        default=120)
    named_per_window: int = key(Whole(1, 100_000),
        "Conversations a source group may name in one window; the rest is `other`.", default=100)
    series_budget: int = key(Whole(1, 10_000_000),
        "Named egress series kept alive in all; beyond it new ones are `other`.", default=100_000)
    flush: float = key(names.fractions(0.1, 60),
        "Time between writes while records stream in; up to twice that where writing takes long.", default=2.0)
    shard: str = key(names.SHARD, "One a bridge, so that partial totals add up.", default="0")
    metrics_listen: str | None = key(names.LISTEN_OR_OFF, "Where /metrics and /healthz answer, or `off`.",
        default="127.0.0.1:9105")
    metrics_token: Secret | None = key(SECRET, "What /metrics asks for, as `Authorization: Bearer`.", default=None,
        absent="nothing", example="{file: /run/secrets/metrics_token}")
    state: str = key(names.PATH, "The folder of the checkpoint.", default="/var/lib/clusterflow")


BRIDGE = Section.of(BridgeSettings, "bridge")
# fmt: on


def build_bridge(table: Table | None, faults: Faults, *, is_cloud: bool) -> BridgeSettings:
    """Return the settings, and record windows that fit neither a minute nor the grace."""
    bridge: BridgeSettings = BRIDGE.build(table)
    if is_cloud and "lateness" not in (table or {}):
        bridge = replace(bridge, lateness=CLOUD_LATENESS)
    if 60 % bridge.window:
        expected = "a length that divides a minute: 1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30 or 60 seconds"
        faults.add("bridge.window", format_duration(bridge.window), expected)
    if bridge.grace < bridge.window:
        expected = f"at least bridge.window, {format_duration(bridge.window)}"
        faults.add("bridge.grace", format_duration(bridge.grace), expected)
    return bridge
