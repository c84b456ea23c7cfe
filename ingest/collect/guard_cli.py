"""The command that guards an nfacctd of somebody else: a collector that has no right to guard its own."""

import time
from contextlib import suppress

import click

from app.errors import ClusterflowError
from app.log import Log
from app.signals import SignalEvent
from cluster.cli import cluster_option
from cluster.model import Cluster
from ingest.collect.guard import Guard, GuardError
from ingest.collect.guard_teller import Teller
from ingest.collect.sockets import owners, udp_sockets
from ingest.collect.trouble_file import GUARDS, GUARDS_TAGS, Troubles
from ingest.collect.vlan_watch import VlanWatch
from ingest.read.spool_place import spool_folder

_LOOK_SECONDS = 0.2


@click.command()
@cluster_option
@click.option("--json-log", is_flag=True, help="Log JSON lines.")
def guard(cluster: Cluster, *, json_log: bool) -> None:
    """Keep datagrams that kill from nfacctd, until ^C or SIGTERM.

    \b
    `clusterflow collect` does so itself where it has CAP_BPF. In its systemd unit it has no rights at all:
    this runs beside it, as root. A filter that is in place stays until nfacctd ends. It also finds sFlow samples with
    two VLAN tags, which sfacctd drops silently.
    """  # noqa: D301 - \b is click's mark for "keep these lines"
    log, stopped = Log(as_json=json_log), SignalEvent.of_stop()
    port = cluster.collector.netflow_port
    try:
        filter_ = Guard(port)
    except GuardError as error:
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
        for pid in owners(inodes - known):
            if filter_.protect(pid):
                log.line("socket_guarded", pid=pid, port=port)
                known |= inodes
                break
        known &= inodes
    filter_.close()
    if watch is not None:
        watch.close()
