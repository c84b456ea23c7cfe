"""The sections about pairs of groups: `allowed`, `authority`, `transport`, `capacity`."""

from enum import StrEnum

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import REQUIRED, Key, Section, key, record
from cluster.scalars.kinds import Choice, ListOf, Placed, Table, closest
from cluster.sections.network.groups import check_reference
from cluster.vocabulary import ANY


class Transport(StrEnum):
    """How a group pair talks: we see what crosses a flow-exporting device as IP.

    RoCEv2 is UDP over IP, but switches forward it in hardware that few of them count flows in: ROCE_SAMPLED is that
    whose packets a switch's sFlow samples.
    """

    TCP = "tcp"
    ROCE = "roce"
    ROCE_SAMPLED = "roce-sampled"
    INFINIBAND = "infiniband"

    @property
    def is_visible(self) -> bool:
        """Whether flow records show it, so that it can be judged."""
        return self in (Transport.TCP, Transport.ROCE_SAMPLED)


@record
class GroupPair:
    """Who may send to whom; `"*"` is every group. Within a group everything is allowed; all else is a violation."""

    src: str = key(names.GROUP_REFERENCE, "The group that sends.", name="from")
    dst: str = key(names.GROUP_REFERENCE, "The group that receives.", name="to")


ALLOWED = Section.of(GroupPair, "conversation")


@record
class Authority:
    """Only these exporters count for the pair; what others saw of it is suppressed."""

    pair: GroupPair
    exporters: tuple[str, ...]


@record
class DeclaredTransport:
    """How a pair talks, in both directions."""

    pair: GroupPair
    transport: Transport


@record
class PairLimit:
    """What a pair can carry, in bits per second."""

    pair: GroupPair
    limit: int


# fmt: off
AUTHORITY = Section(
    "authority",
    (
        Key("between", ListOf(names.GROUP_REFERENCE), "Two groups, both directions.", absent="`from`, `to`",
            example="[training, storage]"),
        Key("from", names.GROUP_REFERENCE, "For one direction instead: the group that sends.", absent="`between`"),
        Key("to", names.GROUP_REFERENCE, "The group that receives.", absent="`between`"),
        Key("exporters", ListOf(names.NAME, at_least=1), "Only what these saw counts.", REQUIRED,
            example="[storage-1]"),
    ),
    "Where several exporters see the same flow: whose count is the truth for a pair. The first match wins. Without a "
    "line the bridge finds out (see the life of a flow), and `clusterflow suggest` prints the lines that say the same.",
    table_of=lambda one: {"from": one.pair.src, "to": one.pair.dst, "exporters": one.exporters},
)
TRANSPORT = Section(
    "transport",
    (
        Key("between", ListOf(names.GROUP_REFERENCE), "Two groups, both directions.", REQUIRED,
            example="[training, training]"),
        Key("is", Choice(tuple(Transport)),
            "How they talk. RoCE and InfiniBand bypass flow export: boards and rules say so instead of showing zeros. "
            "`roce-sampled`: RoCEv2 that the switches' sFlow samples, which is judged like TCP.",
            REQUIRED),
    ),
    "How pairs talk; `tcp` where nothing is said.",
    table_of=lambda one: {"between": (one.pair.src, one.pair.dst), "is": one.transport},
)
CAPACITY = Section(
    "pair limit",
    (
        Key("from", names.GROUP_REFERENCE, "The group that sends.", REQUIRED, example="training"),
        Key("to", names.GROUP_REFERENCE, "The group that receives.", REQUIRED, example="storage"),
        Key("limit", names.BIT_RATE, "What the links between them can carry in this direction.", REQUIRED,
            example="1.6 Tbit/s"),
    ),
    "What group pairs can carry, so that the capacity board knows when they are full. Interfaces and nodes have a "
    "`speed` of their own.",
    table_of=lambda one: {"from": one.pair.src, "to": one.pair.dst, "limit": one.limit},
)
# fmt: on


def build_allowed(tables: list[Placed[Table]], groups: list[str], faults: Faults) -> tuple[GroupPair, ...]:
    """Return the conversations, and record those given twice."""
    pairs: dict[GroupPair, str] = {}
    for placed in tables:
        pair = _from_to(placed, groups, faults)
        if pair in pairs:
            faults.add(placed.path, f"{pair.src} to {pair.dst}", "each conversation once", f"{pairs[pair]} has it")
        elif pair is not None:
            pairs[pair] = placed.path
    return tuple(pairs)


def _from_to(placed: Placed[Table], groups: list[str], faults: Faults) -> GroupPair | None:
    for end in ("from", "to"):
        check_reference(placed.value.get(end), f"{placed.path}.{end}", groups, faults)
    src, dst = placed.value.get("from"), placed.value.get("to")
    return GroupPair(src, dst) if src is not None and dst is not None else None


def _between(placed: Placed[Table], groups: list[str], faults: Faults) -> GroupPair | None:
    """Return the pair that `between` names."""
    sides: list[Placed[str]] | None = placed.value.get("between")
    if sides is None:
        return None
    for side in sides:
        check_reference(side.value, side.path, groups, faults)
    if faults.within(f"{placed.path}.between"):
        return None
    if len(sides) != 2:
        faults.add(f"{placed.path}.between", f"{len(sides)} given", "two groups", "for one with itself name it twice")
        return None
    return GroupPair(sides[0].value, sides[1].value)


def build_authority(
    tables: list[Placed[Table]], groups: list[str], exporters: list[str], faults: Faults
) -> tuple[Authority, ...]:
    """Return whose count is the truth, for each direction."""
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


def build_transport(tables: list[Placed[Table]], groups: list[str], faults: Faults) -> tuple[DeclaredTransport, ...]:
    """Return how pairs talk, and record pairs given twice."""
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


def build_capacity(tables: list[Placed[Table]], groups: list[str], faults: Faults) -> tuple[PairLimit, ...]:
    """Return what pairs can carry, and record pairs given twice."""
    found: dict[GroupPair, tuple[str, PairLimit]] = {}
    for placed in tables:
        pair = _from_to(placed, groups, faults)
        for end in ("from", "to"):
            if placed.value.get(end) == ANY:
                faults.add(f"{placed.path}.{end}", ANY, "one group", "a limit is that of one pair")
        if pair is None or "limit" not in placed.value:
            continue
        if pair in found:
            faults.add(placed.path, f"{pair.src} to {pair.dst}", "each pair once", f"{found[pair][0]} has it")
        else:
            found[pair] = placed.path, PairLimit(pair, placed.value["limit"])
    return tuple(limit for _, limit in found.values())
