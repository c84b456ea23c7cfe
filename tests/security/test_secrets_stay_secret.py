"""A marked secret is in nothing that commands print, log, generate, store or pass on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest
import requests
import yaml
from influx_place import influxdb

from store.local_influxdb import LocalInfluxDB, free_port

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.end_to_end
MARK = "Zq7-marked-secret-Zq7"


class Site:
    """The demo cluster in a folder, with a secret wherever one may be; InfluxDB is somewhere or nowhere."""

    def __init__(self, folder: Path, url: str, *, refuses: bool = False, answers: bool = False) -> None:
        self.refuses, self.answers = refuses, answers
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

    def start(self, output: int | IO[bytes], *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "clusterflow", *arguments, "--config", str(self.config)],
            cwd=ROOT,
            env=os.environ | {"MARKED": MARK, "TMPDIR": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def run(self, *arguments: str) -> str:
        process = self.start(subprocess.PIPE, *arguments)
        return process.communicate(timeout=120)[0].decode()

    def run_for_a_while(self, *commands: str) -> dict[str, str]:
        """Run daemons at once until all have said something, and a second more; look at arguments and metrics too."""
        logs = {command: self.folder / f"{command}.log" for command in commands}
        processes = {}
        for command, log in logs.items():
            with log.open("wb") as output:
                processes[command] = self.start(output, *command.split())
        seen = dict.fromkeys(commands, "")
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            if all(log.stat().st_size for log in logs.values()) and ("metrics" in seen or not self.answers):
                ends = min(ends, time.monotonic() + 1)
            for command, process in processes.items():
                seen[command] += Path(f"/proc/{process.pid}/cmdline").read_text()
            with suppress(requests.RequestException):
                address = f"http://127.0.0.1:{self.metrics}/metrics"
                seen["metrics"] = requests.get(address, headers={"Authorization": f"Bearer {MARK}"}, timeout=1).text
            time.sleep(0.2)
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        for command, process in processes.items():
            process.wait(60)
            said = logs[command].read_text()
            assert said, command
            seen[command] += said
        return seen

    def leaked(self) -> list[str]:
        """Return the files with the secret in them, but for those that hold it."""
        return [
            str(path)
            for path in self.folder.rglob("*")
            if path.is_file() and not path.name.startswith("secret") and MARK.encode() in path.read_bytes()
        ]


@pytest.fixture(
    params=[
        pytest.param("nobody answers", marks=pytest.mark.long_form),
        pytest.param("refuses us", marks=pytest.mark.long_form),
        "answers",
    ]
)
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
        answers = request.param == "answers"
        yield Site(folder, f"http://127.0.0.1:{port}", refuses=not answers, answers=answers)


ASKING = ["status", "explore", "contacts list", "jobs"]
"""Commands that ask the store."""


def test_nothing_that_commands_leave_behind_holds_a_secret(site: Site) -> None:
    said = {command: site.run(*command.split()) for command in ASKING}
    # Both logs, in one case or the other.
    said |= site.run_for_a_while("ingest" if site.refuses else "ingest --json-log", "analyze --json-log")
    if site.answers:
        said["check"] = site.run("check")
        said["dump"] = site.run("dump")
        said["build"] = site.run("build", "--out", str(site.folder / "provisioning"))
        said["backup"] = site.run("backup", str(site.folder / "backup.tar.gz"))
        assert "password" in said["dump"]
        assert "clusterflow_pipeline_total" in said["metrics"]
        assert (site.folder / "provisioning").exists(), said["build"]
    assert {name for name, text in said.items() if MARK in text} == set()
    assert site.leaked() == []


def test_delivery_tells_no_secret_of_receivers_that_are_away(tmp_path: Path) -> None:
    site = Site(tmp_path, f"http://127.0.0.1:{free_port()}")
    place, nowhere = {"file": str(tmp_path / "secret")}, f"http://127.0.0.1:{free_port()}"
    (tmp_path / "secret-url").write_text(f"{nowhere}/{MARK}\n")
    destinations = {
        "splunk": {"type": "splunk", "url": nowhere, "token": place},
        "elastic": {"type": "elastic", "url": nowhere, "api_key": {"env": "MARKED"}},
        "search": {"type": "elastic", "url": nowhere, "username": "x", "password": place},
        "hook": {
            "type": "webhook", "url": {"file": str(tmp_path / "secret-url")}, "token": place,
            "signing_key": {"env": "MARKED"},
        },
    }  # fmt: skip
    document = yaml.safe_load(site.config.read_text())
    document["delivery"] = {
        "state": str(tmp_path / "deliver"), "alerts": "grafana", "token": place,
        "listen": f"127.0.0.1:{free_port()}", "metrics_listen": f"127.0.0.1:{site.metrics}",
        "destinations": destinations,
    }  # fmt: skip
    site.config.write_text(yaml.safe_dump(document))
    alert = {
        "status": "firing", "startsAt": "2026-03-01T08:00:00Z", "labels": {"alertname": "x", "rule": "exfil_volume"}
    }  # fmt: skip
    bearer = {"Authorization": f"Bearer {MARK}"}
    log, ends, metrics = tmp_path / "deliver.log", time.monotonic() + 60, ""
    with log.open("wb") as output:
        process = site.start(output, "deliver")
    try:
        while log.read_text().count("event=delivery_failing") < len(destinations):
            assert time.monotonic() < ends, log.read_text()
            with suppress(requests.RequestException):
                url = f"http://{document['delivery']['listen']}/grafana"
                requests.post(url, json={"alerts": [alert]}, headers=bearer, timeout=1)
            time.sleep(0.2)
        metrics = requests.get(f"http://127.0.0.1:{site.metrics}/metrics", headers=bearer, timeout=5).text
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert 'reason="hook.failing_seconds"' in metrics
    assert MARK not in metrics + log.read_text()
    assert site.leaked() == []
