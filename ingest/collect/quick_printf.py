"""The library that nfacctd and sfacctd print with, and keep templates: quick_printf.c and kept_templates.c, compiled.

`python -m ingest.collect.quick_printf` compiles it beside this module, for machines that have no compiler.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from app.errors import ClusterflowError

_SOURCES = [Path(__file__).with_name(name) for name in ("quick_printf.c", "kept_templates.c", "kept_templates.h")]
NAME = f"quick_printf-{hashlib.sha256(b''.join(one.read_bytes() for one in _SOURCES)).hexdigest()[:12]}.so"
"""That of another release's sources is another file."""

SHIPPED = Path(__file__).with_name(NAME)
"""Compiled beforehand, as in our image."""

COMPILER = "cc"
_COMPILE_SECONDS = 60.0
_HINT = "apt-get install gcc libc6-dev"


def can_be_had(folder: Path) -> bool:
    """Whether `library` is likely to return one; nothing is compiled."""
    return SHIPPED.exists() or (folder / NAME).exists() or shutil.which(COMPILER) is not None


def library(folder: Path) -> Path:
    """Return the library: the shipped one, or one that is compiled into a folder unless it is there.

    Raises:
        ClusterflowError: there is no compiler, it fails, or what it made cannot be loaded there.
    """
    if SHIPPED.exists():
        return _tried(SHIPPED)
    if not (own := folder / NAME).exists():
        compile_to(own)
    return _tried(own)


def compile_to(path: Path) -> None:
    """Compile the library; `ClusterflowError` as for `library`."""
    if shutil.which(COMPILER) is None:
        raise ClusterflowError("no C compiler", _HINT)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    command = [COMPILER, "-O2", "-shared", "-fPIC", "-o", str(scratch), *map(str, _SOURCES[:2])]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=True)
        scratch.replace(path)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        raise ClusterflowError(f"{COMPILER} fails: {said[0]}", _HINT) from error
    except (subprocess.TimeoutExpired, OSError) as error:
        raise ClusterflowError(f"{COMPILER} fails: {error}") from error
    finally:
        scratch.unlink(missing_ok=True)


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


if __name__ == "__main__":
    try:
        compile_to(SHIPPED)
    except ClusterflowError as error:
        sys.exit("".join(error.lines()))
