"""Which exporter saw a conversation where another one's record of it begins and where it ends.

What one exporter has of a conversation is a *view*. Views are numbered so that those of a conversation stand together,
the best first: a view that covers a record is better than the record's own if its number is smaller.

To have seen a conversation now and then is not to have seen all of it: a view stands for another one's records as long
as it has half of their bytes. Half, as some devices count frames, and small frames are filled up.
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
_DOUBT = 3.0
"""By how much the square root of a number of samples may be off: six standard deviations, however many there are."""
PLACE_BITS = 20
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Seen:
    """Records as they are compared: equally long arrays.

    Attributes:
        conversation: a number of each.
        place: of its exporter among all; the smaller the better.
        quality: as in the archive.
        start, end: epoch ms.
        bytes, packets: scaled by sampling.
        is_described: whether its exporter's interfaces stand in cluster.yaml.
        is_vague: whether its bytes may have passed outside its times.
    """

    conversation: npt.NDArray[np.uint64]
    place: Ints
    quality: Ints
    start: Ints
    end: Ints
    bytes: Ints
    packets: Ints
    is_described: Flags
    is_vague: Flags


@dataclass(frozen=True, slots=True)
class Sightings:
    """Records of conversations that several exporters saw.

    Attributes:
        rows: which of the records given each is, those of a view side by side.
        view: of each record.
        start, end, bytes, packets: of each record.
        first, last: view -> the best and the worst view of its conversation.
        quality: view -> the best quality of its records.
        is_described: view -> whether its exporter counts what enters there, and that only.
        is_vague: view -> whether its bytes tell little: they may have passed outside their records' times.
        sample: view -> one of the records given.
    """

    rows: Ints
    view: Ints
    start: Ints
    end: Ints
    bytes: Ints
    packets: Ints
    first: Ints
    last: Ints
    quality: Ints
    is_described: Flags
    is_vague: Flags
    sample: Ints

    def best(self, asked: Ints, seen: Flags, *, any_view: bool = False) -> tuple[Ints, Flags]:
        """Return the best other view that stands for a record, for each of those asked; NOBODY without one.

        It covers both ends of it, and has the bytes for all that it covers of that view.

        Args:
            asked: positions of records here.
            seen: records that show where their view saw the conversation.
            any_view: whether a worse view than its own will do, whatever bytes it has.

        Returns:
            The views, and of which records a better view covers both ends without the bytes for them.
        """
        spans = _Spans(self.view[seen], self.start[seen], self.end[seen], self.quality)
        room: _Room | None = None
        found = np.full(len(asked), NOBODY, np.int64)
        is_more = np.zeros(len(asked), np.bool_)
        own, start, end = self.view[asked], self.start[asked], self.end[asked]
        other, until = self.first[own], self.last[own] + 1 if any_view else own
        left = np.flatnonzero(other < until)
        # Most are covered by the best one of all: what is left after each step is little.
        while len(left):
            # Where each packet enters counts: two devices described like that have none in common.
            hit = left[(other[left] != own[left]) & ~(self.is_described[own[left]] & self.is_described[other[left]])]
            hit = hit[spans.cover(other[hit], start[hit])]
            hit = hit[spans.cover(other[hit], end[hit])]
            if not any_view and len(hit):
                room = room or _Room(self, np.flatnonzero(seen), spans)
                fits = room.fits(asked[hit], other[hit])
                is_more[hit[~fits]] = True
                hit = hit[fits]
            found[hit] = other[hit]
            other[left] += 1
            left = left[(found[left] == NOBODY) & (other[left] < until[left])]
        return found, is_more & (found == NOBODY)


def sightings(records: Seen) -> Sightings:
    """Return the records of those conversations that have several places."""
    conversation, place, quality = records.conversation, records.place, records.quality
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
    is_vague = records.is_vague[:0]
    if len(rows):
        # Nor is one known whose rate is told only now and then.
        is_mixed = (best <= GUESSED) & (np.maximum.reduceat(quality[rows], starts) > GUESSED)
        is_vague = np.logical_or.reduceat(records.is_vague[rows], starts) | is_mixed
    of_view = packed[starts]
    number = of_view >> PLACE_BITS
    ranked = np.lexsort((of_view, best, number))
    renumbered = np.empty_like(ranked)
    renumbered[ranked] = np.arange(len(ranked))
    bounds = np.flatnonzero(_begins(number))
    sizes = np.diff(np.append(bounds, len(number)))
    sample = rows[starts][ranked]
    return Sightings(
        rows=rows,
        view=renumbered[view],
        start=records.start[rows],
        end=records.end[rows],
        bytes=records.bytes[rows],
        packets=records.packets[rows],
        first=np.repeat(bounds, sizes),
        last=np.repeat(bounds + sizes - 1, sizes),
        quality=best[ranked],
        is_described=records.is_described[sample],
        is_vague=is_vague[ranked],
        sample=sample,
    )


class _Room:
    """Whether a view has the bytes of another one's records.

    Where both are exact it is asked by time: of every stretch, the one has half of what the other's records in it have,
    in records that touch it. So it is asked who serves whom: each of a view's bytes is taken once, the first record to
    end takes the first that are there. Samples are asked in sum, and doubt is in favour of what is seen by both.

    Args:
        seen: the sightings.
        rows: positions of the records that have bytes to give.
        spans: when views saw what by these.
    """

    def __init__(self, seen: Sightings, rows: Ints, spans: "_Spans") -> None:
        self._seen, self._spans = seen, spans
        views = len(seen.quality)
        # What the views before have in sum.
        self._before = np.concatenate([[0], np.cumsum(np.bincount(seen.view[rows], seen.bytes[rows], views))])
        self._before = self._before.astype(np.int64)
        self._running = np.concatenate([[0], np.cumsum(seen.bytes[rows][spans.order])])
        if (seen.quality > GUESSED).any():
            packets = np.bincount(seen.view[rows], seen.packets[rows], views)
            self._sizes = np.diff(self._before) / np.maximum(packets, 1)

    def fits(self, asked: Ints, other: Ints) -> Flags:
        """Return for which records, given their positions, the other view has the bytes; one other for each view."""
        seen = self._seen
        own = seen.view[asked]
        told = ~(seen.is_vague[own] | seen.is_vague[other])
        sampled = (seen.quality[own] > GUESSED) | (seen.quality[other] > GUESSED)
        if told.all() and not sampled.any():
            return self._by_time(asked, other)
        fits = np.ones(len(asked), np.bool_)
        for rows, ask in ((told & sampled, self._in_sum), (told & ~sampled, self._by_time)):
            if rows.any():
                fits[rows] = ask(asked[rows], other[rows])
        return fits

    def _in_sum(self, asked: Ints, other: Ints) -> Flags:
        seen = self._seen
        own, number, first = _numbered(seen.view[asked])
        other = other[first]
        size, packets = (np.bincount(number, column[asked]) for column in (seen.bytes, seen.packets))
        has = np.sqrt(np.diff(self._before)[other]) + _DOUBT * np.sqrt(_rate(seen.quality[other]) * self._sizes[other])
        wants = np.sqrt(size) - _DOUBT * np.sqrt(_rate(seen.quality[own]) * size / np.maximum(packets, 1))
        return np.asarray((wants <= np.sqrt(2) * has)[number])

    def _by_time(self, asked: Ints, other: Ints) -> Flags:
        seen = self._seen
        order = np.argsort(seen.view[asked] << self._spans.bits | self._spans.after(seen.end[asked]))
        rows, to = asked[order], other[order]
        _, number, first = _numbered(seen.view[rows])
        wants = seen.bytes[rows] >> 1
        # Of two clocks, the worse one tells how far they may differ; that of the other view is in its spans.
        is_loose = (seen.quality[seen.view[rows]] == CLOUD) & (seen.quality[to] != CLOUD)
        slack = np.where(is_loose, _SPARSE_MS - SLACK_MS, 0) if is_loose.any() else 0
        begun, ended = self._spans.touching(to, seen.start[rows] - slack, seen.end[rows] + slack)
        since, until = (self._running[mark] - self._before[to] for mark in (begun, ended))
        # One view after the other on one line, so far apart that nothing is left over from one to the next.
        apart = np.bincount(number, wants).astype(np.int64) + np.diff(self._before)[to[first]]
        line = (np.cumsum(apart) - apart)[number]
        since = np.minimum.accumulate((since + line)[::-1])[::-1]
        until += line
        wanted = np.cumsum(wants)
        taken = np.maximum.accumulate(since - (wanted - wants)) + wanted
        fits = np.ones(len(rows), np.bool_)
        is_short = taken > until
        if is_short.any():
            is_short = (np.bincount(number, is_short) > 0)[number]
            fits[is_short] = served(wants[is_short], since[is_short], until[is_short])
        result = np.empty_like(fits)
        result[order] = fits
        return result


def served(wants: Ints, since: Ints, until: Ints) -> Flags:
    """Return who is served in full, each from what lies between two marks on a line, behind what is taken.

    Args:
        wants: how much each wants.
        since: from where; it does not go back from one to the next.
        until: up to where; it does not go back either.
    """
    # Each moves the mark of what is taken to min(max(mark + more, low), high). So do several, one after the other.
    more, low, high = wants.copy(), np.minimum(since + wants, until), until.copy()
    step = 1
    while step < len(wants):
        low[step:], high[step:], more[step:] = (
            np.clip(low[:-step] + more[step:], low[step:], high[step:]),
            np.clip(high[:-step] + more[step:], low[step:], high[step:]),
            more[:-step] + more[step:],
        )
        step <<= 1
    taken = np.concatenate([since[:1], low[:-1]])
    return np.asarray(np.maximum(taken, since) + wants <= until, np.bool_)


def _numbered(values: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the values that stand side by side once each, the number of each one's, and where each begins."""
    begins = _begins(values)
    first = np.flatnonzero(begins)
    return values[first], np.cumsum(begins) - 1, first


def _rate(quality: Ints) -> Ints:
    return np.where(quality > GUESSED, quality + 1 >> 1, 0)


class _Spans:
    """When each view saw its conversation, from record to record; a sampling one from its first sample to its last.

    Attributes:
        order: the records given, those of a view together, as they begin.
        bits: of a moment in a number that has a view before it.
    """

    def __init__(self, view: Ints, start: Ints, end: Ints, quality: Ints) -> None:
        is_sparse = quality > GUESSED
        slack = np.where(is_loose(quality), _SPARSE_MS, SLACK_MS)[view]
        since, until = start - slack, end + slack
        self._base = int(since.min()) if len(since) else 0
        span = int(until.max(initial=self._base)) - self._base
        self.bits = span.bit_length()
        packed = view << self.bits | since - self._base
        self.order = np.argsort(packed)
        self._since, view = packed[self.order], view[self.order]
        self._until = np.maximum.accumulate(view << self.bits | until[self.order] - self._base)
        if is_sparse.any() and len(view):
            begins = np.flatnonzero(_begins(view))
            sizes = np.diff(np.append(begins, len(view)))
            whole = np.repeat(self._until[begins + sizes - 1], sizes)
            self._until = np.where(is_sparse[view], whole, self._until)

    def after(self, moment: Ints) -> Ints:
        """Return moments as they are kept: after the first one, and not after the last."""
        return np.clip(moment - self._base, 0, (1 << self.bits) - 1)

    def cover(self, view: Ints, moment: Ints) -> Flags:
        """Return whether each view saw its conversation at a moment."""
        if not len(self._since):
            return np.zeros(len(view), np.bool_)
        after = moment - self._base
        asked = view << self.bits | self.after(moment)
        place = np.maximum(np.searchsorted(self._since, asked, side="right") - 1, 0)
        # Of another view is what ends before this one begins.
        is_of = (self._since[place] <= asked) & (self._until[place] >= asked)
        return np.asarray(is_of & (after >= 0) & (after >> self.bits == 0), np.bool_)

    def touching(self, view: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Return from which place in `order` to which are the records that touch a stretch of each view; or more."""
        begun = np.searchsorted(self._until, view << self.bits | self.after(start))
        return begun, np.searchsorted(self._since, view << self.bits | self.after(end), side="right")


def is_loose(quality: Ints) -> Flags:
    """Return whether records of this quality say only roughly when a conversation was seen."""
    # A cloud tells times of its intervals: those of the two ends are up to a minute apart.
    return np.asarray((quality > GUESSED) | (quality == CLOUD), np.bool_)


def _begins(values: Ints | npt.NDArray[np.uint64]) -> Flags:
    """Return which sorted values differ from the one before."""
    begins = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    return begins
