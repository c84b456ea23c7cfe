"""The processes of a whole pipeline on this machine: started in order, stopped in order, nothing left behind."""

import fcntl
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from app.errors import ClusterflowError, UserError
from app.local_process import end_with_parent

_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.1


@dataclass(slots=True)
class Part:
    """One process of the pipeline.

    Attributes:
        name: what messages call it.
        command: program and arguments.
        log: file for what it prints.
    """

    name: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self, environment: dict[str, str] | None = None) -> None:
        """Start it, in a session of its own so that ^C reaches only us."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=environment,
                # prctl is safe there, and there is no other way.
                preexec_fn=partial(end_with_parent, signal.SIGTERM),  # noqa: PLW1509
            )

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs, or if it was never started."""
        return None if self.process is None else self.process.poll()

    def wait_until(self, is_ready: Callable[[], bool], seconds: float) -> None:
        """Wait for it to be ready; ClusterflowError with the end of its log if it ends or takes longer."""
        deadline = time.monotonic() + seconds
        while True:
            # Looked at first: one that ends as it should may be ready by that, and end at any moment.
            is_over = not self.is_running or time.monotonic() > deadline
            if is_ready():
                return
            if is_over:
                raise ClusterflowError(f"{self.name} did not start: {self.last_words()}", f"see {self.log}")
            time.sleep(_POLL_SECONDS)

    def last_words(self) -> str:
        """Return the last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return " | ".join(lines[-3:]) or "it said nothing"

    def stop(self) -> None:
        """End it in order, after a while by force."""
        if self.process is None or not self.is_running:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def command(name: str, config: Path, *arguments: str) -> list[str]:
    """Return the command line of one of our own commands."""
    return [sys.executable, "-m", "clusterflow", name, "--config", str(config), *arguments]


@contextmanager
def fresh_folder(folder: Path, mark: str) -> Iterator[Path]:
    """Hold a folder, emptied of what an earlier run left. A folder that is not ours is not touched.

    Args:
        folder: made if missing.
        mark: name of the file that says that the folder is ours; it is locked while we hold the folder.

    Raises:
        UserError: there is something else in it, or another run holds it.
    """
    sign = folder / mark
    if folder.exists() and any(folder.iterdir()) and not sign.exists():
        raise UserError(f"{folder}: holds files of somebody else", "choose another --folder")
    folder.mkdir(parents=True, exist_ok=True)
    with sign.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"{folder}: another demo runs there", "stop it, or choose another --folder") from error
        for path in folder.iterdir():
            if path.name == mark:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        yield folder.resolve()
