"""cluster.yaml -> `Cluster`, or every fault in it at once."""

import csv
from dataclasses import replace
from pathlib import Path

from app.errors import ConfigError, Problem
from cluster.document import Faults, Mapping, Value, parse, read_text
from cluster.model import ROOT, Cluster
from cluster.scalars.declared import places
from cluster.scalars.kinds import Bad, Placed, Table, closest
from cluster.sections.bridge import BridgeSettings, build_bridge
from cluster.sections.cloud import CLOUD
from cluster.sections.collector import build_collector
from cluster.sections.delivery import build_delivery
from cluster.sections.enrichment import build_applications, build_names
from cluster.sections.grafana import build_grafana, build_notify
from cluster.sections.identity import build_identity
from cluster.sections.inventory_sources import INVENTORY, InventorySettings, check_inventory
from cluster.sections.job_classes import build_job_classes
from cluster.sections.job_sources import build_job_sources
from cluster.sections.jobs import build_jobs
from cluster.sections.kafka import build_kafka
from cluster.sections.network.exporters import build_exporters, expanded
from cluster.sections.network.groups import build_groups
from cluster.sections.network.inference import build_inference
from cluster.sections.network.inventory import Inventory
from cluster.sections.network.kept_inventory import Machine, SourceInUse, kept_file, machines_of
from cluster.sections.network.management import build_artefacts, build_management
from cluster.sections.network.pairs import build_allowed, build_authority, build_capacity, build_transport
from cluster.sections.network.services import build_services
from cluster.sections.network.site import COST, build_site
from cluster.sections.store import build_store
from cluster.sections.threat_feeds import build_threat_feeds
from cluster.sections.thresholds import build_thresholds


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
    faults = Faults(source, places(ROOT))
    root = parse(text, faults)
    if root is None and not faults.problems:
        hint = "`clusterflow init` writes a first one"
        raise ConfigError(source, [Problem("", "an empty file", "the cluster's description", hint)])
    try:
        table = ROOT.read(root or Mapping(), "", faults)
    except Bad:
        shown = root.shown() if root else "nothing"
        faults.add("", shown, "a mapping that begins with `cluster: NAME`")
        faults.raise_if_any()
        raise
    return _build(table, root, folder, faults)


def _build(table: Table, root: Value | None, folder: Path, faults: Faults) -> Cluster:
    """Return the cluster. Sections that need no check of their own are built from the table as they are."""
    state = Path((table.get("bridge") or {}).get("state") or BridgeSettings().state)
    groups = build_groups(table.get("groups", {}), folder, state / "prefixes", faults)
    # A reference is good where the thing itself is broken: that is one fault, not two.
    group_ids, exporter_names = _names(root, "groups"), expanded(_names(root, "exporters"))
    inventory = Inventory(groups, group_ids, faults)
    inventory.add_entries(table.get("nodes", {}))
    elsewhere = table.get("inventory") or {}
    if elsewhere.get("file") is not None:
        inventory.add_file(folder / elsewhere["file"])
    cloud = CLOUD.build(table.get("cloud"))
    bridge = build_bridge(table.get("bridge"), faults, is_cloud=cloud.format is not None)
    check_inventory(elsewhere, faults)
    settings: InventorySettings = INVENTORY.build(elsewhere, folder)
    sources = _add_sources(inventory, settings, state / "inventory")
    nodes = inventory.nodes(COST.build(table.get("cost")))
    node_names = tuple(node.name for node in nodes)
    known = {"groups": group_ids, "nodes": node_names, "exporters": exporter_names}
    gone: list[str] | None = [] if sources else None
    site = build_site(table.get("site"), known, faults, gone)
    jobs = build_jobs(table.get("jobs", []), node_names, site.time_zone, faults, gone)
    if gone:
        sources = (*sources[:-1], replace(sources[-1], conflicts=(*sources[-1].conflicts, *gone)))
    services = build_services(table.get("services", {}), faults)
    checked = {
        "groups": groups,
        "site": site,
        "nodes": nodes,
        "inventory": settings,
        "sources": sources,
        "exporters": build_exporters(table.get("exporters", {}), faults),
        "allowed": build_allowed(table.get("allowed", []), group_ids, faults),
        "authority": build_authority(table.get("authority", []), group_ids, exporter_names, faults),
        "transport": build_transport(table.get("transport", []), group_ids, faults),
        "capacity": build_capacity(table.get("capacity", []), group_ids, faults),
        "inference": build_inference(table, groups, group_ids, services, faults),
        "identity": build_identity(table.get("identity"), folder, faults),
        "management": build_management(table.get("management"), group_ids, services, faults),
        "artefacts": build_artefacts(table.get("artefacts", {}), faults),
        "services": services,
        "jobs": jobs,
        "job_sources": build_job_sources(table.get("job_sources") or [], folder, faults),
        "job_classes": build_job_classes(table.get("job_classes", {}), faults),
        "thresholds": build_thresholds(table.get("thresholds"), bridge.window, faults),
        "store": build_store(table.get("store"), faults),
        "collector": build_collector(table.get("collector"), faults),
        "cloud": cloud,
        "bridge": bridge,
        "kafka": build_kafka(table.get("kafka"), faults),
        "notify": build_notify(table.get("notify", {}), faults),
        "grafana": build_grafana(table.get("grafana"), faults),
        "delivery": build_delivery(table.get("delivery"), folder, faults),
        "rules": _own_files(table.get("rules", []), "a Python file with a rule", folder, faults),
        "boards": _own_files(table.get("boards", []), "a Python file with boards", folder, faults),
        "threat_feeds": build_threat_feeds(table.get("threat_feeds", {}), folder, faults),
        "names": build_names(table.get("names"), folder),
        "applications": build_applications(table.get("applications"), folder, faults),
    }
    faults.raise_if_any()
    rest = {name: value for name, value in table.items() if name not in checked}
    cluster: Cluster = ROOT.build(rest, folder, made=checked)
    return cluster


def _add_sources(inventory: Inventory, settings: InventorySettings, folder: Path) -> tuple[SourceInUse, ...]:
    """Add what each source told last; nothing where one was never asked."""
    found = []
    for one in settings.sources:
        path = kept_file(folder, one.name)
        machines: list[Machine] = []
        trouble: tuple[str, ...] = ()
        try:
            machines = machines_of(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            trouble = ("has not answered yet: `clusterflow inventory` asks it",)
        except (OSError, ValueError, csv.Error) as error:
            trouble = (f"{path}: {error}",)
        used = inventory.add_source(one.name, machines, settings.networks)
        found.append(replace(used, conflicts=(*trouble, *used.conflicts)))
    return tuple(found)


def _own_files(paths: list[Placed[str]], expected: str, folder: Path, faults: Faults) -> tuple[str, ...]:
    """Return files with rules or boards of the site's own; they are run by ``cluster.own_code``, not here."""
    found: list[str] = []
    for placed in paths:
        path = (folder / placed.value).resolve()
        if not _is_file(path):
            hint = "a relative path is relative to this file"
            faults.add(placed.path, placed.value, expected, hint)
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
    keys = [key.name for key in ROOT.keys]
    meant = [key for key in entries if key not in keys and closest(key, keys) == closest(section, keys)]
    found = entries.get(section, entries.get(meant[0]) if meant else None)
    return [*found.entries] if isinstance(found, Mapping) else []
