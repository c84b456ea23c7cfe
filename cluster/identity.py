"""Sections `identity` and `inference.access` of cluster.yaml: who has which address, and who may ask inference."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cluster.document import Faults
from cluster.groups import check_reference
from cluster.kinds import Placed, Table, closest
from cluster.model import (
    ANY,
    AccessEntry,
    Group,
    IdentitySettings,
    InferenceHours,
    Role,
    Service,
    SignInColumns,
    SignInFormat,
    SignInSource,
)

_MAPPED = (SignInFormat.CSV, SignInFormat.JSON)
"""Formats whose columns cluster.yaml names."""


def build_identity(table: Table | None, folder: Path, faults: Faults) -> IdentitySettings:
    """Return the section, paths relative to `folder`."""
    given = table or {}
    sources: list[Placed[Table]] = given.get("sources", [])
    owners: dict[str, str] = {}
    found = []
    for placed in sources:
        source = placed.value
        kind: SignInFormat | None = source.get("format")
        if kind is None or "path" not in source:
            continue
        name = source.get("name") or kind.value
        if name in owners:
            faults.add(placed.path, name, "another name", f"{owners[name]} has it; give each a name of its own")
        owners.setdefault(name, placed.path)
        _check_columns(kind, placed, faults)
        columns: Table = source.get("columns") or {}
        complete = {"address", "user", "time"} <= columns.keys()
        found.append(
            SignInSource(
                name,
                kind,
                str(folder / source["path"]),
                source.get("hold"),
                source.get("time_zone"),
                SignInColumns(**columns) if complete else None,
                _texts(source.get("starts")),
                _texts(source.get("stops")),
            )
        )
    settings = IdentitySettings(
        tuple(found),
        domains=_texts(given.get("domains")),
        shared=tuple(item.value for item in given.get("shared", [])),
        pseudonymise=given.get("pseudonymise"),
    )
    return replace(settings, **{key: given[key] for key in ("hold", "delay") if key in given})


def build_hours(table: Table | None, path: str, faults: Faults) -> InferenceHours | None:
    """Return hours of inference; None where none are given."""
    given = table or {}
    if given.get("from") is None or given.get("to") is None:
        return None
    if given["from"] == given["to"]:
        hint = "leave out hours where clients come at any time"
        faults.add(f"{path}.to", f"{given['to']:%H:%M}", "another time than from", hint)
    weekends = given.get("weekends")
    return InferenceHours(given["from"], given["to"], True if weekends is None else weekends)


def build_access(
    root: Table, groups: Sequence[Group], group_ids: Sequence[str], services: Sequence[Service], faults: Faults
) -> tuple[AccessEntry, ...]:
    """Return the entries of `inference.access`.

    Args:
        root: what the whole file says: users need sign-ins, countries need a file that tells them.
        groups: all groups.
        group_ids: what groups may be called, broken ones included.
        services: all services.
        faults: added to.
    """
    inference = {group.id for group in groups if group.role is Role.INFERENCE}
    broken = set(group_ids) - {group.id for group in groups}
    known = {service.name for service in services}
    entries: list[Placed[Table]] = (root.get("inference") or {}).get("access") or []
    found = []
    for placed in entries:
        given = placed.value
        for source in given.get("from") or []:
            check_reference(source.value, source.path, list(group_ids), faults)
        for destination in given.get("to") or []:
            if destination.value not in inference | broken:
                hint = closest(destination.value, inference)
                faults.add(destination.path, destination.value, "a group of role inference", hint)
        for service in given.get("services") or []:
            if service.value not in known:
                expected = "a service of this file or a well-known one"
                faults.add(service.path, service.value, expected, closest(service.value, known))
        if given.get("users") and not (root.get("identity") or {}).get("sources"):
            hint = "without sign-ins no user is ever known"
            faults.add(f"{placed.path}.users", "given", "identity.sources", hint)
        if given.get("countries") and not root.get("geography"):
            hint = "without it no country is ever known"
            faults.add(f"{placed.path}.countries", "given", "the section geography", hint)
        sources = _texts(given.get("from"))
        found.append(
            AccessEntry(
                () if ANY in sources else sources,
                _texts(given.get("users")),
                _texts(given.get("countries")),
                _texts(given.get("to")),
                _texts(given.get("services")),
                build_hours(given.get("hours"), f"{placed.path}.hours", faults),
            )
        )
    return tuple(found)


def _check_columns(kind: SignInFormat, placed: Placed[Table], faults: Faults) -> None:
    """Record columns that are missing, or that nobody reads."""
    source = placed.value
    columns = source.get("columns", {})
    if kind in _MAPPED and columns is None:
        faults.add(f"{placed.path}.columns", "missing", "names of the columns address, user and time")
    if kind not in _MAPPED:
        for key in ("columns", "starts", "stops"):
            if source.get(key):
                faults.add(f"{placed.path}.{key}", "given", f"nothing: {kind.value} knows its own", "leave it out")
    elif columns and columns.get("event") is None and (source.get("starts") or source.get("stops")):
        faults.add(f"{placed.path}.columns.event", "missing", "the column that starts and stops look at")


def _texts(items: list[Placed[str]] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.value for item in items or []))
