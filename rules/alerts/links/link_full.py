"""An interface carries nearly all that it can for minutes: what else wants through waits or is thrown away.

At 90 % of its speed a queue holds ten times as many packets as at 45 % (M/M/1: rho / (1 - rho); Kleinrock, Queueing
Systems, 1975), and a mean of minutes hides the bursts above it.
"""

from dataclasses import replace

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import texts
from rules.rule import SLOW_INTERVAL_SECONDS, Comparison, Measure, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import BITS, Select, Unit, combined, highest, scaled, settle_seconds, total

ID = "link_full"

_DIRECTIONS = (schema.IN_BYTES, schema.OUT_BYTES, schema.COUNTER_IN_BYTES, schema.COUNTER_OUT_BYTES)
_LINK = (schema.EXPORTER, schema.INTERFACE, schema.KIND)


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, for interfaces whose speed is known."""
    if not cluster.exporters:
        raise NoRuleError(ID, "no exporter is listed")
    limits = cluster.thresholds
    window = format_duration(limits.link_full_window)
    link = f"{{{{ $labels.{schema.INTERFACE} }}}} of {{{{ $labels.{schema.EXPORTER} }}}}"
    # Windows that still fill would say too little.
    settled = settle_seconds(cluster, schema.RAW)
    stored = Select(schema.INTERFACE_TRAFFIC, schema.RAW).by(*_LINK)
    each = tuple(
        stored.take(scaled(total(one), f"{BITS / limits.link_full_window}", "rate", Unit.BITS_PER_SECOND))
        for one in _DIRECTIONS
    )
    # InfluxDB reads every link anew for each function: nothing is asked that the number does not need.
    rate, speed = highest(each[0].columns[0]), highest(schema.SPEED)
    load = replace(combined((rate, speed), "/", "load", Unit.RATIO), above=rate.reads)
    # Of columns that other inner questions lack InfluxDB finds numbers of one kind alone: floats.
    told = stored.take(scaled(speed, "1.0", speed.name, Unit.BITS_PER_SECOND))
    asked = (
        Select((*each, told)).take(load).by(*_LINK),
        Select(each).take(rate).by(*_LINK),
        stored.take(speed),
    )
    carried = f"{texts.bit_rate_of(rate.name)} of {texts.bit_rate_of(speed.name)}"
    rule = Rule(
        id=ID,
        title="Link is full",
        family="links",
        severity=Severity.WARNING,
        measures=tuple(
            # Both ends of a range belong to it: a second less, and it holds whole windows.
            Measure(
                one.columns[0].name,
                one.per_series("Of an interface, its busier direction."),
                limits.link_full_window + settled,
                settled + 1,
            )
            for one in asked
        ),
        threshold=Threshold("link_full", Comparison.ABOVE, limits.link_full),
        annotations=texts.annotations(
            summary=(
                f"{link} carries {carried}, {texts.share_of('load')}, over {window} (alerts above "
                f"{limits.link_full:.0%})."
            ),
            source=f"all that goes through {link}",
            destination=link,
            protocol="all",
            size=carried,
            duration=window,
            what_to_do=(
                "See who fills it: Explore by that exporter's groups and nodes. One of several uplinks: compare the "
                "others, for flows that hash onto one. All of them: move a job, or plan for more links."
            ),
        ),
        panel=panel_ref("capacity", "links"),
        group_by=("rule", schema.EXPORTER),
        missing_evaluations=2,
        interval=SLOW_INTERVAL_SECONDS,
        is_operational=True,
    )
    return RuleSet((rule,), ())
