"""The spool of flow records, and that of interface counters: a folder in it, read the same way."""

import contextlib
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from app.log import Log
from cluster.model import Cluster
from ingest.collect import counter_files
from ingest.read.file_notices import tell_of_file
from ingest.read.spool import Spool


def spools(
    cleanup: ExitStack, cluster: Cluster, folder: Path, *, once: bool, keep_files: bool, time_zone: ZoneInfo, log: Log
) -> tuple[Spool, Spool | None]:
    """Return the spool of flow records, and that of interface counters beside them, if there is one.

    Args:
        cleanup: closes both.
        cluster: whose collector may write there.
        folder: of flow records.
        once: read them to their end.
        keep_files: delete none.
        time_zone: of timestamps printed without one.
        log: told what happens to files.
    """
    # Files elsewhere belong to somebody else's daemon.
    is_ours = folder.resolve() == Path(cluster.collector.spool).resolve() and not once
    opened = partial(
        Spool, once=once, deletes=is_ours and not keep_files, time_zone=time_zone.key, notice=partial(tell_of_file, log)
    )
    records = opened(folder)
    cleanup.callback(records.close)
    counters = folder / counter_files.FOLDER
    if is_ours:
        # For a collector that starts later.
        with contextlib.suppress(OSError):
            counters.mkdir(exist_ok=True)
    if not counters.is_dir():
        return records, None
    samples = opened(counters)
    cleanup.callback(samples.close)
    return records, samples
