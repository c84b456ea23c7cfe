"""Whether a checkpoint is complete: its row is written while it is under way, too, and does not say so."""

from cluster import schema
from cluster.model import Cluster
from dashboards.queries import identifier, literal
from ingest.store import Store


class Completeness:
    """Asks where jobs stand.

    Args:
        cluster: length of a window.
        store: asked about each checkpoint when it is to be told of.
    """

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._window, self._store = cluster.bridge.window, store

    def is_complete(self, job: str, began: int) -> bool:
        """Return whether a job's checkpoint that began then is over, as far as it has been judged.

        It is once what a crash would lose counts from it, or from a later one. Where nothing is stored of that, it is.
        """
        table = f"{identifier(schema.CHECKPOINT_STATUS.kept)}.{identifier(schema.CHECKPOINT_STATUS.name)}"
        where = f"{identifier(schema.JOB)} = {literal(job)} AND time >= {began}s"
        age = identifier(schema.CHECKPOINT_AGE.name)
        answer = self._store.query(
            f"SELECT {age} FROM {table} WHERE {where} ORDER BY time DESC LIMIT 1"  # noqa: S608 - quoted
        )
        if not answer:
            return True
        moment, seconds = answer[0].values[0]
        return int(moment) // 1000 + self._window - float(seconds) >= began
