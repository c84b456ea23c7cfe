"""Numbers as Go prints them, and the humanize functions that Grafana's templates have from prometheus/template."""

import math
from datetime import UTC, datetime
from decimal import Decimal

_SMALLEST_PLAIN = -4
_LARGEST_PLAIN = 6


def go_special(value: float) -> str:
    """Print NaN or an infinity."""
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else '+'}Inf"


def go_shortest(value: float) -> str:
    """Print a float as Go's ``%v``: shortest digits that read back, exponent below 1e-4 and from 1e+06."""
    if not math.isfinite(value):
        return go_special(value)
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    sign, digits, exponent = Decimal(repr(float(value))).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    scale = len(digits) + int(exponent) - 1
    minus = "-" if sign else ""
    if scale < _SMALLEST_PLAIN or scale >= _LARGEST_PLAIN:
        mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
        return f"{minus}{mantissa}e{'-' if scale < 0 else '+'}{abs(scale):02d}"
    return minus + format(Decimal(repr(abs(float(value)))).normalize(), "f")


def go_general(value: float, precision: int) -> str:
    """Print a float as Go's ``%.<precision>g``; Python differs for what is no finite number only."""
    return f"{value:.{precision}g}" if math.isfinite(value) else go_special(value)


def _scaled(value: float, base: float, prefixes: tuple[str, ...]) -> str:
    prefix = ""
    for candidate in prefixes:
        if abs(value) < base:
            break
        prefix = candidate
        value /= base
    return go_general(value, 4) + prefix


def _small(value: float, suffix: str) -> str:
    prefix = ""
    for candidate in ("m", "u", "n", "p", "f", "a", "z", "y"):
        if abs(value) >= 1:
            break
        prefix = candidate
        value *= 1000
    return go_general(value, 4) + prefix + suffix


def humanize(value: float) -> str:
    """Print with metric prefixes: ``41.2G``."""
    if value == 0 or not math.isfinite(value):
        return go_general(value, 4)
    if abs(value) >= 1:
        return _scaled(value, 1000, ("k", "M", "G", "T", "P", "E", "Z", "Y"))
    return _small(value, "")


def humanize1024(value: float) -> str:
    """Print with binary prefixes: ``38.37Gi``."""
    if abs(value) <= 1 or not math.isfinite(value):
        return go_general(value, 4)
    return _scaled(value, 1024, ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"))


def humanize_duration(value: float) -> str:
    """Print seconds: ``2m 5s``."""
    if not math.isfinite(value):
        return go_general(value, 4)
    if value == 0:
        return "0s"
    if abs(value) < 1:
        return _small(value, "s")
    sign, size = ("-", -value) if value < 0 else ("", value)
    minutes, seconds = divmod(int(size), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if size < 60:
        return f"{sign}{go_general(size, 4)}s"
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    first = next(position for position, (number, _) in enumerate(parts) if number)
    return sign + " ".join(f"{number}{unit}" for number, unit in parts[first:])


def humanize_percentage(value: float) -> str:
    """Print a ratio: ``12.35%``."""
    return f"{go_general(value * 100, 4)}%"


def humanize_timestamp(value: float) -> str:
    """Print epoch seconds as Go prints a time in UTC: ``2026-05-01 12:00:00 +0000 UTC``."""
    if not math.isfinite(value):
        return go_general(value, 4)
    # Whole milliseconds, by way of nanoseconds.
    seconds, thousandths = divmod(int(value * 1e9) // 1_000_000, 1000)
    fraction = f".{thousandths:03}".rstrip("0") if thousandths else ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"
