"""The site's calendar: which windows begin in off-hours, daylight saving included."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from cluster.model import Cluster, InferenceHours, OffHours, Site

DAY = 86_400
THURSDAY = 3
"""Weekday, from Monday = 0, of the epoch's first day."""
SATURDAY = 5

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def off_hours_mask(site: Site, window_starts: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which windows begin in the site's off-hours, by the clock on the site's wall at that moment.

    An hour that daylight saving repeats counts both times; one that it skips never comes. Where `start` equals `end`
    only holidays and weekends, if they count, are off-hours.

    Args:
        site: its time zone and off-hours.
        window_starts: seconds since the epoch, any order, shape (n,).

    Returns:
        Shape (n,): True where off-hours.
    """
    local = window_starts + _utc_offsets(site.time_zone, window_starts)
    second = local % DAY
    hours = site.off_hours
    begin, end = _second(hours.start), _second(hours.end)
    after, before = second >= begin, second < end
    mask: npt.NDArray[np.bool_] = after | before if begin > end else after & before
    if hours.weekends:
        mask |= (local // DAY + THURSDAY) % 7 >= SATURDAY
    if hours.holidays:
        mask |= np.isin(local // DAY, [(day - _EPOCH.date()).days for day in hours.holidays])
    return mask


def off_window_mask(
    site: Site, hours: InferenceHours | None, window_starts: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return which windows begin outside the hours at which clients of inference are expected; none without hours.

    Args:
        site: its time zone and holidays.
        hours: `inference.hours` of cluster.yaml.
        window_starts: seconds since the epoch, any order, shape (n,).
    """
    if hours is None:
        return np.zeros(window_starts.shape, np.bool_)
    holidays: tuple[date, ...] = () if hours.weekends else site.off_hours.holidays
    rest = OffHours(hours.end, hours.start, weekends=not hours.weekends, holidays=holidays)
    return off_hours_mask(Site(site.time_zone, rest), window_starts)


def off_hours_words(cluster: Cluster) -> str:
    """Return when off-hours are, for people in whatever time zone."""
    hours, zone = cluster.site.off_hours, cluster.site.time_zone.key
    weekends, holidays = ", weekends too" if hours.weekends else "", ", holidays too" if hours.holidays else ""
    own = ", or hours of its own" if cluster.own_hours() else ""
    return f"{hours.start:%H:%M}-{hours.end:%H:%M} {zone}{weekends}{holidays}{own}"


def hours_words(site: Site, hours: InferenceHours | None) -> str:
    """Return at which hours clients of inference are expected, for people in whatever time zone."""
    if hours is None:
        return "any"
    holidays = " and holidays" if site.off_hours.holidays else ""
    rest = "" if hours.weekends else f", not on weekends{holidays}"
    return f"{hours.start:%H:%M}-{hours.end:%H:%M} {site.time_zone.key}{rest}"


def local_time(zone: ZoneInfo, moments: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return what the clock on the wall shows at each moment, as seconds since 1970-01-01 00:00 on that clock."""
    return moments + _utc_offsets(zone, moments)


def moment_of(zone: ZoneInfo, local: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return when the clock on the wall shows each of these times, in seconds since the epoch.

    Of an hour that daylight saving repeats, the first counts; a time that it skips is taken by the clock before it.
    """
    # Offsets on both sides of whatever transition there may be nearby: the earlier clock's is the right one where both
    # fit (repeated) or neither does (skipped).
    before = local - _utc_offsets(zone, local - DAY)
    after = local - _utc_offsets(zone, local + DAY)
    fits_before = local_time(zone, before) == local
    fits_after = local_time(zone, after) == local
    return np.where(fits_before | ~fits_after, before, after)


def _second(moment: time) -> int:
    return moment.hour * 3_600 + moment.minute * 60 + moment.second


def _utc_offsets(zone: ZoneInfo, moments: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the zone's offset from UTC at each moment, in seconds; the zone is asked about distinct days only."""
    if moments.size == 0:
        return np.zeros(0, np.int64)
    begins: list[int] = []
    offsets: list[int] = []
    for day in np.unique(moments // DAY).tolist():
        first, last = day * DAY, (day + 1) * DAY
        at_first, at_last = _offset(zone, first), _offset(zone, last)
        begins.append(first)
        offsets.append(at_first)
        if at_first != at_last:
            begins.append(_transition(zone, first, last))
            offsets.append(at_last)
    index = np.searchsorted(np.array(begins, np.int64), moments, side="right") - 1
    found: npt.NDArray[np.int64] = np.array(offsets, np.int64)[index]
    return found


def _offset(zone: ZoneInfo, moment: int) -> int:
    offset = (_EPOCH + timedelta(seconds=moment)).astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _transition(zone: ZoneInfo, before: int, after: int) -> int:
    """Return the first second with the offset of `after`, which differs from that of `before`."""
    new = _offset(zone, after)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(zone, middle) == new:
            after = middle
        else:
            before = middle
    return after
