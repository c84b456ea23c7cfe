"""Numbered names: ``gpu-{01..16}`` stands for gpu-01 to gpu-16, in names and in addresses alike."""

import re

MOST = 65_536
"""Most names that one pattern may stand for."""

_RANGE = re.compile(r"\{([0-9]{1,9})\.\.([0-9]{1,9})\}")


def expand(pattern: str) -> list[str]:
    """Return what a pattern stands for, in order; a text without a range stands for itself.

    Every range in the text counts with the others, in lockstep: ``r{1..2}-n{5..6}`` is r1-n5 and r2-n6. A first number
    with leading zeros fixes the digits of all.

    Raises:
        ValueError: a brace that is no range, a range that counts down, ranges of different lengths, or too many names.
    """
    pieces = _RANGE.split(pattern)
    if any(brace in text for text in pieces[::3] for brace in "{}"):
        raise ValueError("a range such as {01..16}")
    ranges = [(first, int(first), int(last)) for first, last in zip(pieces[1::3], pieces[2::3], strict=True)]
    if not ranges:
        return [pattern]
    counts = {last - first + 1 for _, first, last in ranges}
    if min(counts) < 1:
        raise ValueError("a range that counts up")
    if len(counts) > 1:
        raise ValueError("ranges of the same length")
    count = counts.pop()
    if count > MOST:
        raise ValueError(f"a range of at most {MOST:,} numbers")
    numbers = [[str(first + step).zfill(len(text)) for step in range(count)] for text, first, _ in ranges]
    return [_joined(pieces[::3], step) for step in zip(*numbers, strict=True)]


def has_range(pattern: str) -> bool:
    """Whether the pattern stands for more than itself."""
    return _RANGE.search(pattern) is not None


def _joined(texts: list[str], numbers: tuple[str, ...]) -> str:
    return texts[0] + "".join(number + text for number, text in zip(numbers, texts[1:], strict=True))
