"""`Cluster` -> cluster.yaml with every default written out; loading that gives an equal `Cluster`."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeVar

import yaml

from cluster import fields, names
from cluster.kinds import Placed, Table
from cluster.model import (
    AccessEntry,
    AnyDestination,
    Applications,
    Cluster,
    DeliverySettings,
    Exporter,
    Group,
    HostNaming,
    IdentitySettings,
    Inference,
    InferenceHours,
    Job,
    JobClass,
    JobSourceSettings,
    Node,
    NotificationTarget,
    Outcome,
    Service,
    SignInSource,
    StoreSettings,
    ThreatFeed,
)
from cluster.services import port_runs

T = TypeVar("T")


def dump_cluster(cluster: Cluster) -> str:
    """Return the cluster as YAML. Secrets are named, never shown; nodes of a CSV inventory stand in ``nodes:``."""
    return yaml.safe_dump(plain_cluster(cluster), sort_keys=False, default_flow_style=None, width=120)


def plain_cluster(cluster: Cluster) -> object:
    """Return what `dump_cluster` writes as plain data: mappings, lists, texts and numbers."""
    table: Table = {
        "cluster": cluster.name,
        "site": {
            "time_zone": cluster.site.time_zone,
            "off_hours": {
                "from": cluster.site.off_hours.start,
                "to": cluster.site.off_hours.end,
                "weekends": cluster.site.off_hours.weekends,
            },
        },
        "groups": _map({group.id: _group(group) for group in cluster.groups}),
        "nodes": _map({node.name: _node(node) for node in cluster.nodes}),
        "exporters": _map({exporter.name: _exporter(exporter) for exporter in cluster.exporters}),
        "allowed": _list({"from": pair.src, "to": pair.dst} for pair in cluster.allowed),
        "authority": _list(
            {"from": rule.pair.src, "to": rule.pair.dst, "exporters": _list(rule.exporters)}
            for rule in cluster.authority
        ),
        "transport": _list(
            {"between": _list((declared.pair.src, declared.pair.dst)), "is": declared.transport}
            for declared in cluster.transport
        ),
        "capacity": _list(
            {"from": limit.pair.src, "to": limit.pair.dst, "limit": limit.limit} for limit in cluster.capacity
        ),
        "inference": _inference(cluster.inference),
        "identity": _identity(cluster.identity),
        "management": {name: _list(value) for name, value in _settings(cluster.management).items()},
        "artefacts": _map({artefact.name: artefact.size for artefact in cluster.artefacts}),
        "services": _map(_services(cluster.services)),
        "jobs": _list(_job(job) for job in cluster.jobs),
        "job_sources": _list(_job_source(source) for source in cluster.job_sources),
        "job_classes": _map({one.name: _job_class(one) for one in cluster.job_classes}),
        "thresholds": _settings(cluster.thresholds),
        "cost": _settings(cluster.cost),
        "store": _store(cluster.store),
        "collector": _settings(cluster.collector) | {"sflow_sources": _list(cluster.collector.sflow_sources)},
        "bridge": _settings(cluster.bridge) | {"metrics_listen": cluster.bridge.metrics_listen or names.OFF},
        "kafka": _settings(cluster.kafka) | {"brokers": _list(cluster.kafka.brokers)},
        "notify": _map({target.name: _target(target) for target in cluster.notify}),
        "grafana": _settings(cluster.grafana),
        "geography": {"files": _map(dict(cluster.geography.files))},
        "delivery": _delivery(cluster.delivery),
        "rules": _list(cluster.rules),
        "threat_feeds": _map({feed.name: _threat_feed(feed) for feed in cluster.threat_feeds}),
        "names": _names(cluster.names),
        "applications": _applications(cluster.applications),
        "enrichment": _settings(cluster.enrichment) | {"lists": _map(dict(cluster.enrichment.by_list))},
    }
    return fields.ROOT.write(table)


def _list(values: Iterable[T]) -> list[Placed[T]]:
    return [Placed("", value) for value in values]


def _map(values: Mapping[str, T]) -> dict[str, Placed[T]]:
    return {key: Placed("", value) for key, value in values.items()}


def _settings(settings: object) -> Table:
    """Return the fields of one of the model's flat classes, whose names are the keys."""
    return {item.name: getattr(settings, item.name) for item in dataclasses.fields(settings)}  # type: ignore[arg-type]


def _group(group: Group) -> Table:
    return _settings(group) | {"prefixes": _list(group.prefixes)}


def _node(node: Node) -> Table:
    addresses = [_settings(address) | {"address": str(address.address)} for address in node.addresses]
    return {"group": node.group, "gpus": node.gpus, "speed": node.speed, "addresses": _list(addresses)}


def _inference(inference: Inference) -> Table:
    return {
        "sources": _list(inference.sources),
        "hours": _hours(inference.hours),
        "access": _list(_access(entry) for entry in inference.access),
    }


def _hours(hours: InferenceHours | None) -> Table | None:
    return None if hours is None else {"from": hours.start, "to": hours.end, "weekends": hours.weekends}


def _access(entry: AccessEntry) -> Table:
    lists = {
        "from": entry.sources,
        "users": entry.users,
        "countries": entry.countries,
        "to": entry.destinations,
        "services": entry.services,
    }
    return {key: _list(values) for key, values in lists.items()} | {"hours": _hours(entry.hours)}


def _identity(identity: IdentitySettings) -> Table:
    lists = {"domains": _list(identity.domains), "shared": _list(identity.shared)}
    return _settings(identity) | lists | {"sources": _list(_sign_ins(source) for source in identity.sources)}


def _sign_ins(source: SignInSource) -> Table:
    columns = None if source.columns is None else _settings(source.columns)
    lists = {"starts": _list(source.starts), "stops": _list(source.stops)}
    return _settings(source) | lists | {"columns": columns}


def _exporter(exporter: Exporter) -> Table:
    interfaces = {str(interface.index): _settings(interface) for interface in exporter.interfaces}
    return _settings(exporter) | {"interfaces": _map(interfaces)}


def _services(services: tuple[Service, ...]) -> dict[str, list[Placed[Table]]]:
    """Return the entries by name: a service whose protocols differ by port has several."""
    by_name: dict[str, list[Placed[Table]]] = {}
    for service in services:
        entry = {"ports": _list(port_runs(service.ports)), "protocols": _list(service.protocols)}
        by_name.setdefault(service.name, []).append(Placed("", entry))
    return by_name


def _job(job: Job) -> Table:
    outcome = None if job.outcome is Outcome.UNKNOWN else job.outcome
    return {
        "id": job.id,
        "class": job.job_class,
        "nodes": _list(job.nodes),
        "start": job.start,
        "end": job.end,
        "outcome": outcome,
    }


def _job_source(source: JobSourceSettings) -> Table:
    table = _settings(source)
    kind = table.pop("kind")
    return {"type": kind.value} | {key: _list(v) if key in _LISTS else v for key, v in table.items()}


_LISTS = frozenset({"files", "partitions", "namespaces", "workloads"})
"""Keys of job sources whose values are lists; a command is one text."""


def _job_class(job_class: JobClass) -> Table:
    return _settings(job_class) | {"checkpoint": _settings(job_class.checkpoint) | {"bytes": job_class.checkpoint.size}}


def _store(store: StoreSettings) -> Table:
    keep = {"raw": store.keep_raw, "1m": store.keep_1m, "1h": store.keep_1h}
    return _settings(store) | {"retention": keep}


def _target(target: NotificationTarget) -> Table:
    channel = fields.CHANNELS[target.kind]
    given: Table = dict(target.settings) | dict(target.secrets)
    table = {key: given[grafana] for key, grafana in channel.grafana.items() if grafana in given}
    if "addresses" in table:
        table["addresses"] = _list(table["addresses"].split(fields.MAIL_SEPARATOR))
    return {"type": target.kind, **table, "severities": _list(target.severities)}


def _delivery(delivery: DeliverySettings) -> Table:
    destinations = _map({one.name: _destination(one) for one in delivery.destinations})
    return _settings(delivery) | {
        "metrics_listen": delivery.metrics_listen or names.OFF,
        "destinations": destinations,
    }


def _destination(destination: AnyDestination) -> Table:
    table = _settings(destination)
    kind = table.pop("kind")
    return {"type": kind.value} | {key: _list(v) if isinstance(v, tuple) else v for key, v in table.items()}


def _threat_feed(feed: ThreatFeed) -> Table:
    columns = feed.columns
    named = {
        "address": columns.address,
        "confidence": columns.confidence,
        "valid_from": columns.start,
        "valid_until": columns.end,
    }
    given: Table = {key: name for key, name in named.items() if name}
    return _settings(feed) | {"columns": given or None}


def _names(naming: HostNaming) -> Table:
    table: Table = {"files": _map({file.name: _settings(file) for file in naming.files})}
    if naming.reverse_dns is not None:
        dns = naming.reverse_dns
        table["reverse_dns"] = _settings(dns) | {"resolvers": _list(dns.resolvers)}
    return table


def _applications(applications: Applications) -> Table:
    files = {file.name: _settings(file) | {"application": file.application or None} for file in applications.files}
    return {"builtin": applications.builtin, "files": _map(files)}
