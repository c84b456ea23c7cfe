"""The command ``clusterflow drill``."""

import json
import sys

import click
from rich.console import Console

from app.errors import StoreError, UserError
from app.time_options import Duration
from app.units import format_size, parse_size
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.options import json_option, write_output
from simulate import drill as drills
from simulate.drill import LEGS, Drill, Shape
from simulate.packets.own_exporter import collector
from simulate.packets.udp import Target
from simulate.target_option import TargetType
from store.schema_version import opened


def _size(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_size(text)
    except ValueError:
        raise click.BadParameter(f"{text}: expected a size such as 140GB") from None


@click.command()
@cluster_option
@click.argument("shape", type=click.Choice([one.value for one in Shape]), default=Shape.BULK.value)
@click.option("--size", callback=_size, metavar="BYTES", help="Default: the smallest artefact that may not leave.")
@click.option("--within", type=Duration(), default="3m", show_default=True, help="What it may take at most.")
@click.option("--exporter", metavar="NAME", help="Speak for this exporter. Default: the first with an address of ours.")
@click.option("--netflow", type=TargetType(), help="Where nfacctd listens. Default: as cluster.yaml says.")
@json_option
def drill(
    cluster: Cluster,
    shape: str,
    size: int | None,
    within: float,
    exporter: str | None,
    netflow: Target | None,
    json_to: str | None,
) -> None:
    """Stage a theft that harms nobody, and time it from the exporter to the alert.

    SHAPE is bulk (one source, one destination), split (5 sources, 20 destinations), tunnel (GRE), odd_port (4444).
    Flow records alone are sent, no traffic: from the group of role drill to addresses that nobody has. The alert begins
    with DRILL; contacts with `drills: false` do not get it. 1 at the end if it took longer than --within.
    docs/operations.md shows the lines that cluster.yaml needs.
    """
    if within <= 0:
        raise UserError(f"--within {within:g}s: expected more than 0 seconds")
    plan = drills.plan(cluster, Shape(shape), size, exporter)
    console = Console(stderr=True)
    try:
        with opened(cluster.store) as store, console.status("sending") as status:
            target = netflow or collector(cluster, plan.exporter)
            course = Drill(cluster, store, plan).run(target, within, status.update)
    except StoreError as error:
        trouble = " ".join(error.lines())
        failed = json.dumps({"ok": False, "trouble": trouble}) if json_to else f"drill: {trouble}"
        write_output(json_to or "-", f"{failed}\n")
        sys.exit(1)
    if json_to:
        write_output(json_to, json.dumps(course.json()) + "\n")
    else:
        talks = f"{len(plan.pairs)} conversation" + ("s" if len(plan.pairs) > 1 else "")
        click.echo(f"drill: {format_size(plan.stored)} in {talks} ({shape}), as {plan.exporter.name}")
        for leg, words in LEGS.items():
            if leg.name in course.after:
                click.echo(f"{course.after[leg.name]:8.1f} s  {words}")
        if course.trouble:
            click.echo(f"drill: {course.trouble}")
    if course.trouble:
        sys.exit(1)
