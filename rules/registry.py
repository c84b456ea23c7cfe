"""All rules of a cluster, in the order of the runbook."""

from cluster.model import Cluster
from rules import (
    exfil_volume,
    exporter_silent,
    first_external_contact,
    ingest_deadman,
    node_dropout,
    off_hours_transfer,
)
from rules.model import RuleSet

MODULES = (
    exfil_volume,
    first_external_contact,
    off_hours_transfer,
    node_dropout,
    exporter_silent,
    ingest_deadman,
)
"""Every rule's module; its ID is the rule's id."""

IDS = tuple(module.ID for module in MODULES)


def rules_of(cluster: Cluster) -> RuleSet:
    """Return the rules that cluster.yaml asks for, and what is skipped and why."""
    sets = [module.build(cluster) for module in MODULES]
    return RuleSet(
        tuple(rule for one in sets for rule in one.rules), tuple(entry for one in sets for entry in one.skipped)
    )
