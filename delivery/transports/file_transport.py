"""A file with an event a line (NDJSON), as shippers of logs follow it."""

import os
from collections.abc import Sequence
from pathlib import Path

from cluster.model import FileDestination
from delivery.event import Document, line
from delivery.transports.destination import AwayError, Refusal, building


class NdjsonFile:
    """Appends whole lines; a batch is on disk before it counts. At its size the file becomes ``NAME.1``."""

    most = 1000

    def __init__(self, settings: FileDestination) -> None:
        self._settings = settings
        self._path = Path(settings.path)

    def send(self, events: Sequence[Document]) -> list[Refusal]:
        """Append a batch."""
        with building():
            data = "".join(f"{line(event)}\n" for event in events).encode()
        try:
            self._append(data)
        except OSError as error:
            raise AwayError(
                f"{self._path}: {error.strerror}", "make room, or a folder that this user can write"
            ) from error
        return []

    def _append(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._rotate(len(data))
        # Not kept open: who moves the file away gets a new one at the next batch.
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o640)
        try:
            size = _whole_lines(file)
            try:
                _write_all(file, data)
                os.fsync(file)
            except OSError:
                os.ftruncate(file, size)
                raise
        finally:
            os.close(file)

    def _rotate(self, more: int) -> None:
        size = self._path.stat().st_size if self._path.exists() else 0
        if not size or size + more <= self._settings.rotate:
            return
        for number in range(self._settings.keep, 0, -1):
            older = self._numbered(number)
            if older.exists() and number == self._settings.keep:
                older.unlink()
            elif older.exists():
                older.replace(self._numbered(number + 1))
        self._path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Nothing is kept open."""


def _whole_lines(file: int) -> int:
    """Cut off half a line that a power cut or a kill left; return the size."""
    size = os.fstat(file).st_size
    end = size
    while end:
        start = max(end - 65_536, 0)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)
    return end


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
