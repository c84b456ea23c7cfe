"""What goes on beside the live analysis, in a thread of its own: its rounds do not wait for it."""

import threading
from collections.abc import Callable

from app.errors import StoreError, remedy
from app.log import Log

_PATIENCE = 5.0
"""Seconds that an end waits for what is under way."""


class Beside:
    """Looks again and again. What goes wrong is told and tried again; the analysis goes on.

    Args:
        name: of the thread, and what its log events begin with.
        look: what is done.
        log: told of what went wrong.
        every: seconds between two looks.
    """

    def __init__(self, name: str, look: Callable[[], object], log: Log, every: float) -> None:
        self._name, self._look, self._log, self._every = name, look, log, every
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name.replace("_", "-"), daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; what is under way is waited for, but not for long."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._look()
            except StoreError as error:
                self._log.sparse(f"{self._name}_delayed", why=" ".join(error.lines()))
            except OSError as error:
                hint = remedy(error, "tried again")
                self._log.sparse(f"{self._name}_delayed", why=f"bridge.state: {error}", hint=hint)
            except Exception as error:  # noqa: BLE001 - whatever becomes of it
                why = " ".join(f"{type(error).__name__}: {error}".split())
                self._log.sparse(f"{self._name}_failed", why=why, hint="tried again; please report it")
            self._stopping.wait(self._every)
