"""Interface counters: what we send is what the real sfacctd writes, and what files of ours hold."""

import shutil
import socket
import time
from ipaddress import ip_address
from pathlib import Path

import polars as pl
import pytest
from test_simulate_pmacct import udp_port

from cluster.load import load_cluster
from cluster.model import Cluster, CollectorSettings, Exporter, ExportProtocol, Group, Interface, Role
from ingest.collect import counter_files, supervise
from ingest.collect.supervise import Collector
from ingest.read.counter_samples import EXPORTER, IN_OCTETS, INDEX, MOMENT, OUT_OCTETS, read_counter_samples
from simulate.incidents.stage import Stage
from simulate.incidents.staging_pipeline import exporter_silent
from simulate.packets.polls import POLL_SECONDS, InterfaceCounters, LinkCounters, Poll, as_printed
from simulate.packets.sflow import FRAME_OVERHEAD, SflowEncoder
from simulate.packets.spool_files import SpoolWriter
from simulate.scenarios.scenario import Phase, Profile, Run, Scenario
from simulate.traffic.cast import Cast
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth

REPOSITORY = Path(__file__).parents[2]
START = 1_795_248_000
MGMT = "mgmt-sw"

needs_pmacct = pytest.mark.skipif(shutil.which("sfacctd") is None, reason="pmacct is not installed")


def samples_in(folder: Path) -> pl.DataFrame:
    frames = []
    for path in sorted(folder.glob("sfacct-counters-*.json")):
        parsed = read_counter_samples(path.read_bytes())
        assert parsed.dead.is_empty()
        frames.append(parsed.frame)
    return pl.concat(frames) if frames else pl.DataFrame()


def wait_for(folder: Path, rows: int) -> pl.DataFrame:
    deadline = time.monotonic() + 20
    while (found := samples_in(folder)).height < rows:
        assert time.monotonic() < deadline, f"{found.height} of {rows} samples"
        time.sleep(0.1)
    return found


@needs_pmacct
def test_sfacctd_writes_what_was_sent_across_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two agents, more interfaces than a datagram holds; a new file is begun three times meanwhile."""
    monkeypatch.setattr(supervise, "_SETTLED_SECONDS", 1.0)
    agents = [ip_address("127.0.0.16"), ip_address("127.0.0.17")]
    exporters = tuple(Exporter(f"sw-{n}", agent, ExportProtocol.SFLOW) for n, agent in enumerate(agents))
    settings = CollectorSettings("127.0.0.1", udp_port(), udp_port(), refresh=1, rotate=1)
    cluster = Cluster("test", (Group("training", "Training", Role.TRAINING),), exporters=exporters, collector=settings)
    encoders = [SflowEncoder(agent, START * 1000, 1000) for agent in agents]
    folder = tmp_path / "spool" / counter_files.FOLDER
    sent = []
    with (
        Collector(cluster, tmp_path / "run", spool=tmp_path / "spool") as collector,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        for number in range(1, 9):
            links = tuple(
                InterfaceCounters(n, 10**11, number * n * 10**12, number * n * 7, n, 2 * n, 3 * n, 4 * n)
                for n in range(1, 26)
            )
            polls = [Poll((START + 20 * number) * 1000, agent, links) for agent in (0, 1)]
            for poll in polls:
                messages = encoders[poll.exporter].poll(poll)
                assert len(messages) > 1
                for message in messages:
                    sender.sendto(message, ("127.0.0.1", settings.sflow_port))
                sent += as_printed(poll, str(agents[poll.exporter]), number)
            time.sleep(0.6)
            collector.poll()
        found = wait_for(folder, len(sent))
        assert collector.restarts == {"sfacctd": 0}
        assert collector.complaints == {"sfacctd": 0}
    files = sorted(folder.glob("sfacct-counters-*.json"))
    assert len(files) >= 3
    assert {path.stat().st_mode & 0o777 for path in files} == {0o640}
    expected = read_counter_samples("".join(f"{line}\n" for line in sent).encode()).frame
    order = [EXPORTER, "seq", INDEX]
    assert found.drop(MOMENT).sort(order).equals(expected.drop(MOMENT).sort(order))


def workload(silent: tuple[int, int] | None = None) -> Workload:
    cluster = load_cluster(REPOSITORY / "cluster.yaml")
    cast = Cast(cluster)
    run = Run("live", tuple(cast.training), START, START + 120, 60)
    stage = Stage(cluster, cast, Profile(), (run,), None, 3)
    incidents = (exporter_silent(stage, *silent, exporter=MGMT),) if silent else ()
    return Workload(cluster, Scenario(3, Phase(START, START + 120, 10, 10), runs=(run,), incidents=incidents))


def test_counters_are_what_the_packets_were_before_sampling() -> None:
    played = workload()
    polls = [poll for batch in played.batches(played.scenario.live) for poll in batch.polls]
    assert [poll.at for poll in polls] == [(START + at) * 1000 for at in range(POLL_SECONDS, 121, POLL_SECONDS)]
    totals = [poll.interfaces[0].in_octets for poll in polls]
    assert totals == sorted(totals)
    assert totals[0] > 0
    # What the samples of the same switch add up to: nearly the same, since they are samples.
    frames = [batch.frame for batch in played.batches(played.scenario.live)]
    agent = next(i for i, exporter in enumerate(played.cluster.exporters) if exporter.name == MGMT)
    sampled = pl.concat(frames).filter(pl.col("exporter") == agent)
    estimate = int((sampled["bytes"] * sampled["rate"]).sum())
    assert abs(estimate / totals[-1] - 1) < 0.2


def test_octets_are_counted_as_they_pass() -> None:
    cluster = Cluster(
        "test",
        (),
        exporters=(
            Exporter(
                "sw", ip_address("127.0.0.1"), ExportProtocol.SFLOW, interfaces=(Interface(1, "a"), Interface(2, "b"))
            ),
        ),
    )
    counters = LinkCounters(cluster, [0])
    row = {"exporter": 0, "in_iface": 1, "out_iface": 2, "start": 10_000, "end": 50_000, "octets": 4000}
    counters.add(pl.DataFrame([row]))
    found = {
        poll.at: [(one.in_octets, one.out_octets) for one in poll.interfaces] for poll in counters.polls(0, 60_000)
    }
    assert found == {
        20_000: [(1000, 0), (0, 1000)],
        40_000: [(3000, 0), (0, 3000)],
        60_000: [(4000, 0), (0, 4000)],
    }


def test_a_silent_switch_tells_nothing() -> None:
    played = workload(silent=(START + 30, START + 90))
    polls = [poll.at // 1000 - START for batch in played.batches(played.scenario.live) for poll in batch.polls]
    assert polls == [20, 100, 120]


def test_files_hold_what_was_polled(tmp_path: Path) -> None:
    played = workload()
    truth = GroundTruth(played)
    with SpoolWriter(played, tmp_path, truth) as writer:
        for batch in played.batches(played.scenario.live):
            writer.write(batch)
    found = samples_in(tmp_path / counter_files.FOLDER)
    assert found.height == 120 // POLL_SECONDS
    (told,) = (part for part in truth.document()["interfaces"] if part["exporter"] == MGMT)
    grown = [found[name][-1] - found[name][0] for name in (IN_OCTETS, OUT_OCTETS)]
    assert grown == [told["counter_in_bytes"], told["counter_out_bytes"]]
    assert grown[0] > FRAME_OVERHEAD
