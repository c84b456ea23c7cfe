"""`scripts/bench nfacctd`: what a flow costs nfacctd, process by process, as `collect` configures it and otherwise.

Only a control group counts its writers: run it as root.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from bench.costs.control_group import ControlGroup
from bench.costs.processes import line, tell_machine, usage
from bench.load.packet_pool import PacketPool
from bench.load.packet_sender import PacketSender, speaking_netflow
from bench.pipelines import Load, bench_cluster, printed_records
from cluster.load import load_cluster
from cluster.model import Cluster
from ingest.collect import quick_printf
from ingest.collect.flow_files import link_of
from ingest.collect.kernel.sockets import udp_sockets
from ingest.collect.pmacct import NFACCTD, collector_files

Change = Callable[[str], str]
"""Of nfacctd's configuration."""

_SETTLE_SECONDS = 3.0
_IN_MEMORY = Path("/dev/shm/clusterflow-bench.csv")  # noqa: S108 - the name is of a bench


def _as_it_is(text: str) -> str:
    return text


def _set(key: str, value: str) -> Change:
    return lambda text: re.sub(rf"^{re.escape(key)}: .*\n", "", text, flags=re.MULTILINE) + f"{key}: {value}\n"


def _without(key: str) -> Change:
    return lambda text: re.sub(rf"^{re.escape(key)}: .*\n", "", text, flags=re.MULTILINE)


def _columns(*dropped: str) -> Change:
    def change(text: str) -> str:
        key, _, names = next(row for row in text.splitlines() if row.startswith("aggregate[")).partition(": ")
        return _set(key, ", ".join(name for name in names.split(", ") if name not in dropped))(text)

    return change


def _twice(text: str) -> str:
    """Have a second plugin print the same."""
    more = [row.replace("[flows]", "[b]").replace("current", "b") for row in text.splitlines() if "[flows]:" in row]
    return text.replace("plugins: print[flows]", "plugins: print[flows], print[b]") + "\n".join(more) + "\n"


_TIMES = ("timestamp_start", "timestamp_end", "timestamp_arrival")
VARIANTS: Mapping[str, Change] = {
    "as `collect` has it": _as_it_is,
    "12 of 19 columns": _columns(
        "tos", "tcpflags", "timestamp_arrival", "export_proto_sysid", "export_proto_version", "flows", "in_iface"
    ),
    "no numbers (`pre_tag_map`)": _without("pre_tag_map"),
    "no allow list": _without("nfacctd_allow_file"),
    "times as text": _without("timestamps_since_epoch"),
    "JSON": _set("print_output[flows]", "json"),
    "into memory (/dev/shm)": _set("print_output_file[flows]", str(_IN_MEMORY)),
    "half the buckets": _set("print_cache_entries[flows]", "16411"),
    "four times the buckets": _set("print_cache_entries[flows]", "131071"),
    "printed every 5 s": _set("print_refresh_time[flows]", "5"),
    "two plugins": _twice,
    "`plugin_buffer_size: 4096`": _set("plugin_buffer_size", "4096"),
    "added up: no times, numbers, interfaces, source port": _columns(
        *_TIMES, "tag2", "src_port", "export_proto_seqno", "in_iface", "out_iface"
    ),
}

_PLAIN = "printed by libc's printf"
"""The same configuration without our library."""


@click.command()
@click.option("--rate", default=100_000, show_default=True, help="Flows/s.")
@click.option("--for", "seconds", default=10.0, show_default=True, help="Seconds of each.")
@click.option("--nodes", default=1024, show_default=True, help="Training nodes.")
@click.option("--runs", default=1, show_default=True, help="Of all of them; the cheapest of each counts.")
@click.option("--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True)
def nfacctd(rate: int, seconds: float, nodes: int, runs: int, config: Path) -> None:
    """Measure what a flow costs nfacctd: core, plugin and writers; and with other settings, in one run."""
    tell_machine()
    best: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="clusterflow-bench-") as name:
        cluster = bench_cluster(load_cluster(config), nodes, Path(name), "http://127.0.0.1:1")
        pool = PacketPool(speaking_netflow(cluster), 2 * rate)
        load = Load(rate, seconds, 2 * rate)
        for variant, change in [*VARIANTS.items(), (_PLAIN, _as_it_is)] * runs:
            found = _measured(cluster, pool, Path(name) / "run", change, load, is_plain=variant == _PLAIN)
            if variant not in best or found["us"] < best[variant]["us"]:
                best[variant] = found
    for variant, found in best.items():
        line(step="print_cost", variant=variant, rate=rate, runs=runs, **found)


def _measured(
    cluster: Cluster, pool: PacketPool, folder: Path, change: Change, load: Load, *, is_plain: bool
) -> dict[str, Any]:
    spool, port = folder / "spool", cluster.collector.netflow_port
    spool.mkdir(parents=True)
    for name, text in collector_files(cluster, folder, spool, is_rotated=True).items():
        (folder / name).write_text(change(text) if name == "nfacctd.conf" else text)
    link_of(spool, NFACCTD.prefix).symlink_to("nfacct-1.csv")
    log = folder / "log"
    preload = "" if is_plain else shlex.join(quick_printf.with_library(quick_printf.library(folder)))
    with closing(ControlGroup()) as group:
        with log.open("wb") as said:
            # A shell joins the group first: whatever nfacctd starts is in it.
            command = ["sh", "-c", f'echo $$ > "{group.takes}" && exec {preload} nfacctd -f "{folder}/nfacctd.conf"']
            process = subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, "TZ": "UTC"})
        try:
            while not udp_sockets(port) and process.poll() is None:
                time.sleep(0.05)
            time.sleep(1)
            before = group.seconds
            with PacketSender(pool, port) as sender:
                sender.greet()
                sender.run(load.rate, load.seconds)
                sent = pool.sums(sender.sent).records
            time.sleep(_SETTLE_SECONDS)
            plugins = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            core, plugin = usage([process.pid]).cpu, usage(map(int, plugins)).cpu
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
            # Its plugins print what they have.
            while group.takes.read_text():
                time.sleep(0.05)
        # Writers that were late count, too.
        total = group.seconds - before
    size = sum(path.stat().st_size for path in spool.glob("nfacct-*.csv"))
    printed = printed_records(log.read_bytes())
    shutil.rmtree(folder)
    _IN_MEMORY.unlink(missing_ok=True)
    each = {"core_us": core, "plugin_us": plugin, "writers_us": total - core - plugin, "us": total}
    return {
        "sent": sent,
        "printed": printed,
        "bytes_a_record": round(size / sent) or None,
        **{name: round(value / sent * 1e6, 2) for name, value in each.items()},
    }
