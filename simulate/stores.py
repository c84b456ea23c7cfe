"""The InfluxDB of a simulation: a given one, or a private one."""

import tempfile
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
    with tempfile.TemporaryDirectory(prefix="clusterflow-influxdb-") as folder, LocalInfluxDB(Path(folder)) as server:
        yield server.url
