"""The demo in a terminal: traffic, nodes, exporters, and alerts with their five facts."""

import time
from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cluster import schema
from cluster.errors import StoreError
from cluster.model import Cluster
from cluster.schema import RAW
from ingest.store import Store
from simulate.watch import Firing

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
        rates = store.query(
            f'SELECT sum("{schema.BYTES.name}") FROM "{RAW}"."{schema.TRAFFIC.name}" '  # noqa: S608 - schema's names
            f"WHERE time >= now() - {_RECENT + settled}s AND time < now() - {settled}s "
            f'GROUP BY "{schema.SRC_GROUP}", "{schema.DST_GROUP}"'
        )
        reading.pairs = sorted(
            (
                (cluster.title(s.tags[schema.SRC_GROUP]), cluster.title(s.tags[schema.DST_GROUP]), s.values[0][1] or 0)
                for s in rates
            ),
            key=lambda pair: -pair[2],
        )
        states = store.query(
            f'SELECT last("{schema.STATE.name}") FROM "{RAW}"."{schema.BASELINE.name}" '  # noqa: S608
            # Nodes that are ok have a row a minute, and it takes half of one to be written.
            f'WHERE time >= now() - {2 * _RECENT}s GROUP BY "{schema.NODE}"'
        )
        reading.nodes.update(schema.NODE_STATE_WORDS[int(s.values[0][1])] for s in states)
        ages = store.query(
            f'SELECT last("{schema.AGE.name}") FROM "{RAW}"."{schema.EXPORTER_STATUS.name}" '  # noqa: S608
            f'WHERE time >= now() - {_RECENT}s GROUP BY "{schema.EXPORTER}"'
        )
        reading.exporters = {s.tags[schema.EXPORTER]: float(s.values[0][1]) for s in ages}
        total = store.query(
            f'SELECT sum("{schema.BYTES.name}") FROM "{RAW}"."{schema.TRAFFIC.name}" '  # noqa: S608
            f"WHERE \"{schema.SHARD}\" = '{shard}'"
        )
        reading.stored_bytes = int(total[0].values[0][1] or 0) if total else 0
        lag = store.query(
            f'SELECT last("{schema.VALUE.name}") FROM "{RAW}"."{schema.PIPELINE.name}" '  # noqa: S608
            f"WHERE \"{schema.REASON}\" = '{schema.LAG_SECONDS}' AND time >= now() - {_RECENT}s"
        )
        reading.lag = float(lag[0].values[0][1]) if lag else None
    except StoreError:
        return reading
    return reading


def page(
    reading: Reading, firings: list[Firing], *, sent_records: int, sent_bytes: int, left: float | None, places: str
) -> RenderableType:
    """Return the whole screen."""
    until = "until ^C" if left is None else f"{max(left, 0):.0f} s left"
    head = Text.assemble(
        ("clusterflow demo", "bold"),
        f"   {until}   sent {sent_records:,} flow records, {_size(sent_bytes)}   stored {_size(reading.stored_bytes)}",
        "" if reading.lag is None else f"   newest data {reading.lag:.0f} s old",
    )
    return Group(head, _middle(reading), _alerts(firings), Text(places, style="dim"))


def alert_line(firing: Firing) -> str:
    """Return an alert as one line: rule, source, destination, protocol, bytes, duration."""
    facts = firing.alert.facts()
    return (
        f"{firing.alert.severity:8} {firing.alert.rule}: {facts['source']} -> {facts['destination']}, "
        f"{facts['protocol']}, {facts['bytes']}, {facts['duration']}"
    )


def console() -> Console:
    """Return the terminal that the demo writes to."""
    return Console()


def _middle(reading: Reading) -> RenderableType:
    traffic = Table(expand=True, box=None, pad_edge=False)
    traffic.add_column("from", ratio=3)
    traffic.add_column("to", ratio=3)
    traffic.add_column("last minute", justify="right", ratio=2)
    for src, dst, volume in reading.pairs[:_PAIRS]:
        traffic.add_row(src, dst, _rate(volume * 8 / _RECENT))
    rest = sum(volume for _, _, volume in reading.pairs[_PAIRS:])
    if rest:
        traffic.add_row("other pairs", "", _rate(rest * 8 / _RECENT))
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


def _rate(bits: float) -> str:
    return _scaled(bits, "bit/s")


def _size(count: float) -> str:
    return _scaled(count, "B")


def _scaled(value: float, unit: str) -> str:
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < 1000:
            return f"{value:.3g} {prefix}{unit}"
        value /= 1000
    return f"{value:.3g} P{unit}"
