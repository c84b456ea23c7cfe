"""Numbered names: ``gpu-{01..16}`` stands for gpu-01 to gpu-16, in names and in addresses alike."""

import re

MOST = 65_536
"""Most names that one pattern may stand for."""

LONGEST = 200
"""Characters of a pattern with a range: it is written out as often as it counts."""

_RANGE = re.compile(r"\{([0-9]{1,9})\.\.([0-9]{1,9})\}")


_SLURM = re.compile(r"\[([0-9]{1,9})-([0-9]{1,9})\]")


def braced(pattern: str) -> str:
    """Return a pattern with Slurm's ranges as ours: ``gpu-[01-48]`` is ``gpu-{01..48}``."""
    return _SLURM.sub(r"{\1..\2}", pattern)


def expand(pattern: str) -> list[str]:
    """Return what a pattern stands for, in order; a text without a range stands for itself.

    Every range in the text counts with the others, in lockstep: ``r{1..2}-n{5..6}`` is r1-n5 and r2-n6. A first number
    with leading zeros fixes the digits of all.

    Raises:
        ValueError: a brace that is no range, a range that counts down, ranges of different lengths, too many names, or
            too long a pattern.
    """
    texts, begins, count = _read(pattern)
    return [_name(texts, begins, step) for step in range(count)]


def ends(pattern: str) -> tuple[str, str, int]:
    """Return the first and the last of what a pattern stands for, and how many that are; errors as of `expand`.

    The names between them differ in their numbers alone, and none is longer than the last.
    """
    texts, begins, count = _read(pattern)
    return _name(texts, begins, 0), _name(texts, begins, count - 1), count


def has_range(pattern: str) -> bool:
    """Whether the pattern stands for more than itself."""
    return _RANGE.search(pattern) is not None


def _read(pattern: str) -> tuple[list[str], list[tuple[int, int]], int]:
    """Return the texts around the ranges, with what number and how many digits each begins, and how far all count."""
    if "{" not in pattern and "}" not in pattern:
        return [pattern], [], 1
    if len(pattern) > LONGEST and has_range(pattern):
        raise ValueError(f"a range in a text of at most {LONGEST} characters")
    pieces = _RANGE.split(pattern)
    if any(brace in text for text in pieces[::3] for brace in "{}"):
        raise ValueError("a range such as {01..16}")
    counts = {int(last) - int(first) + 1 for first, last in zip(pieces[1::3], pieces[2::3], strict=True)} or {1}
    if min(counts) < 1:
        raise ValueError("a range that counts up")
    if len(counts) > 1:
        raise ValueError("ranges of the same length")
    count = counts.pop()
    if count > MOST:
        raise ValueError(f"a range of at most {MOST:,} numbers")
    return pieces[::3], [(int(first), len(first)) for first in pieces[1::3]], count


def _name(texts: list[str], begins: list[tuple[int, int]], step: int) -> str:
    numbers = (str(begin + step).zfill(digits) for begin, digits in begins)
    return texts[0] + "".join(number + text for number, text in zip(numbers, texts[1:], strict=True))
