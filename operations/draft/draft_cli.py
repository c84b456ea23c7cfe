"""``clusterflow init``: a cluster.yaml to start from, as an example or drafted from traffic or an inventory."""

import json
import os
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path

import click

from app.errors import ClusterflowError, UserError
from cluster.cli import DEFAULT_FILE, starter
from cluster.load import parse_cluster
from cluster.model import INVENTORY_SOURCES, CloudFormat, InventorySource, Network, Secret
from cluster.sections.network.kept_inventory import write_whole
from enrichment.inventory.asking import asked
from operations.draft.from_inventory import text_of_inventory, without_address
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
@click.option("--from", "source", type=click.Choice([*INVENTORY_SOURCES]), help="Draft groups and nodes from there.")
@click.option("--at", "place", help="File or URL of --from. Default: what `inventory.sources` asks without one.")
@click.option("--token-file", type=click.Path(path_type=Path, dir_okay=False), help="File with the token for --from.")
@click.option("--namespace", multiple=True, help="Only pods of this namespace (kubernetes). May be given again.")
def init(
    file: Path,
    force: bool,
    traffic: Path | None,
    form: str,
    inside: tuple[Network, ...],
    source: str | None,
    place: str | None,
    token_file: Path | None,
    namespace: tuple[str, ...],
) -> None:
    """Write a commented FILE to start from (default: cluster.yaml).

    \b
    Examples:
      clusterflow init                                          an example, with what to change marked
      clusterflow init --from-traffic var/spool                 drafted from what pmacct wrote there
      clusterflow init --from-traffic logs/ --format aws-vpc    drafted from a cloud's flow logs
      clusterflow init --from slurm                             drafted from `scontrol show node`
      clusterflow init --from netbox --at https://netbox.example.org --token-file token
      clusterflow init --from kubernetes --at all.json          `kubectl get nodes,pods,services -A -o json`
      clusterflow init --from ansible --at hosts.ini
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    if file.is_dir():
        raise UserError(f"{file}: is a folder", f"name the file: {file / DEFAULT_FILE}")
    if file.exists() and not force:
        raise UserError(f"{file}: is there already", "--force writes over it")
    if traffic is not None and source is not None:
        raise UserError("--from and --from-traffic: one of them", "draft from traffic, and add `inventory.sources`")
    told = "read it: every line is a guess, with what it was guessed from"
    if traffic is not None:
        text = _drafted(traffic, None if form == _PMACCT else CloudFormat(form), inside)
    elif source is not None:
        text = _listed(source, place, token_file, namespace)
    else:
        text, told = starter(), "put your prefixes, nodes and exporters in"
    try:
        _write(file, text, over=force)
    except FileExistsError:
        raise UserError(f"{file}: is there already", "--force writes over it") from None
    except OSError as error:
        raise UserError(f"{file}: {os.strerror(error.errno or 0)}", "name a file that can be written") from None
    click.echo(f"{file}: written; next: {told}, then `clusterflow check {file}`")


def _write(file: Path, text: str, *, over: bool) -> None:
    """Write a new file, or over one that is there; where the disk is full, all stays as it was."""
    if over and file.is_file():
        write_whole(file.resolve(), text)
    elif over and file.exists():
        file.write_text(text, encoding="utf-8")
    else:
        # "x" looks and creates in one step: two of us at once cannot write over each other.
        out = file.open("x", encoding="utf-8")
        try:
            with out:
                out.write(text)
        except OSError:
            file.unlink(missing_ok=True)
            raise


def _listed(kind: str, place: str | None, token_file: Path | None, namespaces: tuple[str, ...]) -> str:
    """Return the draft of what an inventory source lists."""
    section = INVENTORY_SOURCES[kind]
    known = {key.name for key in section.keys}
    given: dict[str, object] = {}
    if place is not None:
        given["url" if place.startswith(("http://", "https://")) else "file"] = place
    if token_file is not None:
        given["token"] = Secret(file=str(token_file))
    if namespaces:
        given["namespaces"] = namespaces
    for name in given:
        if name not in known:
            raise UserError(
                f"--from {kind}: takes no {name}", f"there are {', '.join(sorted(known & {'file', 'url'}))}"
            )
    if place is None and kind in {"netbox", "ansible"}:
        raise UserError(f"--from {kind}: where is it?", "name its file or URL with --at")
    one: InventorySource = section.owner(name=kind, **given)
    written = ", ".join(f"{name}: {json.dumps(value)}" for name, value in given.items() if isinstance(value, str))
    source = f"{kind}: {{type: {kind}{', ' * bool(written)}{written}}}"
    try:
        machines = asked(one)
    except ClusterflowError as error:
        # A file is what the user named; an API may be away.
        raise UserError(f"--from {kind}: {error.message}", error.hint) if "file" in given else error from error
    for line in without_address(machines):
        click.echo(line, err=True)
    text = text_of_inventory(machines, source, datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    # What we write must load: a fault here is ours.
    parse_cluster(text)
    return text


def _drafted(folder: Path, cloud: CloudFormat | None, inside: tuple[Network, ...]) -> str:
    """Return the draft of what flow records show."""
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
    return text
