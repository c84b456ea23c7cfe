"""Alert rules of the site's own: Python files that cluster.yaml names, each with `ID` and `build(cluster)`."""

import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from app.errors import UserError
from app.units import format_duration
from cluster.model import Cluster
from cluster.own_code import EXPECTED, faults_of, load_file
from rules.common.texts import REQUIRED
from rules.grafana.encode import rules_text
from rules.grafana.templates import parse
from rules.rule import Rule, RuleSet, built, labels_of_grafana

_LABEL = re.compile(r"\$labels\.(\w+)")


def own_rules(cluster: Cluster, taken: Sequence[str]) -> list[RuleSet]:
    """Return what the files of `cluster.rules` build, in their order.

    Args:
        cluster: says which files.
        taken: ids of the rules that are shipped.

    Raises:
        UserError: a file cannot be run, or does not give what it should.
    """
    found: list[RuleSet] = []
    ids = list(taken)
    for text in cluster.rules:
        path = Path(text)
        module = load_file(path, "rules")
        rule_id = getattr(module, "ID", None)
        if rule_id != path.stem:
            raise UserError(f"{path}: ID is {rule_id!r}: expected {path.stem!r}, as the file is named", EXPECTED)
        if rule_id in ids:
            raise UserError(f"{path}: ID {rule_id!r}: there is a rule of this id already", "give the file another name")
        ids.append(rule_id)
        found.append(_built(path, module, cluster, rule_id))
    return found


def _built(path: Path, module: ModuleType, cluster: Cluster, rule_id: str) -> RuleSet:
    build = getattr(module, "build", None)
    if not callable(build):
        raise UserError(f"{path}: no function build(cluster)", EXPECTED)
    with faults_of(path):
        rules = built(build, cluster)
        strangers = _ids(rules) - {rule_id} if isinstance(rules, RuleSet) else set()
    if not isinstance(rules, RuleSet):
        raise UserError(f"{path}: build() returned {type(rules).__name__}: expected a RuleSet", EXPECTED)
    if strangers:
        raise UserError(f"{path}: build() returned rules of other ids: {', '.join(sorted(strangers))}")
    if len(rules.rules) > 1:
        raise UserError(f"{path}: build() returned {len(rules.rules)} rules: expected one a file", EXPECTED)
    # What Grafana's file could not hold is told here, where the file is known.
    with faults_of(path):
        rules_text(cluster, rules)
        for rule in rules.rules:
            _check_texts(rule)
            _check_ranges(cluster, rule)
    return rules


def _check_ranges(cluster: Cluster, rule: Rule) -> None:
    """Refuse a rule that looks back further than what it reads is kept."""
    kept = {one.name: one.keep for one in cluster.retentions()}
    for measure in rule.measures:
        read = measure.query.retention
        if measure.since > kept.get(read, measure.since):
            raise UserError(
                f"measure {measure.name} looks {format_duration(measure.since)} back: {read} is kept for "
                f"{format_duration(kept[read])}",
                "read a coarser retention, or look back less",
            )


def _check_texts(rule: Rule) -> None:
    """Refuse texts that alerts would show without what they are about."""
    texts = dict(rule.annotations)
    if missing := [name for name in REQUIRED if not texts.get(name)]:
        raise UserError(f"the rule does not say: {', '.join(missing)}")
    labels = (*rule.measures[0].query.tags, *rule.all_labels(), *labels_of_grafana(rule.title))
    for name, text in texts.items():
        parse(text)
        if unknown := set(_LABEL.findall(text)) - set(labels):
            raise UserError(f"{name}: alerts have no label {min(unknown)!r}; there are {', '.join(labels)}")


def _ids(rules: RuleSet) -> set[str]:
    return {rule.id for rule in rules.rules} | {skipped.id for skipped in rules.skipped}
