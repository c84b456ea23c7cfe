"""The private InfluxDB of a simulation goes with who started it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

HOLDS_ONE = """
import time
from app.application import Application
from simulate.stores import influxdb

app = Application()

@app.command()
def hold():
    with influxdb(None) as url:
        print(url, flush=True)
        time.sleep(60)

app.main(["hold"])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_is_told_to_end_leaves_no_influxdb_behind(number: signal.Signals, tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", HOLDS_ONE], stdout=subprocess.PIPE, text=True, env=environment) as one:
        assert one.stdout is not None
        url = one.stdout.readline().strip()
        assert requests.get(f"{url}/ping", timeout=5).ok
        one.send_signal(number)
        assert one.wait(30) == 130
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{url}/ping", timeout=5)
    assert list(tmp_path.iterdir()) == []
