"""What the filter before nfacctd takes of a datagram, as the kernel measures it."""

import struct

import click

from bench.costs.processes import line
from ingest.collect.kernel import bpf
from ingest.collect.kernel.guard import loaded_filter

_FLOWS, _RECORD = 24, 48
_FIELDS = 20
_TEMPLATE = 300
_ROUNDS = 1_000_000
_PER_SECOND = 200_000
"""Flows that issue and docs speak of."""


@click.command()
def guard() -> None:
    """Time the kernel's filter over a datagram of records, with a template and without; it takes CAP_BPF."""
    records = _set(_TEMPLATE, bytes(_FLOWS * _RECORD))
    template = _set(0, struct.pack("!HH", _TEMPLATE, _FIELDS) + struct.pack("!HH", 1, 4) * _FIELDS)
    for kind, payload in (("records", records), ("a template before records", template + records)):
        export = struct.pack("!HHIIII", 9, _FLOWS, 0, 0, 0, 0) + payload
        nanoseconds = bpf.timed(loaded_filter(), struct.pack("!HHHH", 2055, 2055, 8 + len(export), 0) + export, _ROUNDS)
        share = nanoseconds * 1e-9 * _PER_SECOND / _FLOWS
        line(step="guard", datagram=kind, nanoseconds=nanoseconds, cores_at_200000_flows_a_second=round(share, 5))


def _set(number: int, body: bytes) -> bytes:
    return struct.pack("!HH", number, 4 + len(body)) + body
