"""Allow files of pmacct: they hold just what is named, as far as pmacct reads them."""

from dataclasses import replace
from ipaddress import collapse_addresses, ip_address, ip_network

import pytest

from cluster.advice import advice
from cluster.allow_list import MOST_LINES, allow_lines, overlong, senders
from cluster.model import Cluster, CollectorSettings, Exporter, ExportProtocol, Network

APART = tuple(ip_network(int(ip_address("10.60.0.0")) + 2 * number) for number in range(MOST_LINES + 1))
"""No two of them are neighbours."""


def test_addresses_and_prefixes_stand_once_in_their_order() -> None:
    texts = ("10.60.9.17", "10.60.0.0/24", "fd00:60::1", "fd00:60::/64", "10.60.9.17/32")
    assert allow_lines(map(ip_network, texts)) == ["10.60.9.17", "10.60.0.0/24", "fd00:60::1", "fd00:60::/64"]


@pytest.mark.parametrize(
    ("text", "count"), [("fd00:60::/60", 16), ("fd00::/9", 128), ("fd00:60::2/127", 2), ("fd00::/8", 1)]
)
def test_pmacct_heeds_whole_bytes_of_ipv6(text: str, count: int) -> None:
    lines = [ip_network(line) for line in allow_lines([ip_network(text)])]
    assert len(lines) == count
    assert all(line.prefixlen % 8 == 0 for line in lines)
    assert list(collapse_addresses(lines)) == [ip_network(text)]


def test_what_is_too_much_shares_lines_and_lets_nobody_else_in() -> None:
    hosts = list(ip_network("10.60.0.0/20"))
    given = [*(ip_network(host) for host in hosts), ip_network("fd00:60::7")]
    assert allow_lines(given) == ["10.60.0.0/20", "fd00:60::7"]
    assert len(allow_lines(APART[:MOST_LINES])) == MOST_LINES
    assert len(allow_lines(APART)) == MOST_LINES + 1


def _netflow(networks: tuple[Network, ...]) -> Cluster:
    return Cluster("lab", (), exporters=tuple(Exporter(f"x-{net}", net.network_address) for net in networks))


def _sflow(networks: tuple[Network, ...]) -> Cluster:
    switch = Exporter("leaf", ip_address("10.9.9.9"), ExportProtocol.SFLOW)
    return Cluster("lab", (), exporters=(switch,), collector=CollectorSettings(sflow_sources=networks))


@pytest.mark.parametrize(
    ("cluster", "place", "daemon", "hint"),
    [
        (_netflow(APART), "exporters", "nfacctd", "give each of several collectors those that send to it"),
        (_sflow(APART), "collector.sflow_sources", "sfacctd", "name prefixes instead of addresses"),
    ],
)
def test_more_than_pmacct_reads_is_said(cluster: Cluster, place: str, daemon: str, hint: str) -> None:
    wrong = f"{place}: 2,049 lines in {daemon}'s allow file"
    said = f"{wrong}: expected at most 2,048, or it drops the other senders in silence ({hint})"
    assert [error.lines() for error in overlong(cluster)] == [[said]]
    assert said in advice(cluster)


@pytest.mark.parametrize("cluster", [_netflow(APART[1:]), _sflow(APART[1:])])
def test_as_many_as_it_reads_are_not(cluster: Cluster) -> None:
    assert list(overlong(cluster)) == []


def test_sflow_agents_are_no_senders_and_sources_without_agents_are_in_vain() -> None:
    cluster = _sflow(())
    assert senders(cluster, ExportProtocol.SFLOW) == senders(cluster, ExportProtocol.NETFLOW) == ()
    cluster = replace(_netflow(APART[:1]), collector=CollectorSettings(sflow_sources=APART[:1]))
    assert "collector.sflow_sources: no exporter speaks sflow: no sFlow is taken from anybody" in advice(cluster)
