"""Groups: their objects, and which group an address belongs to."""

from collections.abc import Iterable, Iterator

from cluster.document import Faults
from cluster.kinds import Placed, Table, closest
from cluster.model import RESERVED_GROUPS, Address, Group, Network

MOST_NAMED = 8
"""Most groups that a hint lists."""


def build_groups(tables: dict[str, Placed[Table]], faults: Faults) -> tuple[Group, ...]:
    """Return the groups that are whole, and record every overlap that no nesting explains."""
    groups = []
    for group_id, placed in tables.items():
        table = placed.value
        _check_nesting(group_id, placed.path, table, tables, faults)
        if "role" in table:
            groups.append(
                Group(
                    group_id,
                    table.get("title") or group_id.replace("_", " ").capitalize(),
                    table["role"],
                    tuple(prefix.value for prefix in table.get("prefixes", ())),
                    table.get("sensitive", False),
                    table.get("nested_in"),
                    table.get("plane"),
                )
            )
    _check_overlaps(tables, faults)
    return tuple(groups)


class GroupTable:
    """Longest-prefix match over groups.

    Args:
        groups: consistent groups.
    """

    def __init__(self, groups: Iterable[Group]) -> None:
        self._by_length: dict[tuple[int, int], dict[int, str]] = {}
        for group in groups:
            for prefix in group.prefixes:
                networks = self._by_length.setdefault((prefix.version, prefix.prefixlen), {})
                networks.setdefault(int(prefix.network_address), group.id)
        self._lengths = sorted(self._by_length, reverse=True)

    def group_of(self, address: Address) -> str | None:
        """Return the id of the group that holds the address; None if none does."""
        number = int(address)
        for version, length in self._lengths:
            if version == address.version:
                host_bits = address.max_prefixlen - length
                found = self._by_length[version, length].get(number >> host_bits << host_bits)
                if found is not None:
                    return found
        return None


def outer_groups(group: Group, groups: Iterable[Group]) -> set[str]:
    """Return the ids of the other groups that have a prefix around one of the group's."""
    return {
        other.id
        for other in groups
        if other.id != group.id and any(_holds(outer, inner) for outer in other.prefixes for inner in group.prefixes)
    }


def check_reference(name: str | None, path: str, known: Iterable[str], faults: Faults) -> None:
    """Record a fault where `name` is a group that does not exist; a file without any group is told once, as that."""
    ids = [*known]
    if ids and name is not None and name != "*" and name not in RESERVED_GROUPS and name not in ids:
        hint = closest(name, ids) or (f"groups: {', '.join(ids)}" if len(ids) <= MOST_NAMED else "")
        faults.add(path, name, "a group of this file", hint)


def _check_nesting(group_id: str, path: str, table: Table, tables: dict[str, Placed[Table]], faults: Faults) -> None:
    outer = table.get("nested_in")
    if outer is None:
        return
    where = f"{path}.nested_in"
    if outer not in tables:
        faults.add(where, outer, "a group of this file", closest(outer, tables))
    elif group_id in _outers(outer, tables):
        faults.add(where, outer, "a group that is not itself nested in this one")


def _outers(group_id: str, tables: dict[str, Placed[Table]]) -> list[str]:
    """Return a group and those it is nested in, innermost first; a circle ends where it closes."""
    chain: list[str] = []
    current: str | None = group_id
    while current is not None and current not in chain and current in tables:
        chain.append(current)
        current = tables[current].value.get("nested_in")
    return chain


def _check_overlaps(tables: dict[str, Placed[Table]], faults: Faults) -> None:
    """Record each prefix that repeats or lies within another one without `nested_in`."""
    for inner, outer in _overlaps(tables):
        (path, group_id, prefix), (_, other, around) = inner, outer
        if prefix == around:
            place = "this group" if group_id == other else f"group {other}"
            faults.add(path, str(prefix), "each prefix once", f"{place} has it already")
        elif group_id == other:
            faults.add(path, str(prefix), "prefixes that do not overlap", f"{around} of this group covers it")
        elif other not in _outers(group_id, tables)[1:]:
            hint = f"{around} of group {other} covers it; if that is meant, set nested_in: {other}"
            faults.add(path, str(prefix), "prefixes that do not overlap", hint)


_Entry = tuple[str, str, Network]
"""Path, group id, prefix."""


def _overlaps(tables: dict[str, Placed[Table]]) -> Iterator[tuple[_Entry, _Entry]]:
    """Yield each prefix with the nearest one around it, or equal to it; in order of addresses, outer ones first."""
    entries = [
        (prefix.path, group_id, prefix.value)
        for group_id, placed in tables.items()
        for prefix in placed.value.get("prefixes", ())
    ]
    entries.sort(key=lambda entry: (entry[2].version, int(entry[2].network_address), entry[2].prefixlen))
    around: list[_Entry] = []
    for entry in entries:
        prefix = entry[2]
        while around and not _holds(around[-1][2], prefix):
            around.pop()
        if around:
            yield entry, around[-1]
        around.append(entry)


def _holds(outer: Network, inner: Network) -> bool:
    shift = outer.max_prefixlen - outer.prefixlen
    same_family = outer.version == inner.version and outer.prefixlen <= inner.prefixlen
    return same_family and int(outer.network_address) >> shift == int(inner.network_address) >> shift
