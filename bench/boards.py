"""`scripts/bench boards`: how long InfluxDB takes for everything that each board asks, and what points cost on disk."""

import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import click

from bench.load.fill import fill, series
from bench.processes import line, tell_machine
from cluster.load import load_cluster
from cluster.model import Cluster, Retention, StoreSettings
from dashboards.filled_queries import asked, first_choices, seconds
from dashboards.provision import boards as all_boards
from rules.registry import rules_of
from simulate.traffic.bulk_load import large_cluster
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

_DATABASE = "bench"
_SLOW = 1.0
_WARM_RUNS = 3
_QUIET_SECONDS, _LONGEST_SECONDS = 6.0, 120.0
_SETTINGS = {
    # Points go to compressed files soon, so that their size on disk can be measured.
    "INFLUXDB_DATA_CACHE_SNAPSHOT_WRITE_COLD_DURATION": "3s",
    "INFLUXDB_DATA_COMPACT_FULL_WRITE_COLD_DURATION": "10s",
    "INFLUXDB_DATA_MAX_CONCURRENT_COMPACTIONS": "2",
}
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True, slots=True)
class Timed:
    """A panel's queries, together: seconds, and the slowest one's text."""

    panel: str
    seconds: float
    query: str


@dataclass(frozen=True, slots=True)
class _Filled:
    """A filled store: of which cluster, of how many training nodes, up to when (epoch seconds), in which server."""

    cluster: Cluster
    nodes: int
    now: int
    server: LocalInfluxDB

    def open(self) -> Store:
        """Return the store."""
        return Store(replace(self.cluster.store, url=self.server.url))


@contextmanager
def _with(settings: dict[str, str]) -> Iterator[None]:
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


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


@click.command()
@click.option("--nodes", default="64,1024,4096", show_default=True, help="Training nodes, a store each.")
@click.option("--span", default="1h,24h,7d", show_default=True, help="Ranges that boards show.")
@click.option("--raw", default="1h", show_default=True, help="Time filled with windows of 10 s.")
@click.option("--minutes", default="24h", show_default=True, help="Time filled with windows of 1 min.")
@click.option("--hours", default="7d", show_default=True, help="Time filled with windows of 1 h.")
@click.option("--board", "only", multiple=True, help="Only these. Default: all.")
@click.option("--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True)
@click.option("--influxd", help="InfluxDB 1.x to run. Default: the one on the PATH.")
def boards(  # noqa: PLR0917 - click passes everything by name
    nodes: str,
    span: str,
    raw: str,
    minutes: str,
    hours: str,
    only: tuple[str, ...],
    config: Path,
    influxd: str | None,
) -> None:
    """Query time of every board: cold (InfluxDB just started, page cache empty) and warm. A line a board and range."""
    tell_machine(influxd)
    spans = {text: seconds(text) for text in span.split(",")}
    kept = {schema.RAW: seconds(raw), schema.MINUTE: seconds(minutes), schema.HOUR: seconds(hours)}
    base = load_cluster(config)
    for count in _numbers(nodes):
        with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name, _with(_SETTINGS):
            server = LocalInfluxDB(Path(name), binary=influxd)
            try:
                server.start()
                cluster = large_cluster(base, count)
                cluster = replace(cluster, store=StoreSettings(url=server.url, database=_DATABASE))
                filled = _fill(cluster, count, kept, server)
                _measure(filled, spans, only)
                _rules(filled)
            finally:
                server.stop()


# -- filling ---------------------------------------------------------------------------------------


def _fill(cluster: Cluster, nodes: int, kept: dict[str, int], server: LocalInfluxDB) -> _Filled:
    """Fill the store up to now; print what it holds and what it takes."""
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    now = int(time.time()) // 3600 * 3600
    rows = series(cluster)
    began = time.monotonic()
    written: dict[str, int] = {}
    for retention in cluster.retentions():
        begin = now - kept[retention.name]
        written[retention.name] = sum(count for _, count in fill(store, retention, rows, begin, now))
    took = time.monotonic() - began
    size = _settled_bytes(server.folder)
    points = sum(written.values())
    line(
        step="boards_fill",
        nodes=nodes,
        filled={retention.name: _words(retention, kept) for retention in cluster.retentions()},
        points=points,
        points_by_retention=written,
        seconds=round(took, 1),
        points_per_second=round(points / took),
        series=sum(len(found) for found in rows.values()),
        series_cardinality=_cardinality(store),
        disk_bytes=size,
        bytes_a_point=round(size / points, 2),
    )
    store.close()
    return _Filled(cluster, nodes, now, server)


def _words(retention: Retention, kept: dict[str, int]) -> str:
    return f"{kept[retention.name] / 3600:g} h of windows of {retention.window} s"


def _cardinality(store: Store) -> int:
    """Return the series of the database, as InfluxDB counts them."""
    answer = store.query("SHOW SERIES EXACT CARDINALITY")
    return sum(int(row[-1]) for one in answer for row in one.values)


def _settled_bytes(folder: Path) -> int:
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


def _measure(filled: _Filled, spans: dict[str, int], only: tuple[str, ...]) -> None:
    texts = {name: json.loads(text) for name, text in all_boards(filled.cluster).items() if not only or name in only}
    for name, board in texts.items():
        for label, span in spans.items():
            filled.server.stop()
            is_cold = _forget_pages()
            filled.server.start()
            store = filled.open()
            cold = _ask(store, board, filled.now, span)
            warm = [_ask(store, board, filled.now, span) for _ in range(_WARM_RUNS)]
            best = _median(warm)
            slowest = max(best, key=lambda one: one.seconds)
            slow = [one for one in best if one.seconds > _SLOW]
            line(
                step="board",
                board=name,
                nodes=filled.nodes,
                span=label,
                panels=len(best),
                cold_seconds=round(sum(one.seconds for one in cold), 3),
                page_cache_dropped=is_cold,
                warm_seconds=round(sum(one.seconds for one in best), 3),
                panel_p50=round(median(one.seconds for one in best), 4),
                panel_max=round(slowest.seconds, 4),
                slowest=slowest.panel,
                **({"slow": [[one.panel, round(one.seconds, 2), one.query[:600]] for one in slow]} if slow else {}),
            )
            store.close()


def _ask(store: Store, board: dict[str, Any], now: int, span: int) -> list[Timed]:
    """Ask everything once, a query at a time; a panel's queries together."""
    found: dict[str, list[tuple[float, str]]] = {}
    for one in asked(board, now, _choices(store, board, now), span):
        began = time.monotonic()
        store.query(one.query)
        found.setdefault(one.panel, []).append((time.monotonic() - began, one.query))
    return [Timed(panel, sum(s for s, _ in times), max(times)[1]) for panel, times in found.items()]


def _choices(store: Store, board: dict[str, Any], now: int) -> dict[str, str]:
    """Return what a board's variables hold when it is opened; a list that the store is asked for is its rows."""
    found = first_choices(board)
    for variable in board["templating"]["list"]:
        if variable["type"] == "query" and variable["query"].startswith("SELECT"):
            answer = store.query(variable["query"].replace("now()", f"{now}s"))
            names = [str(values[-1]) for one in answer for values in one.values]
            found[variable["name"]] = f"({'|'.join(map(re.escape, names))})"
    return found


def _median(runs: list[list[Timed]]) -> list[Timed]:
    """Return each panel's run in the middle."""
    return [sorted(one, key=lambda timed: timed.seconds)[len(one) // 2] for one in zip(*runs, strict=True)]


def _rules(filled: _Filled) -> None:
    """Ask what all rules ask at one evaluation."""
    store, now = filled.open(), filled.now
    times = []
    for rule in rules_of(filled.cluster).rules:
        began = time.monotonic()
        for measure in rule.measures:
            store.query(measure.query.between(now - measure.since, now - measure.until))
        times.append((time.monotonic() - began, rule.id))
    slowest = max(times)
    line(
        step="rules",
        nodes=filled.nodes,
        rules=len(times),
        seconds=round(sum(took for took, _ in times), 3),
        slowest=slowest[1],
        slowest_seconds=round(slowest[0], 3),
    )
    store.close()


def _forget_pages() -> bool:
    """Have the kernel drop its page cache; False where we may not."""
    os.sync()
    try:
        _DROP_CACHES.write_text("3")
    except OSError:
        return False
    return True
