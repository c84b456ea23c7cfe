"""Values as people read them: every number with its unit, times by the site's clock, names made safe to print."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from app.words import amount, lasting
from cluster.model import UNLISTED, Cluster
from dashboards.palette import group_titles
from reporting.content import Kind, Value, Word

_LONGEST = 160
"""Characters of a name that are shown: JSON has all of it."""


@dataclass(frozen=True, slots=True)
class Wording:
    """Writes values for people.

    Attributes:
        zone: of the site.
        titles: names of groups by their ids.
    """

    zone: ZoneInfo
    titles: Mapping[str, str]

    @classmethod
    def of(cls, cluster: Cluster) -> "Wording":
        """Return the wording of a cluster's reports."""
        return cls(cluster.site.time_zone, {**group_titles(cluster), UNLISTED: cluster.title(UNLISTED)})

    def shown(self, value: Value, kind: Kind) -> str:
        """Return a value with its unit; nothing where it is not known."""
        if value is None:
            return ""
        if isinstance(value, Word):
            return plain(value.text)
        if isinstance(value, str):
            return plain(self.title(value) if kind is Kind.GROUP else value)
        return self.moment(value) if kind is Kind.MOMENT else _NUMBERS.get(kind, _number)(value)

    def title(self, group: str) -> str:
        """Return a group's name for people; its id where cluster.yaml knows it no more."""
        return self.titles.get(group, group)

    def moment(self, seconds: float) -> str:
        """Return epoch seconds by the site's clock: ``2026-03-01 14:05``, with seconds where there are any."""
        at = datetime.fromtimestamp(int(seconds), self.zone)
        return at.strftime("%Y-%m-%d %H:%M:%S" if at.second else "%Y-%m-%d %H:%M")


def plain(text: str) -> str:
    """Return a name of others without what would change how the text around it reads, cut where it is very long."""
    # Marks that turn the direction of writing, or that are not seen, would make one name look like another.
    visible = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text[:_LONGEST])
    return visible if len(text) <= _LONGEST else f"{visible}…"


def percent(number: float) -> str:
    """Return a share of 1 in percent, never rounded up to all: ``99.96%``."""
    return f"{number:.1%}" if number < 0.999 or number == 1 else f"{int(number * 10_000) / 100:.2f}%"


def usd(number: float) -> str:
    """Return dollars: ``1,234 USD``."""
    return f"{number:,.0f} USD" if abs(number) >= 100 else f"{number:,.2f} USD"


def _number(number: float) -> str:
    # Whole numbers to their last digit: a ticket quotes bytes.
    return f"{number:,}" if isinstance(number, int) else f"{number:,.10g}"


def _gpu_hours(number: float) -> str:
    return f"{number:,.1f} GPU-h"


_NUMBERS: Mapping[Kind, Callable[[float], str]] = {
    Kind.BYTES: amount,
    Kind.SECONDS: lasting,
    Kind.USD: usd,
    Kind.GPU_HOURS: _gpu_hours,
    Kind.SHARE: percent,
}


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 conversation``, ``1,204 conversations``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
