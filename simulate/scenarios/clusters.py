"""The clusters that scenarios play on: built-in sizes, IPv6 only, or a cluster.yaml of one's own."""

import json
from dataclasses import replace
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from pathlib import Path
from typing import Any

from app.errors import ConfigError
from cluster.dump import plain_cluster
from cluster.load import load_cluster, parse_cluster
from cluster.model import Cluster, Group, Node
from simulate.traffic.bulk_load import large_cluster

BASE = Path(__file__).with_name("cluster.yaml")

DEMO = "demo"
SIZES = {DEMO: 0, "64 nodes": 64, "1,024 nodes": 1024}
"""Training nodes of the built-in clusters; 0: as many as the base has."""

_NODES_PER_LEAF = {64: 16, 1024: 64}

_EMBEDDED = IPv6Network("fd64::/96")
"""Where an IPv4 address lives in a cluster without IPv4: in the last 32 bits."""


@cache
def built_in(size: str) -> Cluster:
    """Return a built-in cluster by one of the names in SIZES."""
    base = load_cluster(BASE)
    nodes = SIZES[size]
    if not nodes:
        return base
    return large_cluster(base, nodes, nodes_per_leaf=_NODES_PER_LEAF[nodes])


def ipv6_only(cluster: Cluster) -> Cluster:
    """Return the cluster without IPv4: every address and prefix that has no IPv6 beside it becomes an embedded one."""
    return replace(
        cluster,
        groups=tuple(_group_v6(group) for group in cluster.groups),
        nodes=tuple(_node_v6(node) for node in cluster.nodes),
    )


def _group_v6(group: Group) -> Group:
    prefixes = tuple(_prefix_v6(prefix) if isinstance(prefix, IPv4Network) else prefix for prefix in group.prefixes)
    return replace(group, prefixes=prefixes)


def _prefix_v6(prefix: IPv4Network) -> IPv6Network:
    network = ip_network((int(_EMBEDDED.network_address) | int(prefix.network_address), 96 + prefix.prefixlen))
    assert isinstance(network, IPv6Network)  # noqa: S101 - 128 bits
    return network


def _node_v6(node: Node) -> Node:
    """Servers that have IPv6 keep just that; the others' addresses are embedded."""
    own = tuple(entry for entry in node.addresses if entry.address.version == 6)
    embedded = tuple(
        replace(entry, address=IPv6Address(int(_EMBEDDED.network_address) | int(entry.address)))
        for entry in node.addresses
        if isinstance(entry.address, IPv4Address)
    )
    return replace(node, addresses=own or embedded)


def with_settings(cluster: Cluster, settings: dict[str, Any], source: str) -> Cluster:
    """Return the cluster with some of its cluster.yaml's keys changed.

    Args:
        cluster: the cluster.
        settings: part of a cluster.yaml; mappings are merged, everything else is replaced.
        source: what errors call it.

    Raises:
        ConfigError: the settings are wrong, or do not fit the cluster.
    """
    if not settings:
        return cluster
    whole = _merged(plain_cluster(cluster), settings)
    try:
        return parse_cluster(json.dumps(whole), source)
    except ConfigError as error:
        # The lines are those of a text that nobody has.
        raise ConfigError(source, [replace(problem, line=0) for problem in error.problems]) from None


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result
