"""``clusterflow check``: every fault of cluster.yaml, and of own rules and boards."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from app.application import rows_shown
from app.errors import ConfigError, UserError
from app.words import some
from cluster.advice import advice
from cluster.cli import config_option, starter
from cluster.document import read_text
from cluster.load import load_cluster
from cluster.model import Cluster
from cluster.options import json_option, write_output
from operations.code_advice import advice as advice_on_code
from operations.generated import grafana_artefacts

_CHANGE = "# change"
_SHOWN = 6


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@config_option("config")
@json_option
def check(file: Path | None, config: Path, json_to: str | None) -> None:
    """Check FILE (or --config): list every fault at once, or what it describes.

    \b
    Examples:
      clusterflow check                  cluster.yaml in this folder
      clusterflow check new.yaml         another file
      clusterflow check --json           faults and warnings for a program

    Faults end it with 2, one line each: line, path, value, what was expected, a hint. Warnings do not. What `rules` and
    `boards` name is run, and the boards and rules
    of `clusterflow build` are made, but not written.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    path = file or config
    found: dict[str, object] = {"file": str(path), "ok": False}
    try:
        cluster = load_cluster(path)
        files = grafana_artefacts(cluster)
        warnings = [f"{path}: warning: {line}" for line in (*advice(cluster), *_untouched(path))]
        warnings += [f"warning: {line}" for line in advice_on_code(files, cluster)]
        found |= {"ok": True, "describes": summary(cluster), "warnings": warnings}
    except UserError as error:
        found["faults"] = [asdict(one) for one in error.problems] if isinstance(error, ConfigError) else error.lines()
        raise
    finally:
        if json_to:
            write_output(json_to, json.dumps(found, indent=2) + "\n")
    if json_to != "-":
        for line in warnings:
            click.echo(line, err=True)
        click.echo(f"{path}: ok: {found['describes']}")


def _untouched(path: Path) -> Iterator[str]:
    """Yield which lines of `clusterflow init`, marked as those to change, stand as it wrote them."""
    marked = {line for line in starter().splitlines() if _CHANGE in line}
    left = [str(number) for number, line in enumerate(read_text(path).splitlines(), 1) if line in marked]
    if left:
        lines = some(left, rows_shown(_SHOWN))
        yield f"lines {lines}: still as `clusterflow init` wrote them: put your own values in, or take the mark off"


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
