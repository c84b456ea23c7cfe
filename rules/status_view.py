"""`clusterflow status` for people: tables in the terminal."""

from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cluster.units import format_duration
from rules.status import Status
from rules.texts import FACTS, SUMMARY

_MOST_NODES = 20


def show(status: Status, console: Console, when: Callable[[int], str]) -> None:
    """Print a status.

    Args:
        status: what to print.
        console: where.
        when: writes an epoch second as a time of day.
    """
    _line(console, Text.assemble((status.cluster, "bold"), "  ", *_headline(status)))
    if status.error:
        return
    _show_alerts(status, console, when)
    _show_nodes(status, console)
    _show_exporters(status, console)
    _show_pipeline(status, console)


def _headline(status: Status) -> tuple[str | tuple[str, str], ...]:
    if status.error:
        return (("store away", "bold red"), f": {status.error}")
    store = f"InfluxDB {status.version} at {status.url}"
    if status.age is None:
        return (("no data", "bold red"), f" in the last day; {store}")
    age = f"newest data {_seconds(status.age)} old"
    return ((age, "bold red" if status.is_stale else "green"), f"; {store}")


def _show_alerts(status: Status, console: Console, when: Callable[[int], str]) -> None:
    if not status.alerts:
        _line(console, "alerts: none")
        return
    for alert in status.alerts:
        style = "bold red" if alert.is_firing else "yellow"
        since = f" since {when(alert.active_at)}" if alert.active_at is not None else ""
        _line(console, Text.assemble((f"{alert.state.value} {alert.severity}", style), f"  {alert.title}{since}"))
        _line(console, Text(f"  {alert.annotations.get(SUMMARY, '')}"))
        for name in FACTS:
            _line(console, Text(f"  {name:12} {alert.annotations.get(name, '')}"))
        if alert.error:
            _line(console, Text(f"  {'error':12} {alert.error}"))


def _show_nodes(status: Status, console: Console) -> None:
    if not status.nodes:
        _line(console, "nodes: no job is running")
        return
    counts = ", ".join(f"{count} {state}" for state, count in status.node_counts().items() if count)
    _line(console, f"nodes: {counts}")
    troubled = [node for node in status.nodes if node.state not in ("ok", "learning")]
    for node in troubled[:_MOST_NODES]:
        _line(console, Text(f"  {node.node}  {node.state}  (job {node.job})"))
    if len(troubled) > _MOST_NODES:
        _line(console, f"  and {len(troubled) - _MOST_NODES} more")


def _show_exporters(status: Status, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("exporter")
    for column in ("last record", "records/h", "lost/h"):
        table.add_column(column, justify="right")
    for one in status.exporters:
        age = "never" if one.age is None else f"{_seconds(one.age)} ago"
        table.add_row(
            one.name,
            Text(age, style="bold red" if one.silent else ""),
            f"{one.records:,}",
            Text(f"{one.lost:,}", style="red" if one.lost else ""),
        )
    console.print(table)


def _show_pipeline(status: Status, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("pipeline")
    table.add_column("")
    table.add_column("", justify="right")
    for counter in status.counters:
        table.add_row(counter.stage, counter.reason, f"{counter.number:,.10g}")
    console.print(table)


def _seconds(seconds: float) -> str:
    return format_duration(round(seconds))


def _line(console: Console, line: Text | str) -> None:
    # A sentence that is piped or searched stays on one line; terminals wrap it themselves.
    console.print(line, soft_wrap=True)
