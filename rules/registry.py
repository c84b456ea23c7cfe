"""All rules of a cluster: those of this package in the order of the runbook, then the site's own."""

from cluster.model import Cluster
from rules import (
    analysis_stalled,
    checkpoint_missed,
    cohort_slowdown,
    dropout_digest,
    egress_new_asn,
    enrichment_stale,
    exfil_volume,
    exporter_silent,
    first_external_contact,
    flow_loss,
    incast,
    inference_access_denied,
    inference_off_window,
    inference_spike,
    inference_unauthorised_source,
    inference_unusual_country,
    ingest_deadman,
    ingest_lag,
    job_stalled,
    low_and_slow_7d,
    low_and_slow_24h,
    node_dropout,
    off_hours_transfer,
    recurring_dependency,
    relay_silent,
    segmentation_violation,
    shadow_node,
    storage_on_compute_plane,
    threat_match,
    unexpected_management_connection,
)
from rules.model import RuleSet
from rules.own import own_rules

MODULES = (
    exfil_volume,
    first_external_contact,
    threat_match,
    egress_new_asn,
    off_hours_transfer,
    inference_unauthorised_source,
    inference_access_denied,
    inference_unusual_country,
    inference_spike,
    inference_off_window,
    low_and_slow_24h,
    low_and_slow_7d,
    recurring_dependency,
    segmentation_violation,
    shadow_node,
    storage_on_compute_plane,
    unexpected_management_connection,
    node_dropout,
    dropout_digest,
    cohort_slowdown,
    job_stalled,
    checkpoint_missed,
    incast,
    exporter_silent,
    relay_silent,
    flow_loss,
    ingest_lag,
    ingest_deadman,
    analysis_stalled,
    enrichment_stale,
)
"""Every rule's module; its ID is the rule's id."""

IDS = tuple(module.ID for module in MODULES)


def rules_of(cluster: Cluster) -> RuleSet:
    """Return the rules that cluster.yaml asks for, and what is skipped and why."""
    sets = [module.build(cluster) for module in MODULES]
    sets += own_rules(cluster, IDS)
    return RuleSet(
        tuple(rule for one in sets for rule in one.rules), tuple(entry for one in sets for entry in one.skipped)
    )
