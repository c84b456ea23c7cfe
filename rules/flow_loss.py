"""Many of an exporter's flow records never arrive, or arrive empty: what it sees is counted too low."""

from cluster import schema
from cluster.model import Cluster, Thresholds
from cluster.units import format_duration
from dashboards.queries import Column, Condition, Query, Select, Unit, any_of, scaled, total
from dashboards.registry import panel_ref
from rules import texts
from rules.model import Comparison, Measure, Rule, RuleSet, Severity, Threshold

ID = "flow_loss"

_LOST, _EMPTY, _ALL = "lost", "empty", "all"

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
    several = total(schema.SEQ_LOST, _LOST), total(schema.ZERO_COUNTERS, _EMPTY)
    loss = Column(f'(sum("{_LOST}") + sum("{_EMPTY}")) / sum("{_ALL}")', "loss", Unit.RATIO, (_LOST, _EMPTY, _ALL))
    rule = Rule(
        id=ID,
        title="Flow records are lost",
        family="pipeline",
        severity=Severity.WARNING,
        measures=(
            Measure("loss", _of_exporters(limits, loss), limits.flow_loss_window),
            *(
                Measure(
                    column.name,
                    _of_exporters(limits, _summed(column)),
                    limits.flow_loss_window,
                )
                for column in (*several, Column("", _ALL, Unit.COUNT, ()))
            ),
        ),
        threshold=Threshold("flow_loss", Comparison.ABOVE, limits.flow_loss),
        annotations=texts.annotations(
            summary=summary,
            source=exporter,
            destination="the flow collector",
            protocol="flow export",
            size=(
                f"unknown: {texts.whole(_LOST)} records missing and {texts.whole(_EMPTY)} empty of {texts.whole(_ALL)}"
            ),
            duration=f"within {window}",
            what_to_do=what_to_do,
        ),
        panel=panel_ref("pipeline", "lost"),
        group_by=("rule",),
    )
    return RuleSet((rule,), ())


def _summed(column: Column) -> Column:
    return Column(f'sum("{column.name}")', column.name, Unit.COUNT, (column.name,))


def _of_exporters(limits: Thresholds, column: Column) -> Query:
    """Return a number of each exporter that sent enough records, and lost more than a datagram or sent many empty ones.

    Rows without a loss have no such field, and a sum of nothing is nothing: records times 0 stand beside it.
    """
    status = Select(schema.EXPORTER_STATUS, schema.RAW).by(schema.EXPORTER)
    nothing = "0"
    records = total(schema.EXPORTER_RECORDS)
    sent = status.take(
        scaled(records, nothing, _LOST, Unit.COUNT),
        scaled(records, nothing, _EMPTY, Unit.COUNT),
        total(schema.EXPORTER_RECORDS, _ALL),
    )
    missing = status.take(total(schema.SEQ_LOST, _LOST), total(schema.SEQ_LOST, _ALL))
    empty = status.take(total(schema.ZERO_COUNTERS, _EMPTY))
    together = Select((sent, missing, empty)).by(schema.EXPORTER)
    enough = Condition(f'"{_ALL}" >= {limits.flow_loss_records}', (), (_ALL,))
    parts = tuple(_summed(Column("", name, Unit.COUNT, ())) for name in (_LOST, _EMPTY, _ALL))
    several = any_of(
        Condition(f'"{_LOST}" > {_DATAGRAM}', (), (_LOST,)),
        Condition(f'"{_EMPTY}" > {limits.flow_loss} * "{_ALL}"', (), (_EMPTY, _ALL)),
    )
    whole = Select(together.take(*parts)).where(enough, several).by(schema.EXPORTER)
    return whole.take(column).per_series("Of an exporter.")
