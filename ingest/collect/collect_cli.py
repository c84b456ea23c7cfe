"""``clusterflow collect``; ``clusterflow guard``, for an nfacctd that has no right to guard its own socket."""

import time
from contextlib import suppress
from pathlib import Path

import click

from app.errors import ClusterflowError
from app.log import Log
from app.signals import SignalEvent
from cluster.cli import cluster_option
from cluster.model import Cluster
from cluster.options import log_option
from cluster.reload import ignore_hangups
from ingest.collect import quick_printf
from ingest.collect.daemon_load import DaemonLoad
from ingest.collect.kernel.bpf import BpfError
from ingest.collect.kernel.guard import Guard, Teller
from ingest.collect.kernel.sockets import inodes_of, owners, udp_sockets
from ingest.collect.kernel.vlan_watch import VlanWatch
from ingest.collect.pmacct import collector_files, receive_buffer_advice
from ingest.collect.supervise import Collector
from ingest.collect.trouble_file import GUARDS, GUARDS_TAGS, Troubles
from ingest.read.spool_place import spool_folder

_RUN_FOLDER = ".collect"
_POLL_SECONDS = 1.0
_SUMMARY_SECONDS = 60.0


@click.command()
@cluster_option
@click.option("--print-config", is_flag=True, help="Show the daemons' configuration; start nothing.")
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for their configuration and logs.  [default: .collect in the spool]",
)
@log_option
def collect(cluster: Cluster, *, print_config: bool, run_dir: Path | None, log: Log) -> None:
    """Run nfacctd and sfacctd for this cluster, until ^C or SIGTERM.

    \b
    They listen to the ports and exporters of cluster.yaml and write flow records to its spool.
    One that dies is started again. What they or the kernel lose is logged.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    spool = spool_folder(cluster).resolve()
    run_folder = (run_dir or spool / _RUN_FOLDER).resolve()
    if print_config:
        shares = cluster.collector.netflow_daemons or DaemonLoad(spool).daemons(cluster)
        is_fast = cluster.collector.fast_printing and quick_printf.LIBRARY.can_be_had(run_folder)
        files = collector_files(cluster, run_folder, spool, is_rotated=True, is_fast=is_fast, shares=shares)
        for name, text in files.items():
            click.echo(f"! ---- {run_folder / name}\n{text}")
        return
    advice = receive_buffer_advice()
    if advice:
        log.warning("socket_buffer_limited", advice=advice)
    stopped = SignalEvent.of_stop()
    ignore_hangups(log, stopped, "collect", "what exporters send in the second between is lost")
    while not stopped.is_set():
        with Collector(cluster, run_folder, spool=spool, log=log.line) as collector:
            log.line("collecting", spool=spool, run=run_folder)
            _look_after(collector, stopped, log)


def _look_after(collector: Collector, stopped: SignalEvent, log: Log) -> None:
    """Run the daemons until a signal, or until more are needed: a restart loses seconds, a full queue all along."""
    collector.measure()
    due = time.monotonic() + _SUMMARY_SECONDS
    while not stopped.wait(_POLL_SECONDS):
        collector.poll()
        if time.monotonic() >= due:
            due += _SUMMARY_SECONDS
            collector.measure()
            _summary(log, collector)
            if collector.is_outgrown:
                log.warning("daemons_outgrown", hint="a full queue loses records: restarting with more nfacctd")
                return
    _summary(log, collector)


def _summary(log: Log, collector: Collector) -> None:
    """Write one line on how it goes."""
    values: dict[str, object] = {}
    for title, counts in (
        ("restarts", collector.restarts),
        ("dropped", collector.dropped()),
        ("complaints", collector.complaints),
        ("discarded", collector.discarded),
    ):
        values |= {f"{daemon}_{title}": count for daemon, count in counts.items()}
    log.line("collector_totals", **values, nfacctd_cores=round(collector.load.now, 2))


_LOOK_SECONDS = 0.2


@click.command()
@cluster_option
@log_option
def guard(cluster: Cluster, *, log: Log) -> None:
    """Keep datagrams that kill from nfacctd, until ^C or SIGTERM.

    \b
    `clusterflow collect` does so itself where it has CAP_BPF. In its systemd unit it has no rights at all:
    this runs beside it, as root. A filter that is in place stays until nfacctd ends. It also finds sFlow samples with
    two VLAN tags, which sfacctd drops silently.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    stopped = SignalEvent.of_stop()
    port = cluster.collector.netflow_port
    try:
        filter_ = Guard(port)
    except BpfError as error:
        raise ClusterflowError(f"guard: {error}", "run it as root, outside of a container") from error
    teller = Teller(cluster, Troubles(spool_folder(cluster), time.time, GUARDS), log.line)
    watch = None
    with suppress(OSError):
        watch = VlanWatch(cluster, Troubles(spool_folder(cluster), time.time, GUARDS_TAGS))
    log.line("guarding", port=port, names_senders=filter_.names_senders)
    known: set[int] = set()
    while not stopped.wait(_LOOK_SECONDS):
        teller.tell(filter_)
        if watch is not None:
            watch.look(time.monotonic())
        inodes = {one.inode for one in udp_sockets(port)}
        # A daemon's children have its sockets, too.
        for pid in owners(inodes - known):
            fresh = inodes & inodes_of(pid) - known
            if fresh and filter_.protect(pid):
                log.line("socket_guarded", pid=pid, port=port)
                known |= fresh
        known &= inodes
    filter_.close()
    if watch is not None:
        watch.close()
