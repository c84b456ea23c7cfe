"""Which alerts fired? Nobody stores that, so the rules are evaluated again over what is stored of the period."""

from collections.abc import Sequence

from cluster import schema
from reporting.content import Cells, Column, Fact, Kind, Section, Table, Tone, Word
from reporting.look import Look
from reporting.words import counted
from rules import texts
from rules.backtest import Backtest, Stretch, Told, look_back
from rules.model import Severity
from rules.registry import rules_of
from rules.replay import Sight
from rules.timeline import Firing

ID, TITLE = "alerts", "Alerts"


def section(look: Look, told: Told) -> Section:
    """Return the section.

    Args:
        look: at the period.
        told: called with the rule that is evaluated, and the share that is done.

    Raises:
        StoreError: the store is away.
    """
    if not look.reaches(schema.RAW):
        lead = "Not measured: rules read raw points, and those of the begin of the period are gone."
        return Section(ID, TITLE, lead, is_measured=False)
    rules = rules_of(look.cluster).rules
    period, cluster = look.period, look.cluster
    stretch = Stretch(look.store, period.start, period.stop, Sight.settled(cluster), cluster.grafana.datasource_uid)
    firings = Backtest(stretch, look_back(rules)).run(rules, told).firings
    critical = sum(firing.first.severity == Severity.CRITICAL for firing in firings)
    return Section(
        ID,
        TITLE,
        f"{counted(len(firings), 'alert')} fired, {critical:,} of them critical." if firings else "No alert fired.",
        facts=(
            Fact("alerts", "Alerts that fired", len(firings), Kind.COUNT, Tone.LOOK if firings else Tone.QUIET,
                 in_summary=True),
            Fact("critical", "Critical ones", critical, Kind.COUNT, Tone.ACT if critical else Tone.QUIET),
        ),
        blocks=(_table(firings, period.stop),),
        notes=(
            "The present rules, evaluated over what is stored now (docs/backtest.md).",
            "An alert of the time may have come earlier or later. All are taken to be quiet when the period begins.",
        ),
    )  # fmt: skip


def not_asked() -> Section:
    """Return what stands in its place where nobody asked: it takes long."""
    lead = "Not asked for: alerts are not stored; with --alerts the rules are evaluated again, which takes minutes."
    return Section(ID, TITLE, lead, is_measured=False)


def _table(firings: Sequence[Firing], stop: int) -> Table:
    rows: list[Cells] = [
        (
            firing.fired_at, firing.rule,
            Word(firing.first.severity, Tone.ACT if firing.first.severity == Severity.CRITICAL else Tone.LOOK),
            *(firing.worst.annotations.get(name, "") for name in texts.FACTS), firing.seconds(stop),
        )
        for firing in firings
    ]  # fmt: skip
    columns = (
        Column("began", "Began", Kind.MOMENT), Column("rule", "Rule"), Column("severity", "Severity"),
        *(Column(name, name.capitalize()) for name in texts.FACTS), Column("fired_seconds", "Fired for", Kind.SECONDS),
    )  # fmt: skip
    return Table("alerts", "Alerts, in the order of time", columns, tuple(rows), "None in this period.")
