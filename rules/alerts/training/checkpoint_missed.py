"""A job has not begun the checkpoint that was due: by its declared schedule, or by the rhythm of its earlier ones."""

from app.units import format_duration
from cluster.model import Cluster, Role
from dashboards.registry import panel_ref
from rules.common import texts, verdicts
from rules.common.freshness import fresh_seconds
from rules.common.visibility import visible_pairs
from rules.rule import Comparison, Measure, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, compare

ID = "checkpoint_missed"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, unless flow records see no training group write to all of the storage."""
    training = cluster.groups_with(Role.TRAINING)
    storage = cluster.groups_with(Role.STORAGE) or cluster.groups_with(Role.MODEL_STORAGE)
    if not training or not storage:
        missing = "training" if not training else "storage"
        raise NoRuleError(ID, f"no group has the role {missing}")
    targets = tuple(group.id for group in storage)
    seen = visible_pairs(cluster, ID, training, targets)
    # What a job writes where nobody sees it may be its checkpoint: the analysis judges no job of such a group.
    judged = [group.id for group in training if all((group.id, target) in seen.pairs for target in targets)]
    if not judged:
        return RuleSet((), seen.skipped)
    job = f"{{{{ $labels.{schema.JOB} }}}}"
    limit = cluster.thresholds.checkpoint_overdue
    summary = (
        f"Job {job} has begun no checkpoint when one was due: it is {texts.duration_of(schema.OVERDUE.name)} beyond "
        f"due time and tolerance (alerts after {format_duration(limit)}). What it computed in the last "
        f"{texts.duration_of('age')} is not saved: a crash now would lose {texts.whole('usd')} USD of GPU time."
    )
    what_to_do = (
        "Look at the job's log for the last save: out of space, a hung writer, a changed interval. Look at storage: "
        "can the nodes write to it at all? If the job is healthy, make it save now before anything else is tried."
    )
    rule = Rule(
        id=ID,
        title="Checkpoint missed",
        family="training",
        severity=Severity.WARNING,
        measures=_measures(cluster),
        threshold=Threshold("checkpoint_overdue", Comparison.ABOVE, limit),
        annotations=texts.annotations(
            summary=summary,
            source=f"job {job}, {texts.whole('gpus')} GPUs",
            destination=" or ".join(texts.plain(cluster.title(target)) for target in targets),
            protocol="all",
            size=f"none since then; {texts.bytes_of('last')} in the last complete checkpoint",
            duration=texts.duration_of(schema.OVERDUE.name),
            more=(
                (texts.JOB, f"{job} (class {{{{ $labels.{schema.JOB_CLASS} }}}})"),
                (schema.CHECKPOINT_AGE.name, texts.duration_of("age")),
                (schema.PERIOD.name, texts.duration_of(schema.PERIOD.name)),
                (
                    texts.COST,
                    f"{texts.whole('usd')} USD at risk: {texts.whole('gpus')} GPUs for {texts.duration_of('age')}",
                ),
            ),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("checkpoints", "overdue_over_time"),
        group_by=("rule", schema.JOB),
        is_operational=True,
    )
    return RuleSet((rule,), seen.skipped)


def _measures(cluster: Cluster) -> tuple[Measure, ...]:
    """Return the newest numbers of each running job whose checkpoints are judged; all from the same points."""
    fields = {
        schema.OVERDUE.name: schema.OVERDUE,
        "age": schema.CHECKPOINT_AGE,
        schema.PERIOD.name: schema.PERIOD,
        "last": schema.LAST_BYTES,
        "gpus": schema.JOB_GPUS,
        "usd": schema.USD_AT_RISK,
    }
    judged = compare(schema.IS_REGULAR, "=", 1)
    stored = Select(schema.CHECKPOINT_STATUS, schema.RAW).where(judged).by(schema.JOB, schema.JOB_CLASS)
    return verdicts.measures(stored, fields, fresh_seconds(cluster), "jobs that are judged")
