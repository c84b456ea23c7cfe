"""The interface of a study: it reads windows and returns points.

There are two kinds. A `Study` looks at the cluster as a whole. A `JobStudy` goes through the windows of one job and
hands a carry from one to the next. Both are functions of what the store holds and of what was known before, so that
a live analysis and one that runs over the same range later give the same points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.baseline import Flags, Floats
from analysis.detectors.rows import Rows
from cluster.model import Job
from store.schema import Measurement

Points = list[tuple[Measurement, pl.DataFrame]]
"""Frames for ``store.points.encode``: WINDOW in epoch seconds, tags, fields, and perhaps QUIET."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a pass covers: epoch seconds, multiples of the window, start <= final <= closed <= now.

    Attributes:
        start: first window to judge; the study's state is that before it.
        final: no late record can change a window before this: the state moves on to here.
        closed: end of the newest closed window.
        now: end of the newest window that may hold anything.
    """

    start: int
    final: int
    closed: int
    now: int

    def behind(self, seconds: int, oldest: int) -> "Span":
        """Return what is so many seconds earlier, without what lies before `oldest`."""
        return Span(*(max(moment - seconds, oldest) for moment in (self.start, self.final, self.closed, self.now)))

    def until(self, stop: int) -> "Span":
        """Return the part before a moment, which is not before the start."""
        return Span(self.start, *(min(moment, stop) for moment in (self.final, self.closed, self.now)))


class Study(Protocol):
    """One kind of verdict on the whole cluster."""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Return what it writes."""

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return every row with start <= WINDOW < closed, whether or not an earlier call returned it too.

        The analyser calls it again and again with the same `start` until windows become final; it writes what
        changed, and takes back what is gone (numbers become 0, texts empty). A field that a row once had must not
        become null: InfluxDB keeps the old value. Rows up to `span.now` are allowed. What a study remembers beyond
        that it must be able to read back from the store or from ``State``.
        """


@dataclass(frozen=True, slots=True)
class JobWindows:
    """What the store holds of one job in consecutive windows; arrays are [window, node] or [window, exporter].

    Attributes:
        start: of the first window, epoch seconds.
        window: seconds.
        sent, packets: bytes and packets to training groups; 0 where there is no point. Packets are known only of
            windows whose `rates` are above 1. Bytes of nodes that are `apart` are 0.
        written, read: bytes to and from storage and model storage.
        heard: whether the exporter's flows hold bytes in the window; exporters of the compute plane.
        rates: [window] largest sampling rate of these exporters.
        storage_heard: as `heard`; exporters of the storage plane.
        apart: [window, node] whether other jobs hold it than those that are compared; empty where no node is shared.
        competing: [window] bytes between storage and everybody who is not of this job.
        found: what the studies that ran before found in these windows; each that runs adds to it.
        is_final: whether nothing can change in them any more.
    """

    start: int
    window: int
    sent: Floats
    packets: Floats
    written: Floats
    read: Floats
    heard: npt.NDArray[np.bool_]
    rates: Floats = field(default_factory=lambda: np.zeros(0))
    competing: Floats = field(default_factory=lambda: np.zeros(0))
    storage_heard: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    apart: Flags = field(default_factory=lambda: np.zeros((0, 0), np.bool_))
    found: Sequence[Rows] = ()
    is_final: bool = True

    def __len__(self) -> int:
        return len(self.sent)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Return [window] when each begins, epoch seconds."""
        return self.start + np.arange(len(self)) * self.window

    def of(self, measurement: Measurement) -> Rows:
        """Return what an earlier study found, in the order of windows, QUIET rows included; KeyError if none did."""
        for rows in self.found:
            if rows.measurement is measurement:
                return rows
        raise KeyError(measurement.name)

    def between(self, start: int, stop: int) -> "JobWindows":
        """Return those in [start, stop), which lies in the range; `found` is of all."""
        part = slice((start - self.start) // self.window, (stop - self.start) // self.window)
        return replace(
            self,
            start=start,
            sent=self.sent[part],
            packets=self.packets[part],
            written=self.written[part],
            read=self.read[part],
            heard=self.heard[part],
            rates=self.rates[part],
            competing=self.competing[part],
            storage_heard=self.storage_heard[part],
            apart=self.apart[part],
        )

    @property
    def has_traffic(self) -> bool:
        """Whether any of its nodes sent or received anything."""
        return bool(self.sent.any() or self.written.any() or self.read.any())


Carry = TypeVar("Carry")

Memory = Mapping[str, object]
"""What a study remembers of a finished run: plain data that JSON holds."""

FLAW = "flaw"
"""Key of a memory: why the run teaches nothing (text). A run with one is remembered, but not handed out."""


class JobStudy(Protocol[Carry]):
    """One kind of verdict on a job, window by window."""

    @property
    def name(self) -> str:
        """Return what runs are remembered under; unique."""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Return what it writes."""

    @property
    def closer(self) -> int:
        """Return seconds: windows that end at their multiples are judged otherwise once they are final; 0: none are."""

    def first(self, job: Job, earlier: Sequence[Memory], begin: int) -> Carry:
        """Return the carry before a job's first window.

        Args:
            job: a job with nodes, in the order of the arrays' columns.
            earlier: what this study remembers of earlier good runs of the class, newest first.
            begin: start of that window; after the start of a job whose beginning the store no longer holds.
        """

    def judge(self, job: Job, carry: Carry, windows: JobWindows) -> tuple[Carry, list[Rows]]:
        """Judge consecutive windows; `carry` itself stays as it is."""

    def retold(self, job: Job, carry: Carry) -> Carry:
        """Return the carry of a job of which it became known, or became known otherwise, how and when it ends."""

    def remember(self, job: Job, carry: Carry) -> Memory:
        """Return what a finished run teaches; `carry` is that after its last window."""
