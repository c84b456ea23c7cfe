"""The spool of interface counters: a folder in the spool of flow records, read the same way."""

import contextlib
from contextlib import ExitStack
from pathlib import Path

from ingest.collect import counter_files
from ingest.read.spool import Spool


def counters_spool(cleanup: ExitStack, folder: Path, records: Spool, *, make: bool) -> Spool | None:
    """Return the spool of interface counters beside the flow records; None if there is none.

    Args:
        cleanup: closes it.
        folder: spool of the flow records.
        records: how that is read.
        make: whether to make the folder, for a collector that starts later.
    """
    counters = folder / counter_files.FOLDER
    if make:
        with contextlib.suppress(OSError):
            counters.mkdir(exist_ok=True)
    if not counters.is_dir():
        return None
    spool = Spool(counters, once=records.once, after=records.after, time_zone=records.time_zone, notice=records.notice)
    cleanup.callback(spool.close)
    return spool
