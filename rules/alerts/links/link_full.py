"""An interface carries nearly all that it can for minutes: what else wants through waits or is thrown away.

At 90 % of its speed a queue holds ten times as many packets as at 45 % (M/M/1: rho / (1 - rho); Kleinrock, Queueing
Systems, 1975), and a mean of minutes hides the bursts above it.
"""

from dataclasses import replace

from app.units import format_duration
from cluster.model import Cluster, ExportProtocol
from dashboards.registry import panel_ref
from rules.common import texts
from rules.rule import (
    SLOW_INTERVAL_SECONDS,
    Comparison,
    Measure,
    NoRuleError,
    Reducer,
    Rule,
    RuleSet,
    Severity,
    Threshold,
)
from store import schema
from store.influxql import (
    BITS,
    Select,
    Unit,
    any_of,
    beside,
    combined,
    compare,
    highest,
    larger,
    not_in,
    scaled,
    settle_seconds,
    total,
)

ID = "link_full"

_LINK = (schema.EXPORTER, schema.INTERFACE, schema.KIND)

_SHOWN = 0.5
"""Part of the threshold from which there is a number: most of thousands of links are far below."""


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
    bits, speed = f"{BITS / limits.link_full_window}", highest(schema.SPEED)

    def rates(asked: Select, *fields: schema.Field) -> Select:
        named = zip(fields, ("one", "other"), strict=True)
        return asked.take(*(scaled(total(one), bits, name, Unit.BITS_PER_SECOND) for one, name in named), speed)

    # InfluxDB charges for each link and field that it reads: NetFlow devices, which send no counters, are left out.
    others = [one.name for one in cluster.exporters if one.protocol is not ExportProtocol.SFLOW]
    counted = stored.where(not_in(schema.EXPORTER, others))
    each = (
        rates(stored, schema.IN_BYTES, schema.OUT_BYTES),
        # A device may count one direction alone.
        *(rates(counted, one, one) for one in (schema.COUNTER_IN_BYTES, schema.COUNTER_OUT_BYTES)),
    )
    one, other, most = map(beside, each[0].columns)
    busier = larger(one, other)
    load = replace(combined((busier, most), "/", "load", Unit.RATIO), above=busier.reads)
    shown = any_of(*(compare(rate, ">=", _SHOWN * limits.link_full, times=most) for rate in (one, other)))
    loads = Select(each).where(shown).by(*_LINK)
    carried = f"{texts.share_of(load.name)} of {texts.bit_rate_of(speed.name)}"
    rule = Rule(
        id=ID,
        title="Link is full",
        family="links",
        severity=Severity.WARNING,
        # Both ends of a range belong to it: a second less, and it holds whole windows.
        measures=tuple(
            Measure(
                column.name,
                asked.take(column).per_series("Of an interface, its busier direction."),
                limits.link_full_window + settled,
                settled + 1,
                Reducer.MAX,
            )
            for asked, column in ((loads, load), (stored, speed))
        ),
        threshold=Threshold("link_full", Comparison.ABOVE, limits.link_full),
        annotations=texts.annotations(
            summary=f"{link} carries {carried} over {window} (alerts above {limits.link_full:.0%}).",
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
