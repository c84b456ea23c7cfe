"""`clusterflow listen` on real sockets, in a network of its own: five senders, two of them wrong, and who is silent."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.model import Cluster, CollectorSettings, Exporter, ExportProtocol, Sampling, SamplingMode
from ingest.listen.exports import Protocol, Templates, read_export
from ingest.listen.packets import Datagram, parse
from ingest.listen.senders import Senders
from simulate.packets.netflow import FlowFormat, NetflowEncoder, RecordColumns
from simulate.packets.sflow import SflowEncoder

REPOSITORY = Path(__file__).resolve().parents[2]
NETFLOW, SFLOW = 2055, 6343

CONFIG = """
cluster: listen
groups: {training: {title: Training, role: training, prefixes: [10.1.0.0/16]}}
collector: {listen: "::"}
exporters:
  leaf-1: {address: 127.0.0.11}
  leaf-2: {address: "fd00::12"}
  leaf-3: {address: 127.0.0.13, protocol: sflow}
  leaf-4: {address: 127.0.0.14}
  border-1: {address: 127.0.0.15}
"""


def columns(now: int, count: int = 2) -> RecordColumns:
    def all_of(value: int) -> np.ndarray:
        return np.full(count, value)

    src, dst = (np.array([[10, 1, 0, host]] * count, np.uint8) for host in (1, 2))
    return RecordColumns(
        src, dst, *map(all_of, (4000, 443, 6, 24, 0, 3, 9, 1500, 1, now - 2000, now - 1000))
    )  # fmt: skip


def messages(kind: FlowFormat, rate: int = 1, agent: str = "127.0.0.13") -> list[bytes]:
    """Return two messages of an exporter, the first with templates and options where it has any."""
    now = int(time.time()) * 1000
    encoder: NetflowEncoder | SflowEncoder
    if kind is FlowFormat.SFLOW:
        encoder = SflowEncoder(ip_address(agent), boot=now - 3_600_000, rate=rate)
    else:
        encoder = NetflowEncoder(kind, source=7, boot=now - 3_600_000, rate=rate)
    packed = encoder.pack(columns(now))
    return [encoder.message(packed, 0, 2, now) for _ in range(2)]


def send(source: str, port: int, payloads: list[bytes]) -> None:
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.bind((source, 0))
        for payload in payloads:
            sender.sendto(payload, ("::1" if ":" in source else "127.0.0.1", port))


@pytest.mark.service
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: copies of packets, and a network namespace")
def test_five_senders_of_which_two_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CONFIG)
    told = tmp_path / "told.json"
    # Itself, in a network where nobody else sends: the host's may have any.
    inside = "import sys; sys.path.insert(0, 'tests/ingest'); import test_listen; test_listen.play(sys.argv[1])"
    network = ["unshare", "--net", sys.executable, "-c", inside, str(tmp_path)]
    done = subprocess.run(network, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(told.read_text())
    found: dict[str, dict[str, Any]] = {one["source"]: one for one in document["senders"]}
    assert set(found) == {"127.0.0.11", "127.0.0.14", "127.0.0.15", "127.0.0.99", "fd00::12"}
    assert {source for source, one in found.items() if one["wrong"]} == {"127.0.0.14", "127.0.0.99"}
    assert {source: (one["exporter"], one["protocol"], one["port"]) for source, one in found.items()} == {
        "127.0.0.11": ("leaf-1", "NetFlow v9", NETFLOW),
        "fd00::12": ("leaf-2", "IPFIX", NETFLOW),
        "127.0.0.14": ("leaf-4", "NetFlow v5", 9995),
        "127.0.0.15": ("border-1", "NetFlow v5", NETFLOW),
        "127.0.0.99": ("leaf-3", "sFlow v5", NETFLOW),
    }
    assert found["127.0.0.14"]["wrong"] == ["wrong port: UDP 9995 has no listener; send NetFlow v5 to 2055"]
    assert found["127.0.0.99"]["wrong"] == ["wrong port: UDP 2055 is for NetFlow and IPFIX; send sFlow v5 to 6343"]
    assert [found[source]["read_by_pmacct"] for source in ("127.0.0.11", "127.0.0.14", "127.0.0.99")] == [
        True, False, False,
    ]  # fmt: skip
    assert found["127.0.0.11"]["sampling_rates"] == [1000]
    assert (found["127.0.0.11"]["templates"], found["fd00::12"]["sampling_rates"]) == (3, [512])
    # Each exactly once, though lo shows each packet twice, when it leaves and when it arrives.
    assert {source: one["datagrams"] for source, one in found.items()} == dict.fromkeys(found, 2)
    assert document["silent_exporters"] == []


def play(folder: str) -> None:
    """Send as five exporters while the command listens; runs in a network namespace of its own."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", "fd00::12/128", "dev", "lo", "nodad"], check=True)
    command = [sys.executable, "-m", "clusterflow", "listen", "--config", f"{folder}/cluster.yaml", "--for", "4s"]
    with Path(folder, "told.json").open("wb") as told:
        listening = subprocess.Popen([*command, "--json"], stdout=told)
        deadline = time.monotonic() + 20
        while not Path("/proc/net/packet").read_text().splitlines()[1:]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.2)
        send("127.0.0.11", NETFLOW, messages(FlowFormat.V9, 1000))
        send("fd00::12", NETFLOW, messages(FlowFormat.IPFIX, 512))
        send("127.0.0.99", NETFLOW, messages(FlowFormat.SFLOW, 2048))
        send("127.0.0.14", 9995, messages(FlowFormat.V5))
        send("127.0.0.15", NETFLOW, messages(FlowFormat.V5))
        # Nobody's flow records, on nobody's port.
        send("127.0.0.16", 5353, [b"\x00\x0a" + bytes(40)])
        assert listening.wait(30) == 0


def test_without_the_right_there_is_one_clear_line(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("root gives its right away")
    (tmp_path / "cluster.yaml").write_text(CONFIG)
    command = ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw", sys.executable, "-m", "clusterflow"]
    command += ["listen", "--for", "1s", "--config", str(tmp_path / "cluster.yaml")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("the kernel gives no copies of packets: expected root, or CAP_NET_RAW")
    assert len(done.stderr.splitlines()) == 1


# -- what is said of senders ---------------------------------------------------------------------------

EXPORTERS = (
    Exporter("leaf-1", ip_address("10.0.0.1")),
    Exporter("leaf-2", ip_address("10.0.0.2"), ExportProtocol.SFLOW),
    Exporter("border", ip_address("10.0.0.3"), sampling=Sampling(SamplingMode.FIXED, 1000)),
)


def heard(
    source: str, port: int, payloads: list[bytes], *exporters: Exporter, sources: str = "", listen: str = "10.0.0.100"
) -> tuple[str, ...]:
    """Return what is wrong with a sender."""
    settings = CollectorSettings(listen=listen, sflow_sources=(ip_network(sources),) if sources else ())
    found = Senders(Cluster("test", (), exporters=exporters, collector=settings))
    for payload in payloads:
        found.take(Datagram(ip_address(source), ip_address("10.0.0.100"), port, payload))
    (one,) = found.heard(1.0)
    return one.wrong


def test_who_is_not_listed_is_dropped_or_counts_by_guesses() -> None:
    v9 = messages(FlowFormat.V9)
    assert heard("10.0.0.9", NETFLOW, v9, *EXPORTERS) == (
        "dropped: 10.0.0.9 is not listed: add it to exporters, with this address",
    )
    assert heard("10.0.0.9", NETFLOW, v9) == (), "no exporters are listed: all are taken"
    assert heard("::ffff:10.0.0.1", NETFLOW, v9, *EXPORTERS) == ()
    sflow = messages(FlowFormat.SFLOW, agent="10.0.0.9")
    assert heard("10.9.9.9", SFLOW, sflow, *EXPORTERS) == (
        "not listed: it counts under 10.0.0.9, with guesses; add that address to exporters",
    )
    assert heard("10.0.0.2", SFLOW, sflow, *EXPORTERS) == (
        "leaf-2 is listed by its source, and calls itself 10.0.0.9: write that as its address",
    )
    agent = messages(FlowFormat.SFLOW, agent="10.0.0.2")
    assert heard("10.9.9.9", SFLOW, agent, *EXPORTERS) == ()
    mapped = messages(FlowFormat.SFLOW, agent="::ffff:10.0.0.2")
    assert heard("10.9.9.9", SFLOW, mapped, *EXPORTERS) == (), "as the bridge reads it, and cluster.yaml wants it"
    assert heard("10.9.9.9", SFLOW, [*agent, *sflow], *EXPORTERS) == (
        "not listed: it counts under 10.0.0.9, with guesses; add that address to exporters",
    ), "two switches behind one address of a NAT"
    assert heard("10.9.9.9", SFLOW, agent, *EXPORTERS, sources="10.8.8.8") == (
        "dropped: 10.9.9.9 is not in collector.sflow_sources: add it there",
    )


@pytest.mark.parametrize("kind", FlowFormat)
@pytest.mark.parametrize("devices", [1, 2])
def test_devices_that_send_under_one_address_are_told(kind: FlowFormat, devices: int) -> None:
    """Behind a NAT, or with sFlow by a copied agent address."""
    now = int(time.time()) * 1000
    ours: list[NetflowEncoder | SflowEncoder] = []
    for boot in range(devices):
        up = now - 3_600_000 * (boot + 1)
        sflow = SflowEncoder(ip_address("10.0.0.2"), boot=up, rate=1)
        ours.append(sflow if kind is FlowFormat.SFLOW else NetflowEncoder(kind, source=0, boot=up, rate=1))
    if kind is FlowFormat.IPFIX:
        ours[-1]._sequence = 5_000
    found = Senders(Cluster("test", (), exporters=EXPORTERS))
    for second in range(5):
        for place, encoder in enumerate(ours):
            at = now + second * 1000
            payload = encoder.message(encoder.pack(columns(at)), 0, 2, at)
            source = f"10.9.9.{place}" if kind is FlowFormat.SFLOW else "10.0.0.1"
            port = SFLOW if kind is FlowFormat.SFLOW else NETFLOW
            found.take(Datagram(ip_address(source), ip_address("10.0.0.100"), port, payload))
    told = [one.wrong for one in found.heard(1.0)]
    assert all(("several devices send as" in "".join(wrong)) is (devices == 2) for wrong in told), told


def test_by_which_ip_version_the_collector_listens() -> None:
    v9, six = messages(FlowFormat.V9), Exporter("leaf-6", ip_address("fd00::6"))
    assert heard("fd00::6", NETFLOW, v9, six) == (
        "dropped: collector.listen is 10.0.0.100, which takes no IPv6: write ::",
    )
    assert heard("fd00::6", NETFLOW, v9, six, listen="::") == ()
    assert heard("10.0.0.1", NETFLOW, v9, *EXPORTERS, listen="::") == ()


def test_a_listed_exporter_that_speaks_something_else() -> None:
    assert heard("10.0.0.1", SFLOW, messages(FlowFormat.SFLOW, agent="10.0.0.1"), *EXPORTERS) == (
        "leaf-1 is listed with protocol: netflow, and sends sFlow v5: change that line",
    )
    both = Senders(Cluster("test", (), exporters=EXPORTERS))
    for port, payloads in (
        (NETFLOW, messages(FlowFormat.V5)),
        (SFLOW, messages(FlowFormat.SFLOW, agent="10.0.0.1")),
    ):
        for payload in payloads:
            both.take(Datagram(ip_address("10.0.0.1"), ip_address("10.0.0.100"), port, payload))
    assert [one.wrong for one in both.heard(1.0)] == [
        ("leaf-1 sends NetFlow, too: of what both tell, its sFlow (leaf-1/sflow) does not count",),
        (),
    ]
    v7 = struct.pack("!HH", 7, 1) + bytes(20 + 52)
    assert heard("10.0.0.1", NETFLOW, [v7], *EXPORTERS) == (
        "NetFlow v1, v7 or v8, which pmacct cannot read: have it send v9 or IPFIX",
    )
    (garbage,) = heard("10.0.0.1", NETFLOW, [b"hello, collector"], *EXPORTERS)
    assert garbage == "no flow export: nothing that nfacctd understands"


@pytest.mark.parametrize("kind", [FlowFormat.V9, FlowFormat.IPFIX])
def test_missing_templates_and_rates_are_told(kind: FlowFormat) -> None:
    first, second = messages(kind, 1000)
    assert heard("10.0.0.1", NETFLOW, [second], *EXPORTERS) == (
        "no template has come yet: nothing of it can be read, unless nfacctd has kept one",
    )
    assert heard("10.0.0.1", NETFLOW, [first, second], *EXPORTERS) == ()
    header = 20 if kind is FlowFormat.V9 else 16
    (size,) = struct.unpack_from("!H", first, header + 2)
    templates = first[: header + size]
    if kind is FlowFormat.IPFIX:
        templates = templates[:2] + struct.pack("!H", len(templates)) + templates[4:]
    assert heard("10.0.0.1", NETFLOW, [templates, second], *EXPORTERS) == (
        "it samples, and sent no rate in this time: listen longer, or set exporters.*.sampling",
    )
    assert heard("10.0.0.3", NETFLOW, [templates, second], *EXPORTERS) == (), "cluster.yaml tells its rate"


_UNREAD = ("pmacct does not read the rate in these fields: set exporters.*.sampling: 100",)
_CUT = "its rate is 1 in 2.333, and nfacctd takes it for 1 in 2: 14% of the bytes are missing"


@pytest.mark.parametrize(
    ("fields", "values", "wrong"),
    [
        ([(305, 4), (306, 4)], [1, 99], ()),
        ([(34, 4)], [100], ()),
        ([(48, 1), (50, 2)], [1, 100], ()),
        ([(305, 4)], [100], _UNREAD),
        ([(305, 2), (306, 2)], [1, 99], _UNREAD),
        ([(34, 2)], [100], _UNREAD),
        ([(50, 4)], [100], _UNREAD),
        ([(309, 4), (310, 4)], [1, 100], _UNREAD),
        ([(309, 4), (310, 4)], [3, 299], _UNREAD),
        ([(305, 4), (306, 4)], [2, 2], ()),
        (
            [(305, 4), (306, 4)],
            [3, 4],
            (f"{_CUT}; have it sample 1 packet in a whole number",),
        ),
    ],
)
def test_a_rate_in_fields_that_pmacct_does_not_read_is_told(
    fields: list[tuple[int, int]], values: list[int], wrong: tuple[str, ...]
) -> None:
    """What nfacctd 1.7.7 printed of each: the rate, or 0."""
    spec = b"".join(struct.pack("!HH", *one) for one in [(149, 4), *fields])
    sets = [(3, struct.pack("!HHH", 301, len(fields) + 1, 1) + spec)]
    sets.append(
        (301, bytes(4) + b"".join(value.to_bytes(size) for value, (_, size) in zip(values, fields, strict=True)))
    )
    body = b"".join(struct.pack("!HH", number, len(one) + 4) + one for number, one in sets)
    assert heard("10.0.0.1", NETFLOW, [struct.pack("!HHIII", 10, 16 + len(body), 0, 1, 7) + body], *EXPORTERS) == wrong


@pytest.mark.parametrize("kind", FlowFormat)
def test_datagrams_that_come_twice_are_told(kind: FlowFormat) -> None:
    """A switch that sends to two addresses of the collector, or a network that doubles: pmacct counts each one."""
    first, second = messages(kind)
    port, agent = (SFLOW, "127.0.0.13") if kind is FlowFormat.SFLOW else (NETFLOW, "10.0.0.1")
    assert heard(agent, port, [first, second]) == ()
    (wrong,) = heard(agent, port, [first, second, first, second])
    assert wrong.startswith("2 datagrams came twice, and count twice: ")


@given(
    st.binary(max_size=200), st.sampled_from([b"", b"\x00\x09\x00\x01", b"\x00\x0a", b"\x00\x00\x00\x05", b"E", b"`"])
)
def test_nothing_that_anybody_sends_raises(payload: bytes, start: bytes) -> None:
    known: Templates = {}
    read_export(start + payload, known)
    read_export(start + payload, known)
    parse(start + payload)


@pytest.mark.parametrize("kind", list(FlowFormat))
def test_what_is_cut_short_anywhere_does_not_raise(kind: FlowFormat) -> None:
    for message in messages(kind, 1000):
        for size in range(len(message)):
            assert read_export(message[:size], {}).protocol in list(Protocol)


def test_of_one_that_tells_ever_new_templates_the_last_ones_are_remembered() -> None:
    senders = Senders(Cluster("test", (), exporters=EXPORTERS))
    for domain in range(40):
        sets = b"".join(struct.pack("!HHHHHH", 2, 12, 256 + number, 1, 8, 4) for number in range(50))
        payload = struct.pack("!HHIII", 10, 16 + len(sets), 0, 1, domain) + sets
        senders.take(Datagram(ip_address("10.0.0.1"), ip_address("10.0.0.100"), NETFLOW, payload))
    (one,) = senders.heard(1)
    assert one.json()["templates"] == 256
    assert {domain for domain, _ in one.sender.templates} == {34, 35, 36, 37, 38, 39}


def test_packets_of_ipv6_with_other_headers_before_udp() -> None:
    udp = struct.pack("!HHHH", 4000, NETFLOW, 8 + 5, 0) + b"hello"
    addresses = ip_address("fd00::1").packed + ip_address("fd00::2").packed
    for chain, first in ((b"", 17), (bytes([17, 0]) + bytes(6), 0), (bytes([17, 0, 0, 1]) + bytes(4), 44)):
        packet = struct.pack("!IHBB", 6 << 28, len(chain + udp), first, 64) + addresses + chain + udp
        datagram = parse(packet)
        assert datagram is not None
        assert (datagram.port, datagram.payload, str(datagram.source)) == (NETFLOW, b"hello", "fd00::1")
    later = bytes([17, 0, 0, 8]) + bytes(4)
    assert parse(struct.pack("!IHBB", 6 << 28, 21, 44, 64) + addresses + later + udp) is None, "no first fragment"
