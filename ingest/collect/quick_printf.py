"""The library that nfacctd and sfacctd print with, and keep templates: quick_printf.c and kept_templates.c."""

import subprocess
from pathlib import Path

from app.compiled import Compiled
from app.errors import ClusterflowError

LIBRARY = Compiled(Path(__file__).parent, ("quick_printf.c", "kept_templates.c"), ("kept_templates.h",))


def library(folder: Path) -> Path:
    """Return the library as `Compiled.path` does; `ClusterflowError` also where it cannot be loaded from there."""
    return _tried(LIBRARY.path(folder))


def with_library(path: Path) -> list[str]:
    """Return what a command is to begin with so that it has the library."""
    return ["env", f"LD_PRELOAD={path}"]


def _tried(path: Path) -> Path:
    """Return the library if a program can be loaded with it: a folder may have a space in its name, or be `noexec`."""
    done = subprocess.run([*with_library(path), "true"], capture_output=True, text=True, check=False)
    if done.returncode or done.stderr:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ClusterflowError(f"{path} cannot be loaded: {said[0]}", "remove it, or choose another folder (--run-dir)")
    return path
