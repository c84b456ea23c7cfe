"""Lines for cluster.yaml out of stored traffic: pairs of groups that `allowed` lacks, approved prefixes never used."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from ipaddress import ip_address

from app.application import rows_shown
from app.words import amount
from cluster.model import Address, Cluster, Network, Role
from store import schema
from store.influx import Store
from store.influxql import Select, highest, is_in, lowest, newest, total

_PAIR = (schema.SRC_GROUP, schema.DST_GROUP)
_MOST_KINDS, _MOST_PREFIXES = 4, 8


def allowed_lines(cluster: Cluster, store: Store, start: int, stop: int, retention: str) -> list[str]:
    """Return `allowed` as YAML: the pairs of groups that talked and that it does not list, the largest first.

    Behind each pair stand bytes, services or ports, and when it was last seen. What goes to or comes from the outside
    is commented out: that is seldom meant.

    Args:
        cluster: says what is allowed already.
        store: where traffic is.
        start: epoch seconds.
        stop: epoch seconds.
        retention: that has the range.
    """
    tags = (*_PAIR, schema.PROTO, schema.SERVICE)
    asked = Select(schema.TRAFFIC, retention).by(*tags).between(start, stop)
    kinds: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
    known = {*cluster.group_ids()}
    for _, src, dst, proto, service, volume in store.rows(asked.take(total(schema.BYTES))):
        if volume and {src, dst} <= known and not cluster.is_allowed(src, dst):
            kinds[src, dst][proto, service] += int(volume)
    seen: dict[tuple[str, str], int] = {}
    for at, src, dst, *_ in store.rows(asked.take(newest(schema.BYTES))):
        seen[src, dst] = max(at, seen.get((src, dst), 0))
    ports = _ports(store, start, stop, retention) if kinds else {}
    lines = []
    for (src, dst), sizes in sorted(kinds.items(), key=lambda item: -item[1].total()):
        named = ", ".join(_kind(src, dst, *kind, ports) for kind, _ in sizes.most_common(_MOST_KINDS))
        last = datetime.fromtimestamp(seen[src, dst], cluster.site.time_zone).strftime("%Y-%m-%d %H:%M")
        outside = {src, dst} & {*cluster.outside_ids()}
        meant = not outside or cluster.group(dst if src in outside else src).role is Role.INFERENCE
        line = f"{'' if meant else '# '}- {{from: {src}, to: {dst}}}"
        doubt = "" if meant else ": with the outside; is it meant?"
        lines.append(f"  {line:<52} # {amount(sizes.total())}; {named}; last {last}{doubt}")
    return ["# What was seen is not what is meant: strike what should not be.", "allowed:", *lines] if lines else []


def _ports(store: Store, start: int, stop: int, retention: str) -> dict[tuple[str, str, str], str]:
    """Return the servers' ports without a service, by source, destination and protocol, as violations have them."""
    asked = Select(schema.VIOLATION, retention).take(lowest(schema.PORT), highest(schema.PORT_MAX))
    asked = asked.where(is_in(schema.SERVICE, [schema.OTHER])).by(*_PAIR, schema.PROTO).between(start, stop)
    return {
        (src, dst, proto): f"{low}" if low == high else f"{low} to {high}"
        for _, src, dst, proto, low, high in store.rows(asked)
        if low is not None
    }


def _kind(src: str, dst: str, proto: str, service: str, ports: dict[tuple[str, str, str], str]) -> str:
    if service != schema.OTHER:
        return f"{proto} {service}"
    found = ports.get((src, dst, proto))
    return f"{proto} port{'s' if ' ' in found else ''} {found}" if found else f"{proto} other"


def unused_prefixes(cluster: Cluster, store: Store, start: int, stop: int, retention: str) -> list[str]:
    """Return comments: which prefixes of approved groups nobody sent to, and how sure that is.

    The bridge names the largest conversations of a window; what it does not name stands as `other`, whose share of a
    group's bytes is told. Arguments are those of `allowed_lines`.
    """
    groups = {group.id: group for group in cluster.groups if group.is_outside and group.prefixes}
    nodes = {node.name: [one.address for one in node.addresses] for node in cluster.nodes if node.group in groups}
    addresses: dict[str, set[Address]] = defaultdict(set)
    sizes: Counter[str] = Counter()
    crowd: Counter[str] = Counter()
    asked = Select(schema.EGRESS, retention).take(total(schema.BYTES)).where(is_in(schema.DST_GROUP, groups))
    for _, group, name, size in store.rows(asked.by(schema.DST_GROUP, schema.DST).between(start, stop)):
        sizes[group] += int(size or 0)
        try:
            addresses[group].update(nodes.get(name) or [ip_address(name)])
        except ValueError:
            crowd[group] += int(size or 0)
    lines = []
    for name, group in groups.items():
        unused = _unused(group.prefixes, addresses[name])
        share = crowd[name] / sizes[name] if crowd[name] else 0
        doubt = f"; {share:.0%} of its bytes went to addresses that were not named" if share else ""
        lines.append(f"# {name}: {len(group.prefixes) - len(unused):,} of {len(group.prefixes):,} prefixes used{doubt}")
        shown = unused[: rows_shown(_MOST_PREFIXES)]
        more = f" and {len(unused) - len(shown):,} more (-v shows them)" if len(unused) > len(shown) else ""
        lines += [f"#   never: {', '.join(map(str, shown))}{more}"] if unused else []
    return lines


def _unused(prefixes: Iterable[Network], addresses: Iterable[Address]) -> list[Network]:
    """Return the prefixes that hold none of the addresses, in their order."""
    by_length: dict[tuple[int, int], dict[int, Network]] = defaultdict(dict)
    for prefix in prefixes:
        by_length[prefix.version, prefix.max_prefixlen - prefix.prefixlen][int(prefix.network_address)] = prefix
    used = {
        networks.get(int(address) >> bits << bits)
        for address in addresses
        for (version, bits), networks in by_length.items()
        if version == address.version
    }
    return [prefix for prefix in prefixes if prefix not in used]
