"""The main job, as the newcomer runs it: packets to alerts on a live pipeline, and a reckoning that must be even."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from staged import REPOSITORY

pytestmark = pytest.mark.skipif(
    shutil.which("nfacctd", path=f"{os.environ['PATH']}:/usr/sbin") is None or shutil.which("influxd") is None,
    reason="no nfacctd or influxd: apt-get install pmacct influxdb",
)


def demo(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "clusterflow", "demo", "--no-grafana", "--folder", str(folder), *arguments],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.timeout(600)
def test_every_byte_arrives_every_incident_fires_and_nothing_else(tmp_path: Path) -> None:
    """Played without an end, as on a NOC's wall; ^C ends all that was started."""
    folder = tmp_path / "demo"
    run = demo(folder, "--days", "2")
    assert run.stdout is not None
    lines: list[str] = []
    played = 0.0
    try:
        for line in run.stdout:
            lines.append(line)
            if line.startswith("sent ") and "live in" not in line:
                played = played or time.monotonic()
            # The last incident is a minute old, then, as much as finding it may take.
            if played and time.monotonic() - played > 120:
                break
        run.send_signal(signal.SIGINT)
        rest, _ = run.communicate(timeout=150)
    finally:
        run.kill()
    said = "".join(lines) + rest
    assert run.returncode == 0, said
    assert "everything agrees" in said
    truth = json.loads((folder / "truth.json").read_text())
    expected = {(rule, incident["src"]) for incident in truth["incidents"] for rule in incident["expected"]}
    assert {rule for rule, _ in expected} == {
        "exfil_volume",
        "first_external_contact",
        "node_dropout",
        "off_hours_transfer",
    }
    for rule, source in expected:
        (line,) = [line for line in said.splitlines() if f"{rule}: {source} " in line and line.startswith("  ")]
        # Source -> destination, protocol, bytes, duration.
        assert " -> " in line
        assert line.count(",") >= 3
    delays = [int(line.rpartition("found after ")[2].split()[0]) for line in said.splitlines() if "found after" in line]
    assert len(delays) == len(expected)
    assert max(delays) <= 60
    time.sleep(0.5)
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout.split()
    assert left == []
