"""What processes cost: CPU seconds and memory of each part of a pipeline, from /proc."""

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import click
import polars as pl

from app.errors import UserError
from bench.costs.control_group import ControlGroup

_NUMBER = re.compile(r"\d+(\.\d+)+")
_RMEM_MAX = Path("/proc/sys/net/core/rmem_max")


def machine(influxd: str | None = None) -> dict[str, Any]:
    """Return cores, memory and versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": memory,
        "kernel": platform.release(),
        "rmem_max": int(_RMEM_MAX.read_text()) if _RMEM_MAX.exists() else None,
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "polars": pl.__version__,
        "nfacctd": version("nfacctd", "-V"),
        "influxd": version(influxd or "influxd"),
    }


def tell_machine(influxd: str | None = None) -> None:
    """Print what this is measured on; say so where other work would blur it."""
    found = machine(influxd)
    line(step="machine", **found)
    if found["load"] > 0.5:
        click.echo(f"other work runs here (load {found['load']}): figures will be too low", err=True)


def _processor() -> str:
    for row in Path("/proc/cpuinfo").read_text().splitlines():
        if row.startswith("model name"):
            return row.partition(":")[2].strip()
    return platform.machine()


def version(program: str, option: str = "version") -> str | None:
    """Return what a program says of its version; None where it is not installed."""
    found = shutil.which(program)
    if found is None:
        return None
    said = subprocess.run([found, option], capture_output=True, text=True, check=False, timeout=20)
    number = _NUMBER.search(said.stdout or said.stderr)
    return f"{Path(found).name} {number[0]}" if number else None


_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_SLOWER = 1.1
"""The last third of a soak may hold so many times the memory of the middle one: leaks go on growing. In the first third
caches fill: InfluxDB's of each retention until they are first written out, the bridge's windows and first contacts."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a part uses.

    Attributes:
        cpu: seconds, since it began, children that ended included.
        memory: bytes resident; pages that several of its processes share count once (PSS).
        largest: of these, what its largest process has.
        mapped: of these, bytes of files: programs, and InfluxDB's data. The kernel takes them back when it likes.
    """

    cpu: float
    memory: int
    largest: int
    mapped: int


def descendants(roots: Iterable[int]) -> list[int]:
    """Return the processes and all that descend from them."""
    parents: dict[int, int] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    found = {root for root in roots if root in parents}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return sorted(found)


def usage(pids: Iterable[int]) -> Usage:
    """Return what processes use together; those that are gone use nothing."""
    cpu, memory, largest, mapped = 0.0, 0, 0, 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = _stat(pid)
            cpu += sum(map(int, fields[11:15])) / _TICKS
            resident, of_files = _resident(pid)
            memory, largest, mapped = memory + resident, max(largest, resident), mapped + of_files
    return Usage(cpu, memory, largest, mapped)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on: state, parent, ..."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _resident(pid: int) -> tuple[int, int]:
    """Return the bytes that a process has in memory, and how many of them are pages of files."""
    rows = (line.split() for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines())
    found = {row[0]: int(row[1]) << 10 for row in rows if row[0] in ("Pss:", "Pss_File:")}
    return found.get("Pss:", 0), found.get("Pss_File:", 0)


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and its threads, to the nanosecond.

    What is shorter than the ticks of `usage` shows too; a thread that ends takes its time along, which Go's do not.
    """
    told = ((task / "schedstat").read_text() for task in (_PROC / str(pid) / "task").iterdir())
    return sum(int(text.split()[0]) for text in told) / 1e9


def busy_seconds() -> float:
    """Return the CPU seconds that this machine has spent on anything."""
    fields = [int(text) for text in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, waiting = fields[3:5]
    return (sum(fields) - idle - waiting) / _TICKS


@dataclass(slots=True)
class Meter:
    """Measures parts over time.

    Args:
        parts: name -> process; what descends from it belongs to it, unless it is a part itself. As root, what it starts
            and nobody waits for counts, too.
    """

    parts: dict[str, int]
    _groups: dict[str, ControlGroup] = field(default_factory=dict)
    _begun: dict[str, Usage] = field(default_factory=dict)
    _last: dict[str, Usage] = field(default_factory=dict)
    _series: dict[str, list[Usage]] = field(default_factory=dict)
    _busy: float = field(default_factory=busy_seconds)

    def start(self) -> None:
        """Let CPU time count from now."""
        with contextlib.suppress(UserError):
            for name, pids in self._owned().items():
                self._groups[name] = ControlGroup()
                self._groups[name].take(pids)
        self._busy = busy_seconds()
        self._begun = self._last = self.read()

    def read(self) -> dict[str, Usage]:
        """Return what each part uses now."""
        found = {name: usage(pids) for name, pids in self._owned().items()}
        counted = {name: self._groups[name].seconds for name in found if name in self._groups}
        return found | {name: replace(found[name], cpu=seconds) for name, seconds in counted.items()}

    @property
    def counts_forgotten(self) -> bool:
        """Whether what a part starts and does not wait for counts: nfacctd's writers are half of what it costs."""
        return bool(self._groups)

    def _owned(self) -> dict[str, list[int]]:
        owned = {pid: set(descendants([pid])) for pid in self.parts.values()}
        found = {}
        for name, pid in self.parts.items():
            below = set[int]().union(*(owned[other] for other in owned if other in owned[pid] and other != pid))
            found[name] = sorted(owned[pid] - below)
        return found

    def sample(self) -> dict[str, Usage]:
        """Read and remember."""
        found = self.read()
        self._last = self._last | found
        for name, one in found.items():
            self._series.setdefault(name, []).append(one)
        return found

    def document(self, seconds: float) -> dict[str, Any]:
        """Return CPU seconds since `start`, cores over so many seconds, and memory of each part."""
        found = {}
        for name, series in self._series.items():
            cpu = self._last[name].cpu - self._begun[name].cpu
            memory = [one.memory for one in series]
            found[name] = {
                "cpu_seconds": round(cpu, 2),
                "cores": round(cpu / seconds, 3),
                "peak_mib": max(memory) >> 20,
                "largest_mib": max(one.largest for one in series) >> 20,
                "last_mib": memory[-1] >> 20,
            }
        return found

    def other_cores(self, seconds: float) -> float:
        """Return how many cores worked for others since `start`, over so many seconds: with many, measure again."""
        ours = sum(self._last[name].cpu - begun.cpu for name, begun in self._begun.items())
        return round(max(busy_seconds() - self._busy - ours, 0.0) / seconds, 2)

    def thirds(self) -> dict[str, Any]:
        """Return each part's median memory in each third, whether the last two are alike, and CPU of first and last.

        Samples are as far apart as ever. What a part has of files is not in it: InfluxDB maps all data that it has
        written, which is the kernel's cache.
        """
        found = {}
        for name, series in self._series.items():
            third = len(series) // 3
            if not third:
                continue
            first, last = series[:third], series[-third:]
            parts = first, series[third:-third], last
            begin, before, after = (median(one.memory - one.mapped for one in part) for part in parts)
            early, late = (part[-1].cpu - part[0].cpu for part in (first, last))
            found[name] = {
                "first_third_mib": round(begin) >> 20,
                "middle_third_mib": round(before) >> 20,
                "last_third_mib": round(after) >> 20,
                "mapped_mib": series[-1].mapped >> 20,
                "cpu_last_to_first": round(late / early, 2) if early else None,
                "flat": after <= before * _SLOWER,
            }
        return found


def timed(arguments: list[str]) -> dict[str, Any]:
    """Run a command; return wall and CPU seconds and the peak memory of its process, at least our own before it."""
    began = time.monotonic()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise click.ClickException(f"{' '.join(arguments[:4])}: {said.decode(errors='replace')[-500:]}")
    return {
        "seconds": round(time.monotonic() - began, 3),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
        "peak_mib": round(usage.ru_maxrss / 1024),
    }


def line(**values: object) -> None:
    """Print one measurement."""
    click.echo(json.dumps(values))
