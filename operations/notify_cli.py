"""``clusterflow notify``: what a notification looks like, before it is needed."""

import time
from pathlib import Path

import click

from app.errors import UserError
from cluster import options
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.scalars.kinds import closest
from dashboards.cli import TOKEN_VARIABLE, token_of
from dashboards.playlist import Grafana
from operations.notify import FORMS, mail_page, send_test
from rules.grafana.example_alert import Example, example_of
from rules.grafana.message import Notification
from rules.registry import rules_of

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
        told = Notification([example.told], example.rule.group_by, "clusterflow", url, int(time.time()))
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
