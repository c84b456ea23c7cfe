"""``clusterflow test-rules``. It stands above the rules, because scenarios may be its input."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress

from app.application import is_verbose
from app.errors import ConfigError, UserError
from cluster import options
from cluster.cli import config_option
from cluster.load import load_cluster
from cluster.model import StoreSettings
from rules.evaluate.case_runs import NO_LOGIN, Outcome, run_case
from rules.evaluate.cases import Case, find_files, load_cases, missing_kinds
from simulate.scenarios.case_scenarios import Scenarios, script_of
from simulate.stores import influxdb

CASE_FOLDER = "tests/rules"


def _cases(files: Sequence[Path], config: Path) -> list[Case]:
    """Return the cases of all files; ConfigError with the faults of all of them."""
    found: list[Case] = []
    errors: list[ConfigError] = []
    for file in find_files(files):
        try:
            found += load_cases(file, config)
        except ConfigError as error:
            errors.append(error)
    if errors:
        for other in errors[:-1]:
            for line in other.lines():
                click.echo(line, err=True)
        raise errors[-1]
    return found


@click.command("test-rules")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True))
@config_option("config", text="The cluster of files that name none and have no cluster.yaml beside them.")
@click.option("--rule", "rules", multiple=True, metavar="ID", help="Only cases of this rule. May be repeated.")
@click.option("--case", "part", default="", metavar="TEXT", help="Only cases with TEXT in their name.")
@click.option(
    "--url",
    type=options.URL,
    metavar="URL",
    help="An InfluxDB to test on, with the login of `store`. Default: one is started, and removed afterwards.",
)
@click.option("--complete", is_flag=True, help="Fail where a rule's cases do not cover all four kinds.")
@options.json_option
def test_rules(
    files: tuple[Path, ...],
    config: Path,
    rules: tuple[str, ...],
    part: str,
    url: str | None,
    complete: bool,
    json_to: str | None,
) -> None:
    """Run rule cases: stored points or a scenario in, expected alerts out, on a real InfluxDB.

    \b
    Examples:
      clusterflow test-rules                        all files of tests/rules
      clusterflow test-rules my_rule.yaml -v        one file, naming each case
      clusterflow test-rules --rule exfil_volume    the cases of one rule

    FILES may be folders. docs/extending.md shows how cases are written. Ends with 0 if every alert is as expected,
    with 1 if not, and with 2 for a file that is not right.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    if not files and not Path(CASE_FOLDER).is_dir():
        raise UserError(f"{CASE_FOLDER}: no such folder here", "name files or folders of rule cases")
    loaded = _cases(files or (Path(CASE_FOLDER),), config)
    cases = [case for case in loaded if (not rules or case.rule in rules) and part in case.name]
    known = {case.rule for case in loaded}
    if not cases or not known.issuperset(rules):
        unknown = ", ".join(f"--rule {rule}" for rule in rules if rule not in known)
        what = f"no case is chosen by {unknown}" if unknown else "no case is chosen"
        raise UserError(what, f"{len(loaded)} cases were found; see --rule and --case")
    for case in cases:
        if case.scenario:
            # An unknown scenario should fail now, not after all other cases or behind a store that is away.
            script_of(case)
    say = partial(click.echo, err=json_to == "-")
    began = time.monotonic()
    login = load_cluster(config).store if url is not None and config.is_file() else NO_LOGIN
    with influxdb(url) as address:
        outcomes = list(_run(cases, address, login, say))
    wrong = sum(not outcome.is_right for outcome in outcomes)
    # A part of a rule's cases need not cover all.
    lacking = [] if part else missing_kinds(cases)
    for missing in lacking:
        click.echo(str(missing), err=True)
    seconds = time.monotonic() - began
    if json_to:
        told = [{"rule": one.case.rule, "case": one.case.name, "differences": one.differences} for one in outcomes]
        options.write_output(json_to, json.dumps({"cases": told, "lacking": [*map(str, lacking)]}, indent=2) + "\n")
    say(f"{len(outcomes)} cases: {len(outcomes) - wrong} as expected, {wrong} not ({seconds:.1f} s)")
    if wrong or (complete and lacking):
        sys.exit(1)


def _run(cases: Sequence[Case], url: str, login: StoreSettings, say: Callable[[str], None]) -> Iterator[Outcome]:
    console = Console(stderr=True)
    columns = ("testing rules", BarColumn(), MofNCompleteColumn(), "{task.fields[case]}")
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
        ExitStack() as stack,
    ):
        task = bar.add_task("cases", total=len(cases), case="")
        scenarios = stack.enter_context(Scenarios(url, lambda what, _share: bar.update(task, case=what), login))
        for case in cases:
            bar.update(task, case=f"{case.rule}: {case.name}")
            outcome = run_case(case, url, scenarios.stage, login=login)
            if not outcome.is_right:
                say(f"FAILED  {case}")
                for line in outcome.differences:
                    say(f"    {line}")
            elif is_verbose():
                say(f"ok      {case}")
            bar.advance(task)
            yield outcome
