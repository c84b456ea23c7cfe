"""Numbers, and texts of others, as people read them: on terminals, in alerts, reports and labels."""

from collections.abc import Sequence


def amount(size: float, unit: str = "B") -> str:
    """Return bytes, or another unit, with three digits: ``41.2 GB``."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(size) < 999.5:
            return f"{size:.3g} {prefix}{unit}"
        size /= 1000
    return f"{size:,.3g} P{unit}"


def lasting(seconds: float) -> str:
    """Return a length of time, in two units at most: ``2m 17s``, ``3d 4h``, ``45s``, ``0.4s``."""
    if 0 < seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    rest = round(seconds)
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def one_line(text: str, most: int = 300) -> str:
    """Return somebody else's text as one line of `most` characters that can be printed; the rest becomes spaces.

    That holds for characters that turn the direction of writing, too.
    """
    # Cut first: a name of 10 MB costs no more than any other.
    short = text[: 2 * most]
    if not short.isprintable():
        short = "".join(one if one.isprintable() else " " for one in short)
    return " ".join(short.split())[:most].rstrip()


def some(words: Sequence[str], most: int = 1) -> str:
    """Return the first of many words, and how many more there are: ``leaf-1, leaf-2 and 7 more``."""
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def harmless(value: object) -> object:
    """Return a cell that no spreadsheet takes for a formula: who signs in chooses the name."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value
