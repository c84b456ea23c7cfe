"""What notifications say: Grafana notification templates, and which setting of each receiver takes them.

The text (`notification.tmpl`) repeats the annotations (`rules.texts`), which Grafana rendered with the data; it
computes nothing. Grafana takes templates as they stand: environment variables are not expanded in them.
"""

from importlib.resources import files
from typing import Any

NAME = "clusterflow"
TITLE = '{{ template "clusterflow.title" . }}'
MESSAGE = '{{ template "clusterflow.message" . }}'

_TITLED = {"title": TITLE, "message": MESSAGE}
_EMAIL = {"subject": TITLE, "message": MESSAGE}
_SETTINGS = {
    "webhook": _TITLED,
    "email": _EMAIL,
    "slack": {"title": TITLE, "text": MESSAGE},
    "pagerduty": {"summary": TITLE, "severity": "{{ .CommonLabels.severity }}"},
    "teams": _TITLED,
    "opsgenie": {"message": TITLE, "description": MESSAGE},
    # Telegram's HTML would choke on < and > in texts.
    "telegram": {"message": MESSAGE, "parse_mode": "None"},
}


def template_text() -> str:
    """Return the definitions of ``clusterflow.title``, ``clusterflow.alert`` and ``clusterflow.message``."""
    return files("rules").joinpath("notification.tmpl").read_text(encoding="utf-8")


def templates(organisation: int) -> list[dict[str, Any]]:
    """Return the notification templates in Grafana's form."""
    return [{"orgId": organisation, "name": NAME, "template": template_text()}]


def texts_of(kind: str) -> dict[str, str]:
    """Return the settings of a receiver type that take our title and message; none for a type we do not know."""
    return dict(_SETTINGS.get(kind, {}))
