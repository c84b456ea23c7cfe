"""Real nfacctd and sfacctd, configured and supervised by us: packets in, record frames out."""

import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import polars as pl
import pytest

from app.errors import ClusterflowError, UserError
from cluster.model import (
    Cluster,
    CollectorSettings,
    Exporter,
    ExportProtocol,
    Group,
    Node,
    NodeAddress,
    Role,
    Sampling,
    SamplingMode,
)
from cluster.sections.network.services import with_well_known
from ingest.collect import flow_files
from ingest.collect.kernel.sockets import udp_sockets
from ingest.collect.supervise import Collector
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock, Normaliser
from ingest.read.readers import read_chunk
from ingest.read.records import FIRST_NUMBER as FIRST
from ingest.read.records import PRINTED_COLUMNS, RECORD_SCHEMA, SFLOW, SFLOW_IP
from ingest.read.spool import Spool
from store import schema
from tests.waiting import is_alive, wait_for

pytestmark = pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")

UPTIME = 10_000_000
NOW = 1_790_000_000
EXPORTERS = (
    Exporter("leaf-1", ip_address("127.0.0.11")),
    Exporter("leaf-2", ip_address("127.0.0.12"), sampling=Sampling(SamplingMode.FIXED, 512)),
    Exporter("mgmt-sw", ip_address("127.0.0.16"), ExportProtocol.SFLOW),
)


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def a_cluster(*exporters: Exporter) -> Cluster:
    settings = CollectorSettings("127.0.0.1", free_udp_port(), free_udp_port(), refresh=1)
    return Cluster("test", (Group("training", "Training", Role.TRAINING),), exporters=exporters, collector=settings)


def v5(first: int, count: int, *, protocol: int = 6, sampling: int = 0) -> bytes:
    """A NetFlow v5 datagram; flow i has 1000 + i bytes, starts 5 s and ends 1 s before NOW."""
    header = struct.pack(">HHIIIIBBH", 5, count, UPTIME, NOW, 0, first, 0, 0, sampling)
    flows = [
        struct.pack(
            ">4s4s4sHHIIIIHHBBBBHHBBH", bytes([10, 20, i >> 8 & 255, i & 255]), bytes([10, 30, 0, 1]), bytes(4), 1, 2,
            3, 1000 + i, UPTIME - 5000, UPTIME - 1000, 40_000, 2049, 0, 0x12, protocol, 8, 0, 0, 0, 0, 0,
        )
        for i in range(first, first + count)
    ]  # fmt: skip
    return header + b"".join(flows)


TCP = struct.pack(">HHIIBBHHH", 1234, 80, 0, 0, 0x50, 0x12, 0, 0, 0)
ROCE = struct.pack(">HHHH", 49_200, 4791, 40, 0) + bytes(12)


def sflow(agent: str, payload: bytes = TCP, protocol: int = 6, tos: int = 0) -> bytes:
    """An sFlow v5 datagram with one sampled packet of 100 bytes on the wire, rate 1024."""
    address = bytes([10, 0, 0, 1, 10, 0, 0, 2])
    frame = b"\x02" * 12 + b"\x08\x00" + bytes([0x45, tos, 0, 60]) + bytes(5) + bytes([protocol]) + bytes(2)
    frame += address + payload
    header = struct.pack(">IIII", 1, 100, 4, len(frame)) + frame + bytes(-len(frame) % 4)
    sample = struct.pack(">IIIIIIII", 7, 3, 1024, 102_400, 0, 4, 2_147_483_658, 1)
    sample += struct.pack(">II", 1, len(header)) + header
    return (
        struct.pack(">II", 5, 1) + ip_address(agent).packed + struct.pack(">IIII", 9, 77, 1000, 1)
        + struct.pack(">II", 1, len(sample)) + sample
    )  # fmt: skip


def sampled_ip(agent: str, *, v6: bool) -> bytes:
    """The datagram of `sflow` with another sample before it: the same packet as `sampled_ipv4` or `sampled_ipv6`."""
    if v6:
        addresses, kind = bytes([0xFD, *bytes(14), 1, 0xFD, *bytes(14), 2]), 4
    else:
        addresses, kind = bytes([10, 0, 0, 1, 10, 0, 0, 2]), 3
    record = struct.pack(">II", 82, 6) + addresses + struct.pack(">IIII", 1234, 80, 0x12, 0)
    sample = struct.pack(">IIIIIIII", 7, 3, 1024, 102_400, 0, 4, 5, 1) + struct.pack(">II", kind, len(record)) + record
    framed, head = sflow(agent), 28
    samples = framed[head:] + struct.pack(">II", 1, len(sample)) + sample
    return framed[: head - 4] + struct.pack(">I", 3) + samples + framed[head:]


def send(port: int, datagrams: list[bytes], source: str = "127.0.0.11") -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((source, 0))
        for i, datagram in enumerate(datagrams):
            sender.sendto(datagram, ("127.0.0.1", port))
            if i % 50 == 49:
                time.sleep(0.005)


def spooled(spool: Path, time_zone: str = "UTC") -> pl.DataFrame:
    """All records of a spool; none of its lines may be a dead letter."""
    frames = [pl.DataFrame(schema=RECORD_SCHEMA)]
    with Spool(spool, once=True, time_zone=time_zone) as source:
        while (chunk := source.next_chunk(1 << 24)) is not None:
            parsed = read_chunk(chunk.raw, chunk.fmt)
            assert parsed.dead.rows() == []
            frames.append(parsed.frame)
    return pl.concat(frames)


def test_files_that_are_rotated_while_records_come_lose_none(tmp_path: Path) -> None:
    """Far more often than any user would, so that purges and moves of the link meet."""
    cluster = a_cluster(*EXPORTERS)
    cluster = replace(cluster, collector=replace(cluster.collector, rotate=1))
    deadline = time.monotonic() + 60
    sent = 0
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool") as collector:
        # How long a rotation takes is the machine's affair: sent until there were some.
        while len(list((tmp_path / "spool").glob("nfacct-*.csv"))) < 4:
            assert time.monotonic() < deadline, "nfacctd does not rotate its files"
            send(cluster.collector.netflow_port, [v5(sent + i * 30, 30) for i in range(20)])
            sent += 600
            collector.poll()
            time.sleep(0.03)
        assert collector.complaints == {"nfacctd": 0, "sfacctd": 0}
    files = sorted((tmp_path / "spool").glob("nfacct-*.csv"))
    assert all(b"SRC_IP" in path.read_bytes()[:200] for path in files)
    found = spooled(tmp_path / "spool")
    assert found.height == sent
    assert found.get_column("bytes").sum() == sum(1000 + i for i in range(sent))


def test_what_is_sent_is_in_the_spool_after_a_stop(tmp_path: Path) -> None:
    """NetFlow and sFlow side by side, stopped right after the last datagram: all records, every value."""
    cluster = a_cluster(*EXPORTERS)
    settings = cluster.collector
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool") as collector:
        send(settings.netflow_port, [v5(i * 30, 30) for i in range(400)])
        send(settings.netflow_port, [v5(0, 2)], source="127.0.0.12")
        send(settings.netflow_port, [v5(0, 30)], source="127.0.0.99")
        send(settings.sflow_port, [sflow("127.0.0.16")] * 2, source="127.0.0.77")
        pids = collector.pids
    assert collector.dropped() == {"nfacctd": 0, "sfacctd": 0}
    assert collector.restarts == {"nfacctd": 0, "sfacctd": 0}
    assert not any(map(is_alive, pids.values()))
    files = sorted((tmp_path / "spool").glob("*.csv"))
    assert {path.name.split("-")[0] for path in files} == {"nfacct", "sfacct"}
    assert files[0].read_text().splitlines()[1] == ",".join(PRINTED_COLUMNS)
    frame = spooled(tmp_path / "spool")

    leaf = frame.filter(pl.col("exporter") == "127.0.0.11")
    assert sorted(leaf["bytes"]) == list(range(1000, 13_000))
    assert leaf.sort("bytes").drop("arrival").row(7, named=True) == {
        "exporter": "127.0.0.11", "iface_in": 1, "iface_out": 2, "src": "10.20.0.7", "dst": "10.30.0.1",
        "src_port": 40_000, "dst_port": 2049, "protocol": 6, "tcp_flags": 18, "tos": 8, "sampling_rate": 0,
        "start": NOW * 1000 - 5000, "end": NOW * 1000 - 1000, "seq": 0, "version": 5, "domain": 0, "bytes": 1007,
        "packets": 3, "flows": 1,
    }  # fmt: skip
    assert leaf["arrival"].null_count() == 0

    fixed = frame.filter(pl.col("exporter") == "127.0.0.12")
    assert fixed.select("bytes", "sampling_rate").rows() == [(1000, 0), (1001, 0)], "the bridge knows its rate"

    assert frame.filter(pl.col("exporter") == "127.0.0.99").height == 0, "not on the allow list"

    sampled = frame.filter(pl.col("exporter") == "127.0.0.16")
    assert (
        sampled.select(
            "version", "bytes", "packets", "sampling_rate", "iface_in", "iface_out", "start", "end", "seq", "domain"
        ).rows()
        == [(SFLOW, 100, 1, 1024, 4, 2_147_483_658, None, None, 77, 9)] * 2
    )


@pytest.mark.skipif(shutil.which("sfacctd") is None, reason="pmacct is not installed")
@pytest.mark.parametrize("agent", ["127.0.0.16", "192.0.2.9"], ids=["listed", "unlisted"])
def test_samples_without_a_frame_count_as_they_are(agent: str, tmp_path: Path) -> None:
    """Every packet has 82 bytes of IP: an agent that tells these loses none, be it amid samples of frames of 100."""
    cluster = a_cluster(replace(EXPORTERS[-1], frame_overhead=18))
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool"):
        send(cluster.collector.sflow_port, [sampled_ip(agent, v6=v6) for v6 in (False, True)], source="127.0.0.77")
    frame = spooled(tmp_path / "spool")
    assert sorted(frame.select("src", "version", "bytes").rows()) == [
        *[("10.0.0.1", SFLOW, 100)] * 4, ("10.0.0.1", SFLOW_IP, 82), ("fd00::1", SFLOW_IP, 82),
    ]  # fmt: skip
    flows, refused = Normaliser(cluster, Clock.LIVE).normalise(frame, round(time.time() * 1000))
    assert refused.is_empty()
    assert flows.bytes.tolist() == [82 * 1024] * 6


def killer(element: int) -> bytes:
    """A NetFlow v9 message that kills nfacctd 1.7.7: a field of 300 bytes where its type has four or eight (#934)."""
    fields = [(8, 4), (12, 4), (1, 4), (2, 4), (element, 300)]
    spec = b"".join(struct.pack("!HH", *field) for field in fields)
    data = b"A" * sum(size for _, size in fields)
    sets = struct.pack("!HHHH", 0, 8 + len(spec), 300, len(fields)) + spec
    sets += struct.pack("!HH", 300, 4 + len(data)) + data
    return struct.pack("!HHIIII", 9, 2, UPTIME, NOW, 1, 7) + sets


@pytest.mark.parametrize("element", [4, 21])
def test_a_datagram_that_kills_does_so_from_listed_sources_alone(element: int, tmp_path: Path) -> None:
    """Who is not on the allow list may send it for ever; of one that is, the daemon is back in seconds."""
    cluster = a_cluster(*EXPORTERS[:2])
    cluster = replace(cluster, collector=replace(cluster.collector, guard=False))
    port = cluster.collector.netflow_port
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool") as collector:
        send(port, [killer(element)] * 200, source="127.0.0.99")
        send(port, [v5(0, 30)])
        wait_for(lambda: bool(list((tmp_path / "spool").glob("nfacct-*.csv"))))
        collector.poll()
        assert collector.restarts == {"nfacctd": 0}
        send(port, [killer(element)], source="127.0.0.12")
        begun = time.monotonic()

        def is_back() -> bool:
            collector.poll()
            return collector.restarts == {"nfacctd": 1} and bool(udp_sockets(port))

        wait_for(is_back, 10)
        assert time.monotonic() - begun < 6
        send(port, [v5(30, 30)])
    assert collector.restarts == {"nfacctd": 1}
    assert sorted(spooled(tmp_path / "spool")["bytes"]) == list(range(1000, 1060))


@pytest.mark.skipif(shutil.which("sfacctd") is None, reason="pmacct is not installed")
def test_sflow_is_taken_from_named_sources_only(tmp_path: Path) -> None:
    """By an address and by a prefix; what the agents are called has no part in it."""
    cluster = a_cluster(EXPORTERS[2])
    sources = tuple(map(ip_network, ("127.0.0.77", "127.0.1.0/28")))
    cluster = replace(cluster, collector=replace(cluster.collector, sflow_sources=sources))
    sent = {"127.0.0.77": "10.1.1.1", "127.0.1.15": "10.1.1.2", "127.0.1.16": "10.6.6.6", "127.0.0.16": "127.0.0.16"}
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool") as collector:
        for source, agent in reversed(sent.items()):
            send(cluster.collector.sflow_port, [sflow(agent)] * 2, source=source)
        assert collector.complaints == {"sfacctd": 0}
    assert sorted(spooled(tmp_path / "spool")["exporter"]) == ["10.1.1.1"] * 2 + ["10.1.1.2"] * 2


@pytest.mark.skipif(shutil.which("sfacctd") is None, reason="pmacct is not installed")
@pytest.mark.parametrize(("source", "taken"), [("::/125", 1), ("::8/125", 0)])
def test_ipv6_sources_are_those_of_the_prefix_and_ipv4_ones_are_ipv4(source: str, taken: int, tmp_path: Path) -> None:
    """sfacctd itself reads ::/125 as ::/128, and a socket for both families shows IPv4 in the clothing of IPv6."""
    cluster = a_cluster(EXPORTERS[2])
    sources = (ip_network(source), ip_network("127.0.0.77"))
    cluster = replace(cluster, collector=replace(cluster.collector, listen="::", sflow_sources=sources))
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool"):
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
            sender.sendto(sflow("10.1.1.6"), ("::1", cluster.collector.sflow_port))
        send(cluster.collector.sflow_port, [sflow("10.1.1.4")], source="127.0.0.77")
        send(cluster.collector.sflow_port, [sflow("10.6.6.6")], source="127.0.0.78")
    assert sorted(spooled(tmp_path / "spool")["exporter"]) == ["10.1.1.4"] + ["10.1.1.6"] * taken


def test_equal_records_stand_in_lines_of_their_own(tmp_path: Path) -> None:
    """Numbered before the plugin sees them: what shares a line then is one record that was read twice."""
    one = v5(3, 1)
    twice = one[:2] + struct.pack(">H", 2) + one[4:] + one[24:]
    cluster = a_cluster(*EXPORTERS)
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool") as collector:
        send(cluster.collector.netflow_port, [twice])
        send(cluster.collector.sflow_port, [sflow("127.0.0.16")])
        assert collector.complaints == {"nfacctd": 0, "sfacctd": 0}
    frame = spooled(tmp_path / "spool").filter(pl.col("version") == 5)
    assert frame.select("bytes", "flows").rows() == [(1003, 1), (1003, 1)]
    lines = [path.read_text().splitlines() for path in sorted((tmp_path / "spool").glob("*.csv"))]
    numbers = [[line.split(",")[0] for line in one if ",127." in line] for one in lines]
    assert numbers == [[str(FIRST), str(FIRST + 1)], [str(FIRST)]]


def drop_notification(then: bytes) -> bytes:
    """An sFlow datagram whose first sample tells of a dropped packet (type 5), before those of another datagram."""
    drop = struct.pack(">IIIIIIII", 1, 0, 1, 0, 1, 2, 256, 0)
    return then[:24] + struct.pack(">III", 2, 5, len(drop)) + drop + then[28:]


def test_what_pmacct_throws_away_is_counted_and_told_with_the_agents_address(tmp_path: Path) -> None:
    """It says so at level INFO alone, and the flow samples behind a sample of unknown type are gone."""
    told: list[tuple[str, dict[str, object]]] = []
    cluster = a_cluster(*EXPORTERS)
    with Collector(
        cluster, tmp_path / "run", spool=tmp_path / "spool", log=lambda event, **values: told.append((event, values))
    ) as collector:
        send(cluster.collector.sflow_port, [drop_notification(sflow("127.0.0.16"))] * 3, source="127.0.0.77")
        send(cluster.collector.sflow_port, [sflow("127.0.0.16")], source="127.0.0.77")
        # Two records are announced, one is there; an IPFIX message whose set is longer than itself.
        send(cluster.collector.netflow_port, [v5(0, 2)[:-48]])
        send(
            cluster.collector.netflow_port,
            [struct.pack(">HHIII", 10, 24, NOW, 7, 1) + struct.pack(">HH", 256, 400) + bytes(4)],
            "127.0.0.12",
        )
        wait_for(lambda: collector.poll() is None and sum(collector.discarded.values()) == 5)
        assert collector.complaints == {"nfacctd": 0, "sfacctd": 0}
    assert collector.discarded == {"nfacctd": 2, "sfacctd": 3}
    lost = [values for event, values in told if event == "datagrams_discarded"]
    assert {(values["daemon"], values["agent"], values["text"]) for values in lost} == {
        ("sfacctd", "127.0.0.16", "discarding unknown v5 sample"),
        ("nfacctd", "127.0.0.11", "discarding malformed NetFlow v5 packet"),
        ("nfacctd", "127.0.0.12", "unable to read next Data Flowset (incomplete NetFlow v9/IPFIX packet)"),
    }
    assert len(lost) == 3
    assert spooled(tmp_path / "spool").select("exporter", "bytes").rows() == [("127.0.0.16", 100)]


def test_a_single_flow_does_not_wait_for_others(tmp_path: Path) -> None:
    """Nothing may hold records back until a buffer is full: a quiet exporter's flows must show within seconds."""
    cluster = a_cluster(EXPORTERS[0])
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool"):
        send(cluster.collector.netflow_port, [v5(0, 1)])
        wait_for(lambda: spooled(tmp_path / "spool").height == 1, seconds=6)


def test_a_daemon_that_dies_is_started_again(tmp_path: Path) -> None:
    cluster = a_cluster(EXPORTERS[0])
    events: list[str] = []
    port = cluster.collector.netflow_port
    spool = tmp_path / "spool"
    with Collector(
        cluster, tmp_path / "run", spool=spool, log=lambda event, **_values: events.append(event)
    ) as collector:
        send(port, [v5(0, 10)])
        wait_for(lambda: spooled(spool).height == 10)
        first = collector.pids["nfacctd"]
        os.kill(first, signal.SIGKILL)

        def is_back() -> bool:
            collector.poll()
            return bool(udp_sockets(port)) and collector.pids.get("nfacctd") not in (None, first)

        wait_for(is_back)
        assert len(udp_sockets(port)) == 1, "what was left of the first would get half of the datagrams"
        send(port, [v5(10, 10)])
    assert sorted(spooled(spool)["bytes"]) == list(range(1000, 1020))
    assert collector.restarts == {"nfacctd": 1}
    assert events == ["daemon_started", "daemon_died", "daemon_started", "daemon_stopped"]


SUPERVISED = """
import sys, time
from pathlib import Path
from tests_cluster import cluster
from ingest.collect.supervise import Collector
collector = Collector(cluster(int(sys.argv[1])), Path(sys.argv[2]) / "run", spool=Path(sys.argv[2]) / "spool")
collector.start()
print(*collector.pids.values(), flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is not installed")
def test_no_orphans_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    """And the records that the daemon had are in the spool."""
    port = free_udp_port()
    script = SUPERVISED.replace(
        "from tests_cluster import cluster",
        "from cluster.model import Cluster, CollectorSettings, Exporter\n"
        "from ipaddress import ip_address\n"
        "def cluster(port):\n"
        "    settings = CollectorSettings('127.0.0.1', port, refresh=60)\n"
        "    return Cluster('t', (), exporters=(Exporter('a', ip_address('127.0.0.11')),), collector=settings)",
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(port), str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 1
    send(port, [v5(0, 10)])
    time.sleep(2)
    process.kill()
    process.wait()
    process.stdout.close()
    wait_for(lambda: not any(map(is_alive, pids)) and not udp_sockets(port))
    wait_for(lambda: spooled(tmp_path / "spool").height == 10)


def test_a_taken_port_ends_the_start_for_now(tmp_path: Path) -> None:
    """Whose it is may be about to end: systemd tries again, as the exit code is not that of the user's mistakes."""
    cluster = a_cluster(EXPORTERS[0])
    collector = Collector(cluster, tmp_path / "run", spool=tmp_path / "spool")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", cluster.collector.netflow_port))
        with pytest.raises(ClusterflowError, match=f"UDP port {cluster.collector.netflow_port} is taken") as caught:
            collector.start()
    assert caught.value.exit_code == 1
    with collector:
        assert collector.pids


def test_the_run_folder_has_configurations_of_what_runs_only(tmp_path: Path) -> None:
    """The health check of the container goes by them: one of an earlier cluster.yaml would make it sick for good."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "sfacctd.conf").write_text("of an earlier cluster.yaml\n")
    with Collector(a_cluster(EXPORTERS[0]), tmp_path / "run", spool=tmp_path / "spool"):
        assert [path.name for path in (tmp_path / "run").glob("*.conf")] == ["nfacctd.conf"]


def test_two_collectors_do_not_share_a_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_files, "_CLAIM_SECONDS", 0.5)
    with Collector(a_cluster(*EXPORTERS[:1]), tmp_path / "run", spool=tmp_path / "spool") as first:
        other = Collector(a_cluster(*EXPORTERS[:1]), tmp_path / "run2", spool=tmp_path / "spool")
        with pytest.raises(ClusterflowError, match="another `clusterflow collect` writes to it"):
            other.start()
        assert not other.pids
        assert first.pids
        # As if the collector itself were dead: its daemons still print.
        os.close(first._lock)
        with pytest.raises(ClusterflowError, match="another `clusterflow collect` writes to it"):
            other.start()
        first._lock = -1
    with other:
        assert other.pids


def test_an_address_that_is_not_ours_ends_the_start_with_its_reason(tmp_path: Path) -> None:
    cluster = a_cluster(EXPORTERS[0])
    cluster = replace(cluster, collector=replace(cluster.collector, listen="192.0.2.1"))
    collector = Collector(cluster, tmp_path / "run", spool=tmp_path / "spool")
    with pytest.raises(ClusterflowError, match=r"nfacctd did not start: .*192\.0\.2\.1") as caught:
        collector.start()
    assert caught.value.exit_code == 1, "at boot it may come up later than we do"
    assert len(caught.value.lines()) == 1
    assert collector.pids == {}


def test_a_daemon_that_is_not_installed_is_the_users_to_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="nfacctd is not installed"):
        Collector(a_cluster(EXPORTERS[0]), tmp_path / "run", spool=tmp_path / "spool").start()


PLAIN = {
    "json": "print_output: json\nprint_markers: true\n",
    "csv": "print_output: csv\n",
    "csv with dates and another separator": "print_output: csv\nprint_output_separator: ;\ntimestamps_utc: true\n",
    "json with RFC 3339": "print_output: json\ntimestamps_rfc3339: true\n",
    "json with history": "print_output: json\nprint_history: 1m\nprint_history_roundoff: m\n",
}


@pytest.mark.parametrize("options", PLAIN.values(), ids=PLAIN)
def test_reads_what_a_plain_nfacctd_prints(options: str, tmp_path: Path) -> None:
    """Every protocol number under the name that nfacctd gives it, times in every notation, local time."""
    port = free_udp_port()
    spool = tmp_path / "spool"
    spool.mkdir()
    suffix = "json" if "json" in options else "csv"
    times = "" if "history" in options else ", timestamp_start, timestamp_end"
    config = tmp_path / "nfacctd.conf"
    config.write_text(
        f"daemonize: false\nnfacctd_ip: 127.0.0.1\nnfacctd_port: {port}\nplugins: print\n"
        f"aggregate: src_host, dst_host, src_port, dst_port, proto, tos{times}\n"
        f"print_output_file: {spool}/flows.{suffix}\nprint_refresh_time: 60\n{options}"
    )
    process = subprocess.Popen(
        ["nfacctd", "-f", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "TZ": "Asia/Tokyo"},
    )
    try:
        wait_for(lambda: bool(udp_sockets(port)))
        send(port, [v5(protocol, 1, protocol=protocol) for protocol in range(256)])
        time.sleep(1.5)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
    zone = "UTC" if "utc" in options else "Asia/Tokyo"
    wait_for(lambda: spooled(spool, zone).height == 256)
    frame = spooled(spool, zone)
    assert frame.sort("bytes")["protocol"].to_list() == list(range(256))
    assert frame["bytes"].sum() == sum(range(1000, 1256))
    assert frame["packets"].sum() == 3 * 256
    expected = (NOW - 5) // 60 * 60_000 if "history" in options else NOW * 1000 - 5000
    assert frame["start"].unique().to_list() == [expected]
    if times:
        assert frame["end"].unique().to_list() == [NOW * 1000 - 1000]


def test_rocev2_with_a_congestion_mark_is_a_marked_pulse_of_the_compute_plane(tmp_path: Path) -> None:
    """What a switch samples of RoCEv2, through the real sfacctd; cluster.yaml has addresses and no planes."""
    training = Group("training", "Training", Role.TRAINING, (ip_network("10.0.0.0/24"),))
    nodes = tuple(Node(f"gpu-{n}", "training", (NodeAddress(ip_address(f"10.0.0.{n}")),)) for n in (1, 2))
    cluster = replace(a_cluster(EXPORTERS[2]), groups=(training,), nodes=nodes, services=with_well_known(()))
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool"):
        for tos in (2, 3):
            send(cluster.collector.sflow_port, [sflow("127.0.0.16", ROCE, 17, tos)])
    engine = Engine(cluster, Clock.LIVE, Counters())
    assert engine.take(spooled(tmp_path / "spool"), time.time()).is_empty()
    points = {measurement.name: frame for measurement, frame in engine.merge()}
    traffic = points[schema.TRAFFIC.name].select(schema.PROTO, schema.SERVICE, schema.PLANE).unique().rows()
    assert traffic == [("udp", "rocev2", "compute")]
    pulse = points[schema.PULSE.name].select(pl.sum("packets", schema.MARKED_PACKETS.name)).row(0)
    assert pulse == (2 * 1024, 1024)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may put a process first")
def test_a_daemon_goes_first(tmp_path: Path) -> None:
    cluster = a_cluster(EXPORTERS[0])
    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool") as collector:
        pid = collector.pids["nfacctd"]
        assert os.getpriority(os.PRIO_PROCESS, pid) < os.getpriority(os.PRIO_PROCESS, 0)
        group = Path(f"/proc/{pid}/autogroup")
        assert not group.exists() or group.read_text().split()[-1] == "-10"
