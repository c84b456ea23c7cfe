"""Libraries of ours in C: shipped beside their sources, or compiled where they are needed."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from app.errors import ClusterflowError

COMPILER = "cc"
_COMPILE_SECONDS = 60.0
_HINT = "apt-get install gcc libc6-dev"


class Compiled:
    """A library and its sources.

    Args:
        folder: where the sources are.
        names: of the sources (``.c``); the library is called after the first.
        headers: that they include.

    Attributes:
        name: the library's file; that of another release's sources is another one.
        shipped: the library as it is compiled beforehand, as in our image.
    """

    def __init__(self, folder: Path, names: tuple[str, ...], headers: tuple[str, ...] = ()) -> None:
        self._sources = [folder / name for name in names]
        texts = b"".join((folder / name).read_bytes() for name in (*names, *headers))
        self.name = f"{self._sources[0].stem}-{hashlib.sha256(texts).hexdigest()[:12]}.so"
        self.shipped = folder / self.name

    def can_be_had(self, folder: Path) -> bool:
        """Whether `path` is likely to return one; nothing is compiled."""
        return self.shipped.exists() or (folder / self.name).exists() or shutil.which(COMPILER) is not None

    def path(self, folder: Path) -> Path:
        """Return the library: the shipped one, or one that is compiled into a folder unless it is there.

        Raises:
            ClusterflowError: there is no compiler, or it fails.
        """
        if self.shipped.exists():
            return self.shipped
        if not (own := folder / self.name).exists():
            self.compile_to(own)
        return own

    def compile_to(self, path: Path) -> None:
        """Compile the library; `ClusterflowError` as for `path`."""
        if shutil.which(COMPILER) is None:
            raise ClusterflowError("no C compiler", _HINT)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        command = [COMPILER, "-O3", "-shared", "-fPIC", "-o", str(scratch), *map(str, self._sources)]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=True)
            scratch.replace(path)
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
            raise ClusterflowError(f"{COMPILER} fails: {said[0]}", _HINT) from error
        except (subprocess.TimeoutExpired, OSError) as error:
            raise ClusterflowError(f"{COMPILER} fails: {error}") from error
        finally:
            scratch.unlink(missing_ok=True)
