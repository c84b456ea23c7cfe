"""``clusterflow config-log``: which configuration was in force since when."""

import json
from dataclasses import asdict
from pathlib import Path

import click

from cluster.cli import cluster_option
from cluster.config_log import LOG, Record, read_log
from cluster.model import Cluster
from cluster.units import format_moment


@click.command("config-log")
@cluster_option
@click.option("--state", type=click.Path(path_type=Path), help="Folder of the log.  [default: bridge.state]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def config_log(cluster: Cluster, *, state: Path | None, as_json: bool) -> None:
    """Show who changed which key of cluster.yaml when, as the processes noticed at their start or reload.

    Secrets do not show: cluster.yaml holds where they are only.
    """
    folder = state or Path(cluster.bridge.state)
    records = read_log(folder)
    if not records and not as_json:
        click.echo(f"{folder / LOG}: nothing yet: processes write it when they start", err=True)
    for record in records:
        if as_json:
            click.echo(json.dumps(asdict(record)))
        else:
            _show(record)


def _show(record: Record) -> None:
    sha256 = record.sha256.get(Path(record.file).name, "")[:12]
    click.echo(
        f"{format_moment(record.time)}  {record.process}  by {record.user}  clusterflow {record.version}  "
        f"{record.file} {sha256}: {record.summary()}"
    )
    for change in record.changes:
        click.echo(f"    {change}")
    if record.total > len(record.changes):
        click.echo(f"    and {record.total - len(record.changes)} more")


CONFIG_LOG_COMMANDS: list[click.Command] = [config_log]
