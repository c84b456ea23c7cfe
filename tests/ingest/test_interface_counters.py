"""Interface counters of sFlow agents: from sfacctd's lines to what went through between two samples."""

import json
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import polars as pl
import pytest
from test_engine import T0, cluster, one

from cluster.model import Exporter, ExportProtocol
from ingest.collect import counter_files
from ingest.collect.counter_files import CounterFiles
from ingest.count.counter_deltas import LONGEST, CounterDeltas
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.read import counter_samples as samples
from ingest.read.counter_samples import SAMPLE_SCHEMA, read_counter_samples
from store import schema
from store.points import encode

AGENT = "127.0.0.4"

LINE = {
    "seq": 3, "timestamp": "1790000000.250000", "peer_ip_src": AGENT, "event_type": "log", "source_id_index": 4,
    "sflow_seq": 2, "sflow_cnt_seq": 2, "sf_cnt_type": "sflow_cnt_generic", "ifIndex": 4, "ifType": 6,
    "ifSpeed": 100_000_000_000, "ifDirection": 1, "ifStatus": 3, "ifInOctets": 1000, "ifInUcastPkts": 1,
    "ifInMulticastPkts": 2, "ifInBroadcastPkts": 3, "ifInDiscards": 4, "ifInErrors": 5, "ifInUnknownProtos": 6,
    "ifOutOctets": 2000, "ifOutUcastPkts": 7, "ifOutMulticastPkts": 8, "ifOutBroadcastPkts": 9, "ifOutDiscards": 10,
    "ifOutErrors": 11, "ifPromiscuousMode": 0,
}  # fmt: skip
"""As sfacctd 1.7.7 printed it."""

OTHER_LINES = (
    {"seq": 0, "timestamp": "1790000000.250000", "peer_src_ip": AGENT, "event_type": "log_init"},
    {"seq": 4, "event_type": "log", "sf_cnt_type": "sflow_cnt_ethernet", "dot3StatsFCSErrors": 1},
    {"seq": 5, "event_type": "log", "sflow_seq": 9},
)
"""What stands beside the samples: the beginning of an agent's log, Ethernet's counters, kinds that sfacctd skips."""


def text(*documents: object) -> bytes:
    return "".join(f"{json.dumps(document)}\n" for document in documents).encode()


def test_a_sample_as_sfacctd_prints_it() -> None:
    parsed = read_counter_samples(text(*OTHER_LINES, LINE))
    assert parsed.dead.is_empty()
    assert parsed.frame.schema == pl.Schema(SAMPLE_SCHEMA)
    assert parsed.frame.rows() == [(AGENT, 4, 1_790_000_000_250, 2, 100_000_000_000, 1000, 2000, 5, 11, 4, 10)]


@pytest.mark.parametrize(
    ("change", "column", "value"),
    [
        ({"ifInOctets": -1}, samples.IN_OCTETS, None),  # all ones: the agent does not count
        ({"ifInErrors": 4_294_967_295}, samples.IN_ERRORS, None),
        ({"ifOutDiscards": 4_294_967_294}, samples.OUT_DISCARDS, 4_294_967_294),
        ({"ifSpeed": 0}, samples.SPEED, None),
        ({"timestamp": "2026-09-21 14:13:20.250000"}, samples.MOMENT, 1_790_000_000_250),
    ],
)
def test_what_is_not_told_is_not_known(change: dict[str, object], column: str, value: int | None) -> None:
    assert read_counter_samples(text(LINE | change)).frame[column].to_list() == [value]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"not json", "not_a_record"),
        (b'["a list"]', "not_a_record"),
        (b"\xff\xfe", "not_a_record"),
        (b"[" * 100_000, "not_a_record"),
        (text(LINE | {"ifIndex": "four"}).strip(), "missing_field"),
        (text(LINE | {"timestamp": None}).strip(), "missing_field"),
        (text({key: value for key, value in LINE.items() if key != "peer_ip_src"}).strip(), "missing_field"),
    ],
)
def test_a_line_that_makes_no_sense_is_a_dead_letter_and_spoils_no_other(bad: bytes, reason: str) -> None:
    parsed = read_counter_samples(text(LINE) + bad + b"\n" + text(LINE | {"ifIndex": 5}))
    assert parsed.frame[samples.INDEX].to_list() == [4, 5]
    assert parsed.dead["reason"].to_list() == [reason]


def test_a_chunk_of_nothing() -> None:
    for raw in (b"", b"\n\n", text(*OTHER_LINES)):
        parsed = read_counter_samples(raw)
        assert (parsed.frame.height, parsed.dead.height) == (0, 0)


# -- growth --------------------------------------------------------------------------------------------


def series(*rows: tuple[int, int, int]) -> pl.DataFrame:
    """Samples of one interface: seconds, number, bytes in; its errors are a thousandth of those."""
    frame = [
        {samples.EXPORTER: AGENT, samples.INDEX: 4, samples.MOMENT: T0 + second * 1000, samples.SEQ: seq}
        | {samples.IN_OCTETS: octets, samples.OUT_OCTETS: 2 * octets, samples.IN_ERRORS: octets // 1000 % (1 << 32)}
        for second, seq, octets in rows
    ]
    return pl.DataFrame([dict.fromkeys(SAMPLE_SCHEMA) | row for row in frame], schema=SAMPLE_SCHEMA)


@pytest.mark.parametrize(
    ("rows", "grown"),
    [
        ([(0, 1, 1000)], []),
        ([(0, 1, 1000), (20, 2, 1500), (40, 3, 1500)], [500, 0]),
        # A sample that was lost: the next one knows what went through meanwhile.
        ([(0, 1, 1000), (60, 4, 4000)], [3000]),
        # Sent twice, and overtaken.
        ([(0, 1, 1000), (0, 1, 1000), (20, 2, 1500)], [500]),
        ([(0, 1, 1000), (41, 3, 3000), (40, 2, 2000), (60, 4, 4000)], [2000, 1000]),
        # Counted anew, with and without a restart of the agent.
        ([(0, 1, 9000), (20, 2, 100), (40, 3, 300)], [200]),
        ([(0, 500, 9000), (20, 1, 9500), (40, 2, 9600)], [100]),
        # Bytes have 64 bits: a fall from near 2^32 is no wrap.
        ([(0, 1, (1 << 32) - 5), (20, 2, 100)], []),
        # Too long ago, and a clock that was set back.
        ([(0, 1, 1000), (LONGEST + 1, 2, 5000), (LONGEST + 21, 3, 6000)], [1000]),
        ([(100, 1, 1000), (20, 2, 5000), (40, 3, 6000)], [1000]),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_growth_of_bytes(rows: list[tuple[int, int, int]], grown: list[int], *, at_once: bool) -> None:
    deltas = CounterDeltas(cluster())
    frames = [deltas.take(series(*part)).frame for part in ([rows] if at_once else [[row] for row in rows])]
    found = [value for frame in frames if frame.height for value in frame[samples.IN_OCTETS].to_list()]
    assert found == grown


def test_errors_have_32_bits_and_wrap() -> None:
    deltas = CounterDeltas(cluster())
    top = (1 << 32) * 1000
    frame = deltas.take(series((0, 1, top - 5000), (20, 2, top + 7000))).frame
    assert frame[samples.IN_ERRORS].to_list() == [12]


def test_interfaces_and_agents_do_not_mix() -> None:
    deltas = CounterDeltas(cluster())
    other_port = series((0, 1, 50), (20, 2, 60)).with_columns(pl.lit(5, pl.Int64).alias(samples.INDEX))
    other_agent = series((0, 1, 7), (20, 2, 8)).with_columns(pl.lit("192.0.2.1").alias(samples.EXPORTER))
    frame = deltas.take(pl.concat([series((0, 1, 100), (20, 2, 400)), other_port, other_agent])).frame
    assert sorted(frame[samples.IN_OCTETS].to_list()) == [1, 10, 300]


def test_memory_holds_what_can_still_grow() -> None:
    deltas = CounterDeltas(cluster())
    deltas.take(series((0, 1, 100)))
    later = series((LONGEST + 1, 1, 100)).with_columns(pl.lit(5, pl.Int64).alias(samples.INDEX))
    deltas.take(later)
    assert deltas.newest[samples.INDEX].to_list() == [5]


def test_agents_whose_addresses_pmacct_mangles_are_left_out_and_counted() -> None:
    agents = [Exporter(f"v6-{n}", ip_address(f"fd00:60::{n}"), ExportProtocol.SFLOW) for n in (1, 2)]
    counters = Counters()
    engine = Engine(replace(cluster(), exporters=(*cluster().exporters, *agents)), Clock.LIVE, counters)
    mangled = series((0, 1, 100), (20, 2, 200)).with_columns(pl.lit("253.0.0.96").alias(samples.EXPORTER))
    engine.take_counters(mangled)
    assert engine.merge() == []
    assert dict(counters.totals())["normalise", "counters_unknown_agent"] == 2
    assert not engine.exporters


# -- points --------------------------------------------------------------------------------------------


def counter_points(engine: Engine) -> pl.DataFrame:
    """What the store would hold after all writes so far: of each window the last one."""
    frames = [points for measurement, points in engine.merge() if measurement is schema.INTERFACE_TRAFFIC]
    return pl.concat(frames)


def test_growth_is_spread_over_the_time_between_samples() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    engine.take_counters(series((5, 1, 1000), (25, 2, 3000)))
    points = counter_points(engine).sort("window")
    start = T0 // 1000
    columns = ["window", schema.INTERFACE, schema.KIND, schema.COUNTER_IN_BYTES.name, schema.COUNTER_OUT_BYTES.name]
    assert points.select(columns).rows() == [
        (start, "4", "edge", 500, 1000),
        (start + 10, "4", "edge", 1000, 2000),
        (start + 20, "4", "edge", 500, 1000),
    ]
    # What the agent does not count is no zero.
    assert points[schema.OUT_ERRORS.name].to_list() == [None] * 3
    assert points[schema.IN_ERRORS.name].sum() == 2


def test_flow_records_and_counters_meet_in_one_point_of_the_store() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    engine.take(one(exporter=AGENT, iface_in=4, bytes=1018), T0 / 1000)
    engine.take_counters(series((0, 1, 0), (10, 2, 700)))
    lines = [encode(m, p).decode() for m, p in engine.merge() if m is schema.INTERFACE_TRAFFIC]
    heads = {line.split(" ")[0] for line in lines}
    assert len(lines) == 2
    assert len(heads) == 1
    fields = [{part.split("=")[0] for part in line.split(" ")[1].split(",")} for line in lines]
    assert not fields[0] & fields[1]


@pytest.mark.parametrize(("thrown", "grown"), [((0, 0, 5000), [(None, 5000)]), ((7, 7, 7), [])])
def test_what_is_thrown_away_has_rows_of_its_own(thrown: tuple[int, ...], grown: list[tuple[int | None, int]]) -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    told = series((0, 1, 0), (10, 2, 700), (20, 3, 900)).with_columns(pl.Series(samples.OUT_DISCARDS, thrown))
    engine.take_counters(told)
    names = [schema.IN_DISCARDS.name, schema.OUT_DISCARDS.name]
    for points in (engine.merge(), engine.all_points()):
        found = [frame for measurement, frame in points if measurement is schema.DISCARDING]
        assert [row for frame in found for row in frame.select(names).rows()] == grown


def test_the_speed_is_cluster_yamls_or_else_the_agents() -> None:
    def speeds(index: int) -> list[int | None]:
        engine = Engine(cluster(), Clock.LIVE, Counters())
        told = series((0, 1, 0), (10, 2, 700)).with_columns(
            pl.lit(index, pl.Int64).alias(samples.INDEX),
            pl.lit("127.0.0.1").alias(samples.EXPORTER),
            pl.lit(25_000_000_000, pl.Int64).alias(samples.SPEED),
        )
        engine.take_counters(told)
        return counter_points(engine)[schema.SPEED.name].to_list()

    assert speeds(1) == [400_000_000_000]
    assert speeds(2) == [25_000_000_000]


def test_a_restart_between_two_samples_loses_nothing() -> None:
    before, after = (Engine(cluster(), Clock.LIVE, Counters()) for _ in range(2))
    before.take_counters(series((0, 1, 1000), (20, 2, 1500)))
    before.merge()
    after.load(*before.dump())
    after.take_counters(series((40, 3, 1900)))
    after.merge()
    points = after.tables["interface-counters"].all_points()
    assert points[schema.COUNTER_IN_BYTES.name].sum() == 900


def test_a_switch_through_which_nothing_goes_is_not_silent() -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters())
    engine.take_counters(series((0, 1, 1000), (20, 2, 1000)))
    reading = engine.exporters["sflow"]
    assert reading.last_seen == T0 / 1000 + 20
    assert (reading.lag, reading.sampling) == (None, None)


# -- files ---------------------------------------------------------------------------------------------


def test_the_folder_is_as_open_as_the_spool_and_the_link_moves_on(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    files = CounterFiles(tmp_path)
    files.prepare()
    assert files.folder.stat().st_mode & 0o7777 == 0o2770
    link = files.folder / "current.json"
    first = link.readlink()
    link.write_text("a line\n")
    assert (files.folder / first).read_text() == "a line\n"
    # Again, as after a restart: what was written stays.
    files.prepare()
    files.begin()
    assert (files.folder / first).read_text() == "a line\n"
    assert str(link.readlink()).startswith("sfacct-counters-")


def test_names_of_the_files_rise_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with a later one is deleted once it is read: sfacctd must not write to it any more."""
    files = CounterFiles(tmp_path)
    names = []
    for moment in (2000, 1000, 1000, 3000):
        monkeypatch.setattr(counter_files.time, "time", lambda moment=moment: moment)
        files.prepare()
        names.append((files.folder / "current.json").readlink())
        (files.folder / "current.json").write_text("a line\n")
        files = CounterFiles(tmp_path)
    assert names == sorted({*names})
