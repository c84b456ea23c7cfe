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
    """[window, exporter] bytes, those of them that do not count, and sampling rates, in the order of `names`."""

    names: tuple[str, ...]
    sent: Floats
    suppressed: Floats
    rates: Floats

    def of(self, names: Sequence[str]) -> Floats:
        """Return [window, exporter] bytes; 0 for one that was not heard."""
        return self._placed(self.sent, names)

    def _placed(self, values: Floats, names: Sequence[str]) -> Floats:
        result = np.zeros((len(values), len(names)))
        for place, name in enumerate(names):
            if name in self.names:
                result[:, place] = values[:, self.names.index(name)]
        return result

    def told(self, names: Sequence[str]) -> Floats:
        """Return [window, exporter] numbers that are others once a record came for a window, or counts no more."""
        return np.hstack([self.of(names), self._placed(self.suppressed, names)])

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

    def moved(self, first: int, count: int, read: Sequence[tuple[slice, "_Nodes"]]) -> "_Nodes":
        """Return so many windows from the first on, with parts of them as they were read since."""
        places = dict(self.places)
        for _, part in read:
            for name in part.places:
                places.setdefault(name, len(places))
        sums = np.zeros((len(places), count, self.sums.shape[2]))
        kept = self.sums[:, first:]
        sums[: len(kept), : kept.shape[1]] = kept
        for where, part in read:
            sums[:, where] = 0.0
            sums[[places[name] for name in part.places], where] = part.sums
        return _Nodes(places, sums)


@dataclass(frozen=True, slots=True)
class _Changes:
    """What of a round's windows has to be read, the others being known from the last round.

    Attributes:
        is_new: [window] whether it was not there in the last round, or exporters told more of it since.
        parts: begin and end of what is read, epoch seconds.
    """

    is_new: npt.NDArray[np.bool_]
    parts: tuple[tuple[int, int], ...]


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
        self._last: Windows | None = None
        self._pulse: tuple[tuple[int, int], _Nodes] | None = None
        self._heard: dict[tuple[int, int], _Exporters] = {}

    def begin(
        self, start: int, stop: int, nodes: Sequence[str] | None = None, *, settled: int | None = None
    ) -> "Windows":
        """Begin to read the windows [start, stop): of these nodes only if they are few, else of all.

        Without `nodes` they are those of a pass; if it is long, `sent` looks in them.

        Args:
            start: epoch seconds.
            stop: epoch seconds.
            nodes: whose windows.
            settled: of a live round: windows before this moment will not be read again. Of the others only those are
                that the last round did not have, or of which exporters told more since.
        """
        is_shared = nodes is None and stop - start >= _LONG
        few = tuple(nodes) if nodes is not None and len(nodes) <= _FEW else ()
        before = self._before(start, stop) if settled is not None and not is_shared else None
        exporters = self._ask(lambda: self._exporters(start, stop))
        # Whoever answers for the exporters was asked before: nothing waits for what waits itself.
        changes = self._ask(lambda: self._changes(exporters.result(), before, start, stop, settled or start))

        def read(known: _Nodes | None, fields: tuple[Field, ...], peers: set[str]) -> _Nodes:
            if before is None or known is None or known.sums.shape[2] != len(fields):
                return self._nodes(fields, peers, few, start, stop)
            found = [
                (self.part(start, *part), self._nodes(fields, peers, few, *part)) for part in changes.result().parts
            ]
            return known.moved((start - before.start) // self.window, (stop - start) // self.window, found)

        def compute() -> _Nodes:
            is_sampled = bool((exporters.result().rates_of(self.exporters) > 1).any())
            fields = _SENT if is_shared or is_sampled else _SENT[:1]
            return read(before.compute.result() if before else None, fields, self._training)

        def all_storage() -> Floats:
            if before is None:
                return self._storage_bytes(start, stop)
            kept = before.all_storage.result()[(start - before.start) // self.window :]
            result = np.concatenate([kept, np.zeros((stop - before.stop) // self.window)])
            for part in changes.result().parts:
                result[self.part(start, *part)] = self._storage_bytes(*part)
            return result

        found = Windows(
            self,
            start,
            stop,
            exporters=exporters,
            changes=changes,
            compute=self._ask(compute),
            storage=self._ask(lambda: read(before.storage.result() if before else None, _EXCHANGED, self._storage)),
            all_storage=self._ask(all_storage),
        )
        if nodes is None:
            self._heard.clear()
            self._last = found
        if nodes is None and self._shared and self._shared[-1].stop != start:
            # What another pass read before these may have changed since.
            self._shared.clear()
        if is_shared:
            self._shared.append(found)
        return found

    def _before(self, start: int, stop: int) -> "Windows | None":
        """Return what the last round read, where these windows go on from it."""
        last = self._last
        return last if last is not None and last.start <= start < last.stop <= stop and last.is_read else None

    def part(self, first: int, start: int, stop: int) -> slice:
        """Return where the windows [start, stop) lie among those from `first` on."""
        return slice((start - first) // self.window, max(stop - first, 0) // self.window)

    def _changes(
        self, exporters: _Exporters, before: "Windows | None", start: int, stop: int, settled: int
    ) -> _Changes:
        """Return what has to be read of [start, stop).

        A bridge writes what it tells of exporters after the windows of nodes. What it was writing in the last round is
        read once more in this one.
        """
        is_new = np.ones((stop - start) // self.window, np.bool_)
        if before is None:
            return _Changes(is_new, ((start, stop),))
        first, known = (start - before.start) // self.window, (before.stop - start) // self.window
        then = before.exporters.result()
        names = sorted({*exporters.names, *then.names})
        is_new[:known] = (exporters.told(names)[:known] != then.told(names)[first:]).any(axis=1)
        is_read = is_new.copy()
        is_read[:known] |= before.changes.result().is_new[first:]
        open_from = max(start, settled)
        changed = open_from + int(is_read[(open_from - start) // self.window :].argmax()) * self.window
        if changed == open_from:
            return _Changes(is_new, ((start, stop),))
        return _Changes(is_new, tuple(part for part in ((start, open_from), (changed, stop)) if part[0] < part[1]))

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
            return _Exporters((), np.zeros((0, 0)), np.zeros((0, 0)), np.ones((0, 0)))
        fields = schema.EXPORTER_BYTES, schema.SAMPLING, schema.EXPORTER_SUPPRESSED
        answer = self._numbers(_rows(schema.EXPORTER_STATUS, fields, start, stop).by(schema.EXPORTER))
        names = answer.tags.get_column(schema.EXPORTER).to_list() if answer.tags.height else []
        rates = np.ones((len(names), (stop - start) // self.window))
        if names:
            np.maximum.at(
                rates.reshape(-1), _cells(answer, start, stop, self.window), np.nan_to_num(answer.values[:, 2])
            )
        sent, _, suppressed = _summed(answer, start, stop, self.window).T
        return _Exporters(tuple(names), sent, suppressed, rates.T)


class Windows:
    """The windows of a range, as they come."""

    def __init__(
        self,
        reader: WindowReader,
        start: int,
        stop: int,
        *,
        exporters: Future[_Exporters],
        changes: Future[_Changes],
        compute: Future[_Nodes],
        storage: Future[_Nodes],
        all_storage: Future[Floats],
    ) -> None:
        self.start, self.stop = start, stop
        self._reader = reader
        self.exporters, self.changes = exporters, changes
        self.compute, self.storage, self.all_storage = compute, storage, all_storage

    @property
    def is_read(self) -> bool:
        """Whether all of it was read."""
        asked = (self.exporters, self.changes, self.compute, self.storage, self.all_storage)
        return all(one.done() and one.exception() is None for one in asked)

    def sent(self, nodes: Sequence[str], start: int, stop: int) -> Floats:
        """Return [field, window, node] what nodes sent to training groups in [start, stop), which lies in the range."""
        return self.compute.result().of(nodes, self._part(start, stop))

    def _part(self, start: int, stop: int) -> slice:
        return self._reader.part(self.start, start, stop)

    def of(self, job: Job, start: int, stop: int) -> JobWindows:
        """Return a job's windows [start, stop), which lie in the range; waits for the store.

        Raises:
            StoreError: the store is away.
        """
        reader = self._reader
        part = self._part(start, stop)
        heard, storage_heard, all_rates = self._heard
        rates = all_rates[part]
        sent, *packets = self.compute.result().of(job.nodes, part)
        written, read = self.storage.result().of(job.nodes, part)
        all_storage = self.all_storage.result()[part]
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
        reader, exporters = self._reader, self.exporters.result()
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
