"""Grafana's contact point for the alert history: with `delivery.alerts: grafana` it tells `clusterflow deliver`."""

from typing import Any

from cluster.model import AlertsFrom, Cluster
from cluster.sections.delivery import HOOK_PATH
from dashboards.provision import reference

NAME = "clusterflow-history"


def receivers(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the receiver of the contact point; none where our own evaluator keeps the history, or nobody does."""
    delivery = cluster.delivery
    if delivery.alerts is not AlertsFrom.GRAFANA or delivery.token is None:
        return []
    settings = {
        "url": (delivery.url or f"http://{delivery.listen}").rstrip("/") + HOOK_PATH,
        "httpMethod": "POST",
        "authorization_scheme": "Bearer",
        "authorization_credentials": reference(delivery.token),
    }
    return [{"uid": NAME, "type": "webhook", "settings": settings}]


def routes(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the route that takes every alert there, and lets it go on to everybody else."""
    return [{"receiver": NAME, "group_by": ["rule"], "continue": True} for _ in receivers(cluster)]
