"""Generate what nfacctd (NetFlow, IPFIX) and sfacctd (sFlow) need to run: configuration, allow list, numbering.

Sizes were measured with pmacct 1.7.7 at 200,000 flows/s on two cores without a loss. What is *not* set matters as much:

- ``plugin_buffer_size`` stays at its default, one record. With a larger buffer the core keeps records back until it is
  full: a quiet exporter's flows would wait for minutes. It costs nothing measurable at 200,000 flows/s. And
  ``plugin_pipe_size`` over the buffer size must be no multiple of 65,536, where the queue's sequence numbers wrap: with
  256 MiB and 1,024 or 4,096 nfacctd printed up to twice as many records as it got, without a word.
- ``print_history`` and ``nfacctd_pro_rating`` stay off: the bridge spreads a flow over its windows itself, and twice is
  wrong. File names rotate without ``print_history``, whatever CONFIG-KEYS says: they tell the time of the purge.
- ``nfacctd_renormalize`` stays off: the bridge multiplies by the sampling rate, and once is enough. Renormalising also
  turns counters into zeros where nfacctd did not understand the exporter's rate, without a line in the log.
- ``sampling_map`` stays off: the bridge knows the rates that cluster.yaml fixes. pmacct would read 384 of them, and
  sfacctd would take that of one IPv6 agent for all agents of its /32 (``sfv245_check_status``).
- Purges overlap without harm: each writer opens the file with O_APPEND and holds a write lock until it is done.
- Every record is looked for among those printed since the last purge that share its bucket of the cache, one after the
  other: at 200,000 flows/s twice the buckets and half the time between purges take an eighth off a flow's cost.
"""

import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from cluster.allow_list import allow_lines, overlong, senders
from cluster.model import Cluster, Exporter, ExportProtocol
from ingest.collect import counter_files, template_file
from ingest.collect.flow_files import link_of
from ingest.read import numbered

RECEIVE_BUFFER = 64 << 20
"""Bytes of socket buffer: what arrives at 200,000 flows/s while the daemon is off the processor for a second."""

_RMEM_MAX = Path("/proc/sys/net/core/rmem_max")
_PLUGIN_PIPE = 256 << 20
_CACHE_ENTRIES = 32_771
_WRITERS = 60
"""A purge a second: as many as wait for a disk that stands still for a minute."""

_AGGREGATE = (
    "tag2", "peer_src_ip", "in_iface", "out_iface", "src_host", "dst_host", "src_port", "dst_port", "proto",
    "tcpflags", "tos", "sampling_rate", "timestamp_start", "timestamp_end", "timestamp_arrival", "export_proto_seqno",
    "export_proto_version", "export_proto_sysid", "flows",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Daemon:
    """One of pmacct's two daemons.

    Attributes:
        name: its command, and the prefix of its own configuration keys.
        protocol: what it decodes.
        prefix: how the names of its spool files begin.
        label: what people know it by, and how the names of its own files begin.
        share: which of the exporters are its own, where several share them (`split.share_of`).
    """

    name: str
    protocol: ExportProtocol
    prefix: str
    label: str
    share: int = 0

    def port(self, cluster: Cluster) -> int:
        """Return the UDP port it listens to."""
        collector = cluster.collector
        return collector.netflow_port if self.protocol is ExportProtocol.NETFLOW else collector.sflow_port

    def exporters(self, cluster: Cluster) -> tuple[Exporter, ...]:
        """Return the exporters that send to it."""
        return tuple(exporter for exporter in cluster.exporters if exporter.protocol is self.protocol)


NFACCTD = Daemon("nfacctd", ExportProtocol.NETFLOW, "nfacct-", "nfacctd")
SFACCTD = Daemon("sfacctd", ExportProtocol.SFLOW, "sfacct-", "sfacctd")


_SCRATCH = ".copy"
_TEMPLATE_EXPORTERS = 100
"""With so many, of three templates each, one that is repeated takes nfacctd 1.3 ms: a quarter of a core where 100,000
flows/s come, 24 a datagram, and templates with every 20th."""

_MALLOC_STEP, _MALLOC_HEADER = 16, 8


def daemons(cluster: Cluster, shares: int = 1) -> tuple[Daemon, ...]:
    """Return the daemons that the cluster's exporters need, nfacctd so many times; both if it lists no exporter."""
    # A reader takes names that are alike up to the first digit for those of one writer: letters tell them apart.
    further = (
        replace(NFACCTD, prefix=f"nfacct-{chr(ord('a') + share)}-", label=f"nfacctd-{share + 1}", share=share)
        for share in range(1, shares)
    )
    wanted = NFACCTD, *further, SFACCTD
    return tuple(daemon for daemon in wanted if not cluster.exporters or daemon.exporters(cluster))


def collector_files(
    cluster: Cluster,
    folder: Path,
    spool: Path | None = None,
    *,
    is_rotated: bool = False,
    is_fast: bool = False,
    shares: int = 1,
) -> dict[str, str]:
    """Return the files of the daemons that the cluster needs: name -> text.

    Args:
        cluster: the cluster.
        folder: where the files will be: the configuration names the others by this path.
        spool: where records go; by default ``collector.spool``.
        is_rotated: whether whoever runs the daemons moves the links of `flow_files` on; otherwise pmacct rotates files
            by itself, at a higher cost.
        is_fast: whether they run with our library (`quick_printf`).
        shares: how many nfacctd there are.

    Raises:
        UserError: more senders than an allow file has room for.
    """
    if (error := next(overlong(cluster), None)) is not None:
        raise error
    files = {}
    for daemon in daemons(cluster, shares):
        config = _config(cluster, daemon, folder, spool, is_rotated=is_rotated, is_fast=is_fast)
        files[f"{daemon.label}.conf"] = config
        files[_numbers_name(daemon)] = numbered.SFLOW_MAP if daemon is SFACCTD else numbered.MAP
        if allowed := allow_lines(senders(cluster, daemon.protocol)):
            files[_allow_name(daemon)] = "".join(f"{line}\n" for line in allowed)
    return files


def receive_buffer_advice(granted: int | None = None) -> str | None:
    """Return what to set where the kernel grants less socket buffer than wanted; None if all is well.

    Args:
        granted: the kernel's limit in bytes; by default what it is now.
    """
    if granted is None:
        granted = granted_receive_buffer()
    if granted is None or granted >= RECEIVE_BUFFER:
        return None
    return (
        f"net.core.rmem_max is {granted}: bursts of flows will be lost; as root: "
        f"sysctl -w net.core.rmem_max={RECEIVE_BUFFER} (and in /etc/sysctl.d/ to keep it)"
    )


def granted_receive_buffer(limit: Path = _RMEM_MAX) -> int | None:
    """Return how many bytes of socket buffer the kernel grants, of as many as wanted; None if it does not tell.

    Args:
        limit: the file that tells. In a container on an older kernel, such as Debian 12's, it is not there; then a
            socket is asked.
    """
    try:
        return int(limit.read_text())
    except (OSError, ValueError):
        pass
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as scratch:
            scratch.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            # The kernel doubles what it grants, for its own bookkeeping: socket(7).
            return scratch.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    except OSError:
        return None


def _config(
    cluster: Cluster, daemon: Daemon, folder: Path, spool: Path | None, *, is_rotated: bool, is_fast: bool
) -> str:
    collector = cluster.collector
    place = spool or Path(collector.spool)
    dated = place / (daemon.prefix + _rotation(collector.rotate) + ".csv")
    output = link_of(place, daemon.prefix) if is_rotated else dated
    key = daemon.name
    lines = [
        f"! {daemon.label} for {cluster.name}: written by clusterflow, do not edit.",
        "daemonize: false",
        f"{key}_ip: {collector.listen}",
        f"{key}_port: {daemon.port(cluster)}",
        "! The kernel grants no more than net.core.rmem_max.",
        f"{key}_pipe_size: {RECEIVE_BUFFER}",
        f"plugin_pipe_size: {_PLUGIN_PIPE}",
        "! The bridge may run as another user of the same group.",
        "files_umask: 027",
    ]
    if daemon is not SFACCTD:
        lines += ["! Cisco ASA counts bytes of initiator and responder, in IE 231 and 232.", "tmp_asa_bi_flow: true"]
    if daemon is not SFACCTD and keeps_templates(cluster, is_fast=is_fast):
        lines += [
            "! Templates outlive a restart: data before its template would be dropped without a word.",
            f"nfacctd_templates_file: {_templates_path(place, daemon)}",
        ]
    # sfacctd's allow list, too, compares the UDP source, while exporters are known by the agent address inside the
    # datagram: where the two differ, everything would be dropped in silence. So its sources are told apart from them.
    if senders(cluster, daemon.protocol):
        lines += ["! Other senders are dropped without a word.", f"{key}_allow_file: {folder / _allow_name(daemon)}"]
    elif daemon is SFACCTD:
        lines += [
            "! No allow list: an sFlow agent's address need not be the source of its datagrams, and cluster.yaml names",
            "! none of these (collector.sflow_sources).",
        ]
    if daemon is SFACCTD:
        lines += [
            "! Counters of the agents' interfaces, apart from flow records; `clusterflow collect` rotates this file.",
            f"{key}_counter_file: {place / counter_files.FOLDER / counter_files.LINK}",
            f"{key}_counter_output: json",
        ]
    lines += [
        "! Each record has a number of its own, so that none is counted twice that the plugin reads twice.",
        f"pre_tag_map: {folder / _numbers_name(daemon)}",
        "timestamps_since_epoch: true",
        "plugins: print[flows]",
        f"aggregate[flows]: {', '.join(_AGGREGATE)}",
        "print_output[flows]: csv",
        *(["! A link; `clusterflow collect` points it to a new file."] if is_rotated else []),
        f"print_output_file[flows]: {output}",
        "print_output_file_append[flows]: true",
        "print_markers[flows]: true",
        "print_num_protos[flows]: true",
        "! A small cache that is printed often is cheaper than a large one, and as complete.",
        f"print_refresh_time[flows]: {collector.refresh}",
        f"print_cache_entries[flows]: {_CACHE_ENTRIES}",
        "! Purges that may wait for a slow disk before one is lost.",
        f"print_max_writers[flows]: {_WRITERS}",
    ]
    return "\n".join(lines) + "\n"


def keeps_templates(cluster: Cluster, *, is_fast: bool) -> bool:
    """Whether templates are kept in a file.

    Without our library, nfacctd 1.7.7 reads and writes the whole file at each template that comes, changed or not, in
    the process that receives. Exporters that repeat theirs every 20 datagrams would keep it from its socket where they
    are many; those that do so every half hour need the file most (docs/architecture.md, pmacct settings).
    """
    asked = cluster.collector.keep_templates
    return is_fast or len(NFACCTD.exporters(cluster)) <= _TEMPLATE_EXPORTERS if asked is None else asked


def _templates_path(place: Path, daemon: Daemon) -> str:
    """Return where nfacctd keeps templates, spelled so that it survives keeping them.

    1.7.7 builds the name of its scratch copy (the path and ``.copy``) in a block that is one byte too short for the
    closing NUL. malloc rounds blocks up to 8 below a multiple of 16; where the name fills the block exactly, the NUL
    falls on the next block's header, and nfacctd aborts ("corrupted size vs. prev_size") soon after. One more slash
    moves the end into the padding. Seen with valgrind and in core dumps.
    """
    name = template_file.name_of(daemon.share)
    text = f"{place}/{name}"
    fills_block = (len(os.fsencode(text)) + len(_SCRATCH)) % _MALLOC_STEP == _MALLOC_STEP - _MALLOC_HEADER
    return f"{place}//{name}" if fills_block else text


def _rotation(seconds: int) -> str:
    """Return the time variables of a file name that changes at least as often as asked.

    pmacct has no others: a file a purge, a minute or an hour.
    """
    if seconds < 60:
        return "%s"
    return "%Y%m%d-%H%M" if seconds < 3600 else "%Y%m%d-%H"


def _allow_name(daemon: Daemon) -> str:
    return f"{daemon.name}.allow"


def _numbers_name(daemon: Daemon) -> str:
    return f"{daemon.name}.numbers"
