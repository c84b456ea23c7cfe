"""Files that are nearly right: a good document or text, and what editors, disks and hands do to one."""

import json
from typing import Any

from hypothesis import strategies as st

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["", "0", "-1", "1e400", "2021-02-30", "99999999999d", "x" * 5_000, "\x00", "\ud800", "{{ . }}"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def _places(document: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value within a document."""
    found = [place] if place else []
    if isinstance(document, dict):
        for key, value in document.items():
            found += _places(value, (*place, key))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            found += _places(value, (*place, index))
    return found


@st.composite
def documents(draw: st.DrawFn, good: Any) -> Any:
    """Copies of a JSON-able document in which one to three values are gone, doubled, or something else."""
    document = json.loads(json.dumps(good, default=str))
    for _ in range(draw(st.integers(1, 3))):
        places = _places(document)
        if not places:
            break
        *way, last = draw(st.sampled_from(places))
        holder = document
        for step in way:
            holder = holder[step]
        match draw(st.sampled_from(["other", "other", "gone", "wrapped"])):
            case "gone":
                del holder[last]
            case "wrapped":
                holder[last] = [holder[last]]
            case _:
                holder[last] = draw(VALUES)
    return document


@st.composite
def garbled(draw: st.DrawFn, good: bytes) -> bytes:
    """Copies of a file that is cut off, or in which a few bytes are others, gone, or there twice."""
    raw = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(raw) - 1, 0)))
        length = draw(st.integers(1, 40))
        match draw(st.sampled_from(["flip", "cut", "gone", "twice", "noise"])):
            case "flip" if raw:
                raw[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del raw[at:]
            case "gone":
                del raw[at : at + length]
            case "twice":
                raw[at:at] = raw[at : at + length]
            case _:
                raw[at:at] = draw(st.binary(max_size=20))
    return bytes(raw)
