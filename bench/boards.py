"""`scripts/bench boards`: how long InfluxDB takes for everything that each board asks, and what points cost on disk.

What takes longer than its budget is listed at the end, and the exit code is 1.
"""

import json
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import click

from app.local_process import LocalProcess
from bench.costs.processes import line, processor_seconds, tell_machine
from bench.live_rates import numbers
from bench.load.fill import EVERY, Rows, fill, series
from cluster.load import load_cluster
from cluster.model import Cluster, Retention, StoreSettings
from dashboards.filled_queries import asked, first_choices, seconds
from dashboards.provision import boards as all_boards
from rules.registry import rules_of
from simulate.traffic.bulk_load import large_cluster
from store import schema
from store.influx import Store
from store.influxql import window_seconds
from store.local_influxdb import LocalInfluxDB
from store.schema import Measurement

PANEL, BOARD, RULES = "a panel", "a board", "all rules"
BUDGETS = {PANEL: 1.0, BOARD: 3.0, "noc_wall": 1.0, RULES: 1.0}
"""Seconds that one panel, one board (all its queries; a stricter one by its name) and one evaluation of all rules may
take, warm, at 4,096 nodes and any range."""

_DATABASE = "bench"
_MARK = "filled.json"
_QUIET_SECONDS, _LONGEST_SECONDS = 6.0, 120.0
SETTLING = {
    # Points go to compressed files soon, so that their size on disk can be measured.
    "INFLUXDB_DATA_CACHE_SNAPSHOT_WRITE_COLD_DURATION": "3s",
    "INFLUXDB_DATA_COMPACT_FULL_WRITE_COLD_DURATION": "10s",
    "INFLUXDB_DATA_MAX_CONCURRENT_COMPACTIONS": "2",
}
_FILLING = SETTLING | {"GOGC": "400", "INFLUXDB_DATA_CACHE_SNAPSHOT_MEMORY_SIZE": "256m"}
_FILLING["INFLUXDB_COORDINATOR_WRITE_TIMEOUT"] = "60s"
"""Memory for a third of the processor time, and patience on a busy machine."""
_MANY, _OF_MANY = 2_000, {schema.RAW: 900, schema.MINUTE: 7_200}
"""Of measurements with more series than this, so many seconds of each retention."""
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True, slots=True)
class Timed:
    """A panel's queries, or a rule's, together: seconds, and the slowest one's text.

    Seconds are those of the clock, or of InfluxDB's processor time where that is less: where other work keeps the cores
    busy, the clock tells of that. Cold they are those of the clock: a server that waits for its disk does not work.
    """

    name: str
    seconds: float
    query: str


@dataclass(frozen=True, slots=True)
class Filled:
    """A filled store: of which cluster, of how many training nodes, up to when (epoch seconds), in which server."""

    cluster: Cluster
    nodes: int
    now: int
    server: LocalProcess

    def worked(self) -> float:
        """Return the processor time that the server has used so far."""
        return processor_seconds(self.server.pid or 0)

    def open(self) -> Store:
        """Return the store."""
        return Store(self.cluster.store)


@contextmanager
def environment(settings: dict[str, str]) -> Iterator[None]:
    """Hold environment variables, for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def misses(lines: Iterable[dict[str, Any]]) -> list[str]:
    """Return what took longer than its budget, a text each, of the lines that this bench prints."""
    found = []

    def check(budget: str, took: float, what: str, one: dict[str, Any]) -> None:
        if took > BUDGETS[budget]:
            found.append(f"{what}, {one['nodes']:,} nodes: {took:.2f} s, budget {BUDGETS[budget]:g} s")

    for one in lines:
        if one["step"] == "board":
            where = f"{one['board']}, {one['span']}"
            check(one["board"] if one["board"] in BUDGETS else BOARD, one["warm_seconds"], where, one)
            for panel, took, *_ in one.get("slow", []):
                check(PANEL, took, f"{where}, {panel}", one)
        elif one["step"] == "rules":
            check(RULES, one["seconds"], RULES, one)
    return found


@click.command()
@click.option("--nodes", default="64,1024,4096", show_default=True, help="Training nodes, a store each.")
@click.option("--span", default="1h,24h,7d", show_default=True, help="Ranges that boards show.")
@click.option("--raw", default="1h", show_default=True, help="Time filled with windows of 10 s.")
@click.option("--minutes", default="24h", show_default=True, help="Time filled with windows of 1 min.")
@click.option("--hours", default="7d", show_default=True, help="Time filled with windows of 1 h.")
@click.option("--board", "only", multiple=True, help="Only these. Default: all.")
@click.option("--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True)
@click.option("--influxd", help="InfluxDB 1.x to run. Default: the one on the PATH.")
@click.option("--store", "kept_in", type=click.Path(path_type=Path), help="Folder that keeps the stores: fill once.")
@click.option("--runs", default=3, show_default=True, help="Times that all is asked warm: the middle one counts.")
@click.option("--cold/--warm", default=True, show_default=True, help="Also with a new InfluxDB and empty page cache.")
def boards(  # noqa: PLR0917 - click passes everything by name
    nodes: str,
    span: str,
    raw: str,
    minutes: str,
    hours: str,
    only: tuple[str, ...],
    config: Path,
    influxd: str | None,
    kept_in: Path | None,
    *,
    runs: int,
    cold: bool,
) -> None:
    """Query time of every board and of all rules: a line a board and range; exit code 1 if one is over its budget.

    Seconds are InfluxDB's processor time where that is less than the clock's: other work does not count. Cold they are
    the clock's, for then the server waits for its disk.
    """
    tell_machine(influxd)
    spans = {text: seconds(text) for text in span.split(",")}
    kept = {schema.RAW: seconds(raw), schema.MINUTE: seconds(minutes), schema.HOUR: seconds(hours)}
    base = load_cluster(config)
    printed: list[dict[str, Any]] = []
    for count in numbers(nodes, "numbers of nodes, such as 64,1024"):
        with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name, environment(SETTLING):
            server = LocalInfluxDB(kept_in / str(count) if kept_in else Path(name), binary=influxd)
            try:
                cluster = large_cluster(base, count)
                cluster = replace(cluster, store=StoreSettings(url=server.url, database=_DATABASE))
                filled = _known(cluster, count, server) or _fill(cluster, count, kept, server)
                for one in (*measured(filled, spans, only, runs=runs, is_cold=cold), _rules(filled, runs)):
                    line(**one)
                    printed.append(one)
            finally:
                server.stop()
    found = misses(printed)
    for text in found:
        click.echo(text, err=True)
    if found:
        raise click.exceptions.Exit(1)


# -- filling ---------------------------------------------------------------------------------------


def _known(cluster: Cluster, nodes: int, server: LocalInfluxDB) -> Filled | None:
    """Return the store that an earlier run filled; None where there is none."""
    mark = server.folder / _MARK
    if not mark.exists():
        return None
    server.start()
    return Filled(cluster, nodes, json.loads(mark.read_text())["now"], server)


def _fill(cluster: Cluster, nodes: int, kept: dict[str, int], server: LocalInfluxDB) -> Filled:
    """Fill the store up to now; print what it holds and what it takes."""
    with environment(_FILLING):
        server.start()
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    now = int(time.time()) // 3600 * 3600
    rows = series(cluster)
    began = time.monotonic()
    written: dict[str, int] = {}
    for retention in cluster.retentions():
        by_length: dict[int, dict[Measurement, Rows]] = {}
        for measurement, of_one in rows.items():
            by_length.setdefault(_length(measurement, len(of_one), retention, kept), {})[measurement] = of_one
        written[retention.name] = sum(
            count for length, part in by_length.items() for _, count in fill(store, retention, part, now - length, now)
        )
    took = time.monotonic() - began
    size = settled_bytes(server.folder)
    points = sum(written.values())
    line(
        step="boards_fill",
        nodes=nodes,
        filled={retention.name: _words(retention, kept) for retention in cluster.retentions()},
        points=points,
        points_by_retention=written,
        raw_points_a_day=round(sum(_a_day(one, len(of_one), cluster) for one, of_one in rows.items())),
        seconds=round(took, 1),
        points_per_second=round(points / took),
        series=sum(len(found) for found in rows.values()),
        series_cardinality=_cardinality(store),
        disk_bytes=size,
        bytes_a_point=round(size / points, 2),
    )
    store.close()
    server.stop()
    server.start()
    (server.folder / _MARK).write_text(json.dumps({"now": now}))
    return Filled(cluster, nodes, now, server)


def _length(measurement: Measurement, count: int, retention: Retention, kept: dict[str, int]) -> int:
    """Return for how many seconds a measurement of so many series is filled: as far back as boards read it from there.

    Where there are many series, they read longer ranges from coarser windows (`Select.by_interval`); verdicts of nodes
    have none, and are as far apart as minutes.
    """
    if measurement in EVERY:
        return kept[schema.MINUTE]
    if count > _MANY and (measurement.rollup or measurement.kept == schema.MINUTE):
        return min(kept[retention.name], _OF_MANY.get(retention.name, kept[retention.name]))
    return kept[retention.name]


def _a_day(measurement: Measurement, count: int, cluster: Cluster) -> float:
    """Return the points that so many series have in the raw retention a day."""
    if measurement.kept != schema.RAW:
        return 0
    return count * 86_400 / max(window_seconds(cluster, schema.RAW), EVERY.get(measurement, 0))


def _words(retention: Retention, kept: dict[str, int]) -> str:
    return f"{kept[retention.name] / 3600:g} h of windows of {retention.window} s"


def _cardinality(store: Store) -> int:
    """Return the series of the database, as InfluxDB counts them."""
    answer = store.query("SHOW SERIES EXACT CARDINALITY")
    return sum(int(row[-1]) for one in answer for row in one.values)


def settled_bytes(folder: Path) -> int:
    """Return the bytes of data and index, once compactions have ended."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    size, since = -1, time.monotonic()
    while time.monotonic() < deadline:
        now = _bytes(folder / "data") + _bytes(folder / "wal")
        if now != size:
            size, since = now, time.monotonic()
        if time.monotonic() - since > _QUIET_SECONDS:
            break
        time.sleep(1.0)
    return size


def _bytes(folder: Path) -> int:
    found = 0
    for path in folder.rglob("*"):
        # Files come and go while InfluxDB compacts.
        with suppress(OSError):
            # Blocks, not lengths: InfluxDB's index is a sparse file.
            found += path.stat().st_blocks * 512 if path.is_file() else 0
    return found


# -- asking ----------------------------------------------------------------------------------------


def measured(
    filled: Filled, spans: dict[str, int], only: tuple[str, ...], *, runs: int, is_cold: bool
) -> Iterator[dict[str, Any]]:
    """Yield a line for each board and range."""
    texts = {name: json.loads(text) for name, text in all_boards(filled.cluster).items() if not only or name in only}
    for name, board in texts.items():
        for label, span in spans.items():
            dropped = is_cold and _restarted(filled.server)
            store = filled.open()
            cold = _ask(filled, store, board, span, is_cold=True)
            best = _median([_ask(filled, store, board, span) for _ in range(runs)])
            slowest = max(best, key=lambda one: one.seconds)
            slow = [one for one in best if one.seconds > BUDGETS[PANEL]]
            yield {
                "step": "board",
                "board": name,
                "nodes": filled.nodes,
                "span": label,
                "panels": len(best),
                "cold_seconds": round(sum(one.seconds for one in cold), 3) if is_cold else None,
                "page_cache_dropped": dropped,
                "warm_seconds": round(sum(one.seconds for one in best), 3),
                "panel_p50": round(median(one.seconds for one in best), 4),
                "panel_max": round(slowest.seconds, 4),
                "slowest": slowest.name,
                **({"slow": [[one.name, round(one.seconds, 2), one.query[:600]] for one in slow]} if slow else {}),
            }
            store.close()


def _restarted(server: LocalProcess) -> bool:
    """Start the server again with an empty page cache; False where the kernel did not drop it."""
    server.stop()
    is_dropped = _forget_pages()
    server.start()
    return is_dropped


def _ask(filled: Filled, store: Store, board: dict[str, Any], span: int, *, is_cold: bool = False) -> list[Timed]:
    """Ask everything once, a query at a time; a panel's queries together."""
    variables = _choices(store, board, filled.now)
    of_panels = ((one.panel, one.query) for one in asked(board, filled.now, variables, span))
    every = (*(("variables", text) for text in _lists(board, filled.now).values()), *of_panels)
    return _timed(filled, store, every, is_cold=is_cold)


def _timed(filled: Filled, store: Store, queries: Iterable[tuple[str, str]], *, is_cold: bool = False) -> list[Timed]:
    """Ask queries (name, text), one after the other; those of one name together."""
    found: dict[str, list[tuple[float, str]]] = {}
    for name, text in queries:
        began, worked = time.monotonic(), filled.worked()
        store.query(text)
        took, worked = time.monotonic() - began, filled.worked() - worked
        found.setdefault(name, []).append((took if is_cold else min(took, worked), text))
    return [Timed(name, sum(s for s, _ in times), max(times)[1]) for name, times in found.items()]


def _choices(store: Store, board: dict[str, Any], now: int) -> dict[str, str]:
    """Return what a board's variables hold when it is opened; a list that the store is asked for is its rows."""
    found = first_choices(board)
    for name, text in _lists(board, now).items():
        names = [str(values[-1]) for one in store.query(text) for values in one.values]
        found[name] = f"({'|'.join(map(re.escape, names))})"
    return found


def _lists(board: dict[str, Any], now: int) -> dict[str, str]:
    """Return the questions for the values of a board's variables that look for rows, by name."""
    return {
        one["name"]: one["query"].replace("now()", f"{now}s")
        for one in board["templating"]["list"]
        if one["type"] == "query" and one["query"].startswith("SELECT")
    }


def _median(runs: list[list[Timed]]) -> list[Timed]:
    """Return each panel's run in the middle."""
    return [sorted(one, key=lambda timed: timed.seconds)[len(one) // 2] for one in zip(*runs, strict=True)]


def _rules(filled: Filled, runs: int) -> dict[str, Any]:
    """Ask what all rules ask, at one moment; return its line."""
    store, now = filled.open(), filled.now
    rules = rules_of(filled.cluster).rules
    every = {rule.id: rule.interval for rule in rules}
    queries = [
        (rule.id, measure.query.between(now - measure.since, now - measure.until))
        for rule in rules
        for measure in rule.measures
    ]
    times = _median([_timed(filled, store, queries) for _ in range(runs)])
    slowest = sorted(times, key=lambda one: one.seconds, reverse=True)
    store.close()
    return {
        "step": "rules",
        "nodes": filled.nodes,
        "rules": len(times),
        "queries": len(queries),
        "seconds": round(sum(one.seconds for one in times), 3),
        "of_a_core": round(sum(one.seconds / every[one.name] for one in times), 3),
        "slowest": slowest[0].name,
        "slowest_seconds": round(slowest[0].seconds, 3),
        "slower": [[one.name, round(one.seconds, 3)] for one in slowest[1:5]],
    }


def _forget_pages() -> bool:
    """Have the kernel drop its page cache; False where we may not."""
    os.sync()
    try:
        _DROP_CACHES.write_text("3")
    except OSError:
        return False
    return True
