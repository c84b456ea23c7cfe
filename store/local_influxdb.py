"""A private InfluxDB 1.x on the loopback interface: for the demo, for rule tests and backtests, and for the tests.

It has its own folder and its own port and knows nothing of an InfluxDB that the machine runs otherwise.
"""

import json
import shutil
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import requests

from app.errors import StoreError
from app.local_process import LocalProcess, end_of

_CONFIG = """\
reporting-disabled = true
bind-address = "127.0.0.1:{rpc_port}"

[meta]
  dir = "{folder}/meta"

[data]
  dir = "{folder}/data"
  wal-dir = "{folder}/wal"
  query-log-enabled = false
{data}

[http]
  bind-address = "127.0.0.1:{port}"
  log-enabled = false
  flux-enabled = true

[monitor]
  store-enabled = false

[logging]
  level = "warn"
"""

_DATA = {
    "index-version": "tsi1",
    "max-series-per-database": 0,
    "max-values-per-tag": 0,
    # A write must be on disk when it is acknowledged, but the demo can share one fsync among many.
    "wal-fsync-delay": "10ms",
}
"""Keys of the section [data] that callers may set otherwise."""

_START_SECONDS = 120.0


def free_port() -> int:
    """Return a free TCP port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class LocalInfluxDB(LocalProcess):
    """An influxd process; use it as a context manager, or `start` and `stop` it.

    Args:
        folder: where its data, log and configuration live; made if missing.
        port: TCP port, or 0 for a free one.
        binary: influxd to run; by default the one on the PATH.
        data: keys of its section [data] that are to have other values.
    """

    def __init__(
        self, folder: Path, port: int = 0, binary: str | None = None, *, data: Mapping[str, str | int] | None = None
    ) -> None:
        super().__init__()
        self._data = _DATA | dict(data or {})
        self.folder = folder.resolve()
        self.port = port or free_port()
        self.binary = binary or shutil.which("influxd") or ""

    @property
    def url(self) -> str:
        """Base address of its HTTP API."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start influxd and wait until it answers; StoreError with the end of its log if it does not."""
        if not self.binary:
            raise StoreError("influxd is not installed", "apt-get install influxdb")
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "influxdb.conf"
        data = "\n".join(f"  {key} = {json.dumps(value)}" for key, value in self._data.items())
        config.write_text(_CONFIG.format(folder=self.folder, port=self.port, rpc_port=free_port(), data=data))
        log = self.folder / "influxd.log"
        process = self._launch([self.binary, "-config", str(config)], log)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            try:
                if requests.get(f"{self.url}/ping", timeout=1).status_code == 204:
                    return
            except requests.RequestException:
                time.sleep(0.05)
        self.stop()
        raise StoreError(f"influxd did not start on port {self.port}: {end_of(log)}", f"see {log}")
