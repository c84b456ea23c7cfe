"""``clusterflow analyze`` and ``clusterflow contacts``."""

import getpass
import json
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
import polars as pl
from rich.console import Console

from analysis.analyser import Analyser, AnalysisStoppedError, Round
from analysis.detectors.egress.contacts import DIGEST, FIRST_SEEN, NEW
from analysis.detectors.egress.late_matches import LateSearch, LateSearching
from analysis.detectors.roles.role_watch import RoleLook, RoleWatching
from analysis.jobs.all_sources import JobSources, stored_jobs
from analysis.jobs.job_windows import ClusterFileJobs
from analysis.jobs.register import Register
from analysis.state import AUDIT, State, exclusive
from app.errors import ClusterflowError, StoreError, UserError
from app.log import Log
from app.signals import SignalEvent
from app.sqlite_file import remedy
from app.table import Table
from app.time_options import Duration
from app.units import format_local, format_moment
from cluster.cli import cluster_file, cluster_option
from cluster.model import Cluster
from cluster.options import Moment, json_option, log_option, write_output
from cluster.reload import Reload, ignore_hangups
from enrichment.addresses.host_files import as_stored
from store import schema, schema_version
from store.influx import Store
from store.lease import Lease, refuse_once
from store.points import batches

__all__ = ["Duration", "analyze", "contacts"]

_FOLLOW_SECONDS = 300
"""Time between two looks whether inventory sources told of other nodes: to take them up costs a start."""

_FOLLOW_JOBS_SECONDS = 60
"""Time between two looks of a stand-by at where jobs stand."""

_CLOCK_SECONDS = 60
"""For so long a host that has just booted may be behind, until NTP sets it: nothing is taken back meanwhile."""

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@click.command()
@cluster_option
@click.option("--once", is_flag=True, help="Judge what has closed until now, and end.")
@click.option("--from", "start", type=Moment(), help="Judge a past range again, from this time ...")
@click.option("--to", "stop", type=Moment(), help="... to this one.  [default: now]")
@click.option("--every", type=Duration(), default="5s", show_default=True, help="Time between two rounds.")
@log_option
def analyze(cluster: Cluster, once: bool, start: float | None, stop: float | None, every: float, log: Log) -> None:
    """Judge what the traffic means: job windows, nodes that drop out, first contacts.

    Reads closed windows from InfluxDB and writes its verdicts there, until it is stopped. With --from and --to it
    judges a past range again, with the same result, and leaves its own memory as it is: this may run beside a live
    analysis.
    """
    stopping = SignalEvent.of_stop()
    ignore_hangups(log, stopping, "analyze", "it goes on where it was")
    if once:
        refuse_once(cluster.store)
    if every <= 0:
        raise UserError(f"--every {every:g}s: expected more than 0 seconds")
    now = time.time()
    end = _end(start, stop, now)
    try:
        if start is None:
            _live(cluster, log, stopping, every, once=once)
        else:
            _again(cluster, log, stopping, start, end, now)
    except AnalysisStoppedError:
        log.line("stopped")


def _again(cluster: Cluster, log: Log, stopping: threading.Event, start: float, end: float, now: float) -> None:
    """Judge a past range. It writes what the live analysis wrote, or would: it need not lead."""
    folder = Path(cluster.bridge.state)
    with (
        closing(Store(cluster.store)) as store,
        State.copy_of(folder) as state,
        Register.copy_of(folder) as register,
    ):
        sources = JobSources(cluster, store, register, log, check=_check_of(stopping.is_set))
        again = Analyser(cluster, store, state, sources, log=log, is_stopping=stopping.is_set)
        # Before anything is asked: a range that cannot be judged should not hide behind a store that is away.
        again.past(start, end, now)
        schema_version.refuse_newer(store)
        sources.rebuild()
        sources.refresh(now)
        _tell(log, "analysed", again.rerun(start, end, now))


def _live(cluster: Cluster, log: Log, stopping: threading.Event, every: float, *, once: bool) -> None:
    """Judge what closes, until this is stopped; or once."""
    folder, path = Path(cluster.bridge.state), cluster_file()
    lease = Lease(cluster.store, "analyze", folder, log, stopping)
    with (
        closing(Store(cluster.store, may_write=lease.leads)) as store,
        exclusive(folder),
        State.open(folder) as state,
        Register.open(folder) as register,
    ):
        if state.broken:
            log.error("state_broken", what="analysis.sqlite cannot be read", moved_to=state.broken)

        def made(fresh: Cluster) -> _Judging:
            if lease.is_new:
                state.forget_all()
                register.forget_all()
                lease.is_new = False
            sources = JobSources(fresh, store, register, log, path=path, check=_check_of(lease.ends))
            analyser = Analyser(
                fresh,
                store,
                state,
                sources,
                log=log,
                is_stopping=lease.ends,
                folder=folder,
                patience=0 if once else _CLOCK_SECONDS,
            )
            return analyser, sources

        def following() -> Analyser:
            known, ends = ClusterFileJobs(cluster), lambda: not lease.stands_by()
            return Analyser(cluster, store, state, known, log=log, is_stopping=ends, folder=folder)

        if once:
            analyser, sources = made(cluster)
            _prepare(store, cluster, log)
            _tell(log, "analysed", _round(analyser, sources, store))
            analyser.rest()
            LateSearch(cluster, store, folder, log, patience=0).look()
            roles = RoleLook(cluster, store)
            roles.jobs = sources.jobs()
            roles.look()
            return
        reload = Reload(path, lambda fresh: fresh, log, look_every=_FOLLOW_SECONDS)
        with lease:
            _follow(cluster, store, folder, log, lease, every, reload, made, following)


def _prepare(store: Store, cluster: Cluster, log: Log) -> None:
    def tell(step: str) -> None:
        log.line("migrating", what=step)

    # A bridge that works off older records may have lengthened one.
    retentions = tuple(replace(one, at_least=True) for one in cluster.retentions())
    schema_version.prepare(store, retentions, may_migrate=False, tell=tell)


def _check_of(ends: Callable[[], bool]) -> Callable[[], None]:
    def check() -> None:
        if ends():
            raise AnalysisStoppedError("stopped")

    return check


def _end(start: float | None, stop: float | None, now: float) -> float:
    """Return the end of the range to judge again; UserError where it is none."""
    if start is None and stop is not None:
        raise UserError("--to needs --from", "for example --from 3d --to now")
    end = now if stop is None else stop
    if start is not None and end <= start:
        raise UserError("the period is empty", "--from must be before --to")
    return end


_Judging = tuple[Analyser, JobSources]


def _follow(
    cluster: Cluster,
    store: Store,
    folder: Path,
    log: Log,
    lease: Lease,
    every: float,
    reload: Reload,
    made: Callable[[Cluster], _Judging],
    following: Callable[[], Analyser],
) -> None:
    """Judge whenever this process leads, until it is asked to stop."""
    while _waited(lease, store, log, following):
        judging: _Judging | None = made(cluster)
        while judging is not None:
            cluster = judging[1].cluster
            beside = LateSearching(cluster, store, folder, log), RoleWatching(cluster, store, log)
            try:
                judging = _run(judging, beside, store, log, lease, every, reload, made)
            except AnalysisStoppedError:
                judging = None
    log.line("stopped")


def _waited(lease: Lease, store: Store, log: Log, following: Callable[[], Analyser]) -> bool:
    """Wait until this process leads, and keep up with where jobs stand until then; False if it is to end."""
    analyser: Analyser | None = None
    while lease.wait(_FOLLOW_JOBS_SECONDS) and lease.stands_by():
        try:
            analyser = analyser or following()
            analyser.follow(time.time(), stored_jobs(store))
        except StoreError as error:
            log.sparse("store_failed", why=" ".join(error.lines()))
        except sqlite3.DatabaseError as error:
            _tell_unsaved(error, log)
        except AnalysisStoppedError:
            break
    if analyser is not None:
        analyser.rest()
    return lease.wait()


def _run(
    judging: _Judging,
    beside: tuple[LateSearching, RoleWatching],
    store: Store,
    log: Log,
    lease: Lease,
    every: float,
    reload: Reload,
    made: Callable[[Cluster], _Judging],
) -> _Judging | None:
    """Tick until asked to stop, or no longer leading, or until sources tell of other nodes: return what judges these.

    A store or a job source that is away is tried again at the next tick.
    """
    analyser, sources = judging
    sources.start()
    names = ", ".join(state.name for state in sources.states(time.time())) or "none"
    log.line("started", cluster=sources.cluster.name, store=store.url, job_sources=names, every=every)
    searching, roles = beside
    is_prepared = False
    others: _Judging | None = None
    try:
        while not lease.ends() and others is None:
            began = time.monotonic()
            try:
                if not is_prepared:
                    _prepare(store, sources.cluster, log)
                    is_prepared = True
                    # Not before: it reads and writes by itself, also a store that is not of our schema, or not yet.
                    searching.start()
                    roles.start()
                result = _round(analyser, sources, store)
                roles.know(sources.jobs())
            except StoreError as error:
                log.sparse("store_failed", why=" ".join(error.lines()))
            except sqlite3.DatabaseError as error:
                _tell_unsaved(error, log)
            else:
                log.sparse("tick", level="info", **_numbers(result), seconds=time.monotonic() - began)
            lease.stopping.wait(max(every - (time.monotonic() - began), 0.0))
            fresh = reload.asked(sources.cluster)
            if fresh is not None and fresh != sources.cluster:
                # By now the file may name a secret that this process was never given.
                with reload.refusing():
                    others = made(fresh)
    finally:
        analyser.rest()
        searching.stop()
        roles.stop()
        sources.stop()
    if others is None or lease.ends():
        return None
    reload.taken_up(sources.cluster, others[1].cluster)
    return others


def _tell_unsaved(error: sqlite3.DatabaseError, log: Log) -> None:
    """Tell that the state was not saved: it is tried again. ClusterflowError where its file is damaged."""
    if isinstance(error, sqlite3.OperationalError):
        # What was not saved is judged again with the next tick, as after a crash.
        hint = remedy(error) or "please report it"
        log.sparse("state_not_saved", why=f"a file in bridge.state: {error}", hint=f"{hint}; tried again")
        return
    if error.sqlite_errorcode & 0xFF not in _DAMAGED:
        raise error
    # Tried again it would be as damaged; whoever starts us again has it moved aside.
    raise ClusterflowError(
        f"a file in the state folder is damaged: {error}",
        "start the analysis again: it moves the file aside and rebuilds it from the store",
    ) from error


def _round(analyser: Analyser, sources: JobSources, store: Store) -> Round:
    """Ask who runs what, judge, and note how the job sources are."""
    sources.rebuild()
    sources.refresh(time.time())
    result = analyser.tick(time.time())
    for lines, _ in batches(schema.PIPELINE, sources.readings(time.time())):
        store.write(lines, schema.RAW)
    return result


def _tell(log: Log, event: str, result: Round) -> None:
    log.line(event, **_numbers(result))


def _numbers(result: Round) -> dict[str, object]:
    return {
        "judged_until": format_moment(result.judged),
        **{f"{name}_points": count for name, count in sorted(result.written.items())},
    }


# -- contacts ---------------------------------------------------------------------------------------


@click.group()
def contacts() -> None:
    """List, acknowledge and forget first contacts with outside addresses."""


@contacts.command("list")
@cluster_option
@click.option("--new", "only_new", is_flag=True, help="Only those called new and not acknowledged.")
@click.option("--src", help="Only this source.")
@click.option("--from", "start", type=Moment(), help="Only those first seen since then.")
@json_option
def list_contacts(cluster: Cluster, only_new: bool, src: str | None, start: float | None, json_to: str | None) -> None:
    """Show every known pair of source and outside destination, newest first."""
    with State.copy_of(Path(cluster.bridge.state)) as state:
        seen = state.contacts(None if start is None else int(start))
        frame = seen.join(state.decisions(), on=[schema.SRC, schema.DST], how="left")
    if only_new:
        frame = frame.filter(pl.col(NEW) == 1, pl.col("acked_at").is_null())
    if src:
        frame = frame.filter(pl.col(schema.SRC) == as_stored(src))
    if start is not None:
        frame = frame.filter(pl.col(FIRST_SEEN) >= start)
    frame = frame.sort(FIRST_SEEN, schema.SRC, schema.DST, descending=[True, False, False])
    if json_to:
        write_output(json_to, "".join(f"{json.dumps(row)}\n" for row in frame.iter_rows(named=True)))
        return
    if frame.is_empty():
        click.echo("no such contact: `clusterflow analyze` notes them as they happen", err=True)
        return
    zone = cluster.site.time_zone
    table = Table("source", "destination", "group", "service", f"first seen ({zone.key})", "state", box=None)
    for row in frame.iter_rows(named=True):
        service = f"{row[schema.PROTO]}/{row[schema.SERVICE]}" if row[schema.PROTO] else ""
        table.add_row(
            row[schema.SRC],
            row[schema.DST],
            cluster.title(row[schema.DST_GROUP]),
            service,
            format_local(row[FIRST_SEEN], zone),
            _word(row),
        )
    # Addresses are to be copied, not cut: a narrow terminal wraps instead.
    Console(width=None if sys.stdout.isatty() else 200, markup=False, emoji=False).print(table)


def _word(row: Mapping[str, object]) -> str:
    if row["acked_at"] is not None:
        return "acknowledged"
    if row[NEW] == 0:
        return "learned"
    return "new, in a storm" if row[DIGEST] else "new"


@contacts.command()
@cluster_option
@click.argument("src")
@click.argument("dst")
@click.option("--note", default="", help="Why, for the audit log.")
def ack(cluster: Cluster, src: str, dst: str, note: str) -> None:
    """Take the contact of SRC with DST for known: it raises no alert any more."""
    _decide(cluster, "ack", src, dst, note, State.acknowledge)


@contacts.command()
@cluster_option
@click.argument("src")
@click.argument("dst")
@click.option("--note", default="", help="Why, for the audit log.")
def forget(cluster: Cluster, src: str, dst: str, note: str) -> None:
    """Take the contact of SRC with DST for never seen: the next one is a first contact again."""
    _decide(cluster, "forget", src, dst, note, State.forget)


def _decide(
    cluster: Cluster, action: str, src: str, dst: str, note: str, decide: Callable[[State, str, str, int], bool]
) -> None:
    folder = Path(cluster.bridge.state)
    src, dst, moment = as_stored(src), as_stored(dst), int(time.time())
    with State.open(folder) as state:
        if not decide(state, src, dst, moment):
            raise UserError(f"no contact of {src} with {dst} was ever seen", "clusterflow contacts list shows all")
    entry = {
        "time": datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%SZ"),
        "user": getpass.getuser(),
        "action": action,
        "src": src,
        "dst": dst,
        "note": note,
    }
    with (folder / AUDIT).open("a", encoding="utf-8") as audit:
        audit.write(json.dumps(entry) + "\n")
    click.echo(f"{src} -> {dst}: {'acknowledged' if action == 'ack' else 'forgotten'}")
