"""Groups: what they are, and which group an address belongs to."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Key, Section, key, record
from cluster.scalars.kinds import FLAG, Choice, ListOf, Number, Placed, Table, closest
from cluster.sections.network.prefix_files import PREFIX_FILE, FileInUse, prefixes_of
from cluster.sections.network.site import OFF_HOURS, OffHours, check_off_hours
from cluster.vocabulary import ANY, RESERVED_GROUPS, Address, Network, Plane

_FROM_FILE = ".prefixes_from["
"""In the path of a prefix that a file has."""

MOST_NAMED = 8
"""Most groups that a hint lists."""


class Role(StrEnum):
    """What a group is for; boards and rules are chosen by role, never by a group's id."""

    TRAINING = "training"
    STORAGE = "storage"
    MODEL_STORAGE = "model_storage"
    APPROVED_EXTERNAL = "approved_external"
    MANAGEMENT = "management"
    INFERENCE = "inference"
    CANARY = "canary"
    DRILL = "drill"
    CUSTOM = "custom"


class FirstContact(StrEnum):
    """What is done about the first contact with an address of a group outside."""

    ALERT = "alert"
    SKIP = "skip"


# fmt: off
@record
class Group:
    """Addresses that belong together.

    Outside all groups is `external`; multicast, link-local and loopback are `local`.
    """

    id: str
    title: str = key(names.TITLE, "Its name on boards and in alerts.", absent="the id, in words")
    role: Role = key(Choice(tuple(Role)),
        "What it is for; boards and rules choose groups by role. `approved_external` stands outside the cluster: "
        "traffic to it is egress, but approved. From `drill`, `clusterflow drill` stages thefts.")
    prefixes: tuple[Network, ...] = key(ListOf(names.PREFIX),
        "Its IPv4 and IPv6 networks. The longest match over all groups wins.", default=(),
        example='[10.20.0.0/16, "fd00:20::/48"]')
    sensitive: bool = key(FLAG, "Whether its transfers to the outside are watched more closely: off-hours, volume.",
        default=False)
    nested_in: str | None = key(names.GROUP_ID,
        "The group that has a prefix around one of ours. Without it an overlap is an error.", default=None,
        absent="none", example="storage")
    plane: Plane | None = key(names.PLANE, "Plane of its traffic where neither interface nor node address tells.",
        default=None, absent="unknown")
    exfil_scale: float = key(Number(0.01, 10_000),
        "It may send outside so many times the bytes of the thresholds `exfil_*`: its bytes count that much less.",
        default=1.0)
    first_contact: FirstContact = key(Choice(tuple(FirstContact)),
        "What `first_external_contact` does about who talks to it for the first time: `skip` is for an approved group "
        "with a provider's thousands of addresses.", default=FirstContact.ALERT)
    off_hours: OffHours | None = key(OFF_HOURS,
        "When nobody of it is expected to move data, in place of `site.off_hours`, whose holidays count where it has "
        "none of its own. Limits of `exfil_off_hours` follow it too.", default=None, absent="`site.off_hours`")
    files: tuple[FileInUse, ...] = field(default=(), compare=False)

    @property
    def is_outside(self) -> bool:
        """Whether the group stands outside the cluster, so that traffic to it is egress."""
        return self.role is Role.APPROVED_EXTERNAL


GROUP = Section.of(Group, "group",
    Key("prefixes_from", ListOf(PREFIX_FILE),
        "Files with more of its prefixes, such as a provider's published ranges; they become its `prefixes`, and may "
        "overlap them and each other.", (),
        example="[lists/aws-ip-ranges.json]"), after="prefixes")
# fmt: on


def build_groups(tables: dict[str, Placed[Table]], folder: Path, kept: Path, faults: Faults) -> tuple[Group, ...]:
    """Return the groups that are whole, and record every overlap that no nesting explains.

    Args:
        tables: by id; prefixes of files are added to theirs.
        folder: what relative paths are relative to.
        kept: folder with the last good versions of files with prefixes.
        faults: told of what is wrong.
    """
    own = {group_id: placed.value.get("prefixes", []) for group_id, placed in tables.items()}

    def taken(faults: Faults, refused: Mapping[str, str] | None = None) -> dict[str, tuple[FileInUse, ...]]:
        files = {}
        for group_id, placed in tables.items():
            given = placed.value.get("prefixes_from", [])
            more, files[group_id] = prefixes_of(given, folder, kept, faults, refused)
            placed.value["prefixes"] = [*own[group_id], *more]
        _fold_files(tables)
        return files

    files = taken(faults)
    if refused := _clashes(tables):
        again = Faults(faults.source)
        files = taken(again, refused)
        # Where there are no good versions of before, what is wrong with the new ones is told.
        files = taken(again) if again.problems else files
    groups = []
    for group_id, placed in tables.items():
        table = placed.value
        _check_nesting(group_id, placed.path, table, tables, faults)
        check_off_hours(OFF_HOURS.build(table.get("off_hours")), f"{placed.path}.off_hours", faults)
        title = table.get("title") or group_id.replace("_", " ").capitalize()
        groups.append(GROUP.build(table | {"title": title}, name=group_id, made={"files": files[group_id]}))
    _check_overlaps(tables, faults)
    return tuple(group for group in groups if group is not None)


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
    if ids and name is not None and name != ANY and name not in RESERVED_GROUPS and name not in ids:
        hint = closest(name, ids) or (f"groups: {', '.join(ids)}" if len(ids) <= MOST_NAMED else "")
        faults.add(path, name, "a group of this file", hint)


def check_references(given: list[Placed[str]], known: Iterable[str], faults: Faults, *, not_all: str = "") -> None:
    """Record groups of a list that do not exist; `not_all` is the hint where the list may not name all groups."""
    for group in given:
        check_reference(group.value, group.path, known, faults)
        if not_all and group.value == ANY:
            faults.add(group.path, ANY, "a group", not_all)


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


def _clashes(tables: dict[str, Placed[Table]]) -> dict[str, str]:
    """Return by the path of a file which of its prefixes lies in another group's, or around one, unexplained."""
    found: dict[str, str] = {}
    for (path, group_id, prefix), (around, other, outer) in _overlaps(tables):
        if other not in _outers(group_id, tables):
            what = f"{prefix} of group {group_id} in {outer} of group {other}"
            found |= {place: what for place in (path, around) if _FROM_FILE in place}
    return found


def _fold_files(tables: dict[str, Placed[Table]]) -> None:
    """Leave out what lies in another prefix of its group where a file has either: who writes it knows nothing of us."""
    held = {
        Placed(path, prefix)
        for (path, group_id, prefix), (around, other, _) in _overlaps(tables)
        if group_id == other and (_FROM_FILE in path or _FROM_FILE in around)
    }
    for placed in tables.values():
        placed.value["prefixes"] = [prefix for prefix in placed.value["prefixes"] if prefix not in held]


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
