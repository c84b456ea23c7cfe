"""Pictures for Grafana's notifications, drawn without a browser: Grafana asks us as it would its image renderer.

Grafana (``pkg/services/rendering/http_mode.go``) asks for the panel that the rule of an alert links to, and keeps the
answer for a minute: what is drawn are the alerts of that panel, the furthest over its limit first.
"""

import json
import threading
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from app.errors import UserError
from cluster.model import Cluster
from cluster.sections.delivery import PICTURE_PATH
from ingest.metrics import Document
from reporting.incident.evidence import evidence_of
from reporting.incident.line_chart import line_picture
from rules.common.texts import SUMMARY
from rules.evaluate.evaluator import Alert, Evaluator
from rules.registry import rules_of
from rules.rule import Comparison, Rule
from store.influx import Store

_VERSION = "4.0.0"
"""Of Grafana's renderer whose questions we answer: it asks for that first."""
_LOOKS_BACK = (0, 60, 300, 900, 1800)
"""Where an alert is looked for, seconds ago: one that has ended is told of once more."""
_SHOWN_SECONDS = 5400
_MOMENTS = 45
_MOST_CHARTS = 3


class AlertPictures:
    """Draws pictures, one at a time.

    Args:
        cluster: whose alerts they are.
        clock: epoch seconds.
    """

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster, self._clock = cluster, clock
        self._rules = rules_of(cluster).rules
        self._lock = threading.Lock()

    def page(self, asked: str) -> Document:
        """Return a PNG, or the version of the renderer that we stand for.

        Args:
            asked: ``/version``, or ``?url=`` and the address of a panel of its own (``/d-solo/UID/...?panelId=ID``).

        Raises:
            UserError: no rule is shown there, or none of them has been over its limit.
            StoreError: the store is away.
        """
        path, _, query = asked.partition("?")
        if path == "/version":
            return Document(json.dumps({"version": _VERSION}).encode(), "application/json")
        place = urlsplit(parse_qs(query).get("url", [""])[0])
        board = place.path.strip("/").split("/")
        panel = parse_qs(place.query).get("panelId", [""])[0]
        if path or "d-solo" not in board[:-1] or not panel.isdecimal():
            raise UserError(f"{PICTURE_PATH}: expected ?url= and the address of one panel", "Grafana asks by itself")
        uid = board[board.index("d-solo") + 1]
        rules = [rule for rule in self._rules if (rule.panel.dashboard_uid, rule.panel.panel_id) == (uid, int(panel))]
        # A store of its own: that of the delivery is another thread's.
        with self._lock, Store(self._cluster.store) as store:
            return Document(self._drawn(store, rules), "image/png")

    def _drawn(self, store: Store, rules: list[Rule]) -> bytes:
        now = int(self._clock())
        found = next((bad for ago in _LOOKS_BACK if (bad := _over_limits(store, rules, now - ago))), [])
        if not found:
            raise UserError(f"{PICTURE_PATH}: no rule of this panel is over its limit", "only alerts have a picture")
        charts = []
        for place, (rule, alert) in enumerate(found[:_MOST_CHARTS], 1):
            labels = {name: alert.labels[name] for name in rule.measures[0].query.tags if name in alert.labels}
            seen = evidence_of(store, rule, labels, now - _SHOWN_SECONDS, now, most=_MOMENTS)
            more = f" · {len(found) - place} more" if place == _MOST_CHARTS < len(found) else ""
            title = f"{alert.severity}: {alert.title}{more}"
            charts.append((seen.chart((), self._cluster.site.time_zone), title, alert.annotations.get(SUMMARY, "")))
        return line_picture(charts)


def _over_limits(store: Store, rules: list[Rule], now: int) -> list[tuple[Rule, Alert]]:
    """Return what is over its limit at a moment, the furthest first."""
    evaluator = Evaluator(store, rules)
    evaluator.tick(now - now % max((rule.interval for rule in rules), default=1))
    by_id = {rule.id: rule for rule in rules}
    bad = [(by_id[alert.rule], alert) for alert in evaluator.alerts() if alert.values]
    return sorted(bad, key=lambda one: _excess(*one), reverse=True)


def _excess(rule: Rule, alert: Alert) -> float:
    value, limit = alert.values[rule.measures[0].name], rule.threshold.value
    is_above = rule.threshold.comparison in {Comparison.ABOVE, Comparison.AT_LEAST}
    return (value if is_above else limit) / max(limit if is_above else value, 1e-9)
