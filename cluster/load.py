"""cluster.yaml -> `Cluster`, or every fault in it at once."""

from pathlib import Path
from typing import Any

from cluster import fields
from cluster.delivery import build_delivery
from cluster.document import Faults, Mapping, Value, parse, read_text
from cluster.enrichment import build_applications, build_list_settings, build_names
from cluster.errors import ConfigError, Problem
from cluster.geography import build_geography
from cluster.groups import build_groups, check_reference
from cluster.identity import build_access, build_hours, build_identity
from cluster.inventory import Inventory
from cluster.job_classes import build_job_classes
from cluster.job_sources import build_job_sources
from cluster.jobs import build_jobs
from cluster.kinds import Bad, Placed, Table, closest, one_of
from cluster.model import (
    ANY,
    Artefact,
    Authority,
    BridgeSettings,
    Cluster,
    CollectorSettings,
    Cost,
    DeclaredTransport,
    Exporter,
    ExportProtocol,
    GrafanaSettings,
    Group,
    GroupPair,
    Inference,
    Interface,
    KafkaSettings,
    Management,
    Network,
    NotificationTarget,
    OffHours,
    PairLimit,
    Sampling,
    Secret,
    Service,
    Site,
    StoreSettings,
    Thresholds,
)  # fmt: skip
from cluster.services import with_well_known
from cluster.threat_feeds import build_threat_feeds
from cluster.units import format_duration, format_size


def load_cluster(path: Path) -> Cluster:
    """Return the cluster that a file describes.

    Raises:
        ConfigError: the file cannot be read or has faults; it lists all of them.
    """
    return parse_cluster(read_text(path), str(path), path.parent)


def parse_cluster(text: str, source: str = "cluster.yaml", folder: Path = Path()) -> Cluster:
    """Return the cluster that YAML text describes.

    Args:
        text: the YAML.
        source: its name in errors.
        folder: what a relative `inventory` is relative to.

    Raises:
        ConfigError: the text has faults; it lists all of them.
    """
    faults = Faults(source)
    root = parse(text, faults)
    if root is None and not faults.problems:
        hint = "`clusterflow init` writes a first one"
        raise ConfigError(source, [Problem("", "an empty file", "the cluster's description", hint)])
    try:
        table = fields.ROOT.read(root or Mapping(), "", faults)
    except Bad:
        shown = root.shown() if root else "nothing"
        faults.add("", shown, "a mapping that begins with `cluster: NAME`")
        faults.raise_if_any()
        raise
    return _build(table, root, folder, faults)


def _build(table: Table, root: Value | None, folder: Path, faults: Faults) -> Cluster:
    groups = build_groups(table.get("groups", {}), faults)
    # A reference is good where the thing itself is broken: that is one fault, not two.
    group_ids, exporter_names = _names(root, "groups"), _names(root, "exporters")
    site = _site(table.get("site"), faults)
    cost = _settings(Cost, table.get("cost"))
    inventory = Inventory(groups, group_ids, faults)
    inventory.add_entries(table.get("nodes", {}))
    if table.get("inventory") is not None:
        inventory.add_file(folder / table["inventory"])
    nodes = inventory.nodes(cost)
    exporters = _exporters(table.get("exporters", {}), faults)
    jobs = build_jobs(table.get("jobs", []), tuple(node.name for node in nodes), site.time_zone, faults)
    bridge = _bridge(table.get("bridge"), faults)
    thresholds = _thresholds(table.get("thresholds"), bridge.window, faults)
    services = _services(table.get("services", {}), faults)
    cluster = Cluster(
        name=table.get("cluster", ""),
        groups=groups,
        site=site,
        nodes=nodes,
        exporters=exporters,
        allowed=_allowed(table.get("allowed", []), group_ids, faults),
        authority=_authority(table.get("authority", []), group_ids, exporter_names, faults),
        transport=_transport(table.get("transport", []), group_ids, faults),
        capacity=_capacity(table.get("capacity", []), group_ids, faults),
        inference=_inference(table, groups, group_ids, services, faults),
        identity=build_identity(table.get("identity"), folder, faults),
        management=_management(table.get("management"), group_ids, services, faults),
        artefacts=_artefacts(table.get("artefacts", {}), faults),
        services=services,
        jobs=jobs,
        job_sources=build_job_sources(table.get("job_sources", []), folder, faults),
        job_classes=build_job_classes(table.get("job_classes", {}), faults),
        thresholds=thresholds,
        cost=cost,
        store=_store(table.get("store"), faults),
        collector=_collector(table.get("collector"), faults),
        bridge=bridge,
        kafka=_kafka(table.get("kafka"), faults),
        notify=_notify(table.get("notify", {}), faults),
        grafana=_grafana(table.get("grafana"), faults),
        geography=build_geography(table.get("geography"), folder),
        delivery=build_delivery(table.get("delivery"), folder, faults),
        rules=_rules(table.get("rules", []), folder, faults),
        threat_feeds=build_threat_feeds(table.get("threat_feeds", {}), folder, faults),
        names=build_names(table.get("names"), folder),
        applications=build_applications(table.get("applications"), folder, faults),
        enrichment=build_list_settings(table.get("enrichment")),
    )
    faults.raise_if_any()
    return cluster


def _rules(paths: list[Placed[str]], folder: Path, faults: Faults) -> tuple[str, ...]:
    """Return the files with rules of the site's own; they are run by ``rules.registry``, not here."""
    found: list[str] = []
    for placed in paths:
        path = (folder / placed.value).resolve()
        if not _is_file(path):
            hint = "a relative path is relative to this file"
            faults.add(placed.path, placed.value, "a Python file with a rule", hint)
        elif str(path) in found:
            faults.add(placed.path, placed.value, "each file once")
        found.append(str(path))
    return tuple(found)


def _is_file(path: Path) -> bool:
    """Whether it is one that we may see: a service may be kept from folders."""
    try:
        return path.is_file()
    except OSError:
        return False


def _names(root: Value | None, section: str) -> list[str]:
    """Return the names that a section of the file has, whatever stands below them; also of one that is misspelt."""
    entries = root.entries if isinstance(root, Mapping) else {}
    keys = [key.name for key in fields.ROOT.keys]
    meant = [key for key in entries if key not in keys and closest(key, keys) == closest(section, keys)]
    found = entries.get(section, entries.get(meant[0]) if meant else None)
    return [*found.entries] if isinstance(found, Mapping) else []


def _settings(owner: Any, table: Table | None) -> Any:  # noqa: ANN401 - one builder for every flat section
    """Return a section whose keys are the fields of its class; bad ones get the default, since loading fails anyway."""
    return owner(**(table or {}))


def _site(table: Table | None, faults: Faults) -> Site:
    given = table or {}
    hours = given.get("off_hours") or {}
    named = {"start": hours.get("from"), "end": hours.get("to"), "weekends": hours.get("weekends")}
    off_hours = OffHours(**{name: value for name, value in named.items() if value is not None})
    if off_hours.start == off_hours.end:
        hint = "leave out off_hours for 23:00 to 06:00"
        faults.add("site.off_hours.to", f"{off_hours.end:%H:%M}", "another time than from", hint)
    zone = given.get("time_zone")
    return Site(off_hours=off_hours) if zone is None else Site(zone, off_hours)


def _exporters(tables: dict[str, Placed[Table]], faults: Faults) -> tuple[Exporter, ...]:
    exporters = []
    owners: dict[object, str] = {}
    for name, placed in tables.items():
        table = placed.value
        address = table.get("address")
        if address is not None and address in owners:
            faults.add(f"{placed.path}.address", str(address), "another address", f"{owners[address]} has it already")
        owners.setdefault(address, name)
        if "address" not in table or "protocol" not in table:
            continue
        protocol: ExportProtocol = table["protocol"]
        overhead = table.get("frame_overhead")
        exporters.append(
            Exporter(
                name,
                table["address"],
                protocol,
                table.get("sampling", Sampling()),
                table.get("counts", True),
                fields.FLOW_FRAME_OVERHEAD[protocol] if overhead is None else overhead,
                tuple(_interface(index, entry.value) for index, entry in table.get("interfaces", {}).items()),
                table.get("watched", True),
            )
        )
    return tuple(exporters)


def _interface(index: str, table: Table) -> Interface:
    speed, plane = table.get("speed"), table.get("plane")
    return Interface(int(index), table.get("name", ""), plane, table.get("counts", True), speed)


def _allowed(tables: list[Placed[Table]], groups: list[str], faults: Faults) -> tuple[GroupPair, ...]:
    pairs: dict[GroupPair, str] = {}
    for placed in tables:
        pair = _from_to(placed, groups, faults)
        if pair in pairs:
            faults.add(placed.path, f"{pair.src} to {pair.dst}", "each conversation once", f"{pairs[pair]} has it")
        elif pair is not None:
            pairs[pair] = placed.path
    return tuple(pairs)


def _from_to(placed: Placed[Table], groups: list[str], faults: Faults) -> GroupPair | None:
    for key in ("from", "to"):
        check_reference(placed.value.get(key), f"{placed.path}.{key}", groups, faults)
    src, dst = placed.value.get("from"), placed.value.get("to")
    return GroupPair(src, dst) if src is not None and dst is not None else None


def _between(placed: Placed[Table], groups: list[str], faults: Faults) -> GroupPair | None:
    """Return the pair that `between` names."""
    sides: list[Placed[str]] | None = placed.value.get("between")
    if sides is None:
        return None
    for side in sides:
        check_reference(side.value, side.path, groups, faults)
    if len(sides) != 2:
        faults.add(f"{placed.path}.between", f"{len(sides)} given", "two groups", "for one with itself name it twice")
        return None
    return GroupPair(sides[0].value, sides[1].value)


def _authority(
    tables: list[Placed[Table]], groups: list[str], exporters: list[str], faults: Faults
) -> tuple[Authority, ...]:
    found = []
    for placed in tables:
        table = placed.value
        for named in table.get("exporters", []):
            if named.value not in exporters:
                faults.add(named.path, named.value, "an exporter of this file", closest(named.value, exporters))
        names = tuple(named.value for named in table.get("exporters", []))
        given = [key for key in ("between", "from", "to") if table.get(key, ()) is not None]
        if given not in (["between"], ["from", "to"]):
            faults.add(placed.path, " and ".join(given) or "no groups", "either between, or from and to")
        elif given == ["between"]:
            pair = _between(placed, groups, faults)
            if pair is not None:
                found.append(Authority(pair, names))
                if pair.src != pair.dst:
                    found.append(Authority(GroupPair(pair.dst, pair.src), names))
        else:
            pair = _from_to(placed, groups, faults)
            if pair is not None:
                found.append(Authority(pair, names))
    return tuple(found)


def _transport(tables: list[Placed[Table]], groups: list[str], faults: Faults) -> tuple[DeclaredTransport, ...]:
    found = []
    seen: dict[frozenset[str], str] = {}
    for placed in tables:
        pair = _between(placed, groups, faults)
        if pair is None or "is" not in placed.value:
            continue
        sides = frozenset((pair.src, pair.dst))
        if sides in seen:
            faults.add(placed.path, f"{pair.src} and {pair.dst}", "each pair once", f"{seen[sides]} has it")
        seen.setdefault(sides, placed.path)
        found.append(DeclaredTransport(pair, placed.value["is"]))
    return tuple(found)


def _capacity(tables: list[Placed[Table]], groups: list[str], faults: Faults) -> tuple[PairLimit, ...]:
    found: dict[GroupPair, tuple[str, PairLimit]] = {}
    for placed in tables:
        pair = _from_to(placed, groups, faults)
        for key in ("from", "to"):
            if placed.value.get(key) == ANY:
                faults.add(f"{placed.path}.{key}", ANY, "one group", "a limit is that of one pair")
        if pair is None or "limit" not in placed.value:
            continue
        if pair in found:
            faults.add(placed.path, f"{pair.src} to {pair.dst}", "each pair once", f"{found[pair][0]} has it")
        else:
            found[pair] = placed.path, PairLimit(pair, placed.value["limit"])
    return tuple(limit for _, limit in found.values())


def _inference(
    root: Table, groups: tuple[Group, ...], group_ids: list[str], services: tuple[Service, ...], faults: Faults
) -> Inference:
    given = root.get("inference") or {}
    sources: list[Placed[str]] = given.get("sources") or []
    for source in sources:
        check_reference(source.value, source.path, group_ids, faults)
        if source.value == ANY:
            faults.add(source.path, ANY, "a group", "leave out sources: then `allowed` decides")
    ids = tuple(dict.fromkeys(source.value for source in sources))
    access = build_access(root, groups, group_ids, services, faults)
    return Inference(build_hours(given.get("hours"), "inference.hours", faults), ids, access)


def _management(table: Table | None, groups: list[str], services: tuple[Service, ...], faults: Faults) -> Management:
    given = table or {}
    sources: list[Placed[str]] = given.get("sources") or []
    for source in sources:
        check_reference(source.value, source.path, groups, faults)
        if source.value == ANY:
            faults.add(source.path, ANY, "a group", "it would let everyone open everything there")
    ids = tuple(dict.fromkeys(source.value for source in sources))
    listed: list[Placed[str]] | None = given.get("services")
    if listed is None:
        return Management(sources=ids)
    known = {service.name for service in services}
    for service in listed:
        if service.value not in known:
            expected = "a service of this file or a well-known one"
            faults.add(service.path, service.value, expected, closest(service.value, known))
    return Management(tuple(dict.fromkeys(service.value for service in listed)), ids)


def _artefacts(tables: dict[str, Placed[int]], faults: Faults) -> tuple[Artefact, ...]:
    """Return them by size. Two of one size could not be told apart by a volume."""
    found: dict[int, str] = {}
    for name, placed in tables.items():
        if placed.value in found:
            faults.add(placed.path, format_size(placed.value), "another size", f"{found[placed.value]} has it already")
        found.setdefault(placed.value, name)
    return tuple(Artefact(name, size) for size, name in sorted(found.items()))


def _services(tables: dict[str, Placed[list[Placed[Table]]]], faults: Faults) -> tuple[Service, ...]:
    own = []
    owners: dict[tuple[int, int], str] = {}
    for name, placed in tables.items():
        for part in placed.value:
            table = part.value
            ports = [port for run in table.get("ports", []) for port in range(run.value[0], run.value[1] + 1)]
            protocols = _protocols(table)
            for run in table.get("ports", []):
                pairs = [(protocol, port) for protocol in protocols for port in range(run.value[0], run.value[1] + 1)]
                taken = next((pair for pair in pairs if pair in owners), None)
                if taken is not None:
                    hint = f"{owners[taken]} has it already"
                    faults.add(run.path, str(taken[1]), "each port of a protocol once", hint)
                owners |= dict.fromkeys(pairs, name)
            own.append(Service(name, tuple(ports), protocols))
    return with_well_known(tuple(own))


def _protocols(table: Table) -> tuple[int, ...]:
    if "protocols" not in table:
        return ()
    given: list[Placed[int]] | None = table["protocols"]
    return Service("", ()).protocols if given is None else tuple(item.value for item in given)


def _thresholds(table: Table | None, window: int, faults: Faults) -> Thresholds:
    thresholds: Thresholds = _settings(Thresholds, table)
    if thresholds.dropout_max_runs < thresholds.dropout_min_runs:
        expected = f"at least dropout_min_runs, {thresholds.dropout_min_runs}"
        faults.add("thresholds.dropout_max_runs", str(thresholds.dropout_max_runs), expected)
    windows = ("exfil_window", "threat_window", "off_hours_window", "inference_window", "flow_loss_window")
    for name in (*windows, "violation_window", "new_network_window"):
        length = getattr(thresholds, name)
        if length % window:
            expected = f"a multiple of bridge.window, {format_duration(window)}"
            faults.add(f"thresholds.{name}", format_duration(length), expected)
    return thresholds


def _check_pair(section: str, given: Table, faults: Faults) -> None:
    """Record a user without a password, or the other way round."""
    for key, other in (("username", "password"), ("password", "username")):
        if given.get(key) is not None and given.get(other, "") is None:
            faults.add(f"{section}.{other}", "missing", f"a {other}, as {key} is given")


def _grafana(table: Table | None, faults: Faults) -> GrafanaSettings:
    _check_pair("grafana", table or {}, faults)
    return GrafanaSettings(**(table or {}))


def _store(table: Table | None, faults: Faults) -> StoreSettings:
    given = dict(table or {})
    keep = given.pop("retention", None) or {}
    named = {"keep_raw": keep.get("raw"), "keep_1m": keep.get("1m"), "keep_1h": keep.get("1h")}
    _check_pair("store", given, faults)
    return StoreSettings(**given, **{name: value for name, value in named.items() if value is not None})


def _collector(table: Table | None, faults: Faults) -> CollectorSettings:
    given = dict(table or {})
    if "listen" in given:
        given["listen"] = str(given["listen"])
    sources: list[Placed[Network]] = given.pop("sflow_sources", [])
    collector = CollectorSettings(**given, sflow_sources=tuple(dict.fromkeys(source.value for source in sources)))
    if collector.netflow_port == collector.sflow_port:
        faults.add("collector.sflow_port", str(collector.sflow_port), "another port than netflow_port")
    return collector


def _bridge(table: Table | None, faults: Faults) -> BridgeSettings:
    given = dict(table or {})
    if given.get("metrics_listen") == "off":
        given["metrics_listen"] = None
    bridge = BridgeSettings(**given)
    if 60 % bridge.window:
        expected = "a length that divides a minute: 1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30 or 60 seconds"
        faults.add("bridge.window", format_duration(bridge.window), expected)
    if bridge.grace < bridge.window:
        expected = f"at least bridge.window, {format_duration(bridge.window)}"
        faults.add("bridge.grace", format_duration(bridge.grace), expected)
    return bridge


def _kafka(table: Table | None, faults: Faults) -> KafkaSettings:
    given = dict(table or {})
    brokers: list[Placed[str]] = given.pop("brokers", [])
    for pair in (("username", "password"), ("certificate_file", "key_file")):
        for key, other in (pair, pair[::-1]):
            if given.get(key) is not None and given.get(other, "") is None:
                faults.add(f"kafka.{other}", "missing", f"a {other}, as {key} is given")
    kafka = KafkaSettings(**given, brokers=tuple(dict.fromkeys(broker.value for broker in brokers)))
    for key in ("ca_file", "certificate_file"):
        if getattr(kafka, key) is not None and not kafka.tls:
            faults.add("kafka.tls", "false", f"true, as {key} is given")
            break
    if kafka.state_topic in (kafka.topic, kafka.relays_topic):
        faults.add("kafka.state_topic", kafka.state_topic, f"another topic than {kafka.topic} and {kafka.relays_topic}")
    return kafka


def _notify(tables: dict[str, Placed[Table]], faults: Faults) -> tuple[NotificationTarget, ...]:
    targets = []
    for name, placed in tables.items():
        table = placed.value
        kind = table.get("type")
        if kind is None:
            continue
        channel = fields.CHANNELS[kind]
        if channel.needs and not any(all(table.get(key, "") is not None for key in keys) for keys in channel.needs):
            faults.add(placed.path, f"not enough for {kind}", one_of(" and ".join(keys) for keys in channel.needs))
        given = [(grafana, table[key]) for key, grafana in channel.grafana.items() if table.get(key) is not None]
        targets.append(
            NotificationTarget(
                name,
                kind,
                tuple((setting, _plain(value)) for setting, value in given if not isinstance(value, Secret)),
                tuple((setting, value) for setting, value in given if isinstance(value, Secret)),
                tuple(severity.value for severity in table.get("severities", [])),
            )
        )
    return tuple(targets)


def _plain(value: str | list[Placed[str]]) -> str:
    """Return a setting as Grafana takes it."""
    return value if isinstance(value, str) else fields.MAIL_SEPARATOR.join(item.value for item in value)
