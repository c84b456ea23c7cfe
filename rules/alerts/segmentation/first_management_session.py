"""A source opens a management service of a group for the first time, though `allowed` and `management` let it."""

from app.units import format_size
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import breaches, conversations, texts
from rules.rule import Comparison, Measure, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, highest, lowest, total

ID = "first_management_session"

SHOWN_SECONDS = 1_800
"""How long the alert stays at least: twice as long as a new opener gets rows."""

_LABELS = schema.NEW_SESSION.tags


def build(cluster: Cluster) -> RuleSet:
    """Return the rule: the analysis writes rows of pairs that may talk alone, and lists of pairs would be long."""
    limits = cluster.thresholds
    source, destination = breaches.source(cluster), breaches.destination(cluster)
    summary = (
        f"{source} opened {breaches.PROTOCOL} to {destination}: {texts.bytes_of('bytes')}. Before "
        f"{texts.moment_of('first_seen')}, no such session from there to that group is known (alerts above "
        f"{format_size(limits.first_session_bytes)}). Whether a login succeeded, flow records do not tell."
    )
    what_to_do = (
        "Ask who works on the source right now: `clusterflow sessions --src` and its name lists what it opened, with "
        "the user where sign-ins are read. If nobody does, look at log-ins of the destination since then, and cut the "
        "source off. If it is work, let it be: it will not be new again."
    )
    rule = Rule(
        id=ID,
        title="First management session of a source",
        family="segmentation",
        severity=Severity.WARNING,
        measures=_measures(Select(schema.NEW_SESSION, schema.NEW_SESSION.kept)),
        threshold=Threshold("first_session_bytes", Comparison.ABOVE, limits.first_session_bytes),
        annotations=conversations.annotations(
            source, destination, summary=summary, what_to_do=what_to_do, protocol=breaches.PROTOCOL
        ),
        panel=panel_ref("sessions", "new"),
        group_by=("rule", schema.DST_GROUP, schema.SERVICE),
    )
    return RuleSet((rule,), ())


def _measures(found: Select) -> tuple[Measure, ...]:
    columns = {
        "bytes": total(schema.BYTES),
        "duration": total(schema.DURATION),
        # They grow from row to row.
        "origins": highest(schema.EVENT_SOURCES),
        "targets": highest(schema.EVENT_DESTINATIONS),
        "first_seen": lowest(schema.CONTACT_FIRST),
    }
    each = found.by(*_LABELS)
    return tuple(
        Measure(name, each.take(column).per_series(f"{name} of a new opener.".capitalize()), SHOWN_SECONDS)
        for name, column in columns.items()
    )
