"""What the store's directory says of outside addresses, and who was signed in at inside ones."""

import threading
import time
from collections.abc import Mapping

from analysis.detectors.inference.asked import identity_of
from app.errors import StoreError
from cluster.model import Cluster
from store import schema
from store.influx import Store
from store.influxql import Select, is_in, newest

_KEPT_SECONDS = 300.0
_UNKNOWN_SECONDS = 10.0
"""The same where nothing is known: the bridge reports an address some seconds after its first flows."""

_MOST_KEPT = 20_000
_AWAY_SECONDS = 10.0
"""For how long a store that did not answer is not asked again: each try may take a minute."""

_REFRESH_SECONDS = 10.0


class Directory:
    """Asks the measurement `address`, and remembers the answers for some minutes.

    Args:
        store: asked once for each address in that time; left alone for some seconds when it does not answer.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, tuple[float, Mapping[str, str]]] = {}
        self._failed_at = -_AWAY_SECONDS

    def about(self, address: str) -> Mapping[str, str]:
        """Return what is known; nothing while the store does not answer: an event without names is better than none."""
        now = time.monotonic()
        asked_at, known = self._kept.get(address, (-_KEPT_SECONDS, {}))
        keep = _KEPT_SECONDS if known else _UNKNOWN_SECONDS
        if now - asked_at < keep or now - self._failed_at < _AWAY_SECONDS:
            return known
        try:
            found = self._ask(address)
        except StoreError:
            self._failed_at = time.monotonic()
            return known
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[address] = now, found
        return found

    def _ask(self, address: str) -> dict[str, str]:
        measurement = schema.ADDRESS_NAME
        asked = Select(measurement, measurement.kept).take(*map(newest, measurement.fields))
        found = self._store.rows(asked.where(is_in(schema.ADDRESS, [address])).between())
        names = [column.name for column in asked.columns]
        return {name: str(value) for _, *values in found for name, value in zip(names, values, strict=True) if value}


class SignedIn:
    """Who was at an address when, by the exports of sign-ins that cluster.yaml names.

    Args:
        cluster: whose `identity` is read, again now and then.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._identity = identity_of(cluster)
        self._refreshed_at = -_REFRESH_SECONDS
        # Grafana's alerts come in threads of their own.
        self._lock = threading.Lock()

    def user(self, address: str, moment: float) -> str:
        """Return the user, as spelled or under its pseudonym; empty if unknown."""
        with self._lock:
            if time.monotonic() - self._refreshed_at >= _REFRESH_SECONDS:
                self._refreshed_at = time.monotonic()
                self._identity.refresh(time.time())
            (found,) = self._identity.table.user_at([address], [int(moment)])
        return str(found)
