"""The main job, as the newcomer runs it: packets to alerts on a live pipeline, and a reckoning that must be even."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

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


def _assert_the_exfiltration_is_told_in_full(said: str, folder: Path, truth: dict[str, Any]) -> None:
    """One alert and one event, with names, user, place, network, feed, bytes and duration."""
    path = folder / "events.ndjson"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({event["id"] for event in events}) == len(events)
    (event,) = [one for one in events if one["action"] == "exfil_volume" and one["state"] == "firing"]
    (talk,) = [one for one in truth["conversations"] if one["dst"] == event["destination"]["address"]]
    assert event["traffic"]["bytes"] == talk["bytes"]
    assert round(event["traffic"]["duration"]) == 30
    assert event["source"]["name"] == "model-store-1"
    assert event["source"]["user"] == "m.jansen"
    outside = {"name": "drop-7.examplehost.example", "country": "NL", "asn": 64500, "organisation": "ExampleHost"}
    assert event["destination"].items() >= outside.items()
    assert event["threat"]["feeds"] == ["blocklist"]
    place = f"{talk['dst']} (AS64500 ExampleHost, NL, listed by blocklist, Unknown External)"
    assert f"model-store-1 (Model Storage) sent 65GB to {place} within 15m" in event["summary"]
    assert f"  the alert in words: {event['summary']}\n" in said
    assert f"in {path}\n  each alert once;" in said


@pytest.mark.timeout(600)
def test_every_byte_arrives_every_incident_fires_and_nothing_else(tmp_path: Path) -> None:
    """Played without an end, as on a NOC's wall; ^C ends all that was started."""
    folder = tmp_path / "demo"
    run = demo(folder, "--days", "2")
    assert run.stdout is not None
    lines: list[str] = []
    played, is_found = 0.0, False
    try:
        for line in run.stdout:
            lines.append(line)
            if line.startswith("sent ") and "live in" not in line:
                played = played or time.monotonic()
            is_found |= " node_dropout: " in line
            # The last incident is a minute old, then, as much as finding it may take.
            if played and time.monotonic() - played > (90 if is_found else 120):
                break
        run.send_signal(signal.SIGINT)
        rest, _ = run.communicate(timeout=150)
    finally:
        run.kill()
    said = "".join(lines) + rest
    assert run.returncode == 0, said
    assert "everything agrees" in said
    truth = json.loads((folder / "truth.json").read_text())
    owed = [alert for incident in truth["incidents"] for alert in incident["alerts"] if alert["must"]]
    # What is owed for a whole group comes from one node here.
    expected = {(one["rule"], one["labels"].get("src") or one["labels"].get("node", "model-store-1")) for one in owed}
    assert {rule for rule, _ in expected} == {
        "exfil_volume",
        "exfiltration",
        "first_external_contact",
        "node_dropout",
        "off_hours_transfer",
        "threat_match",
    }
    for rule, source in expected:
        (line,) = [line for line in said.splitlines() if f"{rule}: {source} " in line and line.startswith("  ")]
        # Source -> destination, protocol, bytes, duration.
        assert " -> " in line
        assert line.count(",") >= 3
    delays = [int(line.rpartition("found after ")[2].split()[0]) for line in said.splitlines() if "found after" in line]
    # What only may fire has a cause as well.
    assert len(delays) >= len(expected)
    assert "NOT STAGED" not in said
    assert max(delays) <= 60
    _assert_the_exfiltration_is_told_in_full(said, folder, truth)
    time.sleep(0.5)
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False).stdout.split()
    assert left == []
