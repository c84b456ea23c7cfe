"""Scenarios as the demo: what lies before the first incident is history, and the incidents happen live."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.errors import ClusterflowError, UserError
from simulate.demo.demo_cli import demo
from simulate.demo.plan import RECENT
from simulate.demo.staged import live_scenario, script_from_now
from simulate.scenarios.script import library

REPOSITORY = Path(__file__).resolve().parents[2]
NOW = 1_795_000_200
NAMES = [path.stem for path in library()]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in {"wrong-mtu", "theft"} else pytest.mark.thorough) for name in NAMES]
)
def test_the_first_incident_is_a_few_minutes_ahead(name: str) -> None:
    """With days of history to fill in, more of them: the demo's own two days take some 110 s."""
    script = script_from_now(name, None, NOW)
    start = NOW + 60
    played = live_scenario(script, start=start, history_end=NOW, seconds=None)
    assert played.history is not None
    assert played.recent is not None
    assert played.history.start == script.start
    assert script.start % 60 == 0
    assert played.history.end == played.recent.start
    assert played.recent.end == played.live.start == start
    assert played.live.end == script.end
    assert NOW - played.history.start >= RECENT
    ahead = [one.start - NOW for one in played.incidents]
    days = (NOW - script.start) / 86_400
    assert not ahead or min(ahead) <= 150 + 90 * days
    if min(ahead, default=0) > 0 or days > 0.05:
        assert min(ahead, default=60) >= 60
    assert {one.id for one in played.incidents} == {one.id for one in script.incidents}


def test_what_began_before_owes_nothing_and_what_does_not_fit_is_left_out() -> None:
    script = script_from_now("wrong-mtu", None, NOW)
    first, second, _ = script.incidents
    late = live_scenario(script, start=second.start + 10, history_end=NOW, seconds=None)
    assert [one.expected for one in late.incidents] == [(), (), ()]
    assert second.expected
    # A machine that was slow to begin must not call it a false alert.
    assert [alert.rule for alert in late.incidents[1].alerts] == ["packet_size_low"]
    short = live_scenario(script, start=NOW + 60, history_end=NOW, seconds=first.end - NOW)
    assert [one.id for one in short.incidents] == [first.id]
    assert short.live.end - short.live.start == (first.end - NOW) // 10 * 10


def test_a_scenario_that_is_over_is_told() -> None:
    script = script_from_now("wrong-mtu", None, NOW)
    with pytest.raises(UserError, match="over before its history was filled in"):
        live_scenario(script, start=script.end, history_end=NOW, seconds=None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scenario", "wrong-mtu", "--cloud"], "--scenario: not with --cloud"),
        (["--scenario", "wrong-mtuu"], "did you mean wrong-mtu?"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: no such file"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(demo, ["--no-grafana", "--folder", str(tmp_path / "run"), *arguments])
    assert done.exit_code != 0
    lines = done.exception.lines() if isinstance(done.exception, ClusterflowError) else []
    assert said in "".join([done.output, *lines])
    assert not (tmp_path / "run").exists(), "nothing was started for it"


@pytest.mark.long_form
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    shutil.which("nfacctd", path=f"{os.environ['PATH']}:/usr/sbin") is None or shutil.which("influxd") is None,
    reason="no nfacctd or influxd: apt-get install pmacct influxdb",
)
def test_every_byte_and_alert_of_a_scenario(tmp_path: Path) -> None:
    """A forbidden transfer on the scenario's own cluster, from packets to alerts, in about six minutes."""
    began = time.monotonic()
    command = [sys.executable, "-m", "clusterflow", "demo", "--no-grafana", "--folder", str(tmp_path / "run")]
    done = subprocess.run(
        # It lasts three minutes and begins up to two after the history is filled in; what does not fit is left out.
        [*command, "--scenario", "forbidden-transfer", "--for", "310"],
        cwd=REPOSITORY, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything agrees" in done.stdout
    assert "segmentation_violation" in done.stdout
    assert time.monotonic() - began > 310
