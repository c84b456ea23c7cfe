"""Log lines on stderr: ``key=value`` in lower case, or JSON; one line a batch, repeated trouble once a minute.

A line has a time, a level (``info``, ``warning``: something is missing or late, ``error``: something was lost or is
wrong until somebody acts), an event (a noun and a participle), then values.
"""

import contextlib
import json
import sys
import time
from datetime import UTC, datetime

_QUIET_SECONDS = 60.0


class Log:
    """Writes log lines.

    Args:
        as_json: one JSON object a line instead of ``key=value``.
        quiet: write nothing, where the user is informed otherwise.
    """

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self._as_json = as_json
        self._quiet = quiet
        self._last: dict[str, float] = {}

    def line(self, event: str, *, level: object = "info", **values: object) -> None:
        """Write one line: time, level, event, then its values."""
        if self._quiet:
            return
        stamp = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        if self._as_json:
            text = json.dumps({"time": stamp, "level": level, "event": event, **values}, default=str)
        else:
            pairs = (f"{key}={_plain(value)}" for key, value in values.items())
            text = " ".join([f"time={stamp}", f"level={level}", f"event={event}", *pairs])
        # A log on a full disk, or one whose reader has gone, is no reason to end.
        with contextlib.suppress(OSError):
            # In one piece: several threads write.
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def warning(self, event: str, **values: object) -> None:
        """Write a line of level ``warning``."""
        self.line(event, level="warning", **values)

    def error(self, event: str, **values: object) -> None:
        """Write a line of level ``error``."""
        self.line(event, level="error", **values)

    def sparse(self, event: str, *, level: object = "warning", **values: object) -> None:
        """Write the line unless the same event was written within the last minute."""
        now = time.monotonic()
        if now - self._last.get(event, -_QUIET_SECONDS) >= _QUIET_SECONDS:
            self._last[event] = now
            self.line(event, level=level, **values)


def _plain(value: object) -> str:
    text = f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    # What a name holds must not end the line, nor be obeyed by the terminal that shows it.
    return json.dumps(text) if any(character in text for character in ' "=') or not text.isprintable() else text
