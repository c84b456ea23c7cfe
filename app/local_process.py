"""A server that we start for ourselves, in a session of its own, and stop in order."""

import ctypes
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Self

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class LocalProcess(ABC):
    """Use it as a context manager, or `start` and `stop` it.

    Attributes:
        stop_seconds: how long it may take to stop in order.
    """

    stop_seconds = 15.0

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process else None

    @abstractmethod
    def start(self) -> None:
        """Start it and wait until it answers."""

    def stop(self) -> None:
        """Stop it, first in order, then by force."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            # ^C while we wait for its answer: it has a session of its own, and would outlive us.
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a command whose output goes to the end of a log."""
        with log.open("ab") as output:
            # A session of its own: ^C in the terminal reaches our command, which then stops it in order.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        return self._process


def end_of(log: Path) -> str:
    """Return the last lines of a log as one."""
    return " | ".join(log.read_text(errors="replace").splitlines()[-3:])


def end_with_parent(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when its parent is gone, however that ended; Linux only."""
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, number)
