"""An event that a signal handler may set."""

import signal
import threading
from typing import Self


class SignalEvent(threading.Event):
    """A `threading.Event` for signal handlers.

    A handler runs in the main thread, between any two of its instructions. Where the main thread is just then inside
    `wait` or `clear` of an ordinary event it holds that event's lock, and the handler's `set` would wait for it for
    ever. This lock its owner may take again. A `wait` that the handler interrupts before it sleeps may still sleep for
    its whole time: give it one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cond = threading.Condition(threading.RLock())

    @classmethod
    def of_stop(cls) -> Self:
        """Return one that SIGTERM and SIGINT set: what runs is to stop in order."""
        stop = cls()
        # Only there Python takes handlers: a test may run a command in another thread.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop.set())
        return stop
