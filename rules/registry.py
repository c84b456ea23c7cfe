"""All rules of a cluster: those of this package in the order of the runbook, then the site's own."""

from dataclasses import replace
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

from app.errors import UserError
from cluster.model import Cluster
from rules import alerts
from rules.own_rules import own_rules
from rules.rule import Rule, RuleSet, built
from rules.runbook import sections
from store.influxql import logged_late


def _modules() -> dict[str, ModuleType]:
    found = {
        name.rpartition(".")[2]: import_module(name)
        for _, name, is_family in walk_packages(alerts.__path__, f"{alerts.__name__}.")
        if not is_family
    }
    ids = tuple(filter(None, sections()))
    if missing := ", ".join(sorted(found.keys() - set(ids))):
        raise UserError(f"docs/runbook.md: no section {missing}", "each rule of rules/alerts has one")
    if missing := ", ".join(sorted(set(ids) - found.keys())):
        raise UserError(f"rules/alerts: no rule {missing}", "docs/runbook.md has a section of it")
    return {rule_id: found[rule_id] for rule_id in ids}


MODULES = _modules()
"""Every rule's module by its id, in the order of the runbook's sections; named so, in the folder of its family."""

IDS = tuple(MODULES)


def rules_of(cluster: Cluster) -> RuleSet:
    """Return the rules that cluster.yaml asks for, and what is skipped and why.

    A cloud's flow logs are later than exporters' records: its rules are those of exporters, looking so much further
    back. Rules about the pipeline ask what it says of itself, which is never late.
    """
    late = logged_late(cluster)
    early = replace(cluster, bridge=replace(cluster.bridge, lateness=cluster.bridge.lateness - late))
    sets = []
    for module in MODULES.values():
        found = built(module.build, cluster)
        is_pipeline = any(rule.family == "pipeline" for rule in found.rules)
        sets.append(found if is_pipeline else _looking_back(built(module.build, early), late))
    sets += [_looking_back(found, late) for found in own_rules(early, IDS)]
    return RuleSet(
        tuple(rule for one in sets for rule in one.rules), tuple(entry for one in sets for entry in one.skipped)
    )


def _looking_back(found: RuleSet, late: int) -> RuleSet:
    """Return rules that look at what theirs would have looked at so many seconds ago."""

    def moved(rule: Rule) -> Rule:
        measures = (replace(one, since=one.since + late, until=one.until + late) for one in rule.measures)
        return replace(rule, measures=tuple(measures))

    return replace(found, rules=tuple(map(moved, found.rules))) if late else found
