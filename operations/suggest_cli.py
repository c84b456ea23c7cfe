"""``clusterflow suggest``: what the bridge found out, as lines of cluster.yaml."""

import time

import click

from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.options import period_options
from operations.counting import stored_counting, suggestion
from store import schema
from store.influxql import finest
from store.schema_version import opened

_DAY = 86_400


@click.command()
@cluster_option
@period_options("24h")
def suggest(cluster: Cluster, start: float, stop: float) -> None:
    """Print lines for cluster.yaml: which exporter counts what several see, as the bridge found it.

    You need not write them down: without them the bridge goes on finding it out. With them it no longer looks. Give
    exporters that cluster.yaml does not name a name there first.
    """
    store = opened(cluster.store)
    retention = finest(cluster, start, stop, time.time(), (_DAY, 40 * _DAY))
    # Of a range that begins before all that is kept, hours have most.
    kept = retention.name if retention else schema.HOUR
    lines = suggestion(cluster, stored_counting(store, int(start), int(stop), kept))
    store.close()
    for line in lines or ["# nothing was seen by several exporters"]:
        click.echo(line)
