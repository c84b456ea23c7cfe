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

NAMING = (schema.EXPORTER, schema.NODE, schema.GROUP, schema.DST_GROUP, schema.JOB)
"""Labels that name what a window may touch."""


def muted_by(cluster: Cluster, rule: Rule | None, labels: Mapping[str, str], moment: float) -> str:
    """Return the `why` of the first window that mutes an alert at an epoch second; empty where none does."""
    # Missing data and errors are told always: rules about security may be blind as well.
    if rule is None or not rule.is_operational or labels.get("alertname") in (ERROR_ALERT, NO_DATA_ALERT):
        return ""
    named = set(named_in_windows(cluster))
    has = [name for name in NAMING if labels.get(name)]
    label = next((name for name in has if name == schema.JOB or (name, labels[name]) in named), "")
    windows = (cluster.site.maintenance[one] for one in covering(cluster, label, labels.get(label, "")))
    return next((one.why for one in windows if one.lasts_at(moment, cluster.site.time_zone)), "")


def covering(cluster: Cluster, label: str = "", name: str = "") -> tuple[int, ...]:
    """Return the places, in `site.maintenance`, of the windows that touch what a label names."""
    return tuple(place for place, one in enumerate(cluster.site.maintenance) if _touches(one, cluster, label, name))


def named_in_windows(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Yield the labels and their values of which some window is about; of a whole job the value is empty."""
    windows = cluster.site.maintenance
    for label in NAMING[:-1]:
        named = (name for one in windows for name in _named(one, label))
        yield from ((label, name) for name in dict.fromkeys(named))
    yield schema.JOB, ""


def _named(window: Maintenance, label: str) -> tuple[str, ...]:
    by_label = {schema.EXPORTER: window.exporters, schema.NODE: window.nodes}
    return by_label.get(label, window.groups)


def _touches(window: Maintenance, cluster: Cluster, label: str, name: str) -> bool:
    if window.is_everywhere:
        return True
    if label == schema.JOB:
        training = {group.id for group in cluster.groups_with(Role.TRAINING)}
        return bool(training) and training <= set(window.groups)
    if label == schema.NODE:
        return name in window.nodes or any(node.group in window.groups for node in cluster.nodes if node.name == name)
    return bool(label) and name in _named(window, label)
