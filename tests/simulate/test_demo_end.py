"""How a run of the demo ends: what it waits for, and what it then holds against it."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from simulate.demo.live import Demo
from simulate.demo.stack import Part

SLOW = """
import signal, sys, time
time.sleep(1)
signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
print("time=now level=info event=started", file=sys.stderr, flush=True)
time.sleep(60)
"""


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    return Demo(tmp_path, tmp_path, seconds=10, days=2, seed=None, grafana=None, console=Console(quiet=True))


@pytest.mark.parametrize("code", [0, 3])
def test_deliver_has_begun_before_it_is_told_to_stop(code: int, demo: Demo, tmp_path: Path) -> None:
    """Ten seconds on a busy machine are over while it is still starting: killed then, it seemed to end badly."""
    part = Part("deliver", [sys.executable, "-c", SLOW.format(code=code)], tmp_path / "deliver.log")
    demo._parts["deliver"] = part
    part.start()
    said = f"deliver ended with {code}: time=now level=info event=started"
    assert demo._end_delivery() == ((said,) if code else ())


def test_a_deliver_that_ended_by_itself_is_told(demo: Demo, tmp_path: Path) -> None:
    part = Part("deliver", [sys.executable, "-c", "raise SystemExit('no disk')"], tmp_path / "deliver.log")
    demo._parts["deliver"] = part
    assert demo._end_delivery() == ()
    part.start()
    assert part.process
    part.process.wait()
    assert demo._end_delivery() == ("deliver ended with 1: no disk",)
