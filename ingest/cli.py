"""The commands that bring flows into the store."""

import hashlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

from app.errors import ClusterflowError, UserError
from app.heap import keep_freed
from app.log import Log
from app.signals import SignalEvent
from archive.samples import FOLDER, Samples
from archive.writer import Archive
from cluster import options
from cluster.cli import cluster_file, cluster_option
from cluster.model import CloudFormat, Cluster, KafkaSettings
from cluster.reload import Reload
from cluster.scalars import names
from enrichment.inventory.asking import Watcher
from ingest import quick
from ingest.bridge import Bridge, Summary
from ingest.cloud.files import CloudFiles, CloudReader, patterns
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from ingest.flows.normalise import Clock
from ingest.kafka.kafka_cli import follow_topic
from ingest.metrics import serve_metrics
from ingest.read.counter_spool import spools
from ingest.read.file_notices import tell_of_file
from ingest.read.records import Gap
from ingest.read.source import Source, StreamSource
from ingest.read.spool import PATTERNS, Spool
from ingest.read.spool_place import spool_folder
from store.influx import Store
from store.schema import Stage

_PMACCT = "pmacct"


@click.command()
@cluster_option
@click.option(
    "--spool",
    type=click.Path(path_type=Path),
    help="Folder of pmacct's files, or - for standard input. Default: collector.spool.",
)
@click.option(
    "--format",
    "cloud",
    type=click.Choice([_PMACCT, *(one.value for one in CloudFormat)]),
    help="Whose files they are: pmacct's, or flow logs of a cloud, in folders as the provider makes them. "
    "Default: cloud.format, or pmacct.",
)
@click.option("--kafka", is_flag=True, help="Share the topic kafka.topic with other workers instead of reading files.")
@click.option("--once", is_flag=True, help="Read all files, by the records' own times, and stop.")
@click.option("--influx-url", type=options.URL, metavar="URL", help="Another InfluxDB than store.url.")
@click.option("--database", type=options.DATABASE, metavar="NAME", help="Another database than store.database.")
@click.option(
    "--shard",
    type=options.SHARD,
    metavar="NAME",
    help="Tag of this bridge's partial totals: one for each source, or they overwrite each other. "
    "Default: bridge.shard; with --once one of the folder's path, or once-stdin.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Folder of the checkpoint. Default: bridge.state; with --once a temporary one.",
)
@options.spool_options
@options.log_option
def ingest(
    cluster: Cluster,
    spool: Path | None,
    cloud: str | None,
    kafka: bool,
    once: bool,
    influx_url: str | None,
    database: str | None,
    shard: str | None,
    state: Path | None,
    dead_letters: Path | None,
    time_zone: ZoneInfo,
    keep_files: bool,
    metrics_listen: str | None,
    log: Log,
) -> None:
    """Turn flow records into points: follow the spool until stopped, or read it once.

    \b
    Examples:
      clusterflow ingest                                  follow collector.spool, write to store.url
      clusterflow ingest --spool old/ --once              backfill files of any age, by their own times
      clusterflow ingest --spool /var/nfacctd             follow the files of a daemon of your own; they are kept
      nfacctd -f my.conf | clusterflow ingest --spool -   read a daemon's standard output
      clusterflow ingest --once --spool logs/ --format aws-vpc   VPC flow logs, as copied from their bucket
      clusterflow ingest --kafka                          one worker of those that share the topic kafka.topic

    A restart continues from the last checkpoint; totals stay exact, whatever was killed. Two runs of --once over
    the same folder write the same points. SIGHUP has it read cluster.yaml again.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    keep_freed()
    stop = SignalEvent.of_stop()
    quick.prepare(None if once else state or Path(cluster.bridge.state), log)
    if kafka:
        as_asked = partial(_as_asked, url=influx_url, database=database, shard=shard, listen=metrics_listen)
        follow_topic(
            as_asked(cluster),
            _reload(partial(_same_topic, cluster.kafka, as_asked), stop, log),
            refused={
                "--once": once,
                "--format": cloud is not None,
                "--spool": spool is not None,
                "--keep-files": keep_files,
            },
            dead_letters=dead_letters or (state or Path(cluster.bridge.state)) / "dead-letters-kafka.jsonl",
            time_zone=time_zone.key,
            stop=stop,
            log=log,
        )
        return
    logs, folder = _asked_for(cluster, cloud, spool, once=once)
    is_stream = str(spool) == "-"
    once_shard = "once-stdin" if is_stream else _once_shard(folder.resolve())
    own_shard = shard or (once_shard if once else None)
    as_asked = partial(_as_asked, url=influx_url, database=database, shard=own_shard, listen=metrics_listen)
    cluster = as_asked(cluster)
    counters = Counters()
    reload = None if once else _reload(as_asked, stop, log)
    with ExitStack() as cleanup:
        is_temporary = once and state is None
        if is_temporary:
            state = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="clusterflow-once-")))
        state = state or Path(cluster.bridge.state)
        source: Source
        counters_source: Source | None = None
        if is_stream:
            source = StreamSource(sys.stdin.buffer, time_zone=time_zone.key)
            cleanup.callback(source.close)
        elif logs:
            source = CloudFiles(folder, logs, once=once, notice=partial(tell_of_file, log))
            cleanup.callback(source.close)
        else:
            source, counters_source = spools(
                cleanup, cluster, folder, once=once, keep_files=keep_files, time_zone=time_zone, log=log
            )
        if dead_letters is None:
            dead_letters = Path("dead-letters.jsonl") if is_temporary else state / "dead-letters.jsonl"
        # Of a backfill without a state nothing stays but points, unless cluster.yaml names a place.
        kept = cluster.archive.folder or (None if is_temporary else state / "archive")
        root, shard = Path(kept) if kept and cluster.archive.enabled else None, cluster.bridge.shard
        bridge = Bridge(
            cluster,
            Store(cluster.store),
            source,
            clock=Clock.BACKFILL if once else Clock.LIVE,
            state=state / "bridge",
            dead_letter=DeadLetters(dead_letters),
            stop=stop,
            log=log,
            counters=counters,
            counters_source=counters_source,
            reload=reload,
            archive=Archive(root / shard, cluster.archive, log) if root else None,
            # Of the past nobody asks for steps.
            samples=Samples(root / FOLDER / shard, cluster.archive, log) if root and not once else None,
            cloud=CloudReader(logs, cluster.cloud.skip_interfaces) if logs else None,
        )
        if not once:
            listen = cluster.bridge.metrics_listen
            serve_metrics(cleanup, cluster.bridge, listen, lambda: {shard: counters}, bridge.health)
        summary = _with_bar(bridge, source) if once else bridge.run()
        unreadable = source.unreadable() if once and isinstance(source, Spool | CloudFiles) else []
    if not summary.is_whole:
        raise ClusterflowError("stopped before everything was read: the totals are not whole", "run it again")
    _tell_end(log, summary, counters, dead_letters, once=once)
    if once and not summary.records and not unreadable:
        raise ClusterflowError(
            f"{folder}: no flow records found",
            f"see {dead_letters}"
            if summary.dead_letters
            else f"files are read whose names match {', '.join(patterns(logs) if logs else PATTERNS)}",
        )
    if unreadable:
        raise ClusterflowError(
            f"not read to the end: {', '.join(unreadable)}",
            "mend or replace them, and run it again: the rest is stored",
        )


def _as_asked(
    cluster: Cluster, *, url: str | None, database: str | None, shard: str | None, listen: str | None
) -> Cluster:
    """Return the cluster with what the command line says in place of what its file says."""
    store = replace(cluster.store, url=url or cluster.store.url, database=database or cluster.store.database)
    bridge = cluster.bridge
    listens = None if listen == names.OFF else listen or bridge.metrics_listen
    bridge = replace(bridge, shard=shard or bridge.shard, metrics_listen=listens)
    return replace(cluster, store=store, bridge=bridge)


def _same_topic(kafka: KafkaSettings, as_asked: Callable[[Cluster], Cluster], fresh: Cluster) -> Cluster:
    """Return what a worker may take up; UserError where that is about another topic."""
    if fresh.kafka != kafka:
        raise UserError("kafka cannot change while it runs", "restart this worker: others take over meanwhile")
    return as_asked(fresh)


def _reload(as_asked: Callable[[Cluster], Cluster], stop: threading.Event, log: Log) -> Reload:
    """Return what SIGHUP asks for another configuration."""
    reload = Reload(cluster_file(), as_asked, log, beside=Watcher(log).look)
    # Where it comes from a terminal that is gone, nobody wants us to stay.
    signal.signal(signal.SIGHUP, (lambda *_: stop.set()) if sys.stdin.isatty() else reload.on_signal)
    return reload


def _once_shard(folder: Path) -> str:
    """Return the shard of a backfill: readable, and another one for each folder, also for two of one name."""
    return f"once-{folder.name}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:6]}"


def _tell_end(log: Log, summary: Summary, counters: Counters, dead_letters: Path, *, once: bool) -> None:
    """Tell what a run did, and what of it is a guess."""
    log.line(
        "done",
        records=summary.records,
        points=summary.points,
        dead_letters=summary.dead_letters,
        seconds=summary.seconds,
        **({"see": dead_letters} if summary.dead_letters else {}),
        **_of_cloud(counters),
    )
    if once and summary.unknown_rates:
        guessed = sorted(summary.unknown_rates.items(), key=lambda item: (-item[1], item[0]))
        log.warning(
            "rate_unknown",
            exporters=", ".join(f"{name} ({count} records)" for name, count in guessed[:_MOST_NAMED]),
            **({"more": len(guessed) - _MOST_NAMED} if len(guessed) > _MOST_NAMED else {}),
            taken_as="1:1",
            hint="they sample, and sent no rate: set exporters.*.sampling",
        )


def _asked_for(
    cluster: Cluster, cloud: str | None, spool: Path | None, *, once: bool
) -> tuple[CloudFormat | None, Path]:
    """Return whose flow logs are to be read, if any, and from which folder."""
    logs = cluster.cloud.format if cloud is None else None if cloud == _PMACCT else CloudFormat(cloud)
    if logs is None:
        return None, spool or spool_folder(cluster)
    if str(spool) == "-":
        raise UserError(f"--spool -: {logs.value} logs are read from a folder", "name it with --spool")
    if not once and cluster.cloud.format is not logs:
        # How late records may come, and what rules wait for, follows from it.
        raise UserError(
            f"--format {logs.value}: cluster.yaml does not say so", f"set cloud.format: {logs.value}, or add --once"
        )
    return logs, spool or Path(cluster.cloud.folder or spool_folder(cluster))


def _of_cloud(counters: Counters) -> dict[str, float]:
    """Return what a cloud's flow logs told beside records."""
    told = {name: counters.total(Stage.READ, name) for name in ("denied_records", *Gap)}
    return {str(name): count for name, count in told.items() if count}


_MOST_NAMED = 8


def _with_bar(bridge: Bridge, source: Source) -> Summary:
    columns = ("reading", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=source.backlog_bytes())
        return bridge.run(lambda count: bar.advance(task, count))
