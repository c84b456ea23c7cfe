"""Who opened a conversation, what management does not expect, and who really stands in a prefix."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import polars as pl
import pytest
from test_engine import cluster, one, take

from cluster.model import ANY, Cluster, Group, GroupPair, Management, Node, NodeAddress, Role
from cluster.sections.network.services import with_well_known
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from store import schema
from store.schema import Violation

SYN, ACK, SYN_ACK, PSH_ACK, EVERYTHING = 0x02, 0x10, 0x12, 0x18, 0x1B


def managed(**policy: object) -> Cluster:
    """The engine's cluster with managers and administrators, whom everyone may talk to."""
    base = cluster()
    return replace(
        base,
        groups=(
            *base.groups,
            Group("control", "Control", Role.MANAGEMENT, (ip_network("10.6.0.0/24"),)),
            Group("admins", "Admins", Role.CUSTOM, (ip_network("10.8.0.0/24"),)),
        ),
        nodes=(*base.nodes, Node("mgmt-1", "control", (NodeAddress(ip_address("10.6.0.1")),))),
        allowed=(
            *base.allowed, GroupPair(ANY, "control"), GroupPair("control", "training"), GroupPair("control", "admins"),
        ),
        services=with_well_known(()),
        management=Management(("dns", "ntp"), ("admins",), **policy),  # type: ignore[arg-type]
    )  # fmt: skip


def found(rows: pl.DataFrame, measurement: schema.Measurement, what: Cluster | None = None) -> pl.DataFrame:
    engine = Engine(what or cluster(), Clock.LIVE, Counters())
    return take(engine, rows).get(measurement.name, pl.DataFrame(schema={schema.KIND: pl.String}))


# -- who opened it ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "initiator"),
    [
        # Ports: the server's is known, or the lower one.
        ({"src_port": 50_000, "dst_port": 443}, schema.BY_SOURCE),
        ({"src_port": 443, "dst_port": 50_000}, schema.BY_DESTINATION),
        ({"src_port": 40_000, "dst_port": 45_000}, schema.BY_DESTINATION),
        # A SYN alone opens, whatever the ports say.
        ({"src_port": 40_000, "dst_port": 45_000, "tcp_flags": SYN}, schema.BY_SOURCE),
        ({"src_port": 443, "dst_port": 50_000, "tcp_flags": SYN}, schema.BY_SOURCE),
        # SYN and ACK in one packet answer.
        ({"src_port": 45_000, "dst_port": 40_000, "tcp_flags": SYN_ACK}, schema.BY_DESTINATION),
        # In several packets they may be either side's: the ports decide.
        ({"src_port": 45_000, "dst_port": 40_000, "tcp_flags": SYN_ACK, "packets": 4}, schema.BY_SOURCE),
        ({"src_port": 40_000, "dst_port": 443, "tcp_flags": SYN_ACK, "packets": 4}, schema.BY_SOURCE),
        ({"src_port": 40_000, "dst_port": 443, "tcp_flags": EVERYTHING, "packets": 9}, schema.BY_SOURCE),
        ({"src_port": 443, "dst_port": 40_000, "tcp_flags": PSH_ACK}, schema.BY_DESTINATION),
        # ICMP's type and code are no port: a ping, its answer (IPv6), a port that is unreachable.
        ({"src_port": 0, "dst_port": 8 << 8, "protocol": 1}, schema.BY_SOURCE),
        ({"src_port": 0, "dst_port": 128 << 8, "protocol": 58}, schema.BY_SOURCE),
        ({"src_port": 0, "dst_port": 129 << 8, "protocol": 58}, schema.BY_DESTINATION),
        ({"src_port": 0, "dst_port": 3 << 8 | 3, "protocol": 1}, schema.BY_DESTINATION),
        # Flags mean nothing where there is no TCP.
        ({"src_port": 40_000, "dst_port": 45_000, "tcp_flags": SYN, "protocol": 17}, schema.BY_DESTINATION),
    ],
)
def test_who_opened_a_conversation(values: dict[str, int], initiator: str) -> None:
    rows = found(one(**values), schema.EGRESS)
    assert rows.get_column(schema.INITIATOR).to_list() == [initiator]


def test_the_lower_port_is_right_about_an_answer_from_a_high_port() -> None:
    """A case that ports alone get wrong: 45,000 answers 40,000."""
    rows = pl.concat([
        one(src_port=40_000, dst_port=45_000, tcp_flags=SYN),
        one(src="10.1.0.2", src_port=45_000, dst_port=40_000, tcp_flags=SYN_ACK),
    ])  # fmt: skip
    assert dict(found(rows, schema.EGRESS).select(schema.SRC, schema.INITIATOR).rows()) == {
        "gpu-1": schema.BY_SOURCE, "gpu-2": schema.BY_DESTINATION,
    }  # fmt: skip


# -- management --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("src", "dst", "dst_port", "protocol", "unexpected"),
    [
        ("10.1.0.1", "10.6.0.1", 53, 17, False),
        ("10.1.0.1", "10.6.0.1", 22, 6, True),
        ("10.1.0.1", "10.6.0.1", 31_337, 6, True),
        ("10.1.0.1", "10.6.0.1", 0, 1, False),  # a ping says of no service
        ("10.8.0.7", "10.6.0.1", 22, 6, False),
        ("203.0.113.5", "10.6.0.1", 53, 17, True),
        ("203.0.113.5", "10.6.0.1", 0, 1, True),
        ("198.51.100.9", "10.6.0.1", 22, 6, True),
        ("10.6.0.1", "10.1.0.1", 22, 6, False),
        ("10.6.0.1", "10.6.0.9", 22, 6, False),
        ("10.1.0.1", "10.2.0.1", 22, 6, False),  # no management in it
        # `allowed` lists no way from management to storage, nor outside.
        ("10.6.0.1", "10.2.0.1", 22, 6, True),
        ("10.6.0.1", "203.0.113.5", 53, 17, True),
    ],
)
def test_what_management_does_not_expect(
    src: str,
    dst: str,
    dst_port: int,
    protocol: int,
    unexpected: bool,  # noqa: FBT001
) -> None:
    row = one(src=src, dst=dst, src_port=50_000 if dst_port else 0, dst_port=dst_port, protocol=protocol)
    kinds = found(row, schema.VIOLATION, managed()).get_column(schema.KIND).to_list()
    assert (Violation.MANAGEMENT in kinds) is unexpected


def test_an_answer_of_management_belongs_to_the_question() -> None:
    """What a training node asks is not expected: neither is the answer, and both say who opened it."""
    rows = pl.concat([
        one(src="10.1.0.1", dst="10.6.0.1", src_port=50_000, dst_port=22),
        one(src="10.6.0.1", dst="10.1.0.1", src_port=22, dst_port=50_000),
    ])  # fmt: skip
    table = found(rows, schema.VIOLATION, managed()).filter(pl.col(schema.KIND) == Violation.MANAGEMENT)
    assert set(table.select(schema.SRC, schema.DST, schema.SERVICE, schema.INITIATOR).rows()) == {
        ("gpu-1", "mgmt-1", "ssh", schema.BY_SOURCE), ("mgmt-1", "gpu-1", "ssh", schema.BY_DESTINATION),
    }  # fmt: skip


def test_one_conversation_may_be_of_several_kinds() -> None:
    row = one(src="10.6.0.1", dst="10.2.0.1", dst_port=22)
    kinds = found(row, schema.VIOLATION, managed()).get_column(schema.KIND).to_list()
    assert sorted(kinds) == [Violation.MANAGEMENT, Violation.NOT_ALLOWED]


# -- shadow nodes ------------------------------------------------------------------------------------------


def test_an_address_that_is_only_called_has_sent_nothing() -> None:
    rows = pl.concat([
        one(src="10.1.7.7", dst="10.1.0.1", bytes=300),
        one(src="10.1.0.1", dst="10.1.8.8", bytes=40),
    ])  # fmt: skip
    table = found(rows, schema.UNKNOWN_NODE).select(schema.ADDRESS, "bytes", schema.TX_BYTES.name)
    assert sorted(table.rows()) == [("10.1.7.7", 300, 300), ("10.1.8.8", 40, 0)]


# -- what is no contact ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("src", "dst", "leaves"),
    [
        ("10.1.0.1", "203.0.113.5", True),
        ("10.1.0.1", "198.51.100.9", True),
        ("10.1.0.1", "224.0.0.251", False),
        ("10.1.0.1", "239.255.255.250", False),
        ("10.1.0.1", "255.255.255.255", False),
        ("10.1.0.1", "169.254.169.254", False),
        ("10.1.0.1", "127.0.0.1", False),
        ("fd00:1::1", "2001:db8::5", True),
        ("fd00:1::1", "ff02::fb", False),
        ("fd00:1::1", "fe80::1", False),
        ("10.1.0.1", "10.1.255.255", False),  # a subnet's own broadcast is in its group
    ],
)
def test_multicast_broadcast_and_link_local_never_leave(src: str, dst: str, leaves: bool) -> None:  # noqa: FBT001
    assert bool(found(one(src=src, dst=dst), schema.EGRESS).height) is leaves


@pytest.mark.parametrize(
    ("src", "answers", "group"),
    [
        ("10.1.0.1", False, "training"),
        # In no group, but nobody outside can have it: a machine that nobody listed, or a forged address.
        ("10.99.0.1", False, "unlisted"),
        ("10.99.0.1", True, "unlisted"),
        ("172.31.255.9", True, "unlisted"),
        ("100.64.0.9", True, "unlisted"),
        ("fd99::1", True, "unlisted"),
        ("169.254.7.7", True, "unlisted"),
        ("fe80::7", True, "unlisted"),
        ("0.0.0.9", True, "unlisted"),
        ("224.0.0.5", True, "unlisted"),
        # What a public address opens past our exporters may be ours; what it answers is somebody's download.
        ("2001:db8::66", False, "unlisted"),
        ("192.0.2.66", False, "unlisted"),
        ("172.32.0.1", True, "external"),
        ("192.0.2.66", True, "external"),
        ("2001:db8::66", True, "external"),
        ("198.51.100.9", False, "partner"),
        ("198.51.100.9", True, "partner"),
    ],
)
def test_whoever_sends_outside_counts(src: str, answers: bool, group: str) -> None:  # noqa: FBT001
    ports = {"src_port": 443, "dst_port": 50_000} if answers else {"src_port": 50_000, "dst_port": 443}
    rows = found(one(src=src, dst="203.0.113.5", bytes=2_000_000, **ports), schema.EGRESS)
    assert rows.get_column(schema.SRC_GROUP).to_list() == [group]


def test_who_scans_past_us_takes_no_series() -> None:
    """Of sources outside all groups, only conversations with bytes get names; no byte is lost."""
    scan = pl.concat(one(src=f"192.0.2.{n}", dst=f"203.0.113.{n}", bytes=40) for n in range(200))
    large = one(src="10.99.0.1", dst="203.0.113.5", bytes=1_000_000)
    rows = found(pl.concat([scan, large]), schema.EGRESS)
    assert sorted(rows.select(schema.SRC, schema.DST, "bytes").rows()) == [
        ("10.99.0.1", "203.0.113.5", 1_000_000), (schema.OTHER, schema.OTHER, 200 * 40),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("dst", "group"), [("198.18.0.7", "drill"), ("203.0.113.5", "drill"), ("192.0.2.66", "unlisted")]
)
def test_who_sends_in_a_drills_name_to_somebody_real_is_not_drilling(dst: str, group: str) -> None:
    base = cluster()
    drill = Group("drill", "Drill", Role.DRILL, (ip_network("10.99.0.0/28"),))
    rows = found(
        one(src="10.99.0.1", dst=dst, bytes=2_000_000), schema.EGRESS, replace(base, groups=(*base.groups, drill))
    )
    assert rows.get_column(schema.SRC_GROUP).to_list() == [group]
