"""Pages of incidents for browsers: by id, or by what a notification knows of an alert."""

import threading
from collections.abc import Callable
from urllib.parse import parse_qs, unquote

from app.errors import UserError
from cluster.model import Cluster
from cluster.sections.delivery import INCIDENT_PATH
from ingest.metrics import Document
from operations.alert_history import alert_like, find_alert
from reporting.incident.incident import incident_of
from reporting.incident.incident_page import html
from store.influx import Store

_BEGAN = "began"
_MILLISECONDS = 1000
_LATEST = 1 << 33


class IncidentPages:
    """Makes pages, one at a time: each asks the store some dozen questions.

    Args:
        cluster: whose alerts they are.
        clock: epoch seconds.
    """

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster, self._clock = cluster, clock
        self._lock = threading.Lock()

    def page(self, asked: str) -> Document:
        """Return a page.

        Args:
            asked: id of an incident, or the begin of one; or ``?`` with ``began`` in milliseconds and labels.

        Raises:
            UserError: there is no such alert.
            StoreError: the store is away.
        """
        path, _, query = asked.partition("?")
        now = int(self._clock())
        # A store of its own: that of the delivery is another thread's.
        with self._lock, Store(self._cluster.store) as store:
            if path.strip("/"):
                alert = find_alert(store, unquote(path.strip("/")), now)
            else:
                labels = {name: texts[0] for name, texts in parse_qs(query).items()}
                alert = alert_like(store, labels, _seconds(labels.pop(_BEGAN, "")))
            return Document(html(incident_of(self._cluster, store, alert, now), self._cluster).encode())


def _seconds(text: str) -> int:
    if not text.isdecimal() or int(text) // _MILLISECONDS > _LATEST:
        raise UserError(
            f"{INCIDENT_PATH}: expected an id, or {_BEGAN}=MILLISECONDS and labels", "`clusterflow alerts list` has ids"
        )
    return int(text) // _MILLISECONDS
