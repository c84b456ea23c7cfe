"""Who is not notified of what while `site.maintenance` lasts.

Only rules that say so of themselves (`Rule.is_operational`) are muted. Which windows count is asked by the first of
an alert's labels, in the order below, that some window names; else by its job, if it has one. Grafana's routes
(`rules.grafana.mute_times`) ask the same.
"""

from collections.abc import Iterator, Mapping

from cluster.model import Cluster, Maintenance, Role
from rules.evaluate.evaluator import ERROR_ALERT, NO_DATA_ALERT
from rules.rule import Rule
from store import schema

NAMING = (schema.EXPORTER, schema.NODE, schema.DST, schema.GROUP, schema.DST_GROUP, schema.JOB)
"""Labels that name what a window may touch."""

Named = tuple[str, str]
"""A label and its value; of any job the value is empty, of what no window names both are."""


def muted_by(cluster: Cluster, rule: Rule | None, labels: Mapping[str, str], moment: float) -> str:
    """Return the `why` of the first window that mutes an alert at an epoch second; empty where none does."""
    # Missing data and errors are told always: rules about security may be blind as well.
    if rule is None or not rule.is_operational or labels.get("alertname") in (ERROR_ALERT, NO_DATA_ALERT):
        return ""
    found = covering(cluster)
    has = [(name, "" if name == schema.JOB else labels[name]) for name in NAMING if labels.get(name)]
    windows = (cluster.site.maintenance[place] for place in found[next((one for one in has if one in found), ("", ""))])
    return next((one.why for one in windows if one.lasts_at(moment, cluster.site.time_zone)), "")


def covering(cluster: Cluster) -> dict[Named, tuple[int, ...]]:
    """Return the windows that touch what a label names, as places in `site.maintenance`, the narrowest labels first."""
    windows = cluster.site.maintenance
    touching: dict[Named, set[int]] = {}
    for place, one in enumerate(windows):
        for named in _touched(one, cluster):
            touching.setdefault(named, set()).add(place)
    everywhere = {place for place, one in enumerate(windows) if one.is_everywhere}
    ordered = sorted(touching, key=lambda named: NAMING.index(named[0]))
    return {
        named: tuple(sorted(touching.get(named, set()) | everywhere))
        for named in dict.fromkeys([*ordered, (schema.JOB, ""), ("", "")])
    }


def _touched(window: Maintenance, cluster: Cluster) -> Iterator[Named]:
    nodes = dict.fromkeys([*window.nodes, *(node.name for node in cluster.nodes if node.group in window.groups)])
    training = {group.id for group in cluster.groups_with(Role.TRAINING)}
    yield from ((schema.EXPORTER, name) for name in window.exporters)
    yield from ((label, name) for label in (schema.NODE, schema.DST) for name in nodes)
    yield from ((label, name) for label in (schema.GROUP, schema.DST_GROUP) for name in window.groups)
    if training and training <= set(window.groups):
        yield schema.JOB, ""
