"""What pmacct prints as CSV, in all its ways, and what is not CSV at all."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.read import records
from ingest.read.readers import OWN, Format, Kind, read_chunk, sniff
from ingest.read.readers_csv import _read_any
from ingest.read.records import RECORD_SCHEMA, SFLOW, Parsed, Reason

HEADER = ",".join(records.SPOOL_COLUMNS)
TIMES = "1666345513.807000,1666345513.907000,1666345514.500000"
GOOD = f"127.0.0.11,1,2,10.20.0.1,10.30.0.1,40000,2049,24,6,0,1,{TIMES},7,9,3,10,1,15000"
RECORD = {
    "exporter": "127.0.0.11", "iface_in": 1, "iface_out": 2, "src": "10.20.0.1", "dst": "10.30.0.1", "src_port": 40000,
    "dst_port": 2049, "protocol": 6, "tcp_flags": 24, "tos": 0, "sampling_rate": 1, "start": 1666345513807,
    "end": 1666345513907, "arrival": 1666345514500, "seq": 7, "version": 9, "domain": 3, "bytes": 15000, "packets": 10,
    "flows": 1,
}  # fmt: skip


def with_value(title: str, value: str) -> str:
    fields = GOOD.split(",")
    fields[records.SPOOL_COLUMNS.index(title)] = value
    return ",".join(fields)


def read(*lines: str, fmt: Format = OWN) -> Parsed:
    return read_chunk(("\n".join(lines) + "\n").encode(), fmt)


def test_reads_a_record_of_our_own_configuration() -> None:
    """Types, units (ms) and order are those of RECORD_SCHEMA."""
    parsed = read("--START (12)--", HEADER, GOOD, "--END (12)--")
    assert dict(parsed.frame.schema) == RECORD_SCHEMA
    assert parsed.frame.to_dicts() == [RECORD]
    assert parsed.counts == {}


@pytest.mark.parametrize(
    ("title", "printed", "column", "value"),
    [
        ("PROTOCOL", "tcp", "protocol", 6),
        ("PROTOCOL", "ipv6-icmp", "protocol", 58),
        ("PROTOCOL", "IPcomp", "protocol", 108),
        ("PROTOCOL", "253", "protocol", 253),
        ("TIMESTAMP_START", "2022-10-21 09:45:13.807000", "start", 1666345513807),
        ("TIMESTAMP_START", "2022-10-21 09:45:13", "start", 1666345513000),
        ("TIMESTAMP_START", "2022-10-21T09:45:13.807000Z", "start", 1666345513807),
        ("TIMESTAMP_START", "2022-10-21T11:45:13.807000+02:00", "start", 1666345513807),
        ("TIMESTAMP_START", "1666345513", "start", 1666345513000),
        ("TIMESTAMP_START", "1666345513.807999", "start", 1666345513808),
        ("TIMESTAMP_END", "0.000000", "end", None),
        ("TIMESTAMP_END", "0000-00-00 00:00:00.000000", "end", None),
        ("TIMESTAMP_END", "0000-00-00T00:00:00Z", "end", None),
        ("TIMESTAMP_END", "", "end", None),
        ("PEER_SRC_IP", "::ffff:10.0.0.9", "exporter", "10.0.0.9"),
        ("PEER_SRC_IP", "2001:db8::9", "exporter", "2001:db8::9"),
        ("PEER_SRC_IP", "", "exporter", None),
        ("OUT_IFACE", "2147483658", "iface_out", 2147483658),
        ("SAMPLING_RATE", "0", "sampling_rate", 0),
        ("SAMPLING_RATE", "", "sampling_rate", 0),
        ("EXPORT_PROTO_SEQNO", "4294967295", "seq", 4294967295),
        ("FLOWS", "", "flows", 1),
        ("PACKETS", "", "packets", 0),
        ("BYTES", str(1 << 50), "bytes", 1 << 50),
        ("BYTES", " 15000", "bytes", 15000),
    ],
)
def test_tolerates_the_ways_in_which_a_value_is_printed(title: str, printed: str, column: str, value: object) -> None:
    """Alone in a chunk, and among records printed the usual way: which path reads it makes no difference."""
    odd = with_value(title, printed)
    expected = {**RECORD, column: value}
    assert read(odd).frame.to_dicts() == [expected]
    mixed = read(GOOD, odd, GOOD)
    assert mixed.frame.to_dicts() == [RECORD, expected, RECORD]
    assert read(odd, GOOD).frame.to_dicts() == [expected, RECORD]
    assert mixed.counts == {}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (with_value("BYTES", "-1"), Reason.COUNTER_OUT_OF_RANGE),
        (with_value("BYTES", str((1 << 50) + 1)), Reason.COUNTER_OUT_OF_RANGE),
        (with_value("BYTES", "18446744073709551615"), Reason.COUNTER_OUT_OF_RANGE),
        (with_value("PACKETS", "18446744073709551615"), Reason.COUNTER_OUT_OF_RANGE),
        (with_value("BYTES", "many"), Reason.BAD_COUNTER),
        (with_value("BYTES", "1.5"), Reason.BAD_COUNTER),
        (with_value("BYTES", ""), Reason.MISSING_FIELD),
        (with_value("SRC_IP", ""), Reason.MISSING_FIELD),
        (with_value("DST_IP", ""), Reason.MISSING_FIELD),
        (with_value("PROTOCOL", "xyz"), Reason.BAD_PROTOCOL),
        (with_value("PROTOCOL", "256"), Reason.BAD_PROTOCOL),
        (with_value("SRC_PORT", "65536"), Reason.BAD_NUMBER),
        (with_value("SRC_PORT", "-1"), Reason.BAD_NUMBER),
        (with_value("TIMESTAMP_START", "yesterday"), Reason.BAD_TIME),
        (with_value("TIMESTAMP_START", "nan"), Reason.BAD_TIME),
        (with_value("TIMESTAMP_START", "-1.0"), Reason.BAD_TIME),
        (with_value("TIMESTAMP_START", "2022-13-21 09:45:13"), Reason.BAD_TIME),
        (GOOD + ",1", Reason.WRONG_FIELD_COUNT),
        (GOOD[:60], Reason.WRONG_FIELD_COUNT),
        ("--EN", Reason.WRONG_FIELD_COUNT),
        ("--garbage (1)--", Reason.WRONG_FIELD_COUNT),
        (GOOD[:70] + "--END (12)--", Reason.WRONG_FIELD_COUNT),
        ("\x00\x00\x00", Reason.WRONG_FIELD_COUNT),
        ('{"event_type": "purge"}', Reason.WRONG_FIELD_COUNT),
    ],
)
def test_a_bad_line_is_one_dead_letter_and_its_neighbours_live(line: str, reason: Reason) -> None:
    parsed = read("--START (1)--", GOOD, line, GOOD, "--END (1)--")
    assert parsed.frame.to_dicts() == [RECORD, RECORD]
    assert parsed.dead.rows() == [(line, reason.value)]
    assert read(line).dead.rows() == [(line, reason.value)]


def test_bytes_that_are_no_utf8_are_kept_escaped() -> None:
    parsed = read_chunk(GOOD.encode() + b"\n\xff\xfe\x01,\n" + GOOD.encode() + b"\n", OWN)
    assert parsed.frame.height == 2
    assert parsed.dead.rows() == [("\\xff\\xfe\\x01,", "wrong_field_count")]


def test_windows_line_ends_and_blank_lines() -> None:
    raw = f"{HEADER}\r\n\r\n{GOOD}\r\n\n{GOOD}\r\n".encode()
    parsed = read_chunk(raw, sniff(raw))
    assert parsed.frame.to_dicts() == [RECORD, RECORD]
    assert parsed.dead.height == 0


def test_the_header_tells_the_columns() -> None:
    """Other columns, another order, another separator; what we do not know is left out."""
    raw = b"TAG;SRC_IP;DST_IP;PROTOCOL;AS_PATH;PACKETS;BYTES\n0;10.0.0.1;10.0.0.2;udp;1_2;3;99\n"
    parsed = read_chunk(raw, sniff(raw))
    row = parsed.frame.to_dicts()[0]
    assert (row["src"], row["dst"], row["protocol"], row["packets"], row["bytes"]) == (
        "10.0.0.1",
        "10.0.0.2",
        17,
        3,
        99,
    )
    assert row["flows"] == 1
    assert row["start"] is None
    assert row["exporter"] is None
    assert parsed.dead.height == 0


def test_another_header_in_the_middle_holds_from_there_on() -> None:
    """A daemon was restarted with another configuration, and appended to the same file."""
    parsed = read(GOOD, "DST_IP,SRC_IP,BYTES,PACKETS", "10.0.0.2,10.0.0.1,5,1", "--START (3)--", HEADER, GOOD)
    assert parsed.frame["src"].to_list() == ["10.20.0.1", "10.0.0.1", "10.20.0.1"]
    assert parsed.frame["bytes"].to_list() == [15000, 5, 15000]
    assert parsed.dead.height == 0


def test_without_a_header_only_our_own_columns_are_known() -> None:
    unknown = Format(Kind.CSV, "")
    assert read(GOOD, fmt=unknown).frame.to_dicts() == [RECORD]
    assert read("10.0.0.1,10.0.0.2,5", fmt=unknown).counts == {"no_header": 1}


def test_local_times_use_the_zone_given() -> None:
    odd = with_value("TIMESTAMP_START", "2022-10-21 11:45:13.807000")
    fmt = Format(Kind.CSV, HEADER, "Europe/Amsterdam")
    assert read(odd, fmt=fmt).frame["start"].to_list() == [1666345513807]


def test_version_5_without_a_start_is_sflow() -> None:
    netflow = with_value("EXPORT_PROTO_VERSION", "5")
    sflow = netflow.replace("1666345513.807000", "0.000000")
    for lines in ((netflow, sflow), (netflow, sflow, "bad")):
        assert read(*lines).frame["version"].to_list() == [5, SFLOW]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_raise(garbage: bytes) -> None:
    """And the good records around the garbage are read."""
    raw = f"{HEADER}\n{GOOD}\n".encode() + garbage + f"\n{GOOD}\n".encode()
    parsed = read_chunk(raw, OWN)
    assert parsed.frame.height >= 2
    assert dict(parsed.frame.schema) == RECORD_SCHEMA
    lines = [line for line in garbage.split(b"\n") if line.rstrip(b"\r")]
    assert parsed.frame.height + parsed.dead.height == 2 + len(lines)


FIELD = st.sampled_from(
    ["", "0", "1", " 7", "+3", "-1", "65535", "65536", "tcp", "1666345513.807000", "0.000000", "nan", "1e3", "x",
     "10.0.0.1", "::1", "2022-10-21 09:45:13.8", "2022-10-21T09:45:13Z", "99999999999999999999", "--START (1)--", "("],
)  # fmt: skip
LINE = st.one_of(
    st.just(GOOD),
    st.tuples(st.sampled_from(records.SPOOL_COLUMNS), FIELD).map(lambda pair: with_value(*pair)),
    st.lists(FIELD, max_size=22).map(",".join),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(LINE, max_size=8), st.integers(0, 8))
def test_both_paths_and_every_split_give_the_same_records(lines: list[str], cut: int) -> None:
    """Reading a chunk at once, in two parts, or on the tolerant path alone: the same records, the same dead letters."""
    whole = read(*lines)
    parts = [read(*lines[:cut]), read(*lines[cut:])]
    tolerant = _read_any(("\n".join(lines) + "\n").encode(), OWN)
    for frame in (pl.concat([part.frame for part in parts]), tolerant.frame):
        assert frame.equals(whole.frame)
    for dead in (pl.concat([part.dead for part in parts]), tolerant.dead):
        assert sorted(dead.rows()) == sorted(whole.dead.rows())


def test_a_record_that_was_cut_off_is_a_dead_letter_and_not_a_small_number() -> None:
    line = "127.0.0.11,1,2,10.0.0.1,10.0.0.2,1,2,0,6,0,1,1790000000.0,1790000001.0,1790000002.0,7,9,0,3,1,123456"
    parsed = read_chunk(f"{line}\n{line[:-3]}".encode())
    assert parsed.frame["bytes"].to_list() == [123456]
    assert parsed.dead.rows() == [(line[:-3], "truncated")]
