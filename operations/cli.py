"""``clusterflow build``, ``clusterflow status`` and ``clusterflow suggest``."""

import difflib
import json
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

import cluster as cluster_package
import dashboards as dashboards_package
import rules as rules_package
import store as store_package
from app.application import is_verbose
from app.errors import ConfigError, StoreError
from cluster.cli import cluster_file, cluster_option
from cluster.model import Cluster
from cluster.options import json_option, period_options, write_output
from cluster.sources import files_of
from dashboards import provision
from operations.build import LIST, Change, Drift, check, watch, write
from operations.code_advice import advice
from operations.draft.from_store import allowed_lines, unused_prefixes
from operations.generated import artefacts, secrets_of_grafana
from operations.status.counting import stored_counting, suggestion
from operations.status.status import status_of
from operations.status.status_view import show
from rules.registry import rules_of
from store import schema
from store.influx import Store
from store.influxql import finest
from store.schema_version import opened, refuse_newer

_DIFF_LINES = 20
_WATCH = "--watch"


@click.command()
@cluster_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="provisioning",
    show_default=True,
    help="Folder to write to.",
)
@click.option(
    "--grafana-folder",
    default=provision.INSTALLED,
    show_default=True,
    metavar="FOLDER",
    help="Where Grafana will find what lies in OUT/grafana.",
)
@click.option("--check", "only_check", is_flag=True, help="Write nothing; end with 1 if something would change.")
@click.option(
    _WATCH,
    "keep_watching",
    is_flag=True,
    help="Build again whenever boards, rules, cluster.yaml or a file that it names change.",
)
def build(cluster: Cluster, out: Path, grafana_folder: str, only_check: bool, keep_watching: bool) -> None:
    """Generate what Grafana and pmacct load: boards, rules, contact points, the collector's configuration.

    Files that are no longer generated are removed; files that you put there yourself stay.
    """
    if keep_watching:
        _watch()
        return
    files = artefacts(cluster, grafana_folder)
    for line in (*_without_nodes(cluster), *advice(files, cluster)):
        click.echo(f"warning: {line}", err=True)
    if only_check:
        _check(files, out)
        return
    changes = write(files, out)
    for drift in changes:
        click.echo(f"{out / drift.path}: {_written(drift)}")
    # The list of them is not one of them.
    changed = sum(drift.path != LIST for drift in changes)
    click.echo(f"{len(files)} files generated, {changed} changed")
    if secrets := secrets_of_grafana(files):
        needed = ", ".join(f"variable {secret.env}" if secret.env else f"file {secret.file}" for secret in secrets)
        click.echo(f"Grafana needs, where it runs: {needed}")
    for line in rules_of(cluster).skipped_lines():
        click.echo(f"rule not generated: {line}", err=True)


def _without_nodes(cluster: Cluster) -> Iterable[str]:
    """Yield which inventory sources gave no node: what they told lies on another machine, or is not for this user."""
    for one in cluster.sources:
        if not one.nodes:
            why = f": {one.conflicts[0]}" if one.conflicts else ""
            yield f"inventory.sources.{one.name}{why}: none of its nodes is in the boards and rules"


def _written(drift: Drift) -> str:
    return "removed" if drift.change is Change.STALE else "written"


def _check(files: dict[str, str], out: Path) -> None:
    drifts = check(files, out)
    if not drifts:
        click.echo(f"{out}: up to date")
        return
    for drift in drifts:
        click.echo(f"{out}/{drift}")
        if drift.change is Change.DIFFERENT and drift.path != LIST:
            for line in _difference(out / drift.path, files[drift.path]):
                click.echo(f"    {line}")
    click.echo(f"{out}: {len(drifts)} files differ: run `clusterflow build` and commit the result", err=True)
    sys.exit(1)


def _difference(path: Path, wanted: str) -> Iterable[str]:
    try:
        present = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        return [str(error)]
    lines = list(difflib.unified_diff(present, wanted.splitlines(), "present", "generated", n=1, lineterm=""))
    short = lines[2 : 2 + _DIFF_LINES]
    return [*short, f"... {len(lines) - 2 - len(short)} more lines"] if len(lines) - 2 > len(short) else short


def _watch() -> None:
    """Run this same command again and again, without --watch."""
    arguments = [argument for argument in sys.argv[1:] if argument != _WATCH]
    packages = [
        Path(package.__path__[0]) for package in (cluster_package, store_package, dashboards_package, rules_package)
    ]
    config, named = cluster_file(), [cluster_file()]

    def watched() -> list[Path]:
        with suppress(ConfigError):
            named[:] = files_of(config)
        return [*packages, *named]

    watch([sys.executable, "-m", "clusterflow", *arguments], watched)


@click.command()
@cluster_option
@json_option
def status(cluster: Cluster, json_to: str | None) -> None:
    """Show how things stand: age of the data, exporters, nodes, alerts, the pipeline's counters.

    With -v also counters that are zero, and nodes and exporters that are well.
    Ends with 0 if data is fresh and no alert fires, else with 1. The alerts are evaluated here, as Grafana would.
    """
    now = int(time.time())
    store = Store(cluster.store)
    # That it does not answer is what the status will say.
    with suppress(StoreError):
        refuse_newer(store)
    found = status_of(cluster, store, now)
    if json_to:
        write_output(json_to, json.dumps(found.json(), indent=2) + "\n")
    else:
        zone = cluster.site.time_zone
        show(
            found,
            Console(highlight=False, markup=False, emoji=False),
            lambda at: datetime.fromtimestamp(at, zone).strftime("%H:%M:%S %Z"),
            verbose=is_verbose(),
        )
    if not found.is_well:
        sys.exit(1)


_DAY = 86_400
_LENGTHS = {"authority": _DAY, "allowed": 7 * _DAY, "prefixes": 30 * _DAY}


@click.command()
@click.argument("what", type=click.Choice([*_LENGTHS]), default="authority")
@cluster_option
@period_options("24h")
def suggest(what: str, cluster: Cluster, start: float, stop: float) -> None:
    """Print lines for cluster.yaml that stored traffic suggests.

    \b
    Examples:
      clusterflow suggest             which exporter counts what several see, as the bridge found it
      clusterflow suggest allowed     pairs of groups that talk and that `allowed` lacks; of a week
      clusterflow suggest prefixes    prefixes of approved groups that nobody sent to; of 30 days

    Lines of `authority` need not be written down: without them the bridge goes on finding it out, with them it no
    longer looks. Give exporters that cluster.yaml does not name a name there first.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    if click.get_current_context().get_parameter_source("start") is ParameterSource.DEFAULT:
        start = stop - _LENGTHS[what]
    retention = finest(cluster, start, stop, time.time(), (_DAY, 40 * _DAY))
    # Of a range that begins before all that is kept, hours have most.
    kept = retention.name if retention else schema.HOUR
    at = int(start), int(stop), kept
    with opened(cluster.store) as store:
        if what == "authority":
            lines = suggestion(cluster, stored_counting(store, *at)) or ["# nothing was seen by several exporters"]
        elif what == "allowed":
            lines = allowed_lines(cluster, store, *at) or ["# no pair of groups talked that `allowed` lacks"]
        else:
            lines = unused_prefixes(cluster, store, *at) or ["# no group of role approved_external has prefixes"]
    for line in lines:
        click.echo(line)
