"""The list `site.maintenance`: planned work, which nobody wants to be called for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, time
from enum import StrEnum
from zoneinfo import ZoneInfo

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import Bad, Choice, ListOf, Placed, Table, Text, closest
from cluster.scalars.ranges import braced
from cluster.sections.jobs import in_utc, named


class Weekday(StrEnum):
    """Days in Grafana's words, from Monday as Python counts them."""

    MONDAY = "monday"
    TUESDAY = "tuesday"
    WEDNESDAY = "wednesday"
    THURSDAY = "thursday"
    FRIDAY = "friday"
    SATURDAY = "saturday"
    SUNDAY = "sunday"


WEEK = tuple(Weekday)


def _moment(text: str) -> datetime | time:
    kind: Text[datetime] | Text[time] = names.INSTANT if "-" in text else names.TIME_OF_DAY
    moment: datetime | time = kind.parse(text)
    if moment.second:
        raise Bad(hint="whole minutes")
    return moment


def _written(moment: datetime | time) -> str:
    return f"{moment:%H:%M}" if isinstance(moment, time) else moment.isoformat(sep=" ", timespec="minutes")


_MOMENT = Text("time", 'a time such as "2026-12-01 22:00", or with `weekdays` "22:00"', _moment, _written)


# fmt: off
@record
class Maintenance:
    """Planned work: alerts about what it touches, or about the whole site where it names nothing, notify nobody.

    The history says so. Rules about security are never muted.

    Attributes:
        start, end: aware, in UTC; with `weekdays` times of day at the site. `end` itself is over.
    """

    start: datetime | time = key(_MOMENT, "When it begins, in the site's time zone unless an offset is given.",
        name="from", example='"2026-12-01 22:00"')
    end: datetime | time = key(_MOMENT, "When it is over. With `weekdays` a time that is not later than `from` is the "
        "next day's.", name="to", example='"2026-12-02 04:00"')
    why: str = key(names.LINE, "What is done: the history of alerts says it.", example='"rack 3 power"')
    weekdays: tuple[Weekday, ...] = key(ListOf(Choice(WEEK)), "The days on which it begins, every week.", default=(),
        absent="once", example="[sunday]")
    groups: tuple[str, ...] = key(ListOf(names.GROUP_ID), "Groups that it touches, with their nodes. Alerts about "
        "whole jobs are muted where it names every training group.", default=())
    nodes: tuple[str, ...] = key(ListOf(names.NODES), "Nodes that it touches.", default=(), example='["gpu-[01-08]"]')
    exporters: tuple[str, ...] = key(ListOf(names.NODES), "Exporters that it touches.", default=(),
        example='["leaf-[1-4]"]')
    # fmt: on

    @property
    def is_everywhere(self) -> bool:
        """Whether it touches the whole site."""
        return not (self.groups or self.nodes or self.exporters)

    def lasts_at(self, moment: float, zone: ZoneInfo) -> bool:
        """Whether an epoch second is within it."""
        if isinstance(self.start, datetime) and isinstance(self.end, datetime):
            return self.start.timestamp() <= moment < self.end.timestamp()
        local = datetime.fromtimestamp(moment, zone)
        clock = f"{local:%H:%M}"
        return any(local.weekday() == day and first <= clock < last for day, first, last in self.stretches())

    def stretches(self) -> list[tuple[int, str, str]]:
        """Return what it takes of each day of a week: weekday, begin and end by the clock; the end may be 24:00."""
        first, last = f"{self.start:%H:%M}", f"{self.end:%H:%M}"
        found = []
        for day in map(WEEK.index, self.weekdays):
            if first < last:
                found.append((day, first, last))
            else:
                found += [(day, first, "24:00"), *([((day + 1) % 7, "00:00", last)] if last > "00:00" else [])]
        return found


MAINTENANCE = Section.of(Maintenance, "maintenance window")


def build_maintenance(
    tables: Sequence[Placed[Table]],
    zone: ZoneInfo,
    known: Mapping[str, Sequence[str]],
    faults: Faults,
    gone: list[str] | None = None,
) -> tuple[Maintenance, ...]:
    """Return the windows, their names resolved, and record times that cannot be and names that nothing has.

    Args:
        tables: as read.
        zone: the site's.
        known: names of `groups`, `nodes` and `exporters`.
        faults: told of what is wrong.
        gone: told of nodes that no inventory source knows any more, as of `named`.
    """
    found = []
    for placed in tables:
        path, table = placed.path, placed.value
        for group in table.get("groups") or []:
            if group.value not in known["groups"]:
                hint = closest(group.value, known["groups"])
                faults.add(group.path, group.value, "a group of this file", hint)
        made: Table = {
            what: named(
                [Placed(one.path, braced(one.value)) for one in table.get(what) or []],
                tuple(known[what]), faults, one_of_them, may_go,
            )
            for what, one_of_them, may_go in (
                ("nodes", "a node of the inventory", gone), ("exporters", "an exporter of this file", None),
            )
        }  # fmt: skip
        window: Maintenance | None = MAINTENANCE.build(
            {name: value for name, value in table.items() if name not in made}, made=made
        )
        checked = None if window is None else _checked(window, path, zone, faults)
        # Without its nodes, where these are gone, it would be everywhere.
        if checked is not None and not (table.get("nodes") and checked.is_everywhere):
            found.append(checked)
    return tuple(found)


def _checked(window: Maintenance, path: str, zone: ZoneInfo, faults: Faults) -> Maintenance | None:
    """Return a window with its times in UTC; None where they cannot be."""
    start, end = window.start, window.end
    for name, moment in (("from", start), ("to", end)):
        if isinstance(moment, datetime) == bool(window.weekdays):
            expected = 'a time of day such as "22:00"' if window.weekdays else 'a date and time: "2026-12-01 22:00"'
            hint = "every week on `weekdays`" if window.weekdays else "weekly? Add `weekdays`, such as [sunday]"
            faults.add(f"{path}.{name}", _written(moment), expected, hint)
            return None
    if isinstance(start, datetime) and isinstance(end, datetime):
        first, last = in_utc(start, zone, f"{path}.from", faults), in_utc(end, zone, f"{path}.to", faults)
        if first is None or last is None:
            return None
        if last <= first:
            faults.add(f"{path}.to", f"{end:%Y-%m-%d %H:%M}", "a time after from", "it ends before it begins")
        return replace(window, start=first, end=last)
    if start == end != time():
        faults.add(f"{path}.to", f"{end:%H:%M}", "another time than from", 'a whole day is "00:00" to "00:00"')
    return window
