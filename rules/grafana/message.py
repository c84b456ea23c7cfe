"""What Grafana sends of alerts: its data for notification templates, and our texts rendered with them.

Shapes are those of Grafana 12.3: ``templates/template_data.go`` of github.com/grafana/alerting (data, addresses), and
``receivers/webhook`` beside it. `rules.grafana.notices` says which setting of a receiver holds which text.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from app.units import format_moment
from rules.grafana import notices
from rules.grafana.template_functions import Alerts, Struct, TemplateError, Texts
from rules.grafana.templates import definitions, render_message

_HOUR = 3600
_ORGANISATION = "1"
_LAYOUT = {"2006": "%Y", "01": "%m", "02": "%d", "15": "%H", "04": "%M", "05": "%S", "MST": "%Z", "-0700": "%z"}
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Told:
    """One alert that a notification tells of.

    Attributes:
        labels, annotations: as Grafana sends them.
        began: epoch second at which it began to fire.
        ended: epoch second at which it was resolved; None while it fires.
        dashboard_uid, panel_id: where its link leads.
        values: numbers by Grafana's letters.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    began: int
    ended: int | None
    dashboard_uid: str
    panel_id: int
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """The word that Grafana has for it."""
        return "firing" if self.ended is None else "resolved"


@dataclass(frozen=True, slots=True)
class Notification:
    """Alerts that are told together.

    Attributes:
        alerts: at least one.
        group_by: labels whose values they share.
        receiver: the contact point's name.
        external_url: Grafana's root_url.
        sent: epoch second.
        zone: the site's, in which times are told.
    """

    alerts: Sequence[Told]
    group_by: Sequence[str]
    receiver: str
    external_url: str
    sent: int
    zone: str = "UTC"

    @property
    def status(self) -> str:
        """``firing`` while one of them fires."""
        return min(alert.status for alert in self.alerts)

    def render(self, text: str) -> str:
        """Render a text of a contact point's settings; TemplateError where Grafana would fail as well."""
        return render_message(text, self._data(), definitions(notices.template_text(self.zone)))

    def settings(self, kind: str) -> dict[str, Any]:
        """Return the settings of a receiver type that hold our texts, rendered."""
        return {name: self._rendered(text) for name, text in notices.texts_of(kind).items()}

    def _rendered(self, text: str | dict[str, str]) -> str | dict[str, str]:
        if isinstance(text, dict):
            return {name: self.render(inner) for name, inner in text.items()}
        return self.render(text)

    def webhook_body(self) -> str:
        """Return the JSON that Grafana posts to a webhook."""
        settings = self.settings("webhook")
        body = {
            "receiver": self.receiver,
            "status": self.status,
            "alerts": [self._posted(alert) for alert in self.alerts],
            "groupLabels": self._group_labels(),
            "commonLabels": _common([alert.labels for alert in self.alerts]),
            "commonAnnotations": _common([alert.annotations for alert in self.alerts]),
            "externalURL": f"{self.external_url}/",
            "version": "1",
            "orgId": 1,
            "title": settings["title"],
            "state": "alerting" if self.status == "firing" else "ok",
            "message": settings["message"],
        }
        return json.dumps(body, indent=2, ensure_ascii=False)

    def _posted(self, alert: Told) -> dict[str, Any]:
        return {
            "status": alert.status,
            "labels": dict(alert.labels),
            "annotations": dict(alert.annotations),
            "startsAt": format_moment(alert.began),
            "endsAt": "0001-01-01T00:00:00Z" if alert.ended is None else format_moment(alert.ended),
            "values": dict(alert.values),
            "silenceURL": self._silence_url(alert),
            "dashboardURL": self._dashboard_url(alert),
            "panelURL": self._panel_url(alert),
        }

    def _data(self) -> Struct:
        return Struct(
            {
                "Receiver": self.receiver,
                "Status": self.status,
                "Alerts": Alerts(self._extended(alert) for alert in self.alerts),
                "GroupLabels": Texts(self._group_labels()),
                "CommonLabels": Texts(_common([alert.labels for alert in self.alerts])),
                "CommonAnnotations": Texts(_common([alert.annotations for alert in self.alerts])),
                "ExternalURL": f"{self.external_url}/",
            }
        )

    def _extended(self, alert: Told) -> Struct:
        return Struct(
            {
                "Status": alert.status,
                "Labels": Texts(alert.labels),
                "Annotations": Texts(alert.annotations),
                "StartsAt": _moment(alert.began),
                "EndsAt": _moment(alert.ended or 0),
                "SilenceURL": self._silence_url(alert),
                "DashboardURL": self._dashboard_url(alert),
                "PanelURL": self._panel_url(alert),
            }
        )

    def _group_labels(self) -> dict[str, str]:
        labels = self.alerts[0].labels
        return {name: labels[name] for name in self.group_by if labels.get(name)}

    def _dashboard_url(self, alert: Told) -> str:
        return f"{self.external_url}/d/{alert.dashboard_uid}?{urlencode(self._range(alert))}"

    def _panel_url(self, alert: Told) -> str:
        asked = {**self._range(alert), "viewPanel": str(alert.panel_id)}
        return f"{self.external_url}/d/{alert.dashboard_uid}?{urlencode(sorted(asked.items()))}"

    def _range(self, alert: Told) -> dict[str, str]:
        until = self.sent if alert.ended is None else alert.ended
        return {"from": f"{alert.began - _HOUR}000", "orgId": _ORGANISATION, "to": f"{until}000"}

    def _silence_url(self, alert: Told) -> str:
        matchers = [("matcher", f"{name}={text}") for name, text in sorted(alert.labels.items())]
        asked = urlencode([("alertmanager", "grafana"), *matchers, ("orgId", _ORGANISATION)])
        return f"{self.external_url}/alerting/silence/new?{asked}"


def _common(pairs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return what all of them have alike."""
    first, *others = pairs
    return {name: text for name, text in first.items() if all(other.get(name) == text for other in others)}


def _moment(second: float, zone: str = "UTC") -> Struct:
    """Return a time of Go's in a zone, with the methods that our templates call, and ``In`` for their `tz`."""
    return Struct(
        {
            "Seconds": second,
            "UTC": lambda: _moment(second),
            "In": lambda name: _moment(second, name),
            "Format": lambda layout: datetime.fromtimestamp(second, ZoneInfo(zone)).strftime(_directives(layout)),
            "Add": lambda nanoseconds: _moment(second + nanoseconds / _NANOSECONDS, zone),
            "Sub": lambda other: _span(second - other.fields["Seconds"]),
            "UnixMilli": lambda: round(second * 1000),
        }
    )


def _directives(layout: str) -> str:
    if "%" in layout:
        raise TemplateError(f"the layout {layout!r} is not supported")
    for theirs, ours in _LAYOUT.items():
        layout = layout.replace(theirs, ours)
    return layout


def _span(seconds: float) -> Struct:
    """Return a duration of Go's: it prints as ``1h18m10s``."""
    hours, rest = divmod(round(seconds), _HOUR)
    minutes, left = divmod(rest, 60)
    text = f"{hours}h{minutes}m{left}s" if hours else f"{minutes}m{left}s" if minutes else f"{left}s"
    return Struct({"Round": lambda _: _span(round(seconds))}, text)
