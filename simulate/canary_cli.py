"""The command ``clusterflow canary``."""

import json
import sys

import click
from rich.console import Console

from app.errors import StoreError, UserError
from app.time_options import Duration
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.options import json_option, write_output
from simulate import canary as canaries
from simulate.packets.own_exporter import collector
from simulate.packets.udp import Target
from simulate.target_option import TargetType
from store.schema_version import opened


@click.command()
@cluster_option
@click.option(
    "--within", type=Duration(), default="60s", show_default=True, help="What the way to an alert may take at most."
)
@click.option("--exporter", metavar="NAME", help="Speak for this exporter. Default: the first with an address of ours.")
@click.option("--netflow", type=TargetType(), help="Where nfacctd listens. Default: as cluster.yaml says.")
@json_option
def canary(cluster: Cluster, within: float, exporter: str | None, netflow: Target | None, json_to: str | None) -> None:
    """Send one tiny flow through collector, bridge and store, and tell how long it took to be worth an alert.

    For a cron job: one line, and 1 at the end if it did not arrive or took longer than --within. cluster.yaml needs a
    group of role canary and an exporter with an address of this machine: see docs/operations.md.
    """
    if within <= 0:
        raise UserError(f"--within {within:g}s: expected more than 0 seconds")
    plan = canaries.plan(cluster, exporter)
    target = netflow or collector(cluster, plan.exporter)
    console = Console(stderr=True)
    try:
        with opened(cluster.store) as store, console.status("sending") as status:
            seen = canaries.watch(cluster, store, plan, target=target, within=within, told=status.update)
    except StoreError as error:
        # Before anything was sent: for whoever reads cron's mail that is the same trouble.
        trouble = " ".join(error.lines())
        failed = json.dumps({"ok": False, "trouble": trouble}) if json_to else f"canary: {trouble}"
        write_output(json_to or "-", f"{failed}\n")
        sys.exit(1)
    if json_to:
        write_output(json_to, json.dumps(seen.json()) + "\n")
    elif seen.trouble:
        click.echo(f"canary: {seen.trouble}")
    else:
        click.echo(f"canary: stored after {seen.queryable:.1f} s, an alert would fire after {seen.alert:.1f} s")
    if seen.trouble:
        sys.exit(1)
