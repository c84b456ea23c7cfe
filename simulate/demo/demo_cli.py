"""The command ``clusterflow demo``: what scripts/run starts."""

import sys
from pathlib import Path

import click
from rich.console import Console

from cluster.cli import DEFAULT_FILE
from cluster.load import load_cluster
from simulate.demo import screen
from simulate.demo.demo_grafana import find_grafana
from simulate.demo.live import Demo, Outcome
from simulate.demo.plan import HISTORY_DAYS
from simulate.scenarios.script import find_script
from simulate.truth.delivered import Account
from simulate.truth.reckoning import Reckoning

_SHOWN = 20
_INTERRUPTED = 130


@click.command()
@click.option(
    "--config", "-c", "base", type=click.Path(path_type=Path), default=DEFAULT_FILE, show_default=True, metavar="FILE",
    help="The cluster to simulate.",
)  # fmt: skip
@click.option("--for", "seconds", type=click.IntRange(min=10), metavar="SECONDS", help="End by itself after this long.")
@click.option(
    "--days",
    type=click.IntRange(2, 6),
    default=HISTORY_DAYS,
    show_default=True,
    help="Days of history to fill in first.",
)
@click.option("--scenario", metavar="NAME|FILE", help="Play one of `clusterflow simulate --list`, or a file, live.")
@click.option("--seed", type=int, help="Of everything that is drawn at random. Default: 1, or what the scenario says.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), default=Path("var/demo"), show_default=True,
    help="Where the run keeps everything; emptied first.",
)  # fmt: skip
@click.option("--cloud", is_flag=True, help="The records are AWS VPC flow logs in a folder, not packets: no nfacctd.")
@click.option("--no-grafana", is_flag=True, help="Do not start Grafana, though there is one.")
def demo(
    base: Path,
    seconds: int | None,
    days: int,
    scenario: str | None,
    seed: int | None,
    folder: Path,
    cloud: bool,
    no_grafana: bool,
) -> None:
    """Run a simulated AI cluster live: exporters, nfacctd, bridge, InfluxDB, analysis, alerts, delivery.

    Fills in some days of history, then sends real NetFlow, IPFIX and sFlow packets with incidents among them, evaluates
    the alert rules and shows what happens. At the end it compares what the store holds with what was sent, to the byte,
    the alerts with the incidents, and what was delivered with the alerts. ^C ends it early, in order.

    With --cloud the cluster runs in a cloud: its interfaces log by the minute, and alerts are two minutes later.

    A scenario is played on its own cluster: its time before the first incident is the history, and
    the rest happens now. See any board and alert with what it is for.

    Exit code 0: everything agrees. 1: something does not.
    """
    if scenario is not None and cloud:
        raise click.UsageError("--scenario: not with --cloud, for scenarios are played as packets")
    # What cannot be is told before anything starts.
    if scenario is not None:
        find_script(scenario)
    else:
        load_cluster(base)
    console = Console()
    run = Demo(
        base,
        folder,
        seconds=seconds,
        days=days,
        seed=seed,
        grafana=None if no_grafana else find_grafana(),
        console=console,
        is_cloud=cloud,
        scenario=scenario,
    )
    outcome = run.run()
    if outcome is None:
        click.echo("stopped before anything was live: nothing to compare")
        sys.exit(_INTERRUPTED)
    for line in summary(outcome):
        click.echo(line)
    sys.exit(0 if outcome.is_right else 1)


def summary(outcome: Outcome) -> list[str]:
    """Return the end of a run in words."""
    lines = ["", "totals, sent against stored:"]
    for name, reckoning in (("history", outcome.history), ("live", outcome.live)):
        lines += _totals(name, reckoning)
    lines += ["", f"alerts: {len(outcome.firings)} fired"]
    for firing in outcome.firings:
        cause = "NOT STAGED" if firing.cause is None else f"{firing.cause.incident}, found after {firing.delay} s"
        lines += [f"  {screen.alert_line(firing)}", f"           {cause}"]
    lines += [f"  MISSED {name}" for name in outcome.missing]
    lines += ["", *_delivered(outcome.delivered)]
    lines += ["", "everything agrees" if outcome.is_right else "NOT everything agrees: see above"]
    return lines


def _totals(name: str, reckoning: Reckoning) -> list[str]:
    wrong = reckoning.differences
    verdict = "all equal" if not wrong else f"{len(wrong)} DIFFER"
    line = f"  {name:8} {reckoning.sent_bytes:,} B sent, {reckoning.stored_bytes:,} B stored; "
    more = [f"           and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
    return [
        f"{line}{reckoning.checked} totals compared (group pairs, nodes, transfers): {verdict}",
        *(f"           {difference}" for difference in wrong[:_SHOWN]),
        *more,
    ]


def _delivered(account: Account) -> list[str]:
    wrong = account.differences
    in_full = "; the exfiltration with names, user, place, network, feed, bytes and duration as staged"
    as_shown = ", with source, destination, bytes and duration as in the terminal"
    verdict = f"each alert once{in_full if account.texts else ''}"
    more = [f"  and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
    return [
        f"delivered: {account.events} events, {account.alerts} of them alerts that began, in {account.path}",
        f"  {len(wrong)} DIFFER" if wrong else f"  {verdict}",
        f"  the wall's table: {account.shown} alerts{'' if wrong else as_shown}",
        *(f"  {difference}" for difference in wrong[:_SHOWN]),
        *more,
        *(f"  the alert in words: {text}" for text in account.texts),
    ]
