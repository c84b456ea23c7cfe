"""``clusterflow jobs``: what every job source says now."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click
from rich.console import Console

from analysis.detectors.roles.role_watch import LOOK
from analysis.jobs.all_sources import JobSources, SourceState
from analysis.jobs.hostlist import compress
from analysis.jobs.job_show import look, print_shown
from analysis.jobs.job_windows import end_of, gpus_in, gpus_of
from analysis.jobs.register import Register
from analysis.jobs.sources.http import as_json
from app.errors import StoreError, UserError
from app.log import Log
from app.table import Table
from cluster.cli import cluster_file, cluster_option, config_option, loaded
from cluster.model import Cluster, HttpJobs, InferredJobs, Job
from cluster.options import Moment, json_option, write_output
from store.influx import Store
from store.schema_version import refuse_newer

_RECENT = 86_400
_PASSIVE = {HttpJobs.kind, InferredJobs.kind}
"""Sources that only a running analysis hears."""


@click.group(invoke_without_command=True)
@config_option("path")
@click.option("--all", "show_all", is_flag=True, help="Also jobs that ended more than a day ago.")
@json_option
@click.pass_context
def jobs(context: click.Context, path: Path, show_all: bool, json_to: str | None) -> None:
    """List the jobs of every source: files are read, Slurm and Kubernetes are queried, now.

    What was posted to the HTTP endpoint, and what was inferred from traffic, is as the running analysis on this machine
    has noted it. Ends with 1 if a source does not answer; its last known jobs are shown.
    """
    if context.invoked_subcommand:
        context.default_map = {context.invoked_subcommand: {"cluster": path}}
        return
    cluster, now = loaded(context, path), time.time()
    found, states = _known(cluster, now)
    chosen = [job for job in found if show_all or end_of(job) > now - _RECENT]
    gpus = gpus_of(cluster)
    if json_to:
        listed = [as_json(job) | {"gpus": gpus_in(job, gpus), "origin": job.origin} for job in chosen]
        document = {"jobs": listed, "sources": [_state(state) for state in states]}
        write_output(json_to, json.dumps(document, indent=2) + "\n")
    else:
        _show(chosen, states, gpus, now, cluster.site.time_zone, hidden=len(found) - len(chosen))
    if any(state.trouble for state in states):
        sys.exit(1)


@jobs.command()
@cluster_option
@click.argument("job_id", metavar="[JOB]", required=False)
@click.option("--from", "start", type=Moment(), help="Begin.  [default: ten minutes before the end]")
@click.option("--to", "stop", type=Moment(), help="End.  [default: now, or the job's end]")
@json_option
def show(cluster: Cluster, job_id: str | None, start: float | None, stop: float | None, json_to: str | None) -> None:
    """Show what traffic tells of JOB: stages, pairs, steps, who holds it up, and what cannot be known.

    Without JOB: of all running jobs, and of nodes that exchange much though no source knows their job. It is told from
    sFlow's single samples, which the bridge on this machine keeps for some hours (`archive.keep_samples`), each time
    anew; without any from the flow archive, which tells less.
    """
    now = time.time()
    found, states = _known(cluster, now)
    for state in states:
        if state.trouble:
            click.echo(f"{state.name}: {state.trouble} (its last known jobs are used)", err=True)
    end = now if stop is None else stop
    chosen = [job for job in found if job.id == job_id] if job_id else [job for job in found if _runs(job, end)]
    if job_id and not chosen:
        raise UserError(f"job {job_id}: no source knows it", "clusterflow jobs --all lists those that are known")
    if job_id:
        # Of runs with one id the newest.
        chosen = [max(chosen, key=lambda one: one.start)]
        end = min(end, end_of(chosen[0]))
    begin = end - LOOK if start is None else start
    if begin >= end:
        raise UserError("the period is empty", "--from must be before --to, and before the job's end")
    shown = look(cluster, chosen, begin, end, others=not job_id)
    if json_to:
        write_output(json_to, json.dumps({"jobs": [one.document() for one in shown]}, indent=2) + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False, emoji=False)
    for one in shown:
        print_shown(one, cluster.site.time_zone, console)
    if not shown:
        click.echo("no job runs, and no nodes exchange much", err=True)


def _runs(job: Job, moment: float) -> bool:
    return job.start.timestamp() < moment <= end_of(job)


def _known(cluster: Cluster, now: float) -> tuple[Sequence[Job], list[SourceState]]:
    """Return what every source tells now, and how they are."""
    with Store(cluster.store) as store, Register.copy_of(Path(cluster.bridge.state)) as register:
        # Where it does not answer, what sources say is shown all the same.
        with suppress(StoreError):
            refuse_newer(store)
        sources = JobSources(cluster, store, register, Log(quiet=True), path=cluster_file())
        # On another machine than the analysis', what was posted or inferred is known from the store alone.
        try:
            sources.rebuild()
        except StoreError as error:
            click.echo(f"{' '.join(error.lines())}: jobs that only the store knows are not shown", err=True)
        sources.refresh(now)
        return sources.jobs(), sources.states(now)


def _show(
    found: Iterable[Job],
    states: Iterable[SourceState],
    gpus: dict[str, int],
    now: float,
    zone: ZoneInfo,
    *,
    hidden: int,
) -> None:
    table = Table("job", "class", "nodes", "", "GPUs", f"start ({zone.key})", "end", "outcome", "origin", box=None)
    for column in (2, 4):
        table.columns[column].justify = "right"
    for job in sorted(found, key=lambda one: (one.start, one.id), reverse=True):
        end = "" if job.end is None else _time(job.end, zone)
        outcome = "running" if end_of(job) > now else job.outcome.value
        if job.start.timestamp() > now:
            outcome = "planned"
        number = gpus_in(job, gpus)
        counted = f"{len(job.nodes):,}", _short(job), f"{number:,}" if number else ""
        table.add_row(job.id, job.job_class, *counted, _time(job.start, zone), end, outcome, job.origin)
    # Ids are to be copied, not cut: a narrow terminal wraps instead.
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False, emoji=False)
    if table.row_count:
        console.print(table)
    else:
        click.echo("no job runs, and none ended in the last day")
    if hidden:
        click.echo(f"{hidden:,} that ended before are left out: --all shows them")
    for state in states:
        _tell(state)


def _tell(state: SourceState) -> None:
    """Say how a source is; a trouble goes to stderr."""
    text = f"{state.name}: {state.known:,} known, {state.running:,} running"
    if state.strangers:
        text += f"; nodes that the inventory does not know, left out: {compress(state.strangers)[:200]}"
    if not state.known and state.kind in _PASSIVE:
        text += "; `clusterflow analyze` notes them while it runs"
    click.echo(text)
    if state.trouble:
        click.echo(f"{state.name}: {state.trouble} (its last known jobs are shown)", err=True)


def _state(state: SourceState) -> dict[str, Any]:
    return {
        "name": state.name,
        "type": state.kind,
        "ok": not state.trouble,
        "trouble": state.trouble,
        "known": state.known,
        "running": state.running,
        "unknown_nodes": list(state.strangers),
    }


def _short(job: Job) -> str:
    text = compress(job.nodes)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _time(moment: datetime, zone: ZoneInfo) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S")
