"""``clusterflow ingest --kafka``: one worker of those that share a topic."""

import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from app.errors import UserError
from app.log import Log
from cluster.model import Cluster
from ingest.dead_letter import DeadLetters
from ingest.kafka.worker import KafkaWorker
from ingest.metrics import serve_metrics
from store.influx import Store


def follow_topic(
    cluster: Cluster,
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
    )
    _keep_configuration(log)
    with ExitStack() as cleanup:
        serve_metrics(cleanup, cluster.bridge, cluster.bridge.metrics_listen, worker.counters, worker.health)
        worker.run()
    log.line("done")


def _keep_configuration(log: Log) -> None:
    """Have a SIGHUP answered in the log; where it comes from a terminal that is gone, it ends us as ever."""
    if not sys.stdin.isatty():
        hint = "restart this worker: others take over meanwhile"
        signal.signal(
            signal.SIGHUP, lambda *_: log.warning("configuration_refused", why="read at the start only", hint=hint)
        )
