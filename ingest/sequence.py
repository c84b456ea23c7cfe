"""Records lost between exporter and collector, by gaps in the export protocols' sequence numbers.

NetFlow v5 and IPFIX number flow records. IPFIX numbers its options records, too, which pmacct does not print: a gap of
one is taken for such a record, not for a loss. NetFlow v9 numbers datagrams, those of templates too, so that its figure
is an upper bound. sFlow's numbers cover counter samples that pmacct does not print: no figure.
"""

from collections import deque
from dataclasses import dataclass, field

import polars as pl

from ingest import records

_BY_RECORD = (5, 10)
_BY_DATAGRAM = (9,)
_IPFIX = 10
_RESTART = 1_000_000
"""A jump this large, or back behind what was seen lately, is an exporter that started anew, not a loss."""

_SETTLE_BATCHES = 3
"""Records of one datagram may come with two purges, so a gap counts only when it is still there some batches later."""

_Source = tuple[str, int, int]


@dataclass(slots=True)
class _Stream:
    """One exporter process: numbers seen since it started."""

    first: int
    end: int
    received: int = 0
    reported: int = 0
    gaps: deque[int] = field(default_factory=lambda: deque(maxlen=_SETTLE_BATCHES))
    recent: frozenset[int] = frozenset()


class SequenceTracker:
    """Follows the sequence numbers of every exporter."""

    def __init__(self) -> None:
        self._streams: dict[_Source, _Stream] = {}

    def lost(self, frame: pl.DataFrame) -> dict[str, int]:
        """Take a record frame; return what is newly known to be lost, by exporter address."""
        known = frame.lazy().filter(
            pl.col(records.SEQ).is_not_null()
            & pl.col(records.EXPORTER).is_not_null()
            & pl.col(records.VERSION).is_in([*_BY_RECORD, *_BY_DATAGRAM])
        )
        sums = (
            known.group_by(records.EXPORTER, records.DOMAIN, records.VERSION, records.SEQ)
            .agg(pl.sum(records.FLOWS))
            .sort(records.SEQ)
            .collect()
        )
        result: dict[str, int] = {}
        for (exporter, domain, version), part in sums.group_by(
            records.EXPORTER, records.DOMAIN, records.VERSION, maintain_order=True
        ):
            source = (str(exporter), int(str(domain or 0)), int(str(version)))
            fresh = self._advance(source, part)
            result[source[0]] = result.get(source[0], 0) + fresh
        return {exporter: amount for exporter, amount in result.items() if amount}

    def _advance(self, source: _Source, part: pl.DataFrame) -> int:
        numbers = part.get_column(records.SEQ).to_list()
        by_datagram = source[2] in _BY_DATAGRAM
        sizes = [1] * len(numbers) if by_datagram else part.get_column(records.FLOWS).to_list()
        end = numbers[-1] + sizes[-1]
        stream = self._streams.get(source)
        if stream is None or numbers[0] < stream.first or abs(end - stream.end) > _RESTART:
            stream = self._streams[source] = _Stream(first=numbers[0], end=numbers[0])
        if by_datagram:
            fresh = frozenset(numbers) - stream.recent
            stream.received += len(fresh)
            stream.recent = frozenset(numbers)
        else:
            stream.received += sum(sizes)
            if source[2] == _IPFIX:
                ends = [stream.end, *(number + size for number, size in zip(numbers, sizes, strict=True))]
                stream.received += sum(number - before == 1 for before, number in zip(ends, numbers, strict=False))
        stream.end = max(stream.end, end)
        stream.gaps.append(max(stream.end - stream.first - stream.received, 0))
        settled = min(stream.gaps) if len(stream.gaps) == _SETTLE_BATCHES else 0
        fresh_loss = max(settled - stream.reported, 0)
        stream.reported += fresh_loss
        return fresh_loss
