"""Records as pmacct printed them to flows with names, one clock, and counters that say how much really went by."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import polars as pl

from cluster.model import BridgeSettings, Cluster, ExportProtocol
from cluster.sections.network.exporters import FRAME_OVERHEAD
from ingest.count.windows import MAX_SPAN_MS
from ingest.flows.classify import AddressBook
from ingest.flows.exporters import AUTO_RATE, ExporterBook
from ingest.flows.interfaces import InterfaceBook
from ingest.flows.planes import PlaneBook
from ingest.flows.service_ports import ServiceBook, handshakes, protocol_names
from ingest.flows.text_numbers import Vocabulary, Words
from ingest.read import records

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.uint8]

_NO_ADDRESS = -1
_NO_PROTOCOL = 256
_PORTS = 1 << 16
_CONGESTION_EXPERIENCED = 3
"""The two ECN bits of the tos field, RFC 3168."""

_OPEN_MS = 60_000
"""How far a record without an end goes back at most: firewalls (ASA) tell when a connection began, be it hours ago, and
every minute what went by since they told last."""


class Clock(StrEnum):
    """Which time of a record to believe."""

    LIVE = "live"
    """A record's time must be near its arrival, or its arrival is used."""
    BACKFILL = "backfill"
    """A record's own time, however old; none that comes after its arrival."""


@dataclass(frozen=True, slots=True)
class Flows:
    """Normalised flow records: equally long arrays; codes index the books.

    Attributes:
        exporter: exporter number.
        entered, left: interface numbers.
        src, dst: address numbers.
        protocol: IP protocol number; 256 if none was printed.
        src_port, dst_port: ports; 0 if none was printed.
        tcp_flags: all that were seen; 0 if none were printed.
        service: service code.
        dst_opened: whether the destination opened the conversation.
        plane: plane code, always one of PLANES.
        wrong_plane: storage traffic on the compute plane, as far as planes are known.
        counts: False where another exporter counts the same flow.
        is_sflow: whether it is a sampled packet of sFlow.
        marked: sFlow: whether the packet's ECN bits say that it met congestion; False elsewhere.
        start, end: epoch ms, start <= end.
        bytes, packets: scaled by sampling. flows: records that pmacct merged into this one.
        unknown_rate, zero, skewed: what was wrong with it.
        vague: whether its times are not its own: bytes of it may have passed at others.
        lag: arrival less end, ms; 0 where the arrival is not known.
        rate: sampling factor applied.
    """

    exporter: Ints
    entered: Ints
    left: Ints
    src: Ints
    dst: Ints
    protocol: Ints
    src_port: Ints
    dst_port: Ints
    tcp_flags: Ints
    service: npt.NDArray[np.uint16]
    dst_opened: Flags
    plane: Codes
    wrong_plane: Flags
    counts: Flags
    is_sflow: Flags
    marked: Flags
    start: Ints
    end: Ints
    bytes: Ints
    packets: Ints
    flows: Ints
    unknown_rate: Flags
    zero: Flags
    skewed: Flags
    vague: Flags
    lag: Ints
    rate: Ints

    def __len__(self) -> int:
        return len(self.src)


class Normaliser:
    """Holds the books of one cluster and turns record frames into flows.

    Args:
        cluster: the cluster.
        clock: whether records are from now or from the past.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self.addresses = AddressBook(cluster)
        self.exporters = ExporterBook(cluster, self.addresses.groups)
        self.interfaces = InterfaceBook(cluster)
        self._planes = PlaneBook(cluster, self.addresses)
        self.services = ServiceBook(cluster.services)
        self.protocols = protocol_names()
        self._settings: BridgeSettings = cluster.bridge
        self._clock = clock

    def normalise(
        self,
        frame: pl.DataFrame,
        now_ms: int,
        exporters: Words | None = None,
        ends: tuple[Words, Words] | None = None,
    ) -> tuple[Flows, pl.DataFrame]:
        """Return the flows of a record frame (RECORD_SCHEMA), and the records refused, with a ``reason`` column.

        Args:
            frame: records as read.
            now_ms: wall clock, for records without an arrival time.
            exporters: its column EXPORTER, where that was looked up already.
            ends: its columns SRC and DST likewise.
        """
        exporters = exporters or Vocabulary().words(frame.get_column(records.EXPORTER))
        if ends is None:
            columns = (frame.get_column(name) for name in (records.SRC, records.DST))
            src, dst = (records.whole(one, _NO_ADDRESS) for one in self.addresses.number(*columns))
        else:
            (found,) = self.addresses.number(ends[0].texts)
            known = records.whole(found, _NO_ADDRESS)
            src, dst = (known[one.codes] for one in ends)
        refused = []
        if (bad := (src == _NO_ADDRESS) | (dst == _NO_ADDRESS)).any():
            refused.append(frame.filter(bad).with_columns(reason=pl.lit(records.Reason.BAD_ADDRESS.value)))
            frame, src, dst = frame.filter(~bad), src[~bad], dst[~bad]
            exporters = exporters.of(~bad)

        exporter = self.exporters.number(exporters.texts)[exporters.codes]
        rate, unknown_rate = self._rates(exporter, _column(frame, records.SAMPLING_RATE))
        packets, volume = _column(frame, records.PACKETS), _column(frame, records.BYTES)
        overhead = self.exporters.overheads[exporter]
        version = _column(frame, records.VERSION)
        # What an unlisted agent samples is frames, too: its records say that they are sFlow's.
        is_frame = (exporter >= len(self.exporters.configured)) & (version == records.SFLOW)
        overhead = np.where(is_frame, FRAME_OVERHEAD[ExportProtocol.SFLOW], overhead)
        overhead = np.where(version == records.SFLOW_IP, 0, overhead)
        if overhead.any():
            volume = np.maximum(volume - overhead * packets, 0)
        # Not np.dot: its threads go on spinning for longer than all the rest takes.
        scaled = [np.multiply(counter, rate, dtype=np.float64) for counter in (volume, packets)]
        is_suspect = max(float(one.sum()) for one in scaled) > records.MAX_BATCH
        most = records.SUSPECT_COUNTER if is_suspect else records.MAX_COUNTER
        if max(float(one.max(initial=0)) for one in scaled) > most:
            too_large = (scaled[0] > most) | (scaled[1] > most)
            reason = pl.lit(records.Reason.COUNTER_OUT_OF_RANGE.value)
            refused.append(frame.filter(too_large).with_columns(reason=reason))
            kept = ~too_large
            frame, src, dst = frame.filter(kept), src[kept], dst[kept]
            exporter, rate, unknown_rate = exporter[kept], rate[kept], unknown_rate[kept]
            packets, volume = packets[kept], volume[kept]

        flows = self._flows(
            frame,
            exporter=exporter,
            addresses=(src, dst),
            counters=(volume * rate, packets * rate),
            rate=rate,
            unknown_rate=unknown_rate,
            now_ms=now_ms,
        )
        return flows, pl.concat(refused) if refused else pl.DataFrame()

    def _flows(
        self,
        frame: pl.DataFrame,
        *,
        exporter: Ints,
        addresses: tuple[Ints, Ints],
        counters: tuple[Ints, Ints],
        rate: Ints,
        unknown_rate: Flags,
        now_ms: int,
    ) -> Flows:
        src, dst = addresses
        book = self.addresses
        version = _column(frame, records.VERSION)
        is_sflow = self.exporters.is_sflow[exporter] | records.is_sflow(version)
        entered = self.interfaces.number(exporter, _column(frame, records.IFACE_IN), is_sflow)
        left = self.interfaces.number(exporter, _column(frame, records.IFACE_OUT), is_sflow)
        src_group, dst_group = book.group_codes[src], book.group_codes[dst]
        counts = self.interfaces.counts[entered] & self.exporters.has_authority(exporter, src_group, dst_group)

        protocol = _column(frame, records.PROTOCOL, _NO_PROTOCOL)
        if protocol.min(initial=0) < 0 or protocol.max(initial=0) > _NO_PROTOCOL:
            protocol = np.where((protocol < 0) | (protocol > _NO_PROTOCOL), _NO_PROTOCOL, protocol)
        src_port, dst_port = (_column(frame, name) & (_PORTS - 1) for name in (records.SRC_PORT, records.DST_PORT))
        tcp_flags = _column(frame, records.TCP_FLAGS) & 0xFFFF
        handshake = handshakes(protocol, tcp_flags, _column(frame, records.PACKETS))
        service, dst_opened = self.services.resolve(protocol, src_port, dst_port, handshake)
        of_interface = self.interfaces.planes[entered]
        start, end, lag, skewed, vague = self._times(frame, now_ms)
        volume, packets = counters
        count = _column(frame, records.FLOWS)
        return Flows(
            exporter=exporter,
            entered=entered,
            left=left,
            src=src,
            dst=dst,
            protocol=protocol,
            src_port=src_port,
            dst_port=dst_port,
            tcp_flags=tcp_flags,
            service=service,
            dst_opened=dst_opened,
            plane=self._planes.resolve(of_interface, addresses, protocol, dst_port),
            wrong_plane=self._planes.is_wrong(of_interface, addresses, (src_group, dst_group)),
            counts=counts,
            is_sflow=is_sflow,
            marked=_marked(frame, is_sflow),
            start=start,
            end=end,
            bytes=volume,
            packets=packets,
            flows=count,
            unknown_rate=unknown_rate,
            # IOS XR is known to export flows without bytes: packets alone do not make such a record right.
            zero=(_column(frame, records.BYTES) == 0) & (count > 0),
            skewed=skewed,
            # A sample is a moment.
            vague=vague & ~is_sflow,
            lag=lag,
            rate=rate,
        )

    def _rates(self, exporter: Ints, printed: Ints) -> tuple[Ints, Flags]:
        """Return the factor of each record, and whether it is a guess: 1, though the exporter samples."""
        configured = self.exporters.rates[exporter]
        automatic = configured == AUTO_RATE
        factor = np.where(automatic, np.maximum(printed, 1), configured)
        return factor, automatic & (printed < 0)

    def _times(self, frame: pl.DataFrame, now_ms: int) -> tuple[Ints, Ints, Ints, Flags, Flags]:
        """Return start, end and lag in epoch ms, whose clocks were not believed, and which times are not their own."""
        start, end, arrival = (_column(frame, name, -1) for name in (records.START, records.END, records.ARRIVAL))
        has_arrival = arrival >= 0
        arrival = np.where(has_arrival, arrival, now_ms)
        has_start, has_end = start >= 0, end >= 0
        # Without any other time it is a point; one that only began goes on until it is sent.
        is_open = has_start & ~has_end & has_arrival
        end = np.where(is_open, arrival, end)
        start = np.where(is_open, np.maximum(start, arrival - _OPEN_MS), start)
        has_end = has_end | is_open
        start = np.where(has_start, start, np.where(has_end, end, arrival))
        end = np.maximum(np.where(has_end, end, start), start)
        broken_start = end - start > MAX_SPAN_MS
        start = np.where(broken_start, end, start)
        skewed = broken_start
        lag = np.where(has_arrival, arrival - end, 0)
        # Nothing is sent before it happened, whenever it is read.
        wrong = end > arrival + self._settings.future_skew * 1000
        if self._clock is Clock.LIVE:
            wrong |= has_arrival & (end < arrival - self._settings.past_skew * 1000)
        if wrong.any():
            # The exporter's clock is off, but the length of the flow is still right.
            length = np.minimum(end - start, self._settings.past_skew * 1000)
            end = np.where(wrong, arrival, end)
            start = np.where(wrong, arrival - length, start)
            skewed = skewed | wrong
        return start, end, lag, skewed, skewed | is_open | ~has_start


def _column(frame: pl.DataFrame, name: str, missing: int = 0) -> Ints:
    return records.whole(frame.get_column(name), missing)


def _marked(frame: pl.DataFrame, is_sflow: Flags) -> Flags:
    """Return which sampled packets met congestion."""
    if not is_sflow.any():
        return is_sflow
    ecn = _column(frame, records.TOS) & _CONGESTION_EXPERIENCED
    return np.asarray(is_sflow & (ecn == _CONGESTION_EXPERIENCED), np.bool_)
