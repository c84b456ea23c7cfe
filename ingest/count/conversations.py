"""The pass over all pieces: what stays of them is one row for each conversation and window.

It folds ports, exporters and interfaces away; every measurement but those of exporters and interfaces is a sum over
these rows. Rows of several batches fold together the same way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ingest.count.grouped import grouped, renumbered
from ingest.count.windows import Shares
from ingest.flows.normalise import Flags, Flows, Ints

PROTOCOLS = 257
"""IP protocol numbers, and one for records that name none."""

# Bits of `marks`: who opened it (1), plane (3), whether it counts (1), whether it is on the wrong plane (1).
_OPENER, _PLANE, _COUNTS, _WRONG, _MARKS = 0, 1, 4, 5, 6

VAGUE = 1 << _MARKS
"""A bit beside `marks`, of records whose bytes may have passed outside their times."""

_KEY_BITS = 62
_MOST_SLOTS = 1 << 30
"""Windows beyond which they are numbered: rows times windows must stay below 2^63."""


@dataclass(frozen=True, slots=True)
class Conversations:
    """Sums of pieces: equally long arrays, one row for each different (`src`, `dst`, `kind`, `marks`, `window`).

    Attributes:
        src, dst: address numbers.
        kind: service code times PROTOCOLS plus protocol.
        marks: who opened it, plane, whether it counts, whether it is on the wrong plane.
        window: number of the window.
        bytes, packets, flows: sums of the pieces.
        first, last: epoch ms at which the first piece begins and the last one ends.
        low_port, high_port: the lowest and the highest port of the server; 0 if none was printed.
        place: where it entered, as `Places` numbers it: the largest; 0 if unknown.
    """

    src: Ints
    dst: Ints
    kind: Ints
    marks: Ints
    window: Ints
    bytes: Ints
    packets: Ints
    flows: Ints
    first: Ints
    last: Ints
    low_port: Ints
    high_port: Ints
    place: Ints

    def __len__(self) -> int:
        return len(self.src)

    @property
    def protocol(self) -> Ints:
        """IP protocol numbers."""
        return self.kind % PROTOCOLS

    @property
    def service(self) -> Ints:
        """Service codes."""
        return self.kind // PROTOCOLS

    @property
    def plane(self) -> Ints:
        """Plane codes."""
        return (self.marks >> _PLANE) & 7

    @property
    def dst_opened(self) -> np.ndarray:
        """Whether the destination opened it."""
        return opens(self.marks)

    @property
    def counts(self) -> np.ndarray:
        """Whether it counts, or only another exporter's record of it does."""
        return self._mark(_COUNTS)

    @property
    def wrong_plane(self) -> np.ndarray:
        """Whether it is storage traffic on the compute plane."""
        return self._mark(_WRONG)

    def _mark(self, bit: int) -> np.ndarray:
        return (self.marks >> bit & 1).astype(np.bool_)


def conversations(flows: Flows, shares: Shares, places: Ints, without: Flags | None = None) -> Conversations:
    """Return the sums of a batch's pieces, but for those of some records, given where each record entered."""
    columns: tuple[Ints, ...] = (
        flows.src,
        flows.dst,
        kinds(flows),
        marks_of(flows, flows.counts),
        server_ports(flows),
        places,
    )
    if without is not None:
        shares = shares.of(~without)
        columns = tuple(column[~without] for column in columns)
    src, dst, kind, marks, port, place = columns
    # The first pieces of all records stand first.
    again = shares.record[len(src) :]
    keys = _Keys(src, dst, kind, marks, again=again, window=shares.window)
    if len(again):
        port, place = (np.concatenate([column, column[again]]) for column in (port, place))
    of_pieces = {name: getattr(shares, name) for name in ("bytes", "packets", "flows", "first", "last")}
    return keys.sums((of_pieces | {"low_port": port, "high_port": port, "place": place}).__getitem__)


def server_ports(flows: Flows) -> Ints:
    """Return the port of the side that was called."""
    return np.where(flows.dst_opened, flows.src_port, flows.dst_port)


def kinds(flows: Flows) -> Ints:
    """Return `Conversations.kind` of records."""
    kind = flows.service.astype(np.int64)
    kind *= PROTOCOLS
    kind += flows.protocol
    return kind


def marks_of(flows: Flows, counts: Flags) -> Ints:
    """Return `Conversations.marks` of records, given which of them count."""
    marks = (
        flows.dst_opened.view(np.uint8) << _OPENER
        | flows.plane << _PLANE
        | counts.view(np.uint8) << _COUNTS
        | flows.wrong_plane.view(np.uint8) << _WRONG
    )
    return marks.astype(np.int64)


def opens(marks: Ints) -> Flags:
    """Return whether the destination opened it."""
    return np.asarray(marks >> _OPENER & 1, np.bool_)


def counted(marks: Ints, counts: Flags) -> Ints:
    """Return marks, without VAGUE, with another answer to whether their rows count."""
    return np.asarray(marks & ~(1 << _COUNTS | VAGUE) | counts.astype(np.int64) << _COUNTS)


def folded(parts: Sequence[Conversations]) -> Conversations:
    """Return the sums of several batches."""
    if len(parts) == 1:
        return parts[0]

    def whole(name: str) -> Ints:
        # One after the other: together they would take as much memory as the parts once more.
        return np.concatenate([getattr(part, name) for part in parts])

    nothing = np.empty(0, np.int64)
    keys = _Keys(*map(whole, ("src", "dst", "kind", "marks")), again=nothing, window=whole("window"))
    return keys.sums(whole)


class _Keys:
    """What rows are summed by.

    Ends, kind and marks make one number; the different ones are numbered. That number and the window make the key,
    which so stays small.

    Args:
        src, dst, kind, marks: as in Conversations.
        again: which of these stand for the rows that come behind, one after the other.
        window: of all rows.
    """

    def __init__(self, src: Ints, dst: Ints, kind: Ints, marks: Ints, *, again: Ints, window: Ints) -> None:
        # Different kinds are few, but their numbers are not.
        self._kinds, kind = renumbered(kind, int(kind.max()) + 1)
        self._kind_bits = len(self._kinds).bit_length()
        self._dst_bits = int(dst.max()).bit_length()
        pair = src << self._dst_bits | dst
        self._pairs: Ints | None = None
        if int(src.max()).bit_length() + self._dst_bits + self._kind_bits + _MARKS > _KEY_BITS:
            self._pairs, pair = np.unique(pair, return_inverse=True)
        pair <<= self._kind_bits
        pair |= kind
        pair <<= _MARKS
        pair |= marks
        self._keys, number = renumbered(pair, int(pair.max()) + 1)
        self._base = int(window.min())
        self._slots = int(window.max()) - self._base + 1
        slot = window - self._base
        self._windows: Ints | None = None
        if self._slots > _MOST_SLOTS:
            # A clock that is wrong by millennia. Different windows are few.
            self._windows, slot = np.unique(window, return_inverse=True)
            self._slots = len(self._windows)
        slot += (np.concatenate([number, number[again]]) if len(again) else number) * self._slots
        self._rows = grouped(slot, len(self._keys) * self._slots)

    def sums(self, column: Callable[[str], Ints]) -> Conversations:
        """Return one row for each different key, given the rows' columns by their names."""
        rows = self._rows
        number, slot = np.divmod(rows.keys, self._slots)
        key = self._keys[number]
        pair = key >> self._kind_bits + _MARKS
        if self._pairs is not None:
            pair = self._pairs[pair]
        return Conversations(
            src=pair >> self._dst_bits,
            dst=pair & _mask(self._dst_bits),
            kind=self._kinds[key >> _MARKS & _mask(self._kind_bits)],
            marks=key & _mask(_MARKS),
            window=slot + self._base if self._windows is None else self._windows[slot],
            bytes=rows.sum(column("bytes")),
            packets=rows.sum(column("packets")),
            flows=rows.sum(column("flows")),
            first=rows.least(column("first")),
            last=rows.largest(column("last")),
            low_port=rows.least(column("low_port")),
            high_port=rows.largest(column("high_port")),
            place=rows.largest(column("place")),
        )


def _mask(bits: int) -> int:
    return (1 << bits) - 1
