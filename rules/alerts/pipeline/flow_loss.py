"""Many of an exporter's flow records never arrive, or arrive empty: what it sees is counted too low."""

from app.units import format_duration
from cluster.model import Cluster, Thresholds
from dashboards.registry import panel_ref
from rules.common import texts
from rules.rule import Comparison, Measure, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Column, Query, Select, Unit, any_of, beside, compare, ratio, scaled, total

ID = "flow_loss"

_LOST, _EMPTY = total(schema.SEQ_LOST, "lost"), total(schema.ZERO_COUNTERS, "empty")
_ALL = total(schema.EXPORTER_RECORDS, "all")

_SUMS = tuple(map(total, (_LOST, _EMPTY, _ALL)))

_DATAGRAM = 30
"""Records that one datagram holds at most (v5; about as many in v9 and IPFIX): a single one that is lost is chance."""


def build(cluster: Cluster) -> RuleSet:
    """Return the rule; every cluster has it, for every exporter that sends."""
    limits = cluster.thresholds
    window = format_duration(limits.flow_loss_window)
    exporter = f"{{{{ $labels.{schema.EXPORTER} }}}}"
    summary = (
        f"{texts.share_of('loss')} of the flow records of {exporter} are missing or empty within {window} (alerts "
        f"above {limits.flow_loss:.2%}): what only it sees is counted too low."
    )
    what_to_do = (
        "Missing: look at the exporter's export queue, at the way to the collector, and at the collector's UDP receive "
        "buffer (netstat -su). Empty: the exporter's template or sampling lacks byte counters."
    )
    rule = Rule(
        id=ID,
        title="Flow records are lost",
        family="pipeline",
        severity=Severity.WARNING,
        measures=(
            *(
                Measure(column.name, _of_exporters(limits, column), limits.flow_loss_window)
                for column in (ratio((_LOST, _EMPTY), _ALL, "loss", beside), *map(beside, _SUMS))
            ),
        ),
        threshold=Threshold("flow_loss", Comparison.ABOVE, limits.flow_loss),
        annotations=texts.annotations(
            summary=summary,
            source=exporter,
            destination="the flow collector",
            protocol="flow export",
            size=(
                f"unknown: {texts.whole(_LOST.name)} records missing and {texts.whole(_EMPTY.name)} empty of "
                f"{texts.whole(_ALL.name)}"
            ),
            duration=f"within {window}",
            what_to_do=what_to_do,
        ),
        panel=panel_ref("pipeline", "lost"),
        group_by=("rule",),
        is_operational=True,
    )
    return RuleSet((rule,), ())


def _of_exporters(limits: Thresholds, column: Column) -> Query:
    """Return a number of each exporter that sent enough records, and lost more than a datagram or sent many empty ones.

    Rows without a loss have no such field, and a sum of nothing is nothing: records times 0 stand beside it.
    """
    status = Select(schema.EXPORTER_STATUS, schema.RAW).by(schema.EXPORTER)
    nothing = (scaled(_ALL, "0", column.name, Unit.COUNT) for column in (_LOST, _EMPTY))
    sent = status.take(*nothing, _ALL)
    missing = status.take(_LOST, total(schema.SEQ_LOST, _ALL.name))
    empty = status.take(_EMPTY)
    together = Select((sent, missing, empty)).by(schema.EXPORTER)
    enough = compare(_ALL, ">=", limits.flow_loss_records)
    several = any_of(compare(_LOST, ">", _DATAGRAM), compare(_EMPTY, ">", limits.flow_loss, times=_ALL))
    whole = Select(together.take(*_SUMS)).where(enough, several).by(schema.EXPORTER)
    return whole.take(column).per_series("Of an exporter.")
