"""What rules would have done over a stretch of stored data: as they are, with other limits, as they were before."""

import math
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from app.errors import UserError
from cluster.document import Faults, Parser, Scalar
from cluster.load import load_cluster
from cluster.model import Cluster, Thresholds
from cluster.scalars.declared import Key
from cluster.scalars.kinds import Bad, closest
from cluster.sections.thresholds import THRESHOLDS
from rules.evaluate.bounds import Cells, Range
from rules.evaluate.replay import Effort, Replay, Sight
from rules.evaluate.timeline import Firing, Timeline
from rules.grafana.decode import rules_from_text
from rules.grafana.encode import RULES, rule_entry
from rules.registry import rules_of
from rules.rule import Rule, RuleSet
from store.influx import Store

Told = Callable[[str, float], None]
"""Called with what is being done, and the share of it that is done."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is evaluated: where, from when to when (epoch seconds), and when points count as seen."""

    store: Store
    start: int
    end: int
    sight: Sight
    datasource: str = "clusterflow"


@dataclass(frozen=True, slots=True)
class Run:
    """Rules over a stretch.

    Attributes:
        rules: what was evaluated.
        timeline: states and firings; firings in the order of time.
        efforts: what it took, by rule.
        seconds: how long it took.
    """

    rules: tuple[Rule, ...]
    timeline: Timeline
    efforts: dict[str, Effort] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def firings(self) -> list[Firing]:
        """Everything that fired, in the order of time."""
        return self.timeline.firings


class Backtest:
    """Runs rules over one stretch; what one of them learnt about the data serves the next.

    Args:
        stretch: what is evaluated.
        longest: seconds that any rule looks back, at most.
    """

    def __init__(self, stretch: Stretch, longest: int) -> None:
        self.stretch = stretch
        self._cells = Cells(stretch.store, stretch.start - longest, stretch.end)

    def run(self, rules: Sequence[Rule], told: Told = lambda _what, _share: None) -> Run:
        """Evaluate rules.

        Raises:
            StoreError: the store is away.
        """
        stretch = self.stretch
        began = time.monotonic()
        timeline, efforts = Timeline(), {}
        length = max(stretch.end - stretch.start, 1)
        for number, rule in enumerate(rules):

            def tell(now: int, rule: Rule = rule, number: int = number) -> None:
                told(rule.id, (number + min((now - stretch.start) / length, 1.0)) / len(rules))

            tell(stretch.start)
            run = Replay(
                rule,
                stretch.store,
                Range(stretch.start, stretch.end),
                self._cells,
                stretch.sight,
                stretch.datasource,
                tell,
            )
            run.run(timeline)
            efforts[rule.id] = run.effort
        timeline.firings.sort(key=lambda firing: (firing.fired_at, firing.rule, sorted(firing.first.labels.items())))
        return Run(tuple(rules), timeline, efforts, time.monotonic() - began)


def look_back(rules: Iterable[Rule]) -> int:
    """Return the seconds that the rules look back, at most."""
    return max((measure.since for rule in rules for measure in rule.measures), default=0)


def chosen(rules: RuleSet, ids: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules of these ids, or all; UserError for one that the cluster does not have."""
    for rule_id in ids:
        if rule_id not in {rule.id for rule in rules.rules}:
            why = [str(skipped) for skipped in rules.skipped if skipped.id == rule_id]
            hint = "; ".join(why) or closest(rule_id, (rule.id for rule in rules.rules))
            raise UserError(f"--rule {rule_id}: the cluster has no such rule", hint)
    return tuple(rule for rule in rules.rules if not ids or rule.id in ids)


# Sweeps -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of a sweep: rules with the limit at this value.

    Attributes:
        name: key of `thresholds`, or id of a rule.
        text: the value as it was given.
        rules: those that the value changes, or whose own it is.
        is_present: whether this is the value that holds now.
    """

    name: str
    text: str
    rules: tuple[Rule, ...]
    is_present: bool


@dataclass(frozen=True, slots=True)
class Sweep:
    """What there would have been at several values of one limit."""

    name: str
    settings: tuple[Setting, ...]
    runs: tuple[Run, ...]


def settings_of(cluster: Cluster, rules: Sequence[Rule], text: str) -> tuple[Setting, ...]:
    """Return the values of ``exfil_volume=10GB,20GB``, each with its rules.

    Raises:
        UserError: there is no such limit, a value is none, or no rule compares with it.
    """
    name, equals, values = text.partition("=")
    texts = [value.strip() for value in values.split(",") if value.strip()]
    if not equals or not texts:
        raise UserError(f"--sweep {text}", "expected NAME=VALUE,VALUE, such as exfil_volume=10GB,20GB,50GB")
    if name in Thresholds.__dataclass_fields__:
        found = [_with_threshold(cluster, rules, name, value) for value in texts]
        touched = {rule.id for one in found for rule in one if rule not in rules}
        if not touched:
            raise UserError(
                f"--sweep {name}: none of these rules compares with it",
                "where only the analysis uses it: change it, `clusterflow analyze --from --to`, then backtest again",
            )
        present = getattr(cluster.thresholds, name)
        return tuple(
            Setting(name, value, tuple(rule for rule in one if rule.id in touched), _threshold(name, value) == present)
            for value, one in zip(texts, found, strict=True)
        )
    for rule in rules:
        if rule.id == name:
            return tuple(_own(rule, value, text) for value in texts)
    known = [*Thresholds.__dataclass_fields__, *(rule.id for rule in rules)]
    raise UserError(f"--sweep {name}: neither a threshold of cluster.yaml nor a rule", closest(name, known))


def _threshold(name: str, text: str) -> object:
    key: Key = next(key for key in THRESHOLDS.keys if key.name == name)
    try:
        return key.kind.read(Scalar(text), name, Faults("--sweep"))
    except Bad as bad:
        raise UserError(f"--sweep {name}={text}", f"expected {bad.expected or key.kind.expected}") from None


def _with_threshold(cluster: Cluster, rules: Sequence[Rule], name: str, text: str) -> tuple[Rule, ...]:
    changed = replace(cluster.thresholds, **{name: _threshold(name, text)})  # type: ignore[arg-type]
    ids = {rule.id for rule in rules}
    return tuple(rule for rule in rules_of(replace(cluster, thresholds=changed)).rules if rule.id in ids)


def _own(rule: Rule, value: str, text: str) -> Setting:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"--sweep {text}", f"expected numbers: the limit of {rule.id} in its own unit")
    limit = replace(rule.threshold, value=number)
    return Setting(rule.id, value, (replace(rule, threshold=limit),), number == rule.threshold.value)


# What a change would have done --------------------------------------------------------------------


def earlier_rules(name: str, provisioned: Path) -> tuple[Rule, ...]:
    """Return the rules of a file, or those that were generated at a revision.

    Args:
        name: a cluster.yaml, a rules.yaml that `clusterflow build` wrote, or a revision that git knows.
        provisioned: folder of the generated files, as of `clusterflow build --out`; its repository is asked.

    Raises:
        UserError: it is none of them.
    """
    path = Path(name)
    if path.is_file():
        text = path.read_text(encoding="utf-8")
        try:
            content = yaml.load(text, Parser)  # noqa: S506 - a safe loader
        except yaml.YAMLError:
            content = None
        is_rules = isinstance(content, dict) and isinstance(content.get("groups"), list)
        return rules_from_text(text, name) if is_rules else rules_of(load_cluster(path)).rules
    hint = "name a cluster.yaml, a rules.yaml, or a revision; --provisioned names the folder of the generated files"
    if not provisioned.is_dir():
        raise UserError(f"--against {name}: no such file, and no folder {provisioned} to ask git about", hint)
    command = ["git", "-C", str(provisioned), "show", "--end-of-options", f"{name}:./{RULES}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    if shown.returncode:
        said = " ".join(shown.stderr.split()).removeprefix("fatal: ")
        raise UserError(f"--against {name}: neither a file nor a revision with {provisioned / RULES}: {said}", hint)
    return rules_from_text(shown.stdout, f"{name}:{provisioned / RULES}")


@dataclass(frozen=True, slots=True)
class Change:
    """Two versions of the rules: which differ in anything that Grafana would see.

    Attributes:
        changed: ids of rules that both have, and that differ.
        only_before, only_now: ids of rules that the other version lacks.
        earlier: the rules of before that must be evaluated: those that are gone or differ.
    """

    changed: tuple[str, ...]
    only_before: tuple[str, ...]
    only_now: tuple[str, ...]
    earlier: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """What a change of the rules did to the firings.

    Attributes:
        before: where the earlier rules come from.
        change: which rules differ.
        added: firings that there are only now.
        lost: firings that there were only before.
        moved: pairs of before and now that overlap and differ in when they begin or end.
        same: how many are alike.
    """

    before: str
    change: Change
    added: tuple[Firing, ...]
    lost: tuple[Firing, ...]
    moved: tuple[tuple[Firing, Firing], ...]
    same: int

    @property
    def is_empty(self) -> bool:
        """Whether nobody would have been told of anything else."""
        return not (self.added or self.lost)


def change_of(cluster: Cluster, before: Sequence[Rule], now: Sequence[Rule]) -> Change:
    """Return what differs between two versions of the rules."""
    then = {rule.id: rule for rule in before}
    present = {rule.id: rule for rule in now}

    def seen(rule: Rule) -> tuple[object, ...]:
        # How often it is evaluated stands beside the rule, at its group.
        return rule_entry(cluster, rule), rule.interval

    changed = tuple(rule_id for rule_id in present if rule_id in then and seen(then[rule_id]) != seen(present[rule_id]))
    gone = tuple(rule_id for rule_id in then if rule_id not in present)
    fresh = tuple(rule_id for rule_id in present if rule_id not in then)
    return Change(changed, gone, fresh, tuple(rule for rule in before if rule.id in (*changed, *gone)))


def compare(before: str, change: Change, earlier: Run, now: Run) -> Difference:
    """Return what the change did to the firings.

    Args:
        before: where the earlier rules come from.
        change: what differs.
        earlier: of ``change.earlier``, over the same stretch.
        now: of the present rules; those that are alike fired alike before.
    """
    touched = {*change.changed, *change.only_now}
    left = list(earlier.firings)
    added: list[Firing] = []
    moved: list[tuple[Firing, Firing]] = []
    same = 0
    for firing in now.firings:
        if firing.rule not in touched:
            same += 1
            continue
        match = next((one for one in left if _is_same_alert(one, firing) and _overlap(one, firing)), None)
        if match is None:
            added.append(firing)
            continue
        left.remove(match)
        if (match.fired_at, match.ended_at) == (firing.fired_at, firing.ended_at):
            same += 1
        else:
            moved.append((match, firing))
    return Difference(before, change, tuple(added), tuple(left), tuple(moved), same)


def _is_same_alert(one: Firing, other: Firing) -> bool:
    """Whether two firings are of the same rule and series; titles and severities may have changed."""
    ignored = {"alertname", "severity", "rulename"}
    mine, theirs = (
        {name: value for name, value in firing.first.labels.items() if name not in ignored} for firing in (one, other)
    )
    return one.rule == other.rule and mine == theirs


def _overlap(one: Firing, other: Firing) -> bool:
    ends = [float("inf") if firing.ended_at is None else firing.ended_at for firing in (one, other)]
    return one.fired_at <= ends[1] and other.fired_at <= ends[0]
