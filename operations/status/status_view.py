"""`clusterflow status` for people: tables in the terminal."""

from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from app.table import Table
from app.words import amount, lasting
from enrichment.list_states import NODES
from operations.status.counting import WORDS
from operations.status.status import Counter, Status
from rules.alerts.pipeline import ingest_deadman
from rules.common.texts import FACTS, SUMMARY
from store import schema
from store.lease import DEAD_SECONDS, Standing
from store.schema import Because, Stage

_MOST_NODES = 20
_MOST_REPEATED = 5
_UNTOLD = "unknown"
"""What a server that does not tell its version is said to have."""


def show(status: Status, console: Console, when: Callable[[int], str], *, verbose: bool = False) -> None:
    """Print a status.

    Args:
        status: what to print.
        console: where.
        when: writes an epoch second as a time of day.
        verbose: also counters that are zero, and exporters and job sources that are well.
    """
    _line(console, Text.assemble((status.cluster, "bold"), "  ", *_headline(status)))
    if status.error:
        return
    _show_alerts(status, console, when)
    _show_history(status, console)
    _show_analysis(status, console)
    _show_lists(status, console, verbose=verbose)
    _show_nodes(status, console)
    _show_exporters(status, console, verbose=verbose)
    _show_counting(status, console)
    _show_pipeline(status, console, when, verbose=verbose)


def _headline(status: Status) -> tuple[str | tuple[str, str], ...]:
    if status.is_missing:
        return (("the database is not there yet", "bold red"), ": start `clusterflow ingest`, which makes it")
    if status.error:
        return (("store away", "bold red"), f": {status.error}")
    version = "" if status.version == _UNTOLD else f" {status.version}"
    store = f"InfluxDB{version} at {status.url}"
    if status.age is None and status.ingest_age is None:
        return (("`clusterflow ingest` has not started", "bold red"), f"; {store}")
    if status.age is None:
        return (("no data", "bold red"), f" in the last day; {store}")
    age = f"newest data {lasting(status.age)} old"
    return ((age, "bold red" if status.is_stale else "green"), f"; {store}")


def _show_alerts(status: Status, console: Console, when: Callable[[int], str]) -> None:
    for rule, error in status.failing:
        _line(console, Text.assemble((f"rule {rule} sees nothing", "bold red"), f": {error}"))
    if not status.alerts:
        _line(console, "alerts: none")
        return
    for alert in status.alerts:
        style = "bold red" if alert.is_firing and not alert.muted else "yellow"
        since = f" since {when(alert.active_at)}" if alert.active_at is not None else ""
        title = alert.title
        if alert.rule == ingest_deadman.ID and status.ingest_age is None:
            title, since = "`clusterflow ingest` has not started", ""
        muted = f", nobody is notified: {alert.muted}" if alert.muted else ""
        _line(console, Text.assemble((f"{alert.state.value} {alert.severity}", style), f"  {title}{since}{muted}"))
        _line(console, Text(f"  {alert.annotations.get(SUMMARY, '')}"))
        for name in FACTS:
            _line(console, Text(f"  {name:12} {alert.annotations.get(name, '')}"))
        if alert.error:
            _line(console, Text(f"  {'error':12} {alert.error}"))


def _show_history(status: Status, console: Console) -> None:
    if status.history:
        over = sum(one.state == schema.RESOLVED for one in status.history)
        false = sum(one.is_false for one in status.history)
        marked = f", {false:,} marked as false" if false else ""
        muted = sum(bool(one.maintenance) for one in status.history)
        marked += f", {muted:,} muted by maintenance" if muted else ""
        told = f"last 24 h: {len(status.history):,} alerts, {over:,} of them over{marked}"
        _line(console, f"{told}: `clusterflow alerts list` shows them")


def _show_analysis(status: Status, console: Console) -> None:
    if status.analysis_age is None:
        _line(console, Text.assemble("analysis: ", ("has not started", "bold red"), ": start `clusterflow analyze`"))
    elif status.analysis_lag is None:
        silent = f"silent for {lasting(status.analysis_age)}"
        _line(console, Text.assemble("analysis: ", (silent, "bold red"), ": is `clusterflow analyze` running?"))
    else:
        _line(console, f"analysis: judges what is {lasting(status.analysis_lag)} old")
    for work, name, standing, age in status.leases:
        words = {Standing.LEADS: "leads", Standing.CLAIMS: "takes over", Standing.WAITS: "stands by"}[standing]
        word = (words, "green") if age < DEAD_SECONDS else (f"silent for {lasting(age)}", "bold red")
        _line(console, Text.assemble(f"{work} of {name}: ", word))
    for one in status.job_sources:
        text = f"jobs from {one.name}: {one.running:,} running, {one.known:,} known"
        strangers = f"; {one.unknown_nodes:,} nodes that the inventory does not know" if one.unknown_nodes else ""
        if one.failing:
            away = f"no answer for {lasting(one.failing)}"
            _line(console, Text.assemble(f"{text}{strangers}; ", (away, "bold red"), ": `clusterflow jobs` says why"))
        else:
            _line(console, f"{text}{strangers}")


def _show_lists(status: Status, console: Console, *, verbose: bool) -> None:
    if not status.lists:
        return
    troubled = sum(one.state != schema.ListState.OK for one in status.lists)
    _line(console, f"lists: {len(status.lists) - troubled:,} ok" + (f", {troubled:,} not" if troubled else ""))
    for one in status.lists:
        is_well = one.state == schema.ListState.OK
        if verbose or not is_well or (one.kind == NODES and one.error):
            word = schema.LIST_STATE_WORDS[one.state], "" if is_well else "bold red"
            size = f", {one.entries:,} entries, {lasting(one.age)} old" if one.in_use else ", none in use"
            _line(console, Text.assemble(f"  {one.name} ({one.kind}): ", word, size, f"  {one.error}"))


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


def _show_exporters(status: Status, console: Console, *, verbose: bool) -> None:
    shown = [one for one in status.exporters if verbose or one.silent or one.lost or one.notes or one.age is None]
    well = len(status.exporters) - len(shown)
    if well:
        _line(console, f"exporters: {well:,} heard, nothing lost" + (f"; {len(shown):,} not" if shown else ""))
    if not shown:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("exporter")
    for column in ("last record", "records/h", "lost/h", "sampling"):
        table.add_column(column, justify="right")
    table.add_column("")
    for one in shown:
        age = "never heard" if one.age is None else f"{lasting(one.age)} ago"
        table.add_row(
            one.name,
            Text(age, style="bold red" if one.silent else ""),
            f"{one.records:,}",
            Text(f"{one.lost:,}", style="red" if one.lost else ""),
            f"1:{one.sampling}" if one.sampling else "-",
            Text("; ".join(one.notes), style="red"),
        )
    console.print(table)


def _show_counting(status: Status, console: Console) -> None:
    repeated = [one for one in status.counting if not one.is_own or one.reason == Because.MORE]
    for one in repeated[:_MOST_REPEATED]:
        what = f"{amount(one.bytes)} from {one.src_group} to {one.dst_group}, seen by {one.exporter} too"
        _line(console, Text(f"counted once: {what}: {one.counted_by} counts, {WORDS[Because(one.reason)]}"))
    if len(repeated) > _MOST_REPEATED:
        _line(console, f"  and {len(repeated) - _MOST_REPEATED} more: the board Coverage and `clusterflow suggest`")


def _show_pipeline(status: Status, console: Console, when: Callable[[int], str], *, verbose: bool) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("pipeline")
    table.add_column("")
    table.add_column("", justify="right")
    for counter in status.counters:
        if counter.stage != Stage.JOBS and (verbose or counter.number):
            table.add_row(counter.stage, counter.reason, _number(counter, when))
    console.print(table)


def _number(counter: Counter, when: Callable[[int], str]) -> str:
    """Return a number in the unit that its name tells."""
    if counter.reason == schema.HEARTBEAT and counter.stage == Stage.BRIDGE:
        return when(round(counter.number))
    if counter.reason == schema.HEARTBEAT or counter.reason.endswith("seconds"):
        return lasting(counter.number)
    if counter.reason.endswith("bytes"):
        return amount(counter.number)
    return f"{counter.number:,.10g}"


def _line(console: Console, line: Text | str) -> None:
    # A sentence that is piped or searched stays on one line; terminals wrap it themselves.
    console.print(line, soft_wrap=True)
