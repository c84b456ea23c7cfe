"""``clusterflow backup`` and ``clusterflow restore``."""

import tempfile
from pathlib import Path

import click

from analysis.backup import CONFIG, make_backup, unpack
from analysis.restore import put_in_place
from cluster.cli import DEFAULT_FILE, VARIABLE, cluster_file, cluster_option
from cluster.errors import UserError
from cluster.model import Cluster
from cluster.sources import state_of
from cluster.units import format_moment, format_size

_STATE_HELP = "Folder of the state.  [default: bridge.state]"


@click.command()
@cluster_option
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--state", type=click.Path(path_type=Path), help=_STATE_HELP)
def backup(cluster: Cluster, file: Path, state: Path | None) -> None:
    """Write the state and the configuration to FILE (.tar.gz), while everything runs.

    \b
    In it:      the bridge's checkpoint, what the analysis knows of jobs, contacts and baselines, cluster.yaml with the
                inventory and rules it names, the logs of changes
    Not in it:  secrets, flow records in the spool, and InfluxDB: back that up next (docs/upgrade-and-backup.md)
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    with tempfile.TemporaryDirectory(prefix="clusterflow-backup-") as scratch:
        made = make_backup(file, state or Path(cluster.bridge.state), cluster_file(), Path(scratch))
    for line in made.missing:
        click.echo(f"{file}: warning: {line}", err=True)
    click.echo(f"{file}: {len(made.files)} files, {format_size(sum(made.files.values()))} unpacked")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--config",
    "-c",
    type=click.Path(path_type=Path),
    default=DEFAULT_FILE,
    envvar=VARIABLE,
    show_default=True,
    show_envvar=True,
    metavar="FILE",
    help="Where cluster.yaml goes; what it names goes beside it.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Folder of the state.  [default: where it was, if cluster.yaml agrees]",
)
@click.option("--state-only", is_flag=True, help="Leave cluster.yaml and what it names as they are.")
@click.option("--force", is_flag=True, help="Take the place of what is there; a checkpoint is kept beside it.")
def restore(file: Path, config: Path, state: Path | None, *, state_only: bool, force: bool) -> None:
    """Put a backup FILE back. The bridge and the analysis must be stopped.

    Everything in it is checked before anything is touched. Restore InfluxDB first, then this, then start the services.
    """
    with tempfile.TemporaryDirectory(prefix="clusterflow-restore-") as name:
        unpacked = Path(name)
        manifest = unpack(file, unpacked)
        saved = unpacked / CONFIG / manifest["config"]
        folder = state or _state_folder(file, config if state_only else saved, manifest["state"])
        if saved.name != config.name:
            saved.rename(saved.with_name(config.name))
        done = put_in_place(unpacked, folder, None if state_only else config.absolute().parent, force=force)
    for path in done.files:
        click.echo(f"restored {path}")
    if done.aside is not None:
        click.echo(f"kept {done.aside}: the checkpoint that was there")
    click.echo(f"{file}: of {format_moment(manifest['made'])}, by clusterflow {manifest['clusterflow']}")


def _state_folder(file: Path, config: Path, was: str) -> Path:
    """Return the folder that cluster.yaml names, if the state lay there: what a backup says alone is not believed."""
    named = state_of(config)
    if named.resolve() != Path(was):
        raise UserError(f"{file}: its state was in {was!r}, but bridge.state is {named}", "say which: --state FOLDER")
    return named


BACKUP_COMMANDS: list[click.Command] = [backup, restore]
