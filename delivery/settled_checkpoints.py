"""Whether a checkpoint is complete: its row is written while it is under way, too, and does not say so."""

from dataclasses import replace

from cluster.model import Cluster
from store import schema
from store.influx import Store
from store.influxql import Select, beside, is_in


class Completeness:
    """Asks where jobs stand.

    Args:
        cluster: length of a window.
        store: asked about each checkpoint when it is to be reported.
    """

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._window, self._store = cluster.bridge.window, store

    def is_complete(self, job: str, began: int) -> bool:
        """Return whether a job's checkpoint that began then is over, as far as it has been judged.

        It is once what a crash would lose counts from it, or from a later one. Where nothing is stored of that, it is.
        """
        rows = Select(schema.CHECKPOINT_STATUS, schema.CHECKPOINT_STATUS.kept).take(beside(schema.CHECKPOINT_AGE))
        newest = replace(rows.where(is_in(schema.JOB, [job])).between(began), newest=1)
        return all(moment + self._window - float(seconds) >= began for moment, seconds in self._store.rows(newest))
