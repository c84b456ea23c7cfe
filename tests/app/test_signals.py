"""Signals that come at any moment: whoever waits for them is never stuck."""

import subprocess
import sys

import pytest

WAITS = """
import signal, time
from app.signals import SignalEvent
event = SignalEvent()
signal.signal(signal.SIGALRM, lambda *_: event.set())
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
ends = time.monotonic() + 2
while time.monotonic() < ends:
    event.wait(0.00001)
    event.clear()
signal.setitimer(signal.ITIMER_REAL, 0)
print("through")
"""


@pytest.mark.service
def test_a_handler_that_sets_it_while_it_is_waited_for_is_never_stuck() -> None:
    """With `threading.Event` it is within a second."""
    done = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "through"
