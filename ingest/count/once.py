"""Which of several exporters counts a conversation, where cluster.yaml does not say.

A conversation is what has the same addresses, ports and protocol in one direction. Of the exporters that saw one, the
best counts it: one whose interfaces cluster.yaml describes, one that does not sample, one that samples less, then the
first in cluster.yaml. A record of another one counts as well unless the better exporter saw the conversation both where
the record begins and where it ends: so what only one sees is never lost. That is asked again whenever records come, as
long as the record's windows can be rewritten: which exporter reports first makes no difference to the totals.

Samples need one thing more: that one exporter drew a small conversation and the other did not says nothing about who
sees it. So by pair of groups it is found out whether conversations large enough to be in both exporters' samples are in
both; from a moment on that lies ahead, the small ones are the better exporter's as well.

All records of a conversation are in one Kafka partition (records go by their source), so nothing is shared by workers.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cluster.model import Cluster
from ingest.count.conversations import PROTOCOLS, Conversations, counted, marks_of, server_ports, summed
from ingest.count.grouped import grouped
from ingest.count.windows import Shares, prorate
from ingest.flows.archive_rows import CLOUD as _CLOUD
from ingest.flows.archive_rows import DESCRIBED as _DESCRIBED
from ingest.flows.archive_rows import GUESSED as _GUESSED
from ingest.flows.archive_rows import qualities
from ingest.flows.normalise import Codes, Flags, Flows, Ints, Normaliser
from store import schema
from store.points import WINDOW
from store.schema import Because

NAME = "newest-records"
"""Table of a checkpoint."""

SLACK_MS = 10_000
"""How far the clocks of two exporters may differ."""
_SPARSE_MS = 60_000
"""Time around its samples for which a sampling exporter is taken to see a conversation."""
_MOST_ROWS = 4_000_000
"""Records remembered: about 0.5 GB. With more, the oldest are forgotten before their grace ends."""

_MOST_CHUNKS = 64

_HEAVY = 8
"""Samples in a record that make it next to certain that another exporter with that rate has one of the conversation."""
_LEAST_RECORDS, _LEAST_CONVERSATIONS = 20, 10
"""Of heavy ones: fewer prove nothing."""
_SAME_SHARE = 0.95
_SILENT_MS = 120_000
"""An exporter of which a group pair has had no record for so long does not count for others."""
_WITH_PORTS = (6, 17, 132)
_ORDERS = 1 << 20

_ROW, _CONVERSATION, _QUALITY, _RANK = "row", "conversation", "quality", "rank"
_SRC, _DST, _PROTOCOL, _SERVICE, _MARKS, _PORT = "src", "dst", "protocol", "service", "marks", "port"
_START, _END, _BYTES, _PACKETS, _FLOWS = "start", "end", "bytes", "packets", "flows"
_BY, _WHY, _FRESH, _SIGN = "by", "why", "fresh", "sign"
_KEY = [WINDOW, _CONVERSATION, schema.EXPORTER, _QUALITY, _SRC, _DST, _PROTOCOL, _SERVICE, _MARKS, _PORT]

_STATE = {
    WINDOW: pl.Int64,
    _CONVERSATION: pl.UInt64,
    schema.EXPORTER: pl.String,
    _QUALITY: pl.Int64,
    _SRC: pl.String,
    _DST: pl.String,
    _PROTOCOL: pl.Int64,
    _SERVICE: pl.String,
    _MARKS: pl.Int64,
    _PORT: pl.Int64,
    _START: pl.Int64,
    _END: pl.Int64,
    _BYTES: pl.Int64,
    _PACKETS: pl.Int64,
    _FLOWS: pl.Int64,
    _BY: pl.String,
    _WHY: pl.String,
}
"""A record: where it begins, what it counts, and the exporter that counts instead, empty if it counts itself."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What is to be added to the totals; sums may be negative where a record no longer counts, or counts again.

    Attributes:
        conversations: rows as of a batch.
        suppressed: partial points of EXPORTER_STATUS.
        counting: partial points of COUNTING.
        suppressed_bytes: what is suppressed, in sum.
    """

    conversations: Conversations
    suppressed: pl.DataFrame
    counting: pl.DataFrame
    suppressed_bytes: int


class Once:
    """The records of the last minutes that another exporter may have seen as well.

    Args:
        cluster: its windows.
        books: names of the codes in flows.
        is_final: whether windows that left memory stay as they are; a backfill may come back to them.

    Attributes:
        state: those records, and which of them count.
        evicted_before: records that begin before this second are no longer here.
        forgotten: records dropped before their time since the caller last set it to 0: there was no room for them.
        decisions: by source group, destination group and sampling exporter: from which second on who counts what only
            that exporter drew; empty for itself.
    """

    def __init__(self, cluster: Cluster, books: Normaliser, *, is_final: bool) -> None:
        self._seconds = cluster.bridge.window
        # What is final still shows who saw the conversation.
        self._keep = cluster.bridge.lateness + cluster.bridge.grace
        self._books = books
        self._is_final = is_final
        self._waiting: list[pl.DataFrame] = []
        self._changed: set[int] = set()
        self.state = pl.DataFrame(schema=_STATE)
        self.evicted_before = 0
        self.forgotten = 0
        self.decisions: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
        self._span = self._keep // self._seconds * self._seconds
        self._judged_to = 0

    # -- in ----------------------------------------------------------------------------------------

    def wanted(self, flows: Flows) -> Flags | None:
        """Return which records count only if no better exporter saw them; None if none of these has to be asked."""
        book = self._books.exporters
        if not book.may_repeat:
            return None
        groups = self._books.addresses.group_codes
        wanted = flows.counts & ~book.is_told[groups[flows.src], groups[flows.dst]]
        return wanted if wanted.any() else None

    def take(self, flows: Flows, wanted: Flags, oldest: int | None) -> None:
        """Take the records of a batch that are wanted, given the number of the oldest window kept."""
        rows = np.flatnonzero(wanted)
        exporters, addresses = self._books.exporters, self._books.addresses
        src, dst, exporter = flows.src[rows], flows.dst[rows], flows.exporter[rows]
        quality = qualities(flows, exporters)[rows]
        ports = np.where(np.isin(flows.protocol, _WITH_PORTS), flows.src_port << 16 | flows.dst_port, 0)[rows]
        start, end = flows.start[rows], flows.end[rows]
        frame = pl.DataFrame(
            {
                WINDOW: start // (self._seconds * 1000) * self._seconds,
                _CONVERSATION: _numbers(addresses.keys, src, dst, ports << 9 | flows.protocol[rows]),
                schema.EXPORTER: exporter,
                _QUALITY: quality,
                _SRC: src,
                _DST: dst,
                _PROTOCOL: flows.protocol[rows],
                _SERVICE: flows.service[rows].astype(np.int64),
                _MARKS: marks_of(flows, flows.counts)[rows],
                _PORT: server_ports(flows)[rows],
                _START: start,
                _END: end,
                _BYTES: flows.bytes[rows],
                _PACKETS: flows.packets[rows],
                _FLOWS: flows.flows[rows],
            }
        )
        frame = self._clamped(self._folded(frame, flows.is_sflow[rows]), oldest)
        self._waiting.append(
            frame.with_columns(
                pl.Series(schema.EXPORTER, exporters.names, pl.String).gather(frame.get_column(schema.EXPORTER)),
                addresses.texts.gather(frame.get_column(_SRC)).alias(_SRC),
                addresses.texts.gather(frame.get_column(_DST)).alias(_DST),
                pl.Series(_SERVICE, self._books.services.names, pl.String).gather(frame.get_column(_SERVICE)),
            )
        )

    def _folded(self, frame: pl.DataFrame, is_sflow: Flags) -> pl.DataFrame:
        """Fold samples, of which a conversation has many in a window."""
        if not is_sflow.any():
            return frame
        sums = frame.filter(pl.Series(is_sflow)).group_by(_KEY).agg(
            pl.min(_START), pl.max(_END), pl.sum(_BYTES), pl.sum(_PACKETS), pl.sum(_FLOWS)
        )  # fmt: skip
        return pl.concat([frame.filter(pl.Series(~is_sflow)), sums.select(frame.columns)])

    def _clamped(self, frame: pl.DataFrame, oldest: int | None) -> pl.DataFrame:
        """Move what lies before the oldest window into it: such records become one for each of their windows."""
        is_late = pl.col(WINDOW) < (oldest or 0) * self._seconds
        late = frame.filter(is_late)
        if oldest is None or late.is_empty():
            return frame
        start, end, volume, packets, flows = (
            late[name].to_numpy() for name in (_START, _END, _BYTES, _PACKETS, _FLOWS)
        )
        window_ms = self._seconds * 1000
        shares = prorate(start, end, (volume, packets, flows), window_ms=window_ms, oldest=oldest)
        begin = np.maximum(shares.first, shares.window * window_ms)
        pieces = late[shares.record].with_columns(
            pl.Series(_START, begin),
            pl.Series(_END, np.maximum(shares.last, begin)),
            pl.Series(_BYTES, shares.bytes),
            pl.Series(_PACKETS, shares.packets),
            pl.Series(_FLOWS, shares.flows),
        )
        return pl.concat([frame.filter(~is_late), pieces])

    # -- as a table of windows -----------------------------------------------------------------------

    @property
    def pending_rows(self) -> int:
        """Rows that wait for `settle`, and windows that changed since `settled` was called."""
        return sum(frame.height for frame in self._waiting) + len(self._changed)

    def pending_windows(self) -> pl.Series:
        """Return the distinct windows whose rows changed."""
        return pl.Series(WINDOW, sorted(self._changed), pl.Int64)

    def merge(self) -> None:
        """Take note that somebody has the state."""
        self._changed.clear()

    def restore(self, rows: pl.DataFrame) -> None:
        """Take the state of before a restart."""
        self.state = _as_state(rows)

    def put_back(self, rows: pl.DataFrame) -> None:
        """Take rows that had been evicted."""
        self.state = pl.concat([self.state, _as_state(rows)])

    def evict(self, before: int, _held: Collection[int] = ()) -> pl.DataFrame:
        """Forget what is too old to tell anything, given when the oldest window in grace begins; return its rows."""
        self._decide(before)
        before -= self._keep
        if self.state.height > _MOST_ROWS:
            excess = self.state.height - _MOST_ROWS
            due, before = before, max(before, int(self.state.get_column(WINDOW).sort()[excess]) + self._seconds)
            window = self.state.get_column(WINDOW)
            self.forgotten += int(((window >= due) & (window < before)).sum())
        self.evicted_before = max(self.evicted_before, before)
        is_old = pl.col(WINDOW) < before
        old = self.state.filter(is_old)
        if old.height:
            self.state = self.state.filter(~is_old)
        if self.state.n_chunks() > _MOST_CHUNKS:
            self.state = self.state.rechunk()
        # A backfill would put aside all its records for those few that come later than two graces.
        return old if self._is_final else old.clear()

    # -- verdicts ----------------------------------------------------------------------------------

    def settle(self, oldest: int | None) -> Settled | None:
        """Return what the records taken change; None without any.

        Args:
            oldest: number of the oldest window in memory; None: all are.
        """
        if not self._waiting:
            return None
        fresh = pl.concat(self._waiting).with_columns(pl.lit("").alias(_BY), pl.lit(Because.ITSELF.value).alias(_WHY))
        self._waiting.clear()
        fresh = fresh.select(list(_STATE))
        known = self.state
        if known.height:
            is_met = pl.col(_CONVERSATION).is_in(fresh.get_column(_CONVERSATION).unique().implode())
            known, apart = known.filter(is_met), known.filter(~is_met)
        else:
            apart = known
        rows = pl.concat(
            [known.with_columns(pl.lit(False).alias(_FRESH)), fresh.with_columns(pl.lit(True).alias(_FRESH))]
        )
        rows = rows.with_row_index(_ROW)
        after = self._told(self._judged(rows, oldest), apart, self._final(oldest))
        is_new = pl.Series(rows.get_column(_FRESH))
        moved = (after.get_column(_BY) != rows.get_column(_BY)) & ~is_new
        self._changed.update(after.get_column(WINDOW).filter(moved | is_new).unique().to_list())
        self.state = pl.concat([apart, after.select(list(_STATE))])
        changes = pl.concat(
            [
                rows.filter(moved).with_columns(pl.lit(-1, pl.Int64).alias(_SIGN)),
                after.filter(moved | is_new).with_columns(pl.lit(1, pl.Int64).alias(_SIGN)),
            ]
        )
        return self._sums(changes)

    def _judged(self, rows: pl.DataFrame, oldest: int | None) -> pl.DataFrame:
        """Return rows with who counts them, as far as that is not final."""
        # An exporter that is no longer in cluster.yaml comes last.
        numbers = (
            rows.get_column(schema.EXPORTER).cast(pl.Enum(self._books.exporters.names), strict=False).to_physical()
        )
        places = pl.Series(self._books.exporters.order).gather(numbers).fill_null(_ORDERS - 1)
        placed = rows.with_columns(places.alias(_RANK))
        several = placed.group_by(_CONVERSATION).agg(pl.min(_RANK), pl.max(_RANK).alias("last"))
        several = several.filter(pl.col(_RANK) != pl.col("last"))
        if several.is_empty():
            return rows
        final = self._final(oldest)
        shared = placed.filter(pl.col(_CONVERSATION).is_in(several.get_column(_CONVERSATION).implode()))
        shared = shared.with_columns(pl.col(_QUALITY).min().over(_CONVERSATION, _RANK)).with_columns(
            (pl.col(_QUALITY) * _ORDERS + pl.col(_RANK)).alias(_RANK)
        )
        is_final = pl.col(WINDOW) < final
        ranks = shared.group_by(_CONVERSATION, _RANK).agg(pl.first(schema.EXPORTER), pl.first(_QUALITY))
        # What is final and does not count is no reason for another record not to count.
        seen = shared.filter(~(is_final & (pl.col(_BY) != "")))
        open_rows = shared.filter(~is_final | pl.col(_FRESH))
        better = _covered(open_rows, ranks.select(_CONVERSATION, pl.col(_RANK).alias("other")), seen)
        # What comes so late that nothing can be taken back yields to what counted before.
        late = shared.filter(is_final & pl.col(_FRESH))
        if late.height:
            before = shared.filter(~pl.col(_FRESH) & (pl.col(_BY) == ""))
            others = before.select(_CONVERSATION, pl.col(_RANK).alias("other")).unique()
            better = pl.concat([better, _covered(late, others, before, any_rank=True)])
        best = better.group_by(_ROW).agg(pl.min("other"))
        verdicts = (
            shared.filter(~is_final | pl.col(_FRESH))
            .select(_ROW, _CONVERSATION, pl.col(_QUALITY).alias("own"), is_final.alias("is_late"))
            .join(best, on=_ROW, how="left")
            .join(ranks.rename({_RANK: "other"}), on=[_CONVERSATION, "other"], how="left")
            .select(_ROW, pl.col(schema.EXPORTER).fill_null("").alias("new_by"), _why().alias("new_why"))
        )
        return (
            rows.join(verdicts, on=_ROW, how="left", maintain_order="left")
            .with_columns(pl.coalesce("new_by", _BY).alias(_BY), pl.coalesce("new_why", _WHY).alias(_WHY))
            .drop("new_by", "new_why")
        )

    def _told(self, rows: pl.DataFrame, apart: pl.DataFrame, final: int) -> pl.DataFrame:
        """Return rows with what `decisions` say of those that no other exporter has."""
        if not self.decisions:
            return rows
        is_open = (pl.col(_BY) == "") & (pl.col(_QUALITY) > _GUESSED) & ((pl.col(WINDOW) >= final) | pl.col(_FRESH))
        alone = self._with_groups(rows.filter(is_open))
        places = [schema.SRC_GROUP, schema.DST_GROUP, schema.EXPORTER]
        entries = [(*place, since * 1000, by) for place, said in self.decisions.items() for since, by in said]
        told = pl.DataFrame(entries, schema=[*places, "since", "other"], orient="row").sort("since")
        alone = alone.sort(_START).join_asof(told, left_on=_START, right_on="since", by=places, check_sortedness=False)
        alone = alone.filter(pl.col("other").fill_null("") != "")
        if alone.is_empty():
            return rows
        # While the better one is silent the other counts what it sees.
        is_other = pl.col(schema.EXPORTER).is_in(alone.get_column("other").unique().implode())
        recent = pl.concat([part.filter(is_other).select(list(_STATE)) for part in (rows, apart)])
        heard = self._with_groups(recent).select(
            schema.SRC_GROUP, schema.DST_GROUP, pl.col(schema.EXPORTER).alias("other"), pl.col(_END).alias("heard")
        )
        alone = alone.join_asof(
            heard.sort("heard").with_columns((pl.col("heard") - _SILENT_MS).alias("from")).sort("from"),
            left_on=_START,
            right_on="from",
            by=[schema.SRC_GROUP, schema.DST_GROUP, "other"],
            check_sortedness=False,
        ).filter(pl.col("heard") >= pl.col(_START) - _SILENT_MS)
        said = alone.select(_ROW, pl.col("other").alias("new_by"))
        is_told = pl.col("new_by").is_not_null()
        return (
            rows.join(said, on=_ROW, how="left", maintain_order="left")
            .with_columns(
                pl.coalesce("new_by", _BY).alias(_BY),
                pl.when(is_told).then(pl.lit(Because.SAME.value)).otherwise(_WHY).alias(_WHY),
            )
            .drop("new_by")
        )

    def _decide(self, final: int) -> None:
        """Judge the stretches of time that are final now, whichever exporters sampled the same traffic in them."""
        end = final // self._span * self._span
        begin = max(self._judged_to, end - self._span)
        if begin < end and self._judged_to:
            self._judge(begin)
        self._judged_to = max(self._judged_to, end)

    def _judge(self, begin: int) -> None:
        own = (Because.UNSAMPLED.value, Because.DESCRIBED.value, Because.EARLIER.value)
        heavy = self.state.filter(
            (pl.col(_QUALITY) > _GUESSED)
            & (pl.col(_PACKETS) * 2 >= pl.col(_QUALITY) * _HEAVY)
            & pl.col(WINDOW).is_between(begin, begin + self._span, closed="left")
            & ~pl.col(_WHY).is_in(own)
        )
        if heavy.is_empty():
            return
        is_shared = pl.col(_WHY).is_in([Because.FINER.value, Because.FIRST.value])
        each = (
            self._with_groups(heavy)
            .group_by(schema.SRC_GROUP, schema.DST_GROUP, schema.EXPORTER)
            .agg(
                pl.len().alias("records"),
                pl.col(_CONVERSATION).n_unique().alias("conversations"),
                pl.col(_BY).filter(is_shared).mode().sort().first().fill_null("").alias("other"),
                pl.col(_BY).filter(is_shared).unique_counts().max().fill_null(0).alias("shared"),
            )
            .filter((pl.col("records") >= _LEAST_RECORDS) & (pl.col("conversations") >= _LEAST_CONVERSATIONS))
        )
        for src, dst, exporter, count, _, other, shared in each.rows():
            by = other if shared >= _SAME_SHARE * count else ""
            said = self.decisions.get((src, dst, exporter), [])
            if by != (said[-1][1] if said else ""):
                # Ahead of every record so far: none of those was counted by it.
                self.decisions[src, dst, exporter] = [*said[-2:], (begin + 3 * self._span, by)]

    def _with_groups(self, rows: pl.DataFrame) -> pl.DataFrame:
        addresses = self._books.addresses
        groups = pl.Series(list(addresses.groups))
        src, dst = (
            groups.gather(addresses.group_codes[one.to_numpy()]) for one in addresses.number(rows[_SRC], rows[_DST])
        )
        return rows.with_columns(src.alias(schema.SRC_GROUP), dst.alias(schema.DST_GROUP))

    def notes(self) -> dict[str, Any]:
        """Return what is remembered beside `state`, as plain values."""
        return {
            "judged_to": self._judged_to,
            "decisions": [[*place, *entry] for place, said in self.decisions.items() for entry in said],
        }

    def load_notes(self, notes: Mapping[str, Any]) -> None:
        """Take what `notes` gave; nothing of a checkpoint of before there were any."""
        self._judged_to = notes.get("judged_to", 0)
        self.decisions = {}
        for src, dst, exporter, since, by in notes.get("decisions", []):
            self.decisions.setdefault((src, dst, exporter), []).append((since, by))

    def _final(self, oldest: int | None) -> int:
        """Return before which second nothing is taken back."""
        if not self._is_final or oldest is None:
            return -(1 << 62)
        return max(oldest * self._seconds, self.evicted_before)

    def _sums(self, changes: pl.DataFrame) -> Settled:
        start, end = changes.get_column(_START).to_numpy(), changes.get_column(_END).to_numpy()
        volume, packets, flows = (changes.get_column(name).to_numpy() for name in (_BYTES, _PACKETS, _FLOWS))
        shares = prorate(start, end, (volume, packets, flows), window_ms=self._seconds * 1000)
        sign = changes.get_column(_SIGN).to_numpy()[shares.record]
        volume = shares.bytes * sign
        addresses = self._books.addresses
        src, dst = (one.to_numpy().astype(np.int64) for one in addresses.number(changes[_SRC], changes[_DST]))
        codes = {name: code for code, name in enumerate(self._books.services.names)}
        service = changes.get_column(_SERVICE).replace_strict(codes, default=codes[schema.OTHER], return_dtype=pl.Int64)
        kind = service.to_numpy() * PROTOCOLS + changes.get_column(_PROTOCOL).to_numpy()
        is_counted = (changes.get_column(_BY) == "").to_numpy()
        port = changes.get_column(_PORT).to_numpy()[shares.record]
        marks = counted(changes.get_column(_MARKS).to_numpy(), is_counted)
        counting = self._counting(changes, (addresses.group_codes[src], addresses.group_codes[dst]), shares, volume)
        total = pl.sum(schema.COUNTING_BYTES.name)
        suppressed = (
            counting.filter(pl.col(schema.COUNTED_BY) != pl.col(schema.EXPORTER))
            .group_by(WINDOW, schema.EXPORTER)
            .agg(total.alias(schema.EXPORTER_SUPPRESSED.name))
        )
        conversations = Conversations(
            src=src[shares.record],
            dst=dst[shares.record],
            kind=kind[shares.record],
            marks=marks[shares.record],
            window=shares.window,
            bytes=volume,
            packets=shares.packets * sign,
            flows=shares.flows * sign,
            first=shares.first,
            last=shares.last,
            low_port=port,
            high_port=port,
            # Which of several exporters counted may change: only where one alone counts it is told.
            place=np.zeros(len(port), np.int64),
        )
        whole = int(suppressed.get_column(schema.EXPORTER_SUPPRESSED.name).sum())
        return Settled(summed(conversations), suppressed, counting, whole)

    def _counting(
        self, changes: pl.DataFrame, groups: tuple[Codes, Codes], shares: Shares, volume: Ints
    ) -> pl.DataFrame:
        """Return partial points of COUNTING: the volume of pieces, with its sign, by what is said of their records."""
        by = pl.when(pl.col(_BY) == "").then(schema.EXPORTER).otherwise(_BY)
        exporter, counted_by, why = changes.select(schema.EXPORTER, by.alias(schema.COUNTED_BY), _WHY)
        names = pl.concat([exporter.unique(), counted_by.unique()]).unique().sort()
        reasons = pl.Series([one.value for one in Because])
        src_group, dst_group = (codes.astype(np.int64) for codes in groups)
        places = (src_group, dst_group, _codes(exporter, names), _codes(counted_by, names), _codes(why, reasons))
        sizes = (*[len(self._books.addresses.groups)] * 2, len(names), len(names), len(reasons))
        kinds, kind = np.unique(np.asarray(np.ravel_multi_index(places, sizes)), return_inverse=True)
        base = int(shares.window.min())
        slots = int(shares.window.max()) - base + 1
        rows = grouped((shares.window - base) * len(kinds) + kind[shares.record], slots * len(kinds))
        src, dst, exporters, others, whys = np.unravel_index(kinds[rows.keys % len(kinds)], sizes)
        group_names = pl.Series(list(self._books.addresses.groups))
        return pl.DataFrame(
            {
                WINDOW: (rows.keys // len(kinds) + base) * self._seconds,
                schema.SRC_GROUP: group_names.gather(src),
                schema.DST_GROUP: group_names.gather(dst),
                schema.EXPORTER: names.gather(exporters),
                schema.COUNTED_BY: names.gather(others),
                schema.REASON: reasons.gather(whys),
                schema.COUNTING_BYTES.name: rows.sum(volume),
            }
        )


def _as_state(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows as they are kept; those of before ports were kept have none."""
    if _PORT not in rows.columns:
        rows = rows.with_columns(pl.lit(0, pl.Int64).alias(_PORT))
    return rows.select(list(_STATE))


def _codes(column: pl.Series, names: pl.Series) -> Ints:
    return column.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int64)


def _covered(rows: pl.DataFrame, others: pl.DataFrame, seen: pl.DataFrame, *, any_rank: bool = False) -> pl.DataFrame:
    """Return which rows another exporter saw at both ends: columns ``row`` and ``other``, the exporter's rank.

    Args:
        rows: with their own rank.
        others: conversation and ``other``, ranks of who may have seen them.
        seen: their rows.
        any_rank: whether the other one need not be better.
    """
    pairs = rows.select(_ROW, _CONVERSATION, _RANK, _START, _END).join(others, on=_CONVERSATION)
    pairs = pairs.filter(pl.col("other") != pl.col(_RANK) if any_rank else pl.col("other") < pl.col(_RANK))
    is_sparse = pl.col(_QUALITY) > _GUESSED
    # A cloud tells times of its intervals: those of the two ends are up to a minute apart.
    is_loose = (pl.first(_QUALITY) > _GUESSED) | (pl.first(_QUALITY) == _CLOUD)
    slack = pl.when(is_loose).then(_SPARSE_MS).otherwise(SLACK_MS)
    spans = (
        seen.group_by(
            _CONVERSATION, pl.col(_RANK).alias("other"), pl.when(is_sparse).then(0).otherwise(_ROW).alias("part")
        )
        .agg(
            (pl.min(_START) - slack).alias("since"),
            (pl.max(_END) + slack).alias("until"),
        )
        .sort("since")
        .with_columns(pl.col("until").cum_max().over(_CONVERSATION, "other"))
        .select(_CONVERSATION, "other", "since", "until")
    )
    for moment in (_START, _END):
        pairs = (
            pairs.sort(moment)
            .join_asof(spans, left_on=moment, right_on="since", by=[_CONVERSATION, "other"], check_sortedness=False)
            .filter(pl.col("until") >= pl.col(moment))
            .select(_ROW, _CONVERSATION, _RANK, _START, _END, "other")
        )
    return pairs.select(_ROW, "other")


def _why() -> pl.Expr:
    own, other = pl.col("own"), pl.col(_QUALITY)
    return (
        pl.when(pl.col("other").is_null())
        .then(pl.lit(Because.ITSELF.value))
        .when("is_late")
        .then(pl.lit(Because.EARLIER.value))
        .when((other == _DESCRIBED) & (own != _DESCRIBED))
        .then(pl.lit(Because.DESCRIBED.value))
        .when((other <= _GUESSED) & (own > _GUESSED))
        .then(pl.lit(Because.UNSAMPLED.value))
        .when(other < own)
        .then(pl.lit(Because.FINER.value))
        .otherwise(pl.lit(Because.FIRST.value))
    )


def _numbers(keys: npt.NDArray[np.bytes_], src: Ints, dst: Ints, rest: Ints) -> npt.NDArray[np.uint64]:
    """Return a number for each conversation, the same in every process: 64 bits of its addresses, ports, protocol."""
    halves = np.ascontiguousarray(keys).view("<u8").reshape(-1, 2)
    mixed = rest.astype(np.uint64)
    with np.errstate(over="ignore"):
        for half in (halves[src, 0], halves[src, 1], halves[dst, 0], halves[dst, 1]):
            # The finaliser of splitmix64, so that no bit of an address stays where it was.
            mixed = (mixed ^ half) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
    return np.asarray(mixed)
