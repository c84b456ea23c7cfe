"""The state of each list about addresses: rows for the store and for people."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from app.words import one_line
from cluster.model import Cluster, ListSettings
from cluster.sections.network.prefix_files import changed_at
from enrichment.watched import FileReading
from store import schema
from store.schema import ListState

HOSTS = "hosts"
"""Kind of files in the format of /etc/hosts: they change when a machine does, and do not age by themselves."""

BUILTIN = "built-in"
"""Kind of what comes with clusterflow: an update of it brings a newer one."""

PREFIXES = "prefixes"
"""Kind of files with a group's prefixes: of ranges that never change none is too old."""

NODES = "inventory"
"""Kind of what inventory sources told; who asks them says when that was too long ago."""

_LASTING = frozenset({HOSTS, BUILTIN, PREFIXES, NODES})
_TAKEN_UP_SECONDS = 120
"""A file that was replaced is taken up by then, or was refused."""


def prefix_readings(cluster: Cluster, now: float) -> Iterator[FileReading]:
    """Yield how the files with prefixes of groups are; the version in use is the one that the cluster was loaded with.

    Args:
        cluster: as it is in force.
        now: epoch seconds.
    """
    for group in cluster.groups:
        names = Counter[str]()
        for one in group.files:
            path, changed = Path(one.path), changed_at(one.path)
            error = one.error if changed else f"{path}: not there any more"
            if not error and changed not in (0.0, one.dated) and now - changed > _TAKEN_UP_SECONDS:
                error = f"{path}: replaced, and not taken up: `clusterflow check` says why"
            names[path.name] += 1
            # A group may have several parts of one file, or files of one name.
            number = f"-{names[path.name]}" if names[path.name] > 1 else ""
            yield FileReading(
                f"{group.id}.{path.name}{number}", PREFIXES, path, one.prefixes, one.dated, "", 0, error,
                in_use=True, broken=bool(error),
            )  # fmt: skip


def list_state(reading: FileReading, settings: ListSettings, now: float) -> int:
    """Return a value of `ListState`: broken before stale. A list of which no version is in use counts as broken.

    Args:
        reading: of the file.
        settings: limits of ages.
        now: epoch seconds.
    """
    if reading.broken or not reading.in_use:
        return ListState.BROKEN
    no_limit = float("inf") if reading.kind in _LASTING else settings.stale_after
    limit = dict(settings.by_list).get(reading.name, no_limit)
    age = reading.age(now)
    return ListState.STALE if age is not None and age > limit else ListState.OK


def reading_rows(readings: Iterable[FileReading], settings: ListSettings, now: float) -> list[dict[str, object]]:
    """Return the tags and fields of `schema.ENRICHMENT`, a row a file, without time and shard."""
    return [
        {
            schema.NAME: one.name,
            schema.KIND: one.kind,
            schema.LIST_STATE.name: list_state(one, settings, now),
            schema.LIST_ENTRIES.name: one.entries,
            # Rules join it to the state, and a list that never was good is to be reported as well.
            schema.LIST_AGE.name: one.age(now) or 0.0,
            schema.LIST_SKIPPED.name: one.skipped,
            schema.LIST_ERROR.name: one_line(one.error),
            schema.LIST_IN_USE.name: int(one.in_use),
            schema.LIST_ORIGIN.name: one_line(one.origin),
        }
        for one in readings
    ]
