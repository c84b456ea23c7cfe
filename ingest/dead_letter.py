"""Dead letters: what could not be counted, one JSON object a line, with the reason."""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from app.log import Log
from ingest.counters import Counters
from ingest.read.records import Reason
from store.schema import Stage

MAX_LINE_CHARACTERS = 2000
MAX_FILE_BYTES = 64 << 20


class DeadLetters:
    """A file of dead letters; when it is full it becomes ``NAME.1``, and the ``NAME.1`` before it is gone.

    The counters count every letter, also those whose text is no longer there.

    Args:
        path: the file; made when the first letter comes.
        max_bytes: size that the file does not pass.
        max_line: characters of a line that are kept.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_FILE_BYTES, *, max_line: int = MAX_LINE_CHARACTERS) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self._max_line = max_line
        self.counts: dict[str, int] = {}
        self._size = path.stat().st_size if path.exists() else 0

    def add(self, source: str, dead: pl.DataFrame) -> None:
        """Keep lines that are no records.

        Args:
            source: the file they came from.
            dead: ``line`` and ``reason``, as in `records.DEAD_SCHEMA`.
        """
        if not dead.height:
            return
        for reason, count in dead.group_by("reason").len().iter_rows():
            self.counts[reason] = self.counts.get(reason, 0) + count
        letters = dead.select(
            pl.struct(
                pl.lit(datetime.now(UTC).isoformat(timespec="seconds")).alias("time"),
                # A name of bytes that are no UTF-8 has stand-ins that no column takes.
                pl.lit(source.encode("utf-8", "backslashreplace").decode()).alias("source"),
                "reason",
                pl.col("line").str.slice(0, self._max_line),
            ).struct.json_encode()
        ).to_series()
        self._write("".join(f"{letter}\n" for letter in letters).encode())

    def add_records(self, source: str, frame: pl.DataFrame, reason: Reason) -> None:
        """Keep records that turned out to be none, such as those with an address that is no address.

        Args:
            source: the file they came from.
            frame: the records; each is kept as JSON.
            reason: what is wrong with them.
        """
        if frame.height:
            lines = frame.select(pl.struct(pl.all()).struct.json_encode().alias("line"))
            self.add(source, lines.with_columns(pl.lit(reason.value).alias("reason")))

    def _write(self, text: bytes) -> None:
        """Append letters, exchanging the file when it is full. A full disk loses texts, not the bridge."""
        if len(text) > self.max_bytes:
            # A flood: its end is as good as its beginning.
            text = text[text.find(b"\n", len(text) - self.max_bytes) + 1 :]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._size and self._size + len(text) > self.max_bytes:
                self.path.replace(self.path.with_name(self.path.name + ".1"))
                self._size = 0
            with self.path.open("ab", buffering=0) as file:
                size = file.tell()
                if file.write(text) < len(text):
                    # Half a letter would spoil the next one too.
                    file.truncate(size)
                    return
            self._size += len(text)
        except OSError:
            pass


def bury(letters: DeadLetters, dead: pl.DataFrame, source: str, *, counters: Counters, log: Log) -> None:
    """Keep, count and tell of dead letters.

    Args:
        letters: where they are kept.
        dead: ``line`` and ``reason``, as in `records.DEAD_SCHEMA`; may be empty.
        source: where they came from.
        counters: count them, in all and by reason.
        log: reports the first in a while.
    """
    if dead.is_empty():
        return
    letters.add(source, dead)
    counters.add(Stage.READ, "dead_letters", dead.height)
    counters.add_all(Stage.READ, dict(dead.group_by("reason").len().iter_rows()))
    log.sparse("dead_letters", count=dead.height, source=source, reason=dead.get_column("reason")[0])


def as_dead_letters(refused: pl.DataFrame) -> pl.DataFrame:
    """Return records that were refused, with a ``reason`` column, as lines of JSON."""
    if refused.is_empty():
        return refused
    return refused.select(pl.struct(pl.exclude("reason")).struct.json_encode().alias("line"), "reason")
