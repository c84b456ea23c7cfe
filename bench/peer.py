"""`scripts/bench peer`: other collectors, sent the same datagrams at the same rates, one after the other.

Like with like: nfacctd, goflow2 and Telegraf are asked for no more than to decode flow records into files. To the
store there are two: Telegraf with its own output, and clusterflow as a whole.
"""

import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from bench.costs.processes import Meter, line, tell_machine
from bench.live_rates import duration, rates, work_folder
from bench.load.packet_sender import POOL
from bench.pipelines import Load, bench_cluster, pipeline, printed_records, run_load, sender
from cluster.dump import dump_cluster
from cluster.load import load_cluster
from cluster.model import Cluster
from ingest.collect.kernel.sockets import udp_sockets
from ingest.collect.pmacct import NFACCTD
from simulate.demo.stack import Part, command
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

_TOOLS = Path(__file__).parents[1] / "var" / "tools" / "bin"
_START_SECONDS, _QUIET_SECONDS, _LONGEST_SECONDS = 30.0, 4.0, 90.0
_GOFLOW2, _TELEGRAF = "goflow2", "telegraf"
_CHUNK = 16 << 20
_DATABASE = "bench"
_TELEGRAF_BYTES = "in_bytes"
"""A field that each of its points has."""

_TELEGRAF_AGENT = """\
[agent]
  interval = "1s"
  flush_interval = "1s"
  metric_batch_size = 10000
  metric_buffer_limit = 2000000
  omit_hostname = true
[[inputs.netflow]]
  service_address = "udp://127.0.0.1:{port}"
  read_buffer_size = "64MiB"
"""
_TELEGRAF_FILE = """\
[[outputs.file]]
  files = ["{output}"]
  data_format = "influx"
"""
_TELEGRAF_STORE = """\
[[outputs.influxdb]]
  urls = ["{url}"]
  database = "{database}"
"""


class Contender(ABC):
    """A collector that writes decoded flow records into files of a folder.

    Args:
        cluster: which port, and which exporters.
        folder: for everything of it.
        influxd: InfluxDB 1.x for one that writes to it; by default the one on the PATH.

    Attributes:
        server: that InfluxDB, once it runs.
    """

    name = ""
    server: LocalInfluxDB | None = None

    def __init__(self, cluster: Cluster, folder: Path, influxd: str | None = None) -> None:
        self.cluster = cluster
        self.folder = folder
        self.influxd = influxd
        self.port = cluster.collector.netflow_port

    @abstractmethod
    def command(self) -> list[str] | None:
        """Return its command line, after writing what it needs; None where it is not installed."""

    @abstractmethod
    def kept(self) -> int:
        """Return the flow records that it has written."""

    def beside(self) -> dict[str, int]:
        """Return the processes that work for it, by name: they are counted with it."""
        return {"influxd": self.server.pid} if self.server and self.server.pid else {}

    def close(self) -> None:
        """End what it started."""
        if self.server:
            self.server.stop()

    def size(self) -> int:
        """Return the bytes that it has written."""
        found = 0
        for path in self.outputs():
            # InfluxDB's come and go while it compacts.
            with suppress(FileNotFoundError):
                found += path.stat().st_size
        return found

    def outputs(self) -> list[Path]:
        """Return the files that it writes to."""
        return [path for path in (self.folder / "out").glob("*") if path.is_file()]


class Nfacctd(Contender):
    """pmacct's daemon, as `clusterflow collect` configures it, into CSV files."""

    name = "nfacctd"

    def command(self) -> list[str] | None:
        """Return it, as the base class says."""
        config = self.folder / "cluster.yaml"
        config.write_text(dump_cluster(self.cluster))
        return command("collect", config, "--run-dir", str(self.folder / "run"))

    def kept(self) -> int:
        """Return what its own log says."""
        return printed_records((self.folder / "run" / f"{NFACCTD.name}.log").read_bytes())

    def outputs(self) -> list[Path]:
        """Return the spool files."""
        return list(Path(self.cluster.collector.spool).glob("*.csv"))


class Goflow2(Contender):
    """goflow2 with its defaults, but for the address, into a file of JSON lines."""

    name = _GOFLOW2
    file_format = "json"
    separator = "\n"

    def command(self) -> list[str] | None:
        """Return it, as the base class says."""
        binary = _found(_GOFLOW2)
        output = _made(self.folder / "out") / "flows"
        listen = f"netflow://127.0.0.1:{self.port}"
        wanted = ("-format", self.file_format, "-addr", "")
        written = ("-transport", "file", "-transport.file", str(output), "-transport.file.sep", self.separator)
        return [binary, "-listen", listen, *wanted, *written] if binary else None

    def kept(self) -> int:
        """Return the lines that it wrote."""
        return sum(map(_lines, self.outputs()))


class Goflow2Binary(Goflow2):
    """The same into a file of Protocol Buffers, each after its length: what it would send to Kafka."""

    name = "goflow2 (protobuf)"
    file_format = "bin"
    separator = ""

    def kept(self) -> int:
        """Return the messages that it wrote."""
        return sum(map(_messages, self.outputs()))


class Telegraf(Contender):
    """Telegraf's netflow input, into a file of line protocol."""

    name = _TELEGRAF

    def command(self) -> list[str] | None:
        """Return it, as the base class says."""
        binary = _found(_TELEGRAF)
        if binary is None:
            return None
        config = self.folder / "telegraf.conf"
        config.write_text(_TELEGRAF_AGENT.format(port=self.port) + self.output())
        return [binary, "--config", str(config)]

    def output(self) -> str:
        """Return the section of its configuration that says where to."""
        return _TELEGRAF_FILE.format(output=_made(self.folder / "out") / "flows.lp")

    def kept(self) -> int:
        """Return the lines that it wrote."""
        return sum(map(_lines, self.outputs()))


class TelegrafStore(Telegraf):
    """Telegraf's netflow input into InfluxDB: of what was decoded, points with equal tags and time are one."""

    name = "telegraf (InfluxDB)"

    def output(self) -> str:
        """Return it, as the base class says, with a server of its own behind it."""
        self.server = LocalInfluxDB(self.folder / "influxdb", binary=self.influxd)
        self.server.start()
        return _TELEGRAF_STORE.format(url=self.server.url, database=_DATABASE)

    def kept(self) -> int:
        """Return the points that the store has."""
        if self.server is None:
            raise ValueError("asked before it was started")
        with Store(replace(self.cluster.store, url=self.server.url, database=_DATABASE)) as store:
            found = store.query(f'SELECT count("{_TELEGRAF_BYTES}") FROM "netflow"')  # noqa: S608 - our names
        return int(found[0].values[0][1]) if found else 0

    def outputs(self) -> list[Path]:
        """Return InfluxDB's files."""
        return [path for path in (self.folder / "influxdb").rglob("*") if path.is_file()]


CONTENDERS: tuple[type[Contender], ...] = (Nfacctd, Goflow2, Goflow2Binary, Telegraf, TelegrafStore)


@click.command()
@click.option("--rate", "rate", callback=rates, default="50000,100000,200000", show_default=True, help="Flows/s.")
@click.option("--for", "seconds", callback=duration, default="60", show_default=True, help="How long each.")
@click.option("--nodes", default=1024, show_default=True, help="Training nodes.")
@click.option("--config", "-c", type=click.Path(path_type=Path), default="cluster.yaml", show_default=True)
@click.option("--influxd", help="InfluxDB 1.x to run. Default: the one on the PATH.")
@click.option("--without-store", is_flag=True, help="Leave out clusterflow as a whole: `scripts/bench live` has it.")
def peer(  # noqa: PLR0917 - click passes everything by name
    rate: tuple[int, ...],
    seconds: float,
    nodes: int,
    config: Path,
    influxd: str | None,
    without_store: bool,  # noqa: FBT001 - click passes it so
) -> None:
    """Flows kept, CPU and memory of nfacctd, goflow2 and Telegraf at given rates, and of clusterflow as a whole."""
    tell_machine(influxd)
    line(step="peer_versions", **{name: version(name) for name in (_GOFLOW2, _TELEGRAF)})
    for one in rate:
        load = Load(one, seconds, POOL)
        for kind in CONTENDERS:
            with work_folder(None, "") as folder:
                cluster = bench_cluster(load_cluster(config), nodes, folder, "http://127.0.0.1:1")
                line(step="peer", peer=kind.name, nodes=nodes, **contend(kind(cluster, folder, influxd), load))
        if not without_store:
            with work_folder(None, "") as folder, pipeline(config, nodes, folder, influxd=influxd) as running:
                line(step="peer", peer="clusterflow", nodes=nodes, **_whole(run_load(running, load)))


def contend(contender: Contender, load: Load) -> dict[str, Any]:
    """Send a load to a collector; return what it kept of it, and at what cost."""
    arguments = contender.command()
    if arguments is None:
        return {"rate": load.rate, "skipped": f"{contender.name} is not in var/tools/bin or on the PATH"}
    part = Part(contender.name, arguments, contender.folder / "log")
    with closing(contender), _running(part) as pid:
        part.wait_until(lambda: bool(udp_sockets(contender.port)), _START_SECONDS)
        time.sleep(1)
        config = contender.folder / "load.yaml"
        config.write_text(dump_cluster(contender.cluster))
        with sender(config, contender.port, load.rate, load.seconds, load.pool) as sending:
            meter = Meter({contender.name: pid, "sender": sending.pid, **contender.beside()})
            meter.start()
            began = time.monotonic()
            sending.go()
            while sending.is_sending:
                time.sleep(load.every)
                meter.sample()
            took = time.monotonic() - began
            others = meter.other_cores(took)
            del meter.parts["sender"]
            _settle(contender, meter)
        kept = contender.kept()
        dropped = sum(one.dropped for one in udp_sockets(contender.port))
        costs = [one for name, one in meter.document(took).items() if name != "sender"]
    sent = sending.result["records"]
    return {
        "rate": load.rate,
        "sent": sent,
        "kept": kept,
        "lost_share": round(1 - kept / sent, 5),
        "lost_kernel_datagrams": dropped,
        "sent_datagrams": sending.result["datagrams"],
        "cpu_us_a_flow": round(sum(one["cpu_seconds"] for one in costs) / max(kept, 1) * 1e6, 3),
        "cores_needed": round(sum(one["cores"] for one in costs), 3),
        "peak_mib": sum(one["peak_mib"] for one in costs),
        "bytes_a_record": round(contender.size() / max(kept, 1)),
        "other_cores": others,
    }


def _whole(found: dict[str, Any]) -> dict[str, Any]:
    """Return clusterflow's own run in the terms of the others."""
    parts = {name: one for name, one in found["processes"].items() if name != "sender"}
    kept = int(found["printed"])
    # As of the others: with what was put off until no more records came.
    cpu = sum(one["cpu_us_a_flow"] for one in parts.values()) * found["sent"] / 1e6
    return {
        "rate": found["rate"],
        "sent": found["sent"],
        "kept": kept,
        "lost_share": round(1 - kept / found["sent"], 5),
        "exact": found["exact"],
        "lost_kernel_datagrams": found["lost_kernel_datagrams"],
        "sent_datagrams": found["sent_datagrams"],
        "cpu_us_a_flow": round(cpu / max(kept, 1) * 1e6, 3),
        "cores_needed": round(cpu / found["seconds"], 3),
        "counts_drain": True,
        "peak_mib": sum(one["peak_mib"] for one in parts.values()),
        "other_cores": found["other_cores"],
    }


@contextmanager
def _running(part: Part) -> Iterator[int]:
    """Hold a process in a session of its own; all of it ends with it."""
    part.start()
    if part.process is None:
        raise ValueError(f"{part.name} did not start")
    try:
        yield part.process.pid
    finally:
        part.stop()
        with suppress(ProcessLookupError):
            os.killpg(part.process.pid, signal.SIGKILL)


def _settle(contender: Contender, meter: Meter) -> None:
    """Wait until nothing more is written."""
    began = changed = time.monotonic()
    size = -1
    while (now := time.monotonic()) - changed < _QUIET_SECONDS and now - began < _LONGEST_SECONDS:
        if (found := contender.size()) != size:
            size, changed = found, now
        meter.sample()
        time.sleep(0.5)


def _found(name: str) -> str | None:
    own = _TOOLS / name
    return str(own) if own.is_file() else shutil.which(name)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _lines(path: Path) -> int:
    count = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            count += chunk.count(b"\n")
    return count


def _messages(path: Path) -> int:
    """Count messages that each follow their length, a varint."""
    data, position, count = path.read_bytes(), 0, 0
    while position < len(data):
        length = shift = 0
        while True:
            byte = data[position]
            position += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        position += length
        count += 1
    return count


def version(name: str) -> str | None:
    """Return what a Go program says of the module that it was built from; None where it is not installed."""
    binary = _found(name)
    if binary is None or shutil.which("go") is None:
        return None
    said = subprocess.run(["go", "version", "-m", binary], capture_output=True, text=True, check=False, timeout=20)
    words = [row.split() for row in said.stdout.splitlines()]
    return next((f"{row[1]} {row[2]}" for row in words if row[:1] == ["mod"]), None)
