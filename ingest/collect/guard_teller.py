"""Who sent what the filter refused: told in the log, and noted for the bridge."""

from collections import Counter
from collections.abc import Callable

from cluster.model import Cluster
from ingest.collect.guard import Guard
from ingest.collect.trouble_file import REFUSED, UNLISTED, Troubles


class Teller:
    """Tells what a guard refused.

    Args:
        cluster: names its exporters.
        troubles: where it is noted.
        log: called as ``log(event, **values)``.
    """

    def __init__(self, cluster: Cluster, troubles: Troubles, log: Callable[..., None]) -> None:
        self._names = {exporter.address: exporter.name for exporter in cluster.exporters}
        self._troubles, self._log = troubles, log

    def tell(self, guard: Guard) -> int:
        """Tell of what was refused since the last call; return how many datagrams that were."""
        found = Counter(guard.refusals())
        for refusal, count in found.items():
            name = self._names.get(refusal.source, UNLISTED)
            self._troubles.add(REFUSED, name, count)
            self._log(
                "datagrams_refused",
                level="error",
                source=refusal.source,
                exporter=name,
                count=count,
                why=f"a template has element {refusal.element} with {refusal.size} bytes: it would kill nfacctd"
                if refusal.element
                else "no field of a template has a length: nfacctd would read it for ever",
            )
        return found.total() + guard.missed()
