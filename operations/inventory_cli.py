"""``clusterflow inventory``."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from app.application import rows_shown
from app.errors import UserError, of_disk
from app.table import Table
from cluster.cli import config_option
from cluster.load import load_cluster
from cluster.options import json_option, write_output
from cluster.sources import inventory_of
from enrichment.inventory.asking import refresh

_MOST = 10


@click.command()
@click.argument("names", metavar="[SOURCE]...", nargs=-1)
@config_option("config")
@json_option
def inventory(names: tuple[str, ...], config: Path, json_to: str | None) -> None:
    """Ask the sources of `inventory` now, keep what they answer, and show what becomes of it.

    `clusterflow ingest` asks them by itself, and `analyze` takes up what they answer. What a source that is away
    told before stays as it is. Ends with 1 if one is away.
    """
    settings, folder = inventory_of(config)
    known = [one.name for one in settings.sources]
    for name in names:
        if name not in known:
            raise UserError(f"{name}: no source of `inventory`", f"there are {', '.join(known) or 'none'}")
    try:
        told = {one.name: refresh(one, folder) for one in settings.sources if not names or one.name in names}
    except OSError as error:
        raise of_disk(folder, error, "it is in bridge.state; run it as the user of `clusterflow ingest`") from error
    # Also an answer that is in use nowhere yet is judged with all else that cluster.yaml says.
    used = {one.name: one for one in load_cluster(config).sources}
    rows = [{"source": name, **asdict(one), **asdict(used[name])} for name, one in told.items()]
    if json_to:
        write_output(json_to, json.dumps(rows, indent=2) + "\n")
    else:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("source")
        for title in ("nodes", "addresses", "in no group"):
            table.add_column(title, justify="right")
        table.add_column("")
        for row in rows:
            state = row["error"] or ("changed" if row["changed"] else "as before")
            table.add_row(row["source"], *(f"{row[key]:,}" for key in ("nodes", "machines", "left_out")), state)
        # What a source answered is shown, never interpreted.
        console = Console(highlight=False, markup=False, emoji=False)
        console.print(table if rows else "cluster.yaml names no inventory sources")
        lines = [f"{row['source']}: {line}" for row in rows for line in row["conflicts"]]
        for line in lines[: rows_shown(_MOST)]:
            click.echo(line)
    if any(one.error for one in told.values()):
        sys.exit(1)
