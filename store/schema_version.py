"""Which schema a store has: marked where it is made, migrated where it is older, refused where it is newer.

The schema's version counts what a stored point means: it goes up when a measurement, tag or field changes so that old
points would be read wrongly. What is only added needs no migration.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from app.errors import StoreError, UserError
from app.version import own_version
from cluster.model import Retention, StoreSettings
from store import schema
from store.influx import LacksDatabaseError, Store
from store.influxql import Select, beside
from store.points import WINDOW, encode

FIRST = 1
"""The schema of stores that bear no mark: they were made before there were marks."""

META = Retention(schema.META, 0, 0)
"""Kept for ever: a mark that expired would make an old store of a new one."""

Progress = Callable[[str], None]


class NewerStoreError(UserError):
    """The store was written by a newer clusterflow: we would misread it."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from a version to the next.

    Attributes:
        text: what it does, in a few words.
        apply: changes what is stored. It may be killed and run again: it must then end with the same.
    """

    text: str
    apply: Callable[[Store], None]


MIGRATIONS: tuple[Migration, ...] = ()
"""From version 1 on, in order: what is appended here makes the next version."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a store says of itself."""

    number: int
    written_by: str


def read_mark(store: Store) -> Mark | None:
    """Return the highest mark, whatever its writers' clocks said; None where there is none, or no database yet."""
    fields = schema.SCHEMA_NUMBER, schema.SCHEMA_WRITER
    try:
        found = [*store.rows(Select(schema.SCHEMA_VERSION, schema.META).take(*map(beside, fields)).between())]
    except LacksDatabaseError:
        return None
    marks = [Mark(int(mark), str(written_by)) for _, mark, written_by in found]
    return max(marks, key=lambda mark: mark.number, default=None)


def prepare(
    store: Store,
    retentions: tuple[Retention, ...],
    *,
    may_migrate: bool,
    tell: Progress = lambda _: None,
    migrations: tuple[Migration, ...] = MIGRATIONS,
) -> None:
    """Make the database and its retentions, and see to it that the schema is ours.

    Args:
        store: where.
        retentions: of the cluster.
        may_migrate: whether this process is the one that migrates: the bridge.
        tell: what is being done, where that takes time.
        migrations: all there are, from version 1 on.

    Raises:
        NewerStoreError: the store was written by a newer clusterflow; nothing was changed.
        StoreError: it is older, and another process has to migrate it first.
    """
    ours = FIRST + len(migrations)
    mark = refuse_newer(store, ours)
    is_empty = mark is None and not _has_points(store)
    store.ensure((*retentions, META), tell)
    number = ours if is_empty else FIRST if mark is None else mark.number
    if number < ours and not may_migrate:
        raise StoreError(
            f"{_place(store)}: its schema has version {number}, ours is {ours}",
            "start `clusterflow ingest` of this version: it migrates",
        )
    for step, migration in enumerate(migrations[number - FIRST :], number + 1):
        tell(f"schema {step}: {migration.text}")
        migration.apply(store)
        _write_mark(store, step)
    if mark is None and number == ours:
        _write_mark(store, ours)


def refuse_newer(store: Store, ours: int = FIRST + len(MIGRATIONS)) -> Mark | None:
    """Return the mark; NewerStoreError if a newer clusterflow wrote it."""
    mark = read_mark(store)
    if mark is not None and mark.number > ours:
        raise NewerStoreError(
            f"{_place(store)}: its schema has version {mark.number}, by clusterflow {mark.written_by}; "
            f"this one knows {ours}",
            "install that version or a newer one; nothing was changed",
        )
    return mark


def opened(settings: StoreSettings) -> Store:
    """Return the store for who reads it.

    Raises:
        NewerStoreError: it was written by a newer clusterflow: what it says might be read wrongly.
        StoreError: it does not answer, or refuses us.
    """
    store = Store(settings)
    try:
        refuse_newer(store)
    except BaseException:
        store.close()
        raise
    return store


def _place(store: Store) -> str:
    return f"InfluxDB at {store.url}, database {store.settings.database}"


def _has_points(store: Store) -> bool:
    try:
        return bool(store.query("SHOW MEASUREMENTS LIMIT 1"))
    except LacksDatabaseError:
        return False


def _write_mark(store: Store, number: int) -> None:
    row = {WINDOW: [int(time.time())], schema.SCHEMA_NUMBER.name: [number], schema.SCHEMA_WRITER.name: [own_version()]}
    store.write(encode(schema.SCHEMA_VERSION, pl.DataFrame(row)), schema.META)
