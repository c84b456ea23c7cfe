"""Exports of sign-ins as files: read from where they stopped, through rotation, truncation and replacement."""

import csv
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from cluster.model import SignInColumns, SignInFormat, SignInSource
from enrichment.identity import signin_records as records
from enrichment.identity.log_times import Clock
from enrichment.identity.signin_lines import CiscoAsa, LineReader, Mark, OpenvpnLog, RadiusDetail, Sessions
from enrichment.identity.signin_records import CsvLines, JsonLines
from enrichment.watched import Loaded, WatchedFile

_UNDEF = "UNDEF"
_ROUTES = "ROUTING TABLE"


def connected(text: str, clock: Clock) -> tuple[int, list[tuple[int, Mark]]]:
    """Return when the file was written, and each client with the line that reports it.

    Raises:
        ValueError: the text does not say when it was written.
    """
    written: int | None = None
    columns: Sequence[str] = ()
    table = ""
    found: list[tuple[int, Mark]] = []
    for number, cells in _rows(text):
        match cells:
            case ["TIME", *_, moment] | ["Updated", moment, *_]:
                written = clock.moment(moment)
            case ["HEADER", "CLIENT_LIST", *names]:
                columns = names
            case ["CLIENT_LIST", *values] if written is not None:
                found += [(number, mark) for mark in _client(dict(zip(columns, values, strict=False)), written)]
            case ["ROUTING TABLE" | "GLOBAL STATS" as name]:
                table = name
            case [address, user, _, _] if table == _ROUTES and written is not None:
                found += [(number, mark) for mark in _route(address, user, written)]
    if written is None:
        raise ValueError("no time: expected a status file of OpenVPN")
    return written, found


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.splitlines(), 1):
        delimiter = "\t" if line.count("\t") > line.count(",") else ","
        cells = next(csv.reader([line], delimiter=delimiter), [])
        if cells:
            yield number, cells


def _client(row: dict[str, str], written: int) -> Iterator[Mark]:
    """Yield what a client's row of version 2 or 3 says."""
    user = row.get("Username", _UNDEF)
    if user in {_UNDEF, ""}:
        user = row.get("Common Name", _UNDEF)
    since = row.get("Connected Since (time_t)", "")
    for address in (row.get("Virtual Address", ""), row.get("Virtual IPv6 Address", "")):
        if address and user != _UNDEF:
            if since.isdecimal():
                yield Mark(address, user, int(since))
            yield Mark(address, user, written)


def _route(address: str, user: str, written: int) -> Iterator[Mark]:
    """Yield what a route of version 1 says: networks behind a client are not its own address."""
    if address != "Virtual Address" and "/" not in address and user != _UNDEF:
        # A route that OpenVPN learnt from traffic has a C behind it.
        yield Mark(address.removesuffix("C"), user, written)


Take = Callable[[Mark, str], None]
"""Is given a mark and where it stands; raises ValueError where it cannot be used."""

LONGEST_LINE = 16_000_000
"""Bytes: a page of an API is one line. What is longer is skipped."""

LARGEST_DOCUMENT = 256_000_000
"""Bytes of a file that has to be read as a whole."""

MOST_FILES = 64
"""Files of one pattern that are followed, the newest."""

_CHUNK = 1 << 20
_FINGERPRINT = 256
_OPEN_BRACKETS = (b"[", b"{")


@dataclass
class Tally:
    """What became of the lines of one source.

    Attributes:
        entries: marks that were taken.
        skipped: lines that could not be used.
        note: the first of these, as one line.
        newest: moment of the newest mark.
        read: bytes of files that grow.
    """

    entries: int = 0
    skipped: int = 0
    note: str = ""
    newest: int | None = None
    read: int = 0

    def skip(self, place: str, why: str) -> None:
        """Count a line that could not be used; what it says is not repeated: it may hold a name."""
        self.skipped += 1
        self.note = self.note or f"{place}: {why}"


@dataclass
class GrowingFile:
    """A log file that another program appends to and rotates.

    Args:
        path: the file.
        reader: reads its lines.
    """

    path: Path
    reader: LineReader
    _file: IO[bytes] | None = None
    _offset: int = 0
    _line: int = 0
    _head: bytes = b""
    _tail: bytes = b""
    _rest: bytes = b""
    _is_cut: bool = field(default=False)

    def refresh(self, clock: Clock, take: Take, tally: Tally) -> None:
        """Read what was added since the last look.

        Raises:
            OSError: the file is not there, or cannot be read.
        """
        if self._file is not None:
            descriptor = self._file.fileno()
            self._follow(descriptor, clock, take, tally)
            there, ours = self.path.stat(), os.fstat(descriptor)
            # While the next one is empty, whoever writes may still have the one that was renamed.
            if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) or not there.st_size:
                return
            self.finish(clock, take, tally)
        self._file = self.path.open("rb")
        self._begin()
        self._follow(self._file.fileno(), clock, take, tally)

    def follow(self, clock: Clock, take: Take, tally: Tally) -> None:
        """Read what was added to the open file, wherever it is by now.

        Raises:
            OSError: the file cannot be read.
        """
        if self._file is not None:
            self._follow(self._file.fileno(), clock, take, tally)

    def finish(self, clock: Clock, take: Take, tally: Tally) -> None:
        """Read the open file, wherever it is by now, to its end, and let go of it; the next look begins again.

        Raises:
            OSError: the file cannot be read.
        """
        if self._file is None:
            return
        file, self._file = self._file, None
        with file:
            self._follow(file.fileno(), clock, take, tally)
            # It was written to until it was put away: its last line needs no end.
            if self._rest:
                self._read(self._rest, clock, take, tally)
            self._read(b"", clock, take, tally)

    def _begin(self) -> None:
        self._offset, self._line, self._head, self._tail, self._rest = 0, 0, b"", b"", b""
        self._is_cut = False
        self.reader.begin()

    def _follow(self, descriptor: int, clock: Clock, take: Take, tally: Tally) -> None:
        """Read on in the open file; from its beginning where what was read is no longer what stands there."""
        if os.fstat(descriptor).st_size < self._offset or not self._same(descriptor):
            self._begin()
        while chunk := os.pread(descriptor, _CHUNK, self._offset):
            self._head = (self._head + chunk)[:_FINGERPRINT]
            self._tail = (self._tail + chunk)[-_FINGERPRINT:]
            self._offset += len(chunk)
            tally.read += len(chunk)
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                self._read(line, clock, take, tally)
            if len(self._rest) > LONGEST_LINE:
                self._rest, self._is_cut = b"", True

    def _same(self, descriptor: int) -> bool:
        """Whether the file still begins, and goes on, as it was read."""
        head = os.pread(descriptor, len(self._head), 0)
        tail = os.pread(descriptor, len(self._tail), self._offset - len(self._tail))
        return head == self._head and tail == self._tail

    def _read(self, raw: bytes, clock: Clock, take: Take, tally: Tally) -> None:
        self._line += 1
        place = f"{self.path}:{self._line}"
        if self._is_cut:
            self._is_cut = False
            tally.skip(place, f"longer than {LONGEST_LINE // 1_000_000} MB")
            return
        line = raw.decode("utf-8", "replace").rstrip("\r").lstrip("\ufeff")
        try:
            for mark in self.reader.read(line, clock):
                take(mark, place)
        except (ValueError, OverflowError) as error:
            tally.skip(place, str(error))


# -- documents ---------------------------------------------------------------------------------------------


def is_document(path: Path) -> bool | None:
    """Whether a JSON file is one document over many lines, or a page without an end of line, not a record a line.

    None where it is empty: it says neither, and may be one that is written anew.
    """
    with path.open("rb") as file:
        beginning = file.read(1 << 16).lstrip(b"\xef\xbb\xbf \t\r\n")
    if not beginning:
        return None
    if not beginning.startswith(_OPEN_BRACKETS):
        return False
    line, newline, _ = beginning.partition(b"\n")
    if not newline:
        return True
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False


def _text_of(path: Path) -> str:
    if path.stat().st_size > LARGEST_DOCUMENT:
        raise ValueError(f"larger than {LARGEST_DOCUMENT // 1_000_000} MB: export it with a record a line")
    return path.read_bytes().decode("utf-8-sig", "replace")


Marks = tuple[tuple[str, Mark], ...]


def document_of(reader: JsonLines, clock: Callable[[], Clock]) -> Callable[[Path], Loaded[Marks]]:
    """Return what loads a JSON document: its marks, each with its place."""

    def load(path: Path) -> Loaded[Marks]:
        tally = Tally()
        marks: list[tuple[str, Mark]] = []
        for number, record in enumerate(_records_of(_text_of(path)), 1):
            place = f"{path}: record {number}"
            try:
                marks += [(place, mark) for mark in reader.marks(record, clock())]
            except (ValueError, OverflowError) as error:
                tally.skip(place, str(error))
        return Loaded(tuple(marks), len(marks), skipped=tally.skipped, note=tally.note)

    return load


def _records_of(text: str) -> list[object]:
    """Return the records of a JSON document, or of lines whose first had no end yet when they were looked at."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            raise ValueError("not JSON") from None
    page = found.get("value", found.get("records", found)) if isinstance(found, dict) else found
    return page if isinstance(page, list) else [page]


def _status_of(clock: Callable[[], Clock]) -> Callable[[Path], Loaded[Marks]]:
    """Return what loads OpenVPN's status file."""

    def load(path: Path) -> Loaded[Marks]:
        moment, marks = connected(_text_of(path), clock())
        return Loaded(tuple((f"{path}:{line}", mark) for line, mark in marks), len(marks), dated=float(moment))

    return load


# -- sources -----------------------------------------------------------------------------------------------

_MEANINGS = {
    SignInFormat.RADIUS_JSON: records.radius,
    SignInFormat.WINDOWS_JSON: records.windows,
    SignInFormat.WINDOWS_CSV: records.windows,
    SignInFormat.ENTRA_JSON: records.entra,
    SignInFormat.ENTRA_CSV: records.entra,
    SignInFormat.OKTA_JSON: records.okta,
}
_HEADERS = {
    SignInFormat.WINDOWS_CSV: ("TargetUserName", "IpAddress"),
    SignInFormat.ENTRA_CSV: ("Username", "IP address"),
}


def reader_of(source: SignInSource, sessions: Sessions) -> LineReader | None:
    """Return what reads the lines of one file of a source; None for files that are read as a whole.

    Args:
        source: what cluster.yaml says of it.
        sessions: of all files of the source: one that begins in a file may end in the next.
    """
    match source.format:
        case SignInFormat.OPENVPN_STATUS:
            return None
        case SignInFormat.OPENVPN_LOG:
            return OpenvpnLog(sessions)
        case SignInFormat.CISCO_ASA:
            return CiscoAsa(sessions)
        case SignInFormat.RADIUS_DETAIL:
            return RadiusDetail()
    columns = source.columns or SignInColumns("address", "user", "time")
    meaning = _MEANINGS.get(source.format) or records.mapped(columns, source.starts, source.stops)
    if source.format in {SignInFormat.CSV, SignInFormat.WINDOWS_CSV, SignInFormat.ENTRA_CSV}:
        named = (columns.address, columns.user, columns.time, *([columns.event] if columns.event else []))
        return CsvLines(meaning, _HEADERS.get(source.format, named))
    return JsonLines(meaning)


class SourceFiles:
    """The files of one source.

    Args:
        source: what cluster.yaml says of it.
        keep: seconds: files of a pattern that nobody has touched for so long are not opened.
    """

    def __init__(self, source: SignInSource, keep: int) -> None:
        self._source, self._keep = source, keep
        self._growing: dict[Path, GrowingFile] = {}
        self._leaving: list[GrowingFile] = []
        self._whole: dict[Path, WatchedFile[Marks]] = {}
        self._present: dict[Path, dict[str, Mark]] = {}
        self._sessions = Sessions()
        self._clocks: list[Clock] = []

    def refresh(self, clock: Clock, take: Take, tally: Tally) -> str:
        """Read what is new in all files; return what is wrong with them as one line, empty if nothing is."""
        self._clocks = [clock]
        paths = list(self._paths(clock.now))
        errors = self._leave(set(paths), clock, take, tally)
        for path in paths:
            try:
                error = self._refresh(path, clock, take, tally)
            except OSError as wrong:
                error = _told(path, wrong)
            if error:
                errors.append(error)
        if not paths:
            errors.append(f"{self._source.path}: no such file")
        return f"{errors[0]} (and {len(errors) - 1} more)" if len(errors) > 1 else "".join(errors)

    def _leave(self, present: set[Path], clock: Clock, take: Take, tally: Tally) -> list[str]:
        """Let go of files that were renamed, removed, or not touched for long; return what is wrong with them.

        Each is read once more at the next look: whoever writes goes on in it until told to begin the next.
        """
        errors = []
        gone = sorted(self._growing.keys() - present)
        leaving, self._leaving = self._leaving, [self._growing.pop(path) for path in gone]
        for growing, read in [*((one, one.finish) for one in leaving), *((one, one.follow) for one in self._leaving)]:
            try:
                read(clock, take, tally)
            except OSError as wrong:
                errors.append(_told(growing.path, wrong))
        for path in self._whole.keys() - present:
            del self._whole[path]
            self._present.pop(path, None)
        return errors

    def _paths(self, now: float) -> Iterator[Path]:
        path = Path(self._source.path)
        if "*" not in path.name:
            yield path
            return
        found = []
        for one in path.parent.glob(path.name):
            try:
                changed = one.stat().st_mtime
            except OSError:
                continue
            if changed >= now - self._keep:
                found.append((changed, one))
        # The oldest first: sessions begin in one file and end in the next.
        yield from (one for _, one in sorted(found)[-MOST_FILES:])

    def _refresh(self, path: Path, clock: Clock, take: Take, tally: Tally) -> str:
        growing = self._growing.get(path)
        if growing is None:
            reader = reader_of(self._source, self._sessions)
            is_whole = is_document(path) if isinstance(reader, JsonLines) else reader is None
            if is_whole is None and path not in self._whole:
                return ""
            # A log may have been taken for a document while its first line had no end.
            if reader is not None and is_whole is False:
                self._whole.pop(path, None)
                growing = self._growing[path] = GrowingFile(path, reader)
            elif path not in self._whole:
                load = document_of(reader, self._now) if isinstance(reader, JsonLines) else _status_of(self._now)
                self._whole[path] = WatchedFile(path, load, name=self._source.name, kind="identity")
        if growing is not None:
            growing.refresh(clock, take, tally)
            return ""
        watched = self._whole[path]
        if watched.refresh():
            self._took(path, watched, take, tally)
        return watched.reading().error

    def _now(self) -> Clock:
        (clock,) = self._clocks
        return clock

    def _took(self, path: Path, watched: WatchedFile[Marks], take: Take, tally: Tally) -> None:
        """Take in a document that changed; of a status file also who is in it no more."""
        marks = watched.value or ()
        reading = watched.reading()
        tally.skipped += reading.skipped
        known = self._present.get(path, {})
        present = {}
        for place, mark in marks:
            if _is_taken(mark, place, take, tally):
                present[mark.address] = mark
            elif mark.address in known:
                present.setdefault(mark.address, known[mark.address])
        if self._source.format is SignInFormat.OPENVPN_STATUS and reading.dated is not None:
            for address, mark in known.items():
                gone = Mark(address, mark.user, int(reading.dated), ends=True)
                if address not in present and not _is_taken(gone, str(path), take, tally):
                    # The next file may have a time that can be believed.
                    present[address] = mark
            self._present[path] = present


def _told(path: Path, wrong: OSError) -> str:
    return f"{path}: {os.strerror(wrong.errno) if wrong.errno else wrong}"


def _is_taken(mark: Mark, place: str, take: Take, tally: Tally) -> bool:
    """Hand over a mark; return whether it could be used."""
    try:
        take(mark, place)
    except (ValueError, OverflowError) as error:
        tally.skip(place, str(error))
        return False
    return True
