"""One rail of a node sends far less than its other rails and the job's other nodes say: its link is dead, or unused.

Half of five minutes is a rail that was dead for half of them; all ranks wait for the slowest one. Of `rail_low_bytes`,
20 GB in packets of 4 KB, a switch that samples 1:32768 takes 150: half of them is six standard deviations away
(error of sFlow samples: 196 % / sqrt(samples), sflow.org, Packet Sampling Basics).
"""

from app.units import format_duration
from cluster.model import Cluster
from dashboards.registry import panel_ref
from rules.common import cohorts, texts, verdicts
from rules.common.freshness import final_seconds
from rules.rule import Comparison, Rule, RuleSet, Severity, Threshold
from store import schema
from store.influxql import Select

ID = "rail_low"

_FIELDS = {"missing": schema.RAIL_MISSING, "bytes": schema.RAIL_SENT, "expected": schema.RAIL_EXPECTED}


def build(cluster: Cluster) -> RuleSet:
    """Return the rule, unless flow records see no training group's collectives."""
    seen = cohorts.watched(cluster, ID)
    limits = cluster.thresholds
    rail = f"rail {{{{ $labels.{schema.RAIL} }}}} of {{{{ $labels.{schema.NODE} }}}}"
    window = format_duration(limits.rail_low_window)
    stored = Select(schema.RAIL_LOW, schema.RAW).by(*schema.RAIL_LOW.tags)
    since = final_seconds(cluster)
    rule = Rule(
        id=ID,
        title="Rail of a node is low or dead",
        family="training",
        severity=Severity.WARNING,
        measures=verdicts.measures(stored, _FIELDS, since, "a rail"),
        threshold=Threshold("rail_low", Comparison.ABOVE, limits.rail_low),
        annotations=texts.annotations(
            summary=(
                f"{rail[0].upper()}{rail[1:]} sent {texts.bytes_of('bytes')} within {window}; by its other rails and "
                f"the other nodes of job {cohorts.JOB} it should be {texts.bytes_of('expected')} (alerts when "
                f"more than {limits.rail_low:.0%} is missing)."
            ),
            source=rail,
            destination=f"other nodes of job {cohorts.JOB}",
            protocol="all",
            size=f"{texts.bytes_of('bytes')} of {texts.bytes_of('expected')}",
            duration=window,
            more=((texts.JOB, f"{cohorts.JOB} (class {{{{ $labels.{schema.JOB_CLASS} }}}})"),),
            what_to_do=(
                "Look at the link of that rail: the port's state, its optics and errors on node and leaf, the NIC's "
                "own counters. If the job goes on without the rail, it is slower for all: take the node out or mend it."
            ),
        ),
        panel=panel_ref("training", "rails_low"),
        group_by=("rule", schema.JOB, schema.RAIL),
        is_operational=True,
    )
    return RuleSet((rule,), seen.skipped)
