"""The command ``clusterflow incident``."""

import os
import time
from pathlib import Path

import click

from app.errors import UserError
from cluster.cli import cluster_option
from cluster.model import Cluster
from operations.alert_history import find_alert
from reporting.incident.incident import incident_of
from reporting.incident.incident_page import html
from store.schema_version import opened

_STDOUT = "-"


@click.command()
@cluster_option
@click.argument("id_", metavar="ID")
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Where to write it; - prints it.  [default: incident-ID.html]",
)
def incident(cluster: Cluster, id_: str, output: str | None) -> None:
    """Write all that is known of the alert with this ID, or whose id begins so, as one HTML file for a ticket.

    \b
    Examples:
      clusterflow alerts list                         the alerts with their ids
      clusterflow incident 3fa94c1e                   writes incident-3fa94c1e.html
      clusterflow incident 3fa94c1e -o ticket.html

    What fired and why, the conversations of the source half an hour around, first contacts, names and feeds, jobs,
    other alerts, what to do, and what was not seen. Nothing is changed in the store.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    now = int(time.time())
    with opened(cluster.store) as store:
        alert = find_alert(store, id_, now)
        text = html(incident_of(cluster, store, alert, now), cluster)
    if output == _STDOUT:
        click.echo(text, nl=False)
        return
    path = Path(output or f"incident-{alert.id[:8]}.html")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: {os.strerror(error.errno or 0)}", "name a file that can be written") from None
    click.echo(f"incident: {path}")
