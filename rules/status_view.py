"""`clusterflow status` for people: tables in the terminal."""

from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cluster import schema
from cluster.schema import Stage
from rules.status import Counter, Status
from rules.texts import FACTS, SUMMARY

_MOST_NODES = 20
_UNTOLD = "unknown"
"""What a server that does not tell its version is said to have."""


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
    _show_analysis(status, console)
    _show_lists(status, console)
    _show_nodes(status, console)
    _show_exporters(status, console)
    _show_pipeline(status, console, when)


def _headline(status: Status) -> tuple[str | tuple[str, str], ...]:
    if status.error:
        return (("store away", "bold red"), f": {status.error}")
    version = "" if status.version == _UNTOLD else f" {status.version}"
    store = f"InfluxDB{version} at {status.url}"
    if status.age is None:
        return (("no data", "bold red"), f" in the last day; {store}")
    age = f"newest data {written(status.age)} old"
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


def _show_analysis(status: Status, console: Console) -> None:
    if status.analysis_lag is None:
        _line(console, Text.assemble("analysis: ", ("silent", "bold red"), ": is `clusterflow analyze` running?"))
    else:
        _line(console, f"analysis: judges what is {written(status.analysis_lag)} old")
    for one in status.job_sources:
        text = f"jobs from {one.name}: {one.running:,} running, {one.known:,} known"
        strangers = f"; {one.unknown_nodes:,} nodes that the inventory does not know" if one.unknown_nodes else ""
        if one.failing:
            away = f"no answer for {written(one.failing)}"
            _line(console, Text.assemble(f"{text}{strangers}; ", (away, "bold red"), ": `clusterflow jobs` says why"))
        else:
            _line(console, f"{text}{strangers}")


def _show_lists(status: Status, console: Console) -> None:
    if not status.lists:
        return
    troubled = [one for one in status.lists if one.state != schema.ListState.OK]
    well = len(status.lists) - len(troubled)
    _line(console, f"lists: {well:,} ok" + (f", {len(troubled):,} not" if troubled else ""))
    for one in troubled:
        word = schema.LIST_STATE_WORDS[one.state]
        age = f", {written(one.age)} old" if one.in_use else ", none in use"
        _line(console, Text.assemble(f"  {one.name} ({one.kind}): ", (word, "bold red"), age, f"  {one.error}"))


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
        age = "never" if one.age is None else f"{written(one.age)} ago"
        table.add_row(
            one.name,
            Text(age, style="bold red" if one.silent else ""),
            f"{one.records:,}",
            Text(f"{one.lost:,}", style="red" if one.lost else ""),
        )
    console.print(table)


def _show_pipeline(status: Status, console: Console, when: Callable[[int], str]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("pipeline")
    table.add_column("")
    table.add_column("", justify="right")
    for counter in status.counters:
        if counter.stage != Stage.JOBS:
            table.add_row(counter.stage, counter.reason, _number(counter, when))
    console.print(table)


def _number(counter: Counter, when: Callable[[int], str]) -> str:
    """Return a number in the unit that its name tells."""
    if counter.reason == schema.HEARTBEAT and counter.stage == Stage.BRIDGE:
        return when(round(counter.number))
    if counter.reason == schema.HEARTBEAT or counter.reason.endswith("seconds"):
        return written(counter.number)
    if counter.reason.endswith("bytes"):
        return _bytes(counter.number)
    return f"{counter.number:,.10g}"


def _bytes(volume: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(volume) < 1000:
            return f"{volume:.3g} {unit}"
        volume /= 1000
    return f"{volume:,.3g} PB"


def written(seconds: float) -> str:
    """Return a length of time as people say it: two units at most, ``2m 17s``, ``3d 4h``, ``45s``, ``0.4s``."""
    if 0 < seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    rest = round(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def _line(console: Console, line: Text | str) -> None:
    # A sentence that is piped or searched stays on one line; terminals wrap it themselves.
    console.print(line, soft_wrap=True)
