"""The sections `site` and `cost`: where the cluster stands, and what its GPUs cost."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, time
from zoneinfo import ZoneInfo

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import FLAG, ListOf, Number, Table, Whole
from cluster.sections.network.maintenance import MAINTENANCE, Maintenance, build_maintenance


# fmt: off
@record
class OffHours:
    """Daily off-hours in the site's time zone; `start` > `end` wraps around midnight. `end` itself is on-hours."""

    start: time = key(names.TIME_OF_DAY, "When off-hours begin, in `site.time_zone`.", default=time(23, 0), name="from")
    end: time = key(names.TIME_OF_DAY, "When they end; earlier than `from` wraps around midnight.", default=time(6, 0),
        name="to")
    weekends: bool = key(FLAG, "Whether all of Saturday and Sunday, local time, is off-hours too.", default=False)
    holidays: tuple[date, ...] = key(ListOf(names.DATE),
        "Days that are off-hours from midnight to midnight, local time. Inference whose hours leave weekends out rests "
        "on them too.", default=(), example="[2026-12-25, 2026-12-26]")


OFF_HOURS = Section.of(OffHours, "off-hours", text="")


@record
class Site:
    """Where the cluster stands."""

    time_zone: ZoneInfo = key(names.TIME_ZONE,
        "Where the cluster stands: off-hours, job times and notifications follow it, daylight saving too. The store "
        "keeps UTC.",
        default=ZoneInfo("UTC"), absent="`UTC`", example="Europe/Amsterdam")
    off_hours: OffHours = key(OFF_HOURS, "When nobody is expected to move data.", default=OffHours(),
        absent="23:00 to 06:00")
    maintenance: tuple[Maintenance, ...] = key(ListOf(MAINTENANCE),
        "Planned work, once or weekly: who is notified of what meanwhile.", default=())


SITE = Section.of(Site, "site", text="")


@record
class Cost:
    """What alerts and boards multiply idle GPUs with."""

    gpus_per_node: int = key(Whole(1, 1_024), "GPUs of a training node that does not say.", default=8)
    usd_per_gpu_hour: float = key(Number(0, 100_000), "What an idle GPU costs an hour, in USD.", default=30.0)


COST = Section.of(Cost, "cost")
# fmt: on


def build_site(
    table: Table | None, known: Mapping[str, Sequence[str]], faults: Faults, gone: list[str] | None = None
) -> Site:
    """Return the site, and record off-hours that never end and maintenance that cannot be.

    Args:
        table: as read.
        known: names of `groups`, `nodes` and `exporters`.
        faults: told of what is wrong.
        gone: told of nodes that no inventory source knows any more; None: that is wrong.
    """
    planned = (table or {}).get("maintenance") or []
    site: Site = SITE.build({**(table or {}), "maintenance": []})
    check_off_hours(site.off_hours, "site.off_hours", faults)
    return replace(site, maintenance=build_maintenance(planned, site.time_zone, known, faults, gone))


def check_off_hours(hours: OffHours, path: str, faults: Faults) -> None:
    """Record off-hours that never end."""
    if hours.start == hours.end:
        hint = "leave out off_hours for 23:00 to 06:00"
        faults.add(f"{path}.to", f"{hours.end:%H:%M}", "another time than from", hint)
