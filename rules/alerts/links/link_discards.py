"""An interface throws packets away: a queue overflows. RDMA sends all over again from the first that is lost.

Ordinary networks of servers lose one packet of 10,000 to 100,000 (Guo et al., Pingmesh, SIGCOMM 2015). A port of
100 Gbit/s at half load passes some 1.4e9 packets of 4 KB in a quarter of an hour: of 100,000 one is the default.
"""

from app.units import format_duration
from cluster.model import Cluster, ExportProtocol
from dashboards.registry import panel_ref
from rules.common import texts
from rules.rule import SLOW_INTERVAL_SECONDS, Comparison, Measure, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Query, Select, Unit, scaled, total

ID = "link_discards"

_LINK = (schema.EXPORTER, schema.INTERFACE, schema.KIND)

_MEASURES = {"packets": (1, 1), "received": (1, 0), "sent": (0, 1)}
"""Whether what was received, and what should have been sent, counts."""


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, where sFlow sends interfaces' counters."""
    if not any(one.protocol is ExportProtocol.SFLOW for one in cluster.exporters):
        raise NoRuleError(ID, "no exporter sends sFlow: there are no counters of interfaces")
    limits = cluster.thresholds
    window = format_duration(limits.link_discards_window)
    link = f"{{{{ $labels.{schema.INTERFACE} }}}} of {{{{ $labels.{schema.EXPORTER} }}}}"
    rule = Rule(
        id=ID,
        title="Interface discards packets",
        family="links",
        severity=Severity.WARNING,
        measures=tuple(
            Measure(name, _discarded(name, counts), limits.link_discards_window) for name, counts in _MEASURES.items()
        ),
        threshold=Threshold("link_discards", Comparison.ABOVE, limits.link_discards),
        annotations=texts.annotations(
            summary=(
                f"{link} threw away {texts.whole('packets')} packets within {window}: {texts.whole('received')} that "
                f"it received, {texts.whole('sent')} that it should have sent (alerts above {limits.link_discards})."
            ),
            source=f"all that goes through {link}",
            destination=link,
            protocol="all",
            size=f"unknown: {texts.whole('packets')} packets",
            duration=f"within {window}",
            what_to_do=(
                "See what arrives there at once (incast, two full uplinks into one) and whether priority flow control "
                "is on at both ends. Discards of a shaper or an access list may be intended: silence that interface."
            ),
        ),
        panel=panel_ref("capacity", "errors"),
        group_by=("rule", schema.EXPORTER),
        missing_evaluations=2,
        interval=SLOW_INTERVAL_SECONDS,
        is_operational=True,
    )
    return RuleSet((rule,), ())


def _discarded(name: str, counts: tuple[int, int]) -> Query:
    """Return what an interface threw away; what does not count stands there times 0.

    A device may count one direction alone, and a query of the other one would find no series.
    """
    stored = Select(schema.DISCARDING, schema.RAW).by(*_LINK)
    fields = zip((schema.IN_DISCARDS, schema.OUT_DISCARDS), counts, strict=True)
    each = tuple(stored.take(scaled(total(one), f"{factor}", name, Unit.COUNT)) for one, factor in fields)
    return Select(each).by(*_LINK).take(total(each[0].columns[0])).per_series("Discarded by an interface.")
