"""What left the cluster within the last 30 days, conversation by conversation: what slow verdicts are made of.

Long sums are put together of three kinds of pieces that never overlap, so that no byte counts twice:

- whole hours from the retention `1h`, of hours that ended at least an hour before the newest final window;
- bins of five minutes after them, from `raw`;
- bins of five minutes of the one hour in which a horizon begins, from `1m`.

A rollup holds exactly the sum of the windows below it, so the sums are exact to the byte as far as the retentions
reach. Where `1m` no longer reaches the begin of a horizon, that hour is left out: the horizon is then up to an hour
shorter.
"""

from collections.abc import Iterable

import polars as pl

from analysis.detectors.study import Span
from cluster.model import RESERVED_GROUPS, UNLISTED, Cluster
from ingest.flows.classify import AddressBook
from store import schema
from store.influx import Store
from store.influxql import Condition, all_of, any_of, is_in
from store.points import WINDOW
from store.sums import binned

BIN = 300
HOUR = 3_600
DAY = 86_400
WEEK = 7 * DAY
MONTH = 30 * DAY

CODE = "code"
"""Number of a conversation in `EgressHistory.conversations`."""

PAIR_CODE, CALL_CODE, CALLER_CODE = "pair", "call", "caller"
"""Numbers of what conversations are summed up to: numbers are twenty times as fast to group by as names."""

GROUP_TODAY = "group_today"
"""Group that cluster.yaml gives the destination now: an address that is approved today was not when its bytes were
stored, and is one destination all the same."""

LABELS = (schema.COUNTRY, schema.NETWORK, schema.APPLICATION)
"""What is known of the outside end: a function of its address that changes when files do."""

CONVERSATION = (
    schema.SRC,
    schema.SRC_GROUP,
    schema.DST,
    schema.DST_GROUP,
    schema.PROTO,
    schema.SERVICE,
    schema.INITIATOR,
    *LABELS,
)
"""What tells conversations apart; one goes on under a number of its own where what is known of its address changes."""

BYTES = schema.BYTES.name

PAIR = (schema.SRC, schema.SRC_GROUP, schema.DST, GROUP_TODAY)
"""Source and destination, whatever they talk about."""

CALL = (schema.DST, schema.SRC_GROUP, schema.PROTO, schema.SERVICE)
"""A destination and what a group asks of it, whichever of its nodes does."""

_NUMBERED = {PAIR_CODE: PAIR, CALL_CODE: CALL, CALLER_CODE: (schema.SRC,)}

SUMS: dict[str, pl.DataType] = {CODE: pl.UInt32(), WINDOW: pl.Int64(), BYTES: pl.Int64()}
"""Columns of a frame of sums: conversation, begin of the bin, bytes above 0."""

_MARGIN = HOUR
"""A rolled-up hour is whole an hour after its end: rollups run every minute."""
_STRETCH = DAY
"""Seconds of hours that are read at once."""
_KEPT_HEADS = 64


class EgressHistory:
    """The last 30 days of egress, as they were at one moment after another.

    Args:
        cluster: its retentions and groups.
        store: read from.

    Attributes:
        conversations: CONVERSATION as stored, GROUP_TODAY, CODE, PAIR_CODE, CALL_CODE, CALLER_CODE. A number stays the
            same as long as anything of it is here.
        read_from: from when on whole hours may differ from what they were an hour ago, epoch seconds.
    """

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._store = store
        self._keep_raw = cluster.store.keep_raw
        self._book = AddressBook(cluster)
        self._groups = [*cluster.group_ids(), UNLISTED]
        self._nodes = {node.name: node.group for node in cluster.nodes}
        names = dict.fromkeys((*CONVERSATION, GROUP_TODAY), pl.String)
        self._codes = dict.fromkeys((CODE, *_NUMBERED), 0)
        self.conversations = pl.DataFrame(schema={**names, **dict.fromkeys(self._codes, pl.UInt32)})
        self._hours = pl.DataFrame(schema=SUMS)
        self._hours_from = self._hours_until = 0
        self.read_from = 0
        self._bins = pl.DataFrame(schema=SUMS)
        self._bins_from = self._settled = 0
        self._heads: dict[int, pl.DataFrame] = {}
        self._newest = 0
        self._pass: tuple[Span, int] | None = None
        self._open = pl.DataFrame(schema=SUMS)

    def load(self, span: Span) -> None:
        """Read what a pass needs, as far as it is not here yet; what is final is read once."""
        upto = span.closed // BIN * BIN
        settled = min(span.final, upto) // BIN * BIN
        first_hour = boundary(span.start)
        if self._pass == (span, upto):
            return
        self._newest = span.closed
        self._load_hours(first_hour - MONTH, boundary(span.final), is_live=span.final < span.closed)
        # The hour before is there for bursts that reach over its end.
        needed = first_hour - HOUR
        if not self._bins_from <= needed <= self._settled:
            self._bins, self._bins_from, self._settled = pl.DataFrame(schema=SUMS), needed, needed
        fresh = self._read(self._settled, settled, BIN, self._retention(self._settled))
        self._bins = pl.concat([self._bins.filter(pl.col(WINDOW) >= needed), fresh])
        self._bins_from, self._settled = needed, max(settled, self._settled)
        self._open = self._read(self._settled, upto, BIN, schema.RAW)
        self._pass = (span, upto)
        self._read_ahead(upto)

    def hours(self, start: int, stop: int) -> pl.DataFrame:
        """Return the whole hours of [start, stop), SUMS."""
        return self._hours.filter(pl.col(WINDOW) >= start, pl.col(WINDOW) < stop)

    def bins(self, start: int, stop: int) -> pl.DataFrame:
        """Return the bins of five minutes of [start, stop), SUMS: near the pass only."""
        within = pl.col(WINDOW) >= start, pl.col(WINDOW) < stop
        return pl.concat([self._bins.filter(*within), self._open.filter(*within)])

    def head(self, start: int) -> pl.DataFrame:
        """Return the bins from a moment to the end of its hour, SUMS; none where it is a whole hour."""
        hour = start // HOUR * HOUR
        if hour == start:
            return pl.DataFrame(schema=SUMS)
        return self._head_hour(hour).filter(pl.col(WINDOW) >= start)

    def minutes(self, start: int, stop: int, pairs: Iterable[tuple[str, str]]) -> pl.DataFrame:
        """Return the minutes of the conversations of some pairs of source and destination, SUMS."""
        named = (all_of(is_in(schema.SRC, [src]), is_in(schema.DST, [dst])) for src, dst in sorted(set(pairs)))
        return self._read(start, stop, 60, self._retention(start), any_of(*named))

    def labels(self, code: str, until: int, at: int) -> pl.DataFrame:
        """Return what was last known of the outside end of pairs or calls: their number, LABELS.

        What is empty says nothing: a bridge that lacks its files for a while makes no address another one.

        Args:
            code: column of the numbers.
            until: where whole hours end and bins begin, epoch seconds.
            at: what came later does not count.
        """
        known = self.conversations.select(code, *LABELS).unique()
        has_several = pl.len().over(code) > 1
        # Nearly all have always had the same: only what changed is looked for in the bytes.
        changed = known.filter(has_several).select(code).unique()
        if changed.is_empty():
            return known
        sums = pl.concat([self.head(at - MONTH), self.hours(next_hour(at - MONTH), until), self.bins(until, at)])
        newest = (
            sums.join(self.conversations.join(changed, on=code, how="semi"), on=CODE)
            .sort(WINDOW, *LABELS)
            .group_by(code, maintain_order=True)
            .agg(pl.col(label).filter(pl.col(label) != "").last().fill_null("") for label in LABELS)
        )
        return pl.concat([known.filter(~has_several), newest])

    # -- reading -----------------------------------------------------------------------------------

    def _head_hour(self, hour: int) -> pl.DataFrame:
        if hour not in self._heads:
            while len(self._heads) >= _KEPT_HEADS:
                del self._heads[next(iter(self._heads))]
            self._heads[hour] = self._read(hour, hour + HOUR, BIN, self._retention(hour))
        return self._heads[hour]

    def _read_ahead(self, moment: int) -> None:
        """Read one of the hours in which horizons will begin after the next full hour, so that it does not wait."""
        coming = next_hour(moment)
        missing = [hour for span in (DAY, WEEK, MONTH) if (hour := coming - span) not in self._heads]
        if missing:
            self._head_hour(missing[0])

    def _load_hours(self, start: int, stop: int, *, is_live: bool) -> None:
        """Bring the whole hours to [start, stop).

        Live, what an outage held back was not there when its hours became final: with each new hour those of a day
        before are read again, with the first one of a day those of a week.
        """
        start -= HOUR
        if not self._hours_from <= start <= self._hours_until:
            self._hours, self._hours_until = pl.DataFrame(schema=SUMS), start
        known = self._hours_until
        if is_live and stop > known:
            again = WEEK if stop // DAY > known // DAY else DAY
            known = max(min(known, stop - again), start)
        fresh = [
            self._read(begin, min(begin + _STRETCH, stop), HOUR, schema.HOUR) for begin in range(known, stop, _STRETCH)
        ]
        self._hours = pl.concat([self._hours.filter(pl.col(WINDOW) >= start, pl.col(WINDOW) < known), *fresh])
        self._hours_from, self._hours_until = start, max(stop, self._hours_until)
        if fresh:
            self.read_from = known
            self._forget()

    def _forget(self) -> None:
        """Forget conversations of which nothing is left."""
        used = pl.concat([self._hours.get_column(CODE), self._bins.get_column(CODE)]).unique()
        if 2 * len(used) < self.conversations.height:
            self._heads.clear()
            self.conversations = self.conversations.filter(pl.col(CODE).is_in(used.implode()))

    def _retention(self, start: int) -> str:
        """Return the finest retention that surely still has a moment; the raw one is slow to sum up."""
        young = self._newest - start <= min(DAY, self._keep_raw // 2)
        return schema.RAW if young else schema.MINUTE

    def _read(self, start: int, stop: int, seconds: int, retention: str, *where: Condition) -> pl.DataFrame:
        found = binned(
            self._store, schema.EGRESS, retention, (schema.BYTES,), CONVERSATION,
            start=start, stop=stop, seconds=seconds, where=where,
        )  # fmt: skip
        return self._coded(self._with_sources_today(found.filter(pl.col(BYTES) > 0)))

    def _with_sources_today(self, found: pl.DataFrame) -> pl.DataFrame:
        """Give sources of groups that cluster.yaml no longer has the group that they are in now: one was renamed."""
        is_gone = ~pl.col(schema.SRC_GROUP).is_in(self._groups)
        sources = found.filter(is_gone).get_column(schema.SRC).unique()
        if sources.is_empty():
            return found
        by_address = dict(zip(sources, self._group_of(sources), strict=True))
        owners = {src: group for src, group in by_address.items() if group not in RESERVED_GROUPS} | self._nodes
        today = pl.col(schema.SRC).replace_strict(owners, default=None, return_dtype=pl.String)
        group = pl.when(is_gone).then(pl.coalesce(today, schema.SRC_GROUP)).otherwise(schema.SRC_GROUP)
        return found.with_columns(group.alias(schema.SRC_GROUP))

    def _coded(self, found: pl.DataFrame) -> pl.DataFrame:
        """Give each conversation its number."""
        fresh = found.select(CONVERSATION).unique().join(self.conversations, on=CONVERSATION, how="anti")
        if fresh.height:
            # In their own order, so that nothing depends on that of the answer.
            numbered = self._with_groups(fresh.sort(CONVERSATION))
            for code, names in {CODE: CONVERSATION, **_NUMBERED}.items():
                numbered = self._numbered(numbered, code, names)
            self.conversations = pl.concat([self.conversations, numbered.select(self.conversations.columns)])
        return found.join(self.conversations.select(*CONVERSATION, CODE), on=CONVERSATION).select(*SUMS)

    def _numbered(self, fresh: pl.DataFrame, code: str, names: tuple[str, ...]) -> pl.DataFrame:
        """Give conversations the number that their names have, or the next ones."""
        known = self.conversations.select(*names, code).unique(maintain_order=True)
        unknown = (
            fresh.select(names).unique(maintain_order=True).join(known, on=names, how="anti", maintain_order="left")
        )
        first = self._codes[code]
        self._codes[code] = first + unknown.height
        added = unknown.with_columns(pl.Series(code, range(first, first + unknown.height), pl.UInt32))
        return fresh.join(pl.concat([known, added]), on=names, how="left", maintain_order="left")

    def _with_groups(self, conversations: pl.DataFrame) -> pl.DataFrame:
        # `other` is no address.
        today = pl.coalesce(self._group_of(conversations.get_column(schema.DST)), schema.DST_GROUP)
        return conversations.with_columns(today.alias(GROUP_TODAY))

    def _group_of(self, addresses: pl.Series) -> pl.Series:
        """Return the group that cluster.yaml gives each address; null for what is none."""
        (numbers,) = self._book.number(addresses)
        return pl.Series(self._book.groups).gather(pl.Series(self._book.group_codes)).gather(numbers)


def boundary(moment: int) -> int:
    """Return up to where a sum that ends at a moment is made of whole hours: at least an hour before it.

    The same for all moments after a full hour up to and with the next, so that what whole hours add is the same, too.
    """
    return (moment - 1 - _MARGIN) // HOUR * HOUR


def next_hour(moment: int) -> int:
    """Return the first whole hour at or after a moment."""
    return -(-moment // HOUR) * HOUR
