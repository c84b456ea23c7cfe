"""Records that pmacct prints twice: told to end just as it begins to print, or read on both sides of a purge.

Its print plugin forks a process that prints, and only then forgets what that one prints; a SIGINT between the two makes
it print the same records again before it exits. The numbers of records (`numbered`) rise from line to line as long as a
daemon runs. So a block (``--START`` to ``--END``) that does not begin above the one before it is such a repetition, or
of a daemon that was started again. Only the former has the same lines: no two records have the same number and time of
arrival. It is compared with the block right before it in its file, as that is where pmacct puts it.
"""

import gzip
import re
from collections.abc import Callable, Sequence
from typing import IO

from ingest.read import records

_START = records.START_MARKER.encode() + b" ("
_BORDER = re.compile(rb"^--(?:START|END) \(\d+\)--$", re.MULTILINE)
_GLANCE_BYTES = 1 << 14
_BLOCK_BYTES = 1 << 22
_MOST_BYTES = 1 << 27
"""Of a block that is looked at: a second of 400,000 flows/s has half as many."""


def step_back(raw: bytes, position: int, before: Callable[[int], bytes]) -> int:
    """Return where a block begins that may repeat the one before it; -1 where none does.

    Args:
        raw: whole lines of a file.
        position: where in them to begin.
        before: returns so many bytes of what stands before them in the file, or all there is.
    """
    # To look for one letter is ten times as quick as to look for a word, and no record of ours has a parenthesis.
    at = raw.find(b"(", position)
    while at >= 0:
        start = raw.rfind(b"\n", 0, at) + 1
        if raw.startswith(_START, start):
            known = _numbers(raw[max(start - _GLANCE_BYTES, 0) : start]) or _numbers(before(_GLANCE_BYTES))
            own = _numbers(raw[at : at + _GLANCE_BYTES])
            if known and not (own and _is_above(own[0], known)):
                return start
        newline = raw.find(b"\n", at)
        at = raw.find(b"(", newline) if newline >= 0 else -1
    return -1


def block_before(stream: IO[bytes] | gzip.GzipFile, offset: int) -> bytes:
    """Return the block that ends where another one begins, its end if it is very long."""
    text = b""
    while offset > 0 and _START not in text and len(text) < _MOST_BYTES:
        size = min(max(len(text), _BLOCK_BYTES), offset)
        offset -= size
        stream.seek(offset)
        text = stream.read(size) + text
    return text[max(text.rfind(_START), 0) :]


def end_of_block(raw: bytes, position: int) -> int:
    """Return where the block ends that a position is in; -1 where it goes on behind the text."""
    border = _BORDER.search(raw, position)
    return -1 if border is None else border.start()


def without_known(lines: bytes, known: bytes) -> tuple[bytes, int | None]:
    """Return lines without those records that known ones hold too, and how many these were; None without a record.

    The first record tells whether there are any: what is printed again is all in the block before.
    """
    found = lines.splitlines(keepends=True)
    first = next((line for line in found if _number(line) is not None), None)
    if first is None:
        return lines, None
    if b"\n" + first not in known:
        return lines, 0
    of_before = {line for line in known.split(b"\n") if _number(line) is not None}
    kept = [line for line in found if line.rstrip(b"\n") not in of_before]
    return b"".join(kept), len(found) - len(kept)


def _numbers(text: bytes) -> list[int]:
    return [number for number in map(_number, text.split(b"\n")) if number is not None]


def _is_above(number: int, known: Sequence[int]) -> bool:
    """Whether a number is above the last one of its kind."""
    is_ip = number >= records.FIRST_IP_NUMBER
    return next((one < number for one in reversed(known) if (one >= records.FIRST_IP_NUMBER) == is_ip), False)


def _number(line: bytes) -> int | None:
    """Return the number of a line that holds a record of ours; they print it first."""
    field = line.partition(b",")[0].decode("utf-8", "replace")
    return int(field) if records.is_number(field) else None
