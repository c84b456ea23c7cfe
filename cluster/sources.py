"""The files that describe a cluster: cluster.yaml and those it names. What others write meanwhile is not among them."""

from pathlib import Path

from app.errors import ConfigError
from cluster.document import Faults, parse, read_text
from cluster.model import INVENTORY, ROOT, BridgeSettings, DeliverySettings, InventorySettings
from cluster.scalars.kinds import Bad, Table
from cluster.sections.network.kept_inventory import kept_file

OWN = "rules", "boards"
"""Keys whose values are files, relative to cluster.yaml's folder."""


def files_of(path: Path) -> list[Path]:
    """Return cluster.yaml itself, then its inventory, files with prefixes, rules and boards, as they are named there.

    Raises:
        ConfigError: it cannot be read. Faults are `load_cluster`'s to tell: what they hide is not returned.
    """
    table = _table(path)
    named = [_csv(table), *_prefixes(table), *_own(table)]
    return [path, *(path.parent / name for name in named if name)]


def watched_of(path: Path) -> list[Path]:
    """Return files with prefixes, and last answers of inventory sources; ConfigError if there is no cluster.yaml."""
    settings, folder = inventory_of(path)
    kept = [kept_file(folder, one.name) for one in settings.sources]
    return [*(path.parent / name for name in _prefixes(_table(path))), *kept]


def inventory_of(path: Path) -> tuple[InventorySettings, Path]:
    """Return who else knows nodes and where their answers are kept, also where other sections have faults.

    Raises:
        ConfigError: the file cannot be read.
    """
    settings: InventorySettings = INVENTORY.build(_table(path).get("inventory"), path.parent)
    return settings, Path(state_of(path)) / "inventory"


def named_in(text: str, source: str) -> set[str]:
    """Return the small files that a cluster.yaml names, as it names them: all that `files_of` has, certificates, lists.

    Args:
        text: the YAML; what is at fault in it names nothing.
        source: its name in errors.

    Raises:
        ConfigError: it is no YAML.
    """
    table = _read(text, source)
    destinations = (table.get("delivery") or {}).get("destinations") or {}
    nodes = (table.get("inventory") or {}).get("sources") or {}
    others = (placed.value for placed in (*destinations.values(), *nodes.values()))
    settings = [table.get("store"), table.get("kafka"), *others]
    certificates = [(one or {}).get(key) for one in settings for key in ("ca_file", "certificate_file")]
    sections = [(table.get(name) or {}).get("files") or {} for name in ("names", "applications")]
    lists = [placed.value.get("file") for files in sections for placed in files.values()]
    return {str(name) for name in (_csv(table), *_prefixes(table), *_own(table), *certificates, *lists) if name}


def _prefixes(table: Table) -> list[str]:
    groups = [placed.value for placed in (table.get("groups") or {}).values()]
    return [
        placed.value["file"]
        for group in groups
        for placed in group.get("prefixes_from") or []
        if "file" in placed.value
    ]


def _csv(table: Table) -> str | None:
    name: str | None = (table.get("inventory") or {}).get("file")
    return name


def _own(table: Table) -> list[str]:
    return [placed.value for key in OWN for placed in table.get(key) or []]


def state_of(path: Path) -> Path:
    """Return `bridge.state` of a cluster.yaml whose other files need not be there.

    Raises:
        ConfigError: it cannot be read.
    """
    given = _table(path).get("bridge") or {}
    return Path(given.get("state", BridgeSettings().state))


def delivery_state_of(path: Path) -> Path:
    """Return `delivery.state`, as `state_of` does `bridge.state`.

    Raises:
        ConfigError: it cannot be read.
    """
    given = _table(path).get("delivery") or {}
    return Path(given.get("state", DeliverySettings().state))


def _table(path: Path) -> Table:
    return _read(read_text(path), str(path))


def _read(text: str, source: str) -> Table:
    faults = Faults(source)
    root = parse(text, faults)
    try:
        return {} if root is None else ROOT.read(root, "", faults)
    except (Bad, ConfigError):
        return {}
