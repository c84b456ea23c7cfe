"""Which exporter saw a conversation where another one's record of it begins and where it ends.

What one exporter has of a conversation is a *view*. Views are numbered so that those of a conversation stand together,
the best first: a view that covers a record is better than the record's own if its number is smaller.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingest.flows.archive_rows import CLOUD, GUESSED

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SLACK_MS = 10_000
"""How far the clocks of two exporters may differ."""
_SPARSE_MS = 60_000
"""Time around its samples for which a sampling exporter is taken to see a conversation."""
PLACE_BITS = 20
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Sightings:
    """Records of conversations that several exporters saw.

    Attributes:
        rows: which of the records given each is, those of a view side by side.
        view: of each record.
        start, end: of each record, epoch ms.
        first, last: view -> the best and the worst view of its conversation.
        quality: view -> the best quality of its records.
        sample: view -> one of the records given.
    """

    rows: Ints
    view: Ints
    start: Ints
    end: Ints
    first: Ints
    last: Ints
    quality: Ints
    sample: Ints

    def best(self, asked: Ints, seen: Flags, *, any_view: bool = False) -> Ints:
        """Return the best other view that covers a record at both ends, for each of those asked; NOBODY without one.

        Args:
            asked: positions of records here.
            seen: records that show where their view saw the conversation.
            any_view: whether a worse view than its own will do.
        """
        spans = _Spans(self.view[seen], self.start[seen], self.end[seen], self.quality)
        found = np.full(len(asked), NOBODY, np.int64)
        own, start, end = self.view[asked], self.start[asked], self.end[asked]
        other, until = self.first[own], self.last[own] + 1 if any_view else own
        left = np.flatnonzero(other < until)
        # Most are covered by the best one of all: what is left after each step is little.
        while len(left):
            hit = left[(other[left] != own[left]) & spans.cover(other[left], start[left])]
            hit = hit[spans.cover(other[hit], end[hit])]
            found[hit] = other[hit]
            other[left] += 1
            left = left[(found[left] == NOBODY) & (other[left] < until[left])]
        return found


def sightings(conversation: npt.NDArray[np.uint64], place: Ints, quality: Ints, times: tuple[Ints, Ints]) -> Sightings:
    """Return the records of those conversations that have several places, given each one's exporter's place."""
    rows = np.argsort(conversation)
    begins = _begins(conversation[rows])
    number = np.cumsum(begins) - 1
    starts, places = np.flatnonzero(begins), place[rows]
    if len(rows):
        several = np.minimum.reduceat(places, starts) != np.maximum.reduceat(places, starts)
        kept = several[number]
        rows, number, places = rows[kept], number[kept], places[kept]
    packed = number << PLACE_BITS | places
    order = np.argsort(packed)
    rows, packed = rows[order], packed[order]
    begins = _begins(packed)
    view, starts = np.cumsum(begins) - 1, np.flatnonzero(begins)
    best = np.minimum.reduceat(quality[rows], starts) if len(rows) else quality[:0]
    of_view = packed[starts]
    number = of_view >> PLACE_BITS
    ranked = np.lexsort((of_view, best, number))
    renumbered = np.empty_like(ranked)
    renumbered[ranked] = np.arange(len(ranked))
    bounds = np.flatnonzero(_begins(number))
    sizes = np.diff(np.append(bounds, len(number)))
    return Sightings(
        rows=rows,
        view=renumbered[view],
        start=times[0][rows],
        end=times[1][rows],
        first=np.repeat(bounds, sizes),
        last=np.repeat(bounds + sizes - 1, sizes),
        quality=best[ranked],
        sample=rows[starts][ranked],
    )


class _Spans:
    """When each view saw its conversation, from record to record; a sampling one from its first sample to its last."""

    def __init__(self, view: Ints, start: Ints, end: Ints, quality: Ints) -> None:
        is_sparse = quality > GUESSED
        slack = np.where(is_loose(quality), _SPARSE_MS, SLACK_MS)[view]
        since, until = start - slack, end + slack
        self._base = int(since.min()) if len(since) else 0
        span = int(until.max(initial=self._base)) - self._base
        self._bits = span.bit_length()
        packed = view << self._bits | since - self._base
        order = np.argsort(packed)
        self._since, view = packed[order], view[order]
        self._until = np.maximum.accumulate(view << self._bits | until[order] - self._base)
        if is_sparse.any() and len(view):
            begins = np.flatnonzero(_begins(view))
            sizes = np.diff(np.append(begins, len(view)))
            whole = np.repeat(self._until[begins + sizes - 1], sizes)
            self._until = np.where(is_sparse[view], whole, self._until)

    def cover(self, view: Ints, moment: Ints) -> Flags:
        """Return whether each view saw its conversation at a moment."""
        if not len(self._since):
            return np.zeros(len(view), np.bool_)
        after = moment - self._base
        asked = view << self._bits | np.clip(after, 0, (1 << self._bits) - 1)
        place = np.maximum(np.searchsorted(self._since, asked, side="right") - 1, 0)
        # Of another view is what ends before this one begins.
        is_of = (self._since[place] <= asked) & (self._until[place] >= asked)
        return np.asarray(is_of & (after >= 0) & (after >> self._bits == 0), np.bool_)


def is_loose(quality: Ints) -> Flags:
    """Return whether records of this quality say only roughly when a conversation was seen."""
    # A cloud tells times of its intervals: those of the two ends are up to a minute apart.
    return np.asarray((quality > GUESSED) | (quality == CLOUD), np.bool_)


def _begins(values: Ints | npt.NDArray[np.uint64]) -> Flags:
    """Return which sorted values differ from the one before."""
    begins = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    return begins
