"""Run nfacctd and sfacctd, start them again when they die, and say what they lose.

Not thread-safe; and the daemons are told when the thread that started them is gone, so start them in the main thread.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from app.errors import ClusterflowError, UserError, of_disk
from cluster.model import Cluster, ExportProtocol
from ingest.collect import quick_printf, template_file
from ingest.collect.counter_files import CounterFiles
from ingest.collect.daemon_load import DaemonLoad, busy_seconds
from ingest.collect.discards import Discard, Discards
from ingest.collect.flow_files import FlowFiles, claim
from ingest.collect.hangs import HangWatch
from ingest.collect.kernel.bpf import BpfError
from ingest.collect.kernel.guard import Guard, Teller
from ingest.collect.kernel.sockets import UdpSocket, inodes_of, udp_sockets
from ingest.collect.kernel.split import Split, share_of
from ingest.collect.kernel.vlan_watch import VlanWatch
from ingest.collect.pmacct import SFACCTD, Daemon, collector_files, daemons, keeps_templates
from ingest.collect.trouble_file import DIED, TAGS, Troubles

_LOG_BYTES = 8 << 20
_BACKOFF_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
_STABLE_SECONDS = 60.0
_START_SECONDS = 15.0
_STOP_SECONDS = 15.0
_DRAIN_SECONDS = 4.0
_QUIET_SECONDS = 0.4
_SETTLED_SECONDS = 10.0
"""Before it is this old, a daemon may not know yet what to do with a signal."""

_GUARD_SECONDS = 1.0
"""For which a new daemon's socket is waited for; after that it is looked for once a second."""

_NO_ROOM_BYTES = 1 << 20
"""A disk with less room than this is as good as full: nfacctd does not say when it cannot write."""

_PRIORITY = -10
"""Of the daemons, on the scale of nice, where we may set it."""

_LEVELS = {"WARN": "warning", "ERROR": "error"}
_COMPLAINT = re.compile(r"^(?:\S+Z?\s+)?(WARN|ERROR)[ :]\s*(.*)$")
# nfacctd says so on its very first start, and then makes the file.
_HARMLESS = ("load_templates_from_file",)

_OVERRUN = "Missing data detected"
_OVERRUN_HINT = "its queue ran over and records are lost: a higher collector.netflow_daemons, where a core is free"

Log = Callable[..., None]
"""Called as ``log(event, **values)``."""


def _group_members(group: int) -> dict[int, int]:
    """Return the live processes of a process group with the clock ticks they used; zombies are not live."""
    members = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] != "Z":
                    members[int(entry.name)] = int(fields[11]) + int(fields[12])
    return members


def _group_ticks(group: int) -> int:
    """Return the clock ticks (1/100 s) that the processes of a group used."""
    return sum(_group_members(group).values())


@dataclass(slots=True)
class _Running:
    """One daemon: its process, and what is known of it over all its lives."""

    daemon: Daemon
    port: int
    log_file: Path
    files: FlowFiles
    files_begun: float = 0.0
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    restarts: int = 0
    next_start: float = 0.0
    read_to: int = 0
    dropped_before: int = 0
    dropped_now: int = 0
    complaints: int = 0
    last_complaint: str = ""
    discards: Discards = field(default_factory=Discards)
    inodes: AbstractSet[int] = frozenset()
    is_placed: bool = False
    is_guarded: bool = False
    refused: int = 0
    hangs: HangWatch = field(default_factory=HangWatch)
    rest: str = field(default="", repr=False)


class Collector:
    """pmacct's daemons for a cluster. Use it as a context manager, or `start` and `stop` it; call `poll` every second.

    Args:
        cluster: which ports, exporters and sizes.
        run_folder: where configuration and logs go; made if missing.
        spool: where records go; made if missing; by default ``collector.spool``.
        log: for starts, deaths, warnings and losses.

    Attributes:
        load: what the nfacctd take of their cores.
    """

    def __init__(
        self, cluster: Cluster, run_folder: Path, *, spool: Path | None = None, log: Log | None = None
    ) -> None:
        self.spool = (spool or Path(cluster.collector.spool)).resolve()
        self.run_folder = run_folder.resolve()
        self._cluster = cluster
        self._counter_files = CounterFiles(self.spool)
        self._counters_begun = 0.0
        self._is_full = False
        self._lock = -1
        self._guard: Guard | None = None
        self._preload: Path | None = None
        self._refused = 0
        self._troubles = Troubles(self.spool, time.time)
        self._log: Log = log or (lambda _event, **_values: None)
        self._vlan_watch: VlanWatch | None = None
        self._teller = Teller(cluster, self._troubles, self._log)
        self.load = DaemonLoad(self.spool)
        self._wanted = cluster.collector.netflow_daemons or self.load.daemons(cluster)
        self._has_overrun = False
        self._split = self._made_split()
        self._shares = self._wanted if self._split else 1
        self._all = [
            _Running(
                daemon,
                daemon.port(cluster),
                self.run_folder / f"{daemon.label}.log",
                FlowFiles(self.spool, daemon.prefix),
            )
            for daemon in daemons(cluster, self._shares)
        ]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- what can be asked -------------------------------------------------------------------------

    @property
    def pids(self) -> dict[str, int]:
        """Process id of each daemon that runs, by its name."""
        return {
            running.daemon.label: running.process.pid
            for running in self._all
            if running.process is not None and running.process.poll() is None
        }

    @property
    def restarts(self) -> dict[str, int]:
        """How often each daemon was started again."""
        return {running.daemon.label: running.restarts for running in self._all}

    @property
    def complaints(self) -> dict[str, int]:
        """Warnings and errors in each daemon's log: each may mean lost records."""
        return {running.daemon.label: running.complaints for running in self._all}

    @property
    def discarded(self) -> dict[str, int]:
        """Datagrams that each daemon could not read, or not to their end: what was left of them was thrown away."""
        return {running.daemon.label: running.discards.count for running in self._all}

    @property
    def is_guarded(self) -> bool:
        """Whether the filter is on nfacctd's socket."""
        return any(running.is_guarded for running in self._all)

    @property
    def refused(self) -> int:
        """Datagrams that would have killed nfacctd, which the filter kept from it."""
        return self._refused

    @property
    def is_outgrown(self) -> bool:
        """Whether a queue is full, and a restart would choose more nfacctd."""
        is_free = self._cluster.collector.netflow_daemons is None
        return (self._has_overrun or self.load.is_full) and is_free and self.load.daemons(self._cluster) > self._wanted

    def measure(self) -> None:
        """Measure the load of each nfacctd; call it once a minute."""
        running = [one.process.pid for one in self._all if _is_netflow(one) and one.process is not None]
        members = {group: _group_members(group) for group in running}
        busy = {group: {pid: busy_seconds(pid, used) for pid, used in of.items()} for group, of in members.items()}
        self.load.measure(busy, time.monotonic())

    def dropped(self) -> dict[str, int]:
        """Return the datagrams that the kernel dropped before each daemon read them, since `start`."""
        for running in self._all:
            self._read_drops(running)
        return {running.daemon.label: running.dropped_before + running.dropped_now for running in self._all}

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Write the configuration and start the daemons; wait until they listen.

        Raises:
            UserError: pmacct is not installed, or a folder cannot be written.
            ClusterflowError: what may pass: a port is taken, another collector writes to the spool, or a daemon refuses
                to run, as it does before its address is up.
        """
        for running in self._all:
            if shutil.which(running.daemon.name) is None:
                raise UserError(f"{running.daemon.name} is not installed", "apt-get install pmacct")
            if udp_sockets(running.port):
                # It would start, and the kernel would share the datagrams out among the two sockets.
                raise ClusterflowError(
                    f"UDP port {running.port} is taken", f"stop the other {running.daemon.name}, or choose another port"
                )
        try:
            self._prepare()
            self._begin_guard()
            self._begin_vlan_watch()
            with self._sharing():
                for running in self._all:
                    self._spawn(running)
                for running in self._all:
                    self._await_socket(running)
                    self._protect(running)
            # A plugin that still sets itself up misses the call for the first datagram, and sleeps until the second.
            self._await_quiet(self._all)
        except BaseException:
            self.stop()
            raise

    def _begin_printf(self) -> None:
        if self._cluster.collector.fast_printing:
            try:
                self._preload = quick_printf.library(self.run_folder)
            except ClusterflowError as error:
                costs = (
                    "nfacctd takes a third more time, and writes all templates when one comes, or keeps none "
                    "(collector.keep_templates); collector.fast_printing: false stops this line"
                )
                hint = f"{error.hint}; {costs}" if error.hint else costs
                self._log("printing_slowly", level="warning", why=error, hint=hint)

    def _begin_guard(self) -> None:
        nfacctd = [running for running in self._all if _is_netflow(running)]
        if not nfacctd or not self._cluster.collector.guard:
            return
        try:
            self._guard = Guard(nfacctd[0].port)
        except BpfError as error:
            hint = "one datagram of a listed exporter can kill nfacctd; collector.guard: false stops this line"
            self._log("guard_unavailable", level="warning", why=error, hint=hint)

    def _made_split(self) -> Split | None:
        """Return what shares the exporters out among several daemons; None for a single one, or without the right."""
        settings = self._cluster.collector
        if self._wanted > 1:
            try:
                return Split(settings.listen, settings.netflow_port, self._wanted)
            except BpfError as error:
                hint = "one nfacctd has all exporters; give collect CAP_BPF, or set collector.netflow_daemons: 1"
                self._log("split_unavailable", level="warning", why=error, hint=hint)
        return None

    @contextlib.contextmanager
    def _sharing(self) -> Iterator[None]:
        """Share out what arrives from the first datagram on that a daemon may get which starts meanwhile."""
        with contextlib.ExitStack() as held:
            if self._split is not None:
                # At boot, the address may not be up yet: the daemon tells.
                with contextlib.suppress(OSError):
                    held.enter_context(self._split.starting())
            yield

    def _begin_vlan_watch(self) -> None:
        if any(running.daemon is SFACCTD for running in self._all):
            # Without the right, `clusterflow guard` may do it.
            with contextlib.suppress(OSError):
                self._vlan_watch = VlanWatch(self._cluster, Troubles(self.spool, time.time, TAGS))

    def _protect(self, running: _Running) -> None:
        """Put the filter on a daemon's socket as soon as it has one, then give it its exporters."""
        if running.process is None or not _is_netflow(running):
            return
        self._filter(running)
        if self._split is not None and not running.is_placed:
            try:
                running.is_placed = self._split.place(running.process.pid, running.daemon.share)
            except (BpfError, OSError) as error:
                self._log("daemon_not_placed", level="error", daemon=running.daemon.label, why=error)

    def _filter(self, running: _Running) -> None:
        if self._guard is None or running.is_guarded or running.process is None:
            return
        try:
            running.is_guarded = self._guard.protect(running.process.pid)
        except (BpfError, OSError) as error:
            self._log("guard_unavailable", level="warning", why=error)
            self._guard.close()
            self._guard = None

    def _protect_soon(self, running: _Running) -> None:
        """Wait a moment for the socket of a daemon that starts again: whoever killed it may be about to repeat."""
        deadline = time.monotonic() + _GUARD_SECONDS
        while _is_netflow(running) and time.monotonic() < deadline:
            self._protect(running)
            if (running.is_guarded or not self._guard) and (running.is_placed or not self._split):
                return
            time.sleep(0.005)

    def _read_refusals(self) -> None:
        """Tell who sent what was refused: the first of each at once, in the log and to the bridge."""
        if self._guard is None:
            return
        told = self._teller.tell(self._guard)
        self._refused += told.total()
        nfacctd = [running for running in self._all if _is_netflow(running)]
        for source, count in told.items():
            nfacctd[share_of(source, len(nfacctd))].refused += count

    def _prepare(self) -> None:
        try:
            self.run_folder.mkdir(parents=True, exist_ok=True)
            self.spool.mkdir(parents=True, exist_ok=True)
            self._lock = claim(self.spool)
            if any(running.daemon is SFACCTD for running in self._all):
                self._counter_files.prepare()
                self._counters_begun = time.monotonic()
            for path in self.run_folder.glob("?facctd*.conf"):
                # Left by an earlier cluster.yaml: the health check of docker-compose.yml goes by what is there.
                path.unlink()
            self._begin_printf()
            is_fast = self._preload is not None
            files = collector_files(
                self._cluster, self.run_folder, self.spool, is_rotated=True, is_fast=is_fast, shares=self._shares
            )
            for name, text in files.items():
                (self.run_folder / name).write_text(text)
            if keeps_templates(self._cluster, is_fast=is_fast):
                template_file.deal(self.spool, self._shares)
            else:
                # Those of another time would be taken for those of now: by whom reads records, and at a later start.
                template_file.forget(self.spool)
            for running in self._all:
                running.files.begin()
        except OSError as error:
            raise of_disk(error.filename, error, "choose a folder that this user can write") from error

    def poll(self) -> None:
        """Look after the daemons: read their logs and drops, start again what died."""
        now = time.monotonic()
        self._watch_disk()
        self._read_refusals()
        if self._vlan_watch is not None:
            self._vlan_watch.look(now)
        for running in self._all:
            self._protect(running)
            self._read_log(running)
            self._read_drops(running)
            process = running.process
            if process is not None and running.hangs.is_hung(process.pid, now, waits=self._waiting(running) > 0):
                self._log("daemon_hung", level="error", daemon=running.daemon.label, pid=process.pid)
                _end_group(process.pid)
                process.wait()
                template_file.forget_endless(self.spool, running.daemon.share)
            if process is not None and process.poll() is not None:
                self._bury(running, process)
            elif process is not None and running.failures and now - running.started > _STABLE_SECONDS:
                running.failures = 0
            if running.process is None and now >= running.next_start:
                self._start_again(running)
            if now - running.files_begun >= self._cluster.collector.rotate:
                self._rotate(running)
            if running.daemon is SFACCTD and now - self._counters_begun >= self._cluster.collector.rotate:
                self._rotate_counters(running)

    def stop(self) -> None:
        """Stop the daemons; returns when their last records are in the spool and no process of theirs is left."""
        live = [running for running in self._all if running.process is not None]
        # What waits in a queue would be lost.
        self._await_quiet(live)
        for running in live:
            if running.process is not None:
                # SIGTERM stays blocked until the next datagram arrives; SIGINT does not.
                _signal(running.process.pid, signal.SIGINT)
        for running in live:
            self._await_end(running)
            self._read_log(running)
            running.process = None
        self._read_refusals()
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        if self._vlan_watch is not None:
            self._vlan_watch.close()
            self._vlan_watch = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _watch_disk(self) -> None:
        """Log when the spool's disk becomes full, and when it has room again."""
        try:
            is_full = shutil.disk_usage(self.spool).free < _NO_ROOM_BYTES
        except OSError:
            return
        if is_full and not self._is_full:
            self._log("spool_full", level="error", folder=self.spool, hint="make room: what arrives meanwhile is lost")
        elif self._is_full and not is_full:
            self._log("spool_has_room", folder=self.spool)
        self._is_full = is_full

    def _spawn(self, running: _Running) -> None:
        command = [running.daemon.name, "-f", str(self.run_folder / f"{running.daemon.label}.conf")]
        if self._preload is not None:
            # Behind setpriv, which has rights that the library must not have.
            command = [*quick_printf.with_library(self._preload), *command]
        guard = shutil.which("setpriv")
        if guard:
            # If we are killed, the kernel interrupts the daemon: it prints what it has and ends. Rights that our unit
            # gives us are not for it.
            command = [guard, "--pdeathsig", "INT", "--ambient-caps", "-all", *command]
        with running.log_file.open("ab") as log_file:
            running.read_to = log_file.tell()
            # Its own session, so that ^C in a terminal reaches us alone and we stop it in order. UTC, so that the names
            # of spool files do not go backwards when summer time ends.
            running.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
                # As long as one of them can print, the spool is taken.
                pass_fds=(self._lock,),
                # They read packets of strangers: what else stands in our environment is not for them.
                env={
                    **{name: text for name, text in os.environ.items() if re.fullmatch("PATH|LANG|LC_[A-Z]+", name)},
                    "TZ": "UTC",
                },
            )
        _put_first(running.process.pid)
        running.started = running.files_begun = time.monotonic()
        self._log("daemon_started", daemon=running.daemon.label, pid=running.process.pid, port=running.port)

    def _begin_file(self, running: _Running) -> None:
        """Let a daemon that starts again begin with a file and a header of its own: it may be of another version."""
        with self._going_on("file_not_begun", self.spool, daemon=running.daemon.label):
            running.files.begin()

    def _rotate(self, running: _Running) -> None:
        """Have a daemon print to a new file; to the one before where that cannot be done."""
        running.files_begun = time.monotonic()
        with self._going_on("file_not_rotated", self.spool, daemon=running.daemon.label):
            running.files.rotate()

    def _rotate_counters(self, running: _Running) -> None:
        """Have sfacctd write interface counters to a new file."""
        process, now = running.process, time.monotonic()
        if process is None or process.poll() is not None or now - running.started < _SETTLED_SECONDS:
            return
        self._counters_begun = now
        with self._going_on("counters_not_rotated", self._counter_files.folder):
            self._counter_files.begin()
            _signal(process.pid, signal.SIGHUP)

    @contextlib.contextmanager
    def _going_on(self, event: str, folder: Path, **values: object) -> Iterator[None]:
        """Log what the disk refuses, and go on with the file before."""
        try:
            yield
        except OSError as error:
            self._log(event, level="warning", **values, why=error.strerror, folder=folder)

    def _await_socket(self, running: _Running) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if running.process is None or running.process.poll() is not None:
                break
            if self._sockets(running):
                return
            time.sleep(0.02)
        self._read_log(running)
        # At boot, collector.listen may come up later than we do: on a slow card, or with VRRP. So it is tried again.
        raise ClusterflowError(
            f"{running.daemon.label} did not start: {running.last_complaint or 'no reason given'}",
            f"see {running.log_file}",
        )

    def _start_again(self, running: _Running) -> None:
        """Start a daemon that died; where the system refuses it now, later: the others go on."""
        self._begin_file(running)
        try:
            with self._sharing():
                self._spawn(running)
                running.restarts += 1
                self._protect_soon(running)
        except OSError as error:
            pause = self._put_off(running)
            self._log("daemon_not_started", level="error", daemon=running.daemon.label, why=error, again_in=pause)

    def _put_off(self, running: _Running) -> float:
        """Have a daemon started again only after a while, which grows with each time that it fails; return seconds."""
        pause = _BACKOFF_SECONDS[min(running.failures, len(_BACKOFF_SECONDS) - 1)]
        running.failures += 1
        running.next_start = time.monotonic() + pause
        return pause

    def _bury(self, running: _Running, process: subprocess.Popen[bytes]) -> None:
        """Note a death, and clear away what is left: an orphaned child would keep the socket and get half the data."""
        _end_group(process.pid)
        running.dropped_before += running.dropped_now
        running.dropped_now = 0
        running.process = None
        running.is_guarded = running.is_placed = False
        running.refused = 0
        running.inodes = frozenset()
        self._troubles.add(DIED, running.daemon.label, 1)
        pause = self._put_off(running)
        self._log(
            "daemon_died",
            level="error",
            daemon=running.daemon.label,
            code=process.returncode,
            again_in=pause,
            why=running.last_complaint,
        )

    def _await_quiet(self, live: list[_Running]) -> None:
        """Wait until the daemons have nothing to do, in the kernel's queues and in their own; some seconds at most.

        Their own queues cannot be seen from outside, but a plugin that has records to read uses the processor.
        """
        deadline = time.monotonic() + _DRAIN_SECONDS
        groups = [running.process.pid for running in live if running.process is not None]
        while time.monotonic() < deadline:
            before = sum(map(_group_ticks, groups))
            time.sleep(_QUIET_SECONDS)
            is_busy = sum(map(_group_ticks, groups)) - before > len(groups)
            if not is_busy and not any(self._waiting(running) for running in live):
                return

    def _await_end(self, running: _Running) -> None:
        process = running.process
        if process is None:
            return
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            # The writers of the last purge outlive the core.
            if process.poll() is not None and not _group_members(process.pid):
                self._log("daemon_stopped", daemon=running.daemon.label)
                return
            time.sleep(0.05)
        _end_group(process.pid)
        process.wait()
        self._log("daemon_killed", level="warning", daemon=running.daemon.label, hint="its last records may be lost")

    # -- what they tell ----------------------------------------------------------------------------

    def _sockets(self, running: _Running) -> list[UdpSocket]:
        """Return a daemon's own sockets: of several at one port, those that it has open."""
        found = udp_sockets(running.port)
        if self._split is None or not _is_netflow(running):
            return found
        if running.process is not None and not running.inodes:
            running.inodes = inodes_of(running.process.pid) & {one.inode for one in found}
        return [one for one in found if one.inode in running.inodes]

    def _waiting(self, running: _Running) -> int:
        return sum(sock.waiting for sock in self._sockets(running))

    def _read_drops(self, running: _Running) -> None:
        now = sum(sock.dropped for sock in self._sockets(running))
        if running.is_guarded:
            # The kernel counts what the filter refuses among what it drops.
            self._read_refusals()
            now = max(now - running.refused, running.dropped_now)
        if now > running.dropped_now:
            self._log("datagrams_dropped", level="error", daemon=running.daemon.label, count=now - running.dropped_now)
        running.dropped_now = max(now, running.dropped_now)

    def _read_log(self, running: _Running) -> None:
        """Pass on warnings, errors and what was thrown away; empty the log where it has grown large."""
        try:
            with running.log_file.open("rb") as log_file:
                log_file.seek(running.read_to)
                text = running.rest + log_file.read().decode("utf-8", "replace")
                running.read_to = log_file.tell()
        except OSError:
            return
        lines = text.split("\n")
        running.rest = lines.pop()
        for line in lines:
            match = _COMPLAINT.match(line)
            if match and not any(word in line for word in _HARMLESS):
                running.complaints += 1
                running.last_complaint = match[2]
                has_overrun = _OVERRUN in line
                self._has_overrun |= has_overrun
                hint = {"hint": _OVERRUN_HINT} if has_overrun else {}
                self._log("daemon_warned", daemon=running.daemon.label, level=_LEVELS[match[1]], text=match[2], **hint)
            elif not match and (discard := Discard.read(line)) is not None:
                running.discards.take(discard)
        for told in running.discards.due(time.monotonic()):
            self._log(
                "datagrams_discarded",
                level="warning",
                daemon=running.daemon.label,
                agent=told.agent,
                text=told.reason,
                count=told.count,
                total=running.discards.count,
            )
        if running.read_to > _LOG_BYTES:
            # The daemon appends, so it goes on at the new end.
            os.truncate(running.log_file, 0)
            running.read_to = 0


def _is_netflow(running: _Running) -> bool:
    return running.daemon.protocol is ExportProtocol.NETFLOW


def _put_first(pid: int) -> None:
    """Give a daemon priority, as far as we may: what it misses is lost.

    Its queue holds some seconds of records, and overwrites them in silence when the process that reads it is kept
    waiting. The kernel weighs sessions first where it groups processes by them, then processes.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _PRIORITY)
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(_PRIORITY))


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _end_group(group: int) -> None:
    """End every process of a group: in order first, so that a plugin prints what it has, then by force."""
    for number, patience in ((signal.SIGINT, 3.0), (signal.SIGKILL, 3.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if not _group_members(group):
                return
            time.sleep(0.05)
