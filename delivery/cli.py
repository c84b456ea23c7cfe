"""``clusterflow deliver``."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import click

from app.errors import ClusterflowError, StoreError
from app.log import Log
from app.signals import SignalEvent
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.options import log_option
from cluster.reload import ignore_hangups
from cluster.sections.delivery import FLOWS_PATH, INCIDENT_PATH, PICTURE_PATH
from delivery.alert_pictures import AlertPictures
from delivery.deliver import SHARD, Delivery
from delivery.flow_pages import FlowPages
from delivery.incident_pages import IncidentPages
from ingest.metrics import serve_metrics
from store.influx import Store
from store.lease import Lease, refuse_once
from store.schema_version import NewerStoreError, refuse_newer

_DRAIN_SECONDS = 60.0
_STEP_SECONDS = 1.0
_CLOCK_SECONDS = 60
"""For so long after a start the host's clock may be behind, until NTP sets it: nothing is told again meanwhile."""


@click.command()
@cluster_option
@click.option("--once", is_flag=True, help="Deliver what is stored now, and exit.")
@log_option
def deliver(cluster: Cluster, once: bool, log: Log) -> None:
    """Deliver alerts and what is stored to syslog, Splunk, Elasticsearch, Kafka, webhooks and files.

    Events go to a spool first and from there to each of `delivery.destinations`, in order, at least once, whatever is
    away meanwhile. An event that comes twice has the same id.
    """
    stopping = SignalEvent.of_stop()
    ignore_hangups(log, stopping, "deliver", "it goes on where it was")
    if once:
        refuse_once(cluster.store)
    lease = Lease(cluster.store, "deliver", Path(cluster.delivery.state), log, stopping)
    with closing(Store(cluster.store, may_write=lease.leads)) as store:
        # While it is away, or refuses us, nobody can say; what waits in the spool is delivered meanwhile.
        with suppress(StoreError):
            refuse_newer(store)
        if once:
            _once(Delivery(cluster, store, log=log, stopping=stopping), stopping)
            return
        with lease:
            while lease.wait():
                try:
                    delivery = Delivery(cluster, store, log=log, stopping=stopping, lease=lease)
                except StoreError as error:
                    log.sparse("store_failed", why=" ".join(error.lines()))
                    stopping.wait(_STEP_SECONDS)
                else:
                    _deliver(cluster, delivery, lease, log)
        log.line("stopped")


def _deliver(cluster: Cluster, delivery: Delivery, lease: Lease, log: Log) -> None:
    """Deliver until this is stopped, or does not lead any more."""
    with ExitStack() as cleanup:
        place, listen = "delivery.metrics_listen", cluster.delivery.metrics_listen
        counters = {SHARD: delivery.counters}
        pages = {
            INCIDENT_PATH: IncidentPages(cluster, time.time).page,
            FLOWS_PATH: FlowPages(cluster).page,
            PICTURE_PATH: AlertPictures(cluster, time.time).page,
        }
        serve_metrics(cleanup, cluster.bridge, listen, lambda: counters, delivery.health, place=place, pages=pages)
        delivery.start()
        names = ", ".join(sender.destination.name for sender in delivery.senders)
        log.line("started", cluster=cluster.name, destinations=names, alerts=cluster.delivery.alerts.value)
        patience = time.monotonic() + _CLOCK_SECONDS
        with _stopped_in_the_end(delivery):
            while not lease.ends():
                now = time.time()
                if now >= delivery.reached or time.monotonic() > patience:
                    delivery.tick(now)
                    delivery.refresh(now)
                else:
                    log.sparse("clock_behind", what="it told of later than now: waiting for the clock to be set")
                lease.stopping.wait(_STEP_SECONDS)


@contextmanager
def _stopped_in_the_end(delivery: Delivery) -> Iterator[None]:
    """Stop a delivery at the end, and also where the store was upgraded under it: what it knows is kept."""
    try:
        yield
    except NewerStoreError:
        delivery.stop(time.time())
        raise
    delivery.stop(time.time())


def _once(delivery: Delivery, stopping: SignalEvent) -> None:
    delivery.start()
    with _stopped_in_the_end(delivery):
        delivery.tick(time.time())
        while delivery.is_behind:
            delivery.tick(time.time())
        behind = delivery.drain(_DRAIN_SECONDS)
    if behind:
        until = "before it was stopped" if stopping.is_set() else f"within {_DRAIN_SECONDS:.0f} s"
        raise ClusterflowError(
            f"{', '.join(behind)}: not everything was taken {until}", "it waits in the spool: run it again"
        )
    if trouble := delivery.health():
        raise ClusterflowError(f"not everything was read or noted: {trouble}", "nothing is lost: run it again")
