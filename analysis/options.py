"""Times and lengths of time as options of commands."""

import time
from contextlib import suppress
from datetime import UTC, datetime

import click

from cluster.units import parse_duration


class Moment(click.ParamType[float]):
    """A time: ISO 8601 (UTC unless it says otherwise), epoch seconds, ``now``, or so long ago: ``3d``, ``90m``."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return epoch seconds."""
        text = str(value).strip()
        if text == "now":
            return time.time()
        for read in (float, lambda ago: time.time() - float(parse_duration(ago))):
            with suppress(ValueError):
                return read(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text}: expected a time such as 2026-03-01T12:00, 1772366400, 3d (ago) or now", param, ctx)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


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
