"""Which addresses threat feeds list: all feeds of a cluster, searched at once, read again while others search."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from cluster.model import Cluster
from enrichment.addresses.prefixes import Keys, address_keys, as_listed
from enrichment.feeds.feed import Feed, Refused
from enrichment.feeds.feed_files import FeedFile
from enrichment.labels import Labels
from store import schema

POSITION = "position"
"""Column of listings: which of the addresses asked for."""

BITS, START, END = "bits", "start", "end"

LISTINGS: dict[str, type[pl.DataType]] = {
    POSITION: pl.Int64,
    schema.FEED: pl.String,
    schema.INDICATOR: pl.String,
    BITS: pl.Int64,
    schema.CONFIDENCE.name: pl.Int64,
    START: pl.Float64,
    END: pl.Float64,
    schema.LISTED_SINCE.name: pl.Int64,
    schema.KNOWN_SINCE.name: pl.Int64,
}
"""An entry of a feed that holds an address: START and END bound the time for which it does, epoch seconds."""


class Threats:
    """The feeds of a cluster. It is also a provider of the label FEED.

    One thread may call `refresh` while another one searches: a search goes through one version of each feed.

    Args:
        cluster: its feeds, and the prefixes that they may not list.
        clock: the wall clock, epoch seconds.

    Attributes:
        version: another one whenever `listings` may answer otherwise than before.
    """

    columns = (schema.FEED,)

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.time) -> None:
        refused = Refused(cluster)
        self.files = tuple(FeedFile(feed, refused) for feed in cluster.threat_feeds)
        self.version = 0
        self._clock = clock
        self._edge = np.inf

    def refresh(self) -> bool:
        """Read again what has changed; return whether `label` may answer otherwise than before."""
        changed = [file.refresh() for file in self.files]
        if any(changed):
            self.version += 1
        now = self._clock()
        if not any(changed) and now < self._edge:
            return False
        self._edge = min((_next_edge(file.value, now) for file in self.files if file.value is not None), default=np.inf)
        return True

    def label(self, addresses: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the names of the feeds that list each address now, with commas between them."""
        now = self._clock()
        keys, _ = address_keys(addresses)
        found = self.listings(keys).filter(pl.col(START) <= now, pl.col(END) > now)
        names = dict(found.group_by(POSITION).agg(feeds()).iter_rows())
        return {schema.FEED: [names.get(position, "") for position in range(len(addresses))]}

    def listings(self, keys: Keys) -> pl.DataFrame:
        """Return every entry of any feed that holds one of these addresses at any time, LISTINGS."""
        return listings_in(((file.name, file.value) for file in self.files if file.value is not None), keys)


def threats_in(labels: Labels) -> Threats | None:
    """Return the feeds among those who know labels; None if there are none."""
    return next((provider for provider in labels.providers if isinstance(provider, Threats)), None)


def listings_in(named: Iterable[tuple[str, Feed]], keys: Keys) -> pl.DataFrame:
    """Return every entry of these feeds that holds one of these addresses at any time, LISTINGS."""
    frames, keys = [pl.DataFrame(schema=LISTINGS)], as_listed(keys)
    for name, feed in named:
        if len(feed):
            positions, entries = feed.table.all(keys)
            if len(positions):
                frames.append(_listings(feed, name, positions, entries))
    return pl.concat(frames)


def feeds() -> pl.Expr:
    """Return the names of the feeds of grouped listings as one text."""
    return pl.col(schema.FEED).unique().sort().str.join(",").alias(schema.FEED)


def in_force(listed: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Fold the listings of each address (`by`) into one row: the longest prefix tells the INDICATOR.

    The row has the names of all feeds, their highest confidence, and the earliest times since which one lists it and
    since which that is known.
    """
    return (
        listed.sort(BITS, schema.CONFIDENCE.name, schema.FEED, descending=[True, True, False])
        .group_by(by, maintain_order=True)
        .agg(
            feeds(),
            pl.col(schema.INDICATOR).first(),
            pl.col(schema.CONFIDENCE.name).max(),
            pl.min(schema.LISTED_SINCE.name, schema.KNOWN_SINCE.name),
        )
    )


def _next_edge(feed: Feed, now: float) -> float:
    """Return when the next entry begins or ends to hold."""
    edges = np.concatenate([feed.start, feed.end])
    coming = edges[edges > now]
    return float(coming.min()) if len(coming) else np.inf


def _listings(feed: Feed, name: str, positions: np.ndarray, entries: np.ndarray) -> pl.DataFrame:
    # An entry that holds many of the addresses is spelt once.
    distinct, which = np.unique(entries, return_inverse=True)
    indicators = pl.Series([feed.indicator(int(entry)) for entry in distinct], dtype=pl.String)
    return pl.DataFrame(
        {
            POSITION: positions,
            schema.FEED: pl.Series([name], dtype=pl.String).new_from_index(0, len(positions)),
            schema.INDICATOR: indicators.gather(which),
            BITS: feed.bits[entries].astype(np.int64),
            schema.CONFIDENCE.name: feed.confidence[entries].astype(np.int64),
            START: feed.start[entries],
            END: feed.end[entries],
            schema.LISTED_SINCE.name: feed.listed[entries].astype(np.int64),
            schema.KNOWN_SINCE.name: feed.known[entries].astype(np.int64),
        },
        schema=LISTINGS,
    )
