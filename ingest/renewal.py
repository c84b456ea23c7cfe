"""Another configuration for what counts flows: handed out once its lists have been read beside the flows."""

from app.log import Log
from cluster.model import Cluster
from cluster.reload import Reload
from ingest.flows.enriching import Enrichment


class Renewal:
    """Looks now and then whether there is another configuration.

    Args:
        reload: asked for it.
        log: for trouble with its lists.
    """

    def __init__(self, reload: Reload, log: Log) -> None:
        self.reload, self._log = reload, log
        self._coming: tuple[Cluster, Enrichment] | None = None

    def look(self, cluster: Cluster, enrichment: Enrichment) -> tuple[Cluster, Enrichment] | None:
        """Return what to take up in place of what is in force; `drop` what that leaves."""
        fresh = self.reload.asked(cluster)
        if fresh is not None:
            # Of two that were asked for the later one counts, also where the disk of the other's lists hangs.
            self.drop(enrichment)
            with self.reload.refusing():
                # The same files stay as they are: one that is broken just now keeps its last good version.
                serves = enrichment.serves(fresh)
                self._coming = fresh, enrichment if serves else Enrichment(fresh, self._log, before=enrichment)
        if self._coming is None:
            return None
        self._coming[1].look()
        return self._coming if self._coming[1].is_ready or self._coming[1] is enrichment else None

    def drop(self, in_force: Enrichment) -> None:
        """Let go of a configuration that is not taken up, or was, and of the lists that it alone has."""
        coming, self._coming = self._coming, None
        if coming is not None and coming[1] is not in_force:
            coming[1].close()
