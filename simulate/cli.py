"""The command ``clusterflow simulate``."""

import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cluster.cli import cluster_option
from cluster.dump import dump_cluster
from cluster.errors import UserError
from cluster.model import Cluster
from cluster.units import parse_duration
from simulate import load
from simulate.cast import Cast
from simulate.demo_cli import DEMO_COMMANDS
from simulate.flows import FlowBatch
from simulate.incidents import Stage
from simulate.scenario import Incident, IncidentKind, Phase, Profile, Run, Scenario, runs_of
from simulate.spool import SpoolFormat, SpoolWriter
from simulate.truth import GroundTruth
from simulate.udp import Clock, Target, UdpEmitter
from simulate.workload import Workload

FINE_SECONDS = 3600
"""Spool files of longer times are written in coarse records: see `Phase.coarse`."""

FOREVER = 30 * 86_400
_FINE, _COARSE = 10, 60
_FLOW_RATE = 20_000
_INTERRUPTED = 130


def _seconds(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """Return whole seconds of ``90s``, ``15m`` or ``3d``."""
    if value is None:
        return None
    try:
        seconds = int(parse_duration(value))
    except ValueError:
        seconds = 0
    if seconds < 1:
        raise click.BadParameter(f"{value}: expected a duration such as 90s, 15m or 3d", context, parameter)
    return seconds


def _target(context: click.Context, parameter: click.Parameter, value: str | None) -> Target | None:
    """Return the target that HOST:PORT names."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise click.BadParameter(f"{value}: expected HOST:PORT, such as 127.0.0.1:2055", context, parameter)
    return Target(host.strip("[]"), int(port))


@click.command()
@cluster_option
@click.option("--seed", default=1, show_default=True, help="The same seed sends the same flows.")
@click.option(
    "--for", "seconds", callback=_seconds, metavar="TIME", help="Simulated time, such as 2m or 3d. Default: until ^C."
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Simulated seconds a second; 0: as fast as possible.",
)
@click.option(
    "--netflow", callback=_target, metavar="HOST:PORT", help="Where nfacctd listens. Default: collector.netflow_port."
)
@click.option(
    "--sflow", callback=_target, metavar="HOST:PORT", help="Where sfacctd listens. Default: collector.sflow_port."
)
@click.option("--allow-remote", is_flag=True, help="Send to other machines, too.")
@click.option(
    "--spool",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write files as pmacct would, of the time until now, instead of packets.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice([f.value for f in SpoolFormat]),
    default="csv",
    show_default=True,
    help="Of the files.",
)
@click.option(
    "--truth",
    "truth_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write what was really sent, as JSON.",
)
@click.option(
    "--incident",
    "specs",
    multiple=True,
    metavar="KIND@AT[+LENGTH][=VALUE]",
    help=f"Stage one, such as bulk_exfil@20s+30s or node_dropout@30s+2m=0.8 (what is left). "
    f"Kinds: {', '.join(kind.value for kind in IncidentKind)}. May be repeated.",
)
@click.option("--flows", type=click.IntRange(min=1), help="A load test: exactly so many flow records.")
@click.option(
    "--rate",
    type=click.IntRange(min=1),
    default=_FLOW_RATE,
    show_default=True,
    help="Flow records per second of --flows.",
)
@click.option("--nodes", type=click.IntRange(min=2), help="Training nodes of --flows. Default: those of cluster.yaml.")
@click.option(
    "--write-cluster", type=click.Path(path_type=Path, dir_okay=False), help="Write the cluster.yaml that fits --nodes."
)
def simulate(
    cluster: Cluster,
    seed: int,
    seconds: int | None,
    speed: float,
    netflow: Target | None,
    sflow: Target | None,
    allow_remote: bool,
    spool: Path | None,
    file_format: str,
    truth_file: Path | None,
    specs: tuple[str, ...],
    flows: int | None,
    rate: int,
    nodes: int | None,
    write_cluster: Path | None,
) -> None:
    """Play the cluster of cluster.yaml: jobs, storage, inference, incidents, as flow records of its exporters.

    \b
    Examples:
      clusterflow simulate --for 2m --truth truth.json            real NetFlow, IPFIX and sFlow to this machine
      clusterflow simulate --spool var/spool --for 3d             three days of files, in seconds
      clusterflow simulate --incident bulk_exfil@20s+30s          ... with an incident in it
      clusterflow simulate --flows 10000000 --nodes 1024 --spool load --write-cluster load.yaml

    Files of more than an hour hold coarse records: flows of 60 s, and many small conversations as one.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    if flows is None and (nodes is not None or write_cluster is not None):
        raise UserError("--nodes, --write-cluster: only with --flows", "cluster.yaml says how many nodes there are")
    cluster = cluster if nodes is None else load.large_cluster(cluster, nodes)
    if write_cluster is not None:
        write_cluster.write_text(dump_cluster(cluster), encoding="utf-8")
    length = seconds if flows is None else -(-flows // rate)
    phase = _phase(length, for_spool=spool is not None)
    if flows is None:
        workload = Workload(cluster, _scenario(cluster, phase, seed, specs))
        batches = workload.batches(phase)
    else:
        workload = Workload(cluster, load.load_scenario(phase.start, phase.end - phase.start, seed))
        batches = load.load_batches(workload, flows, phase.end - phase.start)
    truth = GroundTruth(workload)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    console = Console(stderr=True)
    with _bar(console, phase, flows) as advance:
        if spool is not None:
            with SpoolWriter(workload, spool, truth, file_format=SpoolFormat(file_format)) as writer:
                _write(writer, batches, truth, stop, advance)
        else:
            netflow, sflow = _collector(cluster, netflow, sflow)
            with UdpEmitter(workload, truth, netflow=netflow, sflow=sflow, allow_remote=allow_remote) as emitter:
                clock = Clock() if speed == 1 and flows is None else Clock(phase.start, speed)
                emitter.run(batches, clock, stop, lambda at: advance(at.records, at.at))
    truth.complete = not stop.is_set()
    if truth_file is not None:
        truth.write(truth_file)
    _tell(console, truth, truth_file)
    if stop.is_set() and length is not None:
        raise SystemExit(_INTERRUPTED)


def _write(
    writer: SpoolWriter,
    batches: Iterable[FlowBatch],
    truth: GroundTruth,
    stop: threading.Event,
    advance: Callable[[int, float], None],
) -> None:
    for batch in batches:
        writer.write(batch)
        advance(truth.records, batch.until / 1000)
        if stop.is_set():
            return


def _collector(cluster: Cluster, netflow: Target | None, sflow: Target | None) -> tuple[Target, Target]:
    """Return where to send: what the user said, else to the collector of cluster.yaml."""
    settings = cluster.collector
    host = settings.listen
    if ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return netflow or Target(host, settings.netflow_port), sflow or Target(host, settings.sflow_port)


def _phase(seconds: int | None, *, for_spool: bool) -> Phase:
    """Return the time to play: until now for files, from now on for packets."""
    if for_spool and seconds is None:
        raise UserError("--spool: for how long?", "add --for, such as --for 3d")
    length = FOREVER if seconds is None else seconds
    step = _COARSE if for_spool and length > FINE_SECONDS else _FINE
    length = -(-length // step) * step
    now = int(time.time())
    start = now // step * step - length if for_spool else -(-(now + 1) // step) * step
    if step == _COARSE:
        return Phase(start, start + length, step, 3600, coarse=60)
    return Phase(start, start + length, step, step)


def _scenario(cluster: Cluster, phase: Phase, seed: int, specs: tuple[str, ...]) -> Scenario:
    cast = Cast(cluster)
    runs = tuple(run for run in runs_of(cluster, phase) if run.end > phase.start)
    if not runs and cast.training:
        runs = (Run("simulated", tuple(cast.training), phase.start, phase.end),)
    stage = Stage(cluster, cast, Profile(), runs, None, seed)
    return Scenario(seed, phase, runs=runs, incidents=tuple(_incident(stage, phase, spec) for spec in specs))


_SPEC = re.compile(r"([a-z_]+)@([0-9a-z. ]+?)(?:\+([0-9a-z. ]+?))?(?:=([0-9.]+))?")


def _incident(stage: Stage, phase: Phase, spec: str) -> Incident:
    match = _SPEC.fullmatch(spec)
    kinds = [kind.value for kind in IncidentKind]
    if match is None or match[1] not in kinds:
        raise UserError(f"--incident {spec}", f"KIND@AT[+LENGTH][=VALUE] with KIND one of {', '.join(kinds)}")
    try:
        at, length = (int(parse_duration(text)) for text in (match[2], match[3] or "30s"))
        value = float(match[4]) if match[4] else None
    except ValueError:
        raise UserError(f"--incident {spec}", "times such as 20s or 2m, and a number after =") from None
    start = phase.start + at
    end = min(start + max(length, 1), phase.end)
    if start >= end:
        raise UserError(f"--incident {spec}", "it begins after the end; see --for")
    kind = IncidentKind(match[1])
    if kind is IncidentKind.NODE_DROPOUT:
        return stage.node_dropout(start, end, share=0.0 if value is None else min(value, 1.0))
    if kind is IncidentKind.EXPORTER_SILENT:
        return stage.exporter_silent(start, end)
    if kind is IncidentKind.FIRST_CONTACT:
        return stage.first_contact(start, end) if value is None else stage.first_contact(start, end, int(value))
    make = {
        IncidentKind.BULK_EXFIL: stage.bulk_exfil,
        IncidentKind.OFF_HOURS_TRANSFER: stage.off_hours_transfer,
        IncidentKind.APPROVED_TRANSFER: stage.approved_transfer,
    }[kind]
    return make(start, end) if value is None else make(start, end, value)


@contextmanager
def _bar(console: Console, phase: Phase, flows: int | None) -> Iterator[Callable[[int, float], None]]:
    """Show how far it is: of the flows of a load, else of the time; without an end, just what was sent."""
    total = float(flows) if flows else float(phase.end - phase.start)
    endless = not flows and phase.end - phase.start >= FOREVER
    columns = (TextColumn("sending"), BarColumn(), TextColumn("{task.fields[records]:,} records"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("sending", total=None if endless else total, records=0)

        def advance(records: int, at: float) -> None:
            bar.update(task, completed=float(records) if flows else at - phase.start, records=records)

        yield advance


def _tell(console: Console, truth: GroundTruth, truth_file: Path | None) -> None:
    document = truth.document(0)
    table = Table("exporter", "format", "1 in", "records", "datagrams", "bytes", "counted by others", box=None)
    for row in document["exporters"]:
        numbers = (f"{row[name]:,}" for name in ("sampling", "records", "datagrams"))
        sizes = (_short(row[name]) for name in ("bytes", "suppressed_bytes"))
        table.add_row(row["exporter"], row["format"], *numbers, *sizes)
    console.print(table)
    totals = document["totals"]
    span = "" if document["first"] is None else f" from {document['first']} to {document['last']}"
    console.print(f"{totals['records']:,} records, {_short(totals['bytes'])} each flow once{span}")
    for incident in document["incidents"]:
        rules = ", ".join(incident["expected"]) or "none"
        console.print(f"{incident['id']}: {incident['start']} to {incident['end']}, rules that must fire: {rules}")
    if truth_file is not None:
        console.print(f"ground truth: {truth_file}")


def _short(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} PB"


COMMANDS: list[click.Command] = [simulate, *DEMO_COMMANDS]
