"""All rules of a cluster: those of this package in the order of the runbook, then the site's own."""

from importlib import import_module
from pkgutil import iter_modules

from cluster.model import Cluster
from rules import alerts
from rules.own_rules import own_rules
from rules.rule import RuleSet, built
from rules.runbook import sections


def _ids() -> tuple[str, ...]:
    ids = tuple(filter(None, sections()))
    modules = {module.name for module in iter_modules(alerts.__path__)}
    apart = sorted(modules ^ set(ids))
    if apart:
        raise RuntimeError(f"{', '.join(apart)}: a rule is a module of rules/alerts and a section of docs/runbook.md")
    return ids


IDS = _ids()
"""Every rule's id, in the order of the runbook's sections; it is the name of its module in `rules.alerts`."""

MODULES = tuple(import_module(f"rules.alerts.{rule_id}") for rule_id in IDS)


def rules_of(cluster: Cluster) -> RuleSet:
    """Return the rules that cluster.yaml asks for, and what is skipped and why."""
    sets = [built(module.build, cluster) for module in MODULES]
    sets += own_rules(cluster, IDS)
    return RuleSet(
        tuple(rule for one in sets for rule in one.rules), tuple(entry for one in sets for entry in one.skipped)
    )
