"""A marked secret is in nothing that commands print, log, generate, store or pass on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests
import yaml
from influx_place import influxdb

from ingest.local_influxdb import LocalInfluxDB, free_port

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.end_to_end
MARK = "Zq7-marked-secret-Zq7"


class Site:
    """The demo cluster in a folder, with a secret wherever one may be; InfluxDB is somewhere or nowhere."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.config = folder, folder / "cluster.yaml"
        document = yaml.safe_load((ROOT / "docker/cluster.yaml").read_text())
        (folder / "secret").write_text(f"{MARK}\n")
        place = {"file": str(folder / "secret")}
        self.metrics = free_port()
        document["store"] = {"url": url, "username": "admin", "password": place}
        document["grafana"] = {"username": "reader", "password": {"env": "MARKED"}}
        document["collector"]["spool"] = str(folder / "spool")
        document["bridge"] |= {
            "state": str(folder / "state"), "metrics_listen": f"127.0.0.1:{self.metrics}", "metrics_token": place,
        }  # fmt: skip
        document["job_sources"] = [
            {"type": "http", "name": "hooks", "listen": f"127.0.0.1:{free_port()}", "token": {"env": "MARKED"}}
        ]
        document["notify"] = {"noc": {"type": "webhook", "url": {"env": "MARKED"}, "password": place, "username": "x"}}
        (folder / "spool").mkdir()
        self.config.write_text(yaml.safe_dump(document))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "clusterflow", *arguments, "--config", str(self.config)],
            cwd=ROOT,
            env=os.environ | {"MARKED": MARK, "TMPDIR": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, seconds: float = 120) -> str:
        process = self.start(*arguments)
        return process.communicate(timeout=seconds)[0]

    def run_for_a_while(self, command: str, *arguments: str) -> str:
        """Run a daemon until it is under way and three seconds more; look at its arguments and metrics meanwhile."""
        process = self.start(command, *arguments)
        begun = self.folder / "state" / f"config-seen-{command}.json"
        ends = time.monotonic() + 60
        seen = ""
        while time.monotonic() < ends and process.poll() is None:
            if begun.exists():
                ends = min(ends, time.monotonic() + 3)
            seen += Path(f"/proc/{process.pid}/cmdline").read_text()
            with suppress(requests.RequestException):
                address = f"http://127.0.0.1:{self.metrics}/metrics"
                seen += requests.get(address, headers={"Authorization": f"Bearer {MARK}"}, timeout=1).text
            time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        return seen + process.communicate(timeout=60)[0]

    def leaked(self) -> list[str]:
        """Return the files with the secret in them, but for the one that holds it."""
        return [
            str(path)
            for path in self.folder.rglob("*")
            if path.is_file() and path.name != "secret" and MARK.encode() in path.read_bytes()
        ]


@pytest.fixture(params=["nobody answers", "refuses us", "answers"])
def site(request: pytest.FixtureRequest, tmp_path: Path, influxdb_v2: LocalInfluxDB) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    if request.param == "nobody answers":
        yield Site(folder, f"http://127.0.0.1:{free_port()}")
        return
    (tmp_path / "influxdb").mkdir()
    with influxdb(influxdb_v2.binary, tmp_path / "influxdb", auth=True) as port:
        password = MARK if request.param == "answers" else "another"
        query = f"CREATE USER admin WITH PASSWORD '{password}' WITH ALL PRIVILEGES"
        assert requests.post(f"http://127.0.0.1:{port}/query", data={"q": query}, timeout=5).ok
        yield Site(folder, f"http://127.0.0.1:{port}")


def test_nothing_that_commands_leave_behind_holds_a_secret(site: Site) -> None:
    said = {
        "check": site.run("check"),
        "dump": site.run("dump"),
        "build": site.run("build", "--out", str(site.folder / "provisioning")),
        "status": site.run("status"),
        "explore": site.run("explore"),
        "contacts": site.run("contacts", "list"),
        "jobs": site.run("jobs"),
        "ingest": site.run_for_a_while("ingest"),
        "ingest --json-log": site.run_for_a_while("ingest", "--json-log"),
        "analyze": site.run_for_a_while("analyze", "--json-log"),
        "config-log": site.run("config-log", "--json"),
        "backup": site.run("backup", str(site.folder / "backup.tar.gz")),
    }
    assert {name for name, text in said.items() if MARK in text} == set()
    assert site.leaked() == []
    assert "password" in said["dump"]
    assert (site.folder / "provisioning").exists(), said["build"]
    assert [json.loads(line)["process"] for line in said["config-log"].splitlines()] == ["ingest", "analyze"], said
