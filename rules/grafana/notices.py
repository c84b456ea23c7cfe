"""What notifications say: Grafana notification templates, and which setting of each receiver takes them.

The text (`notification.tmpl`) repeats the annotations (`rules.common.texts`), which Grafana rendered with the data; it
computes nothing but times. Grafana takes templates as they stand: environment variables are not expanded in them. In
settings they are: there is no $ in ours.
"""

from importlib.resources import files
from typing import Any

from rules.common import texts

NAME = "clusterflow"
TITLE = '{{ template "clusterflow.title" . }}'
MESSAGE = '{{ template "clusterflow.message" . }}'

_TITLED = {"title": TITLE, "message": MESSAGE}
_EMAIL = {"subject": TITLE, "message": MESSAGE}


def _each(annotation: str) -> str:
    """Return an annotation once where all alerts agree, else a line each."""
    common = f".CommonAnnotations.{annotation}"
    lines = f"{{{{ range .Alerts }}}}{{{{ .Annotations.{annotation} }}}}\n{{{{ end }}}}"
    return f"{{{{ if {common} }}}}{{{{ {common} }}}}{{{{ else }}}}{lines}{{{{ end }}}}"


def _first(template: str) -> str:
    """Return what a template says of the first alert."""
    return f'{{{{ with index .Alerts 0 }}}}{{{{ template "clusterflow.{template}" . }}}}{{{{ end }}}}'


_FIRST_INCIDENT = (
    "{{ with index .Alerts 0 }}{{ if and .Annotations.incident_url .Labels.rule }}"
    '{{ template "clusterflow.incident" . }}{{ else }}none{{ end }}{{ end }}'
)

# Events API v2. The facts stand in fields of their own, for event rules and for the eye; the first four details are
# Grafana's own, which would list every label and annotation.
_PAGERDUTY: dict[str, Any] = {
    "summary": TITLE,
    "severity": "{{ .CommonLabels.severity }}",
    "source": _each(texts.SOURCE),
    "class": "{{ .CommonLabels.rule }}",
    "component": "{{ .CommonLabels.alertname }}",
    "group": "{{ .CommonLabels.grafana_folder }}",
    "client": NAME,
    "client_url": _first("panel"),
    "details": {
        "firing": '{{ range .Alerts.Firing }}{{ template "clusterflow.firing" . }}{{ else }}none{{ end }}',
        "resolved": '{{ range .Alerts.Resolved }}{{ template "clusterflow.resolved" . }}{{ else }}none{{ end }}',
        "num_firing": "{{ len .Alerts.Firing }}",
        "num_resolved": "{{ len .Alerts.Resolved }}",
        **{name: _each(name) for name in texts.FACTS},
        "since": _first("since"),
        "do": _first("do"),
        "panel": _first("panel"),
        "incident": _FIRST_INCIDENT,
        "runbook": _each("runbook_url"),
        "silence": '{{ template "clusterflow.silence" . }}',
    },
}
_SETTINGS: dict[str, dict[str, Any]] = {
    "webhook": _TITLED,
    "email": _EMAIL,
    "slack": {"title": TITLE, "text": '{{ template "clusterflow.slack" . }}'},
    "pagerduty": _PAGERDUTY,
    "teams": _TITLED,
    "opsgenie": {"message": TITLE, "description": MESSAGE},
    # Telegram has no title of its own, and its HTML would choke on < and > in texts.
    "telegram": {"message": f"{TITLE}\n\n{MESSAGE}", "parse_mode": "None"},
}


def template_text(zone: str) -> str:
    """Return the definitions of ``clusterflow.title``, ``clusterflow.message`` and what they are made of.

    Times are those of a zone, the site's, with UTC beside them, which logs and events have, where that differs.
    """
    text = files("rules.grafana").joinpath("notification.tmpl").read_text(encoding="utf-8")
    return text.replace('tz "SITE"', f'tz "{zone}"')


def templates(organisation: int, zone: str) -> list[dict[str, Any]]:
    """Return the notification templates in Grafana's form, with a site's zone."""
    return [{"orgId": organisation, "name": NAME, "template": template_text(zone)}]


def texts_of(kind: str) -> dict[str, Any]:
    """Return the settings of a receiver type that take our title and message; none for a type we do not know."""
    return dict(_SETTINGS.get(kind, {}))
