"""``clusterflow analyze`` and ``clusterflow contacts``."""

import getpass
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import click
import polars as pl
from rich.console import Console
from rich.table import Table

from analysis.analyser import Analyser, AnalysisSettings, AnalysisStoppedError, Round
from analysis.contacts import DIGEST, FIRST_SEEN, NEW, ContactPolicy
from analysis.jobs import ClusterFileJobs
from analysis.state import AUDIT, State, exclusive
from cluster import schema
from cluster.cli import cluster_option
from cluster.errors import StoreError, UserError
from cluster.model import Cluster
from cluster.units import parse_duration
from ingest.logs import Log
from ingest.store import Store


class Moment(click.ParamType[float]):
    """A time: ISO 8601 (UTC unless it says otherwise), epoch seconds, ``now``, or so long ago: ``3d``, ``90m``."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return epoch seconds."""
        text = str(value).strip()
        if text == "now":
            return time.time()
        for read in (float, lambda ago: time.time() - float(parse_duration(ago))):
            with suppress(ValueError):
                return read(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text}: expected a time such as 2026-03-01T12:00, 1772366400, 3d (ago) or now", param, ctx)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class Duration(click.ParamType[float]):
    """A length of time such as ``5s``, ``90m``, ``1d``."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        if isinstance(value, int | float):
            return float(value)
        try:
            return float(parse_duration(str(value)))
        except ValueError:
            self.fail(f"{value}: expected a duration such as 5s, 90m or 1d", param, ctx)


@click.command()
@cluster_option
@click.option("--once", is_flag=True, help="Judge what has closed until now, and end.")
@click.option("--from", "start", type=Moment(), help="Judge a past range again, from this time ...")
@click.option("--to", "stop", type=Moment(), help="... to this one.  [default: now]")
@click.option("--every", type=Duration(), default="5s", show_default=True, help="Time between two rounds.")
@click.option(
    "--learn", type=Duration(), default="1d", show_default=True, help="History it takes to call a contact new."
)
@click.option("--json-log", is_flag=True, help="Log lines as JSON.")
def analyze(
    cluster: Cluster, once: bool, start: float | None, stop: float | None, every: float, learn: float, json_log: bool
) -> None:
    """Judge what the traffic means: job windows, nodes that drop out, first contacts.

    Reads closed windows from InfluxDB and writes its verdicts there, until it is stopped. With --from and --to it
    judges a past range again, with the same result, and leaves its own memory as it is: this may run beside a live
    analysis.
    """
    log = Log(as_json=json_log)
    stopping = threading.Event()
    _stop_on_signals(stopping)
    if every <= 0:
        raise UserError(f"--every {every:g}s: expected more than 0 seconds")
    settings = AnalysisSettings(contacts=ContactPolicy(learning=round(learn)))
    store = Store(cluster.store)
    folder = Path(cluster.bridge.state)

    def analyser(state: State) -> Analyser:
        return Analyser(
            cluster, store, state, ClusterFileJobs(cluster), log=log, settings=settings, is_stopping=stopping.is_set
        )

    try:
        if start is not None:
            with State.copy_of(folder) as state:
                now = time.time()
                _tell(log, "analysed", analyser(state).rerun(start, now if stop is None else stop, now))
            return
        if stop is not None:
            raise UserError("--to needs --from", "for example --from 3d --to now")
        with exclusive(folder), State.open(folder) as state:
            if state.broken:
                log.line("state_broken", what="analysis.sqlite cannot be read", moved_to=state.broken)
            if once:
                store.ensure(cluster.retentions())
                _tell(log, "analysed", analyser(state).tick(time.time()))
            else:
                _run(analyser(state), store, cluster, log, stopping, every)
    except AnalysisStoppedError:
        log.line("stopped")
    finally:
        store.close()


def _run(analyser: Analyser, store: Store, cluster: Cluster, log: Log, stopping: threading.Event, every: float) -> None:
    """Tick until asked to stop; a store that is away is tried again at the next tick."""
    log.line("started", cluster=cluster.name, store=store.url, jobs=len(cluster.jobs), every=every)
    is_prepared = False
    while not stopping.is_set():
        began = time.monotonic()
        try:
            if not is_prepared:
                store.ensure(cluster.retentions())
                is_prepared = True
            result = analyser.tick(time.time())
        except StoreError as error:
            log.sparse("store_trouble", why=" ".join(error.lines()))
        else:
            log.sparse("tick", **_numbers(result), seconds=time.monotonic() - began)
        stopping.wait(max(every - (time.monotonic() - began), 0.0))
    log.line("stopped")


def _tell(log: Log, event: str, result: Round) -> None:
    log.line(event, **_numbers(result))


def _numbers(result: Round) -> dict[str, object]:
    upto = datetime.fromtimestamp(result.judged, UTC).isoformat().replace("+00:00", "Z")
    return {"judged_until": upto, **{f"{name}_points": count for name, count in sorted(result.written.items())}}


def _stop_on_signals(stopping: threading.Event) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)


# -- contacts ---------------------------------------------------------------------------------------


@click.group()
def contacts() -> None:
    """List, acknowledge and forget first contacts with outside addresses."""


@contacts.command("list")
@cluster_option
@click.option("--new", "only_new", is_flag=True, help="Only those called new and not acknowledged.")
@click.option("--src", help="Only this source.")
@click.option("--since", type=Moment(), help="Only those first seen since then.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_contacts(cluster: Cluster, only_new: bool, src: str | None, since: float | None, as_json: bool) -> None:
    """Show every pair of source and outside destination ever seen, newest first."""
    with State.copy_of(Path(cluster.bridge.state)) as state:
        frame = state.contacts().join(state.decisions(), on=[schema.SRC, schema.DST], how="left")
    if only_new:
        frame = frame.filter(pl.col(NEW) == 1, pl.col("acked_at").is_null())
    if src:
        frame = frame.filter(pl.col(schema.SRC) == src)
    if since is not None:
        frame = frame.filter(pl.col(FIRST_SEEN) >= since)
    frame = frame.sort(FIRST_SEEN, schema.SRC, schema.DST, descending=[True, False, False])
    if as_json:
        for row in frame.iter_rows(named=True):
            click.echo(json.dumps(row))
        return
    if frame.is_empty():
        click.echo("no such contact: `clusterflow analyze` notes them as they happen", err=True)
        return
    table = Table("source", "destination", "group", "service", "first seen (UTC)", "state", box=None)
    for row in frame.iter_rows(named=True):
        service = f"{row[schema.PROTO]}/{row[schema.SERVICE]}" if row[schema.PROTO] else ""
        table.add_row(
            row[schema.SRC],
            row[schema.DST],
            cluster.title(row[schema.DST_GROUP]),
            service,
            _time(row[FIRST_SEEN]),
            _word(row),
        )
    # Addresses are to be copied, not cut: a narrow terminal wraps instead.
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _word(row: Mapping[str, object]) -> str:
    if row["acked_at"] is not None:
        return "acknowledged"
    if row[NEW] == 0:
        return "learned"
    return "new, in a storm" if row[DIGEST] else "new"


def _time(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(" ").removesuffix("+00:00")


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
    moment = int(time.time())
    with State.open(folder) as state:
        if not decide(state, src, dst, moment):
            raise UserError(f"no contact of {src} with {dst} was ever seen", "clusterflow contacts list shows all")
    entry = {
        "time": _time(moment) + "Z",
        "user": getpass.getuser(),
        "action": action,
        "src": src,
        "dst": dst,
        "note": note,
    }
    with (folder / AUDIT).open("a", encoding="utf-8") as audit:
        audit.write(json.dumps(entry) + "\n")
    click.echo(f"{src} -> {dst}: {'acknowledged' if action == 'ack' else 'forgotten'}")


COMMANDS: list[click.Command] = [analyze, contacts]
