"""Many nodes of one job are low or down at once: one alert in place of one for each, for it is most often one cause."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import cohorts, texts
from rules.common.freshness import fresh_seconds
from rules.rule import Comparison, Measure, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Column, Query, Select, Unit, newest, scaled

ID = "dropout_digest"

_LABELS = (schema.JOB, schema.JOB_CLASS, schema.WORST)


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, unless flow records see no training group's collectives."""
    seen = cohorts.watched(cluster, ID)
    limits = cluster.thresholds
    worst = f"{{{{ $labels.{schema.WORST} }}}}"
    summary = (
        f"{texts.whole('low')} of the {texts.whole('nodes')} nodes of job {cohorts.JOB} are low or down, first of all "
        f"{worst}, for {texts.duration_of('low_for')} (alerts after {format_duration(limits.dropout_for)}; more than "
        f"{limits.dropout_digest} nodes are told as one)."
    )
    what_to_do = (
        "So many at once have one cause: a switch, a rack's power, a pod's uplink, a job that is falling apart. See "
        "what the nodes have in common, and whether an exporter fell silent. The Stragglers board lists all of them."
    )
    rule = Rule(
        id=ID,
        title="Many training nodes dropped out of a job",
        family="training",
        severity=Severity.CRITICAL,
        measures=_measures(cluster),
        threshold=Threshold("dropout_for", Comparison.AT_LEAST, limits.dropout_for),
        annotations=texts.annotations(
            summary=summary,
            source=f"{texts.whole('low')} nodes, the worst: {worst}",
            destination=f"their cohort, the {texts.whole('nodes')} nodes of job {cohorts.JOB}",
            protocol="all",
            size=f"{texts.bytes_of('missing')} missing, {texts.bytes_of('sent')} sent in the last window",
            duration=texts.duration_of("low_for"),
            more=(
                (texts.NODE, worst),
                (texts.JOB, f"{cohorts.JOB} (class {{{{ $labels.{schema.JOB_CLASS} }}}})"),
                (
                    texts.COST,
                    f"{texts.whole('usd')} USD an hour while the {texts.whole('gpus')} GPUs of the job wait",
                ),
            ),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("training", "cohort"),
        group_by=("rule", schema.JOB),
        is_operational=True,
    )
    return RuleSet((rule,), seen.skipped)


def _measures(cluster: Cluster) -> tuple[Measure, ...]:
    since = fresh_seconds(cluster)
    dollars = scaled(newest(schema.JOB_GPUS), f"{cluster.cost.usd_per_gpu_hour:g}", "usd", Unit.USD)
    columns: dict[str, Column] = {
        "low_for": newest(schema.LOW_FOR),
        "low": newest(schema.LOW_NODES),
        "nodes": newest(schema.JOB_NODES),
        "missing": newest(schema.MISSING_BYTES),
        "sent": newest(schema.SENT_BYTES),
        "gpus": newest(schema.JOB_GPUS),
        "usd": dollars,
    }
    return tuple(Measure(name, _query(column), since) for name, column in columns.items())


def _query(column: Column) -> Query:
    rows = Select(schema.DROPOUT_DIGEST, schema.RAW).take(column).by(*_LABELS)
    return rows.per_series("Of jobs with so many low nodes that they are told as one.")
