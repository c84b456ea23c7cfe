"""What is known of outside addresses in a scenario: a threat feed and a file of places, as its incidents say."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.model import Cluster, FeedColumns, FeedFormat, Geography, Role, ThreatFeed
from enrichment.addresses.geography import GeographyFiles
from enrichment.feeds.threats import Threats
from enrichment.labels import Labels, Provider
from simulate.incidents.incident import Incident, Listing, Placement
from simulate.mmdb_file import located, write_mmdb

STAGED_FEED = "staged"
"""Its name."""

_COLUMNS = FeedColumns("address", start="from", end="until")

_PARTNERS = ("NL", 64_500, "Example Partners")
"""Country and network of everybody who is approved."""


def staged_labels(cluster: Cluster, incidents: Iterable[Incident]) -> Labels | None:
    """Return what is known of addresses, read from files as any such are; None where nothing is."""
    staged = tuple(incidents)
    listings = [listing for incident in staged for listing in incident.listings]
    placements = [placement for incident in staged for placement in incident.placements]
    with TemporaryDirectory() as folder:
        providers: list[Provider] = []
        if listings:
            providers.append(_feed(cluster, listings, Path(folder) / "feed.csv"))
        if placements:
            providers.append(_places(cluster, placements, Path(folder) / "places.mmdb"))
        if not providers:
            return None
        labels = Labels(providers)
        labels.refresh()
    return labels


def _feed(cluster: Cluster, listings: Sequence[Listing], path: Path) -> Provider:
    path.write_text("\n".join(["address,from,until", *map(_row, listings)]), encoding="ascii")
    feed = ThreatFeed(STAGED_FEED, str(path), FeedFormat.CSV, _COLUMNS)
    return Threats(replace(cluster, threat_feeds=(feed,)))


def _row(listing: Listing) -> str:
    times = (datetime.fromtimestamp(moment, UTC).isoformat() for moment in (listing.start, listing.end))
    return ",".join((listing.indicator, *times))


def _places(cluster: Cluster, placements: Sequence[Placement], path: Path) -> Provider:
    country, number, organisation = _PARTNERS
    approved = [prefix for group in cluster.groups_with(Role.APPROVED_EXTERNAL) for prefix in group.prefixes]
    rows = [(str(prefix), located(country, "", number, organisation)) for prefix in approved]
    rows += [(one.address, located(one.country, "", one.number, one.organisation)) for one in placements]
    write_mmdb(path, "Staged-ASN", rows, built=0)
    return GeographyFiles(Geography((("staged", str(path)),)))
