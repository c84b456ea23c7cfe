"""What tests of processes wait for."""

import time
from collections.abc import Callable
from pathlib import Path


def wait_for(is_true: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something is true; fail if it is not in time."""
    ends = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that ended may wait for somebody to ask for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
