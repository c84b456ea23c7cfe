"""A question in a process of its own, for a server: what it takes of memory and time harms nobody else.

Run as a module it reads the arguments of `archive.query.ask` from standard input, and writes what it returns.
"""

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from app.errors import ClusterflowError, UserError
from archive.query import Answer, Filter, ask

_SECONDS = 60.0
_MEMORY = 1 << 30
"""Bytes: half of what systemd and Compose give the process that serves."""
_STEP = 0.05
_HINT = "ask a shorter time, fewer columns, or one address"


def ask_aside(folder: Path, question: Filter, by: tuple[str, ...], **given: Any) -> Answer:  # noqa: ANN401 - as ask takes
    """Return what `archive.query.ask` does; UserError also where it takes too long or too much memory."""
    ends = time.monotonic() + _SECONDS
    asked: bytes | None = pickle.dumps((folder, question, by, given))
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "archive.aside"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        while True:
            try:
                said, _ = process.communicate(asked, timeout=_STEP)
                break
            except subprocess.TimeoutExpired:
                asked = None
            if time.monotonic() > ends:
                process.kill()
                raise UserError(f"no answer within {_SECONDS:.0f} s", _HINT)
            if _memory(process.pid) > _MEMORY:
                process.kill()
                raise UserError(f"the question takes more than {_MEMORY >> 20} MiB of memory", _HINT)
    if process.returncode:
        raise ClusterflowError(f"the question ended with {process.returncode}", "see the log of this process")
    found = pickle.loads(said)  # noqa: S301 - of our own process
    if isinstance(found, Answer):
        return found
    raise UserError(*found)


def _memory(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)


def _main() -> None:
    os.nice(5)
    folder, question, by, given = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that started us
    found: Answer | tuple[str, str]
    try:
        found = ask(folder, question, by, **given)
    except UserError as error:
        found = error.message, error.hint
    pickle.dump(found, sys.stdout.buffer)


if __name__ == "__main__":
    _main()
