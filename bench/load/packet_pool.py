"""Datagrams made beforehand, to be sent over and over at rates that making them would not allow.

A pool holds some hundred thousand flow records of a cluster's conversations, packed as its exporters would pack them.
Each time a datagram is sent, only what must move is rewritten: the header's clock and sequence number, and the
records' times. What was sent is known exactly: so many times the pool, and a part of it.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.model import Cluster
from simulate.packets.flows import Ints, column
from simulate.packets.netflow import MAX_MESSAGE, FlowFormat, NetflowEncoder, Packed
from simulate.packets.wire import records_of, source_id
from simulate.traffic.bulk_load import load_batches, load_scenario
from simulate.traffic.workload import Workload

_MADE_AT = 1_800_000_000
"""Epoch seconds of the pool as it is made; sending moves all times."""
_UPTIME = 86_400
"""Seconds, in every header: times of v5 count from the boot, which so moves along with the header's clock."""
_DRAW_SECONDS = 10
_SEED = 1

_CLOCK, _SEQUENCE, _START, _END = "clock", "sequence", "start", "end"
_HEADERS = {
    FlowFormat.V5: np.dtype({"names": [_CLOCK, _SEQUENCE], "formats": [">u4", ">u4"], "offsets": [8, 16]}),
    FlowFormat.V9: np.dtype({"names": [_CLOCK, _SEQUENCE], "formats": [">u4", ">u4"], "offsets": [8, 12]}),
    FlowFormat.IPFIX: np.dtype({"names": [_CLOCK, _SEQUENCE], "formats": [">u4", ">u4"], "offsets": [4, 8]}),
}
"""Where a header holds its clock (epoch seconds) and its sequence number."""

_SUMS = ("bytes", "packets", "flows")


@dataclass(frozen=True, slots=True)
class Sums:
    """What was sent.

    Attributes:
        records: flow records, those of other exporters that saw the same flow included.
        datagrams: that held them.
        pairs: (source group, destination group) -> bytes, packets, flow records; each flow once, scaled by sampling.
    """

    records: int
    datagrams: int
    pairs: dict[tuple[str, str], tuple[int, int, int]] = field(repr=False)

    @property
    def bytes(self) -> int:
        """Bytes of all pairs."""
        return sum(volume for volume, _, _ in self.pairs.values())


@dataclass(slots=True)
class _Layout:
    """Datagrams of one format and address family, in the order of the pool; all arrays share the memory of `data`.

    Attributes:
        numbers: their numbers in the pool, ascending.
        data: uint8, a row a datagram.
        header: clocks and sequence numbers.
        records: the records, [datagram, record].
        start, end: milliseconds from a record's times to its sending, [datagram, record], negative.
        has_times: whether records bear times of their own clock, and not of the header's.
    """

    numbers: Ints
    data: NDArray[np.uint8]
    header: NDArray[np.void]
    records: NDArray[np.void]
    start: Ints
    end: Ints
    has_times: bool


class PacketPool:
    """Datagrams of a cluster's exporters, ready to be sent.

    Args:
        cluster: its exporters must speak NetFlow or IPFIX.
        records: flow records in the pool; a few less come out.

    Attributes:
        exporters: their addresses.
        exporter: of each datagram; index into `exporters`.
        before: records before each datagram; shape (datagrams + 1,).
        views: each datagram's bytes.
        exported: its flow records (FLOW_SCHEMA, and the number of their `datagram`), in the order of the datagrams.
    """

    def __init__(self, cluster: Cluster, records: int) -> None:
        workload = Workload(cluster, load_scenario(_MADE_AT, _DRAW_SECONDS, _SEED))
        self.exporters = tuple(str(exporter.address) for exporter in cluster.exporters)
        self._styles = workload.fabric.styles
        self._groups = workload.cast.addresses.groups
        self._group = workload.cast.addresses.group
        frame = pl.concat([batch.frame for batch in load_batches(workload, records, _DRAW_SECONDS)])
        self.exported, packed = self._packed(frame, workload)
        firsts = np.flatnonzero(np.diff(column(self.exported, "datagram"), prepend=-1))
        self.exporter = column(self.exported, "exporter")[firsts]
        self.before = np.append(firsts, self.exported.height)
        self._counts = np.diff(self.before)
        self._place, self._round = self._numbered()
        self._restarts = np.zeros(len(self._styles), np.int64)
        self.views: list[memoryview] = [memoryview(b"")] * len(self)
        self._layouts = self._laid_out(packed)

    def __len__(self) -> int:
        """Return how many datagrams there are."""
        return len(self.exporter)

    # -- making ------------------------------------------------------------------------------------

    def _packed(
        self, frame: pl.DataFrame, workload: Workload
    ) -> tuple[pl.DataFrame, list[tuple[int, bool, Ints, Packed]]]:
        """Put the records into datagrams.

        Returns the records in the order of the datagrams, and for each exporter and family its datagrams' numbers, one
        a record, with the records in wire format.
        """
        addresses = workload.cast.addresses
        shift = _MADE_AT * 1000 - pl.col("export")
        frame = (
            frame.with_columns(
                pl.col("start") + shift,
                pl.col("end") + shift,
                pl.Series("is_v6", addresses.is_v6[column(frame, "src")]),
            )
            .sample(fraction=1, shuffle=True, seed=_SEED)
            .sort("exporter", "is_v6", maintain_order=True)
        )
        rooms = {key: self._room(key[0], part, workload) for key, part in _families(frame)}
        position = pl.int_range(pl.len()).over("exporter", "is_v6")
        room = pl.concat([pl.Series([rooms[key]] * part.height, dtype=pl.Int64) for key, part in _families(frame)])
        # Other collectors that are measured may print equal records of one datagram in one line.
        frame = frame.with_columns((position // room).alias("own")).unique(
            ["exporter", "is_v6", "own", "src", "dst", "src_port", "dst_port", "proto"],
            keep="first",
            maintain_order=True,
        )
        key = ("exporter", "is_v6", "own")
        datagrams = frame.select(key).unique(maintain_order=True)
        mixed = pl.Series("datagram", np.random.default_rng(_SEED).permutation(datagrams.height))
        frame = frame.join(datagrams.with_columns(mixed), on=key).sort("datagram", maintain_order=True)
        packed = [
            (number, v6, column(part, "datagram"), self._encoder(number).pack(records_of(part, addresses, is_v6=v6)))
            for (number, v6), part in _families(frame.sort("exporter", "is_v6", maintain_order=True))
        ]
        return frame, packed

    def _encoder(self, number: int) -> NetflowEncoder:
        style = self._styles[number]
        return NetflowEncoder(style.flow_format, source_id(number), (_MADE_AT - _UPTIME) * 1000, style.rate)

    def _room(self, number: int, part: pl.DataFrame, workload: Workload) -> int:
        """Return how many records fit a datagram without templates."""
        is_v6 = bool(part["is_v6"][0])
        packed = self._encoder(number).pack(records_of(part.head(1), workload.cast.addresses, is_v6=is_v6))
        size = packed.data.dtype.itemsize
        return (MAX_MESSAGE - _lead(self._message(number, packed, 0, 1), 1, size)) // size

    def _message(self, number: int, packed: Packed, first: int, last: int) -> bytes:
        # One that has just said its templates says them again only much later.
        encoder = self._encoder(number)
        encoder.hello(_MADE_AT * 1000)
        return encoder.message(packed, first, last, _MADE_AT * 1000)

    def _numbered(self) -> tuple[Ints, Ints]:
        """Return each datagram's place in its exporter's sequence, and how long that is in one round of the pool."""
        by_message = np.array([style.flow_format is FlowFormat.V9 for style in self._styles])
        steps = np.where(by_message[self.exporter], 1, self._counts)
        place, length = np.zeros(len(self), np.int64), np.zeros(len(self._styles), np.int64)
        for number in range(len(self._styles)):
            mine = self.exporter == number
            after = np.cumsum(steps[mine])
            place[mine] = after - steps[mine]
            length[number] = steps[mine].sum()
        return place, length

    def _laid_out(self, packed: list[tuple[int, bool, Ints, Packed]]) -> list[_Layout]:
        messages: dict[tuple[FlowFormat, bool], list[tuple[int, bytes, int]]] = {}
        types: dict[tuple[FlowFormat, bool], np.dtype[np.void]] = {}
        for number, is_v6, datagram, records in packed:
            key = self._styles[number].flow_format, is_v6
            types[key] = records.data.dtype
            firsts = np.flatnonzero(np.diff(datagram, prepend=-1))
            for first, last in zip(firsts.tolist(), [*firsts[1:].tolist(), len(datagram)], strict=True):
                made = self._message(number, records, first, last)
                messages.setdefault(key, []).append((int(datagram[first]), made, last - first))
        return [self._layout(key, types[key], sorted(found)) for key, found in messages.items()]

    def _layout(
        self, key: tuple[FlowFormat, bool], kind: np.dtype[np.void], found: list[tuple[int, bytes, int]]
    ) -> _Layout:
        flow_format = key[0]
        lead = _lead(found[0][1], found[0][2], kind.itemsize)
        most = max(count for _, _, count in found)
        stride = lead + most * kind.itemsize + 4
        data = np.zeros((len(found), stride), np.uint8)
        for row, (number, message, _) in enumerate(found):
            data[row, : len(message)] = np.frombuffer(message, np.uint8)
            self.views[number] = memoryview(data[row])[: len(message)]
        header = np.ndarray((len(found),), _HEADERS[flow_format], data.data, 0, (stride,))
        records = np.ndarray((len(found), most), kind, data.data, lead, (stride, kind.itemsize))
        has_times = flow_format is not FlowFormat.V5
        start, end = (records[name].astype(np.int64) - _MADE_AT * 1000 for name in (_START, _END))
        return _Layout(np.array([n for n, _, _ in found]), data, header, records, start, end, has_times)

    # -- sending -----------------------------------------------------------------------------------

    def greetings(self, now: float) -> list[tuple[int, bytes]]:
        """Return the exporters' first datagrams, (exporter, bytes): templates and options; v5 has none."""
        found = []
        for number in range(len(self._styles)):
            encoder = self._encoder(number)
            hello = encoder.hello(round(now * 1000))
            if hello:
                found.append((number, hello))
                # The options record counts in IPFIX, the message in v9.
                self._restarts[number] = 1
        return found

    def stamp(self, rounds: int, first: int, last: int, now: float) -> None:
        """Make datagrams `first` to `last` (exclusive) those that leave now, in so many rounds of the pool before."""
        moment = int(now * 1000)
        numbers = self._restarts[self.exporter[first:last]] + rounds * self._round[self.exporter[first:last]]
        numbers = (numbers + self._place[first:last]) & 0xFFFFFFFF
        for layout in self._layouts:
            begin, end = np.searchsorted(layout.numbers, (first, last))
            own = slice(begin, end)
            layout.header[_CLOCK][own] = moment // 1000
            layout.header[_SEQUENCE][own] = numbers[layout.numbers[own] - first]
            if layout.has_times:
                layout.records[_START][own] = layout.start[own] + moment
                layout.records[_END][own] = layout.end[own] + moment

    def sums(self, datagrams: int) -> Sums:
        """Return what so many datagrams held, from the first on, round after round."""
        rounds, part = divmod(datagrams, len(self))
        whole, rest = self._pairs(self.exported), self._pairs(self.exported.filter(pl.col("datagram") < part))
        pairs = {
            key: tuple(rounds * a + b for a, b in zip(whole[key], rest.get(key, (0, 0, 0)), strict=True))
            for key in sorted(whole)
        }
        records = rounds * int(self.before[-1]) + int(self.before[part])
        kept = {key: (values[0], values[1], values[2]) for key, values in pairs.items() if values[2]}
        return Sums(records, datagrams, kept)

    def _pairs(self, frame: pl.DataFrame) -> dict[tuple[str, str], tuple[int, int, int]]:
        group = pl.Series(self._group)
        counted = frame.filter("counted").select(
            group.gather(frame.filter("counted")["src"]).alias("from"),
            group.gather(frame.filter("counted")["dst"]).alias("to"),
            pl.col("bytes") * pl.col("rate"),
            pl.col("packets") * pl.col("rate"),
            pl.lit(1, pl.Int64).alias("flows"),
        )
        table = counted.group_by("from", "to").agg(pl.sum(*_SUMS))
        return {
            (self._groups[src], self._groups[dst]): (size, packets, flows)
            for src, dst, size, packets, flows in table.iter_rows()
        }

    def formats(self) -> Counter[str]:
        """Return how many datagrams there are of each format."""
        return Counter(self._styles[number].flow_format.value for number in self.exporter.tolist())


def _families(frame: pl.DataFrame) -> list[tuple[tuple[int, bool], pl.DataFrame]]:
    """Return the parts of a sorted frame, by exporter and address family."""
    parts = frame.partition_by("exporter", "is_v6", maintain_order=True, as_dict=True)
    return [((int(str(number)), bool(v6)), part) for (number, v6), part in parts.items()]


def _lead(message: bytes, records: int, size: int) -> int:
    """Return the bytes ahead of a message's records; behind them are less than four, of padding."""
    return (len(message) - records * size) // 4 * 4
