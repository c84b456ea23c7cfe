"""How often the bridge writes: soon after records come, and never so often that writing is most of its work."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

_SHARE = 0.125
"""Of the time, for writing: each write holds every series of every open window again, however few records came."""

_STRETCH = 2
"""Times the configured pause, at most: boards and rules wait for two of them before they take a window for whole."""


class Pace:
    """Says when the next write is due.

    Args:
        pause: seconds between the beginnings of two writes, at least.
    """

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._begun = time.monotonic()
        self._prepared = self._sent = 0.0

    def is_due(self, now: float) -> bool:
        """Whether it is time for the next write, at a moment of the monotonic clock."""
        least = max(self._pause, (self._prepared + self._sent) / _SHARE)
        return now - self._begun >= min(least, _STRETCH * self._pause)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Begin a write: what it takes until it can be sent."""
        self._begun = time.monotonic()
        yield
        self._prepared = time.monotonic() - self._begun

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send it; another thread may."""
        begun = time.monotonic()
        yield
        self._sent = time.monotonic() - begun
