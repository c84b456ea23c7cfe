"""What the rules about incidents share: many ends and conversations are one alert, whose text names the largest."""

from collections.abc import Iterable

from cluster.model import Cluster, Group
from rules.common import texts, verdicts
from rules.rule import Measure
from store import schema
from store.influxql import Condition, Select, compare
from store.schema import Field, Measurement

_SINCE = 900
"""Three rows of an incident: one may be late."""

_FIELDS: dict[str, Field] = {
    "bytes": schema.EVENT_BYTES,
    "duration": schema.EVENT_SECONDS,
    "sources": schema.EVENT_SOURCES,
    "destinations": schema.EVENT_DESTINATIONS,
    "others": schema.OTHER_TALKS,
}

PROTOCOL = f"{{{{ $labels.{schema.PROTO} }}}} ({{{{ $labels.{schema.SERVICE} }}}})"

_OTHERS = texts.number("others", '{{ if gt .Value 0.0 }} and {{ printf "%.0f" .Value }} others{{ end }}', "")
LARGEST = f"Largest when it began: {{{{ $labels.{schema.LARGEST} }}}}{_OTHERS}."


def measures(incident: Measurement, *conditions: Condition, **more: Field) -> tuple[Measure, ...]:
    """Return the numbers of the incidents that the conditions let pass; rows that were taken back are none."""
    stored = Select(incident, incident.kept).where(compare(schema.LEAK_UNTIL, ">", 0), *conditions).by(*incident.tags)
    return verdicts.measures(stored, {**_FIELDS, **more}, _SINCE, "an incident")


def source(cluster: Cluster, groups: Iterable[Group]) -> str:
    """Return who sent most with the group's name and whether others did, too, or how many did."""
    group = texts.group_title(cluster, schema.SRC_GROUP, (one.id for one in groups))
    return f"{_most(schema.SRC, 'sources')} ({group})"


def destination(cluster: Cluster, groups: Iterable[str]) -> str:
    """Return who got most with place and the group's name and whether others did, too, or how many did."""
    group = texts.group_title(cluster, schema.DST_GROUP, groups)
    return f"{_most(schema.DST, 'destinations')} ({texts.PLACE}{group})"


def _most(tag: str, ends: str) -> str:
    """Return the end that has most of the bytes, and whether others have some, or how many ends there are."""
    more = texts.number(ends, "{{ if gt .Value 1.0 }} and others{{ end }}", "")
    return f'{texts.one_or(tag, ends, ends)}{{{{ if ne $labels.{tag} "{schema.OTHER}" }}}}{more}{{{{ end }}}}'
