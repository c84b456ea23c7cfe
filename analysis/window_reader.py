"""Reads jobs' windows: the largest part of all that the analysis reads, so several queries run at once, ahead of need.

InfluxDB is slow to give out rows one by one, and slower to make bins of them. Base windows have one point a series and
window already: they are asked for as they are, and added up here.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from threading import local
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from analysis.baseline import Floats
from analysis.detectors.study import JobWindows
from cluster.model import Cluster, ExportProtocol, Job, Plane, Role
from store import schema
from store.influx import ROWS, Numbers, Store
from store.influxql import Condition, Select, beside, is_in, not_in
from store.schema import Field, Measurement

Answer = TypeVar("Answer")

_MILLI = 1000
_SENT = schema.TX_BYTES, schema.TX_PACKETS, schema.RX_PACKETS
_EXCHANGED = schema.TX_BYTES, schema.RX_BYTES
_AT_ONCE = 3
"""Queries under way at a time: InfluxDB answers each on a core of its own."""
_LONG = 900
"""Seconds of a pass from which its packets are read with its bytes: a live round judges few windows for good."""
_FEW = 100
"""Nodes that are named in a query; of larger jobs the windows of all nodes are read."""


@dataclass(frozen=True, slots=True)
class _Exporters:
    """[window, exporter] bytes and sampling rates, in the order of `names`."""

    names: tuple[str, ...]
    sent: Floats
    rates: Floats

    def of(self, names: Sequence[str]) -> Floats:
        """Return [window, exporter] bytes; 0 for one that was not heard."""
        result = np.zeros((len(self.sent), len(names)))
        for place, name in enumerate(names):
            if name in self.names:
                result[:, place] = self.sent[:, self.names.index(name)]
        return result

    def heard(self, names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return [window, exporter] whether there were bytes."""
        return self.of(names) > 0

    def rates_of(self, names: Sequence[str]) -> Floats:
        """Return [window] the largest sampling rate among them; 1 where none was heard."""
        places = [self.names.index(name) for name in names if name in self.names]
        return np.asarray(self.rates[:, places].max(axis=1, initial=1.0), np.float64)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """[node, window, field] sums, with the place of each node."""

    places: dict[str, int]
    sums: Floats

    def of(self, names: Sequence[str], part: slice = slice(None)) -> Floats:
        """Return [field, window, node] of a part of the windows; zeros for a node that was not seen."""
        known = np.array([self.places.get(name, -1) for name in names])
        sums = self.sums[:, part]
        result = np.zeros((sums.shape[2], sums.shape[1], len(names)))
        for place, field in enumerate(result):
            field[:, known >= 0] = sums[known[known >= 0], :, place].T
        return result


class WindowReader:
    """Asks one store about one cluster, in the background.

    Args:
        store: where the windows are.
        cluster: whose groups and exporters count.

    Attributes:
        exporters, storage_exporters: names of those of the compute and of the storage plane.
    """

    def __init__(self, store: Store, cluster: Cluster) -> None:
        self._settings, self._cluster = store.settings, cluster
        self.window = cluster.bridge.window
        self.exporters = exporters_on(cluster, Plane.COMPUTE)
        self.storage_exporters = exporters_on(cluster, Plane.STORAGE)
        self._training = {group.id for group in cluster.groups_with(Role.TRAINING)}
        self._storage = {group.id for group in cluster.groups_with(Role.STORAGE, Role.MODEL_STORAGE)}
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="windows")
        self._own = local()
        self._shared: deque[Windows] = deque(maxlen=2)
        self._pulse: tuple[tuple[int, int], _Nodes] | None = None
        self._heard: dict[tuple[int, int], _Exporters] = {}

    def begin(self, start: int, stop: int, nodes: Sequence[str] | None = None) -> "Windows":
        """Begin to read the windows [start, stop): of these nodes only if they are few, else of all.

        Without `nodes` they are those of a pass; if it is long, `sent` looks in them.
        """
        is_shared = nodes is None and stop - start >= _LONG
        few = tuple(nodes) if nodes is not None and len(nodes) <= _FEW else ()
        exporters = self._ask(lambda: self._exporters(start, stop))

        def compute() -> _Nodes:
            # Whoever answers for the exporters was asked before: nothing waits for what waits itself.
            is_sampled = bool((exporters.result().rates_of(self.exporters) > 1).any())
            return self._nodes(_SENT if is_shared or is_sampled else _SENT[:1], self._training, few, start, stop)

        found = Windows(
            self,
            start,
            stop,
            exporters=exporters,
            compute=self._ask(compute),
            storage=self._ask(lambda: self._nodes(_EXCHANGED, self._storage, few, start, stop)),
            all_storage=self._ask(lambda: self._storage_bytes(start, stop)),
        )
        if nodes is None:
            self._heard.clear()
        if nodes is None and self._shared and self._shared[-1].stop != start:
            # What another pass read before these may have changed since.
            self._shared.clear()
        if is_shared:
            self._shared.append(found)
        return found

    def sent(self, nodes: Sequence[str], start: int, stop: int) -> Floats:
        """Return [field, window, node] what nodes sent to training groups: bytes, packets, and packets they received.

        What a pass has read already is not asked for again.
        """
        read = next((one for one in self._shared if one.start < stop and start < one.stop), None)
        if read is None:
            few = tuple(nodes) if len(nodes) <= _FEW else ()
            return self._nodes(_SENT, self._training, few, start, stop).of(nodes)
        parts = [read.sent(nodes, max(start, read.start), min(stop, read.stop))]
        if start < read.start:
            parts.insert(0, self.sent(nodes, start, read.start))
        if read.stop < stop:
            parts.append(self.sent(nodes, read.stop, stop))
        return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]

    def compute_heard(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return [window, exporter] whether its flows hold bytes, in the order of `exporters`."""
        return self._once_a_pass(start, stop).heard(self.exporters)

    def storage_heard(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return [window, exporter] whether its flows hold bytes, in the order of `storage_exporters`."""
        return self._once_a_pass(start, stop).heard(self.storage_exporters)

    def _once_a_pass(self, start: int, stop: int) -> _Exporters:
        """Return what is asked of each job that begins: jobs of one scheduler often begin together."""
        if (start, stop) not in self._heard:
            self._heard[start, stop] = self._exporters(start, stop)
        return self._heard[start, stop]

    def pulse(self, nodes: Sequence[str], start: int, stop: int) -> Floats:
        """Return [second, node] bytes that nodes sent to their own group; 0 where no sFlow exporter saw any.

        Nothing may change in these seconds any more: large jobs look at the same ones, and share one answer.
        """
        if len(nodes) <= _FEW:
            found = self._seconds(start, stop, is_in(schema.NODE, sorted(nodes)))
        elif self._pulse is not None and self._pulse[0] == (start, stop):
            found = self._pulse[1]
        else:
            found = self._seconds(start, stop)
            self._pulse = (start, stop), found
        kib, before = found.of(nodes)
        return np.asarray(kib * schema.KIB + before, np.float64)

    def _seconds(self, start: int, stop: int, *where: Condition) -> _Nodes:
        asked = _rows(schema.PULSE, (schema.PULSE_KIB, schema.PULSE_BYTES), start, stop).by(schema.NODE).where(*where)
        answer = self._numbers(asked)
        names = answer.tags.get_column(schema.NODE).to_list() if answer.tags.height else []
        return _Nodes({name: place for place, name in enumerate(names)}, _summed(answer, start, stop, 1))

    # -- queries, each in a thread with a connection of its own -------------------------------------

    def _ask(self, question: Callable[[], Answer]) -> Future[Answer]:
        return self._threads.submit(question)

    def _numbers(self, asked: Select) -> Numbers:
        store: Store | None = getattr(self._own, "store", None)
        if store is None:
            store = self._own.store = Store(self._settings)
        return store.numbers(asked)

    def _nodes(self, fields: tuple[Field, ...], peers: set[str], few: tuple[str, ...], start: int, stop: int) -> _Nodes:
        """Return what nodes outside storage exchanged with the peer groups."""
        if not peers or stop <= start:
            return _Nodes({}, np.zeros((0, max(stop - start, 0) // self.window, len(fields))))
        asked = _rows(schema.NODE_TRAFFIC, fields, start, stop).by(schema.NODE)
        asked = asked.where(is_in(schema.PEER_GROUP, sorted(peers)), not_in(schema.GROUP, sorted(self._storage)))
        answer = self._numbers(asked.where(is_in(schema.NODE, sorted(few))) if few else asked)
        names = answer.tags.get_column(schema.NODE).to_list() if answer.tags.height else []
        return _Nodes({name: place for place, name in enumerate(names)}, _summed(answer, start, stop, self.window))

    def _storage_bytes(self, start: int, stop: int) -> Floats:
        """Return [window] bytes between storage and everybody else, both directions."""
        total = np.zeros(max(stop - start, 0) // self.window)
        for near, far in ((schema.SRC_GROUP, schema.DST_GROUP), (schema.DST_GROUP, schema.SRC_GROUP)):
            if self._storage and len(total):
                groups = sorted(self._storage)
                asked = _rows(schema.TRAFFIC, (schema.BYTES,), start, stop)
                answer = self._numbers(asked.where(is_in(near, groups), not_in(far, groups)))
                total += _summed(answer, start, stop, self.window).sum(axis=(0, 2))
        return total

    def _exporters(self, start: int, stop: int) -> _Exporters:
        if stop <= start:
            return _Exporters((), np.zeros((0, 0)), np.ones((0, 0)))
        fields = schema.EXPORTER_BYTES, schema.SAMPLING
        answer = self._numbers(_rows(schema.EXPORTER_STATUS, fields, start, stop).by(schema.EXPORTER))
        names = answer.tags.get_column(schema.EXPORTER).to_list() if answer.tags.height else []
        rates = np.ones((len(names), (stop - start) // self.window))
        if names:
            np.maximum.at(
                rates.reshape(-1), _cells(answer, start, stop, self.window), np.nan_to_num(answer.values[:, 2])
            )
        return _Exporters(tuple(names), _summed(answer, start, stop, self.window)[:, :, 0].T, rates.T)


class Windows:
    """The windows of a range, as they come."""

    def __init__(
        self,
        reader: WindowReader,
        start: int,
        stop: int,
        *,
        exporters: Future[_Exporters],
        compute: Future[_Nodes],
        storage: Future[_Nodes],
        all_storage: Future[Floats],
    ) -> None:
        self.start, self.stop = start, stop
        self._reader, self._exporters = reader, exporters
        self._compute, self._storage, self._all_storage = compute, storage, all_storage

    def sent(self, nodes: Sequence[str], start: int, stop: int) -> Floats:
        """Return [field, window, node] what nodes sent to training groups in [start, stop), which lies in the range."""
        return self._compute.result().of(nodes, self._part(start, stop))

    def _part(self, start: int, stop: int) -> slice:
        window = self._reader.window
        return slice((start - self.start) // window, max(stop - self.start, 0) // window)

    def of(self, job: Job, start: int, stop: int) -> JobWindows:
        """Return a job's windows [start, stop), which lie in the range; waits for the store.

        Raises:
            StoreError: the store is away.
        """
        reader = self._reader
        part = self._part(start, stop)
        heard, storage_heard, all_rates = self._heard
        rates = all_rates[part]
        sent, *packets = self._compute.result().of(job.nodes, part)
        written, read = self._storage.result().of(job.nodes, part)
        all_storage = self._all_storage.result()[part]
        return JobWindows(
            start=start,
            window=reader.window,
            sent=sent,
            # Whether they were read depends on all that was read; what is seen of them must not.
            packets=np.where(rates[:, None] > 1, packets[0], 0.0) if packets else np.zeros_like(sent),
            written=written,
            read=read,
            heard=heard[part],
            rates=rates,
            competing=np.maximum(all_storage - written.sum(axis=1) - read.sum(axis=1), 0.0),
            storage_heard=storage_heard[part],
        )

    @cached_property
    def _heard(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], Floats]:
        """Exporters heard on the compute and on the storage plane, and sampling rates: the same for all jobs."""
        reader, exporters = self._reader, self._exporters.result()
        names = reader.exporters, reader.storage_exporters
        return exporters.heard(names[0]), exporters.heard(names[1]), exporters.rates_of(names[0])


def _summed(answer: Numbers, start: int, stop: int, window: int) -> Floats:
    """Return [series, window, field] sums."""
    series, windows, fields = answer.tags.height, (stop - start) // window, len(answer.columns) - 1
    result = np.zeros((series, windows, fields))
    if series:
        cells = _cells(answer, start, stop, window)
        for place in range(fields):
            values = np.nan_to_num(answer.values[:, place + 1])
            result[:, :, place] = np.bincount(cells, values, series * windows).reshape(series, windows)
    return result


def _cells(answer: Numbers, start: int, stop: int, window: int) -> npt.NDArray[np.int64]:
    """Return the place of each row in a flat [series, window] table."""
    rows = answer.tags.get_column(ROWS).to_numpy()
    at = ((answer.values[:, 0] / _MILLI - start) // window).astype(np.int64)
    return np.asarray(np.repeat(np.arange(len(rows)), rows) * ((stop - start) // window) + at, np.int64)


def exporters_on(cluster: Cluster, plane: Plane) -> tuple[str, ...]:
    """Return the exporters that can see a plane: those with a counting interface there, else all that count."""
    counting = [exporter for exporter in cluster.exporters if exporter.counts]
    there = [
        exporter.name
        for exporter in counting
        if any(interface.plane is plane and interface.counts for interface in exporter.interfaces)
    ]
    return tuple(there or [exporter.name for exporter in counting])


def sees_seconds(cluster: Cluster) -> bool:
    """Return whether any exporter samples packets, from which single seconds are kept."""
    return any(exporter.protocol is ExportProtocol.SFLOW and exporter.counts for exporter in cluster.exporters)


def _rows(measurement: Measurement, fields: Sequence[Field], start: int, stop: int) -> Select:
    """Return the question for fields of base windows as they are stored."""
    return Select(measurement, schema.RAW).take(*map(beside, fields)).between(start, stop)
