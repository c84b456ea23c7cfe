"""Readings of a process that writes flows to the store: of itself, and of the exporters that it heard."""

from collections.abc import Collection, Mapping
from pathlib import Path

import polars as pl

from cluster.model import Cluster
from ingest.collect.template_file import TemplateFile
from ingest.collect.trouble_file import GUARDS_TAGS, TAGS, lately
from ingest.count.engine import ExporterReading
from store import schema
from store.points import columns
from store.schema import Unread

_PAGE = 4096

_COLUMNS = columns(
    schema.EXPORTER, schema.AGE, schema.LAST_SEEN, schema.LAG, schema.SKEW, schema.SAMPLING, schema.UNREAD
)


def exporter_readings(
    cluster: Cluster,
    exporters: Mapping[str, ExporterReading],
    *,
    window: int,
    started: float,
    drained: float,
    elsewhere: Mapping[str, float] | None = None,
    unread: Mapping[str, Unread] | None = None,
) -> pl.DataFrame:
    """Return the readings of every exporter that is configured or was heard, as rows of EXPORTER_STATUS.

    Args:
        cluster: names the exporters that should be heard.
        exporters: those that were.
        window: of the rows, epoch seconds.
        started: since when they could have been heard, epoch seconds.
        drained: up to when the source is known to be read, having nothing more at that time; 0 if never.
        elsewhere: when others heard an exporter, or since when it is listed, epoch seconds.
        unread: what pmacct does not read of what each address sends, where that is known.
    """
    names = {str(exporter.address): exporter.name for exporter in cluster.exporters}
    templates = {names.get(address, address): bits for address, bits in (unread or {}).items()}
    elsewhere = elsewhere or {}
    # We know as much as the newest record, or the last look that found none: while a backlog waits, as after an
    # outage of the store, an exporter's silence is ours.
    heard = max(drained, *(reading.last_seen for reading in exporters.values()), 0.0)
    rows = []
    # Who is not listed and sends what cannot be read is known by that alone.
    unheard = {name for name, bits in templates.items() if bits}
    for name in sorted({*names.values(), *exporters, *unheard}):
        reading = exporters.get(name)
        # Before our own start we could not have heard it.
        last_seen = max(started, reading.last_seen if reading else 0.0, elsewhere.get(name, 0.0))
        rows.append(
            (window, name, max(heard - last_seen, 0.0))
            + ((reading.last_seen, reading.lag, reading.skew, reading.sampling) if reading else (None,) * 4)
            + (templates.get(name),)
        )
    return pl.DataFrame(rows, schema=_COLUMNS, orient="row")


def listed_since(before: Cluster, after: Cluster, now: float) -> dict[str, float]:
    """Return the exporters that only another cluster.yaml lists: until now, epoch seconds, nobody awaited them."""
    known = {exporter.address for exporter in before.exporters}
    return {exporter.name: now for exporter in after.exporters if exporter.address not in known}


def unread_of(templates: TemplateFile, spool: Path, now: float, doubled: Collection[str] = ()) -> dict[str, Unread]:
    """Return what pmacct does not read of what each address sends, and whose records come twice (`doubled`)."""
    unread = dict(templates.unread())
    for what in lately(spool, now, (TAGS, GUARDS_TAGS)):
        address = what.rpartition(" ")[2]
        unread[address] = unread.get(address, Unread(0)) | Unread.TAGGED
    for address in doubled:
        unread[address] = unread.get(address, Unread(0)) | Unread.TWICE
    return unread


def resident_bytes() -> int:
    """Return the memory that this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
