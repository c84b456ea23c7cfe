"""Writes come soon after records, and take a bounded share of the time."""

import time

from ingest.pace import Pace


def test_cheap_writes_come_at_the_configured_pause() -> None:
    begun = time.monotonic()
    pace = Pace(10)
    with pace.preparing():
        pass
    with pace.sending():
        pass
    assert not pace.is_due(begun + 9.9)
    assert pace.is_due(time.monotonic() + 10)


def test_dear_writes_come_less_often_whoever_does_the_work() -> None:
    pace = Pace(0.5)
    begun = time.monotonic()
    with pace.preparing():
        time.sleep(0.04)
    with pace.sending():
        time.sleep(0.04)
    # Together at least 80 ms, an eighth of 640 ms.
    assert not pace.is_due(begun + 0.63)
    assert pace.is_due(time.monotonic() + 1)


def test_however_dear_they_come_after_twice_the_pause() -> None:
    pace = Pace(0.02)
    with pace.preparing():
        time.sleep(0.05)
    begun = time.monotonic()
    assert pace.is_due(begun)
    with pace.preparing():
        pass
    assert not pace.is_due(begun + 0.01)
