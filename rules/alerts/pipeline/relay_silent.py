"""A relay says nothing any more: what its collector receives waits in the spool, and reaches no board and no alert."""

from app.units import format_duration
from cluster.model import Cluster, KafkaFormat
from dashboards.registry import panel_ref
from rules.common import texts
from rules.rule import Comparison, Measure, NoDataPolicy, NoRuleError, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Query, Select, beside, compare, count, highest, lowest, newest

ID = "relay_silent"

SILENT_SECONDS = 90
"""It must have been silent for too long all the time: after brokers were away, workers that are back before relays say
how long they have heard nothing."""

_SELDOM = 3
"""Windows between two readings of a worker that works off a backlog; else there is one a window."""
_COUNTED = count(schema.RELAY_AGE, "readings")


def build(cluster: Cluster) -> RuleSet:
    """Return the rule where there may be relays; which there are, they say themselves."""
    kafka = cluster.kafka
    if not kafka.brokers:
        raise NoRuleError(ID, "cluster.yaml names no Kafka brokers")
    if kafka.format is not KafkaFormat.CLUSTERFLOW:
        raise NoRuleError(ID, f"kafka.format is {kafka.format}: there are no relays")
    seldom = _SELDOM * cluster.bridge.window
    since = max(SILENT_SECONDS, _SELDOM * seldom)
    relay = f"{{{{ $labels.{schema.RELAY} }}}}"
    summary = (
        f"Relay {relay} has said nothing for at least {texts.duration_of('age')} (alerts after "
        f"{format_duration(cluster.thresholds.relay_silent)}): what its collector receives waits in the spool, and "
        "everything that only its exporters see is blind, not quiet."
    )
    what_to_do = (
        "On the relay's host: does `clusterflow relay` run, what are the last lines of its log, what says /healthz? "
        "Started again it goes on where it was: nothing is lost while the spool's disk has room. All relays at once? "
        "Then look at the brokers."
    )
    rule = Rule(
        id=ID,
        title="Relay is silent",
        family="pipeline",
        severity=Severity.WARNING,
        measures=(
            Measure("age", _least(since // seldom), since),
            Measure("backlog", _backlog(), since),
        ),
        threshold=Threshold("relay_silent", Comparison.ABOVE, cluster.thresholds.relay_silent),
        annotations=texts.annotations(
            summary=summary,
            source=f"relay {relay}",
            destination=f"Kafka topic {texts.plain(kafka.topic)}",
            protocol="Kafka",
            size=f"{texts.bytes_of('backlog')} waited in its spools when it last spoke",
            duration=f"at least {texts.duration_of('age')}",
            what_to_do=what_to_do,
        ),
        panel=panel_ref("pipeline", "relays"),
        group_by=("rule",),
        is_operational=True,
        # While workers themselves are away nothing is known about relays: keep what was known last.
        no_data=NoDataPolicy.KEEP_LAST,
    )
    return RuleSet((rule,), ())


def _least(readings: int) -> Query:
    """Return the smallest age of each relay in the range; none of one with fewer readings in it than these.

    Where a relay came to another partition, as there are more of them, both know of it: who heard it last is right.
    """
    every = Select(schema.RELAY_STATUS, schema.RAW).take(lowest(schema.RELAY_AGE), _COUNTED)
    enough = compare(_COUNTED, ">=", readings)
    least = Select(every.by(schema.RELAY)).take(lowest(schema.RELAY_AGE)).where(enough).by(schema.RELAY)
    return least.per_series("Seconds since it last said how it is.")


def _backlog() -> Query:
    """Return what waits by each relay's last words, whichever partition heard them."""
    tags = schema.RELAY, schema.SHARD
    said = schema.RELAY_LAST_SEEN, schema.RELAY_BACKLOG
    each = Select(schema.RELAY_STATUS, schema.RAW).take(*map(newest, said)).by(*tags)
    last = Select(each).take(highest(schema.RELAY_LAST_SEEN), beside(schema.RELAY_BACKLOG)).by(schema.RELAY)
    one = Select(last).take(newest(schema.RELAY_BACKLOG)).by(schema.RELAY)
    return one.per_series("Bytes in its spools, as it last said.")
