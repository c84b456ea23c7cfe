"""The section `delivery` of cluster.yaml: who gets events, and how."""

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from cluster.document import Faults
from cluster.kinds import Placed, Table
from cluster.model import (
    AlertsFrom,
    AnyDestination,
    DeliverySettings,
    DestinationKind,
    ElasticDestination,
    FileDestination,
    KafkaDestination,
    SplunkDestination,
    SyslogDestination,
    SyslogTransport,
    WebhookDestination,
)
from cluster.names import OFF

_OWNERS: dict[str, Any] = {
    DestinationKind.SYSLOG: SyslogDestination,
    DestinationKind.SPLUNK: SplunkDestination,
    DestinationKind.ELASTIC: ElasticDestination,
    DestinationKind.KAFKA: KafkaDestination,
    DestinationKind.WEBHOOK: WebhookDestination,
    DestinationKind.FILE: FileDestination,
}
_PAIRS = (("username", "password"), ("certificate_file", "key_file"))
_PATHS = ("path", "ca_file", "certificate_file", "key_file")
_OF_TLS = ("ca_file", "certificate_file")


def build_delivery(table: Table | None, folder: Path, faults: Faults) -> DeliverySettings:
    """Return the settings, and record what does not fit together.

    Args:
        table: what the file says.
        folder: what relative paths are relative to.
        faults: added to.
    """
    given = dict(table or {})
    tables: dict[str, Placed[Table]] = given.pop("destinations", {})
    if given.get("metrics_listen") == OFF:
        given["metrics_listen"] = None
    destinations: list[AnyDestination] = []
    for name, placed in tables.items():
        found = _destination(name, placed, folder, faults)
        if found is not None:
            destinations.append(found)
    delivery = DeliverySettings(**given, destinations=tuple(destinations))
    if delivery.alerts is AlertsFrom.GRAFANA and given.get("token", "") is None:
        hint = "anybody who reaches the port could forge alerts"
        faults.add("delivery.token", "missing", "a token, as alerts is grafana", hint)
    if delivery.metrics_listen == delivery.listen:
        faults.add("delivery.metrics_listen", delivery.listen, "another host:port than listen")
    return delivery


def _destination(name: str, placed: Placed[Table], folder: Path, faults: Faults) -> AnyDestination | None:
    table: Table = {key: _plain(value) for key, value in placed.value.items()}
    kind = table.pop("type", None)
    if kind is None:
        return None
    _check_pairs(placed.path, table, faults)
    if kind == DestinationKind.ELASTIC and table.get("api_key") is not None and table.get("username") is not None:
        faults.add(f"{placed.path}.username", str(table["username"]), "either api_key or username")
    _check_tls(kind, placed.path, table, faults)
    for key in _PATHS:
        if isinstance(table.get(key), str):
            table[key] = str(folder / str(table[key]))
    owner = _OWNERS[kind]
    needed = {item.name for item in fields(owner) if item.default is MISSING} - {"name"}
    found: AnyDestination | None = owner(name=name, **table) if needed <= table.keys() else None
    return found


def _check_pairs(path: str, table: Table, faults: Faults) -> None:
    """Record a user without a password, a certificate without its key, or the other way round."""
    for pair in _PAIRS:
        for key, other in (pair, pair[::-1]):
            if table.get(key) is not None and table.get(other, "") is None:
                faults.add(f"{path}.{other}", "missing", f"a {other}, as {key} is given")


def _check_tls(kind: str, path: str, table: Table, faults: Faults) -> None:
    """Record what only TLS needs, where there is none."""
    given = [key for key in _OF_TLS if table.get(key) is not None]
    if not given:
        return
    transport = table.get("transport")
    if kind == DestinationKind.SYSLOG and transport not in (None, SyslogTransport.TLS):
        faults.add(f"{path}.transport", str(transport), f"tls, as {given[0]} is given")
    if kind == DestinationKind.KAFKA and not table.get("tls", True):
        faults.add(f"{path}.tls", "false", f"true, as {given[0]} is given")


def _plain(value: object) -> object:
    """Return a list without the places of its items."""
    if isinstance(value, list):
        return tuple(one.value if isinstance(one, Placed) else one for one in value)
    return value
