"""The command ``clusterflow simulate``."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from app.errors import UserError
from app.signals import SignalEvent
from app.units import parse_duration
from app.words import amount
from cluster import options
from cluster.cli import cluster_option
from cluster.dump import dump_cluster
from cluster.model import Cluster
from simulate import scenario_cli
from simulate.incidents.exfiltration_evidence import with_exfiltration
from simulate.incidents.incident import Incident, IncidentKind
from simulate.incidents.incident_kinds import KINDS
from simulate.incidents.stage import Stage
from simulate.packets.flows import FlowBatch
from simulate.packets.own_exporter import collector
from simulate.packets.spool_files import SpoolFormat, SpoolWriter
from simulate.packets.udp import Clock, Target, UdpEmitter
from simulate.scenarios.scenario import Phase, Profile, Run, Scenario, runs_of
from simulate.scenarios.script import find_script, load_script
from simulate.target_option import TargetType
from simulate.traffic import bulk_load
from simulate.traffic.cast import Cast
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth

FINE_SECONDS = 3600
"""Spool files of longer times are written in coarse records: see `Phase.coarse`."""

FOREVER = 30 * 86_400
_LIVE_SECONDS = 600
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


@click.command()
@cluster_option
@click.option("--list", "lists", is_flag=True, help="List the scenarios that come with clusterflow.")
@click.option(
    "--scenario",
    "scenario_name",
    metavar="NAME|FILE",
    help="Play a scenario: one of --list, or a file (docs/reference/scenarios.md). As packets: the part around its "
    "first incident, now.",
)
@click.option("--into-store", is_flag=True, help="With --scenario: straight into a database of its own, and analysed.")
@click.option(
    "--influx-url", type=options.URL, metavar="URL", help="With --into-store: this InfluxDB. Default: store.url."
)
@click.option(
    "--database", type=options.DATABASE, metavar="NAME", help="With --into-store: its name. Default: scenario_NAME."
)
@click.option("--seed", type=int, help="The same seed sends the same flows.  [default: 1, or what the scenario says]")
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
    "--netflow", type=TargetType(), metavar="HOST:PORT", help="Where nfacctd listens. Default: collector.netflow_port."
)
@click.option(
    "--sflow", type=TargetType(), metavar="HOST:PORT", help="Where sfacctd listens. Default: collector.sflow_port."
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
    "--truth", "truth_file", type=options.OutputFile(path_type=Path), help="Write what was really sent, as JSON."
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
    "--write-cluster",
    type=options.OutputFile(path_type=Path),
    help="Write the cluster.yaml that fits what is sent: with --scenario or --flows.",
)
def simulate(
    cluster: Cluster,
    lists: bool,
    scenario_name: str | None,
    into_store: bool,
    influx_url: str | None,
    database: str | None,
    seed: int | None,
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
      clusterflow simulate --scenario node-death --into-store     a scenario into InfluxDB, with known truth
      clusterflow simulate --flows 10000000 --nodes 1024 --spool load --write-cluster load.yaml

    Files of more than an hour hold coarse records: flows of 60 s, and many small conversations as one.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    console = Console(stderr=True)
    if lists:
        scenario_cli.list_scenarios(Console())
        return
    _refuse_mixtures(
        {"--scenario": scenario_name, "--into-store": into_store, "--influx-url": influx_url, "--database": database},
        {"--incident": specs, "--flows": flows, "--nodes": nodes},
        {"--spool": spool, "--for": seconds, "--netflow": netflow, "--sflow": sflow},
    )
    if scenario_name is not None and into_store:
        script = load_script(find_script(scenario_name), seed=seed)
        fitting, truth = scenario_cli.into_store(script, cluster, url=influx_url, database=database, console=console)
        _finish(console, truth, truth_file)
        if write_cluster is not None:
            scenario_cli.write_cluster(fitting, write_cluster, console, script)
        return
    for_spool = spool is not None
    if scenario_name is not None:
        traffic = _of_scenario(scenario_name, seed, seconds, for_spool=for_spool)
    elif flows is not None:
        traffic = _of_load(cluster, seed or 1, flows, rate, nodes, for_spool=for_spool)
    else:
        _refuse_without_load(nodes, write_cluster)
        traffic = _of_cluster(cluster, 1 if seed is None else seed, seconds, specs, for_spool=for_spool)
    workload, phase = traffic.workload, traffic.phase
    if write_cluster is not None:
        write_cluster.write_text(dump_cluster(workload.cluster), encoding="utf-8")
    truth = GroundTruth(workload)
    stop = SignalEvent.of_stop()
    with _bar(console, phase, flows) as advance:
        if spool is not None:
            with SpoolWriter(workload, spool, truth, file_format=SpoolFormat(file_format)) as writer:
                _write(writer, traffic.batches, truth, stop, advance)
        else:
            own = collector(cluster, workload.cluster.exporters[0])
            netflow, sflow = netflow or own, sflow or replace(own, port=cluster.collector.sflow_port)
            with UdpEmitter(workload, truth, netflow=netflow, sflow=sflow, allow_remote=allow_remote) as emitter:
                clock = Clock() if speed == 1 and flows is None else Clock(phase.start, speed)
                emitter.run(traffic.batches, clock, stop, lambda at: advance(at.records, at.at))
    truth.complete = not stop.is_set()
    _finish(console, truth, truth_file)
    if stop.is_set() and not traffic.is_endless:
        raise SystemExit(_INTERRUPTED)


@dataclass(frozen=True, slots=True)
class _Traffic:
    """What is sent, in which time; `is_endless`: until it is stopped."""

    workload: Workload
    phase: Phase
    batches: Iterator[FlowBatch]
    is_endless: bool = False


def _of_scenario(name: str, seed: int | None, seconds: int | None, *, for_spool: bool) -> _Traffic:
    """Return a whole scenario for files, and the part around its first incident for packets."""
    if for_spool:
        script = load_script(find_script(name), seed=seed)
        phase = script.scenario.live
    else:
        script, phase = scenario_cli.live_part(name, seed, seconds or _LIVE_SECONDS)
    workload = Workload(script.cluster, replace(script.scenario, live=phase))
    return _Traffic(workload, phase, workload.batches(phase))


def _of_load(cluster: Cluster, seed: int, flows: int, rate: int, nodes: int | None, *, for_spool: bool) -> _Traffic:
    """Return exactly so many flow records."""
    cluster = cluster if nodes is None else bulk_load.large_cluster(cluster, nodes)
    phase = _phase(-(-flows // rate), for_spool=for_spool)
    workload = Workload(cluster, bulk_load.load_scenario(phase.start, phase.end - phase.start, seed))
    return _Traffic(workload, phase, bulk_load.load_batches(workload, flows, phase.end - phase.start))


def _of_cluster(
    cluster: Cluster, seed: int, seconds: int | None, specs: tuple[str, ...], *, for_spool: bool
) -> _Traffic:
    """Return what goes on in the cluster of cluster.yaml."""
    phase = _phase(seconds, for_spool=for_spool)
    workload = Workload(cluster, _scenario(cluster, phase, seed, specs))
    return _Traffic(workload, phase, workload.batches(phase), is_endless=seconds is None)


def _refuse_without_load(nodes: int | None, write_cluster: Path | None) -> None:
    if nodes is not None or write_cluster is not None:
        raise UserError(
            "--nodes: only with --flows; --write-cluster: with --flows or --scenario", "else cluster.yaml fits as it is"
        )


def _refuse_mixtures(of_store: dict[str, object], of_cluster: dict[str, object], of_sending: dict[str, object]) -> None:
    """Raise UserError for options that do not go together: names -> values."""
    scenario, into_store = of_store["--scenario"], of_store["--into-store"]
    given = [name for name, value in of_store.items() if value and name != "--scenario"]
    if given and not (scenario and into_store):
        raise UserError(
            f"{', '.join(given)}: of what?", "give --scenario NAME and --into-store; --list shows the names"
        )
    wrong = [name for name, value in of_cluster.items() if value] if scenario else []
    if wrong:
        raise UserError(
            f"{', '.join(wrong)}: not with --scenario", "the scenario's file says so; copy it to change that"
        )
    wrong = [name for name, value in of_sending.items() if value] if into_store else []
    if wrong:
        raise UserError(f"{', '.join(wrong)}: not with --into-store", "the whole scenario goes into the store")
    if scenario and of_sending["--spool"] and of_sending["--for"]:
        raise UserError("--for: not with --scenario and --spool", "the whole scenario is written")


def _finish(console: Console, truth: GroundTruth, truth_file: Path | None) -> None:
    if truth_file is not None:
        truth.write(truth_file)
    _tell(console, truth, truth_file)


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
    incidents = tuple(_incident(replace(stage, number=n), phase, spec) for n, spec in enumerate(specs))
    return Scenario(seed, phase, runs=runs, incidents=with_exfiltration(stage, incidents))


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
    play = KINDS[kind]
    if value is not None and not play.value:
        raise UserError(f"--incident {spec}", f"{kind.value} takes no value after =")
    if value is not None:
        (key,) = (key for key in play.keys if key.name == play.value)
        value = int(value) if isinstance(key.default, int) else value
    return play.stage(stage, start, end, {play.value: value})


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
        sizes = (amount(row[name]) for name in ("bytes", "suppressed_bytes"))
        table.add_row(row["exporter"], row["format"], *numbers, *sizes)
    console.print(table)
    totals = document["totals"]
    span = "" if document["first"] is None else f" from {document['first']} to {document['last']}"
    console.print(f"{totals['records']:,} records, {amount(totals['bytes'])} each flow once{span}")
    for incident in document["incidents"]:
        rules = ", ".join(incident["expected"]) or "none"
        console.print(f"{incident['id']}: {incident['start']} to {incident['end']}, rules that must fire: {rules}")
    if truth_file is not None:
        console.print(f"ground truth: {truth_file}")
