"""``clusterflow init``: a cluster.yaml to start from, as an example or drafted from traffic."""

import os
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path

import click

from app.errors import UserError
from cluster.cli import DEFAULT_FILE, starter
from cluster.load import parse_cluster
from cluster.model import CloudFormat, Network
from operations.draft.guess import guess
from operations.draft.seen import look
from operations.draft.write import text_of

_PMACCT = "pmacct"


def _prefix(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(text) for text in given)
    except ValueError as error:
        raise click.BadParameter(f"{error}: expected a prefix such as 198.18.0.0/15") from error


@click.command()
@click.argument("file", type=click.Path(path_type=Path), default=DEFAULT_FILE)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option(
    "--from-traffic",
    "traffic",
    type=click.Path(path_type=Path),
    help="Draft groups, nodes, rails, exporters, allowed pairs and services from the flow records of this folder: an "
    "hour of them is enough. They stay as they are.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice([_PMACCT, *(one.value for one in CloudFormat)]),
    default=_PMACCT,
    show_default=True,
    help="Whose files --from-traffic names.",
)
@click.option(
    "--inside", callback=_prefix, multiple=True, metavar="PREFIX",
    help="Addresses of the site besides private ones (RFC 1918, 6598, 4193). May be given again.",
)  # fmt: skip
def init(file: Path, force: bool, traffic: Path | None, form: str, inside: tuple[Network, ...]) -> None:
    r"""Write a commented FILE to start from (default: cluster.yaml).

    \b
    Examples:
      clusterflow init                                          an example, with what to change marked
      clusterflow init --from-traffic var/spool                 drafted from what pmacct wrote there
      clusterflow init --from-traffic logs/ --format aws-vpc    drafted from a cloud's flow logs
    """
    if file.is_dir():
        raise UserError(f"{file}: is a folder", f"name the file: {file / DEFAULT_FILE}")
    if file.exists() and not force:
        raise UserError(f"{file}: is there already", "--force writes over it")
    text, told = (starter(), "put your prefixes, nodes and exporters in") if traffic is None else _drafted(
        traffic, None if form == _PMACCT else CloudFormat(form), inside
    )  # fmt: skip
    try:
        # "x" looks and creates in one step: two of us at once cannot write over each other.
        with file.open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise UserError(f"{file}: is there already", "--force writes over it") from None
    except OSError as error:
        raise UserError(f"{file}: {os.strerror(error.errno or 0)}", "name a file that can be written") from None
    click.echo(f"{file}: written; next: {told}, then `clusterflow check {file}`")


def _drafted(folder: Path, cloud: CloudFormat | None, inside: tuple[Network, ...]) -> tuple[str, str]:
    """Return the draft, and what is to be done with it."""
    seen = look(folder, cloud)
    if seen.conversations.is_empty():
        raise UserError(f"{folder}: no flow records found", "is --format right?" if seen.dead else "name their folder")
    draft = guess(seen, inside)
    if not draft.blocks:
        raise UserError(f"{folder}: no address of a private network in it", "name the site's own with --inside PREFIX")
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    text = text_of(seen, draft, "my-cluster", cloud, now)
    # What we write must load: a fault here is ours.
    parse_cluster(text)
    return text, "read it: every line is a guess, with what it was guessed from"
