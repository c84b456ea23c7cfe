"""An exporter that cluster.yaml names sends no flow records any more."""

import re
from collections.abc import Sequence

from app.units import format_duration
from cluster.model import Cluster, Exporter, ExportProtocol
from dashboards import questions
from dashboards.registry import panel_ref
from rules.common import texts
from rules.common.freshness import fresh_seconds
from rules.rule import Comparison, Measure, NoDataPolicy, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import is_in

ID = "exporter_silent"

_NAMES = {ExportProtocol.NETFLOW: "NetFlow/IPFIX", ExportProtocol.SFLOW: "sFlow"}


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for the exporters of cluster.yaml; others come and go as they like."""
    watched = tuple(exporter for exporter in cluster.exporters if exporter.watched)
    if not watched:
        raise NoRuleError(ID, "cluster.yaml names no exporter that is watched")
    named = is_in(schema.EXPORTER, [exporter.name for exporter in watched])
    age = questions.exporter_ages().where(named).per_series("Seconds since its newest record arrived.")
    exporter = f"{{{{ $labels.{schema.EXPORTER} }}}}"
    summary = (
        f"Exporter {exporter} has sent no flow records for {texts.duration_of('age')} (alerts after "
        f"{format_duration(cluster.thresholds.exporter_silent)}): what only it sees is blind, not quiet."
    )
    what_to_do = (
        "Check that the device is up, that its flow export is on, and that its packets reach the collector (tcpdump "
        "on the collector's port). All exporters of one collector? Then look at that, and with Kafka at its "
        "relay (`relay_silent`)."
    )
    rule = Rule(
        id=ID,
        title="Exporter sends no flow records",
        family="pipeline",
        severity=Severity.WARNING,
        # Lowest over the range and over all bridges: one of them may never have heard of the exporter.
        measures=(Measure("age", age, since=fresh_seconds(cluster)),),
        threshold=Threshold("exporter_silent", Comparison.ABOVE, cluster.thresholds.exporter_silent),
        annotations=texts.annotations(
            summary=summary,
            source=exporter,
            destination="the flow collector",
            protocol=_protocol(watched),
            size="none reported in that time",
            duration=texts.duration_of("age"),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("pipeline", "exporter_age"),
        group_by=("rule",),
        is_operational=True,
        # While ingest itself is away nothing is known about exporters: keep what was known last.
        no_data=NoDataPolicy.KEEP_LAST,
    )
    return RuleSet((rule,), ())


def _protocol(exporters: Sequence[Exporter]) -> str:
    """Return the export protocol, chosen by the exporter's name where both kinds are in use."""
    sflow = [exporter.name for exporter in exporters if exporter.protocol is ExportProtocol.SFLOW]
    if not sflow:
        return _NAMES[ExportProtocol.NETFLOW]
    if len(sflow) == len(exporters):
        return _NAMES[ExportProtocol.SFLOW]
    pattern = "|".join(re.escape(name) for name in sflow)
    # Without data there is no exporter, and nothing matches nothing.
    return (
        f"{{{{ with $labels.{schema.EXPORTER} }}}}{{{{ if match `^({pattern})$` . }}}}{_NAMES[ExportProtocol.SFLOW]}"
        f"{{{{ else }}}}{_NAMES[ExportProtocol.NETFLOW]}{{{{ end }}}}{{{{ else }}}}flow export{{{{ end }}}}"
    )
