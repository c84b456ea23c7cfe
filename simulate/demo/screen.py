"""The demo in a terminal: traffic, nodes, exporters, and alerts with their five facts."""

import time
from collections import Counter
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from app.errors import StoreError
from app.words import amount
from cluster.model import Cluster
from simulate.demo.demo_grafana import Notification
from simulate.truth.watch import Firing
from store import schema
from store.influx import Store
from store.influxql import Select, ago, compare, is_in, newest, total
from store.schema import RAW

_RECENT = 60
"""Seconds of traffic that the table shows."""
_PAIRS = 9


@dataclass(slots=True)
class Reading:
    """What the screen shows of the store, read at one moment."""

    pairs: list[tuple[str, str, float]] = field(default_factory=list)
    nodes: Counter[str] = field(default_factory=Counter)
    exporters: dict[str, float] = field(default_factory=dict)
    stored_bytes: int = 0
    lag: float | None = None


def read(store: Store, cluster: Cluster, shard: str) -> Reading:
    """Return the newest traffic, node states and exporters; an empty reading while the store is away."""
    reading = Reading()
    try:
        settled = cluster.bridge.lateness + cluster.bridge.window
        traffic = Select(schema.TRAFFIC, RAW).take(total(schema.BYTES)).between()
        recent = ago(">=", f"{_RECENT}s")
        between = ago(">=", f"{_RECENT + settled}s"), ago("<", f"{settled}s")
        rates = store.rows(traffic.where(*between).by(schema.SRC_GROUP, schema.DST_GROUP))
        pairs = ((cluster.title(src), cluster.title(dst), sent or 0) for _, src, dst, sent in rates)
        reading.pairs = sorted(pairs, key=lambda pair: -pair[2])
        # Nodes that are ok have a row a minute, and it takes half of one to be written.
        verdicts = Select(schema.BASELINE, RAW).take(newest(schema.STATE)).where(ago(">=", f"{2 * _RECENT}s"))
        verdicts = verdicts.where(compare(schema.STATE, ">=", schema.NodeState.LEARNING))
        states = store.rows(verdicts.by(schema.NODE).between())
        reading.nodes.update(schema.NODE_STATE_WORDS[int(state)] for _, _, state in states)
        exporters = Select(schema.EXPORTER_STATUS, RAW).take(newest(schema.AGE)).where(recent)
        ages = store.rows(exporters.by(schema.EXPORTER).between())
        reading.exporters = {exporter: float(age) for _, exporter, age in ages}
        stored = store.rows(traffic.where(is_in(schema.SHARD, [shard])))
        reading.stored_bytes = sum(int(sent or 0) for _, sent in stored)
        lags = Select(schema.PIPELINE, RAW).where(is_in(schema.REASON, [schema.LAG_SECONDS]), recent)
        found = store.rows(lags.take(newest(schema.VALUE)).between())
        reading.lag = next((float(lag) for _, lag in found), None)
    except StoreError:
        return reading
    return reading


def page(
    reading: Reading,
    firings: list[Firing],
    *,
    sent_records: int,
    sent_bytes: int,
    left: float | None,
    notification: Notification | None,
    places: str,
) -> RenderableType:
    """Return the whole screen."""
    until = "until ^C" if left is None else f"{max(left, 0):.0f} s left"
    head = Text.assemble(
        ("clusterflow demo", "bold"),
        f"   {until}   sent {sent_records:,} flow records, {amount(sent_bytes)}",
        f"   stored {amount(reading.stored_bytes)}",
        "" if reading.lag is None else f"   newest data {reading.lag:.0f} s old",
    )
    sent = [message(notification)] if notification is not None else []
    return Group(head, _middle(reading), _alerts(firings), *sent, Text(places, style="dim"))


def message(notification: Notification) -> RenderableType:
    """Return a notification as a person got it."""
    text = Text(f"{notification.title}\n\n{notification.text}".strip())
    return Panel(text, title="notification, as Grafana sent it", title_align="left", border_style="yellow")


def alert_line(firing: Firing) -> str:
    """Return an alert as one line: rule, source, destination, protocol, bytes, duration."""
    facts = firing.alert.facts()
    return (
        f"{firing.alert.severity:8} {firing.alert.rule}: {facts['source']} -> {facts['destination']}, "
        f"{facts['protocol']}, {facts['bytes']}, {facts['duration']}"
    )


def _middle(reading: Reading) -> RenderableType:
    traffic = Table(expand=True, box=None, pad_edge=False)
    traffic.add_column("from", ratio=3)
    traffic.add_column("to", ratio=3)
    traffic.add_column("last minute", justify="right", ratio=2)
    for src, dst, volume in reading.pairs[:_PAIRS]:
        traffic.add_row(src, dst, amount(volume * 8 / _RECENT, "bit/s"))
    rest = sum(volume for _, _, volume in reading.pairs[_PAIRS:])
    if rest:
        traffic.add_row("other pairs", "", amount(rest * 8 / _RECENT, "bit/s"))
    state = Table(expand=True, box=None, pad_edge=False)
    state.add_column("training nodes")
    state.add_column("exporters, last heard")
    words = [f"{count} {word}" for word, count in reading.nodes.most_common()] or ["no verdict yet"]
    ages = [f"{name}  {age:.0f} s" for name, age in sorted(reading.exporters.items())] or ["none yet"]
    state.add_row("\n".join(words), "\n".join(ages))
    columns = Table.grid(expand=True, padding=(0, 2))
    columns.add_column(ratio=5)
    columns.add_column(ratio=3)
    columns.add_row(traffic, state)
    return Panel(columns, title="traffic by group", title_align="left", border_style="dim")


def _alerts(firings: list[Firing]) -> RenderableType:
    if not firings:
        return Panel(Text("none so far", style="dim"), title="alerts", title_align="left", border_style="dim")
    table = Table(expand=True, box=None, pad_edge=False)
    for name in ("at", "alert", "source", "destination", "protocol", "bytes", "duration"):
        table.add_column(name, overflow="fold")
    for firing in firings:
        facts = firing.alert.facts()
        at = time.strftime("%H:%M:%S", time.gmtime(firing.fired_at))
        table.add_row(at, firing.alert.rule, *(facts[name] for name in facts))
    return Panel(table, title="alerts", title_align="left", border_style="red")
