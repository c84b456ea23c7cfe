"""``clusterflow backup`` and ``clusterflow restore``."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from app.errors import ConfigError, UserError
from app.units import format_moment, format_size
from cluster.cli import cluster_file, cluster_option, config_option
from cluster.model import Cluster
from cluster.sources import delivery_state_of, state_of
from operations.backup.backup_file import (
    CONFIG,
    DELIVERY,
    STATE,
    Sources,
    check_configuration,
    make_backup,
    no_room,
    unpack,
)
from operations.backup.backup_named import named_files
from operations.backup.restore import Homes, put_in_place

_STATE_HELP = "Folder of the state.  [default: bridge.state]"


@click.command()
@cluster_option
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--state", type=click.Path(path_type=Path), help=_STATE_HELP)
@click.option("--config-only", is_flag=True, help="Save cluster.yaml and what it names, and no state.")
def backup(cluster: Cluster, file: Path, state: Path | None, *, config_only: bool) -> None:
    """Write the state and the configuration to FILE (.tar.gz), while everything runs.

    \b
    In it:      the bridge's checkpoint, what the analysis knows of jobs, contacts and baselines, events that are not
                delivered yet, cluster.yaml with the inventory, rules, certificates and lists it names, the logs of
                changes
    Not in it:  secrets, flow records in the spool, and InfluxDB: back that up next (docs/operations.md)

    Where there is nothing of the state, nothing is written, and the exit code is 2.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    sources = Sources(
        cluster_file(),
        named_files(cluster),
        None if config_only else state or Path(cluster.bridge.state),
        None if config_only else Path(cluster.delivery.state),
        has_destinations=bool(cluster.delivery.destinations),
    )
    with _scratch("backup") as scratch:
        made = make_backup(file, sources, scratch)
    for line in made.missing:
        click.echo(f"{file}: warning: {line}", err=True)
    click.echo(f"{file}: {len(made.files)} files, {format_size(sum(made.files.values()))} unpacked")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@config_option("config", text="Where cluster.yaml goes; what it names goes beside it.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Folder of the state.  [default: where it was, if cluster.yaml agrees]",
)
@click.option(
    "--delivery-state",
    type=click.Path(path_type=Path),
    help="Folder of events to be delivered.  [default: where it was, if cluster.yaml agrees]",
)
@click.option("--state-only", is_flag=True, help="Leave cluster.yaml and what it names as they are.")
@click.option(
    "--force", is_flag=True, help="Take the place of what is there; checkpoint and events are kept beside it."
)
def restore(
    file: Path, config: Path, state: Path | None, delivery_state: Path | None, *, state_only: bool, force: bool
) -> None:
    """Put a backup FILE back. The bridge, the analysis and `clusterflow deliver` must be stopped.

    Everything in it is checked before anything is changed; what it does not hold stays. Restore InfluxDB
    first, then this, then start the services.
    """
    with _scratch("restore") as unpacked:
        manifest = unpack(file, unpacked)
        saved = unpacked / CONFIG / manifest["config"]
        if not state_only:
            check_configuration(file, unpacked, saved.name)
        named = config if state_only else saved
        homes = Homes(
            _home(file, manifest, STATE, state, named),
            _home(file, manifest, DELIVERY, delivery_state, named),
            None if state_only else config.absolute().parent,
        )
        if not state_only and saved.name != config.name:
            _rename(file, saved, config)
        done = put_in_place(unpacked, homes, force=force)
    for path in done.files:
        click.echo(f"restored {path}")
    for part, home in ((STATE, state), (DELIVERY, delivery_state)):
        key, find, _ = _PLACES[part]
        with suppress(ConfigError):
            if home is not None and (named := find(config)).resolve() != home.resolve():
                click.echo(f"{config}: warning: {key} is {named}: set it to {home.absolute()}", err=True)
    for path in done.aside:
        click.echo(f"kept {path}: what was there")
    if done.left:
        click.echo(f"left as it was, for the backup holds none: {', '.join(map(str, done.left))}")
    click.echo(f"{file}: of {format_moment(manifest['made'])}, by clusterflow {manifest['clusterflow']}")


@contextmanager
def _scratch(what: str) -> Iterator[Path]:
    """Yield a folder among the temporary files, and remove it."""
    try:
        folder = tempfile.TemporaryDirectory(prefix=f"clusterflow-{what}-")
    except OSError as error:
        # Where none of the usual places takes a file, the words have them.
        raise no_room("temporary files", error) from error
    with folder as name:
        yield Path(name)


def _rename(file: Path, saved: Path, config: Path) -> None:
    """Give an unpacked cluster.yaml the name that it is to have, but not that of another file of the backup."""
    renamed = saved.with_name(config.name)
    if renamed.exists():
        raise UserError(
            f"{file}: holds {saved.name}, and {config.name} beside it: expected another name for the first",
            f"--config {config.with_name(saved.name)}",
        )
    saved.rename(renamed)


def _home(file: Path, manifest: dict[str, Any], part: str, given: Path | None, config: Path) -> Path:
    """Return a part's folder: the one that cluster.yaml names, if it lay there. What a backup says is not believed."""
    key, find, option = _PLACES[part]
    was = manifest[part]
    is_in_it = any(name.startswith(f"{part}/") for name in manifest["files"])
    if given is not None:
        return given
    try:
        named = find(config)
    except ConfigError:
        if is_in_it:
            raise
        # Nothing goes there; it is only told what is left there.
        return Path(was)
    if is_in_it and named.resolve() != Path(was):
        raise UserError(f"{file}: its {part} was in {was!r}, but {key} is {named}", f"say which: {option} FOLDER")
    return named


_PLACES: dict[str, tuple[str, Callable[[Path], Path], str]] = {
    STATE: ("bridge.state", state_of, "--state"),
    DELIVERY: ("delivery.state", delivery_state_of, "--delivery-state"),
}
"""Key of cluster.yaml, what reads it, and the option that says otherwise."""
