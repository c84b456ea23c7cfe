"""What the rules about odd ways out share: each shape of `analysis.detectors.egress.shapes` belongs to one rule."""

from collections.abc import Mapping

from analysis.detectors.egress.exfiltration_study import watched
from cluster.model import EXTERNAL, Cluster
from dashboards.registry import panel_ref
from rules.common import conversations, incidents, texts
from rules.rule import SLOW_INTERVAL_SECONDS, Comparison, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import is_in
from store.schema import Shape


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
    source, destination = incidents.source(cluster, groups), incidents.destination(cluster, (EXTERNAL,))
    why = texts.chosen(schema.KIND, words.items()) if len(words) > 1 else next(iter(words.values()))
    summary = f"{source} sent {texts.bytes_of('bytes')} to {destination}{why}. {incidents.LARGEST}"
    kinds = is_in(schema.KIND, [kind.value for kind in words])
    rule = Rule(
        id=rule_id,
        title=title,
        family="slow",
        severity=Severity.WARNING,
        measures=incidents.measures(schema.SHAPE, kinds),
        threshold=Threshold(threshold, Comparison.ABOVE, 0),
        annotations=conversations.annotations(
            source, destination, summary=summary, what_to_do=what_to_do, protocol=incidents.PROTOCOL
        ),
        panel=panel_ref("egress", "shapes"),
        group_by=("rule", schema.SRC_GROUP),
        interval=SLOW_INTERVAL_SECONDS,
    )
    return RuleSet((rule,), ())
