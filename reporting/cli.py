"""The command ``clusterflow report``."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import click
from rich.console import Console

from analysis.audit import Period, period_of
from app.errors import UserError
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.options import json_option, period_options, write_output
from reporting.page import html
from reporting.report import document, report_of
from reporting.words import Wording
from rules.evaluate.backtest import Told
from store.schema_version import opened

_STDOUT = "-"


@click.command()
@cluster_option
@period_options("7d")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Where to write it; - prints it.  [default: report-CLUSTER-FROM-TO.html]",
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@json_option
@click.option(
    "--alerts",
    "with_alerts",
    is_flag=True,
    help="Evaluate the present rules over the period in place of the alert history; takes minutes.",
)
def report(
    cluster: Cluster,
    start: float,
    stop: float,
    output: str | None,
    force: bool,
    json_to: str | None,
    with_alerts: bool,
) -> None:
    """Write a report of a period for an audit or a weekly review: one HTML file that loads nothing from anywhere.

    \b
    Examples:
      clusterflow report                                        the last week
      clusterflow report --from 2026-03-01 --to 2026-04-01      a month, by the site's clock
      clusterflow report --from 24h --alerts --output day.html
      clusterflow report --json week.json                       the same facts as JSON

    What broke the segmentation, what left the cluster, first contacts, who asked inference, checkpoints, stalls
    and their cost, and gaps in monitoring.
    Nothing is changed in the store.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    now = time.time()
    zone = cluster.site.time_zone
    period = period_of(cluster, start, stop, now)
    target = json_to or output or _name(cluster, period, zone)
    if target != _STDOUT and not json_to:
        _check(Path(target), force=force)
    with ExitStack() as stack:
        store = opened(cluster.store)
        stack.callback(store.close)
        told = stack.enter_context(_told()) if with_alerts else None
        found = report_of(cluster, store, period, int(now), told)
    if json_to:
        write_output(json_to, f"{json.dumps(document(found), indent=1)}\n")
        return
    text = html(found, Wording.of(cluster))
    if target == _STDOUT:
        click.echo(text, nl=False)
        return
    _write(Path(target), text, force=force)
    if found.is_empty:
        click.echo("the store holds no flow record of this period: the report says so", err=True)
    click.echo(f"report: {target}")


@contextmanager
def _told() -> Iterator[Told]:
    """Show on a terminal which rule is evaluated, and how far it is."""
    with Console(stderr=True).status("alerts") as status:
        yield lambda what, share: status.update(f"alerts: {what}, {share:.0%}")


def _name(cluster: Cluster, period: Period, zone: ZoneInfo) -> str:
    """Return the name of the file: the period's days, with hours where they are no whole days."""
    moments = [datetime.fromtimestamp(moment, zone) for moment in (period.start, period.stop)]
    is_whole = all(moment.hour == moment.minute == moment.second == 0 for moment in moments)
    dates = [moment.strftime("%Y-%m-%d" if is_whole else "%Y-%m-%dT%H%M") for moment in moments]
    return f"report-{re.sub(r'[^A-Za-z0-9_.-]+', '-', cluster.name)}-{'-'.join(dates)}.html"


def _check(path: Path, *, force: bool) -> None:
    """Fail now rather than after minutes of work."""
    if path.exists() and not force:
        raise _is_there(str(path))
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}", "make it, or name a file elsewhere")


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        # "x" looks and creates in one step: two of us at once cannot write over each other.
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _is_there(str(path)) from None
    except OSError as error:
        raise UserError(f"{path}: {os.strerror(error.errno or 0)}", "name a file that can be written") from None


def _is_there(path: str) -> UserError:
    return UserError(f"{path}: is there already", "--force writes over it, --output names another")
