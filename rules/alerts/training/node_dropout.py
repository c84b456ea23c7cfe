"""A training node that sends much less than it did in earlier runs, while its job runs."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import cohorts, texts
from rules.common.freshness import fresh_seconds
from rules.rule import Comparison, Measure, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Column, Query, Select, Unit, beside, compare, is_in, newest, scaled
from store.schema import NodeState

ID = "node_dropout"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for the training groups whose collectives are visible."""
    seen = cohorts.watched(cluster, ID)
    groups = seen.sources()
    node, job = f"{{{{ $labels.{schema.NODE} }}}}", f"{{{{ $labels.{schema.JOB} }}}}"
    # The newest verdict is a float to Grafana, and its templates compare like with like only.
    word = texts.number(
        "state", f"{{{{ if eq .Value {NodeState.DOWN}.0 }}}}down{{{{ else }}}}low{{{{ end }}}}", "low or down"
    )
    summary = (
        f"{node} is {word} in job {job}: it sends {texts.share_of('observed')} of what its cohort's median node sends, "
        f"below its limit of {texts.share_of('lower')}, for {texts.duration_of('low_for')} "
        f"(alerts after {format_duration(cluster.thresholds.dropout_for)})."
    )
    what_to_do = (
        "Look at the node's GPUs and its job process first (dmesg, Xid errors, NCCL log), then at its links. If it "
        "does not come back, restart the job without it from the last checkpoint."
    )
    rule = Rule(
        id=ID,
        title="Training node dropped out of its job",
        family="training",
        severity=Severity.CRITICAL,
        measures=_measures(cluster, groups),
        threshold=Threshold("dropout_for", Comparison.AT_LEAST, cluster.thresholds.dropout_for),
        annotations=texts.annotations(
            summary=summary,
            source=f"{node} ({texts.group_title(cluster, schema.GROUP, groups)})",
            destination=f"its cohort, the {texts.whole('nodes')} nodes of job {job}",
            protocol="all",
            size=f"{texts.bytes_of('missing')} missing, {texts.bytes_of('sent')} sent in the last window",
            duration=texts.duration_of("low_for"),
            more=(
                (texts.NODE, node),
                (texts.JOB, f"{job} (class {{{{ $labels.{schema.JOB_CLASS} }}}})"),
                (schema.OBSERVED.name, texts.share_of("observed")),
                (schema.EXPECTED.name, texts.share_of("expected")),
                (schema.LOWER.name, texts.share_of("lower")),
                (
                    texts.COST,
                    f"{texts.whole('usd')} USD an hour while the {texts.whole('gpus')} GPUs of the job wait for it",
                ),
            ),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("training", "observed_expected"),
        # One broken job is one notification, however many of its nodes stop.
        group_by=("rule", schema.JOB),
        is_operational=True,
    )
    return RuleSet((rule,), seen.skipped)


def _measures(cluster: Cluster, groups: tuple[str, ...]) -> tuple[Measure, ...]:
    of_node = {
        "low_for": schema.LOW_FOR,
        "state": schema.STATE,
        "observed": schema.OBSERVED,
        "expected": schema.EXPECTED,
        "lower": schema.LOWER,
        "sent": schema.SENT_BYTES,
        "missing": schema.MISSING_BYTES,
        "nodes": schema.JOB_NODES,
        "gpus": schema.JOB_GPUS,
    }
    queries = {name: _of_low_nodes(groups, newest(field)) for name, field in of_node.items()}
    usd = scaled(newest(schema.JOB_GPUS), f"{cluster.cost.usd_per_gpu_hour:g}", "usd", Unit.USD)
    queries[usd.name] = _of_low_nodes(groups, usd)
    return tuple(Measure(name, query, fresh_seconds(cluster)) for name, query in queries.items())


_IS_LOW = (
    compare(schema.STATE, ">=", NodeState.LOW),
    compare(schema.STATE, "<=", NodeState.DOWN),
    # Many at once are told by dropout_digest.
    compare(schema.IN_DIGEST, "=", 0),
)
_LABELS = (schema.NODE, schema.GROUP, schema.JOB, schema.JOB_CLASS)


def _of_low_nodes(groups: tuple[str, ...], column: Column) -> Query:
    """Return a column of every node whose newest verdict is low or down; nodes ok, learning or blind give no series."""
    # A row has all fields, and of a node that is low no longer there is one that says so.
    others = [beside(field) for field in schema.LOW_NODE.fields if field is not schema.STATE]
    verdicts = Select(schema.LOW_NODE, schema.RAW).where(is_in(schema.GROUP, groups)).by(*_LABELS)
    newest_row = verdicts.take(newest(schema.STATE), *others)
    low = Select(newest_row).take(column).where(*_IS_LOW).by(*_LABELS)
    return low.per_series(f"{column.name}, of low nodes.")
