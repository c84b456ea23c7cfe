"""pmacct's daemons read packets of strangers: of our environment they get what they need, no secret."""

import shutil
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest

from app import compiled
from cluster.model import Cluster, CollectorSettings, Exporter, ExportProtocol
from ingest.collect import quick_printf
from ingest.collect.supervise import Collector
from store.local_influxdb import free_port

DAEMON = f"""\
#!{sys.executable}
import os, pathlib, signal, socket, sys
name = os.path.basename(sys.argv[0])
config = pathlib.Path(sys.argv[sys.argv.index("-f") + 1])
pathlib.Path(config.parent, name + ".environment").write_bytes(pathlib.Path("/proc/self/environ").read_bytes())
(port,) = [line.split()[1] for line in config.read_text().splitlines() if line.startswith(name + "_port: ")]
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("127.0.0.1", int(port)))
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
signal.pause()
"""
"""Holds its port as nfacctd does, and notes with which environment it was started."""


@pytest.mark.service
def test_daemons_are_started_with_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("nfacctd", "sfacctd"):
        (programs / name).write_text(DAEMON)
        (programs / name).chmod(0o755)
    path = f"{programs}:/usr/bin:/bin"
    given = {"PATH": path, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo"}
    for name, text in given.items():
        monkeypatch.setenv(name, text)
    for name in ("INFLUX_TOKEN", "KAFKA_PASSWORD", "CLUSTERFLOW_NOC_WEBHOOK", "LANGUAGE_KEY", "XPATH"):
        monkeypatch.setenv(name, "s3cret")
    cluster = Cluster(
        "test",
        (),
        exporters=(
            Exporter("leaf-1", ip_address("127.0.0.11")),
            Exporter("switch", ip_address("127.0.0.12"), ExportProtocol.SFLOW),
        ),
        collector=CollectorSettings(listen="127.0.0.1", netflow_port=free_port(), sflow_port=free_port()),
    )
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool") as collector:
        assert set(collector.pids) == {"nfacctd", "sfacctd"}
    expected = given | {"TZ": "UTC"}
    if shutil.which(compiled.COMPILER):
        expected["LD_PRELOAD"] = str(quick_printf.library(tmp_path / "run"))
    for name in ("nfacctd", "sfacctd"):
        lines = (tmp_path / "run" / f"{name}.environment").read_text().rstrip("\0").split("\0")
        assert dict(line.split("=", 1) for line in lines) == expected
