"""Somebody sends datagrams that would kill nfacctd, or one of the collector's daemons died."""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from ingest.collect.trouble_file import DIED, LATELY, REFUSED, UNLISTED
from rules.common import texts
from rules.common.freshness import reading_seconds
from rules.rule import Comparison, Measure, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select, highest, is_in

ID = "collector_attacked"


def build(cluster: Cluster) -> RuleSet:
    """Return the rule; every cluster has it, for each sender and each daemon."""
    # A reading tells of the quarter of an hour before it.
    counts = (
        Select(schema.PIPELINE, schema.RAW)
        .take(highest(schema.VALUE))
        .where(is_in(schema.STAGE, [schema.Stage.COLLECT.value]))
        .by(schema.REASON)
        .per_series("Datagrams refused, or deaths, within the last quarter of an hour.")
    )
    reason, within = f"{{{{ with $labels.{schema.REASON} }}}}", format_duration(LATELY)
    whom = f'{reason}{{{{ reReplaceAll "^({REFUSED}|{DIED}) " "" . }}}}{{{{ end }}}}'
    sender = texts.chosen(schema.REASON, [(f"{REFUSED} {UNLISTED}", "addresses that no exporter has")], whom)

    def by_kind(died: str, refused: str) -> str:
        return f'{reason}{{{{ if match "^{DIED} " . }}}}{died}{{{{ else }}}}{refused}{{{{ end }}}}{{{{ end }}}}'

    datagrams = texts.many("times", "datagram")
    rule = Rule(
        id=ID,
        title="The flow collector is attacked, or dies",
        family="pipeline",
        severity=Severity.CRITICAL,
        measures=(Measure("times", counts, reading_seconds(cluster)),),
        threshold=Threshold("collector_attacks", Comparison.ABOVE, cluster.thresholds.collector_attacks),
        annotations=texts.annotations(
            summary=by_kind(
                f"{whom} of the flow collector died within {within}: {texts.many('times', 'time')}. What it had not "
                "written is lost; it was started again.",
                f"{datagrams} from {sender} within {within} would have killed nfacctd, and blinded all of monitoring: "
                "they were refused.",
            ),
            source=by_kind(whom, sender),
            destination="the flow collector",
            protocol=by_kind("unknown", "NetFlow v9 or IPFIX"),
            size=by_kind(texts.many("times", "death"), datagrams),
            duration=f"within {within}",
            what_to_do=by_kind(
                f"Read the collector's log: daemon_died of {whom} has the signal. -11 or -6: a datagram did it, see "
                "that the guard is on. -9: memory, or somebody.",
                f"Find out whether {sender} sends such templates, or somebody who forges the address: ask the switch "
                "which port they come from, and drop them there.",
            ),
        ),
        panel=panel_ref("pipeline", "readings"),
        group_by=("rule",),
    )
    return RuleSet((rule,), ())
