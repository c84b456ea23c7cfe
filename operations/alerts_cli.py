"""``clusterflow alerts``: the history of alerts, and marks of people."""

import json
import sys
import time
from collections.abc import Sequence
from zoneinfo import ZoneInfo

import click
from rich.console import Console
from rich.text import Text

from app.errors import UserError
from app.table import Table
from app.units import format_local
from app.words import lasting
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.options import json_option, period_options, write_output
from operations.alert_history import MOST, StoredAlert, find_alert, mark, open_alerts, stored_alerts
from rules.common import texts
from store import schema
from store.influxql import is_in
from store.schema_version import opened

_SHORT = 8
"""Digits of an id that are shown."""

_WIDE = 140
"""Columns of a terminal from which on the table has room: in less each name would be in pieces."""
_ENDS = 5
"""Cells of an alert before what it is about."""


@click.group("alerts")
def alerts() -> None:
    """Show the history of alerts, and mark alerts as false or acknowledged."""


@alerts.command("list")
@cluster_option
@period_options("7d")
@click.option("--rule", metavar="ID", help="Only those of this rule.")
@json_option
def list_alerts(cluster: Cluster, start: float, stop: float, rule: str | None, json_to: str | None) -> None:
    """Show alerts, newest first: `clusterflow deliver` stores them as they begin and end.

    Those that began before the period and had not ended by then are shown, too.
    """
    where = [] if rule is None else [is_in(schema.RULE, [rule])]
    with opened(cluster.store) as store:
        found = stored_alerts(store, int(start), int(stop), *where)
        is_cut = len(found) == MOST
        found += open_alerts(store, int(start), *where)
    if is_cut:
        click.echo(f"only the newest {MOST:,} are shown: ask for a shorter period, or for a rule", err=True)
    if json_to:
        write_output(json_to, "".join(f"{json.dumps(one.json())}\n" for one in found))
        return
    if not found:
        click.echo("no such alert in the history: `clusterflow deliver` keeps it while it runs", err=True)
        return
    show(found, cluster.site.time_zone, Console(width=None if sys.stdout.isatty() else 200))


def show(found: Sequence[StoredAlert], zone: ZoneInfo, console: Console) -> None:
    """Print alerts: a line each, or two where a line has no room."""
    table = Table(
        "id", f"since ({zone.key})", "lasted", "state", "rule", "source → destination", "bytes", "duration", box=None
    )
    is_narrow = console.width < _WIDE
    for one in found:
        began = format_local(one.began, zone)
        lasted = "" if one.ended is None else lasting(one.ended - one.began)
        facts = one.facts
        ends = f"{facts[texts.SOURCE]} → {facts[texts.DESTINATION]}" if facts[texts.SOURCE] else one.summary
        row = (one.id[:_SHORT], began, lasted, _state(one), one.rule, ends, facts[texts.BYTES], facts[texts.DURATION])
        # Texts of alerts are shown, never interpreted.
        table.add_row(*map(Text, row))
        if is_narrow:
            console.print(Text("  ".join(filter(None, row[:_ENDS]))), soft_wrap=True)
            console.print(Text("          " + "  ".join(filter(None, row[_ENDS:]))), soft_wrap=True)
    if not is_narrow:
        console.print(table)


@alerts.command("mark")
@cluster_option
@click.argument("id_", metavar="ID")
@click.option("--false/--true", "is_false", default=None, help="It was a false alert; or it was not, after all.")
@click.option("--acknowledged", is_flag=True, help="Mark as seen now.")
@click.option("--why", default="", metavar="TEXT", help="For those who read the history.")
def mark_alert(cluster: Cluster, id_: str, is_false: bool | None, acknowledged: bool, why: str) -> None:
    """Mark the alert with this ID, or whose id begins so. What was marked before and is not named stays.

    \b
    Examples:
      clusterflow alerts mark 3fa94c1e --acknowledged
      clusterflow alerts mark 3fa94c1e --false --why "planned move of the mirror"
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    if is_false is None and not acknowledged and not why:
        raise UserError("nothing to mark: expected --false, --true, --acknowledged or --why TEXT")
    now = int(time.time())
    with opened(cluster.store) as store:
        alert = find_alert(store, id_, now)
        mark(store, alert, is_false=is_false, acknowledged=now if acknowledged else None, why=why)
        click.echo(f"{alert.id[:_SHORT]} {_state(find_alert(store, alert.id, now))}: {alert.summary or alert.title}")


def _state(alert: StoredAlert) -> str:
    words = [alert.state]
    if alert.acknowledged is not None and alert.state == schema.FIRING:
        words.append("acknowledged")
    if alert.is_false:
        words.append("false")
    if alert.maintenance:
        words.append(f"muted: {alert.maintenance}")
    return ", ".join(words)
