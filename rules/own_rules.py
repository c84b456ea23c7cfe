"""Alert rules of the site's own: Python files that cluster.yaml names, each with `ID` and `build(cluster)`."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from app.errors import UserError
from cluster.model import Cluster
from cluster.own_code import EXPECTED, faults_of, load_file
from rules.grafana.encode import rules_text
from rules.rule import RuleSet, built


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
    # What Grafana's file could not hold is told here, where the file is known.
    with faults_of(path):
        rules_text(cluster, rules)
    return rules


def _ids(rules: RuleSet) -> set[str]:
    return {rule.id for rule in rules.rules} | {skipped.id for skipped in rules.skipped}
