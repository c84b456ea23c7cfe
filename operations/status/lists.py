"""The state of the lists about addresses: as bridges report it, or as the files are now."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster.model import Cluster
from enrichment.identity.signin_sources import Identity
from enrichment.inventory.asking import configured_readings
from enrichment.list_states import reading_rows
from enrichment.providers import providers_of
from store import schema
from store.influx import Store
from store.influxql import Select, newest
from store.schema import ListState

_TOLD_SECONDS = 600
"""How long ago a bridge may have reported a list: one that works off a backlog, or reads a large file, says so late."""


@dataclass(frozen=True, slots=True)
class ListStatus:
    """One file.

    Attributes:
        name, kind: what cluster.yaml calls it, and what it is for.
        state: a value of `ListState`.
        entries: in the version in use.
        age: of the version in use, seconds; 0 without one.
        skipped: entries of it that were skipped.
        error: what is wrong, as one line; empty if nothing is.
        in_use: whether any version is in use.
        origin: where it comes from, by its own words.
    """

    name: str
    kind: str
    state: int
    entries: int
    age: float
    skipped: int
    error: str
    in_use: bool
    origin: str

    def json(self) -> dict[str, Any]:
        """Return it for machines: seconds and counts."""
        return {
            "name": self.name,
            "kind": self.kind,
            "state": schema.LIST_STATE_WORDS[self.state],
            "in_use": self.in_use,
            "entries": self.entries,
            "age_seconds": self.age,
            "skipped": self.skipped,
            "error": self.error,
            "origin": self.origin,
        }


def stored_lists(store: Store, now: int) -> tuple[ListStatus, ...]:
    """Return what bridges last told, in order of kinds and names; of several bridges, the one that is worst off.

    Args:
        store: where to look.
        now: epoch seconds.

    Raises:
        StoreError: the store does not answer.
    """
    tags = schema.NAME, schema.KIND, schema.SHARD
    query = Select(schema.ENRICHMENT, schema.RAW).take(*map(newest, schema.ENRICHMENT.fields)).by(*tags).per_series()
    columns = [field.name for field in schema.ENRICHMENT.fields]
    found: dict[tuple[str, str], ListStatus] = {}
    for series in store.query(query.between(now - _TOLD_SECONDS, now)):
        name, kind = series.tags[schema.NAME], series.tags[schema.KIND]
        told = _status({schema.NAME: name, schema.KIND: kind, **dict(zip(columns, series.values[-1][1:], strict=True))})
        before = found.get((kind, name))
        if before is None or told.state > before.state:
            found[kind, name] = told
    return tuple(found[key] for key in sorted(found))


def read_lists(cluster: Cluster, now: float) -> tuple[ListStatus, ...]:
    """Read every file that the cluster configures, and return how it is; in order of kinds and names.

    Args:
        cluster: says which files there are.
        now: epoch seconds.
    """
    files = [file for provider in providers_of(cluster) for file in provider.files]
    for file in files:
        file.refresh()
    # Names of users stay here: they need no pseudonyms.
    sign_ins = Identity(cluster.identity, cluster.site, cluster.store.keep_raw)
    sign_ins.refresh(now)
    readings = [*(file.reading() for file in files), *sign_ins.readings(), *configured_readings(cluster, now)]
    rows = reading_rows(readings, cluster.enrichment, now)
    return tuple(sorted(map(_status, rows), key=lambda one: (one.kind, one.name)))


def _status(row: Mapping[str, Any]) -> ListStatus:
    return ListStatus(
        name=row[schema.NAME],
        kind=row[schema.KIND],
        state=int(row[schema.LIST_STATE.name] or ListState.OK),
        entries=int(row[schema.LIST_ENTRIES.name] or 0),
        age=float(row[schema.LIST_AGE.name] or 0),
        skipped=int(row[schema.LIST_SKIPPED.name] or 0),
        error=row[schema.LIST_ERROR.name] or "",
        in_use=bool(row[schema.LIST_IN_USE.name]),
        origin=row[schema.LIST_ORIGIN.name] or "",
    )
