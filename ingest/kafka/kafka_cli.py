"""``clusterflow relay``, from a collector to Kafka; ``clusterflow ingest --kafka``, one of the workers."""

import socket
import threading
from contextlib import ExitStack
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from app.errors import ClusterflowError, UserError
from app.log import Log
from app.signals import SignalEvent
from archive.query import archive_folder
from cluster import options
from cluster.cli import cluster_option
from cluster.model import Cluster, KafkaFormat
from cluster.reload import Reload, ignore_hangups
from cluster.scalars import names
from ingest import quick
from ingest.counters import Counters
from ingest.dead_letter import DeadLetters
from ingest.kafka.publisher import Sender
from ingest.kafka.relay import Relay
from ingest.kafka.worker import KafkaWorker
from ingest.metrics import serve_metrics
from ingest.read.counter_spool import spools
from ingest.read.spool_place import spool_folder
from store.influx import Store

_ONCE_SECONDS = 60.0
"""How long a run that has an end waits for brokers."""


def _relay_id(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    """Return the host's name where no other is given; that, too, may not be one."""
    return options.NAME.convert(socket.gethostname(), parameter, context) if value is None else value


@click.command()
@cluster_option
@click.option("--spool", type=click.Path(path_type=Path), help="Folder of pmacct's files. Default: collector.spool.")
@click.option(
    "--id",
    "relay",
    type=options.NAME,
    metavar="NAME",
    callback=_relay_id,
    help="Name of this relay, and of what it must not forget: one for each spool. Default: the host's name.",
)
@click.option("--once", is_flag=True, help="Relay all files, and stop.")
@options.spool_options
@options.log_option
def relay(
    cluster: Cluster,
    spool: Path | None,
    relay: str,
    once: bool,
    dead_letters: Path | None,
    time_zone: ZoneInfo,
    keep_files: bool,
    metrics_listen: str | None,
    log: Log,
) -> None:
    """Send a collector's flow records to Kafka, for workers (`clusterflow ingest --kafka`) to share.

    \b
    Examples:
      clusterflow relay                           follow collector.spool, send to kafka.topic
      clusterflow relay --id leaf-collectors-1    one of several collectors; default: the host's name

    Every record arrives once, whatever is killed: what is sent and how far it has read are one transaction. While Kafka
    is away the spool grows; afterwards all is sent, in order. Only one relay of an id runs: one that starts takes over.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    if cluster.kafka.format is not KafkaFormat.CLUSTERFLOW:
        raise UserError(
            f"kafka.format: {cluster.kafka.format}: relays write the format {KafkaFormat.CLUSTERFLOW}",
            "set kafka.format, or let pmacct's Kafka plugin fill the topic and run no relay",
        )
    if cluster.cloud.format is not None:
        log.warning("logs_not_relayed", hint=f"`clusterflow ingest` reads {cluster.cloud.format} logs, beside workers")
    folder = spool or spool_folder(cluster)
    counters = Counters()
    stop = SignalEvent.of_stop()
    ignore_hangups(log, stop, "relay", "it goes on where it was")
    quick.prepare(None if once else Path(cluster.bridge.state), log)
    with ExitStack() as cleanup:
        source, counters_source = spools(
            cleanup, cluster, folder, once=once, keep_files=keep_files, time_zone=time_zone, log=log
        )
        sender = Sender(
            cluster.kafka, relay, stop=stop, log=log, counters=counters, patience=_ONCE_SECONDS if once else None
        )
        if dead_letters is None:
            dead_letters = Path("" if once else cluster.bridge.state) / "dead-letters.jsonl"
        worker = Relay(
            relay,
            source,
            sender,
            dead_letter=DeadLetters(dead_letters),
            stop=stop,
            log=log,
            counters=counters,
            counters_source=counters_source,
            # Of one that ends by itself nobody should wait for more.
            status_seconds=None if once else cluster.bridge.window,
        )
        listen = metrics_listen or cluster.bridge.metrics_listen
        if listen != names.OFF and not once:
            serve_metrics(cleanup, cluster.bridge, listen, lambda: {"": counters}, worker.health)
        summary = worker.run()
        unreadable = source.unreadable() if once else []
    if once and not summary.is_whole:
        raise ClusterflowError("stopped before everything was relayed", "run it again: it continues where it stopped")
    log.line(
        "done",
        records=summary.records,
        transactions=summary.transactions,
        dead_letters=summary.dead_letters,
        seconds=summary.seconds,
        **({"see": dead_letters} if summary.dead_letters else {}),
    )
    if unreadable:
        raise ClusterflowError(
            f"not read to the end: {', '.join(unreadable)}",
            "mend or replace them, and run it again: the rest is relayed",
        )


def follow_topic(
    cluster: Cluster,
    reload: Reload,
    *,
    refused: dict[str, bool],
    dead_letters: Path,
    time_zone: str,
    stop: threading.Event,
    log: Log,
) -> None:
    """Follow the topic until stopped.

    Args:
        cluster: what is known about the cluster.
        reload: asked for another configuration.
        refused: options that make no sense here, and whether they were given.
        dead_letters: file for records that make no sense.
        time_zone: of timestamps printed without a zone.
        stop: ends it in order.
        log: where it tells what it does.

    Raises:
        UserError: no brokers, or an option that makes no sense here.
    """
    for option, is_given in refused.items():
        if is_given:
            raise UserError(
                f"{option} is about files, and --kafka reads a topic, which has no end", f"leave {option} out"
            )
    worker = KafkaWorker(
        cluster,
        Store(cluster.store),
        dead_letter=DeadLetters(dead_letters),
        stop=stop,
        log=log,
        time_zone=time_zone,
        # One for all workers of the machine: whoever asks finds it, and each partition there has a folder of its own.
        archive=archive_folder(cluster) if cluster.archive.enabled else None,
        reload=reload,
    )
    with ExitStack() as cleanup:
        serve_metrics(cleanup, cluster.bridge, cluster.bridge.metrics_listen, worker.counters, worker.health)
        worker.run()
    log.line("done")
