"""Sizes of larger installations, from measured unit costs: every number of the table can be worked out on the page."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.model import StoreSettings
from cluster.scalars.names import DAY
from store.schema import HOUR, MINUTE, RAW

Line = dict[str, Any]

_BUSY = 0.5
"""Share of a core that is planned for, so that bursts and a restart's backlog find room."""
_YEAR_NODES = 1_024
_COLLECTOR_RATE = 150_000
"""Flows a second of one nfacctd: its queue is read by one process. Beyond it stands more than one."""


@dataclass(frozen=True, slots=True)
class Step:
    """An installation: its name, nodes that are watched, exporters, flows a second; and what breaks first there."""

    name: str
    nodes: int
    exporters: int
    flows: int
    breaks: str


STEPS = (
    Step("a rack or two", 64, 8, 2_000, "nothing: one machine idles"),
    Step("a cluster", 1_024, 40, 20_000, "nothing: one machine"),
    Step(
        "a large cluster",
        4_096,
        200,
        100_000,
        "panels that ask 10 s windows of every node for a day: choose nodes, or shorter ranges",
    ),
    Step(
        "a campus of clusters",
        16_384,
        800,
        400_000,
        "one nfacctd: `collector.netflow_daemons`, or collectors with a relay each; InfluxDB on a machine of its own",
    ),
    Step(
        "a provider", 65_536, 3_000, 1_000_000, "one InfluxDB 1.x: memory and start with its series; a database a site"
    ),
    Step(
        "the internet's edge",
        65_536,
        10_000,
        10_000_000,
        "exporters' own caches, and 1:1 sampling: sample at the exporter, which `sampling` makes good",
    ),
)


@dataclass(frozen=True, slots=True)
class Units:
    """What one flow, one series and one point cost.

    Attributes:
        collect, bridge, store, relay, worker: CPU seconds a flow.
        series: series a node.
        points: points of the raw retention a node and day.
        point: bytes a point on disk.
    """

    collect: float
    bridge: float
    store: float
    relay: float
    worker: float
    series: float
    points: float
    point: float


def units(lines: Sequence[Line]) -> Units:
    """Return unit costs from the benches' lines."""
    whole = [one for one in lines if one["step"] == "live" and one["printed"]]
    live = max(whole, key=lambda one: one["exact"] * 1e9 + one["rate"])
    cpu = {name: one["cpu_us_a_flow"] / 1e6 for name, one in live["processes"].items()}
    if not live.get("writers_counted"):
        # Nearly all of what others took is nfacctd's writers.
        cpu["nfacctd"] += live["other_cores"] / live["rate"]
    (relay,) = (one for one in lines if one["step"] == "relay")
    worker = [one for one in lines if one["step"] == "kafka"][-1]
    fill = max((one for one in lines if one["step"] == "boards_fill"), key=lambda one: int(one["nodes"]))
    return Units(
        cpu["nfacctd"],
        cpu["bridge"],
        cpu["influxd"],
        relay=relay["cpu_seconds"] / relay["flows"],
        worker=worker["cpu_us_a_flow"] / 1e6,
        series=fill["series_cardinality"] / fill["nodes"],
        points=fill["raw_points_a_day"] / fill["nodes"],
        point=fill["bytes_a_point"],
    )


def sizing(lines: Sequence[Line]) -> Iterator[str]:
    """Yield the section of the page."""
    yield "## Sizing\n"
    found = units(lines)
    yield _arithmetic(found)
    head = ("", "nodes", "exporters", "flows/s", "cores: collect", "bridge", "store", "collectors", "partitions")
    rows = ["| " + " | ".join((*head, "series", "raw points on disk a day")) + " |", "|" + "---|" * (len(head) + 2)]
    rows += [f"| {' | '.join(_row(step, found))} |" for step in STEPS]
    yield "\n".join(rows) + "\n"
    yield from _year(lines)
    yield "What breaks first:\n"
    yield "".join(f"- **{step.name}**, {step.flows:,} flows/s: {step.breaks}.\n" for step in STEPS)


def _arithmetic(found: Units) -> str:
    us = 1e6
    return (
        f"Of the measured unit costs, CPU a flow: nfacctd {found.collect * us:.2f} µs, bridge "
        f"{found.bridge * us:.2f} µs, InfluxDB {found.store * us:.2f} µs; with Kafka: relay {found.relay * us:.2f} µs, "
        f"worker {found.worker * us:.2f} µs instead of the bridge's.\n"
        f"Cores = flows/s x µs / 10^6 / {_BUSY} (a core is planned {_BUSY:.0%} busy). Collectors: one a "
        f"{_COLLECTOR_RATE:,} flows/s.\nPartitions: one for each core of the bridge, at least one.\n"
        f"Series: {found.series:.1f} a node. Disk: {found.points:,.0f} raw points a node and day x "
        f"{found.point} bytes;\nrows of groups, exporters and the outside are in these figures of the largest "
        "store measured.\nSteps larger than what was measured are computed, not measured.\n"
    )


def _year(lines: Sequence[Line]) -> Iterator[str]:
    """Yield what a year takes on disk: points of a simulated busy cluster, bytes as they were compacted."""
    measured = {one["exports"]: one for one in reversed(lines) if one["step"] == "store"}
    any_one = next(iter(measured.values()))
    yield (
        f"What a year of {_YEAR_NODES:,} nodes takes on disk, each retention kept as shipped: points a node and day\n"
        f"of {any_one['nodes']} simulated nodes that are in a job all day, with the rows of groups, exporters and\n"
        "verdicts, x bytes a point after compaction x days kept. Indexes come on top.\n"
    )
    rows = [
        "| leaves send | retention | kept | points a node and day | bytes a point | after a year |",
        "|" + "---|" * 6,
    ]
    for exports, one in sorted(measured.items()):
        total = 0.0
        for name, days in _kept_days().items():
            held = one["points_by_retention"][name]
            points = held * 24 / one["hours"] / one["nodes"]
            size = one["bytes_by_retention"][name] / held / (one["hours_times"] if name == HOUR else 1)
            volume = points * size * min(days, 365) * _YEAR_NODES
            total += volume
            rows.append(f"| {exports} | `{name}` | {days} d | {points:,.0f} | {size:.1f} | {_short(volume / 1e9)} GB |")
        rows.append(f"| {exports} | all | | | | **{_short(total / 1e9)} GB** |")
    yield "\n".join(rows) + "\n"


def _kept_days() -> dict[str, int]:
    """Return for how many days each retention keeps its points, as shipped."""
    kept = StoreSettings()
    return {RAW: kept.keep_raw // DAY, MINUTE: kept.keep_1m // DAY, HOUR: kept.keep_1h // DAY}


def _row(step: Step, found: Units) -> list[str]:
    def cores(cost: float) -> str:
        return _short(step.flows * cost / _BUSY)

    # With several collectors records go through Kafka.
    collectors = math.ceil(step.flows / _COLLECTOR_RATE)
    collect, bridge = found.collect, found.bridge
    if collectors > 1:
        collect, bridge = collect + found.relay, found.worker
    partitions = max(1, math.ceil(step.flows * bridge / _BUSY)) if collectors > 1 else 0
    series = f"{found.series * step.nodes:,.0f}"
    disk = f"{_short(found.points * step.nodes * found.point / 1e9)} GB"
    return [
        step.name, f"{step.nodes:,}", f"{step.exporters:,}", f"{step.flows:,}", cores(collect), cores(bridge),
        cores(found.store), str(collectors), str(partitions) if partitions else "-", series, disk,
    ]  # fmt: skip


def _short(number: float) -> str:
    """Return a number with two digits that mean something."""
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
