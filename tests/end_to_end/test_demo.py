"""The main job, as the newcomer runs it: packets to alerts on a live pipeline, and a reckoning that must be even."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from staged import REPOSITORY

from archive.query import Filter, archive_folder, ask
from cluster.load import load_cluster

PLACES = {
    "exfil_volume": ("10.40.0.11", "203.0.113.41", 443, "border-1", "model-storage"),
    "first_external_contact": ("10.20.0.4", "203.0.113.42", 443, "leaf-1", "compute-rail0"),
    "inference_unauthorised_source": ("10.30.0.1", "10.50.0.11", 8443, "storage-1", "storage"),
    "off_hours_transfer": ("10.40.0.12", "198.51.100.10", 443, "border-1", "model-storage"),
    "threat_match": ("10.40.0.11", "203.0.113.41", 443, "border-1", "model-storage"),
    "unexpected_management_connection": ("10.50.0.11", "10.60.0.11", 22, "border-1", "inference"),
}
"""By rule: source, destination, the server's port, exporter and interface where one conversation entered."""

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
    begun = [event for event in events if event["state"] == "firing" and "traffic" in event]
    assert PLACES.items() <= {
        (one["action"], (one["source"]["address"], one["destination"]["address"], one["destination"].get("port"),
                         one["traffic"]["exporter"], one["traffic"]["interface"]))
        for one in begun
    }  # fmt: skip
    (event,) = [one for one in events if one["action"] == "exfil_volume" and one["state"] == "firing"]
    (talk,) = [one for one in truth["conversations"] if one["dst"] == event["destination"]["address"]]
    assert event["traffic"]["bytes"] == talk["bytes"]
    assert round(event["traffic"]["duration"]) == 30
    began = int(datetime.fromisoformat(event["time"]).timestamp())
    around = Filter(began - 1800, began + 1800, node=("model-store-1",))
    archived = ask(archive_folder(load_cluster(folder / "cluster.yaml")), around, ["src", "dst", "dst_port"])
    row = talk["src"], talk["dst"], 443, talk["bytes"], talk["packets"], talk["flows"]
    assert row in archived.frame.select("src", "dst", "dst_port", "bytes", "packets", "flows").rows()
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
        "inference_unauthorised_source",
        "node_dropout",
        "off_hours_transfer",
        "threat_match",
        "unexpected_management_connection",
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
