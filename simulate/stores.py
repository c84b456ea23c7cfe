"""The InfluxDB of a simulation: a given one, or a private one."""

import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from store.local_influxdb import LocalInfluxDB


@contextmanager
def influxdb(url: str | None) -> Iterator[str]:
    """Hold an InfluxDB to write to: the one at `url`, or one of our own for as long as it is needed."""
    if url is not None:
        yield url
        return
    # It has a session of its own: whoever is told to end, or loses the terminal, would leave it and its folder behind.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="clusterflow-influxdb-") as folder, LocalInfluxDB(Path(folder)) as server:
        yield server.url
