"""The library that nfacctd and sfacctd print with: quick_printf.c, compiled.

`python -m ingest.collect.quick_printf` compiles it beside this module, for machines that have no compiler.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from app.errors import ClusterflowError

SOURCE = Path(__file__).with_name("quick_printf.c")
SHIPPED = SOURCE.with_suffix(".so")
"""Compiled beforehand, as in our image."""

COMPILER = "cc"
_COMPILE_SECONDS = 60.0


def library(folder: Path) -> Path:
    """Return the library: the shipped one, or one that is compiled into a folder unless it is there.

    Raises:
        ClusterflowError: there is no compiler, or it fails.
    """
    if SHIPPED.exists():
        return SHIPPED
    own = folder / SHIPPED.name
    if not own.exists() or own.stat().st_mtime < SOURCE.stat().st_mtime:
        compile_to(own)
    return own


def compile_to(path: Path) -> None:
    """Compile the library; `ClusterflowError` as for `library`."""
    if shutil.which(COMPILER) is None:
        raise ClusterflowError("no C compiler", "apt-get install gcc libc6-dev")
    # A daemon may have the one before loaded: that file must not change.
    scratch = path.with_name(f".{path.name}.new")
    command = [COMPILER, "-O2", "-shared", "-fPIC", "-o", str(scratch), str(SOURCE)]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=True)
        scratch.replace(path)
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        raise ClusterflowError(f"{COMPILER} fails: {said[0]}") from error
    except (subprocess.TimeoutExpired, OSError) as error:
        raise ClusterflowError(f"{COMPILER} fails: {error}") from error


if __name__ == "__main__":
    try:
        compile_to(SHIPPED)
    except ClusterflowError as error:
        sys.exit(str(error))
