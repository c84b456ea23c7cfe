"""What the demo's files say of addresses, and the account of what was delivered: each difference is told."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.load import load_cluster, parse_cluster
from cluster.model import Cluster
from enrichment.providers import labels_of
from rules.evaluate.evaluator import Alert
from rules.evaluate.states import State
from rules.evaluate.truth import Owed
from simulate.demo.demo_lists import FEED, place_of, write_lists
from simulate.demo.plan import Places, demo_cluster, demo_scenario
from simulate.incidents.incident import Incident, IncidentKind
from simulate.scenarios.scenario import Scenario
from simulate.traffic.cast import Cast
from simulate.traffic.workload import Workload
from simulate.truth.delivered import Account, account, wall_differences
from simulate.truth.ground_truth import GroundTruth
from simulate.truth.watch import Firing
from store import schema

REPOSITORY = Path(__file__).parents[2]
START = 1_795_000_000
LABELS = {"src": "model-store-1", "src_group": "model_storage", "dst": "203.0.113.41", "proto": "tcp", "feed": FEED}
SUMMARY = "model-store-1 sent much"
SENT = {"first": "2026-11-18T22:26:40.000Z", "last": "2026-11-18T22:27:09.999Z"}

Event = dict[str, Any]
Played = tuple[Cluster, Scenario]


@pytest.fixture
def played(tmp_path: Path) -> Played:
    places = Places("http://127.0.0.1:1", 1, 2, 3, tmp_path / "spool", tmp_path / "state", tmp_path)
    text = demo_cluster(load_cluster(REPOSITORY / "cluster.yaml"), start=START, places=places, history_days=0)
    cluster = parse_cluster(text)
    scenario = demo_scenario(cluster, start=START, seconds=60, history_days=0)
    write_lists(tmp_path, cluster, scenario.incidents, START)
    return cluster, scenario


def test_the_files_say_of_everybody_outside_what_the_tables_say(played: Played) -> None:
    cluster, scenario = played
    labels = labels_of(cluster)
    assert [file.reading().error for file in labels.files] == ["", "", "", ""]
    cast = Cast(cluster)
    numbers = [*cast.clients, *cast.strangers, *cast.partners, *cast.partners_v6]
    outside = [str(cast.addresses.text[int(number)]) for number in numbers]
    found = [dict(zip(schema.LABELS, row, strict=True)) for row in labels.of(outside)]
    for address, known in zip(outside, found, strict=True):
        place = place_of(address)
        assert place is not None
        network = f"AS{place.asn} {place.organisation}"
        assert (known["country"], known["city"], known["network"]) == (place.country, place.city, network)
    by_kind = {incident.kind: incident for incident in scenario.incidents}
    exfiltration = by_kind[IncidentKind.BULK_EXFIL]
    hub = found[outside.index(by_kind[IncidentKind.FIRST_CONTACT].dst)]
    assert hub["application"] == "model hub"
    assert exfiltration.listings[0].start < START - 86_400
    # By the present time it may have been listed and dropped again: the feed itself says when.
    assert exfiltration.dst in (Path(cluster.threat_feeds[0].file)).read_text()
    document = json.loads(json.dumps(GroundTruth(Workload(cluster, scenario)).document()))
    (told,) = [one for one in document["incidents"] if one["id"] == exfiltration.id]
    assert told["listings"][0]["indicator"] == exfiltration.dst
    assert told["transfers"] == 1
    owed = [alert for alert in exfiltration.alerts if alert.rule == "threat_match"]
    assert [dict(alert.labels)["src"] for alert in owed] == [exfiltration.src, exfiltration.dst]
    assert all(alert.must for alert in owed)


def _event() -> Event:
    return {
        "id": "1",
        "kind": "alert",
        "state": "firing",
        "action": "exfil_volume",
        "labels": LABELS,
        "source": {"name": "model-store-1", "address": "10.40.0.11", "group": "model_storage", "user": "m.jansen"},
        "destination": {
            "address": "203.0.113.41", "port": 443, "name": "drop-7.examplehost.example", "country": "NL",
            "city": "Amsterdam", "asn": 64500, "organisation": "ExampleHost",
        },
        "threat": {"feeds": [FEED]},
        "traffic": {"protocol": "tcp", "service": "https", "direction": "outbound", "bytes": 65e9, "duration": 29.98,
                    "exporter": "border-1", "interface": "et-0/0/1"},
    }  # fmt: skip


def _changed(path: str, value: object) -> Callable[[], list[Event]]:
    def made() -> list[Event]:
        event = _event()
        *keys, last = path.split(".")
        part = event
        for key in keys:
            part = part[key]
        part[last] = value
        return [event]

    return made


ABOUT = "exfil_volume (dst=203.0.113.41, feed=blocklist, proto=tcp, src=model-store-1, src_group=model_storage)"
CASES: dict[str, tuple[Callable[[], list[Event]], list[str]]] = {
    "all well": (lambda: [_event()], []),
    "its end, and another kind": (
        lambda: [_event(), _event() | {"id": "2", "state": "resolved"}, {"id": "3", "kind": "job", "state": "seen"}],
        [],
    ),
    "nothing": (list, [f"{ABOUT}: fired 1 times, delivered 0 times"]),
    "twice": (
        lambda: [_event(), _event()], ["event 1: 2 times", f"{ABOUT}: fired 1 times, delivered 2 times"]
    ),
    "another one": (
        lambda: [_event(), _event() | {"id": "2", "action": "incast"}],
        [f"{ABOUT.replace('exfil_volume', 'incast')}: fired 0 times, delivered 1 times"],
    ),
    "no user": (
        _changed("source.user", None), ["bulk_exfil-model-store-1: source.user is None, staged was 'm.jansen'"]
    ),
    "another country": (
        _changed("destination.country", "DE"),
        ["bulk_exfil-model-store-1: destination.country is 'DE', staged was 'NL'"],
    ),
    "no feed": (_changed("threat", {}), ["bulk_exfil-model-store-1: threat.feeds is None, staged was ['blocklist']"]),
    "too few bytes": (
        _changed("traffic.bytes", 64_999_999_999),
        ["bulk_exfil-model-store-1: traffic.bytes is 64999999999, staged was 65000000000"],
    ),
    "another address of the same node": (
        _changed("source.address", "10.99.0.1"),
        ["bulk_exfil-model-store-1: source.address is '10.99.0.1', staged was '10.40.0.11'"],
    ),
    "no port": (
        _changed("destination.port", None),
        [
            "alert exfil_volume of model-store-1: no port",
            "bulk_exfil-model-store-1: destination.port is None, staged was 443",
        ],
    ),
    "nowhere": (
        _changed("traffic.interface", None), ["alert exfil_volume of model-store-1: no traffic.interface"]
    ),
    "too short": (
        _changed("traffic.duration", 20.0), ["bulk_exfil-model-store-1: traffic.duration is 20.0, staged was 30"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_differs_is_told(case: str, played: Played, tmp_path: Path) -> None:
    events, expected = CASES[case]
    cluster, scenario = played
    found = _account(tmp_path, cluster, _theft(scenario), events())
    assert list(found.differences) == expected
    assert found.texts == (SUMMARY,)
    assert found.events == len(events())


def test_a_theft_to_where_nobody_is_known_is_accounted_for(played: Played, tmp_path: Path) -> None:
    """As in a scenario of one's own: neither place nor feed knows the address."""
    cluster, scenario = played
    theft = replace(_theft(scenario), dst="100.64.9.9", listings=())
    event = _event()
    del event["threat"]
    event["destination"] = {"address": theft.dst, "port": 443, "name": "drop-7.examplehost.example"}
    assert not _account(tmp_path, cluster, theft, [event]).differences


def _theft(scenario: Scenario) -> Incident:
    return next(one for one in scenario.incidents if one.kind is IncidentKind.BULK_EXFIL)


def _account(folder: Path, cluster: Cluster, incident: Incident, events: list[Event]) -> Account:
    alert = Alert(
        "exfil_volume", "title", "critical", {"alertname": "title", "rule": "exfil_volume", "network": "", **LABELS},
        State.ALERTING, "", START, START, {}, {"summary": SUMMARY},
    )  # fmt: skip
    cause = Owed(incident.id, "exfil_volume", (), incident.start, incident.start, incident.end)
    talk = {"src": incident.src_address, "dst": incident.dst, "bytes": 65_000_000_000}
    truth = {"conversations": [talk], "incidents": [{"id": incident.id, "sent": SENT}]}
    path = folder / "events.ndjson"
    # The last line is still being written.
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events) + '{"id": "9", "ki')
    return account(path, [Firing(alert, START, cause)], cluster, [incident], truth)


def test_the_wall_shows_what_the_terminal_shows() -> None:
    facts = {"source": "a (Model\nStorage)", "destination": "203.0.113.41", "bytes": "65GB", "duration": "30s"}
    alert = Alert("r", "Much", "critical", {}, State.ALERTING, "", START, START, {}, facts)
    row = ("Much", "a (Model Storage)", "203.0.113.41", "65GB", "30s")
    other = (*row[:3], "64GB", "30s")
    assert wall_differences(Counter([row]), [Firing(alert, START, None)]) == []
    assert wall_differences(Counter([other]), [Firing(alert, START, None)]) == [
        "Much, a (Model Storage), 203.0.113.41, 64GB, 30s: 0 times in the terminal, 1 times on the wall",
        "Much, a (Model Storage), 203.0.113.41, 65GB, 30s: 1 times in the terminal, 0 times on the wall",
    ]
    assert len(wall_differences(Counter([row, row]), [Firing(alert, START, None)])) == 1
