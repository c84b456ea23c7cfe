"""What a bench's figures were measured on, and how they are printed."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import polars as pl

from bench.bridge_rate import line

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
        "nfacctd": _version("nfacctd", "-V"),
        "influxd": _version(influxd or "influxd", "version"),
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


def _version(program: str, option: str) -> str | None:
    """Return what a program says of its version; None where it is not installed."""
    found = shutil.which(program)
    if found is None:
        return None
    said = subprocess.run([found, option], capture_output=True, text=True, check=False, timeout=20)
    number = _NUMBER.search(said.stdout or said.stderr)
    return f"{Path(found).name} {number[0]}" if number else None
