"""First contacts: which source talks to which outside destination for the first time ever.

A contact is a (source, destination) pair that the source opened. The first window in which it is seen is remembered
for ever; for the first five minutes every window of the pair becomes a row with that window's bytes, so that the
sum over the rows is what went to the new destination so far. Rows of a pair first seen after the learning period
carry ``new = 1``.

A scan is one event: beyond a few new destinations of one source within ten minutes, the smallest get no rows of
their own, but share one with the destination `other`. `other` of the bridge itself (more destinations in a window
than it names) is a destination like any: new once for each source.

Everything here is a function of the egress rows and of what was known before them: a live analysis and a later one
over the same range agree.
"""

from collections import deque
from dataclasses import dataclass

import polars as pl

from cluster import schema
from ingest.points import WINDOW

PAIR = (schema.SRC, schema.DST)
"""What identifies a contact."""

FIRST_SEEN = schema.CONTACT_FIRST.name
NEW = schema.CONTACT_NEW.name
DIGEST = "digest"
ACKED_AT = "acked_at"
FORGOTTEN_AT = "forgotten_at"

EGRESS_COLUMNS: dict[str, pl.DataType] = {
    WINDOW: pl.Int64(),
    schema.SRC: pl.String(),
    schema.SRC_GROUP: pl.String(),
    schema.DST: pl.String(),
    schema.DST_GROUP: pl.String(),
    schema.PROTO: pl.String(),
    schema.SERVICE: pl.String(),
    schema.BYTES.name: pl.Int64(),
    schema.DURATION.name: pl.Float64(),
}
"""Conversations that the source opened: a row a window and conversation, bytes above 0."""

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
"""What is remembered: one row a pair."""

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
        learning: seconds of history without which nothing is called new.
    """

    episode: int = 300
    storm_limit: int = 20
    storm_seconds: int = 600
    learning: int = 86_400


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


def _digest(fresh: pl.DataFrame, recent: pl.DataFrame, policy: ContactPolicy) -> pl.Series:
    """Return for each pair, sorted by source, time and size, whether it goes into its source's digest."""
    named: dict[str, deque[int]] = {}
    with_rows = recent.filter(pl.col(DIGEST) == 0).select(schema.SRC, FIRST_SEEN).sort(FIRST_SEEN)
    for src, seen in with_rows.iter_rows():
        named.setdefault(src, deque(maxlen=policy.storm_limit)).append(seen)
    flags = []
    for src, seen in fresh.select(schema.SRC, FIRST_SEEN).iter_rows():
        times = named.setdefault(src, deque(maxlen=policy.storm_limit))
        is_storm = len(times) == policy.storm_limit and seen - times[0] < policy.storm_seconds
        flags.append(int(is_storm))
        if not is_storm:
            times.append(seen)
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
    return (
        egress.filter(pl.col(WINDOW) >= start)
        .join(young.select(*_PAIR, FIRST_SEEN, NEW, DIGEST), on=_PAIR, how="inner")
        .filter((age >= 0) & (age < policy.episode))
        .join(decisions.select(*_PAIR, ACKED_AT), on=_PAIR, how="left")
        .with_columns(
            pl.when(pl.col(DIGEST) == 1).then(pl.lit(schema.OTHER)).otherwise(schema.DST).alias(schema.DST),
            pl.when(is_acked).then(0).otherwise(NEW).alias(NEW),
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


def retracted(before: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """Return rows that take back those points of `before` that `now` no longer has: nothing sent, nothing new.

    While its first window is still filling, a pair may lose its own row to the digest.
    """
    keys = [WINDOW, *schema.CONTACT.tags]
    gone = before.join(now.select(keys), on=keys, how="anti")
    return gone.with_columns(
        pl.lit(0, pl.Int64).alias(schema.BYTES.name),
        pl.lit(0.0).alias(schema.DURATION.name),
        pl.lit(0, pl.Int64).alias(NEW),
    )
