"""A file that the user replaces while we run: read again when it changes, the last good version stays in use."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from app.errors import ClusterflowError

T = TypeVar("T")

_TOLERATED = 1
"""Reads in a row during which a file may change before it is reported."""

_MOST_WORDS = 200
"""Characters of a parser's message that are reported."""

Mark = tuple[int, int, int, int]
"""What tells a version of a file from another: device, inode, size, time of the last change (ns)."""


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """What a loader made of a file.

    Attributes:
        value: what look-ups are made on; never changed after it was loaded.
        entries: how many things it lists.
        dated: when its origin made it, epoch seconds; None where the file does not say, so that its time counts.
        origin: what it says of where it comes from; may be empty.
        skipped: entries that were skipped.
        note: the first of these as one line; empty if there is none.
        doubt: says what look-ups have met since then that is not as it should be, as one line; empty if nothing.
    """

    value: T
    entries: int
    dated: float | None = None
    origin: str = ""
    skipped: int = 0
    note: str = ""
    doubt: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class FileReading:
    """How it is with a watched file.

    Attributes:
        name: what the configuration calls it.
        kind: what it is for: ``geography``, ``feed``, ...
        path: where it is.
        entries: in the version in use; 0 if there is none.
        dated: when the version in use was made, epoch seconds; None if there is none.
        origin: where it comes from, by its own words.
        skipped: entries skipped in the version in use.
        error: why what stands there now is not in use, or the first entry skipped, as one line; empty if all is
            well.
        in_use: whether any version is in use.
        broken: whether what stands there now is not in use, for the reason that `error` gives.
    """

    name: str
    kind: str
    path: Path
    entries: int
    dated: float | None
    origin: str
    skipped: int
    error: str
    in_use: bool
    broken: bool = False

    def age(self, now: float) -> float | None:
        """Return how old the version in use is, seconds; None if there is none. A date in the future counts as now."""
        return None if self.dated is None else max(now - self.dated, 0.0)


class WatchedFile(Generic[T]):
    """One such file.

    Nothing is read before the first `refresh`. A file that is broken, or gone, leaves the last good version in use;
    what is wrong stands in `reading` until it is mended.

    Args:
        path: the file.
        load: makes something of it; raises ClusterflowError, OSError or ValueError where it cannot. Whatever else it
            raises makes the file a broken one as well.
        name: what the configuration calls it.
        kind: what it is for.
    """

    def __init__(self, path: Path, load: Callable[[Path], Loaded[T]], *, name: str, kind: str) -> None:
        self.path, self.name, self.kind = path, name, kind
        self._load = load
        self._loaded: Loaded[T] | None = None
        self._changed = 0.0
        self._seen: Mark | None = None
        self._error = ""
        self._changing = 0
        self._is_adopted = False

    @property
    def value(self) -> T | None:
        """What was loaded last without a fault; None if nothing was."""
        return self._loaded.value if self._loaded else None

    def adopt(self, other: "WatchedFile[T]") -> None:
        """Begin with the version that another one has, of the same name and kind, until this one has read its own."""
        self._loaded, self._changed, self._is_adopted = other._loaded, other._changed, True  # noqa: SLF001 - one of us

    def refresh(self) -> bool:
        """Read the file if it has changed since the last look; return whether `value` is another one now.

        The first time, what was adopted counts as another one: whoever asks knows nothing of it yet.
        """
        is_adopted, self._is_adopted = self._is_adopted, False
        return self._look() or is_adopted

    def _look(self) -> bool:
        before: Mark | None = None
        try:
            before = self._mark()
            if before == self._seen:
                return False
            loaded = self._load(self.path)
            after = self._mark()
        except OSError as error:
            self._seen = None
            self._error = f"{self.path}: {os.strerror(error.errno) if error.errno else error}"
        except ClusterflowError as error:
            self._seen = before
            self._error = "; ".join(error.lines())
        except ValueError as error:
            self._seen = before
            self._error = f"{self.path}: {error}"
        except Exception as error:  # noqa: BLE001 - whatever a file does to a parser, who works with it goes on
            self._seen = before
            words = " ".join(str(error).split())[:_MOST_WORDS]
            self._error = f"{self.path}: cannot be read: {type(error).__name__}: {words}"
        else:
            if after == before:
                self._seen, self._error, self._loaded = before, "", loaded
                self._changed = before[3] / 1e9
                self._changing = 0
                return True
            # Somebody still writes it: what was read may be half of it, and the next look sees it whole.
            self._note_change()
        return False

    def reading(self) -> FileReading:
        """Return the state of the file."""
        loaded = self._loaded
        if loaded is None:
            return FileReading(
                self.name, self.kind, self.path, 0, None, "", 0, self._error, in_use=False, broken=bool(self._error)
            )
        dated = self._changed if loaded.dated is None else loaded.dated
        error = self._error or loaded.note or loaded.doubt()
        return FileReading(
            self.name,
            self.kind,
            self.path,
            loaded.entries,
            dated,
            loaded.origin,
            loaded.skipped,
            error,
            in_use=True,
            broken=bool(self._error),
        )

    def _note_change(self) -> None:
        self._changing += 1
        if self._changing > _TOLERATED:
            self._seen = None
            hint = "write it beside under another name, then rename it"
            self._error = f"{self.path}: changes each time while it is read ({hint})"

    def _mark(self) -> Mark:
        status = self.path.stat()
        # To open a pipe is to wait for somebody who writes to it.
        if not stat.S_ISREG(status.st_mode):
            raise ClusterflowError(f"{self.path}: expected a file")
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
