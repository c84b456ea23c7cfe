"""New networks: to which autonomous system a group of the cluster sends for the first time.

A group knows a network once it sent more than a floor there within some minutes; while the analysis learns, once
it sent anything. What is below the floor makes nothing known: whoever knocks first and takes much later is reported all
the same. A network that becomes known after the learning period is new: for its first minutes every base window becomes
a row with all that the group sent there, the first row with what led to it, so that the sum over the rows is what went
to the new network so far. The rows name one conversation, the largest until the floor was crossed, by what was stored
when it was first told: late bytes would make another alert of it.

Networks are told apart by their number: a file that spells an organisation otherwise makes no network new. What has no
number goes by its name.

Everything here is a function of the egress rows and of what was known before them: a live analysis and a later one over
the same range agree.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from cluster.model import EXTERNAL, Cluster, Group, Role
from store import schema
from store.points import WINDOW, columns

FIRST_SEEN = schema.CONTACT_FIRST.name
NEW = schema.CONTACT_NEW.name
BYTES, DURATION = schema.BYTES.name, schema.DURATION.name

SENT = columns(schema.SRC_GROUP, schema.NETWORK, schema.BYTES)
"""What a group sent to a network in a base window, bytes above 0; the network by its number."""

TALKS = columns(
    schema.SRC, schema.SRC_GROUP, schema.DST, schema.PROTO, schema.SERVICE, schema.COUNTRY, schema.NETWORK,
    schema.APPLICATION, schema.FEED, schema.BYTES, schema.DURATION,
)  # fmt: skip
"""The same conversation by conversation, the network as it is labelled; labels empty where unknown."""

KNOWN: dict[str, pl.DataType] = {
    schema.SRC_GROUP: pl.String(),
    schema.NETWORK: pl.String(),
    FIRST_SEEN: pl.Int64(),
    NEW: pl.Int64(),
}
"""What is remembered: one row a group and network, since when it is known, and whether it was new then."""

PAIR = (schema.SRC_GROUP, schema.NETWORK)
_NUMBER, _ROW = "number", "row"
_GROUPED = [schema.SRC_GROUP, _NUMBER]
_TALK = [name for name in TALKS if name not in (WINDOW, schema.SRC_GROUP, BYTES, DURATION)]
NAMES: dict[str, pl.DataType] = dict.fromkeys([*_GROUPED, *_TALK], pl.String())
"""Which conversation rows name: one a group and network."""


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The numbers of a new network.

    Attributes:
        volume: bytes that a group may send to a network before it counts as one that it sends to.
        window: seconds within which they are sent, a multiple of the base window.
        episode: seconds for which a new network gets rows.
    """

    volume: int
    window: int
    episode: int = 900


def sources(cluster: Cluster) -> tuple[Group, ...]:
    """Return the groups that are judged: all inside but drills', people's machines (role custom) only if sensitive."""
    inside = (group for group in cluster.inside_groups() if group.role is not Role.DRILL)
    return tuple(group for group in inside if group.role is not Role.CUSTOM or group.sensitive)


def number_of(label: pl.Expr) -> pl.Expr:
    """Return what tells networks apart: AS64500 of ``AS64500 ExampleHost``, else all of the label."""
    return pl.coalesce(label.str.extract(r"^(AS\d+)(?: |$)"), label)


def find(
    sent: pl.DataFrame,
    known: pl.DataFrame,
    *,
    start: int,
    learning_end: int,
    policy: NetworkPolicy,
    pair: Sequence[str] = PAIR,
) -> pl.DataFrame:
    """Return the networks that become known at or after `start`, KNOWN.

    Args:
        sent: SENT of [start - policy.window, end of the range).
        known: KNOWN before `start`.
        start: epoch seconds, a multiple of the base window.
        learning_end: networks that become known before it are not new.
        policy: see there.
        pair: what becomes known, where it is no network of a group: its columns stand in place of theirs.
    """
    unknown = sent.join(known, on=pair, how="anti").sort(*pair, WINDOW)
    sums = unknown.rolling(WINDOW, period=f"{policy.window}i", group_by=pair).agg(pl.col(BYTES).sum())
    is_much = (pl.col(WINDOW) < learning_end) | (pl.col(BYTES) > policy.volume)
    return (
        sums.filter(pl.col(WINDOW) >= start, is_much)
        .group_by(pair)
        .agg(pl.col(WINDOW).min().alias(FIRST_SEEN))
        .with_columns((pl.col(FIRST_SEEN) >= learning_end).cast(pl.Int64).alias(NEW))
        .select(*pair, FIRST_SEEN, NEW)
        .sort(FIRST_SEEN, *pair)
    )


def young(known: Iterable[pl.DataFrame], start: int, policy: NetworkPolicy) -> pl.DataFrame:
    """Return the networks (KNOWN) that get rows in windows from `start` on."""
    return pl.concat(known).filter(pl.col(NEW) == 1, pl.col(FIRST_SEEN) > start - policy.episode)


def rows(
    talks: pl.DataFrame, networks: pl.DataFrame, *, start: int, policy: NetworkPolicy, told: pl.DataFrame
) -> pl.DataFrame:
    """Return the rows of young networks from `start` on.

    Args:
        talks: TALKS with these networks, from policy.window before the first of them became known.
        networks: as `young` gives them.
        start: epoch seconds.
        policy: see there.
        told: NAMES under which some of them were told before.

    Returns:
        A frame for ``encode(schema.NEW_NETWORK, ...)``.
    """
    began = pl.col(FIRST_SEEN)
    of_networks = (
        talks.with_columns(number_of(pl.col(schema.NETWORK)).alias(_NUMBER))
        .join(networks.select(schema.SRC_GROUP, pl.col(schema.NETWORK).alias(_NUMBER), FIRST_SEEN), on=_GROUPED)
        .filter(pl.col(WINDOW) > began - policy.window, pl.col(WINDOW) < began + policy.episode)
        # What led to it stands in the first row.
        .with_columns(pl.max_horizontal(WINDOW, FIRST_SEEN).alias(_ROW))
    )
    # Parts run at the same time: the longest counts. In order, so that sums of seconds are the same to the last bit.
    in_windows = (
        of_networks.sort(WINDOW)
        .group_by(*_GROUPED, FIRST_SEEN, _ROW, WINDOW, maintain_order=True)
        .agg(pl.col(BYTES).sum(), pl.col(DURATION).max())
    )
    sums = in_windows.group_by(*_GROUPED, FIRST_SEEN, _ROW, maintain_order=True).agg(
        pl.col(BYTES).sum(), pl.col(DURATION).sum()
    )
    for name, met in ((schema.EVENT_SOURCES.name, schema.SRC), (schema.EVENT_DESTINATIONS.name, schema.DST)):
        sums = sums.join(_met(of_networks, met, name), on=[*_GROUPED, _ROW], how="left")
    counts = [schema.EVENT_SOURCES.name, schema.EVENT_DESTINATIONS.name]
    return (
        sums.sort(*_GROUPED, _ROW)
        .with_columns(pl.col(counts).fill_null(0).cum_sum().over(_GROUPED), pl.col(FIRST_SEEN).cast(pl.Float64))
        .join(kept(_largest(of_networks), told, _GROUPED), on=_GROUPED)
        .filter(pl.col(_ROW) >= start)
        .with_columns(pl.lit(EXTERNAL).alias(schema.DST_GROUP))
        .select(
            pl.col(_ROW).alias(WINDOW),
            *schema.NEW_NETWORK.tags,
            *(field.name for field in schema.NEW_NETWORK.fields),
        )
        .sort(WINDOW, *schema.NEW_NETWORK.tags)
    )


def _largest(talks: pl.DataFrame) -> pl.DataFrame:
    """Return the largest conversation with each network until the floor was crossed."""
    return (
        talks.filter(pl.col(WINDOW) <= pl.col(FIRST_SEEN))
        .group_by(*_GROUPED, *_TALK)
        .agg(pl.col(BYTES).sum())
        .sort(BYTES, *_TALK, descending=[True, *([False] * len(_TALK))])
        .group_by(_GROUPED, maintain_order=True)
        .agg(pl.col(_TALK).first())
    )


def kept(largest: pl.DataFrame, told: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return the names of conversations (`largest`), but those under which something was told before where it was."""
    before = told.join(largest, on=keys, how="semi").select(largest.columns)
    return pl.concat([before, largest.join(told, on=keys, how="anti")])


def names_of(found: pl.DataFrame, told: pl.DataFrame, networks: pl.DataFrame) -> pl.DataFrame:
    """Return NAMES of young networks: those of their rows, else those under which they were told before."""
    number = number_of(pl.col(schema.NETWORK)).alias(_NUMBER)
    fresh = found.with_columns(number).select(*NAMES).unique(_GROUPED)
    return remembered(fresh, told, networks.select(schema.SRC_GROUP, number), _GROUPED)


def remembered(fresh: pl.DataFrame, told: pl.DataFrame, young: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return the names of what is young: those of its newest rows, else those that it had before."""
    return pl.concat([fresh, told.join(fresh, on=keys, how="anti")]).join(young, on=keys, how="semi")


def _met(talks: pl.DataFrame, tag: str, name: str) -> pl.DataFrame:
    """Return how many values of a tag each row is the first to have."""
    first = talks.group_by(*_GROUPED, tag).agg(pl.col(_ROW).min())
    return first.group_by(*_GROUPED, _ROW).agg(pl.len().cast(pl.Int64).alias(name))
