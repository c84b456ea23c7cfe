"""A feed's file, read for a cluster that has prefixes of its own."""

import os
from datetime import UTC, datetime
from pathlib import Path

from cluster.load import parse_cluster
from cluster.model import FeedColumns, FeedFormat, ThreatFeed
from enrichment.feeds.feed import Feed, Refused
from enrichment.feeds.feed_files import read_feed
from enrichment.watched import Loaded

CLUSTER = """
cluster: demo
groups:
  weights: {prefixes: [198.18.0.0/16, "2001:db8:1::/48"], role: model_storage}
  partner: {prefixes: [192.0.2.0/25], role: approved_external}
nodes:
  store-1: {group: weights, addresses: [198.18.0.1]}
"""
DATED = datetime(2026, 5, 3, tzinfo=UTC).timestamp()


def refused() -> Refused:
    """Return what no feed of the cluster may list."""
    return Refused(parse_cluster(CLUSTER))


def read(
    path: Path,
    text: str,
    kind: FeedFormat = FeedFormat.LIST,
    *,
    columns: FeedColumns | None = None,
    before: Feed | None = None,
    least_confidence: int = 0,
    dated: float = DATED,
) -> Loaded[Feed]:
    """Write a file and read it as a feed."""
    path.write_text(text, "utf-8")
    os.utime(path, (dated, dated))
    settings = ThreatFeed("bad", str(path), kind, columns or FeedColumns(""), 50, least_confidence)
    return read_feed(path, settings, refused(), before)


def listed(feed: Feed) -> dict[str, int]:
    """Return the confidence of each entry."""
    return {feed.indicator(entry): int(feed.confidence[entry]) for entry in range(len(feed))}
