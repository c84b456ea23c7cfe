"""Quantities as people write them ("50 GB", "15m", "400 Gbit/s") and as the model keeps them (bytes, seconds, bit/s).

Parsing is exact: nothing is rounded, and a unit of another dimension is refused. Every ``format_*`` gives a text that
its ``parse_*`` turns back into the same number.
"""

import re
from datetime import UTC, datetime, tzinfo
from fractions import Fraction

SIZES = {
    "PiB": 2**50, "TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10,
    "PB": 10**15, "TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3, "B": 1,
}  # fmt: skip
RATES = {"Tbit/s": 10**12, "Gbit/s": 10**9, "Mbit/s": 10**6, "kbit/s": 10**3, "bit/s": 1}
DURATIONS = {
    "w": Fraction(604_800), "d": Fraction(86_400), "h": Fraction(3_600), "m": Fraction(60), "s": Fraction(1),
    "ms": Fraction(1, 1_000),
}  # fmt: skip

_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z/]+)")
_PERIODS = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,9})?(?:ms|[wdhms]) ?)+")
_PERIOD = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[wdhms])")


def parse_size(text: str) -> int:
    """Return the bytes that `text` ("50 GB", "1.5GiB") stands for; ValueError if it is no whole number of bytes."""
    return _whole(_quantity(text, {name: Fraction(factor) for name, factor in (SIZES | {"KB": 10**3}).items()}))


def parse_rate(text: str) -> int:
    """Return the bits per second that `text` ("400 Gbit/s") stands for; ValueError if it is none."""
    return _whole(_quantity(text, {name: Fraction(factor) for name, factor in RATES.items()}))


def parse_duration(text: str) -> Fraction:
    """Return the seconds that `text` ("15m", "1h 30m", "500ms") stands for; ValueError if it is no duration."""
    if not _PERIODS.fullmatch(text):
        raise ValueError(text)
    return sum((Fraction(number) * DURATIONS[unit] for number, unit in _PERIOD.findall(text)), Fraction(0))


def format_size(size: int) -> str:
    """Return `size` bytes with the largest unit that divides it, decimal units first: ``50 GB``, ``1 GiB``, ``7 B``."""
    decimal_first = sorted(SIZES.items(), key=lambda item: (item[0].endswith("iB") or item[0] == "B", -item[1]))
    return _format(size, dict(decimal_first), "B")


def format_rate(rate: int) -> str:
    """Return `rate` in bits per second with the largest unit that divides it: ``400 Gbit/s``."""
    return _format(rate, RATES, "bit/s")


def format_duration(seconds: float) -> str:
    """Return `seconds` with the largest unit, up to days, that divides them: ``730d``, ``15m``, ``2s``, ``2.5s``."""
    if seconds == int(seconds):
        for unit in ("d", "h", "m"):
            factor = int(DURATIONS[unit])
            if seconds and int(seconds) % factor == 0:
                return f"{int(seconds) // factor}{unit}"
        return f"{int(seconds)}s"
    return f"{seconds!r}s"


def format_moment(seconds: float | None, unknown: str = "unknown") -> str:
    """Return epoch seconds as UTC: ``2026-03-01T12:00:00Z``; `unknown` for None."""
    if seconds is None:
        return unknown
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def format_local(seconds: float, zone: tzinfo) -> str:
    """Return epoch seconds as a zone's clocks show them, with the offset in an hour that they show twice."""
    at = datetime.fromtimestamp(seconds, zone)
    is_twice = at.replace(fold=0).utcoffset() != at.replace(fold=1).utcoffset()
    return f"{at:%Y-%m-%d %H:%M:%S%z}" if is_twice else f"{at:%Y-%m-%d %H:%M:%S}"


def _quantity(text: str, units: dict[str, Fraction]) -> Fraction:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(text)
    return Fraction(match[1]) * units[match[2]]


def _whole(quantity: Fraction) -> int:
    if quantity.denominator != 1:
        raise ValueError(str(quantity))
    return quantity.numerator


def _format(quantity: int, units: dict[str, int], base: str) -> str:
    for unit, factor in units.items():
        if quantity and quantity % factor == 0:
            return f"{quantity // factor} {unit}"
    return f"{quantity} {base}"
