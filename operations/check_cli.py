"""``clusterflow check``: every fault of cluster.yaml, and of own rules and boards."""

from collections.abc import Iterator
from pathlib import Path

import click

from cluster.advice import advice
from cluster.cli import config_option, starter
from cluster.document import read_text
from cluster.load import load_cluster
from cluster.model import Cluster
from operations.code_advice import advice as advice_on_code
from operations.generated import grafana_artefacts

_CHANGE = "# change"
_SHOWN = 6


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@config_option("config")
def check(file: Path | None, config: Path) -> None:
    """Check FILE (or --config): list every fault at once, or what it describes.

    \b
    Examples:
      clusterflow check                  cluster.yaml in this folder
      clusterflow check new.yaml         another file

    Faults end it with 2, one line each: line, path, value, what was expected, a hint. Warnings do not. What `rules` and
    `boards` name is run, and the boards and rules
    of `clusterflow build` are made, but not written.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    path = file or config
    cluster = load_cluster(path)
    files = grafana_artefacts(cluster)
    for line in advice(cluster):
        click.echo(f"{path}: warning: {line}", err=True)
    for line in _untouched(path):
        click.echo(f"{path}: warning: {line}", err=True)
    for line in advice_on_code(files):
        click.echo(f"warning: {line}", err=True)
    click.echo(f"{path}: ok: {summary(cluster)}")


def _untouched(path: Path) -> Iterator[str]:
    """Yield which lines of `clusterflow init`, marked as those to change, stand as it wrote them."""
    marked = {line for line in starter().splitlines() if _CHANGE in line}
    lines = read_text(path).splitlines()
    left = [str(number) for number, line in enumerate(lines, 1) if line in marked]
    if left:
        some = ", ".join(left[:_SHOWN]) + (f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else "")
        yield f"lines {some}: still as `clusterflow init` wrote them: put your own values in, or take the mark off"


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
