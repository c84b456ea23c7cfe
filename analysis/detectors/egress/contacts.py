"""First contacts: which source talks to which outside destination for the first time ever.

A contact is a (source, destination) pair that the source opened. The first window in which it is seen is remembered
until the pair was not seen for as long as the longest retention is: then the store tells nothing of it either. For the
first five minutes every window of the pair becomes a row with that window's bytes, so that the
sum over the rows is what went to the new destination so far. Rows of a pair first seen after the learning period
carry ``new = 1``.

A scan is one event. Where a source calls more new destinations within ten minutes than get rows of their own, all of
that window share one row with the destination and the service `other`, but those to which more went than a probe: they
keep their names, the largest first. A pair that is called by many services, as in a scan of ports, has one row with the
service `other`. `other` of the bridge itself (more destinations in a window than it names) is a destination like any:
new once for each source.

Everything here is a function of the egress rows and of what was known before them: a live analysis and a later one
over the same range agree.
"""

from collections import deque
from dataclasses import dataclass

import polars as pl

from store import schema
from store.points import WINDOW, columns

PAIR = (schema.SRC, schema.DST)
"""What identifies a contact."""

FIRST_SEEN = schema.CONTACT_FIRST.name
NEW = schema.CONTACT_NEW.name
DIGEST = "digest"
ACKED_AT = "acked_at"
FORGOTTEN_AT = "forgotten_at"

EGRESS_COLUMNS = columns(*schema.CONVERSATION, *schema.LABELS, schema.BYTES, schema.DURATION)
"""Conversations that the source opened: a row a window and conversation, bytes above 0; labels empty where unknown."""

CONTACT_COLUMNS: dict[str, pl.DataType] = {
    schema.SRC: pl.String(),
    schema.DST: pl.String(),
    schema.SRC_GROUP: pl.String(),
    schema.DST_GROUP: pl.String(),
    schema.PROTO: pl.String(),  # of the largest conversation in the first window; empty where it was learnt
    schema.SERVICE: pl.String(),
    FIRST_SEEN: pl.Int64(),
    NEW: pl.Int64(),
    DIGEST: pl.Int64(),  # 1: shares a row of destination `other` with the rest of a storm
}
"""What is found: one row a pair."""

LAST_SEEN = "last_seen"
KNOWN_COLUMNS: dict[str, pl.DataType] = {**CONTACT_COLUMNS, LAST_SEEN: pl.Int64()}
"""What is remembered. The newest window of a pair is noted once a day; 0: not yet."""

DECISION_COLUMNS: dict[str, pl.DataType] = {
    schema.SRC: pl.String(),
    schema.DST: pl.String(),
    ACKED_AT: pl.Int64(),  # from here on not new any more; null: nobody acknowledged it
    FORGOTTEN_AT: pl.Int64(),  # from here on never seen before; null: never forgotten
}
"""What people decided, one row a pair."""

_PAIR = list(PAIR)


@dataclass(frozen=True, slots=True)
class ContactPolicy:
    """The numbers of a first contact.

    Attributes:
        episode: seconds for which a contact gets rows.
        storm_limit: new destinations of one source that get rows of their own within `storm_seconds`.
        probe_bytes: a contact of a storm keeps its name if its first window holds more than this.
        services: kinds of traffic of a pair in a window that get rows of their own.
    """

    episode: int = 300
    storm_limit: int = 5
    storm_seconds: int = 600
    probe_bytes: int = 100_000
    services: int = 3


@dataclass(frozen=True, slots=True)
class Found:
    """What a range held.

    Attributes:
        contacts: pairs first seen in it, CONTACT_COLUMNS.
        points: frame for ``encode(schema.CONTACT, ...)``.
    """

    contacts: pl.DataFrame
    points: pl.DataFrame


def find(
    egress: pl.DataFrame,
    known: pl.DataFrame,
    decisions: pl.DataFrame,
    *,
    start: int,
    learning_end: int,
    window: int,
    policy: ContactPolicy,
) -> Found:
    """Return the contacts that begin at or after `start`, and the rows of all young contacts from then on.

    Args:
        egress: EGRESS_COLUMNS of [start - policy.episode, end of the range).
        known: CONTACT_COLUMNS of every pair first seen before `start`.
        decisions: DECISION_COLUMNS.
        start: epoch seconds, a multiple of `window`.
        learning_end: pairs first seen before it are not new.
        window: seconds.
        policy: see there.
    """
    forgotten = decisions.select(*_PAIR, FORGOTTEN_AT)
    known = (
        known.join(forgotten, on=_PAIR, how="left")
        .filter(pl.col(FORGOTTEN_AT).is_null() | (pl.col(FIRST_SEEN) >= pl.col(FORGOTTEN_AT)))
        .select(*CONTACT_COLUMNS)
    )
    unknown = (
        egress.filter(pl.col(WINDOW) >= start)
        .join(known.select(_PAIR), on=_PAIR, how="anti")
        .join(forgotten, on=_PAIR, how="left")
        # What was under way when a pair was forgotten does not make it new.
        .filter(pl.col(FORGOTTEN_AT).is_null() | (pl.col(WINDOW) >= pl.col(FORGOTTEN_AT)))
    )
    first = unknown.filter(pl.col(WINDOW) == pl.col(WINDOW).min().over(_PAIR))
    conversations = [schema.SRC_GROUP, schema.DST_GROUP, schema.PROTO, schema.SERVICE]
    fresh = (
        first.sort(schema.BYTES.name, *conversations, descending=[True, False, False, False, False])
        .group_by(_PAIR, maintain_order=True)
        .agg(
            pl.col(conversations).first(),
            pl.col(WINDOW).first().alias(FIRST_SEEN),
            pl.col(schema.BYTES.name).sum(),
        )
        .with_columns((pl.col(FIRST_SEEN) >= learning_end).cast(pl.Int64).alias(NEW))
        .sort(schema.SRC, FIRST_SEEN, schema.BYTES.name, schema.DST, descending=[False, False, True, False])
    )
    recent = known.filter(pl.col(FIRST_SEEN) > start - policy.storm_seconds)
    contacts = fresh.with_columns(_digest(fresh, recent, policy)).select(*CONTACT_COLUMNS)
    young = pl.concat([known.filter(pl.col(FIRST_SEEN) > start - policy.episode), contacts])
    return Found(
        contacts.sort(FIRST_SEEN, *_PAIR), _points(egress, young, decisions, start=start, window=window, policy=policy)
    )


class _Met:
    """New destinations of one source within `storm_seconds`, in the order of time."""

    def __init__(self) -> None:
        self._contacts: deque[tuple[int, bool]] = deque()
        self._newest, self._in_newest = 0, 0
        self.names = 0

    def add(self, seen: int, *, named: bool) -> None:
        self._contacts.append((seen, named))
        self.names += named
        self._in_newest = self._in_newest + 1 if seen == self._newest else 1
        self._newest = seen

    def before(self, seen: int, seconds: int) -> int:
        """Return how many there were in the windows before one, within so many seconds; forget the others."""
        while self._contacts and seen - self._contacts[0][0] >= seconds:
            self.names -= self._contacts.popleft()[1]
        return len(self._contacts) - (self._in_newest if self._newest == seen else 0)


def _digest(fresh: pl.DataFrame, recent: pl.DataFrame, policy: ContactPolicy) -> pl.Series:
    """Return for each pair, sorted by source, time and size, whether it goes into its source's digest."""
    met: dict[str, _Met] = {}
    for src, seen, digest in recent.select(schema.SRC, FIRST_SEEN, DIGEST).sort(FIRST_SEEN).iter_rows():
        met.setdefault(src, _Met()).add(seen, named=not digest)
    crowds = fresh.select(pl.len().over(schema.SRC, FIRST_SEEN)).to_series()
    flags = []
    rows = fresh.select(schema.SRC, FIRST_SEEN, schema.BYTES.name).iter_rows()
    for (src, seen, volume), crowd in zip(rows, crowds, strict=True):
        of_source = met.setdefault(src, _Met())
        is_storm = of_source.before(seen, policy.storm_seconds) + crowd > policy.storm_limit
        has_name = not is_storm or (volume > policy.probe_bytes and of_source.names < policy.storm_limit)
        flags.append(int(not has_name))
        of_source.add(seen, named=has_name)
    return pl.Series(DIGEST, flags, pl.Int64)


def _points(
    egress: pl.DataFrame,
    young: pl.DataFrame,
    decisions: pl.DataFrame,
    *,
    start: int,
    window: int,
    policy: ContactPolicy,
) -> pl.DataFrame:
    age = pl.col(WINDOW) - pl.col(FIRST_SEEN)
    is_acked = (pl.col(WINDOW) + window > pl.col(ACKED_AT)).fill_null(False)
    keys = [WINDOW, *schema.CONTACT.tags]
    rows = (
        egress.filter(pl.col(WINDOW) >= start)
        .join(young.select(*_PAIR, FIRST_SEEN, NEW, DIGEST), on=_PAIR, how="inner")
        .filter((age >= 0) & (age < policy.episode))
        .join(decisions.select(*_PAIR, ACKED_AT), on=_PAIR, how="left")
        .with_columns(
            *(
                pl.when(pl.col(DIGEST) == 1).then(pl.lit(schema.OTHER)).otherwise(tag).alias(tag)
                for tag in (schema.DST, *schema.LABELS)
            ),
            pl.when(is_acked).then(0).otherwise(NEW).alias(NEW),
        )
    )
    kinds = pl.struct(schema.PROTO, schema.SERVICE).n_unique().over(WINDOW, *_PAIR)
    has_no_service = (pl.col(DIGEST) == 1) | (kinds > policy.services)
    return (
        rows.with_columns(
            pl.when(has_no_service).then(pl.lit(schema.OTHER)).otherwise(schema.SERVICE).alias(schema.SERVICE)
        )
        .group_by(keys)
        .agg(
            pl.col(schema.BYTES.name).sum(),
            # The parts of a digest run at the same time: the longest counts.
            pl.col(schema.DURATION.name).max(),
            pl.col(NEW).max(),
            pl.col(FIRST_SEEN).min(),
        )
        .sort(keys)
    )
