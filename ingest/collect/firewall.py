"""Rules of nftables that let nobody but the listed senders reach the collector's ports."""

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, collapse_addresses

from cluster.allow_list import senders
from cluster.model import Cluster
from ingest.collect.pmacct import NFACCTD, SFACCTD, Daemon

FILE = "exports.nft"

_TABLE = "inet clusterflow"
_HEAD = f"""\
#!/usr/sbin/nft -f
# Made by `clusterflow build` from cluster.yaml. Load: nft -f {FILE}. What it dropped: nft list table {_TABLE}
# The hook comes before Docker's address translation, which bypasses the chain `input`: containers are kept, too.
table {_TABLE}
delete table {_TABLE}
table {_TABLE} {{
    chain exports {{
        type filter hook prerouting priority -150; policy accept;
        iif "lo" accept
"""


def nft_rules(cluster: Cluster) -> str:
    """Return the file that `nft -f` loads, in place of an earlier one; empty where everybody may send."""
    rules = [rule for daemon in (NFACCTD, SFACCTD) for rule in _rules(cluster, daemon)]
    return "".join((_HEAD, *(f"        {rule}\n" for rule in rules), "    }\n}\n")) if rules else ""


def _rules(cluster: Cluster, daemon: Daemon) -> Iterator[str]:
    allowed, port = senders(cluster, daemon.protocol), daemon.port(cluster)
    # Neighbours as one: nft refuses intervals that overlap.
    fours = collapse_addresses(network for network in allowed if isinstance(network, IPv4Network))
    sixes = collapse_addresses(network for network in allowed if isinstance(network, IPv6Network))
    for family, networks in (("ip", fours), ("ip6", sixes)):
        if listed := ", ".join(map(str, networks)):
            yield f"udp dport {port} {family} saddr {{ {listed} }} accept"
    if allowed:
        yield f"udp dport {port} counter drop"
