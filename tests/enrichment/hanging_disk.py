"""A disk that does not answer: whoever opens a file waits until we let go of our lease on it."""

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hanging(path: Path) -> Iterator[None]:
    """Have everybody who opens a file wait in the kernel, for up to its `fs.lease-break-time` (45 s)."""
    # The kernel tells the holder of a lease that somebody waits.
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    held = os.open(path, os.O_RDWR)
    try:
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield
    finally:
        os.close(held)
        signal.signal(signal.SIGIO, before)
