"""Who the ends of an alert are: what its labels say of the one outside, and who is signed in at the one inside."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from cluster.load import load_cluster, parse_cluster
from cluster.model import EventSeverity, StoreSettings
from delivery import known_addresses as directory_module
from delivery.alert_events import AlertBook, Report
from delivery.event import Document, at
from delivery.grafana_hook import reports_of
from delivery.known_addresses import Directory
from delivery.parties import Parties
from rules.grafana.example_alert import example_of
from rules.grafana.message import Notification
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
    store.ensure(tuple(replace(one, keep=0) for one in CLUSTER.retentions()))
    directory = Directory(store)
    assert directory.about("203.0.113.9") == {}
    row = {WINDOW: 1_790_000_000, schema.ADDRESS: "203.0.113.9", schema.KNOWN_NAME.name: "drop.example.net"}
    store.write(encode(schema.ADDRESS_NAME, pl.DataFrame([row])), schema.ADDRESS_NAME.kept)
    assert directory.about("203.0.113.9") == {schema.NAME: "drop.example.net"}
    store.close()


@pytest.mark.parametrize("rule_id", ["low_and_slow_24h", "low_and_slow_7d"])
def test_an_alert_about_a_slow_transfer_has_its_bytes_as_a_number(rule_id: str) -> None:
    """For a SIEM, and to keep the most that was told when days leave the rule's time."""
    cluster = load_cluster(Path(__file__).parents[1] / "rules" / "cluster.yaml")
    rule_set = rules_of(cluster)
    told = example_of(cluster, rule_set.rule(rule_id), 1_795_000_000).told
    book = AlertBook(cluster, rule_set, Parties(cluster), None)

    def events(size: float, ended: int | None = None) -> list[Document]:
        alert = replace(told, values=dict.fromkeys(told.values, size), ended=ended)
        posted = json.loads(Notification([alert], ["rule"], "history", "https://grafana", 1_795_000_000).webhook_body())
        return book.take(reports_of(posted, {rule_id: rule_set.rule(rule_id)}))

    (begin,) = events(60e9)
    assert at(begin, "traffic.bytes") == 60_000_000_000
    assert events(200e9) == events(20e9) == []
    (end,) = events(0, 1_795_010_000)
    assert at(end, "traffic.bytes") == 200_000_000_000
