"""What the rules about whole cohorts share: `cohort_slowdown` and `job_stalled` look at the same rows."""

from cluster.model import Cluster, Role
from rules.common import texts
from rules.common.freshness import fresh_seconds
from rules.common.visibility import VisiblePairs, visible_of
from rules.rule import Measure, NoRuleError
from store import schema
from store.influxql import BITS, Column, Query, Select, Unit, compare, newest, scaled

LABELS = (schema.JOB, schema.JOB_CLASS)
STATE_FOR = "state_for"
JOB = f"{{{{ $labels.{schema.JOB} }}}}"


def watched(cluster: Cluster, rule_id: str) -> VisiblePairs:
    """Return the training groups whose collectives flow records see; NoRuleError if there are none."""
    training = cluster.groups_with(Role.TRAINING)
    if not training:
        raise NoRuleError(rule_id, "no group has the role training")
    return visible_of(cluster, rule_id, ((group.id, group.id) for group in training))


def measures(cluster: Cluster, state: int, *, rates: bool) -> tuple[Measure, ...]:
    """Return numbers of every job whose newest verdict is this state; the first is for how long it has been.

    `rates`: with its rate and what is expected of it, which a class has that was learnt. Elsewhere the fields are not
    there, and a single query without an answer would silence the whole rule.
    """
    since = fresh_seconds(cluster)
    dollars = cluster.cost.usd_per_gpu_hour
    columns: dict[str, tuple[schema.Field, Column]] = {
        STATE_FOR: (schema.STATE_FOR, newest(schema.STATE_FOR)),
        "missing": (schema.MISSING_BYTES, newest(schema.MISSING_BYTES)),
        "nodes": (schema.JOB_NODES, newest(schema.JOB_NODES)),
        "gpus": (schema.JOB_GPUS, newest(schema.JOB_GPUS)),
        "lost": (schema.USD, newest(schema.USD)),
        "usd": (schema.JOB_GPUS, scaled(newest(schema.JOB_GPUS), f"{dollars:g}", "usd", Unit.USD)),
    }
    if rates:
        fields = {"rate": schema.COHORT_RATE, "expected": schema.EXPECTED_RATE, "lower": schema.LOWER_RATE}
        for name, field in fields.items():
            columns[name] = field, scaled(newest(field), f"{BITS}", name, Unit.BITS_PER_SECOND)
    return tuple(Measure(name, _of_jobs(state, *one), since) for name, one in columns.items())


def _of_jobs(state: int, field: schema.Field, column: Column) -> Query:
    latest = Select(schema.COHORT, schema.RAW).take(
        *(newest(one) for one in dict.fromkeys((schema.COHORT_STATE, field)))
    )
    inner = latest.by(*LABELS)
    word = schema.COHORT_STATE_WORDS[state]
    here = compare(schema.COHORT_STATE, "=", state)
    return Select(inner).take(column).where(here).by(*LABELS).per_series(f"{field.text}, of jobs that are {word}.")


def cost_texts() -> texts.Annotations:
    """Return the job, and what waiting has cost and costs an hour."""
    return (
        (texts.JOB, f"{JOB} (class {{{{ $labels.{schema.JOB_CLASS} }}}})"),
        (
            texts.COST,
            f"{texts.whole('lost')} USD so far; its {texts.whole('gpus')} GPUs cost {texts.whole('usd')} USD an hour",
        ),
    )
