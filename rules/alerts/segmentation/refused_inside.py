"""A source inside that a cloud's security groups refuse at many destinations or ports: a scan that meets walls."""

from app.units import format_duration
from cluster.model import Cluster, Role
from dashboards.registry import panel_ref
from rules.common import texts
from rules.rule import Comparison, Measure, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Condition, Named, Select, all_of, any_of, compare, count, highest, is_in, total

ID = "refused_inside"

_TARGETS = "targets"
_LABELS = (schema.SRC, schema.SRC_GROUP, schema.DST_GROUP)


def build(cluster: Cluster) -> RuleSet:
    """Return the rule for all sources inside, by the group that refuses; none without a cloud's flow logs."""
    if cluster.cloud.format is None:
        raise NoRuleError(ID, "only a cloud's flow logs have what was refused: cluster.yaml has no cloud.format")
    inside = [group.id for group in cluster.inside_groups()]
    roles = (Role.MANAGEMENT, Role.MODEL_STORAGE)
    protected = [group.id for group in cluster.inside_groups() if group.sensitive or group.role in roles]
    limits = cluster.thresholds
    within = limits.violation_window
    each = Select(schema.DENIED, schema.RAW).take(total(schema.FLOWS), highest(schema.PORTS))
    each = each.where(is_in(schema.SRC_GROUP, inside)).by(schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP)
    # Late answers to calls that are over have no port that was tried.
    targets, flows, ports = count(schema.PORTS, _TARGETS), total(schema.FLOWS), highest(schema.PORTS)
    called = Select(each).take(targets, flows, ports).where(compare(schema.PORTS, ">=", 1)).by(*_LABELS)

    def at_least(limit: int) -> tuple[Condition, Condition]:
        return compare(targets, ">=", limit), compare(schema.PORTS, ">=", limit)

    enough = any_of(
        *at_least(limits.refused_targets),
        *(
            [all_of(is_in(schema.DST_GROUP, protected), any_of(*at_least(limits.refused_protected)))]
            if protected
            else []
        ),
    )
    names: dict[str, Named] = {_TARGETS: targets, "ports": schema.PORTS, "flows": schema.FLOWS}
    measures = tuple(
        Measure(
            name,
            Select(called)
            .take(highest(field))
            .where(enough)
            .by(*_LABELS)
            .per_series(f"{name} of a source.".capitalize()),
            within,
        )
        for name, field in names.items()
    )
    ids = [group.id for group in cluster.groups]
    source = f"{texts.named(schema.SRC)} ({texts.group_title(cluster, schema.SRC_GROUP, inside)})"
    destination = f"{texts.whole(_TARGETS)} destinations of {texts.group_title(cluster, schema.DST_GROUP, ids)}"
    tries = (
        f"{texts.whole('flows')} refused flow records, ports tried at one destination: {texts.whole('ports')} at most"
    )
    duration = f"within {format_duration(within)}"
    summary = (
        f"{source} was refused by {destination} {duration}: {tries} (alerts from {limits.refused_targets} destinations "
        f"or ports, where the group is protected from {limits.refused_protected})."
    )
    rule = Rule(
        id=ID,
        title="A machine inside is refused again and again",
        family="segmentation",
        severity=Severity.WARNING,
        measures=measures,
        # The query decides; whatever passes it has a destination.
        threshold=Threshold("refused_targets", Comparison.ABOVE, 0),
        annotations=texts.annotations(
            summary=summary,
            source=source,
            destination=destination,
            protocol="all",
            size=f"none: {tries}",
            duration=duration,
            what_to_do=(
                "Ask the owner of the source what it looks for there. If nobody knows, treat it as compromised: take "
                "it off the network, and see what it was let through to. What belongs there needs a rule of its own "
                "in the security group."
            ),
        ),
        panel=panel_ref("segmentation", "denied"),
    )
    return RuleSet((rule,), ())
