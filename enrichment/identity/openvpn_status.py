"""OpenVPN's status file, versions 1 to 3: who is connected when it was written, and since when."""

import csv
from collections.abc import Iterator, Sequence

from enrichment.identity.log_times import Clock
from enrichment.identity.signin_lines import Mark

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
