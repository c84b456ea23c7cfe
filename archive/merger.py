"""A child process that merges an archive's files, so that its memory and its time are not the bridge's.

Run as a module this is the child: it reads jobs from standard input, writes results to standard output, and ends with
its parent.
"""

# It says how polars' heap keeps memory, and must come before it.
from app.heap import keep_freed  # isort: skip

import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

import polars as pl

from app.local_process import end_with_parent
from archive.manifest import File, Tally
from archive.merging import Job, merged

_IDLE_SECONDS = 60.0
"""Without work, after which the child ends: it holds 0.1 GB, and starts in half a second."""
_NICE = 5


class Merger:
    """Merges files for all archives of this process, one job at a time, in a child process."""

    def __init__(self) -> None:
        # One thread starts the child: to the kernel it is the parent, and the child ends when it does.
        self._thread = ThreadPoolExecutor(1, "archive")
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._asked = 0.0

    def submit(self, folder: Path, job: Job) -> "Future[list[File] | Tally]":
        """Start a job; its result is what `merged` returns, or OSError if it failed or the child ended."""
        self._asked = time.monotonic()
        try:
            return self._thread.submit(self._done, folder, job)
        except RuntimeError:
            closed: Future[list[File] | Tally] = Future()
            closed.set_exception(OSError("the process that merges has been stopped"))
            return closed

    def give_up(self, doing: "Future[list[File] | Tally]") -> None:
        """Wait no longer for a job: one that is being done ends with the child."""
        if not doing.cancel() and not doing.done():
            self._kill()
        with suppress(CancelledError):
            doing.exception()

    def rest(self) -> None:
        """End the child if it had no work for a while."""
        if self._process is not None and time.monotonic() - self._asked > _IDLE_SECONDS:
            self._asked = time.monotonic()
            self._thread.submit(self._end)

    def close(self) -> None:
        """End at once; jobs that are not done fail."""
        self._is_closed = True
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
        except Exception as error:
            # What is no answer of ours makes pickle raise errors of many kinds.
            self._kill()
            raise OSError(f"the process that merges ended with {self._end()}") from error
        if isinstance(made, str):
            raise OSError(made)
        return made

    def _begin(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "archive.merger", str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        if self._is_closed:
            self._kill()
        return self._process

    def _kill(self) -> None:
        process = self._process
        if process is not None:
            process.kill()

    def _end(self) -> int:
        """Close the child's input, at whose end it ends; return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.communicate()
        return process.returncode


def _main() -> None:
    # ^C and systemd signal the whole process group; the bridge decides when this one ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # A bridge that was killed and started again may write under the names of this job.
    end_with_parent(signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        return
    with suppress(OSError):
        os.nice(_NICE)
    keep_freed()
    # What a library may print is no answer.
    asked, told = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
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
