"""Times and lengths of time as options of commands."""

import time
from contextlib import suppress
from datetime import UTC, datetime

import click

from cluster.units import parse_duration

_END = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
"""The first moment that is none: cluster.yaml takes none either."""


class Moment(click.ParamType[float]):
    """A time: ISO 8601 (UTC unless it says otherwise), epoch seconds, ``now``, or so long ago: ``3d``, ``90m``."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return epoch seconds."""
        text = str(value).strip()
        moment = _moment(text)
        # Also nan is no time, and what the store could not hold.
        if moment is None or not 0 <= moment < _END:
            self.fail(f"{text}: expected a time such as 2026-03-01T12:00, 1772366400, 3d (ago) or now", param, ctx)
        return moment


def _moment(text: str) -> float | None:
    """Return the epoch seconds that a text stands for; None where it is no time."""
    if text == "now":
        return time.time()
    for read in (float, lambda ago: time.time() - float(parse_duration(ago))):
        with suppress(ValueError):
            return read(text)
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


class Duration(click.ParamType[float]):
    """A length of time such as ``5s``, ``90m``, ``1d``."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return float(parse_duration(str(value)))
        except ValueError:
            self.fail(f"{value}: expected a duration such as 5s, 90m or 1d", param, ctx)
