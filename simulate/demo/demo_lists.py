"""The demo cluster's files about addresses, as a site would have them: places, names, a feed, users.

The tables that the files are made of are also what the account at the end compares events with.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from pathlib import Path

from cluster.model import (
    Applications,
    Cluster,
    DeliverySettings,
    FeedColumns,
    FeedFormat,
    FileDestination,
    Geography,
    HostNaming,
    IdentitySettings,
    ListSettings,
    NamesFile,
    NotificationTarget,
    Secret,
    SignInColumns,
    SignInFormat,
    SignInSource,
    ThreatFeed,
)
from simulate.incidents.incident import Incident, IncidentKind, Listing
from simulate.incidents.staging_egress import DAY, LISTED_BEFORE
from simulate.mmdb_file import located, write_mmdb
from simulate.traffic.cast import Cast

FEED = "blocklist"
"""Name of the threat feed."""

ADMINISTRATOR, CLIENT = "m.jansen", "a.okafor"
"""Users: at the machine from which bulk exfiltration is staged, and at a client of inference."""

EVENTS = "events.ndjson"
"""File of what is delivered, in the folder of the run."""

INBOX_VARIABLE = "CLUSTERFLOW_DEMO_INBOX"
"""Environment variable with the address to which Grafana sends notifications."""

_LISTS = "lists"

_UNUSED_NAME, _UNUSED_PREFIX = "203.0.113.254 gateway.examplehost.example", "198.19.255.0/24"
"""Nobody plays them; without anything in it, a file would count as broken."""

_CONFIDENCE = 90
_SIGNED_IN_BEFORE = 1_800


@dataclass(frozen=True, slots=True)
class Place:
    """Where the addresses of a prefix are, and whose."""

    prefix: str
    country: str
    city: str
    asn: int
    organisation: str


# Names and numbers for documentation (RFC 5398, 5737, 2544, 3849): everybody who may be outside in a simulation.
PLACES = (
    Place("203.0.113.0/24", "NL", "Amsterdam", 64_500, "ExampleHost"),
    Place("192.0.2.0/24", "US", "Ashburn", 64_501, "Example Cloud"),
    Place("198.18.0.0/15", "SG", "Singapore", 64_502, "Example Transit"),
    Place("198.51.100.0/24", "DE", "Frankfurt", 64_503, "Example Partner Labs"),
    Place("2001:db8:a::/48", "DE", "Frankfurt", 64_503, "Example Partner Labs"),
    Place("2001:db8:bad::/48", "NL", "Amsterdam", 64_500, "ExampleHost"),
)

_NAMES = {
    IncidentKind.BULK_EXFIL: "drop-7.examplehost.example",
    # On the list of applications that comes with clusterflow.
    IncidentKind.FIRST_CONTACT: "cdn-lfs.huggingface.co",
    IncidentKind.OFF_HOURS_TRANSFER: "mirror.partner.example",
}
"""What the destinations of staged transfers are called."""


def place_of(address: str) -> Place | None:
    """Return where an address is, by the longest prefix; None where no file knows it."""
    found = ip_address(address)
    holding = [place for place in PLACES if found in ip_network(place.prefix)]
    return max(holding, key=lambda place: ip_network(place.prefix).prefixlen, default=None)


def names_of(incidents: Iterable[Incident]) -> dict[str, str]:
    """Return the names of staged destinations; of several incidents with one, the first names it."""
    found: dict[str, str] = {}
    for incident in incidents:
        if incident.kind in _NAMES:
            found.setdefault(incident.dst, _NAMES[incident.kind])
    return found


def with_lists(cluster: Cluster, folder: Path, pages_port: int) -> Cluster:
    """Return the cluster with the files of a run's folder in place of its own; events go to a file, alerts to an inbox.

    Pages of incidents and conversations are at that port of the loopback interface.

    A demo of somebody's own cluster.yaml must neither read what is not staged nor tell his colleagues of it.
    """
    lists = folder / _LISTS
    columns = FeedColumns("address", "confidence", "valid_from", "valid_until")
    sign_ins = SignInSource(
        "sign-ins", SignInFormat.CSV, str(lists / "sign-ins.csv"), columns=SignInColumns("address", "user", "time")
    )
    events = FileDestination(name="siem", path=str(folder / EVENTS))
    inbox = NotificationTarget("inbox", "webhook", secrets=(("url", Secret(env=INBOX_VARIABLE)),))
    return replace(
        cluster,
        geography=Geography((("places", str(lists / "places.mmdb")),)),
        names=HostNaming((NamesFile("hosts", str(lists / "hosts")),)),
        applications=Applications(builtin=True),
        threat_feeds=(ThreatFeed(FEED, str(lists / "blocklist.csv"), FeedFormat.CSV, columns),),
        enrichment=ListSettings(),
        identity=IdentitySettings((sign_ins,)),
        notify=(inbox,),
        delivery=DeliverySettings(
            destinations=(events,),
            metrics_listen=f"127.0.0.1:{pages_port}",
            incident_url=f"http://127.0.0.1:{pages_port}",
            state=str(folder / "delivery"),
        ),
    )


def write_lists(folder: Path, cluster: Cluster, incidents: Iterable[Incident], now: int) -> None:
    """Write the files that `with_lists` names.

    Args:
        folder: of the run.
        cluster: whose clients sign in.
        incidents: whose destinations have names, and are listed where they say so.
        now: epoch second by which the files are dated.
    """
    staged = tuple(incidents)
    lists = folder / _LISTS
    lists.mkdir(parents=True, exist_ok=True)
    rows = [(one.prefix, located(one.country, one.city, one.asn, one.organisation)) for one in PLACES]
    write_mmdb(lists / "places.mmdb", "Made-up-City-ASN", rows, built=now)
    names = [_UNUSED_NAME, *(f"{address} {name}" for address, name in names_of(staged).items())]
    _write(lists / "hosts", "# Names of addresses outside, in the format of /etc/hosts.", names)
    unused = Listing(_UNUSED_PREFIX, now - LISTED_BEFORE, now + DAY)
    listings = dict.fromkeys((unused, *(listing for incident in staged for listing in incident.listings)))
    listed = [f"{one.indicator},{_CONFIDENCE},{_iso(one.start)},{_iso(one.end)}" for one in listings]
    _write(lists / "blocklist.csv", "address,confidence,valid_from,valid_until", listed)
    users = dict.fromkeys((one.src_address for one in staged if one.kind is IncidentKind.BULK_EXFIL), ADMINISTRATOR)
    cast = Cast(cluster)
    if len(cast.users):
        users[str(cast.addresses.text[int(cast.users[0])])] = CLIENT
    signed = [f"{address},{user},{_iso(now - _SIGNED_IN_BEFORE)}" for address, user in users.items()]
    _write(lists / "sign-ins.csv", "address,user,time", signed)


def _write(path: Path, head: str, lines: Iterable[str]) -> None:
    path.write_text("\n".join((head, *lines)) + "\n", encoding="utf-8")


def _iso(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()
