"""What the rules about odd ways out share: each shape of `analysis.detectors.egress.shapes` belongs to one rule."""

from collections.abc import Mapping

from analysis.detectors.egress.exfiltration_study import watched
from cluster.model import EXTERNAL, Cluster
from dashboards.registry import panel_ref
from rules.common import texts, verdicts
from rules.rule import SLOW_INTERVAL_SECONDS, Comparison, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, compare, is_in
from store.schema import Field, Shape

LABELS = schema.SHAPE.tags

_SINCE = 900
"""Three rows of an incident: one may be late."""

_MEASURES: dict[str, Field] = {
    "bytes": schema.EVENT_BYTES,
    "duration": schema.EVENT_SECONDS,
    "sources": schema.EVENT_SOURCES,
    "destinations": schema.EVENT_DESTINATIONS,
    "others": schema.OTHER_TALKS,
}


def rule_of(
    cluster: Cluster, rule_id: str, *, title: str, words: Mapping[Shape, str], threshold: str, what_to_do: str
) -> RuleSet:
    """Return the rule about some shapes.

    Args:
        cluster: groups.
        rule_id: its id.
        title: the alert's name.
        words: what each shape means, behind "SOURCE sent BYTES to DESTINATION".
        threshold: the key that sets when a row is written; the rows themselves are the verdict.
        what_to_do: the next step.
    """
    groups = watched(cluster)
    if not groups:
        raise NoRuleError(rule_id, "no group holds models or can read them, as far as flows show")
    group = texts.group_title(cluster, schema.SRC_GROUP, (one.id for one in groups))
    source = f"{texts.one_or(schema.SRC, 'sources', 'sources')} ({group})"
    outside = texts.plain(cluster.title(EXTERNAL))
    destination = f"{texts.one_or(schema.DST, 'destinations', 'destinations')} ({texts.PLACE}{outside})"
    others = texts.number("others", '{{ if gt .Value 0.0 }} and {{ printf "%.0f" .Value }} others{{ end }}', "")
    why = texts.chosen(schema.KIND, words.items()) if len(words) > 1 else next(iter(words.values()))
    summary = (
        f"{source} sent {texts.bytes_of('bytes')} to {destination}{why}. "
        f"Largest: {{{{ $labels.{schema.LARGEST} }}}}{others}."
    )
    kinds = is_in(schema.KIND, [kind.value for kind in words])
    stored = Select(schema.SHAPE, schema.SHAPE.kept).where(compare(schema.LEAK_UNTIL, ">", 0), kinds).by(*LABELS)
    rule = Rule(
        id=rule_id,
        title=title,
        family="slow",
        severity=Severity.WARNING,
        measures=verdicts.measures(stored, _MEASURES, _SINCE, "an incident"),
        threshold=Threshold(threshold, Comparison.ABOVE, 0),
        annotations=texts.annotations(
            source=source,
            destination=destination,
            summary=summary,
            protocol=f"{{{{ $labels.{schema.PROTO} }}}} ({{{{ $labels.{schema.SERVICE} }}}})",
            size=texts.bytes_of("bytes"),
            duration=texts.duration_of("duration"),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("egress", "shapes"),
        group_by=("rule", schema.SRC_GROUP),
        interval=SLOW_INTERVAL_SECONDS,
    )
    return RuleSet((rule,), ())
