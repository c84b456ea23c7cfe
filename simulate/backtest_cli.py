"""The command ``clusterflow backtest``."""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import click
from rich.console import Console

from app.application import rows_shown
from app.errors import UserError
from app.progress import progress
from app.table import Table
from app.units import format_moment as moment
from cluster import options
from cluster.cli import cluster_option
from cluster.model import Cluster, StoreSettings
from rules.common.texts import FACTS
from rules.evaluate.backtest import (
    Backtest,
    Change,
    Setting,
    Stretch,
    Sweep,
    Told,
    change_of,
    chosen,
    compare,
    earlier_rules,
    look_back,
    settings_of,
)
from rules.evaluate.backtest_html import html
from rules.evaluate.backtest_report import Report, total
from rules.evaluate.case_runs import NO_LOGIN
from rules.evaluate.replay import Sight
from rules.evaluate.truth import Score, Truth, read_truth, score
from rules.grafana.go_numbers import humanize_duration
from rules.registry import rules_of
from rules.rule import Rule
from simulate.scenarios.case_scenarios import Scenarios
from simulate.scenarios.script import Script, find_script, load_script
from simulate.stores import influxdb
from simulate.trial import WARM_UP
from simulate.truth.matching import truth_of
from store import schema
from store.influx import Store
from store.influxql import Select, newest
from store.schema_version import opened

_MOST_LINES = 40

_SLACK = 60
"""Seconds: `--from 7d` was read before the present time is, and means what is kept for seven days."""


class FailOn(StrEnum):
    """What ends the command with 1."""

    FIRED = "fired"
    MISSED = "missed"
    FALSE = "false"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Data:
    """What is evaluated: a cluster, its store, from when to when, and what was staged there, if that is known."""

    cluster: Cluster
    store: Store
    start: int
    end: int
    source: str
    truth: Truth | None = None


@click.command()
@cluster_option
@click.option("--from", "start", type=options.Moment(), help="From this time of what is stored ...  [default: 1d ago]")
@click.option("--to", "stop", type=options.Moment(), help="... to this one.  [default: now]")
@click.option("--rule", "ids", multiple=True, metavar="ID", help="Only this rule. May be repeated.")
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="NAME=V1,V2",
    help="Also with other values of a threshold (exfil_volume=10GB,20GB,50GB), or of a rule's own. May be repeated.",
)
@click.option(
    "--against",
    metavar="REV|FILE",
    help="What the rules would add and lose, compared with those of another cluster.yaml or rules.yaml, or with those "
    "that were generated at a git revision.",
)
@click.option(
    "--provisioned",
    type=click.Path(path_type=Path, file_okay=False),
    default="provisioning",
    show_default=True,
    help="Folder of the generated files, for --against REV.",
)
@click.option(
    "--truth",
    "truth_file",
    type=click.Path(path_type=Path, exists=True),
    help="What was staged: precision, recall, delay.",
)
@click.option(
    "--scenario", metavar="NAME|FILE", help="Play this scenario and evaluate it from end to end, against its own truth."
)
@click.option("--seed", type=click.IntRange(min=0), help="Of the scenario, instead of its own.")
@click.option(
    "--url",
    type=options.URL,
    metavar="URL",
    help="InfluxDB for the scenario, with the login of `store`. Default: one is started, and removed afterwards.",
)
@click.option("--as-stored", is_flag=True, help="Take every stored point for seen at once, as test-rules does.")
@click.option("--html", "html_file", type=options.OutputFile(path_type=Path), help="Write a report: one file.")
@options.json_option
@click.option(
    "--fail-on",
    "fail_on",
    multiple=True,
    type=click.Choice([one.value for one in FailOn]),
    help="End with 1 if anything fired; if an alert of --truth was missed; if one was false; if --against shows added "
    "or lost alerts. May be repeated.",
)
def backtest(
    cluster: Cluster,
    start: float | None,
    stop: float | None,
    ids: tuple[str, ...],
    sweeps: tuple[str, ...],
    against: str | None,
    provisioned: Path,
    truth_file: Path | None,
    scenario: str | None,
    seed: int | None,
    url: str | None,
    as_stored: bool,
    html_file: Path | None,
    json_to: str | None,
    fail_on: tuple[str, ...],
) -> None:
    """Show what alert rules would have done over stored data.

    \b
    Examples:
      clusterflow backtest --from 7d --html report.html                      all rules over the last week
      clusterflow backtest --from 7d --sweep exfil_volume=10GB,20GB,50GB     how many alerts at other limits
      clusterflow backtest --from 7d --against HEAD --fail-on changed        what an edit of cluster.yaml would change
      clusterflow backtest --scenario drip-exfil-week --html drip.html       a staged week, against what was staged

    The real queries run on the real InfluxDB, evaluation by evaluation, with Grafana's semantics; where a rule cannot
    fire at all, nothing is asked. docs/extending.md says what a backtest assumes.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    fails = {FailOn(text) for text in fail_on}
    _refuse_mixtures(
        fails,
        {"--scenario": scenario, "--against": against},
        {"--from": start, "--to": stop, "--truth": truth_file},
        {"--url": url, "--seed": seed},
    )
    # What may be wrong with all that was asked for shows here: not behind a store that is away, or after minutes.
    source = (
        _stored(cluster, start, stop, truth_file)
        if scenario is None
        else _Staged(
            _with_own(cluster, load_script(find_script(scenario), seed=seed), ids), scenario, seed, url, cluster.store
        )
    )
    wanted = _wanted(source.cluster, ids, sweeps, None if against is None else _Versions(against, provisioned))
    if FailOn.MISSED in fails and isinstance(source, _Stored):
        source.refuse_nothing_due(ids)
    with ExitStack() as stack:
        told = stack.enter_context(progress(Console(stderr=True)))
        data = source.open(stack, told)
        sight = Sight() if as_stored else Sight.settled(data.cluster)
        report = _report(data, sight, wanted, told)
    if html_file is not None:
        html_file.write_text(html(report), encoding="utf-8")
    if json_to is not None:
        options.write_output(json_to, json.dumps(report.json(), indent=1) + "\n")
    if json_to != "-":
        _tell(report, html_file)
    if fails and report.is_empty:
        raise UserError(f"--fail-on {', '.join(sorted(fails))}: {report.emptiness}", "see --from, --to and `store`")
    if any(_has_failed(report, one) for one in fails):
        sys.exit(1)


def _refuse_mixtures(
    fails: set[FailOn], named: dict[str, object], of_store: dict[str, object], of_scenario: dict[str, object]
) -> None:
    """Raise UserError for options that do not go together: names -> values, None where they are not given."""
    scenario = named["--scenario"]
    if fails & {FailOn.MISSED, FailOn.FALSE} and of_store["--truth"] is None and scenario is None:
        raise UserError("--fail-on missed, false: against what?", "add --truth FILE or --scenario")
    if FailOn.CHANGED in fails and named["--against"] is None:
        raise UserError("--fail-on changed: against what?", "add --against")
    if scenario is not None and any(value is not None for value in of_store.values()):
        raise UserError("--scenario: has a time and a truth of its own", "leave out --from, --to and --truth")
    given = [name for name, value in of_scenario.items() if value is not None]
    if given and scenario is None:
        raise UserError(f"{', '.join(given)}: of what?", "add --scenario NAME")


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the store of cluster.yaml holds of a period."""

    cluster: Cluster
    start: int
    end: int
    truth: Truth | None

    def refuse_nothing_due(self, ids: Sequence[str]) -> None:
        """Raise UserError where alerts are owed at other times alone: nothing could be missed."""
        due = [one.due for one in (self.truth.owed if self.truth else ()) if one.must and (not ids or one.rule in ids)]
        if due and not any(self.start <= one <= self.end for one in due):
            raise UserError(
                f"--fail-on missed: nothing of --truth is due from {moment(self.start)} to {moment(self.end)}",
                f"it is due from {moment(min(due))} to {moment(max(due))}: see --from and --to",
            )

    def open(self, stack: ExitStack, _told: Told) -> Data:
        """Return it, once the store answers."""
        settings = self.cluster.store
        store = opened(settings)
        stack.callback(store.close)
        source = f"InfluxDB at {settings.url}, database {settings.database}"
        return Data(self.cluster, store, self.start, self.end, source, self.truth)


@dataclass(frozen=True, slots=True)
class _Staged:
    """A scenario, which is played into a store of its own, or into the one at `url`."""

    cluster: Cluster
    name: str
    seed: int | None
    url: str | None
    login: StoreSettings

    def open(self, stack: ExitStack, told: Told) -> Data:
        """Return it, played."""
        address = stack.enter_context(influxdb(self.url))
        login = NO_LOGIN if self.url is None else self.login
        played = stack.enter_context(Scenarios(address, told, login)).play(self.name, self.seed)
        script = played.script
        words = f"Scenario {script.name}, seed {script.scenario.seed}: {script.title}"
        start = script.start + WARM_UP
        return Data(played.cluster, played.store, start, script.end, words, truth_of(script.incidents))


def _with_own(ours: Cluster, script: Script, ids: Sequence[str]) -> Cluster:
    """Return a scenario's cluster with those rules of our own that are asked for, or that it expects to fire.

    It may lack what others look at.
    """
    played = script.cluster
    wanted = {*ids, *(rule for one in script.incidents for rule in one.expected)}
    own = [path for path in ours.rules if Path(path).stem in wanted and path not in played.rules]
    return replace(played, rules=(*played.rules, *own))


def _stored(cluster: Cluster, start: float | None, stop: float | None, truth_file: Path | None) -> _Stored:
    """Return the period that is asked for; UserError where it is empty, or the file holds no truth."""
    now = time.time()
    end = now if stop is None else stop
    begin = end - 86_400 if start is None else start
    if begin >= end:
        raise UserError(f"--from {moment(begin)}: expected a time before --to, {moment(end)}")
    oldest = now - cluster.store.keep_raw
    if begin < oldest - _SLACK:
        # Rules look at raw points nearly all; those of the rollups see further.
        kept = humanize_duration(cluster.store.keep_raw)
        click.echo(f"warning: raw points are kept for {kept}: what is before {moment(int(oldest))} is gone", err=True)
    return _Stored(cluster, int(begin), int(end), None if truth_file is None else read_truth(truth_file))


@dataclass(frozen=True, slots=True)
class _Versions:
    """Which earlier rules are meant: see ``rules.evaluate.backtest.earlier_rules``."""

    name: str
    provisioned: Path

    def change(self, cluster: Cluster, rules: Sequence[Rule], ids: Sequence[str]) -> Change:
        earlier = [rule for rule in earlier_rules(self.name, self.provisioned) if not ids or rule.id in ids]
        return change_of(cluster, earlier, rules)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is evaluated: rules (all of the cluster's, or some), other settings of them, earlier ones."""

    rules: tuple[Rule, ...]
    settings: tuple[tuple[Setting, ...], ...]
    before: str
    change: Change | None
    is_all: bool


def _wanted(cluster: Cluster, ids: Sequence[str], sweeps: Sequence[str], versions: _Versions | None) -> _Wanted:
    """Return what the options ask for; UserError where there is no such thing."""
    rules = chosen(rules_of(cluster), ids)
    settings = tuple(settings_of(cluster, rules, text) for text in sweeps)
    if versions is None:
        return _Wanted(rules, settings, "", None, not ids)
    return _Wanted(rules, settings, versions.name, versions.change(cluster, rules, ids), not ids)


def _report(data: Data, sight: Sight, wanted: _Wanted, told: Told) -> Report:
    cluster, rules, settings, change = data.cluster, wanted.rules, wanted.settings, wanted.change
    stretch = Stretch(data.store, data.start, data.end, sight, cluster.grafana.datasource_uid)
    every = [*rules, *(rule for each in settings for one in each for rule in one.rules)]
    every += [] if change is None else change.earlier
    runner = Backtest(stretch, look_back(every))
    run = runner.run(rules, told)
    swept = tuple(Sweep(each[0].name, each, tuple(runner.run(one.rules, told) for one in each)) for each in settings)
    difference = None
    if change is not None:
        difference = compare(wanted.before, change, runner.run(change.earlier, told), run)
    scores: tuple[Score, ...] = ()
    if data.truth is not None:
        evaluated = [rule.id for rule in rules]
        scored = data.truth.scored(evaluated) if wanted.is_all else evaluated
        scores = score(data.truth, run.firings, scored, data.start, data.end)
    return Report(cluster, stretch, data.source, run, swept, difference, data.truth, scores, _is_empty(data))


def _is_empty(data: Data) -> bool:
    """Whether no point of ours lies in the stretch, in whatever retention."""
    asked = (
        Select(measurement, retention).take(*map(newest, measurement.fields)).between(data.start, data.end)
        for retention in (schema.RAW, schema.MINUTE, schema.HOUR)
        for measurement in schema.MEASUREMENTS
        if retention in measurement.retentions
    )
    return not any(True for one in asked for _ in data.store.rows(one))


def _has_failed(report: Report, what: FailOn) -> bool:
    match what:
        case FailOn.FIRED:
            return bool(report.run.firings)
        case FailOn.MISSED:
            return any(one.missed for one in report.scores)
        case FailOn.FALSE:
            return any(one.false for one in report.scores)
        case FailOn.CHANGED:
            return report.difference is not None and not report.difference.is_empty


# In the terminal ----------------------------------------------------------------------------------


def _tell(report: Report, html_file: Path | None) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, emoji=False)
    stretch, run = report.stretch, report.run
    ticks = sum(effort.ticks for effort in run.efforts.values())
    queries = sum(effort.queries for effort in run.efforts.values())
    console.print(
        f"{moment(stretch.start)} to {moment(stretch.end)}: {len(run.rules)} rules, {ticks:,} evaluations, "
        f"{queries:,} queries, {run.seconds:.1f} s",
        soft_wrap=True,
    )
    for firing in run.firings[: rows_shown(_MOST_LINES)]:
        facts = [firing.worst.annotations.get(name, "") for name in FACTS]
        console.print(
            f"{moment(firing.fired_at)}  {firing.first.severity:8} {firing.rule}: {facts[0]} -> {facts[1]}, "
            f"{', '.join(facts[2:])}; fired for {humanize_duration(firing.seconds(stretch.end))}"
            f"{'' if firing.ended_at is not None else ', fires still'}",
            soft_wrap=True,
            markup=False,
        )
    if len(run.firings) > rows_shown(_MOST_LINES):
        console.print(f"and {len(run.firings) - _MOST_LINES} more: -v shows, --html and --json write all of them")
    if report.is_empty:
        console.print(report.emptiness, soft_wrap=True)
    elif not run.firings:
        console.print("nothing would have fired")
    for sweep in report.sweeps:
        _tell_sweep(console, sweep)
    _tell_difference(console, report)
    _tell_score(console, report)
    if html_file is not None:
        console.print(f"report: {html_file}", soft_wrap=True)


def _tell_sweep(console: Console, sweep: Sweep) -> None:
    table = Table(sweep.name, "alerts", box=None)
    for setting, run in zip(sweep.settings, sweep.runs, strict=True):
        table.add_row(f"{setting.text}{' (now)' if setting.is_present else ''}", str(len(run.firings)))
    console.print(table)


def _tell_difference(console: Console, report: Report) -> None:
    found = report.difference
    if found is None:
        return
    names = ", ".join((*found.change.changed, *found.change.only_now, *found.change.only_before)) or "none"
    console.print(f"rules that differ from {found.before}: {names}", soft_wrap=True, markup=False)
    for word, firings in (("added", found.added), ("lost", found.lost)):
        for firing in firings:
            console.print(
                f"{word:6} {moment(firing.fired_at)} {firing.rule}: {firing.worst.annotations.get('summary', '')}",
                soft_wrap=True,
                markup=False,
            )
    counts = f"{len(found.added)} alerts added, {len(found.lost)} lost, {len(found.moved)} at other times"
    console.print(f"{counts}, {found.same} alike")


def _tell_score(console: Console, report: Report) -> None:
    if report.truth is None:
        return
    table = Table("rule", "due", "found", "false", "precision", "recall", "median delay", box=None)
    for one in (*report.scores, total(report.scores)):
        if not one.due and not one.judged:
            continue
        shares = ("" if value is None else f"{value:.0%}" for value in (one.precision, one.recall))
        delay = "" if one.delay is None else f"{one.delay:.0f} s"
        table.add_row(one.rule, str(one.due), str(one.due - len(one.missed)), str(len(one.false)), *shares, delay)
    console.print(table)
    for one in report.scores:
        for owed in one.missed:
            console.print(f"missed: {owed.incident}: {owed.rule}, due {moment(owed.due)}", soft_wrap=True, markup=False)
