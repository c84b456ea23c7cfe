"""The option that every command takes to know the cluster, and the commands about cluster.yaml itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cluster.load import load_cluster

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_FILE = "cluster.yaml"
VARIABLE = "CLUSTERFLOW_CONFIG"


def cluster_option(command: Command) -> Command:
    """Add ``--config/-c FILE`` to a command, which receives the loaded `Cluster` as its argument ``cluster``.

    ConfigError leaves the command before it runs.
    """
    option = click.option(
        "--config",
        "-c",
        "cluster",
        type=click.Path(path_type=Path),
        default=DEFAULT_FILE,
        envvar=VARIABLE,
        show_default=True,
        show_envvar=True,
        metavar="FILE",
        callback=lambda _context, _parameter, path: load_cluster(path),
        help="The cluster's description.",
    )
    return option(command)


@click.command()
@cluster_option
def check(cluster: object) -> None:
    """Check cluster.yaml, and say what it describes."""
    click.echo(f"{cluster}")


COMMANDS: list[click.Command] = [check]
