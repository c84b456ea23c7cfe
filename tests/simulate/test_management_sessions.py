"""The scenario of management sessions, against its ground truth: records through the bridge, sessions out."""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl
import pytest

from analysis.detectors.management.session_study import ledger
from analysis.detectors.management.sessions import joined, oriented
from archive import layout
from archive.schema import SCHEMA
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from simulate.incidents.incident import Incident
from simulate.recording import RecordFrames
from simulate.scenarios.scenario import Background
from simulate.scenarios.script import Script, find_script, load_script
from simulate.traffic.workload import Workload
from store import schema
from store.points import WINDOW


@pytest.fixture(scope="module")
def script() -> Script:
    return load_script(find_script("management-sessions"))


@pytest.fixture(scope="module")
def played(script: Script) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the archived records of what is staged, and the windows of `managed`."""
    workload = Workload(script.cluster, replace(script.scenario, background=Background.NONE))
    archived: list[pl.DataFrame] = []
    engine = Engine(script.cluster, Clock.BACKFILL, Counters(), archived=archived.append)
    points: list[pl.DataFrame] = []
    frames = RecordFrames(workload)
    for batch in workload.batches(script.scenario.live):
        frame, numbers = frames.arrived(batch)
        if frame.height:
            engine.take(frames.named(frame, numbers), batch.until / 1000)
            points += [changed for measurement, changed in engine.merge() if measurement is schema.MANAGED]
    written = pl.concat(points, how="diagonal")
    keys = [WINDOW, *(tag for tag in schema.MANAGED.tags if tag != schema.SHARD)]
    return layout.joined(archived).cast(SCHEMA), written.unique(keys, keep="last")


def _staged(script: Script) -> Iterator[tuple[Incident, tuple[int, int], tuple[int, int]]]:
    """Yield each session: its incident, begin and end, bytes that the client sent and received."""
    for incident in script.incidents:
        if incident.port == 2049:
            continue
        sessions: list[list[int]] = []
        for talk in sorted(incident.transfers, key=lambda one: one.start):
            sent, received = (0, talk.volume) if talk.answers else (talk.volume, talk.reply or 0)
            if sessions and talk.start - sessions[-1][1] <= script.cluster.management.session_gap:
                last = sessions[-1]
                last[1], last[2], last[3] = talk.end, last[2] + sent, last[3] + received
            else:
                sessions.append([talk.start, talk.end, sent, received])
        for begin, end, sent, received in sessions:
            yield incident, (begin, end), (sent, received)


def test_sessions_of_the_archive_are_exact(script: Script, played: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    counted = played[0].filter(pl.col("counted"))
    gap = script.cluster.management.session_gap
    found = joined(oriented(counted, script.cluster), gap, script.start, script.end)
    told = sorted(found.select("src_node", "dst_node", "service", "start", "end", "sent", "received").iter_rows())
    names = {830: "netconf", 22: "ssh", 623: "ipmi"}
    expected = sorted(
        (incident.src, incident.dst, names[incident.port], begin, end - 1, *volumes)
        for incident, (begin, end), volumes in _staged(script)
    )
    assert [row[:3] for row in told] == [row[:3] for row in expected]
    assert [row[5:] for row in told] == [row[5:] for row in expected]
    # A record ends with its last packet.
    assert all(
        abs(one - other) <= 1
        for a, b in zip(told, expected, strict=True)
        for one, other in zip(a[3:5], b[3:5], strict=True)
    )


def test_the_ledger_counts_the_same_sessions(script: Script, played: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    cluster = script.cluster
    used = played[1].with_columns(pl.lit("-").alias(schema.USER))
    found = ledger(
        used, start=script.start, stop=script.end, gap=cluster.management.session_gap, window=cluster.bridge.window
    )
    sums = found.group_by(schema.SRC, schema.DST).agg(pl.sum("sessions_begun", "bytes", "tx_bytes"))
    expected: dict[tuple[str, str], tuple[int, int, int]] = {}
    for incident, _, (sent, received) in _staged(script):
        number, both, tx = expected.get((incident.src, incident.dst), (0, 0, 0))
        expected[incident.src, incident.dst] = number + 1, both + sent + received, tx + sent
    assert {(row[0], row[1]): row[2:] for row in sums.iter_rows()} == expected


def test_the_scenario_has_what_is_hard(script: Script) -> None:
    """A session longer than an active timeout, one direction only, answers only, two sessions of one pair."""
    sessions = list(_staged(script))
    assert any(end - begin > 10 * script.scenario.live.timeout for _, (begin, end), _ in sessions)
    assert any(sent == 0 for *_, (sent, _) in sessions)
    assert any(received == 0 for *_, (_, received) in sessions)
    assert len(sessions) > len({incident.id for incident, *_ in sessions})
