"""The section `exporters`: the devices that export flows."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from ipaddress import ip_address

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import FLAG, Bad, Choice, MapOf, Placed, Table, Text, Whole
from cluster.scalars.ranges import MOST, braced, ends, expand
from cluster.vocabulary import Address, Plane


class SamplingMode(StrEnum):
    """Whether an exporter's counters still have to be multiplied by its sampling rate."""

    AUTO = "auto"
    RENORMALISED = "renormalised"
    FIXED = "fixed"


class ExportProtocol(StrEnum):
    """Which pmacct daemon listens to the exporter: nfacctd (NetFlow, IPFIX) or sfacctd (sFlow)."""

    NETFLOW = "netflow"
    SFLOW = "sflow"


@record
class Sampling:
    """How to scale an exporter's counters; `rate` is set for FIXED only."""

    mode: SamplingMode = SamplingMode.AUTO
    rate: int | None = None


def _sampling(text: str) -> Sampling:
    if text in {SamplingMode.AUTO.value, SamplingMode.RENORMALISED.value}:
        return Sampling(SamplingMode(text))
    if ratio := re.fullmatch(r"1 *(?:[:/]|in) *(\d+)", text):
        raise Bad(hint=f"write {ratio[1]}")
    if re.fullmatch(r"\d+\.\d+", text):
        raise Bad(hint="pmacct cuts fractions off: have it sample 1 packet in a whole number")
    rate = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    if not 1 <= rate <= 16_777_216:
        raise ValueError(text)
    return Sampling(SamplingMode.FIXED, rate)


SAMPLING = Text(
    "sampling",
    "auto, renormalised or a rate from 1 to 16,777,216 (1 packet in so many)",
    _sampling,
    lambda sampling: sampling.rate or sampling.mode.value,
)
NETFLOW_NAMES = dict.fromkeys(
    ("ipfix", "v5", "v9", "v10", "netflow5", "netflow9", "netflow10", "netflow-v5", "netflow-v9", "nf9"),
    "netflow stands for NetFlow v5, v9 and IPFIX",
)
"""What people write for a version of NetFlow -> what to tell them."""

FRAME_OVERHEAD = {ExportProtocol.NETFLOW: 0, ExportProtocol.SFLOW: 18}
"""Bytes a packet that are not IP: sFlow counts the Ethernet header and checksum, NetFlow and IPFIX count IP."""


# fmt: off
@record
class Interface:
    """An exporter's interface by its SNMP ifIndex."""

    index: int
    name: str = key(names.NAME, "Its name.", example="uplink-spine-1")
    plane: Plane | None = key(names.PLANE, "The network behind it: decides the plane of what enters there.",
        default=None, absent="not known")
    counts: bool = key(FLAG, "False for links between switches: what enters there was counted at the edge.",
        default=True)
    speed: int | None = key(names.BIT_RATE, "Its speed.", default=None, absent="not known", example="400 Gbit/s")


INTERFACE = Section.of(Interface, "interface", text="")


@record
class Exporter:
    """The devices that export flows.

    NetFlow and IPFIX from unlisted addresses are dropped without a word, unless no exporter is listed at all. sFlow is
    taken from the sources in `collector.sflow_sources`; where it names none, from everyone, as are files of another
    pmacct. An unlisted exporter is shown under its address. A switch that sends both is listed with `netflow`: its
    sFlow is shown as `NAME/sflow`, and of what both tell, NetFlow counts.
    """

    name: str
    address: Address = key(names.ADDRESS_PATTERN,
        "The source of its NetFlow or IPFIX packets; for sFlow its agent address. A range counts in lockstep with the "
        "exporter's name.", example="10.60.0.1")
    protocol: ExportProtocol = key(Choice(tuple(ExportProtocol), NETFLOW_NAMES),
        "`netflow` (v5, v9, IPFIX) or `sflow`.", default=ExportProtocol.NETFLOW)
    sampling: Sampling = key(SAMPLING,
        "`auto`: multiply by the rate it announces. `renormalised`: its counters are scaled already. A number: it "
        "samples 1 packet in so many, whatever it announces.", default=Sampling(), example="1000")
    counts: bool = key(FLAG, "False for a device that sees only what others counted already, such as a spine.",
        default=True)
    frame_overhead: int = key(Whole(0, 255, "bytes"), "Bytes a packet to subtract, so that only IP is counted.",
        default=0, absent="18 for sflow, 0 for netflow")
    interfaces: tuple[Interface, ...] = key(MapOf(Whole(0, 4_294_967_295, "ifIndex"), INTERFACE),
        "Its interfaces by SNMP ifIndex.", default=())
    watched: bool = key(FLAG, "False for a device that may fall silent without an alert: a lab switch, a canary.",
        default=True)


EXPORTER = Section.of(Exporter, "exporter")
# fmt: on


def expanded(patterns: Iterable[str]) -> list[str]:
    """Return the names that keys of the section stand for; one that is no name is recorded elsewhere."""
    found: list[str] = []
    for pattern in patterns:
        with suppress(ValueError):
            found += expand(braced(pattern))
    return found


def build_exporters(tables: dict[str, Placed[Table]], faults: Faults) -> tuple[Exporter, ...]:
    """Return the exporters that are whole, and record names and addresses that two have."""
    exporters = []
    owners: dict[object, str] = {}
    for name, placed, address in _each(tables, faults):
        table = placed.value | {"address": address}
        if address is not None and address in owners:
            faults.add(f"{placed.path}.address", str(address), "another address", f"{owners[address]} has it already")
        owners.setdefault(address, name)
        exporter: Exporter | None = EXPORTER.build(table, name=name)
        if exporter is not None and "protocol" in table:
            given = table.get("frame_overhead") is not None
            overhead = exporter.frame_overhead if given else FRAME_OVERHEAD[exporter.protocol]
            exporters.append(replace(exporter, frame_overhead=overhead))
    return tuple(exporters)


def _each(tables: dict[str, Placed[Table]], faults: Faults) -> Iterator[tuple[str, Placed[Table], Address | None]]:
    """Yield each exporter's name, section and address; a range in an address counts with that of the name."""
    seen: set[str] = set()
    asked = sum(ends(braced(pattern))[2] for pattern in tables)
    if asked > MOST:
        faults.add("exporters", f"{asked:,} exporters", f"at most {MOST:,}")
        return
    for pattern, placed in tables.items():
        found, text = expand(braced(pattern)), placed.value.get("address")
        addresses = [None] * len(found) if text is None else [ip_address(one) for one in expand(text)]
        if len(addresses) != len(found):
            faults.add(f"{placed.path}.address", f"{text}, which is {len(addresses):,}", f"{len(found):,} in all")
            continue
        for name, address in zip(found, addresses, strict=True):
            if name in seen:
                faults.add(placed.path, name, "each exporter once", "a range has it, too")
            seen.add(name)
            yield name, placed, address
