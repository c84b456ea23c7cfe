"""The section `nodes`: what a machine of the inventory is."""

from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import ListOf, Whole
from cluster.vocabulary import Address, Plane


# fmt: off
@record
class NodeAddress:
    """One address of a node (a rail, a Multus interface, a management port)."""

    address: Address = key(names.ADDRESS_PATTERN, "The address; a range counts in lockstep with the node's name.",
        example='"10.20.0.{1..16}"')
    plane: Plane | None = key(names.PLANE, "The network it is on.", default=None, absent="the group's plane")
    rail: int | None = key(Whole(0, 255), "Number of its rail.", default=None, absent="none")


NODE_ADDRESS = Section.of(NodeAddress, "address", text="", short="address")


@record
class Node:
    """The inventory. `"gpu-{01..16}"` stands for gpu-01 to gpu-16; addresses count with it."""

    name: str
    group: str = key(names.GROUP_ID, "The group it belongs to, whose prefixes must hold its addresses.")
    addresses: tuple[NodeAddress, ...] = key(ListOf(NODE_ADDRESS, at_least=1),
        "All its addresses in that group: rails, Multus interfaces. A bare address stands for `{address: ...}`. "
        "A machine's address in another group, such as its management port, is a node of its own: `gpu-01.management`.",
        example='["10.30.0.{1..4}", {address: "10.20.0.{1..4}", plane: compute, rail: 0}]')
    gpus: int = key(Whole(0, 1_024), "GPUs in it.", default=0, absent="`cost.gpus_per_node` in training groups, else 0")
    speed: int | None = key(names.BIT_RATE,
        "What it can send, and receive, over all its links: a storage node's capacity.", default=None,
        absent="not known", example="200 Gbit/s")


NODE = Section.of(Node, "node")
# fmt: on
