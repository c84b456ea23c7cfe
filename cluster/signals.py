"""An event that a signal handler may set."""

import threading


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
