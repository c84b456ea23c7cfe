"""What an alert rule is: data that ``encode`` writes for Grafana and ``evaluator`` runs by itself.

One id is a rule's module, Grafana uid, runbook anchor and test file. Texts are Go templates as Grafana renders them,
but name values by what they are (``$values.bytes.Value``); `Rule.template` gives the text with Grafana's letters.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from app.words import some
from cluster.model import Cluster, Thresholds
from dashboards.registry import FOLDER, PanelRef
from store.influxql import Query

INTERVAL_SECONDS = 10
"""How often rules are evaluated; Grafana's smallest (``[unified_alerting] min_interval``)."""
SLOW_INTERVAL_SECONDS = 60
"""Of rules that look back minutes or more: asking sooner would tell hardly anything sooner, at six times the price."""

_UID = re.compile(r"[a-z][a-z0-9_]{0,39}")
_VALUE = re.compile(r"\$values\.([a-z_]+)\b")
# The condition takes C, as in every rule that Grafana's own editor makes.
_REDUCED = "BEGIKMOQSUWY"
_ASKED = "ADFHJLNPRTVX"
CONDITION = "C"


class Severity(StrEnum):
    """Value of the `severity` label: CRITICAL wakes somebody, WARNING waits for the morning."""

    CRITICAL = "critical"
    WARNING = "warning"


class Reducer(StrEnum):
    """How the points of one series become one number. Grafana drops what is no number first (mode ``dropNN``)."""

    LAST = "last"
    SUM = "sum"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    COUNT = "count"


class Comparison(StrEnum):
    """Grafana's threshold evaluators (pkg/expr/threshold.go)."""

    ABOVE = "gt"
    AT_LEAST = "gte"
    BELOW = "lt"
    AT_MOST = "lte"

    def holds(self, value: float, limit: float) -> bool:
        """Whether the value is on the alerting side; never for NaN."""
        match self:
            case Comparison.ABOVE:
                return value > limit
            case Comparison.AT_LEAST:
                return value >= limit
            case Comparison.BELOW:
                return value < limit
            case Comparison.AT_MOST:
                return value <= limit


class NoDataPolicy(StrEnum):
    """State of a rule whose queries return nothing."""

    OK = "OK"
    NO_DATA = "NoData"
    ALERTING = "Alerting"
    KEEP_LAST = "KeepLast"


class ErrorPolicy(StrEnum):
    """State of a rule whose query fails."""

    OK = "OK"
    ERROR = "Error"
    ALERTING = "Alerting"
    KEEP_LAST = "KeepLast"


def _expect(owner: object, **kinds: type) -> None:
    """Refuse an attribute of another type: Grafana would not start with it."""
    for name, kind in kinds.items():
        value = getattr(owner, name)
        if not isinstance(value, kind):
            said = repr(value) if isinstance(value, str) else type(value).__name__
            raise ValueError(f"{type(owner).__name__}: {name} is {said}: expected {kind.__name__}")  # noqa: TRY004


@dataclass(frozen=True, slots=True)
class Threshold:
    """The limit that the first measure is compared with.

    Attributes:
        name: the value of cluster.yaml's `thresholds` that sets when the rule fires; the rule's own id where it stands
            in the module of a site's own rule.
        comparison: which side of `value` is bad.
        value: the number compared with: the named one, or what follows from it.
    """

    name: str
    comparison: Comparison
    value: float

    def __post_init__(self) -> None:
        _expect(self, comparison=Comparison)
        if not isinstance(self.value, int | float) or not math.isfinite(self.value):
            raise ValueError(f"threshold {self.name} is {self.value!r}: expected a number in the query's unit")


@dataclass(frozen=True, slots=True)
class Measure:
    """One number a series: a query over a relative range, then a reducer.

    Attributes:
        name: how texts call it: ``$values.bytes.Value``.
        query: one value column; its tags become labels. Measures join by equal labels, or by labels that are a subset.
        since: the range begins this many seconds before the evaluation.
        until: and ends this many seconds before it.
        reducer: what makes one number of the range's points.
    """

    name: str
    query: Query
    since: int
    until: int = 0
    reducer: Reducer = Reducer.LAST

    def __post_init__(self) -> None:
        _expect(self, query=Query, reducer=Reducer)
        if not isinstance(self.since, int) or not isinstance(self.until, int) or not 0 <= self.until < self.since:
            raise ValueError(
                f"measure {self.name}: from {self.since} s to {self.until} s ago: expected whole seconds, since > until"
            )
        columns = self.query.select.columns if self.query.select is not None else ()
        if len(columns) > 1:
            names = " and ".join(column.name for column in columns)
            raise ValueError(f"measure {self.name}: its query has the columns {names}: expected one, a measure each")


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert rule.

    Attributes:
        id: module, uid, runbook anchor and test file.
        title: the alert's name.
        family: Grafana's rule group: rules that are evaluated together.
        severity: routes it.
        measures: the first is compared with the threshold; Grafana joins the others to it by labels.
        threshold: when the first measure is bad.
        annotations: (name, text as Go template) in the order of the message.
        panel: where its link leads.
        group_by: labels whose equal values share one notification.
        labels: more labels; `rule` and `severity` are there anyway.
        pending_for: seconds it must be bad before it fires.
        keep_firing_for: seconds it keeps firing after it got well.
        missing_evaluations: evaluations without its series after which an alert is resolved.
        no_data: what an empty answer means.
        on_error: what a failed query means. Kept: when InfluxDB is away `ingest_deadman` alone tells of it, and what
            fires goes on firing, in place of an error of each rule and a false all-clear of each alert.
        interval: seconds between evaluations.
        is_operational: whether `site.maintenance` mutes it: it tells of devices, nodes or jobs, and neither of what a
            thief could do nor of our own blindness.
    """

    id: str
    title: str
    family: str
    severity: Severity
    measures: tuple[Measure, ...]
    threshold: Threshold
    annotations: tuple[tuple[str, str], ...]
    panel: PanelRef
    group_by: tuple[str, ...] = ("rule", "src")
    labels: tuple[tuple[str, str], ...] = ()
    pending_for: int = 0
    keep_firing_for: int = 60
    missing_evaluations: int = 6
    no_data: NoDataPolicy = NoDataPolicy.OK
    on_error: ErrorPolicy = ErrorPolicy.KEEP_LAST
    interval: int = INTERVAL_SECONDS
    is_operational: bool = False

    def __post_init__(self) -> None:
        if not _UID.fullmatch(self.id):
            raise ValueError(f"{self.id!r}: a rule's id is at most 40 lower case letters, digits and _")
        # A tuple of one needs its comma.
        _expect(self, title=str, family=str, severity=Severity, measures=tuple, threshold=Threshold, annotations=tuple)
        _expect(self, panel=PanelRef, group_by=tuple, labels=tuple, no_data=NoDataPolicy, on_error=ErrorPolicy)
        if not 1 <= len(self.measures) <= len(_REDUCED):
            raise ValueError(f"{self.id}: 1 to {len(_REDUCED)} measures, not {len(self.measures)}")
        # A rule of the site's own may keep its number to itself, under its own name.
        if self.threshold.name not in (*Thresholds.__dataclass_fields__, self.id):
            raise ValueError(f"{self.id}: cluster.yaml has no threshold {self.threshold.name!r}")
        # Grafana does not start where it refuses a single rule.
        least = {"interval": INTERVAL_SECONDS, "pending_for": 0, "keep_firing_for": 0, "missing_evaluations": 1}
        for name, number in least.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < number:
                raise ValueError(f"{self.id}: {name} is {value}: expected a whole number, at least {number}")
        if self.interval % INTERVAL_SECONDS:
            raise ValueError(f"{self.id}: interval is {self.interval}: expected a multiple of {INTERVAL_SECONDS} s")
        if not self.title or not self.family:
            raise ValueError(f"{self.id}: title {self.title!r}, family {self.family!r}: expected both")
        for _, text in self.annotations:
            self.template(text)

    def asked(self, position: int) -> str:
        """Return Grafana's letter of the query of a measure."""
        return _ASKED[position]

    def reduced(self, position: int) -> str:
        """Return Grafana's letter of a measure's number."""
        return _REDUCED[position]

    def template(self, text: str) -> str:
        """Return a text with Grafana's letters for the measures' names; ValueError for a name that is none."""
        letters = {measure.name: self.reduced(position) for position, measure in enumerate(self.measures)}

        def letter(match: re.Match[str]) -> str:
            if match[1] not in letters:
                raise ValueError(f"{self.id}: no measure {match[1]!r}; there are {', '.join(letters)}")
            return f"$values.{letters[match[1]]}"

        return _VALUE.sub(letter, text)

    def all_labels(self) -> dict[str, str]:
        """Return the labels that every alert of the rule has."""
        return {"rule": self.id, "severity": self.severity.value, **dict(self.labels)}

    def remembered(self) -> int:
        """Return for how many seconds an earlier evaluation can matter to the present state.

        One after the other: it was pending, fired, goes on firing, and then its series is missing.
        """
        return self.pending_for + self.keep_firing_for + self.missing_evaluations * self.interval


_NAMED = 5
"""Subjects of one rule and reason that a line names."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A rule, or the part of a rule that looks at one group pair, that is not generated, and why."""

    id: str
    subject: str
    reason: str

    def __str__(self) -> str:
        return f"{self.id}: {self.subject}: {self.reason}"


class NoRuleError(Exception):
    """What `build` of a rule raises where a cluster does not get the rule.

    Args:
        rule_id: its id.
        reasons: why there is none: texts about the whole rule, or what is skipped.
    """

    def __init__(self, rule_id: str, *reasons: str | Skipped) -> None:
        super().__init__(rule_id)
        self.skipped = tuple(
            Skipped(rule_id, "the whole rule", one) if isinstance(one, str) else one for one in reasons
        )


def labels_of_grafana(title: str) -> dict[str, str]:
    """Return the labels that Grafana adds to every alert of a rule with this title."""
    return {"alertname": title, "grafana_folder": FOLDER}


@dataclass(frozen=True, slots=True)
class RuleSet:
    """What a cluster gets: rules in the order of the runbook, and what is missing."""

    rules: tuple[Rule, ...]
    skipped: tuple[Skipped, ...]

    def rule(self, rule_id: str) -> Rule:
        """Return the rule with this id; KeyError if it is not generated."""
        for rule in self.rules:
            if rule.id == rule_id:
                return rule
        raise KeyError(rule_id)

    def skipped_lines(self) -> list[str]:
        """Return what is not generated and why: a line for each rule and reason."""
        subjects: dict[tuple[str, str], list[str]] = {}
        for one in self.skipped:
            subjects.setdefault((one.id, one.reason), []).append(one.subject)
        return [str(Skipped(rule_id, some(listed, _NAMED), reason)) for (rule_id, reason), listed in subjects.items()]

    def missing_ids(self) -> tuple[str, ...]:
        """Return ids of rules of which nothing at all is generated."""
        present = {rule.id for rule in self.rules}
        return tuple(dict.fromkeys(skipped.id for skipped in self.skipped if skipped.id not in present))


def built(build: Callable[[Cluster], RuleSet], cluster: Cluster) -> RuleSet:
    """Return what a rule's `build` returns, or why it has none."""
    try:
        return build(cluster)
    except NoRuleError as error:
        return RuleSet((), error.skipped)
