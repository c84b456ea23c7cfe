"""Which alerts fired? The history says it; or the present rules, evaluated over what is stored of the period."""

from collections.abc import Sequence

from operations.alert_history import MOST, StoredAlert, open_alerts, stored_alerts
from reporting.content import Cells, Column, Fact, Kind, Section, Table, Tone, Word
from reporting.look import Look
from reporting.words import counted
from rules.common import texts
from rules.evaluate.backtest import Backtest, Stretch, Told, look_back
from rules.evaluate.replay import Sight
from rules.evaluate.timeline import Firing
from rules.registry import rules_of
from rules.rule import Severity
from store import schema
from store.influxql import Select, highest, is_in

ID, TITLE = "alerts", "Alerts"
_NONE = "No alert fired."


def section(look: Look, told: Told) -> Section:
    """Return the section, of the present rules.

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
        f"{counted(len(firings), 'alert')} fired, {critical:,} of them critical." if firings else _NONE,
        facts=(
            Fact("alerts", "Alerts that fired", len(firings), Kind.COUNT, Tone.LOOK if firings else Tone.QUIET,
                 in_summary=True),
            Fact("critical", "Critical ones", critical, Kind.COUNT, Tone.ACT if critical else Tone.QUIET),
        ),
        blocks=(_table(firings, period.stop),),
        notes=(
            "The present rules, evaluated over what is stored now (docs/extending.md).",
            "An alert of the time may have come earlier or later. All are taken to be quiet when the period begins.",
        ),
    )  # fmt: skip


def history(look: Look) -> Section:
    """Return the section, of the alerts that the history has.

    Raises:
        StoreError: the store is away.
    """
    period = look.period
    found = stored_alerts(look.store, period.start, period.stop - 1)
    before = open_alerts(look.store, period.start)
    if not found and not before and not was_kept(look):
        lead = "Not measured: no history of alerts; `clusterflow deliver` keeps one. --alerts evaluates the rules."
        return Section(ID, TITLE, lead, is_measured=False)
    is_cut = len(found) == MOST
    least = "At least " if is_cut else ""
    critical = sum(one.severity == Severity.CRITICAL for one in found)
    false = sum(one.is_false for one in found)
    muted = sum(bool(one.maintenance) for one in found)
    lead = f"{least}{counted(len(found), 'alert')} fired, {critical:,} of them critical." if found else _NONE
    if before:
        lead += f" {counted(len(before), 'alert')} from before the period still fired when it began."
    waits = sorted(one.acknowledged - one.began for one in found if one.acknowledged is not None)
    return Section(
        ID,
        TITLE,
        lead,
        facts=(
            Fact("alerts", "Alerts that fired, the newest" if is_cut else "Alerts that fired", len(found), Kind.COUNT,
                 Tone.LOOK if found else Tone.QUIET, in_summary=True),
            Fact("critical", "Critical ones", critical, Kind.COUNT, Tone.ACT if critical else Tone.QUIET),
            *([Fact("before", "Still firing from before", len(before), Kind.COUNT, Tone.LOOK, in_summary=True)]
              if before else []),
            Fact("false", "Marked as false", false, Kind.COUNT),
            Fact("acknowledged", "Marked as acknowledged", len(waits), Kind.COUNT),
            *([Fact("muted", "Muted by maintenance", muted, Kind.COUNT)] if muted else []),
            *([Fact(schema.ACKNOWLEDGE_SECONDS.name, "Half within", waits[(len(waits) - 1) // 2], Kind.SECONDS)]
              if waits else []),
        ),
        blocks=(_by_rule(found), _stored_table([*found, *before], period.stop)),
        notes=(
            *([f"Only the newest {MOST:,} are read and counted: ask for a shorter period."] if is_cut else []),
            "As they fired, by the rules of that time. Those from before the period are counted apart.",
            "False and acknowledged: marked by `clusterflow alerts mark`. Grafana does not say who has seen an alert.",
        ),
    )  # fmt: skip


def was_kept(look: Look) -> bool:
    """Whether `clusterflow deliver` ran, as far as raw points say so."""
    lived = Select(schema.PIPELINE, schema.RAW).take(highest(schema.VALUE))
    return bool(look.rows(lived.where(is_in(schema.STAGE, [schema.Stage.DELIVER]))))


def _by_rule(found: Sequence[StoredAlert]) -> Table:
    rules: dict[str, list[StoredAlert]] = {}
    for one in found:
        rules.setdefault(one.rule, []).append(one)
    rows: list[Cells] = [
        (rule, len(some), sum(one.is_false for one in some), len({one.tags[schema.SRC] for one in some}))
        for rule, some in sorted(rules.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    columns = (
        Column("rule", "Rule"), Column("alerts", "Alerts", Kind.COUNT), Column("false", "Marked as false", Kind.COUNT),
        Column("sources", "Sources", Kind.COUNT),
    )  # fmt: skip
    return Table("by_rule", "By rule", columns, tuple(rows), "None in this period.")


def _stored_table(found: Sequence[StoredAlert], stop: int) -> Table:
    rows: list[Cells] = [
        (
            one.began, one.rule, Word(one.severity, Tone.ACT if one.severity == Severity.CRITICAL else Tone.LOOK),
            *(one.facts[name] for name in texts.FACTS), (one.ended or stop) - one.began,
            ", ".join(word for word in ("false" if one.is_false else "", one.why, _muted(one)) if word),
        )
        for one in reversed(found)
    ]  # fmt: skip
    return Table("alerts", "Alerts, in the order of time", (*_COLUMNS, Column("marked", "Marked")), tuple(rows),
                 "None in this period.")  # fmt: skip


def _muted(one: StoredAlert) -> str:
    return f"muted: {one.maintenance}" if one.maintenance else ""


_COLUMNS = (
    Column("began", "Began", Kind.MOMENT), Column("rule", "Rule"), Column("severity", "Severity"),
    *(Column(name, name.capitalize()) for name in texts.FACTS), Column("fired_seconds", "Fired for", Kind.SECONDS),
)  # fmt: skip


def _table(firings: Sequence[Firing], stop: int) -> Table:
    rows: list[Cells] = [
        (
            firing.fired_at, firing.rule,
            Word(firing.first.severity, Tone.ACT if firing.first.severity == Severity.CRITICAL else Tone.LOOK),
            *(firing.worst.annotations.get(name, "") for name in texts.FACTS), firing.seconds(stop),
        )
        for firing in firings
    ]  # fmt: skip
    return Table("alerts", "Alerts, in the order of time", _COLUMNS, tuple(rows), "None in this period.")
