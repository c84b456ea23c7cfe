"""Groups, nodes and rails, guessed from who serves what to whom.

Addresses are judged by blocks, an IPv4 /24 or an IPv6 /64: sites give a block one purpose. A block is
- compute: most of its bytes stay in it, among addresses that all do the same: collectives;
- storage: most of what it serves is on ports of file systems and object stores;
- management: nearly all its conversations are on ports of management, and each of its addresses talks to many;
- inference: it serves clients outside, or many in blocks that serve nobody;
- model storage: it serves inference in bulk;
- users: it only asks, and asks inference.
Blocks with the same last parts of addresses as a block of compute are the same machines on another network.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import polars as pl

from cluster.model import Address, Network, Plane, Role
from operations.draft.seen import BACK, ONE, ONE_PORT, OTHER, OTHER_PORT, PROTOCOL, SENT, Seen

STORAGE_PORTS = frozenset({111, 445, 988, 2049, 3260, 3300, 4420, 6789, *range(6800, 6820), 8111, 20049})
"""NFS, Lustre, SMB, iSCSI, Ceph, NVMe/TCP, NFS over RDMA's."""
MANAGEMENT_PORTS = frozenset({22, 23, 53, 67, 68, 123, 161, 162, 514, 623, 830, 6443, 6514, 9339, 10250, 57400})
"""SSH, DNS, DHCP, NTP, SNMP, syslog, IPMI, NETCONF, gNMI, Kubernetes."""

_PRIVATE = tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")))
_COMPUTE_SHARE, _SERVED_SHARE, _MANAGEMENT_SHARE, _ALIKE = 0.6, 0.5, 0.8, 0.75
_LEAST_COMPUTE, _MANY_CLIENTS = 3, 5
_FIRST_OF_CLIENTS = 32_768
_PARTS = 16


@dataclass(slots=True)
class Block:
    """A block of addresses and what it did; bytes are of both directions.

    Attributes:
        network: an IPv4 /24 or an IPv6 /64.
        members: addresses seen, by what tells each from the others.
        inside: bytes among its own addresses. total: all bytes.
        served: bytes by port that it serves.
        managed: conversations on management ports. conversations: all.
        clients: bytes by block that it serves. servers: bytes by block that serves it.
        peers: addresses that it talked to.
        role: what it is. plane: which network. why: the evidence, in words.
        rail: number of the rail.
    """

    network: Network
    members: dict[str, Address] = field(default_factory=dict)
    inside: int = 0
    total: int = 0
    served: Counter[int] = field(default_factory=Counter)
    managed: int = 0
    conversations: int = 0
    clients: Counter[Network | None] = field(default_factory=Counter)
    client_addresses: set[str] = field(default_factory=set)
    servers: Counter[Network | None] = field(default_factory=Counter)
    peers: set[str] = field(default_factory=set)
    role: Role = Role.CUSTOM
    plane: Plane | None = None
    why: str = ""
    rail: int | None = None
    same_as: Network | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """What went one way between two blocks: bytes, and the ports of the conversations, largest first."""

    sent: int
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """The guess.

    Attributes:
        blocks: of addresses inside, those with a purpose known first.
        outside: bytes sent to and received from outside addresses, by address.
        pairs: by source and destination network (None: outside).
    """

    blocks: tuple[Block, ...]
    outside: Mapping[str, tuple[int, int]]
    pairs: Mapping[tuple[Network | None, Network | None], Pair]


def block_of(address: Address) -> Network:
    """Return the block of an address."""
    return ip_network((int(address), 24 if address.version == 4 else 64), strict=False)


def last_part(address: Address) -> str:
    """Return the last part of an address, as it is written."""
    if isinstance(address, IPv4Address):
        return str(address).rpartition(".")[2]
    return str(address).rpartition(":")[2] or "0"


def _members(addresses: Collection[Address]) -> dict[str, Address]:
    """Return the addresses of a block by their last parts; where two end alike, by all that follows the /64."""
    found = {last_part(one): one for one in addresses}
    if len(found) < len(addresses):
        # As a node's name takes it.
        found = {str(IPv6Address(int(one) % (1 << 64)))[2:].replace(":", "-") or "0": one for one in addresses}
    return found


def guess(seen: Seen, inside: Iterable[Network] = ()) -> Draft:
    """Return groups, nodes and rails.

    Args:
        seen: what was seen.
        inside: prefixes of the site beside private ones.
    """
    known = {text: _address(text) for text in _texts(seen)}
    prefixes = (*_PRIVATE, *inside)
    is_inside = {
        text: address is not None and any(address.version == one.version and address in one for one in prefixes)
        for text, address in known.items()
    }
    found: dict[Network, set[Address]] = defaultdict(set)
    where: dict[str, Network | None] = {}
    for text, address in known.items():
        if address is None:
            continue
        if not is_inside[text]:
            where[text] = None
            continue
        network = block_of(address)
        where[text] = network
        found[network].add(address)
    blocks = {network: Block(network, _members(addresses)) for network, addresses in found.items()}
    sums = _add_up(seen, where, blocks)
    _judge(blocks)
    ordered = sorted(
        blocks.values(),
        key=lambda one: (list(Role).index(one.role), one.network.version, int(one.network.network_address)),
    )
    return Draft(tuple(ordered), sums.outside, sums.pairs)


def _texts(seen: Seen) -> list[str]:
    if seen.conversations.is_empty():
        return []
    texts = [seen.conversations[name].unique().cast(pl.String).rename("a") for name in (ONE, OTHER)]
    return pl.concat(texts).unique().sort().to_list()


def _address(text: str) -> Address | None:
    """Return an address of a machine; None for others, such as multicast and link-local ones."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    if isinstance(found, IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    return None if found.is_multicast or found.is_link_local or found.is_unspecified or found.is_loopback else found


def _with_server(seen: Seen) -> pl.DataFrame:
    """Return conversations with whether `one` serves: an address and port that more addresses or ports use."""
    rows = seen.conversations
    # Each row is another peer. In parts, by address: adding takes some times the room of what is added.
    parts = []
    for number in range(_PARTS):
        counts = [
            rows.filter(pl.col(address).to_physical() % _PARTS == number)
            .group_by(pl.col(address).alias("a"), pl.col(port).alias("p"), PROTOCOL)
            .agg(pl.len().cast(pl.Int64).alias("n"))
            for address, port in ((ONE, ONE_PORT), (OTHER, OTHER_PORT))
        ]
        used = pl.concat(counts).group_by("a", "p", PROTOCOL).agg(pl.sum("n"))
        # Most are a client's port with one peer: what is not listed is one of them.
        parts.append((used.filter(pl.col("n") > 1), used.group_by("p", PROTOCOL).agg(pl.sum("n").alias("all"))))
    used = pl.concat(used for used, _ in parts)
    # A port that serves does so at several addresses.
    spread = pl.concat(spread for _, spread in parts).group_by("p", PROTOCOL).agg(pl.sum("all"))
    for side, port, name in ((ONE, ONE_PORT, "n_one"), (OTHER, OTHER_PORT, "n_other")):
        mine = used.select(pl.col("a").alias(side), pl.col("p").alias(port), PROTOCOL, pl.col("n").alias(name))
        all_of = spread.select(pl.col("p").alias(port), PROTOCOL, pl.col("all").alias(f"{name}_all"))
        rows = rows.join(mine, on=[side, port, PROTOCOL], how="left").join(all_of, on=[port, PROTOCOL], how="left")
        rows = rows.with_columns(pl.col(name).fill_null(1))
    # Clients get theirs from the high ones.
    listed = sorted(port for port in STORAGE_PORTS | MANAGEMENT_PORTS if port < _FIRST_OF_CLIENTS)
    is_one, is_other = (pl.col(port).is_in(listed) for port in (ONE_PORT, OTHER_PORT))
    return rows.with_columns(
        pl.when(is_one != is_other)
        .then(is_one)
        .when(pl.col("n_one") != pl.col("n_other"))
        .then(pl.col("n_one") > pl.col("n_other"))
        .when(pl.col("n_one_all") != pl.col("n_other_all"))
        .then(pl.col("n_one_all") > pl.col("n_other_all"))
        .otherwise(pl.col(ONE_PORT) <= pl.col(OTHER_PORT))
        .alias("one_serves")
    )


class _Sums:
    """Adds conversations up: by block, by way between blocks, and by outside address."""

    def __init__(self, where: Mapping[str, Network | None], blocks: Mapping[Network, Block]) -> None:
        self._where, self._blocks = where, blocks
        self._sent: Counter[tuple[Network | None, Network | None]] = Counter()
        self._ports: dict[tuple[Network | None, Network | None], Counter[int]] = defaultdict(Counter)
        self.outside: dict[str, tuple[int, int]] = {}

    @property
    def pairs(self) -> dict[tuple[Network | None, Network | None], Pair]:
        """What went each way."""
        most = {way: tuple(port for port, _ in ports.most_common(4)) for way, ports in self._ports.items()}
        return {way: Pair(size, most[way]) for way, size in self._sent.items()}

    def take(self, client: str, server: str, port: int, asked: int, answered: int) -> None:
        """Take a conversation: who asked whom on which port, and the bytes of both ways."""
        volume = asked + answered
        asks, serves = self._where[client], self._where[server]
        for address, peer, sent, got in ((client, server, asked, answered), (server, client, answered, asked)):
            own = self._where[address]
            if own is None:
                before = self.outside.get(address, (0, 0))
                self.outside[address] = before[0] + sent, before[1] + got
            else:
                self._blocks[own].peers.add(peer)
        for own in {asks, serves} - {None}:
            block = self._blocks[own]  # type: ignore[index]
            block.total += volume
            block.conversations += 1
            block.managed += port in MANAGEMENT_PORTS
        if serves is not None:
            self._take_server(self._blocks[serves], client, asks, port, volume)
        if asks is not None and asks != serves:
            self._blocks[asks].servers[serves] += volume
        for way, size in (((asks, serves), asked), ((serves, asks), answered)):
            if size:
                self._sent[way] += size
                self._ports[way][port] += volume

    def _take_server(self, block: Block, client: str, asks: Network | None, port: int, volume: int) -> None:
        block.served[port] += volume
        if asks == block.network:
            block.inside += volume
        else:
            block.clients[asks] += volume
            block.client_addresses.add(client)


def _add_up(seen: Seen, where: Mapping[str, Network | None], blocks: Mapping[Network, Block]) -> _Sums:
    sums = _Sums(where, blocks)
    if seen.conversations.is_empty():
        return sums
    is_one = pl.col("one_serves")
    rows = (
        _with_server(seen)
        .select(
            pl.when(is_one).then(OTHER).otherwise(ONE).alias("client"),
            pl.when(is_one).then(ONE).otherwise(OTHER).alias("server"),
            pl.when(is_one).then(ONE_PORT).otherwise(OTHER_PORT).alias("port"),
            pl.when(is_one).then(BACK).otherwise(SENT).alias("asked"),
            pl.when(is_one).then(SENT).otherwise(BACK).alias("answered"),
        )
        .group_by("client", "server", "port")
        .agg(pl.sum("asked", "answered"))
    )
    # In the order of their texts, as numbers: texts take some times the room.
    names = sorted(where)
    numbers = pl.DataFrame({"text": names}, schema={"text": pl.Categorical}).with_row_index("number")
    for end in ("client", "server"):
        rows = rows.join(numbers, left_on=end, right_on="text").drop(end).rename({"number": end})
    rows = rows.select("client", "server", "port", "asked", "answered").sort("client", "server", "port")
    for client, server, port, asked, answered in rows.iter_rows():
        sums.take(names[client], names[server], port, asked, answered)
    return sums


def _judge(blocks: dict[Network, Block]) -> None:
    """Give each block its role: what is surest first, and each by those before."""
    for step in (_storage, _compute, _same_machines, _management, _inference, _models):
        for block in _free(blocks):
            step(block, blocks)
    _join_families(blocks)
    serving = {block.network for block in blocks.values() if block.role is Role.INFERENCE}
    for block in _free(blocks):
        asked = sum(size for server, size in block.servers.items() if server in serving)
        block.plane = Plane.FRONTEND if asked > block.total / 2 else None
        block.why = "clients of inference" if block.plane else "what it is for, its traffic does not say"


def _free(blocks: Mapping[Network, Block]) -> list[Block]:
    free = [block for block in blocks.values() if block.role is Role.CUSTOM]
    return sorted(free, key=lambda one: (one.network.version, int(one.network.network_address)))


def _storage(block: Block, _blocks: Mapping[Network, Block]) -> None:
    on_files = sum(size for port, size in block.served.items() if port in STORAGE_PORTS)
    if block.total and on_files > _SERVED_SHARE * block.total:
        best = max((port for port in block.served if port in STORAGE_PORTS), key=lambda port: block.served[port])
        block.role, block.plane = Role.STORAGE, Plane.STORAGE
        block.why = f"{on_files / block.total:.0%} of its bytes it serves on ports of file systems, most on {best}"


def _compute(block: Block, blocks: Mapping[Network, Block]) -> None:
    is_bulk = block.managed < _MANAGEMENT_SHARE * block.conversations
    if len(block.members) >= _LEAST_COMPUTE and block.inside > _COMPUTE_SHARE * block.total and is_bulk:
        block.role, block.plane = Role.TRAINING, Plane.COMPUTE
        # A rail of both IP versions is one.
        version = block.network.version
        block.rail = sum(one.rail is not None and one.network.version == version for one in blocks.values())
        share = f"{block.inside / block.total:.0%}"
        block.why = f"{share} of its bytes stay among its {len(block.members)} addresses"


def _same_machines(block: Block, blocks: Mapping[Network, Block]) -> None:
    rails = [one for one in blocks.values() if one.rail is not None]
    alike = max(rails, key=lambda rail: _alike(block, rail), default=None)
    if alike is None or _alike(block, alike) < _ALIKE:
        return
    to_files = sum(
        size for other, size in block.servers.items() if other is not None and blocks[other].role is Role.STORAGE
    )
    is_managed = block.managed >= _MANAGEMENT_SHARE * block.conversations
    block.plane = Plane.STORAGE if to_files > block.total / 2 else Plane.MANAGEMENT if is_managed else None
    block.role, block.same_as = Role.TRAINING, alike.network
    block.why = f"its addresses end as those of {alike.network}: the same machines"


def _management(block: Block, _blocks: Mapping[Network, Block]) -> None:
    if block.conversations and block.managed >= _MANAGEMENT_SHARE * block.conversations:
        block.role, block.plane = Role.MANAGEMENT, Plane.MANAGEMENT
        share = f"{block.managed / block.conversations:.0%}"
        block.why = f"{share} of its conversations are on ports of management, with {len(block.peers)} addresses"


def _inference(block: Block, blocks: Mapping[Network, Block]) -> None:
    # What serves clients may fetch its models from others in bulk: that is no reason against it.
    asking = any(client is None or not blocks[client].served for client in block.clients)
    if asking and len(block.client_addresses) >= _MANY_CLIENTS:
        block.role, block.plane = Role.INFERENCE, Plane.FRONTEND
        port = block.served.most_common(1)[0][0]
        block.why = f"it answers {len(block.client_addresses)} clients, most on port {port}"


def _models(block: Block, blocks: Mapping[Network, Block]) -> None:
    serving = {one.network for one in blocks.values() if one.role is Role.INFERENCE}
    to_inference = sum(size for client, size in block.clients.items() if client in serving)
    if block.total and to_inference > block.total / 2:
        block.role, block.plane = Role.MODEL_STORAGE, Plane.STORAGE
        block.why = f"{to_inference / block.total:.0%} of its bytes it serves to inference: models"


def _join_families(blocks: dict[Network, Block]) -> None:
    """Give IPv6 blocks the role of the one IPv4 block of servers whose addresses end alike."""
    servers = (Role.STORAGE, Role.MODEL_STORAGE, Role.INFERENCE, Role.MANAGEMENT)
    for block in blocks.values():
        if block.network.version == 4 or block.role is Role.TRAINING:
            continue
        same = [
            one
            for one in blocks.values()
            if one.network.version == 4 and one.role in servers and set(one.members) == set(block.members)
        ]
        if len(same) > 1:
            numbers = set(str(block.network).replace("::", ":").split(":"))
            same = [one for one in same if numbers & set(str(one.network).split(".")[:3]) - {"0"}]
        if len(same) == 1:
            block.role, block.plane, block.same_as = same[0].role, same[0].plane, same[0].network
            block.why = f"its addresses end as those of {same[0].network}: the same machines"


def _alike(block: Block, other: Block) -> float:
    """Return how many of all last parts both have, 0 to 1."""
    if block is other:
        return 0.0
    either = set(block.members) | set(other.members)
    return len(set(block.members) & set(other.members)) / len(either)
