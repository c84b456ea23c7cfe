"""A training node that sends much less than it did in earlier runs, while its job runs."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import cohorts, texts
from rules.common.freshness import fresh_node_seconds, fresh_seconds
from rules.rule import Comparison, Measure, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Query, Select, Unit, beside, compare, count, is_in, newest, scaled
from store.schema import NodeState

ID = "node_dropout"

_JOB_LABELS = (schema.JOB, schema.JOB_CLASS)
_NODE_LABELS = (schema.NODE, schema.GROUP, *_JOB_LABELS)


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
    since = fresh_seconds(cluster)
    of_node = {
        "state": schema.STATE,
        "observed": schema.OBSERVED,
        "expected": schema.EXPECTED,
        "lower": schema.LOWER,
        "sent": schema.SENT_BYTES,
        "missing": schema.MISSING_BYTES,
    }
    gpus = gpus_per_node(cluster, groups)
    usd = gpus * cluster.cost.usd_per_gpu_hour
    nodes = count(schema.STATE)
    members = _cohort(groups)
    of_job = {
        "nodes": members.take(nodes).per_series("Nodes of the job."),
        "gpus": members.take(scaled(nodes, f"{gpus:g}", "gpus", Unit.COUNT)).per_series("GPUs of the job."),
        "usd": members.take(scaled(nodes, f"{usd:g}", "usd", Unit.USD)).per_series("USD an hour of the job."),
    }
    return (
        Measure("low_for", _of_low_nodes(groups, schema.LOW_FOR), since),
        *(Measure(name, _when_low(groups, field), since) for name, field in of_node.items()),
        *(Measure(name, query, fresh_node_seconds(cluster)) for name, query in of_job.items()),
    )


_IS_LOW = (
    compare(schema.STATE, ">=", NodeState.LOW),
    compare(schema.STATE, "<=", NodeState.DOWN),
    # Many at once are told by dropout_digest.
    compare(schema.IN_DIGEST, "=", 0),
)


def _verdicts(groups: tuple[str, ...]) -> Select:
    return Select(schema.BASELINE, schema.RAW).where(is_in(schema.GROUP, groups)).by(*_NODE_LABELS)


def _of_low_nodes(groups: tuple[str, ...], field: schema.Field) -> Query:
    """Return a field of every node whose newest verdict is low or down; nodes ok, learning or blind give no series."""
    # A row has all fields. One selector reads each node once; one for each field, so many times.
    newest_row = _verdicts(groups).take(newest(schema.STATE), beside(schema.IN_DIGEST), beside(field))
    low = Select(newest_row).take(newest(field)).where(*_IS_LOW).by(*_NODE_LABELS)
    return low.per_series(f"{field.text}, of low nodes.")


def _when_low(groups: tuple[str, ...], field: schema.Field) -> Query:
    """Return a field of each node's newest row that is low or down: the same row as above, of nodes that are so now."""
    low = _verdicts(groups).take(newest(field)).where(*_IS_LOW)
    return low.per_series(f"{field.text}, when the node was low.")


def _cohort(groups: tuple[str, ...]) -> Select:
    """Return the nodes of the running jobs, a row each, grouped by job."""
    verdicts = (
        Select(schema.BASELINE, schema.RAW)
        .take(newest(schema.STATE))
        .where(is_in(schema.GROUP, groups))
        .by(schema.NODE, *_JOB_LABELS)
    )
    return Select(verdicts).by(*_JOB_LABELS)


def gpus_per_node(cluster: Cluster, groups: tuple[str, ...]) -> float:
    """Return the mean number of GPUs of the groups' nodes; `cost.gpus_per_node` stands for what the inventory lacks."""
    nodes = [node for node in cluster.nodes if node.group in groups]
    if not nodes:
        return cluster.cost.gpus_per_node
    return sum(node.gpus or cluster.cost.gpus_per_node for node in nodes) / len(nodes)
