"""What the three rules about conversations with the outside share: labels, measures and words."""

from cluster.model import Cluster
from dashboards import questions
from rules.common import texts
from rules.common.visibility import VisiblePairs
from rules.rule import Measure
from store import schema
from store.influxql import Select, highest, total, window_seconds

LOCATED = questions.LOCATED
"""Every conversation is an alert of its own, with where the outside address is as far as anybody knows."""

LISTED = questions.LISTED
"""The same where texts name the threat feeds that list it.

A conversation during which a feed begins or ceases to list it is two, each with a part of the bytes. Should neither be
beyond a limit, `threat_match` has told of the listed one.
"""


def measures(
    cluster: Cluster, conversations: Select, since: int, *, labels: tuple[str, ...] = LOCATED, until: int = 0
) -> tuple[Measure, ...]:
    """Return bytes and duration of conversations (a `Select` without columns) over the last `since` seconds.

    The range ends `until` seconds ago: windows that are not stored yet are missing from the sums, so these never exceed
    what was sent.
    Within a window, parts of a conversation (of several bridges, or opened by either side) run at the same time: the
    longest counts.
    """
    each = conversations.by(*labels)
    in_windows = each.take(highest(schema.DURATION)).each(window_seconds(cluster, schema.RAW))
    active = Select(in_windows).take(total(schema.DURATION)).by(*labels)
    return (
        Measure("bytes", each.take(total(schema.BYTES)).per_series("Bytes of the conversation."), since, until),
        Measure("duration", active.per_series("Seconds in which they were sent."), since, until),
    )


def source(cluster: Cluster, seen: VisiblePairs) -> str:
    """Return the source with its group's name."""
    return f"{texts.named(schema.SRC)} ({texts.group_title(cluster, schema.SRC_GROUP, seen.sources())})"


def destination(cluster: Cluster, seen: VisiblePairs, place: str = texts.PLACE) -> str:
    """Return the destination with its place and its group's name, or words where it stands for many.

    Args:
        cluster: titles of groups.
        seen: where it may be.
        place: what is said of a single address.
    """
    address = texts.named(schema.DST, "many smaller destinations")
    where = f'{{{{ if ne $labels.{schema.DST} "{schema.OTHER}" }}}}{place}{{{{ end }}}}'
    return f"{address} ({where}{texts.group_title(cluster, schema.DST_GROUP, seen.destinations())})"


PROTOCOL = (
    f"{{{{ $labels.{schema.PROTO} }}}}"
    f'{{{{ if ne $labels.{schema.SERVICE} "{schema.OTHER}" }}}} ({{{{ $labels.{schema.SERVICE} }}}}){{{{ end }}}}'
)
"""The protocol, and the service where the port tells one."""


def annotations(
    source: str,
    destination: str,
    *,
    summary: str,
    what_to_do: str,
    protocol: str = PROTOCOL,
    size: str = texts.bytes_of("bytes"),
    duration: str = texts.duration_of("duration"),
    more: texts.Annotations = (),
) -> texts.Annotations:
    """Return the annotations of a rule about conversations, from its two parties and its own words."""
    return texts.annotations(
        summary=summary,
        source=source,
        destination=destination,
        protocol=protocol,
        size=size,
        duration=duration,
        what_to_do=what_to_do,
        more=more,
    )
