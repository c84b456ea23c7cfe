"""Alerts from Grafana: an endpoint for its webhook contact point.

POST /grafana with the body that Grafana sends (one notification, several alerts), bearing the token, as `Authorization:
Bearer` or as the password of basic authentication. An answer of 200 means that its events are on disk; of 503, that
Grafana should send it again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from app.errors import ClusterflowError, UserError
from app.http_server import GuardedHandler, GuardedServer, check_token, may_enter
from app.log import Log
from cluster.model import EventSeverity
from cluster.sections.delivery import HOOK_PATH
from delivery.alert_events import FAULTS, Report
from rules.rule import Rule

MOST_BYTES = 32 << 20
"""Longest body: Grafana sends all alerts of a rule in one, with some kilobytes of texts and links for each."""

_MOST_ALERTS = 10_000
_MOST_TEXT = 10_000
_MOST_CONNECTIONS = 16
_SHORTEST_TOKEN = 8

Take = Callable[[Sequence[Report]], None]
"""Keeps reports for good; ClusterflowError if it cannot."""


def reports_of(body: object, rules: Mapping[str, Rule]) -> list[Report]:
    """Return the alerts of a notification.

    Args:
        body: what Grafana posted.
        rules: ours, for the names of their values.

    Raises:
        ValueError: it is no notification of Grafana's.
    """
    alerts = body.get("alerts") if isinstance(body, dict) else None
    if not isinstance(alerts, list) or len(alerts) > _MOST_ALERTS:
        raise ValueError(f"alerts: expected a list of at most {_MOST_ALERTS:,}")
    return [_report(alert, rules, f"alerts[{index}]") for index, alert in enumerate(alerts)]


def _report(alert: object, rules: Mapping[str, Rule], where: str) -> Report:
    if not isinstance(alert, dict) or alert.get("status") not in ("firing", "resolved"):
        raise ValueError(f"{where}.status: expected firing or resolved")
    labels = _texts(alert.get("labels"), f"{where}.labels")
    annotations = _texts(alert.get("annotations"), f"{where}.annotations")
    rule = labels.get("rule", "")
    title = labels.get("alertname", "")
    return Report(
        rule="" if title in FAULTS else rule,
        title=title,
        began=_moment(alert.get("startsAt"), f"{where}.startsAt"),
        ended=_moment(alert.get("endsAt"), f"{where}.endsAt") if alert["status"] == "resolved" else None,
        severity=_severity(labels),
        labels=labels,
        annotations=annotations,
        values=_values(alert.get("values"), rules.get(rule)),
        fault=annotations.get("Error", ""),
    )


def _texts(value: object, where: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or any(not isinstance(text, str) for text in value.values()):
        raise ValueError(f"{where}: expected a mapping of texts")
    return {str(name): text[:_MOST_TEXT].encode("utf-8", "replace").decode() for name, text in value.items()}


def _severity(labels: Mapping[str, str]) -> EventSeverity:
    given = labels.get("severity", "")
    return EventSeverity(given) if given in set(EventSeverity) else EventSeverity.WARNING


def _moment(value: object, where: str) -> float:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise ValueError(f"{where}: expected a time") from None
    if moment.tzinfo is None or not 1971 <= moment.year <= 2199:
        raise ValueError(f"{where}: expected a time with its zone")
    # Whole seconds, as our own evaluator has them.
    return float(int(moment.timestamp()))


def _values(value: object, rule: Rule | None) -> dict[str, float]:
    """Return the measures' numbers by their names in place of Grafana's letters."""
    if not isinstance(value, dict) or rule is None:
        return {}
    names = {rule.reduced(position): measure.name for position, measure in enumerate(rule.measures)}
    return {
        names[letter]: float(number)
        for letter, number in value.items()
        if letter in names and isinstance(number, int | float) and not isinstance(number, bool)
    }


class _Handler(GuardedHandler):
    """Answers Grafana; the three are set for each endpoint."""

    most_bytes = MOST_BYTES + 64 * 1024
    token: bytes
    keep: Callable[[object], int]
    log: Log

    def do_POST(self) -> None:  # noqa: N802 - http.server's name
        """Take a notification."""
        if self.path.partition("?")[0] != HOOK_PATH:
            self.answer(404, f"try {HOOK_PATH}\n".encode())
        elif not may_enter(self.headers.get("Authorization", ""), self.token):
            self.log.sparse("alerts_refused", why="a request without the token", peer=self.client_address[0])
            self.answer(401, b"expected the token of delivery.token\n")
        else:
            self._take()

    def _take(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > MOST_BYTES:
            self.log.sparse("alerts_refused", why=f"a body of {length[:20] or 'unknown'} bytes")
            self.answer(413, f"expected a body of at most {MOST_BYTES:,} bytes, with its length\n".encode())
            return
        try:
            count = self.keep(json.loads(self.rfile.read(int(length))))
        except (ValueError, RecursionError) as error:
            self.log.sparse("alerts_refused", why=str(error)[:200])
            self.answer(400, f"{str(error)[:200]}\n".encode())
        except ClusterflowError as error:
            self.log.sparse("alerts_not_kept", why=error.message)
            self.answer(503, b"not kept: send it again\n")
        else:
            self.answer(200, f"{count} taken\n".encode())


class GrafanaHook(GuardedServer):
    """The endpoint, in threads of its own.

    Args:
        listen: ``host:port``.
        token: what every request must bear.
        rules: ours, by id.
        take: what keeps the alerts.
        log: for what is refused.

    Raises:
        UserError: the token is too short to be one, or no header could bear it, or nobody will ever listen there.
        ClusterflowError: nobody can listen there now.
    """

    def __init__(self, listen: str, token: str, rules: Mapping[str, Rule], take: Take, log: Log) -> None:
        if len(token) < _SHORTEST_TOKEN:
            raise UserError(
                f"delivery.token: {len(token)} characters: expected at least {_SHORTEST_TOKEN}",
                "for example: openssl rand -hex 32",
            )
        check_token(token, "delivery.token")

        def keep(body: object) -> int:
            reports = reports_of(body, rules)
            take(reports)
            return len(reports)

        given = {"token": token.encode(), "keep": staticmethod(keep), "log": log}
        handler = type("Handler", (_Handler,), given)
        super().__init__(
            listen,
            handler,
            place="delivery.listen",
            most=_MOST_CONNECTIONS,
            tell=lambda error: log.sparse("hook_failed", why=repr(error)),
        )
