"""What was delivered and stored, compared with what fired and what was staged.

Each alert once, the exfiltration told in full, and the wall's table as the terminal showed them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cluster.model import Cluster
from dashboards.questions import ALERT_COLUMNS, newest_alerts
from rules.common import texts
from rules.evaluate.evaluator import Alert
from simulate.demo.demo_lists import ADMINISTRATOR, FEED, names_of, place_of
from simulate.incidents.incident import Incident, IncidentKind
from simulate.truth.watch import Firing
from store import schema
from store.influx import Store

_NO_LABELS = frozenset({"alertname", "grafana_folder", "rule", "severity"})
"""What every alert has, whatever it is about."""

_PROTOCOLS = {6: "tcp", 17: "udp"}
_SERVICES = {443: "https"}

Event = Mapping[str, Any]
_Row = tuple[str, ...]
_MOST = 10_000
_Told = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Account:
    """What was delivered.

    Attributes:
        path: the file of events.
        events: how many it holds.
        alerts: how many of them report the begin of an alert.
        texts: exfiltrations as their alerts report them, a line each.
        differences: what is not as it fired and as it was staged, a line each.
        shown: how many alerts the wall's table has.
    """

    path: Path
    events: int
    alerts: int
    texts: tuple[str, ...]
    differences: tuple[str, ...]
    shown: int = 0


def account(
    path: Path, firings: Sequence[Firing], cluster: Cluster, incidents: Sequence[Incident], truth: Mapping[str, Any]
) -> Account:
    """Compare events with alerts.

    Args:
        path: the file that `clusterflow deliver` wrote; half a line at its end, where it still writes, is left out.
        firings: all alerts that fired.
        cluster: whose they are.
        incidents: what was staged ...
        truth: ... and what of it was sent (`GroundTruth.document`).
    """
    events = _read(path)
    begins = [event for event in events if event["kind"] == "alert" and event["state"] == "firing"]
    # A cloud has no switch by which something enters.
    places = () if cluster.cloud.format else ("traffic.exporter", "traffic.interface")
    differences = [*_unlike(events, begins, firings), *_unaddressed(events, places)]
    staged = {incident.id: incident for incident in incidents if incident.kind is IncidentKind.BULK_EXFIL}
    names = names_of(incidents)
    told = []
    for firing in firings:
        incident = staged.get(firing.cause.incident) if firing.cause is not None else None
        if incident is None or firing.alert.rule != "exfil_volume":
            continue
        told.append(firing.alert.annotations[texts.SUMMARY])
        wanted = _expected(incident, cluster, names, truth)
        for event in begins:
            if _of_event(event) == _of_alert(firing.alert):
                differences += _differences(incident.id, wanted, event)
    return Account(path, len(events), len(begins), tuple(told), tuple(differences))


def on_the_wall(store: Store, start: int, end: int) -> Counter[_Row]:
    """Return what the wall's table says of alerts that began in [start, end]: title and what the terminal shows.

    Raises:
        StoreError: the store is away.
    """
    named = [field.name for field in ALERT_COLUMNS if field is not schema.ALERT_STATE]
    return Counter(
        tuple(str(dict(zip(series.columns, row, strict=True))[name] or "") for name in named)
        for series in store.query(newest_alerts(_MOST).between(start, end))
        for row in series.values
    )


def wall_differences(shown: Counter[_Row], firings: Iterable[Firing]) -> list[str]:
    """Return where the wall's table is not what the terminal shows, a line each."""
    fired: Counter[_Row] = Counter()
    for firing in firings:
        facts = firing.alert.facts()
        told = (facts[name] for name in (texts.SOURCE, texts.DESTINATION, texts.BYTES, texts.DURATION))
        fired[firing.alert.title, *(" ".join(text.split()) for text in told)] += 1
    return [
        f"{', '.join(row)}: {fired[row]} times in the terminal, {shown[row]} times on the wall"
        for row in sorted({*fired, *shown})
        if fired[row] != shown[row]
    ]


def _read(path: Path) -> list[Event]:
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def _unlike(events: Iterable[Event], begins: Iterable[Event], firings: Iterable[Firing]) -> Iterator[str]:
    """Yield what was reported twice, what was not told, and what was reported but never fired."""
    for one, times in sorted(Counter(event["id"] for event in events).items()):
        if times > 1:
            yield f"event {one}: {times} times"
    fired = Counter(_of_alert(firing.alert) for firing in firings)
    told = Counter(_of_event(event) for event in begins)
    for rule, labels in sorted({*fired, *told}):
        if fired[rule, labels] != told[rule, labels]:
            about = ", ".join(f"{name}={text}" for name, text in labels)
            yield f"{rule} ({about}): fired {fired[rule, labels]} times, delivered {told[rule, labels]} times"


def _unaddressed(events: Iterable[Event], places: Iterable[str]) -> Iterator[str]:
    """Yield conversations whose events lack an address, the port of the side that was called, or where they entered."""
    for event in events:
        protocol = _at(event, "traffic.protocol")
        named = all(_at(event, f"labels.{tag}") not in (None, schema.OTHER) for tag in (schema.SRC, schema.DST))
        if not named or not protocol:
            continue
        lacking = [f"{side}.address" for side in ("source", "destination") if not _at(event, f"{side}.address")]
        ports = [_at(event, f"{side}.port") for side in ("source", "destination")]
        if protocol in _PROTOCOLS.values() and not any(ports):
            lacking.append("port")
        # Each of the demo's conversations is counted by one exporter.
        lacking += [path for path in places if not _at(event, path)]
        if lacking:
            yield f"{event['kind']} {event['action']} of {_at(event, 'source.name')}: no {', '.join(lacking)}"


def _of_alert(alert: Alert) -> _Told:
    return alert.rule, tuple(sorted((k, v) for k, v in alert.labels.items() if v and k not in _NO_LABELS))


def _of_event(event: Event) -> _Told:
    return event["action"], tuple(sorted(event.get("labels", {}).items()))


def _expected(
    incident: Incident, cluster: Cluster, names: Mapping[str, str], truth: Mapping[str, Any]
) -> dict[str, object]:
    """Return what the event of an exfiltration must say, by the dotted path at which it says so."""
    group = next(node.group for node in cluster.nodes if node.name == incident.src)
    # A scenario of one's own may send to where no file says anything, and to what no feed lists.
    place = place_of(incident.dst)
    ends = incident.src_address, incident.dst
    sent = sum(talk["bytes"] for talk in truth["conversations"] if (talk["src"], talk["dst"]) == ends)
    (seconds,) = (_seconds(one["sent"]) for one in truth["incidents"] if one["id"] == incident.id)
    return {
        "source.name": incident.src,
        "source.address": incident.src_address,
        "source.group": group,
        "source.user": ADMINISTRATOR,
        "destination.address": incident.dst,
        "destination.port": incident.port,
        "destination.name": names[incident.dst],
        **{f"destination.{name}": getattr(place, name, None) for name in ("country", "city", "asn", "organisation")},
        "threat.feeds": [FEED] if incident.listings else None,
        "traffic.protocol": _PROTOCOLS[incident.proto],
        "traffic.service": _SERVICES[incident.port],
        "traffic.direction": "outbound",
        "traffic.bytes": sent,
        "traffic.duration": seconds,
    }


def _seconds(sent: Mapping[str, Any]) -> int:
    first, last = (datetime.fromisoformat(sent[name]) for name in ("first", "last"))
    return round((last - first).total_seconds())


def _differences(name: str, wanted: Mapping[str, object], event: Event) -> Iterator[str]:
    for path, value in wanted.items():
        found = _at(event, path)
        # Seconds of a flow end a moment before the next one begins.
        told = round(found) if isinstance(found, float) else found
        if told != value:
            yield f"{name}: {path} is {found!r}, staged was {value!r}"


def _at(event: Event, path: str) -> object:
    value: Any = event
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
