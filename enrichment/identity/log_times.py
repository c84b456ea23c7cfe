"""Times as logs write them: with a year or without, with an offset or in local time."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,]\d+)?"
_HEAD = re.compile(
    r"(?:<\d{1,3}>(?:1 )?)?\s*(?:"
    rf"(?P<iso>\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
    rf"|(?:[A-Z][a-z]{{2}} )?(?P<month>[A-Z][a-z]{{2}}) +(?P<day>\d{{1,2}}) (?:(?P<year>\d{{4}}) )?{_CLOCK}"
    r"(?: (?P<late_year>\d{4})\b)?(?: (?P<utc>UTC|GMT|Z)\b)?"
    r")(?: us=\d+)?"
)
"""How a line of a log begins: ISO 8601 (RFC 5424, OpenVPN), or month and day (RFC 3164, Cisco, ctime)."""

_EPOCH = re.compile(r"\d{9,11}(?:\.\d+)?|\d{12,14}")
_DOTNET = re.compile(r"/Date\((\d+)\)/")
"""How Windows PowerShell's ConvertTo-Json writes a time: milliseconds."""

_ABBREVIATION = re.compile(r" (?!UTC|GMT)[A-Z]{3,5}$")
"""The name of a time zone behind a time, of which there are several for each: the source's own zone counts."""

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Clock:
    """Reads times.

    Attributes:
        zone: of times without an offset.
        now: epoch seconds: the year of a time that names none.
    """

    zone: ZoneInfo
    now: float

    def head(self, line: str) -> tuple[int, str]:
        """Return the time with which a line begins, epoch seconds, and the rest of the line.

        Raises:
            ValueError: the line begins with none.
        """
        match = _HEAD.match(line)
        if match is None:
            raise ValueError("no time at its beginning")
        rest = line[match.end() :]
        if match["iso"]:
            return self.moment(match["iso"]), rest
        year = match["year"] or match["late_year"]
        zone = UTC if match["utc"] else self.zone
        return self._dated(match, int(year) if year else None, zone), rest

    def moment(self, value: object) -> int:
        """Return a time in epoch seconds: ISO 8601, ctime, seconds or milliseconds since 1970.

        Raises:
            ValueError: it is none.
        """
        text = str(value).strip()
        if _EPOCH.fullmatch(text):
            number = float(text)
            return int(number / _MILLI if number >= 1e11 else number)
        dotnet = _DOTNET.fullmatch(text)
        if dotnet:
            return int(dotnet[1]) // _MILLI
        try:
            found = datetime.fromisoformat(text.replace(",", "."))
        except ValueError:
            text = _ABBREVIATION.sub("", text)
            match = _HEAD.fullmatch(text)
            if match is None or not match["month"]:
                raise ValueError("a time that cannot be read") from None
            return self.head(text)[0]
        return int((found if found.tzinfo else found.replace(tzinfo=self.zone)).timestamp())

    def _dated(self, match: re.Match[str], year: int | None, zone: ZoneInfo | object) -> int:
        month = match["month"].lower()
        if month not in _MONTHS:
            raise ValueError("no time at its beginning")
        # Of a line without a year: a day ahead is a clock that is wrong, half a year ahead is last year's.
        latest = datetime.fromtimestamp(self.now, self.zone) + timedelta(days=2)
        clock = [int(match[part]) for part in ("hour", "minute", "second")]
        found = datetime(
            year or latest.year, _MONTHS.index(month) + 1, int(match["day"]), *clock, tzinfo=zone  # type: ignore[arg-type,misc]
        )  # fmt: skip
        if year is None and found > latest:
            found = found.replace(year=found.year - 1)
        return int(found.timestamp())
