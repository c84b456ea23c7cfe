"""All rules of a cluster: those of this package in the order of the runbook, then the site's own."""

from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules

from cluster.model import Cluster
from rules import alerts
from rules.own_rules import own_rules
from rules.rule import Rule, RuleSet, built
from rules.runbook import sections
from store.influxql import logged_late


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
    """Return the rules that cluster.yaml asks for, and what is skipped and why.

    A cloud's flow logs are later than exporters' records: its rules are those of exporters, looking so much further
    back. Rules about the pipeline ask what it says of itself, which is never late.
    """
    late = logged_late(cluster)
    early = replace(cluster, bridge=replace(cluster.bridge, lateness=cluster.bridge.lateness - late))
    sets = []
    for module in MODULES:
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
