"""Commands about boards. `clusterflow build`, which writes boards and rules, is in `operations`."""

import os
from pathlib import Path

import click

from app.errors import UserError
from app.units import format_duration
from cluster import options
from cluster.cli import cluster_option
from cluster.model import Cluster, Secret
from cluster.scalars import names
from dashboards.playlist import Grafana
from dashboards.provision import kiosk_uids
from store.influx import read_secret

TOKEN_VARIABLE = "CLUSTERFLOW_GRAFANA_TOKEN"  # noqa: S105 - the name of a variable


def token_of(token_file: Path | None) -> str:
    """Return the token of a service account of Grafana; UserError where there is none."""
    token = read_secret(Secret(file=str(token_file))) if token_file else os.environ.get(TOKEN_VARIABLE)
    if not token:
        raise UserError("no Grafana token", f"set {TOKEN_VARIABLE}, or give --token-file, to a service account's")
    return token


@click.command()
@cluster_option
@click.option(
    "--interval",
    type=options.OfKind(names.seconds(1, names.DAY)),
    default="1m",
    show_default=True,
    metavar="TIME",
    help="How long each board stays.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"File with the token of a service account; without it, the variable {TOKEN_VARIABLE}.",
)
@click.option("--grafana-url", type=options.URL, metavar="URL", help="Grafana's address, if not that of cluster.yaml.")
def playlist(cluster: Cluster, interval: int, token_file: Path | None, grafana_url: str | None) -> None:
    """Make or update the kiosk playlist in Grafana, and print the address for the wall.

    Grafana loads boards and rules from files, but playlists by its API only. Running it again changes nothing.
    """
    grafana = Grafana(grafana_url or cluster.grafana.url, token_of(token_file))
    made = grafana.ensure_playlist(kiosk_uids(), format_duration(interval))
    click.echo(f"playlist {'written' if made.changed else 'unchanged'}: {made.url}")
