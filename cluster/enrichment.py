"""Names and applications of outside addresses, and when lists are too old, from cluster.yaml."""

from pathlib import Path

from cluster.document import Faults
from cluster.kinds import Placed, Table
from cluster.model import (
    ApplicationFile,
    ApplicationFormat,
    Applications,
    HostNaming,
    ListSettings,
    NamesFile,
    NamesFormat,
    ReverseDns,
)

_BY_SUFFIX = {".csv": NamesFormat.CSV, ".json": NamesFormat.JSON}
_PUBLISHED = {
    ApplicationFormat.AWS: "AWS",
    ApplicationFormat.GOOGLE: "Google Cloud",
    ApplicationFormat.AZURE: "Azure",
    ApplicationFormat.FASTLY: "Fastly",
}
"""What addresses are that a provider publishes, where cluster.yaml does not say it."""


def build_list_settings(table: Table | None) -> ListSettings:
    """Return the limits; defaults where the file gives none."""
    given = dict(table or {})
    by_list: dict[str, Placed[int]] = given.pop("lists", None) or {}
    return ListSettings(**given, by_list=tuple((name, placed.value) for name, placed in by_list.items()))


def build_names(table: Table | None, folder: Path) -> HostNaming:
    """Return where names come from; a relative path is relative to `folder`."""
    given = table or {}
    tables: dict[str, Placed[Table]] = given.get("files") or {}
    files = []
    for name, placed in tables.items():
        entry = dict(placed.value)
        if "file" not in entry:
            continue
        by_suffix = _BY_SUFFIX.get(Path(entry["file"]).suffix.lower(), NamesFormat.HOSTS)
        entry["format"] = entry.get("format") or by_suffix
        files.append(NamesFile(name, **entry | {"file": _path(folder, entry["file"])}))
    dns: Table | None = given.get("reverse_dns")
    if dns is None or "resolvers" not in dns:
        return HostNaming(tuple(files))
    resolvers = tuple(dict.fromkeys(placed.value for placed in dns["resolvers"]))
    return HostNaming(tuple(files), ReverseDns(**dns | {"resolvers": resolvers}))


def build_applications(table: Table | None, folder: Path, faults: Faults) -> Applications:
    """Return who tells what addresses are, and record files of which nothing says it.

    Args:
        table: what the file says.
        folder: what relative paths are relative to.
        faults: added to.
    """
    given = table or {}
    tables: dict[str, Placed[Table]] = given.get("files") or {}
    files = []
    for name, placed in tables.items():
        entry = placed.value
        form = entry.get("format")
        told = entry.get("application")
        if form is ApplicationFormat.PREFIXES and told is None and "application" in entry:
            faults.add(f"{placed.path}.application", "missing", "what the addresses are, such as model hub")
        if form is ApplicationFormat.LIST and told is not None:
            faults.add(f"{placed.path}.application", told, "none", "a list says it for each of its entries")
        if "file" in entry and form is not None:
            files.append(ApplicationFile(name, _path(folder, entry["file"]), form, told or _PUBLISHED.get(form, "")))
    return Applications(bool(given.get("builtin")), tuple(files))


def _path(folder: Path, path: str) -> str:
    # Links stay as they are: whoever updates such files often turns one from the old to the new.
    return str((folder / path).absolute())
