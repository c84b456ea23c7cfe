"""Nodes: from ``nodes:`` with its numbered ranges, from a CSV inventory, and from what sources told last."""

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.csv_rows import CsvError, csv_rows
from app.errors import ConfigError, Problem
from app.words import some
from cluster.document import Faults, Scalar, child, read_text
from cluster.scalars import names
from cluster.scalars.kinds import Bad, Kind, Placed, Table, closest, one_of
from cluster.scalars.ranges import braced, ends, expand, has_range
from cluster.sections.inventory_sources import RailNetwork
from cluster.sections.network.groups import Group, GroupTable, Role, check_reference
from cluster.sections.network.kept_inventory import Machine, SourceInUse
from cluster.sections.network.nodes import NODE, NODE_ADDRESS, Node, NodeAddress
from cluster.sections.network.site import Cost
from cluster.vocabulary import Address, Network

REQUIRED_COLUMNS = ("name", "group", "address")
_FIELD_KINDS = {key.name: key.kind for section in (NODE_ADDRESS, NODE) for key in section.keys}
COLUMNS: dict[str, Kind[Any]] = {
    "name": names.NODE_NAME,
    "group": names.GROUP_ID,
    "address": names.ADDRESS,
    **{name: _FIELD_KINDS[name] for name in ("plane", "rail", "gpus", "speed")},
}
"""Columns of the CSV inventory, and what their cells are."""


MOST = 1 << 18
"""Nodes and their addresses that ranges may stand for in all: a few lines could ask for more than fits in memory."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node or an address stands: a YAML path, or a column of a line of the CSV file."""

    path: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else self.path


@dataclass(slots=True)
class _Draft:
    """A node being read: each address with its place."""

    place: _Place
    group: str
    gpus: int | None
    speed: int | None
    addresses: list[tuple[_Place, NodeAddress]]


class Inventory:
    """Collects nodes from everywhere, and records what is wrong with any.

    Args:
        groups: the groups that are whole.
        group_ids: all ids of the file, those of faulty groups included, so that one fault is not told twice.
        faults: where faults go.
    """

    def __init__(self, groups: tuple[Group, ...], group_ids: list[str], faults: Faults) -> None:
        self._groups = groups
        self._group_ids = group_ids
        self._faults = faults
        self._drafts: dict[str, _Draft] = {}

    def nodes(self, cost: Cost) -> tuple[Node, ...]:
        """Return the nodes in the order they were added, after a check of all their addresses together."""
        self._check_addresses()
        training = {group.id for group in self._groups if group.role is Role.TRAINING}
        return tuple(
            Node(
                name,
                draft.group,
                tuple(address for _, address in draft.addresses),
                draft.gpus if draft.gpus is not None else cost.gpus_per_node if draft.group in training else 0,
                draft.speed,
            )
            for name, draft in self._drafts.items()
        )

    def add_entries(self, tables: dict[str, Placed[Table]]) -> None:
        """Add the entries of ``nodes:``; a range in an address counts with the range of the name."""
        entries = [(braced(pattern), one) for pattern, one in tables.items()]
        asked = sum(ends(pattern)[2] * (1 + len(one.value.get("addresses", ()))) for pattern, one in entries)
        if asked > MOST:
            self._faults.add("nodes", f"{asked:,} nodes and addresses", f"at most {MOST:,}")
            return
        for pattern, placed in entries:
            table = placed.value
            check_reference(table.get("group"), f"{placed.path}.group", self._group_ids, self._faults)
            node_names = expand(pattern)
            columns = [
                column
                for address in table.get("addresses", ())
                if (column := self._address_column(address, pattern, len(node_names)))
            ]
            place = _Place(placed.path)
            for index, name in enumerate(node_names):
                if name in self._drafts:
                    self._add(place, name, "each node once", f"{self._drafts[name].place} has it already")
                elif "group" in table:
                    addresses = [column[index] for column in columns]
                    self._drafts[name] = _Draft(place, table["group"], table.get("gpus"), table.get("speed"), addresses)

    def add_file(self, path: Path) -> None:
        """Add the rows of a CSV file: a row an address; rows of one name fold into one node."""
        file = str(path)
        try:
            text = read_text(path)
        except ConfigError as error:
            (problem,) = error.problems
            self._faults.add("inventory", file, "a CSV file", problem.value)
            return
        before = self._drafts
        self._drafts = {}
        for line, row in self._rows(file, text):
            self._add_row(_Place("", file, line), row, before)
        self._drafts = before | self._drafts

    def add_source(self, source: str, machines: Iterable[Machine], networks: Iterable[RailNetwork]) -> SourceInUse:
        """Add what a source told last; who has a name or an address already keeps it, which is told and no fault.

        A machine with addresses in several groups is a node of the first by role, management last, and `NAME.GROUP` in
        each other one.

        Args:
            source: its name.
            machines: of it.
            networks: planes and rails of addresses.
        """
        rails = sorted(((ipaddress.ip_network(one.prefix), one) for one in networks), key=lambda one: -one[0].prefixlen)
        owners = {one.address: name for name, draft in self._drafts.items() for _, one in draft.addresses}
        place, conflicts, before = _Place(f"inventory.sources.{source}"), [], set(self._drafts)
        found, left_out = self._by_node(machines)
        for (name, group), (addresses, gpus) in found.items():
            if name in before:
                other = self._drafts[name]
                if {one.address for _, one in other.addresses} != {*addresses}:
                    conflicts.append(f"{name}: {other.place} has it with other addresses, which count")
                continue
            try:
                names.NODE_NAME.parse(name)
            except Bad:
                conflicts.append(f"{Scalar(name).shown()}: expected {names.NODE_NAME.expected}")
                continue
            taken = {address for address in addresses if owners.setdefault(address, name) != name}
            conflicts += [f"{one}: {owners[one]} and {name} have it: {owners[one]} keeps it" for one in taken]
            free = [(place, _on_rail(address, rails)) for address in addresses if address not in taken]
            if free and len(owners) <= MOST:
                self._drafts[name] = _Draft(place, group, gpus, None, free)
        return SourceInUse(source, len(self._drafts) - len(before), left_out, tuple(conflicts))

    def _by_node(
        self, machines: Iterable[Machine]
    ) -> tuple[dict[tuple[str, str], tuple[list[Address], int | None]], int]:
        """Return addresses and GPUs by node and group, and how many addresses are in no group."""
        table = GroupTable(self._groups)
        ranks = {group.id: (group.role is Role.MANAGEMENT, [*Role].index(group.role)) for group in self._groups}
        by_name: dict[str, dict[str, dict[Address, None]]] = {}
        gpus: dict[str, int] = {}
        left_out = 0
        for machine in machines:
            by_group = by_name.setdefault(machine.name, {})
            if machine.gpus is not None:
                gpus[machine.name] = machine.gpus
            for address in machine.addresses:
                group = table.group_of(address)
                left_out += group is None
                if group is not None:
                    by_group.setdefault(group, {})[address] = None
        found = {}
        for name, by_group in by_name.items():
            first, *others = sorted(by_group, key=lambda group: (ranks[group], group)) or [""]
            if first:
                found[name, first] = [*by_group[first]], gpus.get(name)
            found |= {(f"{name}.{group}", group): ([*by_group[group]], None) for group in others}
        return found, left_out

    def _add(self, place: _Place, value: str, expected: str, hint: str = "") -> None:
        if place.file:
            problem = Problem(place.path, value, expected, hint, file=place.file, line=place.line)
            self._faults.add_problem(problem)
        else:
            self._faults.add(place.path, value, expected, hint)

    def _address_column(self, placed: Placed[Table], pattern: str, count: int) -> list[tuple[_Place, NodeAddress]]:
        """Return one address for each node of the entry; nothing where they do not match up."""
        table = placed.value
        if "address" not in table:
            return []
        found = ends(table["address"])[2]
        if found != count:
            hint = f"{pattern} stands for {count:,} nodes" if has_range(pattern) else f"{pattern} has no range"
            shown = f"{table['address']}, which is {found:,}"
            self._faults.add(placed.path, shown, f"{count:,} address{'es' if count > 1 else ''}", hint)
            return []
        place, plane, rail = _Place(placed.path), table.get("plane"), table.get("rail")
        return [(place, NodeAddress(ipaddress.ip_address(text), plane, rail)) for text in expand(table["address"])]

    def _check_addresses(self) -> None:
        """Record addresses of two nodes, and those that the prefixes give to another group than the node's.

        The addresses of one range that are wrong in the same way are one fault.
        """
        table = GroupTable(self._groups)
        # Where a group's own prefixes are at fault, its nodes are not: that would be one fault told many times.
        whole = {group.id for group in self._groups if not self._faults.within(child("groups", group.id))}
        owners: dict[object, str] = {}
        repeated: dict[_Place, list[tuple[str, str]]] = {}
        outside: dict[tuple[_Place, str, str | None], list[tuple[str, str]]] = {}
        for name, draft in self._drafts.items():
            for place, node_address in draft.addresses:
                address = node_address.address
                if address in owners:
                    owner = owners[address]
                    hint = f"{name} has it twice" if owner == name else f"{owner} and {name} have it"
                    repeated.setdefault(place, []).append((str(address), hint))
                owners.setdefault(address, name)
                actual = table.group_of(address)
                if draft.group in whole and actual != draft.group:
                    outside.setdefault((place, draft.group, actual), []).append((name, str(address)))
        for place, found in repeated.items():
            self._add(place, some([address for address, _ in found]), "each address once", found[0][1])
        for (place, group, actual), found in outside.items():
            hint = f"group {actual} has it: list a node of its own there, such as {found[0][0]}.{actual}"
            wanted = f"an address in the prefixes of group {group}"
            self._add(place, some([address for _, address in found]), wanted, hint if actual else "no group has it")

    def _rows(self, file: str, text: str) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield line and cells of each row, by column; blank lines and ``#`` comments are skipped."""
        header: list[str] = []
        try:
            for line, cells in csv_rows(text, comments=True):
                place = _Place("", file, line)
                if not header:
                    header = cells
                    if not self._is_header(place, header):
                        return
                elif len(cells) > len(header):
                    self._add(place, f"{len(cells)} columns", f"{len(header)} columns, as in the header")
                else:
                    yield line, dict(zip(header, cells, strict=False))
        except CsvError as fault:
            self._add(_Place("", file, fault.line), fault.wrong, "CSV", fault.hint)
        if not header:
            self._add(_Place("", file, 1), "no header", f"a line with {', '.join(COLUMNS)}")

    def _is_header(self, place: _Place, header: list[str]) -> bool:
        unknown = [name for name in header if name not in COLUMNS]
        for name in unknown:
            self._add(place, name or "an empty name", f"a column {one_of(COLUMNS)}", closest(name, COLUMNS))
        missing = [name for name in REQUIRED_COLUMNS if name not in header]
        for name in missing:
            self._add(place, f"no column {name}", f"at least the columns {', '.join(REQUIRED_COLUMNS)}")
        repeated = len({*header}) < len(header)
        if repeated:
            self._add(place, ",".join(header), "each column once")
        return not (unknown or missing or repeated)

    def _add_row(self, place: _Place, row: dict[str, str], before: dict[str, _Draft]) -> None:
        """Add a row; `before` are the nodes of cluster.yaml itself, which the file may not name."""
        cells = self._cells(place, row)
        if not all(column in cells for column in REQUIRED_COLUMNS):
            return
        name = cells["name"]
        if name in before:
            hint = f"{before[name].place} has it already"
            self._add(_at(place, "name"), name, "each node in one place", hint)
            return
        fresh = _Draft(_at(place, "name"), cells["group"], cells.get("gpus"), cells.get("speed"), [])
        draft = self._drafts.setdefault(name, fresh)
        for column, first in (("group", draft.group), ("gpus", draft.gpus), ("speed", draft.speed)):
            if cells.get(column, first) != first:
                expected = f"{'nothing' if first is None else first}, as in the first row of {name}"
                self._add(_at(place, column), str(cells[column]), expected, f"line {draft.place.line}")
        node_address = NodeAddress(cells["address"], cells.get("plane"), cells.get("rail"))
        draft.addresses.append((_at(place, "address"), node_address))

    def _cells(self, place: _Place, row: dict[str, str]) -> Table:
        cells: Table = {}
        for column, kind in COLUMNS.items():
            text = row.get(column, "")
            if text or column in REQUIRED_COLUMNS:
                try:
                    cells[column] = kind.read(Scalar(text), "", self._faults)
                except Bad as bad:
                    self._add(_at(place, column), Scalar(text).shown(), bad.expected or kind.expected, bad.hint)
        if self._group_ids and "group" in cells and cells["group"] not in self._group_ids:
            hint = closest(cells["group"], self._group_ids)
            self._add(_at(place, "group"), cells.pop("group"), "a group of cluster.yaml", hint)
        return cells


def _on_rail(address: Address, rails: Iterable[tuple[Network, RailNetwork]]) -> NodeAddress:
    found = next((one for prefix, one in rails if prefix.version == address.version and address in prefix), None)
    return NodeAddress(address, found.plane, found.rail) if found else NodeAddress(address)


def _at(place: _Place, column: str) -> _Place:
    return _Place(column, place.file, place.line)
