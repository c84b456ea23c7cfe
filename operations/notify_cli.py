"""``clusterflow notify``: what a notification looks like, before it is needed."""

import re
import time
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import click

from app.errors import UserError
from cluster import options
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.scalars.kinds import closest
from dashboards.cli import TOKEN_VARIABLE, token_of
from dashboards.playlist import Grafana, GrafanaError
from rules.grafana.example_alert import Example, example_of
from rules.grafana.message import Notification
from rules.registry import rules_of

_SLACK_LINK = re.compile(r"<([^|>]+)\|([^>]+)>")
_BOLD = re.compile(r"\*([^*\n]+)\*")
_ADDRESS = re.compile(r"https?://[^\s<]+")
_PLACE = re.compile(r"""(https?://[^/\s"'<]+)[/?][^\s"'<]*""")
_REDACTED = "[REDACTED]"
_COLOURS = {"firing": "#D63232", "resolved": "#36a64f"}
"""Grafana's own, of the bar beside a message in Slack."""


def as_mail(notification: Notification) -> str:
    """Return subject and body."""
    settings = notification.settings("email")
    return f"Subject: {settings['subject']}\n\n{settings['message']}"


def as_slack(notification: Notification) -> str:
    """Return title and text beside their bar, links by their addresses."""
    settings = notification.settings("slack")
    text = _BOLD.sub(r"\1", _SLACK_LINK.sub(r"\2: \1", settings["text"]).replace(" · Runbook:", "\nRunbook:"))
    lines = [settings["title"], "", *text.replace(" · Silence:", "\nSilence:").splitlines()]
    return "\n".join(f"▌ {line}".rstrip() for line in lines)


def as_pagerduty(notification: Notification) -> str:
    """Return the event as an incident shows it: its summary, then its fields and details."""
    settings = notification.settings("pagerduty")
    details: Mapping[str, str] = settings.pop("details")
    rows = [
        ("action", "trigger" if notification.status == "firing" else "resolve"),
        *settings.items(),
        *details.items(),
    ]
    return "\n".join(f"{name:12} {_indented(text)}" for name, text in rows)


def _indented(text: str) -> str:
    return text.strip().replace("\n", f"\n{' ' * 13}")


FORMS: dict[str, Callable[[Notification], str]] = {
    "mail": as_mail,
    "slack": as_slack,
    "pagerduty": as_pagerduty,
    "webhook": Notification.webhook_body,
}
"""What `clusterflow notify --preview` shows."""


def mail_page(notification: Notification) -> str:
    """Return the mail as a page of HTML: Grafana puts the subject above the message and breaks its lines."""
    settings = notification.settings("email")
    subject = escape(settings["subject"])
    style = "font: 15px/1.5 sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em; overflow-wrap: anywhere"
    message = escape(settings["message"], quote=False).replace("\n", "<br>\n")
    linked = _ADDRESS.sub(lambda found: f'<a href="{found[0]}">{found[0]}</a>', message)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>{subject}</title>\n'
        f'<body style="{style}; border-left: 4px solid {_COLOURS[notification.status]}">\n'
        f'<h1 style="font-size: 1.2em">{subject}</h1>\n<p>{linked}</p>\n</body></html>\n'
    )


def send_test(grafana: Grafana, contact: str, example: Example) -> None:
    """Let Grafana send an alert to a contact point as it sends real ones.

    Raises:
        UserError: there is no such contact point, or the token is refused.
        GrafanaError: Grafana is away, or could not send.
    """
    every = grafana.request("GET", "/api/v1/provisioning/contact-points")
    points = [point for point in every if point["name"] == contact]
    if not points:
        names = sorted({str(point["name"]) for point in every})
        raise UserError(f"Grafana has no contact point {contact!r}", closest(contact, names))
    told = example.told
    links = {"__dashboardUid__": told.dashboard_uid, "__panelId__": str(told.panel_id)}
    body = {
        "alert": {"labels": dict(told.labels), "annotations": {**told.annotations, **links}},
        "receivers": [{"name": contact, "grafana_managed_receiver_configs": [_receiver(point) for point in points]}],
    }
    answer = grafana.request("POST", "/api/alertmanager/grafana/config/api/v1/receivers/test", body)
    failed = [
        str(config.get("error") or config.get("status"))
        for receiver in answer["receivers"]
        for config in receiver["grafana_managed_receiver_configs"]
        if config.get("status") != "ok"
    ]
    if failed:
        # An address of Slack's is a secret as a whole, and Grafana's words repeat it.
        why = _PLACE.sub(r"\1/…", "; ".join(failed))
        raise GrafanaError(f"Grafana could not send to {contact}: {why[:300]}")


def _receiver(point: Mapping[str, Any]) -> dict[str, Any]:
    # Secrets are hidden; Grafana fills in what it keeps under the same uid.
    settings = {name: value for name, value in point["settings"].items() if value != _REDACTED}
    return {"uid": point["uid"], "name": point["name"], "type": point["type"], "settings": settings}


_RULE = "exfiltration"


@click.command()
@cluster_option
@click.option("--preview", type=click.Choice(list(FORMS)), help="Print the notification as it looks there.")
@click.option("--test", "contact", metavar="CONTACT", help="Have Grafana send it to this contact point.")
@click.option("--rule", "rule_id", metavar="ID", help=f"Of which rule. Default: {_RULE}, or the first that there is.")
@click.option("--resolved", is_flag=True, help="With --preview: as it looks when the alert has ended.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --preview mail: write it to this file as well, for a browser.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"With --test: file with the token of a service account; without it, the variable {TOKEN_VARIABLE}.",
)
@click.option("--grafana-url", type=options.URL, metavar="URL", help="Grafana's address, if not that of cluster.yaml.")
def notify(
    cluster: Cluster,
    preview: str | None,
    contact: str | None,
    rule_id: str | None,
    resolved: bool,
    html: Path | None,
    token_file: Path | None,
    grafana_url: str | None,
) -> None:
    """Show, or have Grafana send, what an alert of a rule looks like: an example with names of this cluster.

    The texts are those that Grafana renders. Nothing is read from the store.
    """
    if (preview is None) == (contact is None):
        raise UserError("expected either --preview or --test", f"--preview takes {', '.join(FORMS)}")
    if html is not None and preview != "mail":
        raise UserError("--html: only mail has a form in HTML", "add --preview mail")
    if resolved and contact is not None:
        raise UserError("--resolved: Grafana sends tests that fire only", "use it with --preview")
    example = _example(cluster, rule_id, ended=resolved)
    url = (grafana_url or cluster.grafana.url).rstrip("/")
    if contact is not None:
        send_test(Grafana(url, token_of(token_file)), contact, example)
        click.echo(f"sent to {contact}: an example of {example.rule.id}")
    elif preview is not None:
        zone = cluster.site.time_zone.key
        told = Notification([example.told], example.rule.group_by, "clusterflow", url, int(time.time()), zone)
        click.echo(FORMS[preview](told).rstrip("\n"))
        if html is not None:
            _write(html, mail_page(told))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "choose a file that you can write to") from error


def _example(cluster: Cluster, rule_id: str | None, *, ended: bool) -> Example:
    rules = {rule.id: rule for rule in rules_of(cluster).rules}
    wanted = rule_id or (_RULE if _RULE in rules else next(iter(rules)))
    if wanted not in rules:
        raise UserError(f"--rule {wanted}: the cluster has no such rule", closest(wanted, list(rules)))
    return example_of(cluster, rules[wanted], int(time.time()), ended=ended)
