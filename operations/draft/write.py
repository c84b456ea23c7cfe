"""A draft as a commented cluster.yaml."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, collapse_addresses

from cluster.model import EXTERNAL, CloudFormat, Network, Role
from ingest.read.records import SFLOW
from operations.draft.guess import STORAGE_PORTS, Block, Draft
from operations.draft.seen import EXPORTER, INTERFACE, RATE, RECORDS, VERSION, Seen
from store import schema

_TITLES = {
    Role.TRAINING: "GPU Training Nodes",
    Role.STORAGE: "Storage",
    Role.MODEL_STORAGE: "Model Storage",
    Role.INFERENCE: "Inference",
    Role.MANAGEMENT: "Management",
}
_STEMS = {
    Role.TRAINING: "gpu",
    Role.STORAGE: "nas",
    Role.MODEL_STORAGE: "model-store",
    Role.INFERENCE: "infer",
    Role.MANAGEMENT: "mgmt",
}
_USERS, _OTHERS = "users", "others"
_MOST_UNKNOWN, _MOST_TOLD = 50, 1000
"""Networks of no known purpose that are groups of their own, and blocks of a group that are told of: an hour in which
somebody scanned has tens of thousands, and a cluster may have 200 groups."""
_FILES = schema.CHECKPOINT.name
"""Service of what training writes to storage."""
_MOST_OUTSIDE = 10
_MOST_SERVICE_PORTS = 6
_COLLECTIVE_SHARE = 0.1


def text_of(seen: Seen, draft: Draft, name: str, cloud: CloudFormat | None, now: str) -> str:
    """Return cluster.yaml; each line with what it was guessed from.

    Args:
        seen: what was seen.
        draft: what it was taken for.
        name: of the cluster.
        cloud: whose flow logs were read, if any were.
        now: when, for the first line.
    """
    groups = groups_of(draft)
    records = int(seen.exporters.get_column(RECORDS).sum()) if seen.exporters.height else 0
    lines = [
        f"# Drafted by `clusterflow init --from-traffic` on {now} from {records} records in {seen.seconds} s.",
        "# Every line is a guess from traffic; what it was guessed from stands behind it. What was silent is not here.",
        "# Correct it, then `clusterflow check`. docs/reference/configuration.md explains every key.",
        "",
        f"cluster: {name}",
        "",
        "site:",
        "  time_zone: UTC                           # change: off-hours and job times follow it",
        "",
        *_groups(groups),
        *_outside(draft),
        "",
        *_nodes(groups),
        *_exporters(seen, cloud),
        *_allowed(groups, draft),
        *_services(draft),
    ]
    return "\n".join(lines) + "\n"


def _size(count: int) -> str:
    """Return bytes as evidence: two digits are enough."""
    value, units = float(count), ["B", "kB", "MB", "GB", "TB", "PB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"


def groups_of(draft: Draft) -> dict[str, list[Block]]:
    """Return the blocks of each group by its id."""
    groups: dict[str, list[Block]] = defaultdict(list)
    unknown = [block for block in draft.blocks if block.role is Role.CUSTOM and block.plane is None]
    apart = {block.network for block in sorted(unknown, key=lambda one: -one.total)[:_MOST_UNKNOWN]}
    for block in draft.blocks:
        if block.role is not Role.CUSTOM:
            groups[block.role.value].append(block)
        elif block.plane is not None:
            groups[_USERS].append(block)
        elif block.network in apart:
            groups["other_" + re.sub("[.:]+", "_", str(block.network.network_address)).strip("_")].append(block)
        else:
            groups[_OTHERS].append(block)
    return dict(groups)


def _groups(groups: Mapping[str, list[Block]]) -> Iterator[str]:
    yield "groups:"
    for name, blocks in groups.items():
        role = blocks[0].role
        yield f"  {name}:"
        yield f"    title: {_TITLES.get(role, name.replace('_', ' ').title())}"
        yield f"    role: {role.value}"
        yield f"    prefixes: [{', '.join(quoted(prefix) for prefix in collapsed(block.network for block in blocks))}]"
        if role is Role.MODEL_STORAGE:
            yield "    sensitive: true"
        planes = Counter(block.plane for block in blocks if block.plane is not None and block.same_as is None)
        if planes:
            yield f"    plane: {planes.most_common(1)[0][0]}"
        for block in blocks[:_MOST_TOLD]:
            yield f"    # {block.network}: {len(block.members)} addresses, {_size(block.total)}; {block.why}"
        if len(blocks) > _MOST_TOLD:
            yield f"    # and {len(blocks) - _MOST_TOLD:,} more networks"


def collapsed(networks: Iterable[Network]) -> list[Network]:
    """Return prefixes, neighbours put together."""
    given = [*networks]
    v4 = [one for one in given if isinstance(one, IPv4Network)]
    v6 = [one for one in given if isinstance(one, IPv6Network)]
    return [*collapse_addresses(v4), *collapse_addresses(v6)]


def quoted(prefix: Network) -> str:
    """Return a prefix as YAML takes it in a list."""
    return f'"{prefix}"' if prefix.version == 6 else str(prefix)


def _outside(draft: Draft) -> Iterator[str]:
    largest = sorted(draft.outside.items(), key=lambda item: -item[1][1])[:_MOST_OUTSIDE]
    received = [(address, come) for address, (_, come) in largest if come]
    if not received:
        return
    yield "  # Approve what is meant to be called outside (role approved_external). Most went to:"
    for address, come in received:
        yield f"  #   {address}: {_size(come)}"


def families(blocks: Iterable[Block]) -> list[list[Block]]:
    """Return blocks of a group by machines: those that are the same ones on several networks together."""
    found: dict[Network, list[Block]] = {}
    rails: list[Block] = []
    for block in blocks:
        home = block.same_as
        if block.rail is not None:
            alike = next((one for one in rails if set(one.members) & set(block.members)), None)
            rails.append(block)
            home = alike.network if alike else None
        while home is not None and home not in found:
            home = next((key for key, family in found.items() if home in {one.network for one in family}), None)
        if home is None:
            found[block.network] = [block]
        else:
            found[home].append(block)
    return list(found.values())


def machines(family: list[Block]) -> dict[str, list[Block]]:
    """Return the blocks that each machine of a family has an address in, by the last part of its addresses."""
    parts = {part for block in family for part in block.members}
    return {
        part: [block for block in family if part in block.members]
        for part in sorted(parts, key=lambda part: (len(part), part))
    }


def _nodes(groups: Mapping[str, list[Block]]) -> Iterator[str]:
    yield "nodes:"
    count = 0
    for name, blocks in groups.items():
        role = blocks[0].role
        if role not in _STEMS:
            continue
        found = families(blocks)
        for place, family in enumerate(found, 1):
            stem = _STEMS[role] if len(found) == 1 else f"{_STEMS[role]}{place}"
            for run in _runs(machines(family)):
                count += 1
                yield from _node(stem, name, run)
    if not count:
        yield "  {}"
    yield ""


def _runs(found: Mapping[str, list[Block]]) -> Iterator[tuple[list[str], list[Block]]]:
    """Yield machines that are numbered one after another and are on the same networks."""
    run: list[str] = []
    before: list[Block] = []
    for part, blocks in found.items():
        is_next = bool(run) and blocks == before and part.isdecimal() and run[-1].isdecimal()
        if is_next and int(part) == int(run[-1]) + 1:
            run.append(part)
            continue
        if run:
            yield run, before
        run, before = [part], blocks
    if run:
        yield run, before


def _node(stem: str, group: str, run: tuple[list[str], list[Block]]) -> Iterator[str]:
    parts, blocks = run
    first, last = parts[0], parts[-1]
    several = len(parts) > 1
    number = f"{{{first.zfill(len(last))}..{last}}}" if several else first
    yield f'  "{stem}-{number}":'
    yield f"    group: {group}"
    yield "    addresses:"
    for block in blocks:
        address = str(block.members[first])
        text = f"{address.removesuffix(first)}{{{first}..{last}}}" if several else address
        more = f", plane: {block.plane}" if block.plane is not None else ""
        more += f", rail: {block.rail}" if block.rail is not None and len(blocks) > 1 else ""
        yield f'      - {{address: "{text}"{more}}}'


def _exporters(seen: Seen, cloud: CloudFormat | None) -> Iterator[str]:
    if cloud is not None:
        yield f"cloud: {{format: {cloud.value}}}"
        yield ""
        return
    if seen.exporters.is_empty():
        return
    yield "exporters:"
    for number, row in enumerate((row for row in seen.exporters.iter_rows(named=True) if row[EXPORTER]), 1):
        yield f"  exporter-{number}:"
        yield f'    address: "{row[EXPORTER]}"'
        yield f"    protocol: {'sflow' if row[VERSION] >= SFLOW else 'netflow'}"
        rate = row[RATE]
        told = f"it said 1 in {rate}" if rate > 1 else "it told no rate" if rate < 1 else "unsampled, by its records"
        yield f"    sampling: auto                         # {told}; {row[RECORDS]} records"
        if row[INTERFACE]:
            names = ", ".join(map(str, row[INTERFACE][:20]))
            yield f"    # Traffic came in by the interfaces {names}: name them (`interfaces`) to see planes and links."
    yield ""


def _allowed(groups: Mapping[str, list[Block]], draft: Draft) -> Iterator[str]:
    group_of: dict[Network | None, str] = {block.network: name for name, blocks in groups.items() for block in blocks}
    group_of[None] = EXTERNAL
    sizes: Counter[tuple[str, str]] = Counter()
    ports: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    for (src, dst), pair in draft.pairs.items():
        way = group_of[src], group_of[dst]
        if way[0] != way[1]:
            sizes[way] += pair.sent
            ports[way].update(dict.fromkeys(pair.ports, pair.sent))
    inference = Role.INFERENCE.value
    meant = {way for way in sizes if EXTERNAL not in way or inference in way}
    yield "# What was seen is not what is meant: strike what should not be."
    yield "allowed:" if meant else "allowed: []"
    for way, size in sizes.most_common():
        named = ", ".join(str(port) for port, _ in ports[way].most_common(4))
        line = f"- {{from: {way[0]}, to: {way[1]}}}"
        if way in meant:
            yield f"  {line:<50} # {_size(size)}; ports {named}"
        else:
            yield f"  # {line:<48} # {_size(size)}; ports {named}: with the outside; is it meant?"
    yield ""


def _services(draft: Draft) -> Iterator[str]:
    files: Counter[int] = Counter()
    collective: Counter[int] = Counter()
    inside = 0
    for block in draft.blocks:
        if block.role is Role.STORAGE:
            files.update({port: size for port, size in block.served.items() if port in STORAGE_PORTS})
        elif block.role is Role.TRAINING and block.same_as is None:
            collective.update(block.served)
            inside += block.inside
    # Fragments, and the tunnels of a network of pods, have no port; and each port is of one service.
    for port in (0, *files):
        del collective[port]
    kept = [port for port, size in collective.most_common(_MOST_SERVICE_PORTS) if size > _COLLECTIVE_SHARE * inside]
    found = {_FILES: [port for port, _ in files.most_common(_MOST_SERVICE_PORTS)], "collective": kept}
    if not any(found.values()):
        return
    yield "services:"
    for name, listed in found.items():
        if listed:
            protocols = "[tcp, udp]" if name == _FILES else "[tcp]"
            sizes = files if name == _FILES else collective
            evidence = ", ".join(f"{port}: {_size(sizes[port])}" for port in listed)
            yield f"  {name}: {{ports: {sorted(listed)}, protocols: {protocols}}}  # {evidence}"
