"""All rules of a cluster: those of this package in the order of the runbook, then the site's own."""

from importlib import import_module

from cluster.model import Cluster
from rules.own_rules import own_rules
from rules.rule import RuleSet

IDS = (
    "exfiltration",
    "exfil_volume",
    "first_external_contact",
    "threat_match",
    "egress_new_asn",
    "off_hours_transfer",
    "inference_unauthorised_source",
    "inference_access_denied",
    "inference_unusual_country",
    "inference_spike",
    "inference_off_window",
    "low_and_slow_24h",
    "low_and_slow_7d",
    "recurring_dependency",
    "segmentation_violation",
    "shadow_node",
    "storage_on_compute_plane",
    "unexpected_management_connection",
    "node_dropout",
    "dropout_digest",
    "cohort_slowdown",
    "job_stalled",
    "checkpoint_missed",
    "incast",
    "exporter_silent",
    "relay_silent",
    "flow_loss",
    "rate_unknown",
    "clock_skewed",
    "ingest_lag",
    "ingest_deadman",
    "analysis_stalled",
    "enrichment_stale",
)
"""Every rule's id, in the order of the runbook; it is the name of its module in `rules.alerts`."""

MODULES = tuple(import_module(f"rules.alerts.{rule_id}") for rule_id in IDS)


def rules_of(cluster: Cluster) -> RuleSet:
    """Return the rules that cluster.yaml asks for, and what is skipped and why."""
    sets = [module.build(cluster) for module in MODULES]
    sets += own_rules(cluster, IDS)
    return RuleSet(
        tuple(rule for one in sets for rule in one.rules), tuple(entry for one in sets for entry in one.skipped)
    )
