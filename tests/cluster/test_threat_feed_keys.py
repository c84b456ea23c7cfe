"""Threat feeds in cluster.yaml: paths beside the file, defaults, a bare path."""

from pathlib import Path

from cluster.load import load_cluster
from cluster.model import FeedColumns, FeedFormat, ThreatFeed

HERE = Path(__file__).parent


def test_feeds_stand_in_the_order_of_the_file() -> None:
    botnets, scored, exchange = load_cluster(HERE / "rich.yaml").threat_feeds
    assert botnets == ThreatFeed("botnets", str(HERE / "feeds/botnets.txt"), FeedFormat.LIST, FeedColumns(""), 50, 0)
    columns = FeedColumns("ip", "score", "first seen", "expires")
    assert scored == ThreatFeed("scored", str(HERE / "feeds/scored.csv"), FeedFormat.CSV, columns, 10, 20)
    assert exchange == ThreatFeed("exchange", str(HERE / "feeds/bundle.json"), FeedFormat.STIX)
