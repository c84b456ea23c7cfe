"""What the rules about clients of inference share: who is watched, their words, and that one flow is one alert.

A client that may not ask at all is `inference_unauthorised_source`, at whatever time; `inference_access_denied` looks
at the others that `inference.access` does not list, `inference_off_window` at the rest only. Conversations with
inference nodes that break the segmentation belong to these rules and to no other.
"""

from collections.abc import Iterable

from analysis.detectors.inference.asked import delay_of
from cluster.model import Cluster, Role
from dashboards import questions
from rules.common import conversations, texts
from rules.common.visibility import VisiblePairs, visible_of
from rules.rule import Measure, NoRuleError
from store import schema
from store.influxql import Condition, Select, is_in
from store.schema import AccessBreach

KNOWN_LABELS = (*conversations.LOCATED, schema.USER, schema.KIND)
"""Labels of alerts that know the user, and by what the list does not name the client."""


def watched(cluster: Cluster, rule_id: str, *, may: bool) -> VisiblePairs:
    """Return the pairs of client and inference group that may talk, or may not; why there are none."""
    if not cluster.groups_with(Role.INFERENCE):
        raise NoRuleError(rule_id, "no group has the role inference")
    # A group's own nodes are no clients.
    pairs = [(src, dst) for src, dst in questions.inference_pairs(cluster, may=may) if src != dst]
    if not pairs:
        raise NoRuleError(rule_id, f"{'no' if may else 'every'} group may reach inference nodes")
    return visible_of(cluster, rule_id, pairs)


def measures(cluster: Cluster, seen: VisiblePairs, *conditions: Condition) -> tuple[Measure, ...]:
    """Return bytes and duration of the conversations that clients of these pairs opened."""
    asked = Select(schema.INFERENCE, schema.RAW).where(seen.condition(), *conditions)
    return conversations.measures(cluster, asked, cluster.thresholds.inference_window)


def unlisted(cluster: Cluster, seen: VisiblePairs, kinds: Iterable[AccessBreach]) -> tuple[Measure, ...]:
    """Return bytes and duration of the conversations of these pairs that the list does not name, by these kinds.

    The range ends where the analysis has judged: it waits for exports of sign-ins.
    """
    of_kinds = is_in(schema.KIND, [kind.value for kind in kinds])
    asked = Select(schema.ACCESS_BREACH, schema.ACCESS_BREACH.kept).where(seen.condition(), of_kinds)
    return judged(cluster, asked, labels=KNOWN_LABELS)


def judged(cluster: Cluster, asked: Select, *, labels: tuple[str, ...]) -> tuple[Measure, ...]:
    """Return bytes and duration of conversations that the analysis has judged once their sign-ins were there."""
    delay, window = delay_of(cluster), cluster.thresholds.inference_window
    return conversations.measures(cluster, asked, window + delay, labels=labels, until=delay)


def known_client(cluster: Cluster, seen: VisiblePairs) -> str:
    """Return the client as `client` does, behind its user where one is known."""
    user = f"{{{{ $labels.{schema.USER} }}}}"
    unknown = f'eq $labels.{schema.USER} "{schema.UNKNOWN_USER}"'
    return f"{{{{ if {unknown} }}}}an unknown user{{{{ else }}}}{user}{{{{ end }}}} at {client(cluster, seen)}"


def client(cluster: Cluster, seen: VisiblePairs) -> str:
    """Return the client with its place and its group's name, or words where it stands for many."""
    address = texts.named(schema.SRC, "many smaller clients")
    where = f'{{{{ if ne $labels.{schema.SRC} "{schema.OTHER}" }}}}{texts.PLACE}{{{{ end }}}}'
    return f"{address} ({where}{texts.group_title(cluster, schema.SRC_GROUP, seen.sources())})"


def server(cluster: Cluster, seen: VisiblePairs) -> str:
    """Return the inference node with its group's name."""
    return f"{texts.named(schema.DST)} ({server_group(cluster, seen)})"


def server_group(cluster: Cluster, seen: VisiblePairs) -> str:
    """Return the inference node's group by its name."""
    return texts.group_title(cluster, schema.DST_GROUP, seen.destinations())


def has_hours(cluster: Cluster) -> bool:
    """Return whether anybody is expected at certain hours only."""
    inference = cluster.inference
    return inference.hours is not None or any(entry.hours is not None for entry in inference.access)
