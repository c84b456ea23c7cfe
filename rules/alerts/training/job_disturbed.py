"""Nodes of another job, of none, or of a group that has no business there, send much to nodes of a job."""

from app.units import format_duration, format_size
from cluster.model import Cluster, Role
from dashboards.registry import panel_ref
from rules.common import texts, verdicts
from rules.common.freshness import final_seconds
from rules.rule import Comparison, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select
from store.schema import Disturber

ID = "job_disturbed"

_FIELDS = {
    "bytes": schema.EVENT_BYTES,
    "sources": schema.EVENT_SOURCES,
    "targets": schema.EVENT_DESTINATIONS,
    "seconds": schema.EVENT_SECONDS,
}


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, where nodes train."""
    if not cluster.groups_with(Role.TRAINING):
        raise NoRuleError(ID, "no group has the role training")
    limits = cluster.thresholds
    job = f"{{{{ $labels.{schema.JOB} }}}}"
    group = texts.group_title(cluster, schema.SRC_GROUP, [one.id for one in cluster.inside_groups()])
    source = (
        f'{{{{ if eq $labels.{schema.KIND} "{Disturber.GROUP.value}" }}}}{group}'
        f'{{{{ else if eq $labels.{schema.SRC} "{schema.OTHER}" }}}}{texts.whole("sources")} nodes of {group}'
        f"{{{{ else }}}}{{{{ $labels.{schema.SRC} }}}} ({group}){{{{ end }}}}"
        f'{{{{ if eq $labels.{schema.FROM_JOB} "{schema.NO_JOB}" }}}}, in no job'
        f"{{{{ else }}}}, of job {{{{ $labels.{schema.FROM_JOB} }}}}{{{{ end }}}}"
    )
    summary = (
        f"{source}: {texts.bytes_of('bytes')} to {texts.many('targets', 'node')} of job {job}, "
        f"which is not theirs, within {texts.duration_of('seconds')} (alerts above "
        f"{format_size(limits.disturbance_bytes)} within {format_duration(limits.disturbance_window)})."
    )
    since = final_seconds(cluster)
    stored = Select(schema.DISTURBANCE, schema.RAW).by(*schema.DISTURBANCE.tags)
    rule = Rule(
        id=ID,
        title="Job disturbed by others",
        family="training",
        severity=Severity.WARNING,
        measures=verdicts.measures(stored, _FIELDS, since, "a disturber"),
        threshold=Threshold("disturbance_bytes", Comparison.ABOVE, limits.disturbance_bytes),
        annotations=texts.annotations(
            summary=summary,
            source=source,
            destination=f"{texts.one_or(schema.DST, 'targets', 'nodes')} of job {job}",
            protocol="all",
            size=texts.bytes_of("bytes"),
            duration=texts.duration_of("seconds"),
            more=((texts.JOB, f"{job} (class {{{{ $labels.{schema.JOB_CLASS} }}}})"),),
            what_to_do=(
                "See what runs on the source: processes that outlived their job, a copy between nodes, a wrong list of "
                "hosts. Stop it or move it to another plane; then look whether the job's rate recovers."
            ),
        ),
        panel=panel_ref("training", "disturbances"),
        group_by=("rule", schema.JOB),
    )
    return RuleSet((rule,), ())
