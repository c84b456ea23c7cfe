"""A list about addresses is broken, or older than it may be: what boards and alerts say by it may be wrong."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import texts
from rules.rule import Comparison, Measure, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Query, Select, compare, count, highest, lowest, newest
from store.schema import ListState

ID = "enrichment_stale"

_SELDOM = 60
_WINDOWS = 3
"""Seconds, and windows, within which a process that works off a backlog has told of its lists at least once."""
_COUNTED = count(schema.LIST_STATE, "readings")


def build(cluster: Cluster) -> RuleSet:
    """Return the rule; every cluster has it, and without lists there are no readings that it could fire on."""
    wait = cluster.thresholds.list_stale_for
    # It must have been so all the time: a file may be unreadable while it is copied.
    seldom = max(_SELDOM, _WINDOWS * cluster.bridge.window)
    since = max(wait, seldom)
    name = f"{{{{ $labels.{schema.NAME} }}}} ({{{{ $labels.{schema.KIND} }}}})"
    broken = "cannot be used as it stands there; the last good version, if there was one, stays in use"
    stale = f"is {texts.duration_of('age')} old, more than it may be"
    trouble = f"{{{{ if ge .Value {ListState.BROKEN}.0 }}}}{broken}{{{{ else }}}}{stale}{{{{ end }}}}"
    summary = (
        f"The list {name} {texts.number('trouble', trouble, 'is stale or broken')}: names, places, feeds and prefixes "
        "in alerts may be out of date."
    )
    what_to_do = (
        "`clusterflow lists` says what is wrong, in one line. Put a good file in its place: it is taken up within "
        "seconds, without a restart."
    )
    rule = Rule(
        id=ID,
        title="A list is stale or broken",
        family="pipeline",
        severity=Severity.WARNING,
        measures=(
            Measure("trouble", _longest(max(wait // seldom, 1)), since),
            Measure("age", _age(), since),
        ),
        threshold=Threshold("list_stale_for", Comparison.AT_LEAST, ListState.STALE),
        annotations=texts.annotations(
            summary=summary,
            source=f"the list {name}",
            destination="what alerts and boards say of outside addresses",
            protocol="none",
            size="none",
            duration=f"at least {format_duration(wait)}",
            what_to_do=what_to_do,
        ),
        panel=panel_ref("pipeline", "lists"),
        group_by=("rule",),
    )
    return RuleSet((rule,), ())


def _longest(readings: int) -> Query:
    """Return the state that each list had at least in all of so many readings or more; of several bridges the worst."""
    tags = schema.NAME, schema.KIND
    every = Select(schema.ENRICHMENT, schema.RAW).take(lowest(schema.LIST_STATE), _COUNTED)
    # Of a process that just came, a single reading is known.
    enough = compare(_COUNTED, ">=", readings)
    each = Select(every.by(*tags, schema.SHARD)).take(lowest(schema.LIST_STATE)).where(enough).by(*tags, schema.SHARD)
    return Select(each).take(highest(schema.LIST_STATE)).by(*tags).per_series("State of a list.")


def _age() -> Query:
    tags = schema.NAME, schema.KIND
    each = Select(schema.ENRICHMENT, schema.RAW).take(newest(schema.LIST_AGE)).by(*tags, schema.SHARD)
    return Select(each).take(highest(schema.LIST_AGE)).by(*tags).per_series("Age of a list.")
