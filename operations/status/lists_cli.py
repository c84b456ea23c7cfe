"""``clusterflow lists``."""

import json
import sys
import time

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.errors import StoreError
from app.words import lasting
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.options import json_option, write_output
from operations.status.lists import ListStatus, read_lists, stored_lists
from store import schema
from store.schema_version import opened


@click.command()
@cluster_option
@click.option("--files", "from_files", is_flag=True, help="Read the files themselves, as a bridge would at its start.")
@json_option
def lists(cluster: Cluster, from_files: bool, json_to: str | None) -> None:
    """Show the lists about addresses: names, places, feeds, how old they are, what is wrong with them.

    \b
    Examples:
      clusterflow lists             what the bridge works with; without one, the files
      clusterflow lists --files     what it would make of the files as they are now

    Ends with 0 if all are well, else with 1.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    found, source = ((), "") if from_files else _told(cluster)
    if not found:
        found, source = read_lists(cluster, time.time()), "files"
    if json_to:
        write_output(json_to, json.dumps({"source": source, "lists": [one.json() for one in found]}, indent=2) + "\n")
    else:
        _show(found, source)
    if any(one.state != schema.ListState.OK for one in found):
        sys.exit(1)


def _told(cluster: Cluster) -> tuple[tuple[ListStatus, ...], str]:
    """Return what bridges told; nothing where the store does not answer."""
    try:
        return stored_lists(opened(cluster.store), int(time.time())), "bridge"
    except StoreError:
        return (), ""


def _show(found: tuple[ListStatus, ...], source: str) -> None:
    if not found:
        click.echo("cluster.yaml names no lists (docs/enrichment.md)")
        return
    click.echo("as the files are now:" if source == "files" else "as the bridge has them:")
    console = Console(highlight=False, markup=False, emoji=False)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title, side in (("list", "left"), ("kind", "left"), ("", "left"), ("entries", "right"), ("age", "right")):
        table.add_column(title, justify="right" if side == "right" else "left", no_wrap=True)
    table.add_column("origin")
    for one in found:
        style = "" if one.state == schema.ListState.OK else "bold red"
        age = lasting(one.age) if one.in_use else "none in use"
        word = Text(schema.LIST_STATE_WORDS[one.state], style=style)
        # Texts of files are shown, never interpreted.
        table.add_row(one.name, one.kind, word, f"{one.entries:,}", age, Text(one.origin))
    console.print(table)
    for one in found:
        if one.error:
            skipped = f" ({one.skipped:,} entries skipped)" if one.skipped else ""
            console.print(Text(f"{one.name}: {one.error}{skipped}"), soft_wrap=True)
