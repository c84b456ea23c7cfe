"""Nodes: from ``nodes:`` with its numbered ranges, and from a CSV inventory."""

import csv
import io
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster import fields, names
from cluster.document import Faults, Scalar, read_text
from cluster.errors import ConfigError
from cluster.groups import GroupTable, check_reference
from cluster.kinds import Bad, Placed, Table, closest, one_of
from cluster.model import Cost, Group, Node, NodeAddress, Role
from cluster.ranges import expand, has_range

COLUMNS = ("name", "group", "address", "plane", "rail", "gpus")
REQUIRED_COLUMNS = COLUMNS[:3]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node or an address stands: a YAML path, or a line of the inventory."""

    path: str
    file: str = ""
    line: int = 0

    def add(self, faults: Faults, value: str, expected: str, hint: str = "") -> None:
        if self.file:
            faults.add_elsewhere(self.file, self.line, self.path, value, expected, hint)
        else:
            faults.add(self.path, value, expected, hint)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else self.path


@dataclass(slots=True)
class _Draft:
    """A node being read: each address with its place."""

    place: _Place
    group: str
    gpus: int | None
    addresses: list[tuple[_Place, NodeAddress]]


def build_nodes(
    tables: dict[str, Placed[Table]],
    inventory: Path | None,
    groups: tuple[Group, ...],
    group_ids: list[str],
    cost: Cost,
    faults: Faults,
) -> tuple[Node, ...]:
    """Return the nodes of both sources, the file's first, and record what is wrong with any.

    `group_ids` are all ids of the file, those of faulty groups included: `groups` has only the whole ones.
    """
    drafts: dict[str, _Draft] = {}
    for pattern, placed in tables.items():
        _read_entry(pattern, placed, group_ids, drafts, faults)
    if inventory is not None:
        _read_inventory(inventory, group_ids, drafts, faults)
    _check_addresses(drafts, groups, faults)
    training = {group.id for group in groups if group.role is Role.TRAINING}
    return tuple(
        Node(name, draft.group, tuple(address for _, address in draft.addresses), _gpus(draft, training, cost))
        for name, draft in drafts.items()
    )


def _gpus(draft: _Draft, training: set[str], cost: Cost) -> int:
    if draft.gpus is not None:
        return draft.gpus
    return cost.gpus_per_node if draft.group in training else 0


def _read_entry(
    pattern: str, placed: Placed[Table], group_ids: list[str], drafts: dict[str, _Draft], faults: Faults
) -> None:
    """Add the nodes of one entry of ``nodes:``; a range in an address counts with the name's."""
    table = placed.value
    place = _Place(placed.path)
    check_reference(table.get("group"), f"{placed.path}.group", group_ids, faults)
    node_names = expand(pattern)
    columns = [
        column
        for address in table.get("addresses", ())
        if (column := _address_column(address, pattern, len(node_names), faults))
    ]
    for index, name in enumerate(node_names):
        if name in drafts:
            place.add(faults, name, "each node once", f"{drafts[name].place} has it already")
        elif "group" in table:
            addresses = [column[index] for column in columns]
            drafts[name] = _Draft(place, table["group"], table.get("gpus"), addresses)


def _address_column(
    placed: Placed[Table], pattern: str, count: int, faults: Faults
) -> list[tuple[_Place, NodeAddress]]:
    """Return one address for each node of the entry; nothing where they do not match up."""
    table = placed.value
    if "address" not in table:
        return []
    texts = expand(table["address"])
    if len(texts) != count:
        hint = f"{pattern} stands for {count:,}" if has_range(pattern) else f"{pattern} has no range"
        shown = f"{table['address']} ({len(texts):,})"
        faults.add(placed.path, shown, f"{count:,} address{'es' if count > 1 else ''}", hint)
        return []
    place = _Place(placed.path)
    return [(place, NodeAddress(ipaddress.ip_address(text), table.get("plane"), table.get("rail"))) for text in texts]


def _check_addresses(drafts: dict[str, _Draft], groups: tuple[Group, ...], faults: Faults) -> None:
    """Record addresses of two nodes, and those that the prefixes give to another group than the node's."""
    table = GroupTable(groups)
    known = {group.id for group in groups}
    owners: dict[str, str] = {}
    for name, draft in drafts.items():
        for place, node_address in draft.addresses:
            shown = str(node_address.address)
            if shown in owners:
                place.add(faults, shown, "an address of one node only", f"{owners[shown]} and {name} both have it")
            owners.setdefault(shown, name)
            actual = table.group_of(node_address.address)
            if draft.group in known and actual != draft.group:
                hint = f"it belongs to group {actual}" if actual else "it is in no group's prefixes"
                place.add(faults, shown, f"an address in the prefixes of group {draft.group}", hint)


def _read_inventory(path: Path, group_ids: list[str], drafts: dict[str, _Draft], faults: Faults) -> None:
    """Add the nodes of a CSV inventory: a row an address, rows of one name fold into one node."""
    file = str(path)
    try:
        text = read_text(path)
    except ConfigError as error:
        (problem,) = error.problems
        faults.add("inventory", file, "a CSV file", problem.value)
        return
    from_file: dict[str, _Draft] = {}
    for line, row in _rows(file, text, faults):
        _read_row(file, line, row, group_ids, drafts, from_file, faults)
    drafts |= from_file


def _rows(file: str, text: str, faults: Faults) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line and cells of each row, by column; blank lines and ``#`` comments are skipped."""
    reader = csv.reader(io.StringIO(text), strict=True, skipinitialspace=True)
    header: list[str] = []
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if not any(stripped) or stripped[0].startswith("#"):
                continue
            if not header:
                header = stripped
                if not _good_header(file, reader.line_num, header, faults):
                    return
            elif len(stripped) > len(header):
                shown = f"{len(stripped)} columns"
                faults.add_elsewhere(file, reader.line_num, "", shown, f"{len(header)} columns, as in the header")
            else:
                yield reader.line_num, dict(zip(header, stripped, strict=False))
    except csv.Error as error:
        faults.add_elsewhere(file, reader.line_num, "", "this line", "CSV", str(error))
    if not header:
        faults.add_elsewhere(file, 0, "", "an empty file", f"a header with {one_of(REQUIRED_COLUMNS)}")


def _good_header(file: str, line: int, header: list[str], faults: Faults) -> bool:
    before = len(faults.problems)
    for name in header:
        if name not in COLUMNS:
            faults.add_elsewhere(file, line, "header", name or "an empty name", one_of(COLUMNS), closest(name, COLUMNS))
        elif header.count(name) > 1:
            faults.add_elsewhere(file, line, "header", name, "each column once")
    for name in REQUIRED_COLUMNS:
        if name not in header:
            faults.add_elsewhere(
                file, line, "header", f"no column {name}", f"the columns {', '.join(REQUIRED_COLUMNS)}"
            )
    return len(faults.problems) == before


def _read_row(
    file: str,
    line: int,
    row: dict[str, str],
    group_ids: list[str],
    drafts: dict[str, _Draft],
    from_file: dict[str, _Draft],
    faults: Faults,
) -> None:
    cells: Table = {}
    for column in COLUMNS:
        text = row.get(column, "")
        if text or column in REQUIRED_COLUMNS:
            try:
                cells[column] = _CELLS[column].read(Scalar(text, line=line), "", faults)
            except Bad as bad:
                expected = bad.expected or _CELLS[column].expected
                faults.add_elsewhere(file, line, column, text or "nothing", expected, bad.hint)
    if "group" in cells and cells["group"] not in group_ids:
        hint = closest(cells["group"], group_ids)
        faults.add_elsewhere(file, line, "group", cells.pop("group"), "a group of cluster.yaml", hint)
    if not all(column in cells for column in REQUIRED_COLUMNS):
        return
    name, place = cells["name"], _Place("address", file, line)
    if name in drafts:
        faults.add_elsewhere(file, line, "name", name, "each node in one place", f"{drafts[name].place} has it already")
        return
    draft = from_file.setdefault(name, _Draft(_Place("name", file, line), cells["group"], cells.get("gpus"), []))
    for column, first in (("group", draft.group), ("gpus", draft.gpus)):
        if cells.get(column, first) != first:
            hint = f"line {draft.place.line} says so"
            faults.add_elsewhere(file, line, column, str(cells[column]), f"{first} as in the node's first row", hint)
    draft.addresses.append((place, NodeAddress(cells["address"], cells.get("plane"), cells.get("rail"))))


_CELLS = {
    "name": names.NODE_NAME,
    "group": names.GROUP_ID,
    "address": names.ADDRESS,
    **{key.name: key.kind for section in (fields.NODE_ADDRESS, fields.NODE) for key in section.keys
       if key.name in {"plane", "rail", "gpus"}},
}  # fmt: skip
