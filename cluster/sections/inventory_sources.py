"""The section `inventory`: nodes that stand elsewhere, and the networks that say which rail an address is on."""

from dataclasses import dataclass, field
from typing import ClassVar, TypeVar, dataclass_transform

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Key, OneOf, Section, key, record
from cluster.scalars.kinds import FLAG, SECRET, ListOf, MapOf, Secret, Table, Whole
from cluster.vocabulary import Plane

T = TypeVar("T", bound="InventorySource")

INVENTORY_SOURCES: dict[str, Section] = {}
"""Inventory sources by type: whatever bears `@inventory_source`."""


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class InventorySource:
    """Who knows nodes; `kind` is its type in the file. Its groups are those whose prefixes hold the addresses."""

    kind: ClassVar[str]

    name: str
    file: str | None = key(names.FILE, "A file with its answer, to read in place of asking it. Write it beside and "
        "rename it: of one that is half written, the other half's nodes are unknown.", default=None, absent="none")
    every: int = key(names.seconds(10, names.DAY), "Time between two questions.", default=60)
    timeout: int = key(names.seconds(1, 600), "How long an answer may take.", default=20)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(key, field))
def inventory_source(owner: type[T]) -> type[T]:
    """Make a record that `type: KIND` in the file stands for."""
    made = dataclass(frozen=True, slots=True, kw_only=True)(owner)
    INVENTORY_SOURCES[made.kind] = Section.of(made, "inventory source")
    return made


@inventory_source
class SlurmInventory(InventorySource):
    """What `scontrol show node` says. A `NodeAddr` that is a name is resolved."""

    kind = "slurm"
    command: tuple[str, ...] = key(names.COMMAND_OR_OFF, "How to ask; it may print lines (`-o`) or JSON (`--json`).",
        default=("scontrol", "show", "node", "-o"))
    also: tuple[str, ...] = key(ListOf(names.LINE),
        "Other names of each node to resolve, such as those of its rails; `{name}` is the node's.", default=(),
        example='["{name}-rail0", "{name}-rail1"]')


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served(InventorySource):
    url: str | None = key(names.URL, "Address of its API.", default=None, absent="none")
    token: Secret | None = key(SECRET, "Token to bear.", default=None, absent="none",  # noqa: RUF009 - a field
        example="{file: /run/secrets/inventory}")
    ca_file: str | None = key(names.FILE, "Certificates (PEM) that it is checked against.", default=None,
        absent="those of the system")


@inventory_source
class KubernetesInventory(_Served):
    """What a Kubernetes API server says, or `kubectl get nodes,pods,services -A -o json`.

    Inside a pod, URL, token and certificate are those of its service account.
    """

    kind = "kubernetes"
    namespaces: tuple[str, ...] = key(ListOf(names.NAMESPACE),
        "Pods and services of these namespaces; a pod's addresses, Multus' too, are its machine's.", default=(),
        absent="all", example="[training, inference]")
    services: bool = key(FLAG, "Whether services are nodes, `NAME.NAMESPACE`.", default=True)


@inventory_source
class NetboxInventory(_Served):
    """What NetBox says of devices, virtual machines and their addresses, or its export of either as CSV."""

    kind = "netbox"
    query: str = key(names.LINE, "Filter of the devices, as in NetBox's own URLs. With one, virtual machines are left "
        "out.", default="", absent="all", example='"site=ams1&role=gpu-node"')


@inventory_source
class AnsibleInventory(InventorySource):
    """An inventory of Ansible (INI or YAML), or a file in the format of /etc/hosts."""

    kind = "ansible"
    variables: tuple[str, ...] = key(ListOf(names.LINE, at_least=1),
        "Variables of a host that hold its addresses. Of a host with none its name is resolved.",
        default=("ansible_host",), example="[ansible_host, rail0_ip, rail1_ip]")


@record
class RailNetwork:
    """Addresses in this prefix, of any source, are on this network; the longest prefix counts."""

    prefix: str
    plane: Plane | None = key(names.PLANE, "The network they are on.", default=None, absent="the group's plane")
    rail: int | None = key(Whole(0, 255), "Number of the rail.", default=None, absent="none")


@record
class InventorySettings:
    """Nodes beside those of `nodes`. A path alone stands for `file`.

    Sources are asked while `clusterflow ingest` runs; what they told last is kept in `bridge.state`/inventory, and
    holds while one is away. `nodes` and `file` come before sources, and these in their order: who has a name or an
    address first keeps it, and `clusterflow check` tells of the other.
    """

    networks: tuple[RailNetwork, ...] = key(
        MapOf(names.PREFIX, Section.of(RailNetwork, "network")),
        "Planes and rails of sources' addresses.", default=(), example="{10.20.0.0/24: {plane: compute, rail: 0}}")
    sources: tuple[InventorySource, ...] = key(
        MapOf(names.NAME, OneOf("type", INVENTORY_SOURCES, "inventory source")), "Who else knows nodes.", default=())


INVENTORY = Section.of(InventorySettings, "inventory",
    Key("file", names.PATH, "A CSV file with more nodes, beside this file.", absent="none", example="nodes.csv"),
    short="file")
# fmt: on

_NEEDS = {SlurmInventory.kind: "command", NetboxInventory.kind: "url", AnsibleInventory.kind: ""}


def check_inventory(table: Table | None, faults: Faults) -> None:
    """Record sources that cannot be asked: neither a file nor what stands in its place."""
    for placed in ((table or {}).get("sources") or {}).values():
        one = placed.value
        other = _NEEDS.get(one.get("type", ""))
        # () is a command that is off.
        if (
            other is not None
            and "file" in one
            and not one["file"]
            and (not other or one.get(other, True) in ((), None))
        ):
            expected = f"a file, or {other}" if other else "a file"
            faults.add(f"{placed.path}.file", "missing", expected)
