"""What the four rules about the segmentation share: labels, measures and words.

The analysis tells each conversation under one kind only (`breaches`), and each kind has one rule: so one flow
is one alert. A conversation is both its directions; its source is who opened it.
"""

from cluster.model import EXTERNAL, Cluster
from rules.common import conversations, texts
from rules.rule import Measure
from store import schema
from store.influxql import Condition, Query, Select, highest, is_in, total
from store.schema import Breach, Field

LABELS = tuple(tag for tag in schema.BREACH.tags if tag != schema.KIND)
"""Every source, destination, protocol and service is an alert of its own, as far as they are named."""

MACHINE = (schema.SRC, schema.SRC_GROUP)
"""Labels where the source is all there is."""

_NUMBERS = {
    "bytes": total(schema.BYTES),
    "sent": total(schema.TX_BYTES),
    "received": total(schema.RX_BYTES),
    "flows": total(schema.FLOWS),
    "duration": total(schema.DURATION),
    "origins": highest(schema.EVENT_SOURCES),
    "targets": highest(schema.EVENT_DESTINATIONS),
}
"""Measures of every rule: the first is compared with the threshold."""


def measures(
    cluster: Cluster, breach: Breach, *conditions: Condition, first: str = "bytes", labels: tuple[str, ...] = LABELS
) -> tuple[Measure, ...]:
    """Return the sums over the rules' window of the findings of one kind that the conditions let pass.

    Args:
        cluster: how long the window is.
        breach: the kind.
        conditions: on the sums.
        first: the measure that is compared.
        labels: of each alert.
    """
    of_kind = is_in(schema.KIND, [breach.value])
    sums = Select(schema.BREACH, schema.BREACH.kept).take(*_NUMBERS.values()).where(of_kind).by(*labels)

    def of(field: Field) -> Query:
        return Select(sums).take(total(field)).where(*conditions).by(*labels).per_series(f"{field.text}.")

    fields = {name: schema.BREACH.field(column.name) for name, column in _NUMBERS.items()}
    order = [first, *(name for name in fields if name != first)]
    return tuple(Measure(name, of(fields[name]), cluster.thresholds.violation_window) for name in order)


def source(cluster: Cluster) -> str:
    """Return who opened it with the group's name, or how many did."""
    return _party(cluster, schema.SRC, schema.SRC_GROUP, "origins", "sources")


def destination(cluster: Cluster) -> str:
    """Return what was called with the group's name, or how many were."""
    return _party(cluster, schema.DST, schema.DST_GROUP, "targets", "destinations")


def _party(cluster: Cluster, tag: str, group: str, number: str, many: str) -> str:
    return f"{texts.one_or(tag, number, many)} ({_title(cluster, group)})"


def _title(cluster: Cluster, tag: str) -> str:
    titles = texts.group_title(cluster, tag, [*(group.id for group in cluster.groups), EXTERNAL])
    return f'{{{{ if eq $labels.{tag} "{schema.OTHER}" }}}}several groups{{{{ else }}}}{titles}{{{{ end }}}}'


PROTOCOL = (
    f'{{{{ if eq $labels.{schema.PROTO} "{schema.OTHER}" }}}}several{{{{ else }}}}{{{{ $labels.{schema.PROTO} }}}}'
    f'{{{{ if ne $labels.{schema.SERVICE} "{schema.OTHER}" }}}} ({{{{ $labels.{schema.SERVICE} }}}}){{{{ end }}}}'
    f"{{{{ end }}}}"
)
"""The protocol, and the service where the port tells one and it is only one."""

SIZE = (
    f"{texts.bytes_of('bytes')}: {texts.bytes_of('sent')} sent, {texts.bytes_of('received')} received, "
    f"{texts.many('flows', 'flow record')}"
)


def annotations(source: str, destination: str, *, summary: str, what_to_do: str) -> texts.Annotations:
    """Return the annotations of a rule about conversations, from its two parties and its own words."""
    return conversations.annotations(
        source, destination, summary=summary, what_to_do=what_to_do, protocol=PROTOCOL, size=SIZE
    )
