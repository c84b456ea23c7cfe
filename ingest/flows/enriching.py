"""The lists about addresses of one process: read at its start, and again when they change, beside the flows.

Their state goes to the store as points.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for

import polars as pl

from app.log import Log
from cluster.model import Cluster, ListSettings, Role
from enrichment.addresses.host_names import HostNames
from enrichment.inventory.asking import configured_readings
from enrichment.labels import Labels
from enrichment.list_states import reading_rows
from enrichment.providers import providers_of
from enrichment.watched import FileReading
from ingest.flows.address_directory import AddressDirectory
from store import schema
from store.points import WINDOW, columns
from store.schema import Measurement

_COLUMNS = columns(schema.NAME, schema.KIND, *schema.ENRICHMENT.fields)


def list_points(readings: Iterable[FileReading], settings: ListSettings, now: float, window: int) -> pl.DataFrame:
    """Return the rows of ENRICHMENT, without the shard.

    Args:
        readings: of all files.
        settings: when they are too old.
        now: epoch seconds.
        window: of the rows, epoch seconds.
    """
    rows = [{WINDOW: window, **row} for row in reading_rows(readings, settings, now)]
    return pl.DataFrame(rows, schema=_COLUMNS)


_LOOK_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0
"""For how long a start waits for files. A million prefixes take a few seconds; beyond, their disk does not answer."""


class Enrichment:
    """The files of one cluster, read by a thread of its own: whatever becomes of one, flows go on.

    Without a `before`, all files have been read once when this returns, or did not answer for a minute: a process that
    starts has labels from its first flow on.

    Args:
        cluster: says which there are.
        log: for each file that is read or refused.
        before: what is in use up to now. The good versions of its files stay in use until those of the same name are
            read, for which nobody waits: call `look` until `is_ready`.

    Attributes:
        labels: what they say of addresses.
        is_ready: whether all files have been read once, well or not.
    """

    def __init__(self, cluster: Cluster, log: Log, *, before: "Enrichment | None" = None) -> None:
        self._made_of = _made_of(cluster)
        self._settings = cluster.enrichment
        self._log = log
        providers = providers_of(cluster)
        self.labels = Labels(providers)
        self._names = next((one for one in providers if isinstance(one, HostNames)), None)
        self._directory = AddressDirectory(cluster, self._names)
        self._looking: Future[bool] | None = None
        self._looked = 0.0
        self._told: dict[str, tuple[float | None, str]] = {}
        self.is_ready = not self.labels
        if self.labels:
            if before is not None:
                self._adopt(before)
            looking = self._begin()
            if before is None:
                wait_for([looking], _PATIENCE_SECONDS)
            if looking.done():
                self._end(looking)
            else:
                self.look()

    def look(self) -> None:
        """Have files read again that have changed, beside what the caller does; call it often."""
        if not self.labels:
            return
        if self._looking is not None:
            if not self._looking.done():
                if time.monotonic() - self._looked >= _PATIENCE_SECONDS:
                    hint = "does their disk answer? what was read before stays in use"
                    self._log.sparse("lists_loading", seconds=time.monotonic() - self._looked, hint=hint)
                return
            self._end(self._looking)
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._begin()

    def serves(self, cluster: Cluster) -> bool:
        """Return whether another cluster has the same files, and means the same by them."""
        return _made_of(cluster) == self._made_of

    def points(self, cluster: Cluster, now: float, window: int) -> pl.DataFrame:
        """Return the state of each file: rows of ENRICHMENT, without the shard.

        Args:
            cluster: in force now, whose groups may have files with prefixes.
            now: epoch seconds.
            window: of the rows, epoch seconds.
        """
        readings = (*(file.reading() for file in self.labels.files), *configured_readings(cluster, now))
        return list_points(readings, self._settings, now, window)

    def see(self, points: Iterable[tuple[Measurement, pl.DataFrame]]) -> None:
        """Take note of the outside addresses in points that are about to be written."""
        if self.labels:
            self._directory.see(points)

    def addresses(self, now: float, window: int) -> pl.DataFrame:
        """Return what is new of addresses that were seen: rows of ADDRESS_NAME.

        Args:
            now: epoch seconds.
            window: of the rows, epoch seconds.
        """
        return self._directory.points(now, window)

    def close(self) -> None:
        """End: name servers are asked no more. A file that is being read is not waited for."""
        if self._names is not None:
            self._names.close()

    def _adopt(self, before: "Enrichment") -> None:
        known = {(file.kind, file.name): file for file in before.labels.files}
        for file in self.labels.files:
            other = known.get((file.kind, file.name))
            if other is not None:
                file.adopt(other)

    def _begin(self) -> Future[bool]:
        """Have a thread look at the files."""
        self._looked = time.monotonic()
        self._looking = looking = Future[bool]()
        # A daemon: nobody waits for a file on a disk that does not answer.
        threading.Thread(target=self._refresh, args=(looking,), name="files", daemon=True).start()
        return looking

    def _refresh(self, looking: Future[bool]) -> None:
        try:
            looking.set_result(self.labels.refresh())
        except BaseException as error:  # noqa: BLE001 - `_end` reports it, whatever it is
            looking.set_exception(error)

    def _end(self, looking: Future[bool]) -> None:
        """Take note of a look that is over."""
        self._looking, self._looked = None, time.monotonic()
        self.is_ready = True
        error = looking.exception()
        if error is not None:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            self._log.sparse("lists_failed", why=why, hint="what was read before stays in use; please report it")
        self._tell()

    def _tell(self) -> None:
        for name, entries, dated, error in self._readings():
            if self._told.get(name) == (dated, error):
                continue
            self._told[name] = dated, error
            if error:
                self._log.warning("list_invalid", name=name, why=error)
            else:
                self._log.line("list_read", name=name, entries=entries)

    def _readings(self) -> Iterator[tuple[str, int, float | None, str]]:
        for file in self.labels.files:
            reading = file.reading()
            yield f"{reading.kind}/{reading.name}", reading.entries, reading.dated, reading.error


def _made_of(cluster: Cluster) -> tuple[object, ...]:
    """Return all that an Enrichment takes from a cluster."""
    return (
        cluster.geography,
        cluster.names,
        cluster.applications,
        cluster.threat_feeds,
        cluster.enrichment,
        # What no feed may list, and whose addresses are outside.
        tuple(group.prefixes for group in cluster.inside_groups()),
        tuple(group.id for group in cluster.groups_with(Role.APPROVED_EXTERNAL)),
    )
