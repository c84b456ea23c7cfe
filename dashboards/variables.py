"""Dashboard variables: the choices on top of a board, and the links that set them, share these names."""

from typing import Any

from grafanalib import core

from cluster.model import Cluster, Plane
from dashboards.palette import group_titles
from dashboards.panels import source
from store import schema
from store.influxql import Condition, chosen, tag_values

SOURCE = "src"
DESTINATION = "dst"
PLANE = "plane"
SERVICE = "service"
GROUP_BY = "by"
ORDER = "order"
LIMIT = "limit"
GROUPS = (SOURCE, DESTINATION)
"""The choices that boards about groups share: links from one to the other carry them along."""
NODE = "node"
JOB = "job"
KIND = "kind"
SEVERITY = "severity"

ALL = "$__all"
"""What a link sets to choose everything."""

LARGEST = "1"
SMALLEST = "-1"
"""Values of ORDER: the sign that the ranked sum is multiplied with."""

_EVERYTHING = ".*"
_EACH_TIME, _HIDDEN = 2, 2


def chosen_groups() -> tuple[Condition, Condition]:
    """Return the conditions that source and destination are of the groups that a board shows."""
    return chosen(schema.SRC_GROUP, SOURCE), chosen(schema.DST_GROUP, DESTINATION)


def fill_in(name: str) -> str:
    """Return how a query writes the value of a single-value variable."""
    return f"${{{name}:raw}}"


def choice(name: str, label: str, options: dict[str, str], default: str) -> core.Template:
    """Return a variable with one value of these: value -> title."""
    listed = [{"selected": value == default, "text": title, "value": value} for value, title in options.items()]
    query = ", ".join(f"{_escaped(title)} : {_escaped(value)}" for value, title in options.items())
    return core.Template(name=name, label=label, type="custom", query=query, options=listed, default=default)


def choices(name: str, label: str, options: dict[str, str]) -> core.Template:
    """Return a variable with any of these, all of them at first: value -> title."""
    everything = {"selected": True, "text": "All", "value": ALL}
    listed = [everything]
    listed += [{"selected": False, "text": title, "value": value} for value, title in options.items()]
    query = ", ".join(f"{_escaped(title)} : {_escaped(value)}" for value, title in options.items())
    return core.Template(
        name=name, label=label, type="custom", query=query, options=listed, multi=True, includeAll=True,
        allValue=_EVERYTHING,
    )  # fmt: skip


def stored(cluster: Cluster, name: str, label: str, measurement: schema.Measurement, tag: str) -> core.Template:
    """Return a variable with any of the values that a tag has in the store, all of them at first."""
    query = tag_values(measurement, tag)
    return _Stored(
        name=name, label=label, type="query", query=query, dataSource=source(cluster), multi=True, includeAll=True,
        allValue=_EVERYTHING,
    )  # fmt: skip


def found(cluster: Cluster, name: str, query: str) -> core.Template:
    """Return a hidden variable: everything that a query finds, each time the board is refreshed."""
    return _Stored(
        name=name, type="query", query=query, dataSource=source(cluster), multi=True, includeAll=True,
        refresh=_EACH_TIME, hide=_HIDDEN,
    )  # fmt: skip


def groups(cluster: Cluster, name: str, label: str, *more: str) -> core.Template:
    """Return a variable with any of the cluster's groups, and of more that a measurement has."""
    return choices(name, label, group_titles(cluster) | {one: cluster.title(one) for one in more})


def from_and_to(cluster: Cluster, *more: str) -> tuple[core.Template, core.Template]:
    """Return the variables with the groups that send, `more` among them, and with those that receive."""
    return groups(cluster, SOURCE, "From", *more), groups(cluster, DESTINATION, "To")


def planes() -> core.Template:
    """Return a variable with any of the planes."""
    return choices(PLANE, "Plane", {plane.value: plane.value for plane in Plane})


class _Stored(core.Template):  # type: ignore[misc]
    """grafanalib gives a query variable one string as text and value; All has two."""

    def to_json_data(self) -> dict[str, Any]:
        shared: dict[str, Any] = super().to_json_data()
        return shared | {"current": {"selected": True, "text": ["All"], "value": [ALL]}}


def _escaped(text: str) -> str:
    """Commas end an option in Grafana's list unless a backslash stands before them."""
    return text.replace(",", "\\,")
