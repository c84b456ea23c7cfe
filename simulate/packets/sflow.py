"""sFlow version 5 datagrams: flow samples with the raw header of a synthesised Ethernet frame, and counter samples.

The format is that of sflow.org's "sFlow Version 5".
"""

import struct
from ipaddress import IPv4Address

import numpy as np
from numpy.typing import NDArray

from cluster.model import Address
from simulate.packets.netflow import MAX_MESSAGE, Packed, RecordColumns
from simulate.packets.polls import InterfaceCounters, Poll

_TCP = 6
_UDP = 17
_FCS = 4
"""Bytes at the end of a frame that the sample counts in its length and leaves out of its header."""

FRAME_OVERHEAD = 18
"""Bytes of an Ethernet frame beside the IP packet: header and check sequence."""

MIN_FRAME = 64
"""Shorter frames are padded to this length."""

_FLOW_SAMPLE = 1
_RAW_HEADER = 1
_COUNTER_SAMPLE = 2
_GENERIC_COUNTERS = 1
_ETHERNET_LINK, _FULL_DUPLEX, _UP = 6, 1, 3
_ETHERNET = 1

_SAMPLE = [
    ("tag", ">u4"), ("length", ">u4"), ("sequence", ">u4"), ("source", ">u4"), ("rate", ">u4"), ("pool", ">u4"),
    ("drops", ">u4"), ("in_iface", ">u4"), ("out_iface", ">u4"), ("records", ">u4"), ("record_tag", ">u4"),
    ("record_length", ">u4"), ("header_protocol", ">u4"), ("frame_length", ">u4"), ("stripped", ">u4"),
    ("header_length", ">u4"), ("dst_mac", "u1", 6), ("src_mac", "u1", 6), ("ether_type", ">u2"),
]  # fmt: skip
_IPV4 = [
    ("version", "u1"), ("tos", "u1"), ("total_length", ">u2"), ("id", ">u2"), ("fragment", ">u2"), ("ttl", "u1"),
    ("proto", "u1"), ("checksum", ">u2"), ("src", "u1", 4), ("dst", "u1", 4),
]  # fmt: skip
_IPV6 = [
    ("version", "u1"), ("tos", "u1"), ("flow_label", ">u2"), ("payload_length", ">u2"), ("proto", "u1"), ("ttl", "u1"),
    ("src", "u1", 16), ("dst", "u1", 16),
]  # fmt: skip
# The first 20 bytes after the IP header: all of a TCP header; of UDP its header and the payload's first bytes.
_PORTS = [
    ("src_port", ">u2"), ("dst_port", ">u2"), ("tcp_seq", ">u4"), ("tcp_ack", ">u4"), ("tcp_offset", "u1"),
    ("tcp_flags", "u1"), ("tcp_window", ">u2"), ("tcp_rest", ">u4"),
]  # fmt: skip

_SAMPLE_V4 = np.dtype([*_SAMPLE, *_IPV4, *_PORTS, ("pad", "u1", 2)])
_SAMPLE_V6 = np.dtype([*_SAMPLE, *_IPV6, *_PORTS, ("pad", "u1", 2)])
_GENERIC = struct.Struct("!IIQIIQIIIIIIQIIIIII")
"""ifIndex, type, speed, direction, status; octets, three kinds of packets, discards, errors, unknown protocols in; the
same out, without the last; promiscuous."""
_COUNTERS_SIZE = 8 + 12 + 8 + _GENERIC.size
_SAMPLE_HEAD = 8
"""Bytes of a sample's tag and length, which its length does not count."""
_RECORD_AT = 40
"""Offset in a sample of its record's tag."""
_DATAGRAM_FIXED = 28
_IPV6_EXTRA = 12
_RECORD_FIXED = 16
_PAD = 2
_POLLED = (MAX_MESSAGE - _DATAGRAM_FIXED - _IPV6_EXTRA) // _COUNTERS_SIZE
"""Interfaces whose counters fit a datagram."""


class SflowEncoder:
    """One agent's stream of datagrams.

    Args:
        agent: the agent's address, which sfacctd prints as ``peer_ip_src``.
        boot: epoch milliseconds at which the agent's uptime began.
        rate: one of so many packets is sampled.
    """

    def __init__(self, agent: Address, boot: int, rate: int) -> None:
        kind = 1 if isinstance(agent, IPv4Address) else 2
        self._agent = struct.pack("!II", 5, kind) + agent.packed
        self._boot = boot
        self._rate = rate
        self._datagrams = 0
        self._samples = 0
        self._polls = 0

    def pack(self, records: RecordColumns) -> Packed:
        """Return the records as flow samples; every record is one packet, `octets` its frame's length."""
        packed = np.zeros(len(records), _SAMPLE_V6 if records.is_v6 else _SAMPLE_V4)
        size = packed.dtype.itemsize
        packed["tag"], packed["length"] = _FLOW_SAMPLE, size - _SAMPLE_HEAD
        packed["source"] = records.in_iface
        packed["rate"] = self._rate
        packed["in_iface"], packed["out_iface"] = records.in_iface, records.out_iface
        packed["records"], packed["record_tag"] = 1, _RAW_HEADER
        packed["record_length"] = size - _RECORD_AT - _SAMPLE_HEAD
        packed["header_protocol"], packed["stripped"] = _ETHERNET, _FCS
        packed["frame_length"] = records.octets
        packed["header_length"] = size - _RECORD_AT - _SAMPLE_HEAD - _RECORD_FIXED - _PAD
        for side, address in (("src_mac", records.src), ("dst_mac", records.dst)):
            packed[side][:, 0] = 2  # locally administered
            packed[side][:, 2:] = address[:, -4:]
        _pack_ip(packed, records)
        packed["src_port"], packed["dst_port"] = records.src_port, records.dst_port
        is_tcp = records.proto == _TCP
        packed["tcp_offset"] = np.where(is_tcp, 5 << 4, 0)
        packed["tcp_flags"] = np.where(is_tcp, records.tcp_flags, 0)
        # UDP's length and checksum lie where TCP's sequence number does.
        packed["tcp_seq"] = np.where(records.proto == _UDP, _ip_payload(records) << 16, 1)
        return Packed(packed, records.is_v6)

    def message(self, packed: Packed, first: int, last: int, now: int) -> bytes:
        """Return samples `first` to `last` (exclusive) as the next datagram, sent at `now` (epoch milliseconds)."""
        samples = packed.data[first:last].copy()
        sequence = self._samples + 1 + np.arange(last - first, dtype=np.int64)
        samples["sequence"] = sequence & 0xFFFFFFFF
        samples["pool"] = (sequence * self._rate) & 0xFFFFFFFF
        self._samples += last - first
        return self._datagram(last - first, samples.tobytes(), now)

    def poll(self, poll: Poll) -> list[bytes]:
        """Return the datagrams of a poll, a counter sample for each interface."""
        self._polls += 1
        parts = [poll.interfaces[i : i + _POLLED] for i in range(0, len(poll.interfaces), _POLLED)]
        return [
            self._datagram(len(part), b"".join(_counter_sample(one, self._polls) for one in part), poll.at)
            for part in parts
        ]

    def _datagram(self, count: int, samples: bytes, now: int) -> bytes:
        self._datagrams = (self._datagrams + 1) & 0xFFFFFFFF
        uptime = (now - self._boot) & 0xFFFFFFFF
        return self._agent + struct.pack("!IIII", 0, self._datagrams, uptime, count) + samples


def _counter_sample(one: InterfaceCounters, sequence: int) -> bytes:
    packets_in, packets_out = (octets // 1000 & 0xFFFFFFFF for octets in (one.in_octets, one.out_octets))
    record = _GENERIC.pack(
        one.index, _ETHERNET_LINK, one.speed, _FULL_DUPLEX, _UP,
        one.in_octets, packets_in, 0, 0, one.in_discards, one.in_errors, 0,
        one.out_octets, packets_out, 0, 0, one.out_discards, one.out_errors, 0,
    )  # fmt: skip
    sample = struct.pack("!III", sequence, one.index, 1) + struct.pack("!II", _GENERIC_COUNTERS, len(record)) + record
    return struct.pack("!II", _COUNTER_SAMPLE, len(sample)) + sample


def capacity(*, is_v6: bool) -> int:
    """Return how many samples fit a datagram."""
    return (MAX_MESSAGE - _DATAGRAM_FIXED - _IPV6_EXTRA) // (_SAMPLE_V6 if is_v6 else _SAMPLE_V4).itemsize


def poll_datagrams(poll: Poll) -> int:
    """Return how many datagrams a poll takes."""
    return -(-len(poll.interfaces) // _POLLED)


def _pack_ip(packed: NDArray[np.void], records: RecordColumns) -> None:
    tos = records.tos.astype(np.int64)
    packed["proto"], packed["ttl"] = records.proto, 64
    packed["src"], packed["dst"] = records.src, records.dst
    if records.is_v6:
        # The traffic class lies across the first two bytes.
        packed["ether_type"], packed["version"], packed["tos"] = 0x86DD, 0x60 | (tos >> 4), (tos & 0xF) << 4
        packed["payload_length"] = _ip_payload(records)
    else:
        packed["ether_type"], packed["version"], packed["tos"] = 0x0800, 0x45, tos
        packed["total_length"] = _ip_payload(records) + 20


def _ip_payload(records: RecordColumns) -> NDArray[np.int64]:
    """Bytes after the IP header, for frames of ordinary and of jumbo size."""
    payload = records.octets.astype(np.int64) - FRAME_OVERHEAD - (40 if records.is_v6 else 20)
    return np.clip(payload, 0, 65_000)
