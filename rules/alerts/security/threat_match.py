"""A conversation with an address that a threat feed lists."""

from collections.abc import Iterable

from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import conversations, texts
from rules.common.visibility import visible_of
from rules.rule import Comparison, Measure, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Column, Query, Select, highest, lowest

ID = "threat_match"

_LABELS = (
    *schema.CONVERSATION, schema.COUNTRY, schema.NETWORK, schema.DIRECTION, schema.FEED, schema.INDICATOR, schema.LATE,
)  # fmt: skip

_SINCE, _KNOWN, _SEEN = (
    texts.moment_of(field.name) for field in (schema.LISTED_SINCE, schema.KNOWN_SINCE, schema.SEEN_AT)
)

_IS_LATE = f'{{{{ if eq $labels.{schema.LATE} "{schema.YES}" }}}}'


def build(cluster: Cluster) -> RuleSet:
    """Return the rule; every cluster has it, and without feeds there is nothing that it could fire on."""
    crossing = [(group.id, outside) for group in cluster.inside_groups() for outside in cluster.outside_ids()]
    seen = visible_of(cluster, ID, (pair for there in crossing for pair in (there, there[::-1])))
    limits = cluster.thresholds
    source = _party(cluster, (schema.SRC, schema.SRC_GROUP), seen.sources(), outside=schema.INWARD)
    destination = _party(cluster, (schema.DST, schema.DST_GROUP), seen.destinations(), outside=schema.OUTWARD)
    which = f'{{{{ if eq $labels.{schema.DIRECTION} "{schema.OUTWARD}" }}}}destination{{{{ else }}}}source{{{{ end }}}}'
    indicator = texts.named(schema.INDICATOR, "many addresses")
    summary = (
        f"{source} sent {texts.bytes_of('bytes')} to {destination} over {conversations.PROTOCOL}. The {which} is known "
        f"bad: the feed {{{{ $labels.{schema.FEED} }}}} lists {indicator} since "
        f"{_SINCE}.{_IS_LATE} Late: sent at {_SEEN}, known to us since {_KNOWN}.{{{{ end }}}}"
    )
    late = f"{_IS_LATE}, sent at {_SEEN}, known to us since {_KNOWN}{{{{ end }}}}"
    what_to_do = (
        "Block the address at the border and keep the machine inside running and untouched. Then find out which "
        "process talked to it, since when, and what else that machine sent."
    )
    matches = Select(schema.THREAT, schema.RAW).where(seen.condition())
    since = limits.threat_window
    rule = Rule(
        id=ID,
        title="Traffic with a known bad address",
        family="security",
        severity=Severity.CRITICAL,
        measures=(
            *conversations.measures(cluster, matches, since, labels=_LABELS),
            *(Measure(column.name, _moment(matches, column), since) for column in _moments()),
        ),
        threshold=Threshold("threat_bytes", Comparison.ABOVE, limits.threat_bytes),
        annotations=conversations.annotations(
            source,
            destination,
            summary=summary,
            more=((schema.FEED, f"{{{{ $labels.{schema.FEED} }}}}, {indicator}, since {_SINCE}{late}"),),
            what_to_do=what_to_do,
        ),
        panel=panel_ref("egress", "known_bad"),
        # Both directions of a conversation, and whoever else talks to it, are one message.
        group_by=("rule", schema.INDICATOR),
    )
    return RuleSet((rule,), seen.skipped)


def _moments() -> tuple[Column, ...]:
    """Return the moments that texts name, as columns called as their fields are."""
    return lowest(schema.LISTED_SINCE), lowest(schema.KNOWN_SINCE), highest(schema.SEEN_AT)


def _moment(matches: Select, column: Column) -> Query:
    return matches.take(column).by(*_LABELS).per_series(f"{schema.THREAT.field(column.name).text}.")


def _party(cluster: Cluster, tags: tuple[str, str], groups: Iterable[str], *, outside: str) -> str:
    """Return one end with its group's name, and its place where it is the outside one: in the direction `outside`."""
    name, group = tags
    address = texts.named(name, "many addresses")
    is_there = f'and (eq $labels.{schema.DIRECTION} "{outside}") (ne $labels.{name} "{schema.OTHER}")'
    return f"{address} ({{{{ if {is_there} }}}}{texts.PLACE}{{{{ end }}}}{texts.group_title(cluster, group, groups)})"
