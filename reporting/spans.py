"""The period of a report: as people write it, and cut into bins of the site's local time."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from analysis.audit import Period

_HOUR, _DAY = 3600, 86_400
_FINE_UP_TO, _FINE = 6 * _HOUR, 300
_HOURS_UP_TO = 14 * _DAY


@dataclass(frozen=True, slots=True)
class Bins:
    """A period in parts.

    Attributes:
        starts: of the parts, epoch seconds; the first is the period's.
        stop: end of the last one.
    """

    starts: tuple[int, ...]
    stop: int

    def place(self, moment: int) -> int:
        """Return in which part a moment lies; what lies just before the first counts to it."""
        return max(bisect_right(self.starts, moment) - 1, 0)

    def folded(self, values: Iterable[tuple[int, str, float]]) -> dict[str, list[float]]:
        """Return for each name the sums of the parts; values are (moment, name, number)."""
        found: dict[str, list[float]] = defaultdict(lambda: [0] * len(self.starts))
        for moment, name, number in values:
            found[name][self.place(moment)] += number
        return dict(found)


def days_of(period: Period, zone: ZoneInfo) -> Bins:
    """Return a period's days by the site's clock; the first and the last may be parts of days."""
    day = datetime.fromtimestamp(period.start, zone).date() + timedelta(days=1)
    starts = [period.start]
    while (midnight := int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp())) < period.stop:
        starts.append(midnight)
        day += timedelta(days=1)
    return Bins(tuple(starts), period.stop)


def bins_of(period: Period, zone: ZoneInfo) -> Bins:
    """Return the bins of charts: five minutes, hours or days, by the period's length."""
    length = period.stop - period.start
    if length > _HOURS_UP_TO:
        return days_of(period, zone)
    # Of what is kept by the hour, no bin is shorter: an hour's bytes would stand in five minutes.
    step = max(_FINE, period.window) if length <= _FINE_UP_TO else _HOUR
    first = (period.start // step + 1) * step
    return Bins((period.start, *range(first, period.stop, step)), period.stop)


def asked_seconds(period: Period, zone: ZoneInfo) -> int:
    """Return the length of bins to ask the store for: each lies in one bin, and in one day, of the site's."""
    if period.stop - period.start <= _FINE_UP_TO:
        return max(_FINE, period.window)
    ends = (datetime.fromtimestamp(moment, zone) for moment in (period.start, period.stop))
    # Some zones are half an hour off, or a quarter, one only in winter; where only hours are kept, their days are that
    # much off, too.
    fits_hours = all((end.utcoffset() or timedelta()).total_seconds() % _HOUR == 0 for end in ends)
    return _HOUR if fits_hours else max(900, period.window)
