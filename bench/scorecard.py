"""The scorecard: the whole library on several seeds, scenario by rule; and whether it got worse.

Every trial is deterministic: the same scenario, seed and code give the same row. The figures lie in
docs/reference/scorecard.json, from which scorecard.md beside it is written; nothing was tuned on these seeds.
"""

import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from app.errors import ClusterflowError
from cluster import options
from cluster.cli import config_option
from cluster.load import load_cluster
from cluster.model import StoreSettings
from rules.evaluate.case_runs import NO_LOGIN
from simulate.scenarios.script import find_script, library, load_script
from simulate.stores import influxdb
from simulate.trial import Trial, run_trial
from store.influx import Store

SEEDS = (101, 102, 103)
"""Seeds that no limit was chosen by."""

REDUCED = ("dead-rail", "storage-bleed")
"""What CI runs, on the first seed: the shortest. Rules on security the demo's test stages live."""

FIGURES = Path("docs/reference/scorecard.json")
TABLE = Path("docs/reference/scorecard.md")

_HEAD = (
    "# Scorecard",
    "",
    "Written by `scripts/score` from [scorecard.json](scorecard.json): do not edit. Every scenario of",
    "`simulate/scenarios/` is played through bridge and analysis into a real InfluxDB, all rules are evaluated over",
    "all of it as a live Grafana would, and every alert is compared with the ground truth. *Delay* counts from the",
    "moment at which the evidence was complete by the cluster's own thresholds; *false* are alerts that nothing",
    "explains, near misses included.",
    "",
)

_LATER = 30.0
"""Seconds by which a median delay may grow before it counts as worse: three evaluations."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A rule in a trial, or in several.

    Attributes:
        due: alerts that had to come.
        found: those that came.
        false: alerts without a cause.
        delays: seconds from complete evidence to alert, one for each that was found.
    """

    due: int = 0
    found: int = 0
    false: int = 0
    delays: tuple[int, ...] = ()

    def __add__(self, other: "Cell") -> "Cell":
        """Return both together."""
        return Cell(
            self.due + other.due, self.found + other.found, self.false + other.false, (*self.delays, *other.delays)
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing was due and nothing fired."""
        return not (self.due or self.false)

    @property
    def delay(self) -> float | None:
        """Median of the delays; None where nothing was found."""
        return statistics.median(self.delays) if self.delays else None

    def json(self) -> dict[str, Any]:
        """Return it for the file."""
        return {"due": self.due, "found": self.found, "false": self.false, "delays": list(self.delays)}


@dataclass(frozen=True, slots=True)
class Row:
    """One trial.

    Attributes:
        scenario, seed: what was played.
        days: that were simulated.
        cells: its figures by rule.
        differences: totals that did not agree.
        text: hash of the scenario's file; empty where it was not noted yet.
    """

    scenario: str
    seed: int
    days: float
    cells: dict[str, Cell] = field(default_factory=dict)
    differences: int = 0
    text: str = ""

    @property
    def key(self) -> tuple[str, int, str]:
        """What must be the same for two rows to be comparable; a row without a hash compares with none."""
        return self.scenario, self.seed, self.text

    @property
    def total(self) -> Cell:
        """All rules together."""
        return sum(self.cells.values(), Cell())


def row_of(trial: Trial) -> Row:
    """Return the figures of a trial; rules that had nothing to say are left out."""
    cells = {
        one.rule: Cell(one.due, one.due - len(one.missed), len(one.false), tuple(sorted(one.first_delays())))
        for one in trial.scores
    }
    script = trial.script
    return Row(
        script.name,
        script.scenario.seed,
        round((script.end - script.start) / 86_400, 3),
        {rule: cell for rule, cell in cells.items() if not cell.is_empty},
        len(trial.reckoning.differences),
        text_of(script.path),
    )


def text_of(path: Path) -> str:
    """Return the hash of a scenario's file: its figures count as long as it stays as it is."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


# The file -----------------------------------------------------------------------------------------


def read(path: Path) -> list[Row]:
    """Return the rows of a file of figures; none where there is no such file."""
    if not path.is_file():
        return []
    return [
        Row(
            one["scenario"],
            one["seed"],
            one["days"],
            {
                rule: Cell(cell["due"], cell["found"], cell["false"], tuple(cell["delays"]))
                for rule, cell in one["rules"].items()
            },
            one["differences"],
            # Rows from before scenarios were hashed have none, and count as stale.
            one.get("text", ""),
        )
        for one in json.loads(path.read_text(encoding="utf-8"))["trials"]
    ]


def written(rows: Iterable[Row]) -> str:
    """Return the text of the file: a line a trial, so that a change shows in a diff."""
    lines = [
        json.dumps(
            {
                "scenario": row.scenario,
                "seed": row.seed,
                "days": row.days,
                "differences": row.differences,
                "text": row.text,
                "rules": {rule: cell.json() for rule, cell in sorted(row.cells.items())},
            }
        )
        for row in _ordered(rows)
    ]
    return '{"trials": [\n' + ",\n".join(lines) + "\n]}\n"


def current(rows: Iterable[Row], names: Container[str]) -> list[Row]:
    """Return the rows of scenarios that there still are."""
    return [row for row in rows if row.scenario in names]


def stale(rows: Iterable[Row], texts: Mapping[str, str], wanted: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return those of the wanted trials (scenario, seed) that have no row of the scenario as it is now."""
    known = {row.key for row in rows}
    return [(name, seed) for name, seed in wanted if (name, seed, texts[name]) not in known]


def _ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.scenario, row.seed))


def merged(before: Iterable[Row], fresh: Iterable[Row]) -> list[Row]:
    """Return all rows, fresh ones in place of those of the same scenario and seed."""
    found = {(row.scenario, row.seed): row for row in before} | {(row.scenario, row.seed): row for row in fresh}
    return _ordered(found.values())


# The table ----------------------------------------------------------------------------------------


def markdown(rows: Sequence[Row], titles: Mapping[str, str]) -> str:
    """Return docs/reference/scorecard.md."""
    total = sum((row.total for row in rows), Cell())
    days = sum(row.days for row in rows)
    weekly = total.false / (days / 7) if days else 0.0
    recall = f"{total.found / total.due:.1%}" if total.due else "nothing was due"
    seeds = sorted({row.seed for row in rows})
    counts = (
        f"{len(rows)} trials on the seeds {', '.join(map(str, seeds))}, {days:g} simulated days: {total.found} of "
        f"{total.due} alerts found ({recall}), {total.false} false ({weekly:.2f} a simulated week)."
    )
    lines = [
        *_HEAD,
        counts,
        "",
        "## By scenario",
        "",
        "| scenario | | trials | due | found | median delay | false |",
        "|---|---|---:|---:|---:|---:|---:|",
        *(_scenario_line(name, group, titles) for name, group in _grouped(rows)),
        "",
        "## By rule",
        "",
        "| rule | due | found | median delay | false | scenarios |",
        "|---|---:|---:|---:|---:|---|",
        *(_rule_line(rule, rows) for rule in sorted({rule for row in rows for rule in row.cells})),
        "",
        "## Scenario by rule",
        "",
        "found/due, and false alerts where there are any:",
        "",
        "| scenario | seed | |",
        "|---|---:|---|",
        *(_trial_line(row) for row in rows),
        "",
    ]
    return "\n".join(lines)


def _grouped(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for name in dict.fromkeys(row.scenario for row in rows):
        yield name, [row for row in rows if row.scenario == name]


def _scenario_line(name: str, rows: Sequence[Row], titles: Mapping[str, str]) -> str:
    total = sum((row.total for row in rows), Cell())
    return (
        f"| {name} | {titles.get(name, '')} | {len(rows)} | {total.due} | {_bold(total.found, total.due)} | "
        f"{_delay(total)} | {_bold(total.false, 0)} |"
    )


def _rule_line(rule: str, rows: Sequence[Row]) -> str:
    total = sum((row.cells[rule] for row in rows if rule in row.cells), Cell())
    names = dict.fromkeys(row.scenario for row in rows if rule in row.cells and row.cells[rule].due)
    return (
        f"| `{rule}` | {total.due} | {_bold(total.found, total.due)} | {_delay(total)} | {_bold(total.false, 0)} | "
        f"{', '.join(names)} |"
    )


def _trial_line(row: Row) -> str:
    cells = [
        f"`{rule}` {_bold(cell.found, cell.due)}/{cell.due}{f', **{cell.false} false**' if cell.false else ''}"
        for rule, cell in sorted(row.cells.items())
    ]
    cells += [f"**{row.differences} totals differ**"] if row.differences else []
    return f"| {row.scenario} | {row.seed} | {'; '.join(cells) or 'nothing fired'} |"


def _bold(number: int, wanted: int) -> str:
    """Return a number, and make it stand out where it is not what was wanted."""
    return str(number) if number == wanted else f"**{number}**"


def _delay(cell: Cell) -> str:
    return "" if cell.delay is None else f"{cell.delay:.0f} s"


# Worse --------------------------------------------------------------------------------------------


def worse(before: Sequence[Row], now: Sequence[Row]) -> list[str]:
    """Return, as lines, what got worse; trials that were not there before, or of another text, must be right."""
    known = {row.key: row for row in before if row.text}
    lines: list[str] = []
    for row in now:
        where = f"{row.scenario}, seed {row.seed}"
        earlier = known.get(row.key)
        if row.differences > (earlier.differences if earlier else 0):
            lines.append(f"{where}: {row.differences} totals differ from what was sent")
        for rule in sorted({*row.cells, *(earlier.cells if earlier else ())}):
            cell = row.cells.get(rule, Cell())
            lines += _worse_cell(f"{where}: {rule}", earlier.cells.get(rule, Cell()) if earlier else None, cell)
    return lines


def _worse_cell(where: str, before: Cell | None, now: Cell) -> Iterator[str]:
    if before is not None and now.due < before.due:
        yield f"{where}: {now.due} alerts due, {before.due} before"
    missed = now.due - now.found
    allowed = 0 if before is None else before.due - before.found
    if missed > allowed:
        yield f"{where}: {missed} of {now.due} alerts missed, {allowed} before"
    if now.false > (0 if before is None else before.false):
        yield f"{where}: {now.false} false alerts, {0 if before is None else before.false} before"
    if before is not None and before.delay is not None and now.delay is not None and now.delay > before.delay + _LATER:
        yield f"{where}: found after {now.delay:.0f} s, after {before.delay:.0f} s before"


# The command --------------------------------------------------------------------------------------


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seed", "seeds", type=click.IntRange(min=0), multiple=True, help=f"Default: {SEEDS}. May be repeated.")
@click.option("--reduced", is_flag=True, help="Only some short ones, on the first seed: what CI runs.")
@click.option("--missing", is_flag=True, help="Only trials that the file does not have of a scenario as it is now.")
@click.option("--check", is_flag=True, help="Write nothing; end with 1 if something is worse than in the file.")
@click.option("--table", is_flag=True, help="Run nothing; write the table from the file.")
@click.option(
    "--url",
    type=options.URL,
    metavar="URL",
    help="An InfluxDB, with the login of `store`. Default: one is started, and removed afterwards.",
)
@config_option("config")
def main(  # noqa: PLR0917 - click passes by name
    names: tuple[str, ...],
    seeds: tuple[int, ...],
    reduced: bool,  # noqa: FBT001 - click passes by name
    missing: bool,  # noqa: FBT001
    check: bool,  # noqa: FBT001
    table: bool,  # noqa: FBT001
    url: str | None,
    config: Path,
) -> None:
    """Run scenarios (all by default) on several seeds, and write scorecard.json and scorecard.md in docs/reference."""
    before = read(FIGURES)
    chosen = REDUCED if reduced else names or tuple(path.stem for path in library())
    for name in chosen:
        # That the last one is misspelt should show before hours of the others.
        find_script(name)
    wanted = [(name, seed) for name in chosen for seed in seeds or (SEEDS[:1] if reduced else SEEDS)]
    if missing:
        wanted = stale(before, {name: text_of(find_script(name)) for name in chosen}, wanted)
    fresh: list[Row] = []
    if not table:
        login = NO_LOGIN if url is None else load_cluster(config).store
        with influxdb(url) as address:
            for row in _trials(wanted, address, login):
                fresh.append(row)
                if not check:
                    # After every trial, over what is there now: hours of work must not be lost, nor another run's.
                    _write(merged(read(FIGURES), [row]))
    if not check:
        # Also where nothing had to run: rows of scenarios that there are no more go.
        _write(read(FIGURES))
    lines = worse(before, fresh)
    for line in lines:
        click.echo(f"worse: {line}")
    total = sum((row.total for row in fresh), Cell())
    click.echo(f"{len(fresh)} trials: {total.found} of {total.due} alerts found, {total.false} false")
    if lines and check:
        sys.exit(1)


def _write(rows: Sequence[Row]) -> None:
    titles = {path.stem: load_script(path).title for path in library()}
    rows = current(rows, titles)
    FIGURES.write_text(written(rows), encoding="utf-8")
    TABLE.write_text(markdown(rows, titles), encoding="utf-8")


def _trials(wanted: Iterable[tuple[str, int]], url: str, login: StoreSettings) -> Iterator[Row]:
    for name, seed in wanted:
        began = time.monotonic()
        script = load_script(find_script(name), seed=seed)
        with tempfile.TemporaryDirectory(prefix="clusterflow-score-") as folder:
            trial = run_trial(script, url, Path(folder), login=login, database="score")
        with Store(trial.cluster.store) as store:
            store.execute('DROP DATABASE "score"')
        row = row_of(trial)
        total = row.total
        click.echo(
            f"{name}, seed {seed}: {total.found} of {total.due} found, {total.false} false "
            f"({time.monotonic() - began:.0f} s)"
        )
        for line in trial.lines():
            if "MISSED" in line or "FALSE" in line or line.startswith("totals"):
                click.echo(f"    {line}")
        yield row


if __name__ == "__main__":
    try:
        main(standalone_mode=True)
    except ClusterflowError as error:
        for line in error.lines():
            click.echo(line, err=True)
        sys.exit(error.exit_code)
