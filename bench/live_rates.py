"""`scripts/bench live` and `soak`: from UDP to the store at given rates, with everything accounted for."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import click

from app.errors import UserError
from app.units import parse_duration
from bench.bridge_rate import line
from bench.load.packet_sender import POOL
from bench.machine import tell_machine
from bench.pipelines import PARTITIONS, Load, pipeline, run_load
from ingest.kafka.local_kafka import has_kafka


def rates(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """Read ``50000,100000``."""
    return numbers(text, "numbers of flow records a second, such as 50000,100000")


def worker_counts(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Read ``1,2,4``; nothing where it is not given."""
    return () if text is None else numbers(text, "numbers of workers, such as 1,2,4")


def numbers(text: str, expected: str) -> tuple[int, ...]:
    """Read whole numbers from 1, commas between them; BadParameter for anything else."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise click.BadParameter(f"{text}: expected {expected}")
    return found


def duration(_context: click.Context, _parameter: click.Parameter, text: str) -> float:
    """Read ``60``, ``90s`` or ``30m`` as seconds."""
    try:
        seconds = float(text) if text.replace(".", "", 1).isdigit() else float(parse_duration(text))
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise click.BadParameter(f"{text}: expected seconds, or a duration such as 90s or 30m")
    return seconds


_for = click.option("--for", "seconds", callback=duration, default="60", show_default=True, help="How long each.")
_nodes = click.option("--nodes", default=1024, show_default=True, help="Training nodes.")
_config = click.option(
    "--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True, help="The base."
)
_influxd = click.option("--influxd", help="InfluxDB 1.x to run. Default: the one on the PATH.")
_pool = click.option(
    "--pool", default=POOL, show_default=True, help="Flow records made beforehand, sent over and over."
)


@click.command()
@click.option("--rate", "rate", callback=rates, default="50000,100000,200000", show_default=True, help="Flows/s.")
@_for
@_nodes
@_config
@_influxd
@_pool
@click.option(
    "--workers",
    callback=worker_counts,
    help="1,2,4: through a Kafka broker here to so many workers, one run each, no bridge.",
)
@click.option("--folder", type=click.Path(path_type=Path), help="Keep everything there. Default: a temporary one.")
def live(  # noqa: PLR0917 - click passes everything by name
    rate: tuple[int, ...],
    seconds: float,
    nodes: int,
    config: Path,
    influxd: str | None,
    pool: int,
    workers: tuple[int, ...],
    folder: Path | None,
) -> None:
    """UDP -> nfacctd -> spool -> bridge -> InfluxDB: what is lost where, how late, at what cost. A line a rate."""
    if workers and not has_kafka():
        raise UserError("no Kafka here", "it needs Java 17 and the jars of tests/kafka/pom.xml in var/tools/kafka")
    tell_machine(influxd)
    for one, count in product(rate, workers or (0,)):
        name = f"live-{one}-{count}" if count else f"live-{one}"
        with (
            work_folder(folder, name) as place,
            pipeline(config, nodes, place, influxd=influxd, workers=count) as running,
        ):
            series: list[dict[str, Any]] = []
            found = run_load(running, Load(one, seconds, pool), series.append)
            found["refresh_seconds"] = running.cluster.collector.refresh
            step = {"step": "live_kafka", "workers": count, "partitions": PARTITIONS} if count else {"step": "live"}
            line(**step, nodes=nodes, **found, memory_series=_series(series))


@click.command()
@click.option("--rate", default=100_000, show_default=True, help="Flows/s.")
@_for
@_nodes
@_config
@_influxd
@_pool
@click.option("--log", "log", type=click.Path(path_type=Path), help="Write the rows there, too, as text.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keep everything there. Default: a temporary one.")
def soak(  # noqa: PLR0917 - click passes everything by name
    rate: int,
    seconds: float,
    nodes: int,
    config: Path,
    influxd: str | None,
    pool: int,
    log: Path | None,
    folder: Path | None,
) -> None:
    """The same for long: memory every 10 s (own + files mapped), flat or not, and all totals at the end."""
    tell_machine(influxd)
    rows: list[str] = []

    def tell(row: dict[str, Any]) -> None:
        line(step="soak_row", **row)
        mapped = row["mapped_mib"]
        memory = " ".join(f"{name} {own:5} + {mapped[name]:3} MiB" for name, own in sorted(row["memory_mib"].items()))
        rows.append(f"{row['second']:8.1f} s  {memory}  delay {row['delay']} s  dropped {row['dropped']}")
        if log is not None:
            log.write_text("\n".join(rows) + "\n")

    with work_folder(folder, "soak") as place, pipeline(config, nodes, place, influxd=influxd) as running:
        found = run_load(running, Load(rate, seconds, pool, every=10.0), tell)
        found["refresh_seconds"] = running.cluster.collector.refresh
        line(step="soak", nodes=nodes, **found)


def _series(rows: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Return each part's memory over time, MiB."""
    names = sorted({name for row in rows for name in row["memory_mib"]})
    return {name: [row["memory_mib"].get(name, 0) for row in rows] for name in names}


@contextmanager
def work_folder(folder: Path | None, name: str) -> Iterator[Path]:
    """Hold a folder: one in the user's, which must be empty, or a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as made:
            yield Path(made).resolve()
        return
    path = folder / name
    if path.exists() and any(path.iterdir()):
        raise UserError(f"{path}: is not empty", "choose another --folder")
    path.mkdir(parents=True, exist_ok=True)
    yield path.resolve()
