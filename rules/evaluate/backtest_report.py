"""A backtest as data: what was assumed, what fired, what was missed, what another limit would have done."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.units import format_duration, format_moment
from cluster.model import Cluster
from rules.common.texts import FACTS, SUMMARY
from rules.evaluate.backtest import Difference, Run, Stretch, Sweep
from rules.evaluate.replay import Sight
from rules.evaluate.timeline import Firing, Span
from rules.evaluate.truth import Judged, Score, Truth


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a backtest found.

    Attributes:
        cluster: whose rules.
        stretch: what was evaluated.
        source: where the data is from, in words.
        run: of the present rules.
        sweeps: other limits.
        difference: against earlier rules; None where nobody asked.
        truth: what was staged; None where it is not known.
        scores: of each rule against the truth.
        is_empty: whether nothing at all is stored of the stretch.
    """

    cluster: Cluster
    stretch: Stretch
    source: str
    run: Run
    sweeps: tuple[Sweep, ...] = ()
    difference: Difference | None = None
    truth: Truth | None = None
    scores: tuple[Score, ...] = ()
    is_empty: bool = False

    @property
    def emptiness(self) -> str:
        """What to say where nothing is stored; empty where something is."""
        if not self.is_empty:
            return ""
        start, stop = format_moment(self.stretch.start), format_moment(self.stretch.end)
        return f"nothing is stored from {start} to {stop}: what would have fired cannot be told"

    def assumptions(self) -> list[str]:
        """Return, in sentences, what the result rests on."""
        sight, stretch = self.stretch.sight, self.stretch
        same = (
            "Queries, reductions and thresholds are those that Grafana runs, on the real InfluxDB; states follow "
            "Grafana 12 (for, keep-firing, no data, errors, missing series), all Normal at the beginning."
        )
        found = [same]
        if self.is_empty:
            found.insert(0, f"{self.emptiness[:1].upper()}{self.emptiness[1:]}.")
        if sight == Sight():
            found.append(
                "Every stored point counts as seen from its own time on, which is the start of its window: alerts come "
                "earlier here than live, by about the time that a window takes to fill and settle."
            )
        else:
            found.append(
                f"A point counts as seen {sight.ingest} s after the start of its window (window, lateness and two "
                f"flushes), one of the analysis after {sight.analysis} s. Live, a window that is still filling may "
                "already be enough, so an alert can come up to that much earlier than here."
            )
        found.append(
            "Records that came later than that are counted as if they had been in time: what is stored now is "
            "evaluated, not what was stored then. The same holds for verdicts that the analysis took back."
        )
        found.append(
            "Rules that look at verdicts (baselines, checkpoints, contacts) see those that are stored. A limit that "
            "the analysis itself uses shows only after `clusterflow analyze --from --to` with the new value."
        )
        kept = self.cluster.store.keep_raw
        if stretch.end - stretch.start > kept:
            found.append(f"The raw retention keeps {format_duration(kept)}; before that there is nothing to see.")
        return found

    def json(self) -> dict[str, Any]:
        """Return it for machines: times as ISO 8601 in UTC, lengths in seconds."""
        judged = {id(one.firing): one for score in self.scores for one in score.judged}
        return {
            "cluster": self.cluster.name,
            "source": self.source,
            "from": format_moment(self.stretch.start),
            "to": format_moment(self.stretch.end),
            "assumptions": self.assumptions(),
            "seconds": round(self.run.seconds, 3),
            "rules": [self._rule(rule.id, rule.title, rule.severity.value) for rule in self.run.rules],
            "firings": [self._firing(firing, judged.get(id(firing))) for firing in self.run.firings],
            "timelines": [
                {"rule": rule, "labels": dict(labels), "spans": [_span(span) for span in spans]}
                for (rule, labels), spans in sorted(self.run.timeline.spans.items())
            ],
            "sweeps": [_sweep(sweep, self.stretch.end) for sweep in self.sweeps],
            "against": None if self.difference is None else self._difference(self.difference),
            "score": None if self.truth is None else self._scores(),
        }

    def _rule(self, rule_id: str, title: str, severity: str) -> dict[str, Any]:
        effort = self.run.efforts[rule_id]
        fired = self.run.timeline.of_rule(rule_id)
        return {
            "rule": rule_id,
            "title": title,
            "severity": severity,
            "firings": len(fired),
            "firing_seconds": sum(firing.seconds(self.stretch.end) for firing in fired),
            "evaluations": effort.ticks,
            "evaluated": effort.evaluated,
            "queries": effort.queries,
        }

    def _firing(self, firing: Firing, judged: Judged | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {
            "rule": firing.rule,
            "state": firing.first.state.value,
            "fired_at": format_moment(firing.fired_at),
            "ended_at": None if firing.ended_at is None else format_moment(firing.ended_at),
            "seconds": firing.seconds(self.stretch.end),
            "labels": dict(firing.first.labels),
            SUMMARY: firing.worst.annotations.get(SUMMARY, ""),
            **{name: firing.worst.annotations.get(name, "") for name in FACTS},
            "first_values": dict(firing.first.values),
            "last_values": dict(firing.last.values),
            "worst_values": dict(firing.worst.values),
        }
        if self.truth is not None:
            cause = judged.cause if judged is not None else None
            found |= {"incident": cause.incident if cause else None, "delay": judged.delay if judged else None}
        return found

    def _difference(self, difference: Difference) -> dict[str, Any]:
        change = difference.change
        return {
            "before": difference.before,
            "changed": list(change.changed),
            "only_before": list(change.only_before),
            "only_now": list(change.only_now),
            "added": [self._firing(firing) for firing in difference.added],
            "lost": [self._firing(firing) for firing in difference.lost],
            "moved": [{"before": self._firing(one), "now": self._firing(two)} for one, two in difference.moved],
            "same": difference.same,
        }

    def _scores(self) -> dict[str, Any]:
        return {
            "rules": [_score(score) for score in self.scores],
            "missed": [
                {"incident": one.incident, "rule": one.rule, "labels": dict(one.labels), "due": format_moment(one.due)}
                for score in self.scores
                for one in score.missed
            ],
            "all": _score(total(self.scores)),
        }


def total(scores: tuple[Score, ...]) -> Score:
    """Return the score of all rules together."""
    return Score(
        "all rules",
        tuple(one for score in scores for one in score.judged),
        tuple(one for score in scores for one in score.missed),
        sum(score.due for score in scores),
    )


def _span(span: Span) -> dict[str, Any]:
    return {
        "state": span.state.value,
        "reason": span.reason,
        "from": format_moment(span.start),
        "to": None if span.end is None else format_moment(span.end),
    }


def _score(score: Score) -> Mapping[str, Any]:
    return {
        "rule": score.rule,
        "due": score.due,
        "found": score.due - len(score.missed),
        "false": len(score.false),
        "precision": score.precision,
        "recall": score.recall,
        "median_delay": score.delay,
    }


def _sweep(sweep: Sweep, end: int) -> dict[str, Any]:
    return {
        "name": sweep.name,
        "values": [
            {
                "value": setting.text,
                "is_present": setting.is_present,
                "firings": len(run.firings),
                "firing_seconds": sum(firing.seconds(end) for firing in run.firings),
                "rules": {rule.id: len(run.timeline.of_rule(rule.id)) for rule in run.rules},
            }
            for setting, run in zip(sweep.settings, sweep.runs, strict=True)
        ],
    }
