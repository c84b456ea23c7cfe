"""The process in which files are merged: what that takes of memory and of the interpreter is not the bridge's.

Run as a module it does one job after the other, as they come by standard input, and ends with who started it.
"""

# It says how polars' heap keeps memory, and must come before it.
from app.heap import keep_freed  # isort: skip

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

import polars as pl

from archive.manifest import File, Tally
from archive.merging import Job, merged

_IDLE_SECONDS = 60.0
"""After which it goes: it holds 0.1 GB, and starts in half a second."""
_NICE = 5
_PR_SET_PDEATHSIG = 1


class Merger:
    """Merges files for the archives of this process, one job after the other, in a process beside it."""

    def __init__(self) -> None:
        # The process lives as long as the thread that starts it.
        self._thread = ThreadPoolExecutor(1, "archive")
        self._process: subprocess.Popen[bytes] | None = None
        self._is_shut = False
        self._asked = 0.0

    def submit(self, folder: Path, job: Job) -> "Future[list[File] | Tally]":
        """Do a job; its result is what `merged` returns, or OSError, also where the process ended meanwhile."""
        self._asked = time.monotonic()
        return self._thread.submit(self._done, folder, job)

    def rest(self) -> None:
        """Let the process go if nothing was asked of it for a while."""
        if self._process is not None and time.monotonic() - self._asked > _IDLE_SECONDS:
            self._asked = time.monotonic()
            self._thread.submit(self._end)

    def shutdown(self) -> None:
        """End at once; a job that is not done fails."""
        self._is_shut = True
        self._kill()
        self._thread.shutdown(cancel_futures=True)
        self._end()

    def _done(self, folder: Path, job: Job) -> list[File] | Tally:
        process = self._process or self._begin()
        asked, told = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        try:
            pickle.dump((folder, job), asked)
            asked.flush()
            made: list[File] | Tally | str = pickle.load(told)  # noqa: S301 - of our own process
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            self._kill()
            raise OSError(f"the process that merges ended with {self._end()}") from error
        if isinstance(made, str):
            raise OSError(made)
        return made

    def _begin(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "archive.merger", str(os.getpid())],
            env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        if self._is_shut:
            self._kill()
        return self._process

    def _kill(self) -> None:
        process = self._process
        if process is not None:
            process.kill()

    def _end(self) -> int:
        """Have the process end, as it does when nothing more can come; return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.communicate()
        return process.returncode


def _main() -> None:
    # Who stops the bridge often tells all of its processes; this one ends when the bridge wants it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Killed, the bridge may be there again at once, and write under the names of this job.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        return
    with suppress(OSError):
        os.nice(_NICE)
    keep_freed()
    asked, told = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            folder, job = pickle.load(asked)  # noqa: S301 - of the process that started us
        except EOFError:
            return
        made: list[File] | Tally | str
        try:
            made = merged(folder, job)
        except (Exception, pl.exceptions.PanicException) as error:  # noqa: BLE001 - a file is no reason to end
            made = str(error) or repr(error)
        pickle.dump(made, told)
        told.flush()


if __name__ == "__main__":
    _main()
