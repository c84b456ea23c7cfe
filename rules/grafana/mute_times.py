"""`site.maintenance` for Grafana: mute timings, and the routes that are muted by them.

A route's mute timings are its own, not its children's, and an alert takes the first child that matches: so what a
window touches is split into classes of names with the same windows, and each class has its routes.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from cluster.model import WEEK, Cluster, Maintenance
from rules.maintenance import covering
from rules.rule import Rule
from store import schema

_DAY = timedelta(days=1)
_UNTIL_MIDNIGHT = "24:00"


def name_of(place: int) -> str:
    """Return the name of the mute timing of a window, by its place in `site.maintenance`."""
    return f"clusterflow-maintenance-{place + 1}"


def mute_times(cluster: Cluster, organisation: int) -> list[dict[str, Any]]:
    """Return a mute timing for each window."""
    return [
        {"orgId": organisation, "name": name_of(place), "time_intervals": _intervals(one, cluster)}
        for place, one in enumerate(cluster.site.maintenance)
    ]


def routes(cluster: Cluster, rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """Return the routes of operational rules, the narrowest first, grouped as the rules are; none without windows."""
    groupings: dict[tuple[str, ...], list[str]] = {}
    for rule in rules:
        if rule.is_operational:
            groupings.setdefault(rule.group_by, []).append(rule.id)
    classes: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (label, name), windows in covering(cluster).items():
        classes.setdefault((label, windows), []).append(name)
    return [
        {
            "object_matchers": [["rule", "=~", "|".join(ids)], *_matchers(label, names)],
            "group_by": list(labels),
            "mute_time_intervals": [name_of(one) for one in windows],
        }
        for (label, windows), names in classes.items()
        for labels, ids in groupings.items()
        if windows
    ]


def _matchers(label: str, names: Sequence[str]) -> list[list[str]]:
    if not label:
        return []
    return [[label, "=~", ".+" if label == schema.JOB else "|".join(map(re.escape, names))]]


def _intervals(window: Maintenance, cluster: Cluster) -> list[dict[str, Any]]:
    if isinstance(window.start, datetime) and isinstance(window.end, datetime):
        # In UTC, as they are: the site's clock shows an hour of autumn twice.
        first, last, place = window.start, window.end, "UTC"
        dates = [first.date() + day * _DAY for day in range((last.date() - first.date()).days + 1)]
        days = [
            (
                f"{first:%H:%M}" if date == first.date() else "00:00",
                f"{last:%H:%M}" if date == last.date() else _UNTIL_MIDNIGHT,
                {"days_of_month": [str(date.day)], "months": [str(date.month)], "years": [str(date.year)]},
            )
            for date in dates
        ]
    else:
        place = cluster.site.time_zone.key
        days = [(begin, end, {"weekdays": [WEEK[day].value]}) for day, begin, end in window.stretches()]
    return [
        {"times": [{"start_time": begin, "end_time": end}], **when, "location": place}
        for begin, end, when in days
        if begin < end
    ]
