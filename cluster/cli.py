"""The option by which every command knows the cluster, and the commands about cluster.yaml itself."""

import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import click

from cluster.advice import advice
from cluster.dump import dump_cluster
from cluster.errors import UserError
from cluster.load import load_cluster
from cluster.model import Cluster

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_FILE = "cluster.yaml"
VARIABLE = "CLUSTERFLOW_CONFIG"
_PATH = "clusterflow.config"


def _config_option(
    parameter: str, convert: Callable[[click.Context, click.Parameter, Path], object]
) -> Callable[[Command], Command]:
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
        help="The cluster's description.",
    )


def cluster_option(command: Command) -> Command:
    """Add ``--config/-c FILE`` to a command, which receives the loaded `Cluster` as its argument ``cluster``.

    ConfigError leaves the command before it runs.
    """

    def load(context: click.Context, _parameter: click.Parameter, path: Path) -> Cluster:
        context.meta[_PATH] = path
        return load_cluster(path)

    return _config_option("cluster", load)(command)


def cluster_file() -> Path:
    """Return the file that the running command's `Cluster` was loaded from."""
    path = click.get_current_context().meta[_PATH]
    if not isinstance(path, Path):
        raise TypeError(path)
    return path


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@_config_option("config", lambda _context, _parameter, path: path)
def check(file: Path | None, config: Path) -> None:
    """Check FILE (or --config): tell every fault at once, or what it describes.

    \b
    Examples:
      clusterflow check                  cluster.yaml in this folder
      clusterflow check new.yaml         another file

    Faults end it with 2, one line each: line, path, value, what was expected, a hint. Warnings do not.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    path = file or config
    cluster = load_cluster(path)
    for line in advice(cluster):
        click.echo(f"{path}: warning: {line}", err=True)
    click.echo(f"{path}: ok: {summary(cluster)}")


def summary(cluster: Cluster) -> str:
    """Return a cluster in one line: its name and how much of what it has."""
    addresses = sum(len(node.addresses) for node in cluster.nodes)
    counts = (
        (len(cluster.groups), "group"),
        (len(cluster.nodes), "node"),
        (addresses, "address"),
        (len(cluster.exporters), "exporter"),
        (len(cluster.jobs), "job"),
    )
    return f"{cluster.name}: {', '.join(_counted(number, what) for number, what in counts)}"


def _counted(number: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


@click.command()
@click.argument("file", type=click.Path(path_type=Path), default=DEFAULT_FILE)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def init(file: Path, force: bool) -> None:
    """Write a commented FILE to start from (default: cluster.yaml)."""
    if file.is_dir():
        raise UserError(f"{file}: is a folder", f"name the file: {file / DEFAULT_FILE}")
    text = files("cluster").joinpath("starter.yaml").read_text(encoding="utf-8")
    try:
        # "x" looks and creates in one step: two of us at once cannot write over each other.
        with file.open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise UserError(f"{file}: is there already", "--force writes over it") from None
    except OSError as error:
        raise UserError(f"{file}: {os.strerror(error.errno or 0)}", "name a file that can be written") from None
    click.echo(f"{file}: written; next: put your prefixes, nodes and exporters in, then `clusterflow check {file}`")


@click.command()
@cluster_option
def dump(cluster: Cluster) -> None:
    """Print the cluster with every default written out, as YAML that loads again.

    Secrets are shown as where they are, never as what they are.
    """
    click.echo(dump_cluster(cluster), nl=False)


COMMANDS: list[click.Command] = [init, check, dump]
"""What `clusterflow` takes from here."""
