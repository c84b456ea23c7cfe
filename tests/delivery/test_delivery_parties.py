"""Who the ends of an alert are: what its labels say of the one outside, and who is signed in at the one inside."""

import polars as pl
import pytest

from cluster.load import parse_cluster
from cluster.model import EventSeverity, StoreSettings
from delivery import known_addresses as directory_module
from delivery.alert_events import AlertBook, Report
from delivery.event import at
from delivery.known_addresses import Directory
from delivery.parties import Parties
from rules.registry import rules_of
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW, encode

CLUSTER = parse_cluster("""
cluster: lab
groups:
  models: {role: model_storage, prefixes: [10.30.0.0/16, "fd00:30::/48"], title: Model Storage}
nodes:
  db-export-3: {group: models, addresses: [10.30.0.3, "fd00:30::3"]}
""")
PLACE = {schema.COUNTRY: "NL", schema.NETWORK: "AS64500 ExampleHost", schema.FEED: "botnets,tor"}
INSIDE = {"name": "db-export-3", "group": "models"}
OUTSIDE = {"name": "203.0.113.9", "group": "external"}


class SignedIn:
    """Somebody is at one of the node's addresses."""

    def user(self, address: str, moment: float) -> str:
        return "alice" if (address, moment) == ("fd00:30::3", 1000) else ""


@pytest.mark.parametrize("is_outward", [True, False], ids=["outward", "inward"])
def test_an_alert_says_where_the_end_outside_is_and_who_is_at_the_one_inside(*, is_outward: bool) -> None:
    src, dst = (INSIDE, OUTSIDE) if is_outward else (OUTSIDE, INSIDE)
    labels = PLACE | {
        schema.SRC: src["name"], schema.SRC_GROUP: src["group"], schema.DST: dst["name"],
        schema.DST_GROUP: dst["group"], schema.INDICATOR: "203.0.113.0/24",
    }  # fmt: skip
    report = Report(
        "threat_match", "x", 1000, EventSeverity.CRITICAL, labels=labels, values={schema.LISTED_SINCE.name: 0.0}
    )
    book = AlertBook(CLUSTER, rules_of(CLUSTER), Parties(CLUSTER, None, SignedIn()), None)
    (told,) = book.take([report])
    inside, outside = ("source", "destination") if is_outward else ("destination", "source")
    assert at(told, inside) == {
        "name": "db-export-3", "group": "models", "group_title": "Model Storage", "user": "alice"
    }  # fmt: skip
    assert at(told, f"{outside}.country") == "NL"
    assert at(told, f"{outside}.asn") == 64500
    assert at(told, f"{outside}.organisation") == "ExampleHost"
    assert at(told, "threat") == {
        "feeds": ["botnets", "tor"], "indicator": "203.0.113.0/24", "listed_since": "1970-01-01T00:00:00Z"
    }  # fmt: skip


def test_an_address_of_which_nothing_is_known_is_soon_asked_about_again(
    influxdb_v1: LocalInfluxDB, fresh_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge writes what it knows of a new address some seconds after its first flows are stored."""
    monkeypatch.setattr(directory_module, "_UNKNOWN_SECONDS", 0.0)
    store = Store(StoreSettings(url=influxdb_v1.url, database=fresh_database))
    store.ensure(CLUSTER.retentions())
    directory = Directory(store)
    assert directory.about("203.0.113.9") == {}
    row = {WINDOW: 1_790_000_000, schema.ADDRESS: "203.0.113.9", schema.KNOWN_NAME.name: "drop.example.net"}
    store.write(encode(schema.ADDRESS_NAME, pl.DataFrame([row])), schema.ADDRESS_NAME.kept)
    assert directory.about("203.0.113.9") == {schema.NAME: "drop.example.net"}
    store.close()
