"""Simulated flow records as real datagrams, each exporter from its own address, paced by a clock."""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from app.errors import ClusterflowError, UserError
from simulate.packets.flows import FlowBatch
from simulate.packets.marks import Marks
from simulate.packets.netflow import FlowFormat, NetflowEncoder
from simulate.packets.polls import Poll
from simulate.packets.sflow import SflowEncoder
from simulate.packets.wire import Datagrams, Encoded, encoders, lost, plan
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth

Flags = NDArray[np.bool_]

MAX_DATAGRAMS = 20_000
"""Datagrams a second, at most: what nfacctd takes without loss on a small machine."""

_TICK = 0.01
_NAP = 0.1
_REPORT = 0.25
_COUNT = 1.0
_SEND_BUFFER = 4 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """Where a collector listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the emitter is: sent so far, and how far it is behind its clock, in seconds."""

    records: int
    datagrams: int
    at: float
    behind: float


class Clock:
    """Simulated time: epoch seconds that pass `speed` times as fast as real ones.

    Args:
        start: where simulated time begins when the clock is started; None follows the machine's clock (speed 1).
        speed: simulated seconds a second; 0 means as fast as possible.
    """

    def __init__(self, start: float | None = None, speed: float = 1.0) -> None:
        self._begins = start
        self._speed = speed
        self._zero = time.monotonic()

    def start(self) -> None:
        """Let time begin."""
        self._zero = time.monotonic()

    def seconds_until(self, moment: float) -> float:
        """Return real seconds until a simulated moment; negative once it is past."""
        if self._begins is None:
            return moment - time.time()
        if not self._speed:
            return 0.0
        return (moment - self._begins) / self._speed - (time.monotonic() - self._zero)


class UdpEmitter:
    """Sends batches as NetFlow, IPFIX and sFlow. Use it as a context manager, or `close` it.

    Args:
        workload: the simulation.
        truth: gets exactly what was handed to the network.
        netflow: where nfacctd listens.
        sflow: where sfacctd listens.
        allow_remote: also send to other machines; then from this machine's own address.
        max_datagrams: datagrams a second, at most.

    Raises:
        UserError: a target is not on this machine, or an exporter's address is none that this machine can send from.
    """

    def __init__(
        self,
        workload: Workload,
        truth: GroundTruth,
        *,
        netflow: Target,
        sflow: Target,
        allow_remote: bool = False,
        max_datagrams: int = MAX_DATAGRAMS,
    ) -> None:
        self._workload = workload
        self._marks = Marks(workload.cast.addresses, workload.scenario.incidents)
        self._truth = truth
        self._per_tick = max(1, int(max_datagrams * _TICK))
        styles = workload.fabric.styles
        for target in (netflow, sflow):
            if not allow_remote and not _is_loopback(target.host):
                raise UserError(
                    f"{target.host}:{target.port}: not on this machine",
                    "simulated flows would mix with real ones there; --allow-remote sends them all the same",
                )
        self._targets = [sflow if style.flow_format is FlowFormat.SFLOW else netflow for style in styles]
        self._streams = encoders(workload.cluster, styles, workload.scenario.start, workload.fabric.losses)
        self._sockets: list[socket.socket] = []
        self._datagrams = 0
        self._records = 0
        self._reported = 0.0
        self._tick = 0.0
        self._in_tick = 0
        try:
            for exporter, target in zip(workload.cluster.exporters, self._targets, strict=True):
                # sFlow names its agent inside the datagram, so any address of this machine will do.
                is_bound = _is_loopback(target.host) and (target is netflow or exporter.address.is_loopback)
                self._sockets.append(_open(str(exporter.address) if is_bound else "", exporter.name, target))
        except UserError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets."""
        while self._sockets:
            self._sockets.pop().close()

    def run(
        self,
        batches: Iterable[FlowBatch],
        clock: Clock,
        stop: threading.Event,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """Send everything at its time, until the batches end or `stop` is set; returns with the truth exact.

        Call it from a thread that ^C does not interrupt between a datagram and its count: set `stop` from the handler.

        Raises:
            ClusterflowError: the network refuses datagrams.
        """
        clock.start()
        self._greet()
        for batch in batches:
            self._send(batch, clock, stop, progress)
            if stop.is_set():
                return

    def _greet(self) -> None:
        """Send templates and options ahead of any data."""
        now = self._workload.scenario.live.start * 1000
        for number, stream in enumerate(self._streams):
            hello = stream.hello(now) if isinstance(stream, NetflowEncoder) else b""
            if hello:
                self._transmit(number, hello)

    def _send(
        self, batch: FlowBatch, clock: Clock, stop: threading.Event, progress: Callable[[Progress], None] | None
    ) -> None:
        frame = batch.frame
        polls = deque(batch.polls)
        if not frame.height:
            # Time passes also where nothing is said.
            for at in (*(poll.at for poll in batch.polls), batch.until):
                self._await(at, clock, stop, progress)
                self._poll(polls, at)
            return
        planned = plan(frame, self._workload.cast.addresses, self._workload.fabric.styles)
        encoded = Encoded(frame, self._marks.tos(frame), planned, self._workload.cast.addresses, self._streams)
        gone = lost(planned, self._workload.fabric.losses)
        unread = lost(planned, (loss for loss in self._workload.fabric.losses if loss.lacks_templates))
        sent = added = 0
        counted = time.monotonic()
        try:
            for datagram, (exporter, at) in enumerate(zip(planned.exporter.tolist(), planned.at.tolist(), strict=True)):
                behind = self._await(at, clock, stop, progress)
                if stop.is_set():
                    return
                self._poll(polls, at)
                message = encoded.message(datagram)
                # What is lost is made all the same: it counts in the sequence numbers.
                if unread[datagram] or not gone[datagram]:
                    self._transmit(exporter, message, is_read=not gone[datagram])
                sent = datagram + 1
                self._records += int(planned.bounds[sent] - planned.bounds[datagram])
                self._report(progress, at / 1000, behind)
                if time.monotonic() - counted >= _COUNT:
                    # Now and then, so that whoever watches sees what was sent and not what a whole batch will be.
                    self._count(frame, planned, gone, added, sent)
                    added, counted = sent, time.monotonic()
            for poll in tuple(polls):
                self._await(poll.at, clock, stop, progress)
                if not stop.is_set():
                    self._poll(polls, poll.at)
        finally:
            self._count(frame, planned, gone, added, sent)

    def _count(self, frame: pl.DataFrame, planned: Datagrams, gone: Flags, first: int, last: int) -> None:
        """Add to the truth the datagrams from `first` up to and without `last`."""
        arrives = np.repeat(~gone[first:last], np.diff(planned.bounds[first : last + 1]))
        self._truth.add(frame[planned.order[planned.bounds[first] : planned.bounds[last]][arrives]])

    def _await(
        self, at: float, clock: Clock, stop: threading.Event, progress: Callable[[Progress], None] | None
    ) -> float:
        """Wait for a moment (epoch ms) or a stop; return the seconds by which it was missed."""
        while (left := clock.seconds_until(at / 1000)) > 0 and not stop.wait(min(left, _NAP)):
            self._report(progress, at / 1000, -left)
        return -left

    def _poll(self, polls: deque[Poll], until: float) -> None:
        """Send the interface counters that are due by a moment (epoch ms)."""
        while polls and polls[0].at <= until:
            poll = polls.popleft()
            stream = self._streams[poll.exporter]
            for message in stream.poll(poll) if isinstance(stream, SflowEncoder) else ():
                self._transmit(poll.exporter, message)
            self._truth.add_poll(poll)

    def _transmit(self, exporter: int, message: bytes, *, is_read: bool = True) -> None:
        target = self._targets[exporter]
        try:
            self._sockets[exporter].sendto(message, (target.host, target.port))
        except OSError as error:
            raise ClusterflowError(
                f"cannot send to {target.host}:{target.port}: {error.strerror}", "is the network up?"
            ) from error
        self._datagrams += 1
        if is_read:
            self._truth.add_datagrams(exporter)
        now = time.monotonic()
        if now - self._tick > _TICK:
            self._tick, self._in_tick = now, 0
        self._in_tick += 1
        if self._in_tick >= self._per_tick:
            time.sleep(max(0.0, self._tick + _TICK - now))

    def _report(self, progress: Callable[[Progress], None] | None, at: float, behind: float) -> None:
        now = time.monotonic()
        if progress is not None and now - self._reported >= _REPORT:
            self._reported = now
            progress(Progress(self._records, self._datagrams, at, max(behind, 0.0)))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _open(address: str, name: str, target: Target) -> socket.socket:
    """Return a socket that sends from the exporter's address, by which nfacctd knows it; from any if it is empty."""
    family = socket.AF_INET6 if ":" in target.host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    if not address:
        return opened
    try:
        opened.bind((address, 0))
    except OSError as error:
        opened.close()
        raise UserError(
            f"exporters.{name}.address: {address}: this machine cannot send from it ({error.strerror})",
            "give simulated exporters addresses in 127.0.0.0/8",
        ) from error
    return opened
