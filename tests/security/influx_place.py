"""An InfluxDB 1.8 that asks who you are, and one that speaks TLS with a certificate of an authority of our own."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from store.local_influxdb import free_port

CONFIG = """\
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
  dir = "{folder}/meta"
[data]
  dir = "{folder}/data"
  wal-dir = "{folder}/wal"
  index-version = "tsi1"
[http]
  bind-address = "127.0.0.1:{port}"
  log-enabled = false
  auth-enabled = {auth}
  https-enabled = {tls}
  https-certificate = "{folder}/server.pem"
  https-private-key = "{folder}/server.key"
[monitor]
  store-enabled = false
[logging]
  level = "warn"
"""


@contextmanager
def influxdb(binary: str, folder: Path, *, auth: bool = False, tls: bool = False) -> Iterator[int]:
    """Run it; yield its port."""
    port = free_port()
    config = folder / "influxdb.conf"
    words = {True: "true", False: "false"}
    config.write_text(CONFIG.format(rpc=free_port(), port=port, folder=folder, auth=words[auth], tls=words[tls]))
    log = folder / "influxd.log"
    with (
        log.open("wb") as output,
        subprocess.Popen([binary, "-config", str(config)], stdout=output, stderr=output) as one,
    ):
        try:
            scheme = "https" if tls else "http"
            for _ in range(300):
                try:
                    requests.get(f"{scheme}://127.0.0.1:{port}/ping", timeout=1, verify=False)  # noqa: S501 - is it up?
                    break
                except requests.RequestException:
                    assert one.poll() is None, log.read_text()
                    time.sleep(0.1)
            yield port
        finally:
            one.send_signal(signal.SIGTERM)


def make_authority(folder: Path, name: str) -> None:
    """Make NAME.pem and NAME.key, an authority."""
    openssl(
        folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem",
    )  # fmt: skip


def make_certificate(folder: Path, authority: str, names: str, *, days: int = 2) -> None:
    """Make server.pem and server.key for names such as ``IP:127.0.0.1``."""
    openssl(
        folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=influxdb",
        "-keyout", "server.key", "-out", "server.csr",
    )  # fmt: skip
    (folder / "names").write_text(f"subjectAltName={names}\n")
    openssl(
        folder, "x509", "-req", "-in", "server.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
        "-CAcreateserial", "-days", str(days), "-extfile", "names", "-out", "server.pem",
    )  # fmt: skip


def openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HOME": str(folder)},
    )
    assert done.returncode == 0, done.stderr


def commands_of(page: Path, heading: str) -> list[str]:
    """Return the InfluxQL statements that a page's section tells an administrator to run."""
    section = page.read_text(encoding="utf-8").split(heading, 1)[1]
    block = re.search(r"```sql\n(.*?)```", section, re.DOTALL)
    assert block is not None
    lines = (line.partition("--")[0].strip() for line in block[1].splitlines())
    return [line.rstrip(";") for line in lines if line]
