"""Who asked inference, and who was not on the list: conversations with their users, judged by `inference.access`.

Everything here is a function of the windows that the store holds and of who had which address: a live analysis and a
later one over the same range agree as far as the sign-ins were there when the live one looked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from cluster.calendar import off_window_mask
from cluster.model import RESERVED_GROUPS, AccessEntry, Cluster, Role
from store import schema
from store.packed import UNNAMED, packed
from store.points import WINDOW
from store.schema import AccessBreach

Mask = npt.NDArray[np.bool_]

EVERY = 300
"""Seconds between two rows of ACCESS."""
_MOST_UNNAMED = 20
"""Of clients without a name, asking one group within EVERY seconds, so many may be told apart in a verdict."""

_BYTES, _FLOWS, _DURATION = schema.BYTES.name, schema.FLOWS.name, schema.DURATION.name


class Knows(Protocol):
    """Looks up users of addresses."""

    def user_at(self, addresses: Sequence[str], moments: npt.ArrayLike) -> npt.NDArray[np.object_]:
        """Return who had each address at its moment; empty if unknown."""


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Who may ask inference.

    Attributes:
        entries: `inference.access`, its users as sign-ins name them; none: everybody.
        denied: pairs of client and inference group that may not talk at all: others report them.
    """

    entries: tuple[AccessEntry, ...]
    denied: frozenset[tuple[str, str]]


def policy_of(cluster: Cluster, entries: tuple[AccessEntry, ...]) -> AccessPolicy:
    """Return the policy of a cluster whose entries name users as sign-ins do."""
    inference = [group.id for group in cluster.groups_with(Role.INFERENCE)]
    sources = [*(group.id for group in cluster.groups), *RESERVED_GROUPS]
    pairs = {(src, dst) for src in sources for dst in inference if not cluster.may_ask_inference(src, dst)}
    return AccessPolicy(entries, frozenset(pairs))


def with_users(asked: pl.DataFrame, knows: Knows, addresses: dict[str, tuple[str, ...]], window: int) -> pl.DataFrame:
    """Return conversations with USER: who had the source's address at the end of the window, or at its begin.

    Args:
        asked: WINDOW, SRC and whatever else.
        knows: tells users.
        addresses: of the nodes, by name; other sources are addresses.
        window: seconds.
    """
    sources = asked.get_column(schema.SRC).to_list()
    starts = asked.get_column(WINDOW).to_numpy()
    users = np.full(len(sources), "", np.object_)
    most = max((len(addresses.get(source, (source,))) for source in set(sources)), default=0)
    for place in range(most):
        there = [(addresses.get(source, (source,)) + ("",) * most)[place] for source in sources]
        # A sign-in comes before what the user does: of a window in which the user changes, the later one has it.
        for moments in (starts + window - 1, starts):
            users = np.where(users == "", knows.user_at(there, moments), users)
    named = pl.Series(schema.USER, users.tolist(), pl.String)
    return asked.with_columns(named.replace({"": schema.UNKNOWN_USER}))


def accesses(asked: pl.DataFrame, start: int, stop: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of ACCESS and those of ACCESS_UNNAMED with start <= WINDOW <= stop.

    Args:
        asked: conversations with UNNAMED and USER, from `start` - EVERY on.
        start: epoch seconds.
        stop: epoch seconds; what ended by then is whole.
    """
    tags = list(schema.ACCESS.tags)
    rows = asked.with_columns((pl.col(WINDOW) // EVERY + 1) * EVERY).filter(pl.col(WINDOW).is_between(start, stop))

    def summed(of: pl.DataFrame) -> pl.DataFrame:
        return of.group_by(WINDOW, *tags).agg(pl.sum(_BYTES, _FLOWS)).sort(WINDOW, *tags)

    unnamed = summed(rows.filter(UNNAMED))
    packs = packed(unnamed, unnamed.select(WINDOW, schema.DST_GROUP))
    return summed(_nameless(rows, pl.col(UNNAMED), schema.COUNTRY)), packs.filter(pl.col(schema.PACKED.name) != "")


def bounded(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows in which few clients are told apart that have no name: the first of each five minutes.

    Those whom the bridge named are few already; a flood of forged ones must not make a series each here. All of them
    are in ACCESS_UNNAMED.

    Args:
        rows: WINDOW, SRC, DST_GROUP, UNNAMED, bytes and others, whole five minutes of them.
    """
    who = ["bin", schema.DST_GROUP, schema.SRC]
    rows = rows.with_columns((pl.col(WINDOW) // EVERY).alias("bin"))
    first = pl.col(WINDOW) == pl.min(WINDOW)
    clients = (
        rows.filter(UNNAMED)
        .group_by(who)
        .agg(pl.min(WINDOW), pl.col(_BYTES).filter(first).sum())
        .with_columns(pl.struct(WINDOW, -pl.col(_BYTES), schema.SRC).rank("ordinal").over(who[:2]).alias("place"))
    )
    placed = rows.join(clients.select(*who, "place"), on=who, how="left", maintain_order="left")
    return _nameless(placed, pl.col(UNNAMED) & (pl.col("place") > _MOST_UNNAMED)).drop("bin", "place")


def _nameless(rows: pl.DataFrame, condition: pl.Expr, *more: str) -> pl.DataFrame:
    """Return rows that do not tell who it is where the condition holds."""
    said = dict.fromkeys((schema.SRC, schema.NETWORK, *more), schema.OTHER) | {schema.USER: schema.UNKNOWN_USER}
    return rows.with_columns(
        pl.when(condition).then(pl.lit(text)).otherwise(pl.col(tag)).alias(tag) for tag, text in said.items()
    )


def breaches(asked: pl.DataFrame, policy: AccessPolicy, cluster: Cluster, start: int) -> pl.DataFrame:
    """Return the rows of ACCESS_BREACH from `start` on.

    Args:
        asked: conversations with inference groups, UNNAMED and USER, from a multiple of EVERY at or before `start` on.
        policy: who may.
        cluster: its calendar, and the length of a window.
        start: epoch seconds.
    """
    tags = list(schema.ACCESS_BREACH.tags)
    pairs = pl.DataFrame(
        sorted(policy.denied), schema={schema.SRC_GROUP: pl.String, schema.DST_GROUP: pl.String}, orient="row"
    )
    judged = asked.filter(pl.col(schema.SRC_GROUP) != pl.col(schema.DST_GROUP)).join(
        pairs, on=[schema.SRC_GROUP, schema.DST_GROUP], how="anti"
    )
    kinds = pl.Series(schema.KIND, _kinds(judged, policy.entries, cluster).tolist(), pl.String)
    return (
        bounded(judged.with_columns(kinds).filter(pl.col(schema.KIND) != ""))
        .filter(pl.col(WINDOW) >= start)
        .group_by(WINDOW, *tags)
        .agg(pl.sum(_BYTES, _FLOWS), pl.max(_DURATION).clip(0.0, float(cluster.bridge.window)))
        .sort(WINDOW, *tags)
    )


def _kinds(asked: pl.DataFrame, entries: Sequence[AccessEntry], cluster: Cluster) -> npt.NDArray[np.object_]:
    """Return by what each conversation is not on the list; empty where it is on it."""
    # Of the rest beyond the clients that a window names, nobody knows user or country.
    is_rest = asked.get_column(schema.SRC).eq(schema.OTHER).to_numpy()
    windows = asked.get_column(WINDOW).to_numpy()
    off_hours = asked.get_column(schema.OFF_WINDOW).eq(schema.YES).to_numpy()

    def named(tag: str, values: Sequence[str], *, rest: bool = False) -> Mask:
        if not values:
            return np.ones(len(asked), np.bool_)
        found: Mask = asked.get_column(tag).is_in(list(values)).to_numpy()
        return found | is_rest if rest else found

    nothing = np.zeros(len(asked), np.bool_)
    by_group, by_service, by_country, by_user, by_hours = (nothing.copy() for _ in range(5))
    for entry in entries:
        group = named(schema.SRC_GROUP, entry.sources) & named(schema.DST_GROUP, entry.destinations)
        service = group & named(schema.SERVICE, entry.services)
        country = service & named(schema.COUNTRY, entry.countries, rest=True)
        user = country & named(schema.USER, entry.users, rest=True)
        off = off_hours if entry.hours is None else off_window_mask(cluster.site, entry.hours, windows)
        by_group |= group
        by_service |= service
        by_country |= country
        by_user |= user
        by_hours |= user & ~off
    kinds = np.full(len(asked), "", np.object_)
    for passed, kind in (
        (by_hours, AccessBreach.HOURS), (by_user, AccessBreach.USER), (by_country, AccessBreach.COUNTRY),
        (by_service, AccessBreach.SERVICE), (by_group, AccessBreach.GROUP),
    ):  # fmt: skip
        kinds[~passed] = kind.value
    is_unknown = asked.get_column(schema.USER).eq(schema.UNKNOWN_USER).to_numpy()
    kinds[(kinds == AccessBreach.USER.value) & is_unknown] = AccessBreach.UNKNOWN_USER.value
    return kinds
