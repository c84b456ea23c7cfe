"""The threat feed of a scenario: what its incidents say is listed."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.model import Cluster, FeedColumns, FeedFormat, ThreatFeed
from enrichment.labels import Labels
from enrichment.threats import Threats
from simulate.incident import Incident, Listing

STAGED_FEED = "staged"
"""Its name."""

_COLUMNS = FeedColumns("address", start="from", end="until")


def staged_labels(cluster: Cluster, incidents: Iterable[Incident]) -> Labels | None:
    """Return what the feed says of addresses, read from a file as any feed is; None where nothing is listed."""
    listings = [listing for incident in incidents for listing in incident.listings]
    if not listings:
        return None
    with TemporaryDirectory() as folder:
        path = Path(folder) / "feed.csv"
        path.write_text("\n".join(["address,from,until", *map(_row, listings)]), encoding="ascii")
        feed = ThreatFeed(STAGED_FEED, str(path), FeedFormat.CSV, _COLUMNS)
        labels = Labels([Threats(replace(cluster, threat_feeds=(feed,)))])
        labels.refresh()
    return labels


def _row(listing: Listing) -> str:
    times = (datetime.fromtimestamp(moment, UTC).isoformat() for moment in (listing.start, listing.end))
    return ",".join((listing.indicator, *times))
