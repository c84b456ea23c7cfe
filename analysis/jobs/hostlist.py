"""Lists of nodes as Slurm writes them: ``gpu-[01-16,20],cpu-1`` stands for seventeen gpu nodes and one other.

The grammar is that of Slurm's hostlists: names separated by commas, each with any number of bracketed sets of
numbers, ``[1-9:2]`` every second one; digits keep their width; several brackets in a name multiply
(``rack[1-2]n[1-4]``), the last counting fastest.
The ranges of cluster.yaml, ``gpu-{01..16}``, are understood too.
"""

import itertools
import re
from collections.abc import Iterable

from cluster.scalars.ranges import MOST
from cluster.scalars.ranges import expand as expand_range

LONGEST = 253
"""Characters of a name: RFC 1035."""

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_NUMBERS = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:[:/]([1-9][0-9]{0,8}))?)?")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]+)([^0-9]*)")


def expand(text: str) -> list[str]:
    """Return the names that a list stands for, each once, in its order.

    Raises:
        ValueError: brackets that do not match, a range that counts down, too many names, those that are there again
            among them, or too long ones. It says what is expected.
    """
    found: dict[str, None] = {}
    count = 0
    for item in _items(text):
        names = expand_range(item) if "{" in item else _expanded(item)
        found |= dict.fromkeys(names)
        count += len(names)
        if count > MOST:
            raise ValueError(f"at most {MOST:,} nodes")
    return list(found)


def _items(text: str) -> list[str]:
    """Split at commas and white space outside of brackets."""
    items, depth, begin = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            raise ValueError("brackets that match, as in gpu-[01-16]")
        if depth == 0 and (sign in ",;" or sign.isspace()):
            items.append(text[begin:place])
            begin = place + 1
    if depth:
        raise ValueError("brackets that match, as in gpu-[01-16]")
    return [item for item in (*items, text[begin:]) if item]


def _expanded(item: str) -> list[str]:
    pieces = _BRACKETS.split(item)
    sets: list[list[str]] = []
    size = 1
    for piece in pieces[1::2]:
        sets.append(_numbers(piece))
        size *= len(sets[-1])
        if size > MOST:
            raise ValueError(f"at most {MOST:,} nodes")
    texts = pieces[::2]
    if sum(map(len, texts)) + len(sets) > LONGEST:
        raise ValueError(f"names of at most {LONGEST} characters")
    return [
        texts[0] + "".join(number + text for number, text in zip(chosen, texts[1:], strict=True))
        for chosen in itertools.product(*sets)
    ]


def _numbers(text: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = _NUMBERS.fullmatch(part.strip())
        if match is None:
            raise ValueError("numbers in brackets, as in gpu-[01-16,20]")
        first, last = match[1], match[2] or match[1]
        found = range(int(first), int(last) + 1, int(match[3] or 1))
        if not found:
            raise ValueError("a range that counts up")
        if len(numbers) + len(found) > MOST:
            raise ValueError(f"at most {MOST:,} nodes")
        numbers += [str(number).zfill(len(first)) for number in found]
    return numbers


def compress(names: Iterable[str]) -> str:
    """Return a short list that stands for the same names, sorted; ``expand`` undoes it."""
    families: dict[tuple[str, str, int], list[int]] = {}
    plain: list[str] = []
    for name in sorted(set(names)):
        match = _LAST_NUMBER.fullmatch(name)
        if match is None or len(match[2]) > 18:
            plain.append(name)
        else:
            # Only a number with leading zeros, or as long as the others, may share a bracket of its width.
            width = len(match[2])
            families.setdefault((match[1], match[3], width), []).append(int(match[2]))
    written = [_family(*family, sorted(numbers)) for family, numbers in families.items()]
    return ",".join(sorted([*plain, *written]))


def _family(prefix: str, suffix: str, width: int, numbers: list[int]) -> str:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]:0{width}}{suffix}"
    texts = [f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in runs]
    return f"{prefix}[{','.join(texts)}]{suffix}"
