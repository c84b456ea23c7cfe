"""Rules that fire on a share of an exporter's flow records, within the window of `flow_loss`."""

from cluster.model import Cluster
from rules.rule import Measure
from store import schema
from store.influxql import Column, Query, Select, ratio, total
from store.schema import Field

SHARE, PART, ALL = "share", "part", "all"


def share_measures(cluster: Cluster, field: Field) -> tuple[Measure, ...]:
    """Return by exporter SHARE of its records that `field` counts, PART, how many these are, and ALL, of how many."""
    records = schema.EXPORTER_RECORDS
    columns = ratio((field,), records, SHARE), total(field, PART), total(records, ALL)
    window = cluster.thresholds.flow_loss_window
    return tuple(Measure(column.name, _each(column), window) for column in columns)


def _each(column: Column) -> Query:
    return Select(schema.EXPORTER_STATUS, schema.RAW).take(column).by(schema.EXPORTER).per_series("Of an exporter.")
