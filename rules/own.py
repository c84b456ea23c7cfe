"""Alert rules of the site's own: Python files that cluster.yaml names, each with `ID` and `build(cluster)`.

They are code, and are run with the rights of whoever runs the command. So nothing is looked for: only a file that
cluster.yaml names itself is run, and none that everybody on the machine may change.
"""

import importlib.util
import stat
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from cluster.errors import ClusterflowError, UserError
from cluster.model import Cluster
from rules.model import RuleSet

EXPECTED = "docs/own-rules.md shows one to start from"


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
        module = _module(path)
        rule_id = getattr(module, "ID", None)
        if rule_id != path.stem:
            raise UserError(f"{path}: ID is {rule_id!r}: expected {path.stem!r}, as the file is named", EXPECTED)
        if rule_id in ids:
            raise UserError(f"{path}: ID {rule_id!r}: there is a rule of this id already", "give the file another name")
        ids.append(rule_id)
        found.append(_built(path, module, cluster, rule_id))
    return found


def _module(path: Path) -> ModuleType:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "cluster.yaml names it under rules") from None
    if mode & stat.S_IWOTH:
        raise UserError(f"{path}: everybody may change this file, and it is run as code", f"chmod o-w {path}")
    spec = importlib.util.spec_from_file_location(f"own_rule_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: expected a Python file (.py)", EXPECTED)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _failure(path, error) from error
    return module


def _built(path: Path, module: ModuleType, cluster: Cluster, rule_id: str) -> RuleSet:
    build = getattr(module, "build", None)
    if not callable(build):
        raise UserError(f"{path}: no function build(cluster)", EXPECTED)
    try:
        rules = build(cluster)
    except ClusterflowError:
        raise
    except Exception as error:
        raise _failure(path, error) from error
    if not isinstance(rules, RuleSet):
        raise UserError(f"{path}: build() returned {type(rules).__name__}: expected a RuleSet", EXPECTED)
    strangers = {rule.id for rule in rules.rules} | {skipped.id for skipped in rules.skipped}
    if strangers - {rule_id}:
        raise UserError(f"{path}: build() returned rules of other ids: {', '.join(sorted(strangers - {rule_id}))}")
    return rules


def _failure(path: Path, error: Exception) -> UserError:
    """Return the user's own mistake as one line, with the line of the file where it happened."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = lines[-1] if lines else getattr(error, "lineno", None)
    where = f"{path}:{line}" if line else str(path)
    return UserError(f"{where}: {type(error).__name__}: {' '.join(str(error).split())}", EXPECTED)
