"""A first cluster.yaml from who knows nodes: Slurm, Kubernetes, NetBox, Ansible."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_network

from app.words import some
from cluster.document import Faults
from cluster.load import parse_cluster
from cluster.model import MOST_GROUPS, RESERVED_GROUPS, Address, Cost, Machine, Network, Node, Plane, Role
from cluster.sections.network.inventory import Inventory
from operations.draft.guess import block_of
from operations.draft.write import collapsed, quoted

_ROLES = {
    Role.MANAGEMENT: "mgmt|manage|control|master|login|admin|bmc|oob|infra",
    Role.MODEL_STORAGE: "model|registry|artifact",
    Role.STORAGE: "stor|nas|nfs|lustre|ceph|weka|oss|mds",
    Role.INFERENCE: "infer|serv|vllm|triton",
    Role.TRAINING: "gpu|train|dgx|hgx|[abh][0-9]00",
}
"""Words by which a group's role is guessed, the first that is found."""
_MOST_KINDS, _OTHERS = 100, "others"
"""Where they are more than a cluster may have groups, so many of the largest kinds are groups of their own."""
_PLANES = {
    Role.TRAINING: f"{Plane.COMPUTE}, rail: 0",
    Role.STORAGE: Plane.STORAGE,
    Role.MODEL_STORAGE: Plane.STORAGE,
    Role.MANAGEMENT: Plane.MANAGEMENT,
}
_NUMBERED = re.compile(r"(.*?)([0-9]+)([^0-9]*)")


def text_of_inventory(machines: Iterable[Machine], source: str, now: str) -> str:
    """Return cluster.yaml with the machines as nodes and a group for each of their kinds.

    A kind has the blocks (IPv4 /24, IPv6 /64) in which it is alone, and single addresses where it is not.

    Args:
        machines: what a source told.
        source: as `inventory.sources` would name it: YAML in one line.
        now: when, for the first line.
    """
    told = [*machines]
    kinds: dict[str, set[Address]] = defaultdict(set)
    gpus: Counter[str] = Counter()
    for one in told:
        kinds[_group_id(one)].update(one.addresses)
        gpus[_group_id(one)] += one.gpus or 0
    kinds = {name: addresses for name, addresses in kinds.items() if addresses}
    # Kinds by names alone may be as many as machines.
    if len(kinds) > MOST_GROUPS:
        small = sorted(kinds, key=lambda name: -len(kinds[name]))[_MOST_KINDS:]
        others = {address for name in small for address in kinds.pop(name)}
        kinds[_OTHERS] = kinds.get(_OTHERS, set()) | others
    roles = {name: _role(name, gpus[name]) for name in kinds}
    # An address of two kinds is of the first.
    owner = {address: name for name in reversed(kinds) for address in kinds[name]}
    by_block: dict[Network, Counter[str]] = defaultdict(Counter)
    for address, name in sorted(owner.items(), key=lambda item: (item[0].version, int(item[0]))):
        by_block[block_of(address)][name] += 1
    groups = ["groups:", *(line for name in kinds for line in _group(name, roles[name], owner, by_block))]
    head = ["cluster: my-cluster", "", "site:", "  time_zone: UTC    # change: off-hours and job times follow it", ""]
    inventory = Inventory(parse_cluster("\n".join([*head, *groups])).groups, [*kinds], Faults("draft"))
    inventory.add_source("draft", told, ())
    lines = [
        f"# Drafted by `clusterflow init --from` on {now} from {len(told)} entries of {source}.",
        "# Roles are guessed from names. Say which plane and rail an address is on, and who exports flows.",
        "# docs/reference/configuration.md explains every key; `clusterflow check` tells what is wrong.",
        *(f"# {line}" for line in without_address(told)),
        "",
        *head,
        *groups,
        "",
        "# To have nodes followed while they come and go, put this in place of `nodes`:",
        "# inventory:",
        "#   networks:    # the plane and rail of each",
        *(
            f"#     {quoted(block)}: {{plane: {_PLANES.get(roles[found.most_common(1)[0][0]], Plane.FRONTEND)}}}"
            for block, found in by_block.items()
        ),
        f"#   sources: {{{source}}}",
        "nodes:",
        *_nodes(inventory.nodes(Cost())),
        "",
        "# Who may send to whom: after a week of traffic `clusterflow suggest allowed` drafts it.",
        "allowed: []",
    ]
    return "\n".join(lines) + "\n"


def without_address(machines: Iterable[Machine]) -> Iterator[str]:
    """Yield a line about the machines that a draft leaves out, if any: nothing can be said of their traffic."""
    names = sorted({one.name for one in machines} - {one.name for one in machines if one.addresses})
    if names:
        yield f"Left out, as no address of theirs is known here: {some(names, 3)}. Does DNS know them?"


def _group_id(one: Machine) -> str:
    """Return a group's id made of the source's word; without one of the letters that the name begins with."""
    word = one.word or re.split("[^A-Za-z]", one.name)[0]
    name = re.sub("[^a-z0-9]+", "_", word.lower()).strip("_")[:28]
    return f"g_{name}" if not name[:1].isalpha() or name in {*RESERVED_GROUPS, "unlisted", "other", "unknown"} else name


def _role(name: str, gpus: int) -> Role:
    found = next((role for role, words in _ROLES.items() if re.search(words, name)), Role.CUSTOM)
    return Role.TRAINING if gpus and found is Role.CUSTOM else found


def _group(
    name: str, role: Role, owner: Mapping[Address, str], by_block: Mapping[Network, Counter[str]]
) -> Iterator[str]:
    networks = {
        block_of(address) if len(by_block[block_of(address)]) == 1 else ip_network(address)
        for address, one in owner.items()
        if one == name
    }
    yield f"  {name}:"
    yield f"    role: {role}"
    yield f"    prefixes: [{', '.join(map(quoted, collapsed(networks)))}]"
    for block, found in by_block.items():
        if found[name]:
            yield f"    # {block}: {found[name]} address{'es' * (found[name] > 1)}"


def _nodes(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield nodes; those that are numbered one after another, and their addresses with them, in one entry."""
    runs: list[list[Node]] = []
    for node in nodes:
        if runs and _follows(runs[-1], node):
            runs[-1].append(node)
        else:
            runs.append([node])
    for run in runs:
        yield f'  "{_ranged([node.name for node in run])}":'
        yield f"    group: {run[0].group}"
        if run[0].gpus:
            yield f"    gpus: {run[0].gpus}"
        columns = zip(*([str(one.address) for one in node.addresses] for node in run), strict=True)
        yield f"    addresses: {json.dumps([_ranged(column) for column in columns])}"


def _follows(run: list[Node], node: Node) -> bool:
    first, last = run[0], run[-1]
    if (last.group, last.gpus, len(last.addresses)) != (node.group, node.gpus, len(node.addresses)):
        return False
    pairs = [(first.name, last.name, node.name)]
    pairs += [
        (str(a.address), str(b.address), str(c.address))
        for a, b, c in zip(first.addresses, last.addresses, node.addresses, strict=True)
    ]
    for one, before, text in pairs:
        begin, old, new = (_NUMBERED.fullmatch(each) for each in (one, before, text))
        if begin is None or old is None or new is None or (old[1], old[3]) != (new[1], new[3]):
            return False
        # As a range writes it: counted in tens, with the digits of the first number.
        if new[2] != str(int(old[2]) + 1).zfill(len(begin[2])):
            return False
    return True


def _ranged(texts: Iterable[str]) -> str:
    first, *others = texts
    begin, end = _NUMBERED.fullmatch(first), _NUMBERED.fullmatch(others[-1]) if others else None
    return f"{begin[1]}{{{begin[2]}..{end[2]}}}{begin[3]}" if begin and end else first
