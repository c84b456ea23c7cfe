"""Sign-ins from records: JSON and CSV of FreeRADIUS, Windows, Entra ID, Okta, and whatever cluster.yaml maps."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from app.csv_rows import separator_of
from cluster.model import SignInColumns
from enrichment.identity.log_times import Clock
from enrichment.identity.signin_lines import RADIUS_ADDRESSES, Mark, radius_marks

Record = Mapping[str, Any]
Meaning = Callable[[Record, Clock], Iterator[Mark]]
"""What a record says."""


def at(record: object, path: str) -> Any:  # noqa: ANN401 - whatever an export has there
    """Return what stands at a dotted path; None if nothing does. A key that has dots itself is found, too."""
    if not isinstance(record, Mapping):
        return None
    if path in record:
        return record[path]
    head, dot, rest = path.partition(".")
    return at(record.get(head), rest) if dot else None


def first(record: Record, *paths: str) -> str:
    """Return the first of several places that holds anything, as text."""
    for path in paths:
        found = at(record, path)
        if isinstance(found, str | int | float) and not isinstance(found, bool) and str(found).strip():
            return str(found).strip()
    return ""


def _needed(record: Record, what: str, *paths: str) -> str:
    found = first(record, *paths)
    if not found:
        raise ValueError(f"no {what}, which is expected in {' or '.join(paths[:3])}")
    return found


# -- FreeRADIUS ------------------------------------------------------------------------------------------


def radius(record: Record, clock: Clock) -> Iterator[Mark]:
    """Read an accounting record: values bare, in a list, or below `value`."""
    names = ("Acct-Status-Type", "User-Name", "Timestamp", "Event-Timestamp", "Acct-Delay-Time", *RADIUS_ADDRESSES)
    attributes = {name: text for name in names if (text := _bare(record.get(name)))}
    yield from radius_marks(attributes, first(record, "@timestamp", "timestamp", "time"), clock)


def _bare(value: object) -> str:
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, list):
        value = value[0] if value else None
    return str(value).strip() if isinstance(value, str | int | float) else ""


# -- Windows ---------------------------------------------------------------------------------------------

LOGON, TICKET = "4624", "4768"
_NO_PERSON = frozenset({"anonymous logon", "system", "local service", "network service", "-"})
_NO_ADDRESS = frozenset({"", "-", "::1", "127.0.0.1", "local"})
_SERVICE_NAMES = re.compile(r"(?:dwm|umfd)-\d+", re.IGNORECASE)
_EVENT_IDS = (
    "winlog.event_id", "event.code", "EventID", "EventId", "event_id", "Id", "System.EventID", "Event.System.EventID",
)  # fmt: skip
_EVENT_TIMES = ("@timestamp", "EventTime", "TimeCreated", "UtcTime", "System.TimeCreated.SystemTime", "Date", "time")
_PLACES = ("winlog.event_data.", "", "EventData.", "Event.EventData.", "event_data.")


def windows(record: Record, clock: Clock) -> Iterator[Mark]:
    """Read events 4624 (logon) and 4768 (Kerberos ticket), as Winlogbeat, NXLog, PowerShell and others write them."""
    event = first(record, *_EVENT_IDS) or first(record, "System.EventID.Value")
    if event not in (LOGON, TICKET):
        return

    def told(name: str) -> str:
        return first(record, *(f"{place}{name}" for place in _PLACES))

    user, address = told("TargetUserName"), told("IpAddress")
    if event == TICKET and told("Status").casefold() not in {"0x0", "0", ""}:
        return
    # Computers sign in as well, by names that end in a dollar; so do the system's own accounts.
    if not user or user.endswith("$") or user.casefold() in _NO_PERSON or _SERVICE_NAMES.fullmatch(user):
        return
    if address.casefold() in _NO_ADDRESS:
        return
    domain = told("TargetDomainName")
    name = f"{domain}\\{user}" if domain and domain != "-" and "@" not in user else user
    yield Mark(address, name, clock.moment(_needed(record, "time", *_EVENT_TIMES)))


# -- Entra ID --------------------------------------------------------------------------------------------

_ENTRA_SUCCESS = frozenset({"0", "success", ""})


def entra(record: Record, clock: Clock) -> Iterator[Mark]:
    """Read a sign-in: of Microsoft Graph, of a diagnostic setting, or a row of the portal's CSV."""
    category = first(record, "category")
    if category and "signin" not in category.casefold():
        return
    record = record["properties"] if isinstance(record.get("properties"), Mapping) else record
    result = first(record, "status.errorCode", "Status", "Sign-in error code", "resultType")
    if result.casefold() not in _ENTRA_SUCCESS:
        return
    user = first(record, "userPrincipalName", "Username", "UserPrincipalName")
    address = first(record, "ipAddress", "IP address", "IPAddress")
    if not user or not address:
        return
    # The portal's times are in UTC and say so in the column's name only.
    zoned = first(record, "Date (UTC)")
    when = f"{zoned.rstrip('Z')}Z" if zoned else _needed(record, "time", "createdDateTime", "CreatedDateTime")
    yield Mark(address, user, clock.moment(when))


# -- Okta ------------------------------------------------------------------------------------------------


def okta(record: Record, clock: Clock) -> Iterator[Mark]:
    """Read an event of the System Log: sessions that start and end, and authentication on the way."""
    kind = first(record, "eventType")
    ends = kind == "user.session.end"
    if kind != "user.session.start" and not ends and not kind.startswith("user.authentication."):
        return
    if first(record, "outcome.result").upper() not in {"SUCCESS", "ALLOW"}:
        return
    user, address = first(record, "actor.alternateId"), first(record, "client.ipAddress")
    if first(record, "actor.type") not in {"User", ""} or not user or not address:
        return
    yield Mark(address, user, clock.moment(_needed(record, "time", "published")), ends=ends)


# -- whatever cluster.yaml maps --------------------------------------------------------------------------


def mapped(columns: SignInColumns, starts: Iterable[str], stops: Iterable[str]) -> Meaning:
    """Return what a record says whose columns cluster.yaml names."""
    beginning, ending = ({word.casefold() for word in words} for words in (starts, stops))

    def meaning(record: Record, clock: Clock) -> Iterator[Mark]:
        event = first(record, columns.event).casefold() if columns.event else ""
        ends = event in ending
        if not ends and beginning and event not in beginning:
            return
        address, when = _needed(record, "address", columns.address), _needed(record, "time", columns.time)
        user = first(record, columns.user)
        if user or ends:
            yield Mark(address, user, clock.moment(when), ends=ends)

    return meaning


# -- the two forms of records ----------------------------------------------------------------------------


_MOST_NESTED = 16
"""Lists and pages within each other: a list of pages of records has three."""


class JsonLines:
    """A record a line, or several: a page of an API is one line, too."""

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning

    def begin(self) -> None:
        """Lines have nothing in common."""

    def read(self, line: str, clock: Clock) -> Iterator[Mark]:
        """Yield what a line says."""
        # Some shippers put the time and a tag before it.
        if not line.strip():
            return
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError("not JSON") from None
        yield from self.marks(found, clock)

    def marks(self, found: object, clock: Clock, depth: int = 0) -> Iterator[Mark]:
        """Yield what a record, or a list of records, says; `depth` is how many lists it stands in."""
        if depth > _MOST_NESTED:
            raise ValueError("nested too deeply")
        if isinstance(found, list):
            for one in found:
                yield from self.marks(one, clock, depth + 1)
        elif isinstance(found, Mapping):
            page = next((found[key] for key in ("value", "records") if isinstance(found.get(key), list)), None)
            yield from self._meaning(found, clock) if page is None else self.marks(page, clock, depth + 1)
        else:
            raise ValueError("no object")  # noqa: TRY004 - what a file says is wrong, not what a caller gave


_MOST_JOINED, _MOST_CHARACTERS = 200, 1_000_000
"""Lines that one row may span, and their length in all."""

_QUOTED = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')


class CsvLines:
    """A record a line below a header; quoted cells may span lines.

    Args:
        meaning: what a record says.
        needed: columns of which the header must have all.
    """

    def __init__(self, meaning: Meaning, needed: Iterable[str]) -> None:
        self._meaning, self._needed = meaning, tuple(needed)
        self.begin()

    def begin(self) -> None:
        """Expect a header."""
        self._header: list[str] | None = None
        self._delimiter = ","
        self._open: list[str] = []

    def read(self, line: str, clock: Clock) -> Iterator[Mark]:
        """Yield what a row says."""
        if not self._open and (not line.strip() or line.startswith("#TYPE")):
            return
        self._open.append(line)
        whole = "\n".join(self._open)
        if _ends_in_quotes(whole, self._delimiter):
            if len(self._open) >= _MOST_JOINED or len(whole) > _MOST_CHARACTERS:
                yield from self._without_first(clock)
            return
        self._open = []
        if self._header is None:
            self._begin_with(whole)
            return
        cells = _cells(whole, self._delimiter)
        if len(cells) < len(self._header):
            raise ValueError(f"{len(cells)} cells: expected {len(self._header)}")
        yield from self._meaning(dict(zip(self._header, cells, strict=False)), clock)

    def _without_first(self, clock: Clock) -> Iterator[Mark]:
        """Yield what the rows say that a quote without an end has joined to the one it stands in."""
        _, *others = self._open
        self._open = []
        for line in others:
            # A line is reported once, and this one for its quote.
            with suppress(ValueError, OverflowError):
                yield from self.read(line, clock)
        raise ValueError(f"a cell that a quote begins {len(others)} lines before does not end")

    def _begin_with(self, line: str) -> None:
        bare = line.lstrip("\ufeff")
        self._delimiter = separator_of(bare)
        self._header = [cell.strip() for cell in _cells(bare, self._delimiter)]
        missing = [name for name in self._needed if name not in self._header]
        if missing:
            raise ValueError(f"its header has no {missing[0]}")


def _ends_in_quotes(text: str, delimiter: str) -> bool:
    """Whether a row goes on in the next line. Only a quote that begins a cell has to have another that ends it."""
    at = 0
    while True:
        if text.startswith('"', at):
            quoted = _QUOTED.match(text, at)
            if quoted is None:
                return True
            at = quoted.end()
        at = text.find(delimiter, at) + 1
        if not at:
            return False


def _cells(text: str, delimiter: str) -> list[str]:
    """Return the cells of a row, which may span lines."""
    try:
        return next(csv.reader(text.splitlines(keepends=True), delimiter=delimiter), [])
    except csv.Error:
        raise ValueError("not CSV") from None
