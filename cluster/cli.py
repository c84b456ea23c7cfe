"""The option by which every command knows the cluster, and the commands about cluster.yaml itself."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import click

from cluster.dump import dump_cluster
from cluster.load import load_cluster
from cluster.model import Cluster

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_FILE = "cluster.yaml"
VARIABLE = "CLUSTERFLOW_CONFIG"
_PATH = "clusterflow.config"


def config_option(
    parameter: str,
    convert: Callable[[click.Context, click.Parameter, Path], object] | None = None,
    text: str = "The cluster's description.",
) -> Callable[[Command], Command]:
    """Add ``--config/-c FILE`` to a command, which receives as `parameter` the path, or what `convert` makes of it."""
    return click.option(
        "--config",
        "-c",
        parameter,
        type=click.Path(path_type=Path),
        default=DEFAULT_FILE,
        envvar=VARIABLE,
        show_default=True,
        show_envvar=True,
        metavar="FILE",
        callback=convert,
        # Before the others: times are of the site's zone, which the file names.
        is_eager=True,
        help=text,
    )


def cluster_option(command: Command) -> Command:
    """Add ``--config/-c FILE`` to a command, which receives the loaded `Cluster` as its argument ``cluster``.

    ConfigError leaves the command before it runs.
    """

    def load(context: click.Context, _parameter: click.Parameter, path: Path) -> Cluster:
        return loaded(context, path)

    return config_option("cluster", load)(command)


def loaded(context: click.Context, path: Path) -> Cluster:
    """Return the cluster of a file as `cluster_option` does, for a group that does something without a command."""
    context.meta[_PATH] = path
    return load_cluster(path)


def cluster_file() -> Path:
    """Return the file that the running command's `Cluster` was loaded from."""
    path = click.get_current_context().meta[_PATH]
    if not isinstance(path, Path):
        raise TypeError(path)
    return path


def starter() -> str:
    """Return what `clusterflow init` writes."""
    return files("cluster").joinpath("starter.yaml").read_text(encoding="utf-8")


@click.command()
@cluster_option
def dump(cluster: Cluster) -> None:
    """Print the cluster with every default written out, as YAML that loads again.

    Secrets are shown as where they are, never as what they are.
    """
    click.echo(dump_cluster(cluster), nl=False)
