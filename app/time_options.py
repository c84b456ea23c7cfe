"""Lengths of time as options of commands."""

import click

from app.units import parse_duration


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
