"""What pmacct prints as JSON, and what is not JSON at all."""

import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.read.readers import Format, Kind, read_chunk, sniff
from ingest.read.records import RECORD_SCHEMA, SFLOW, Parsed, Reason

JSON = Format(Kind.JSON)
GOOD = {
    "event_type": "purge", "peer_ip_src": "127.0.0.11", "iface_in": 1, "iface_out": 2, "ip_src": "10.20.0.1",
    "ip_dst": "10.30.0.1", "port_src": 40000, "port_dst": 2049, "tcp_flags": "24", "ip_proto": "tcp", "tos": 0,
    "sampling_rate": 1, "timestamp_start": "1666345513.807000", "timestamp_end": "1666345513.907000",
    "timestamp_arrival": "1666345514.500000", "export_proto_seqno": 7, "export_proto_version": 9,
    "export_proto_sysid": 3, "flows": 1, "packets": 10, "bytes": 15000,
}  # fmt: skip
RECORD = {
    "exporter": "127.0.0.11", "iface_in": 1, "iface_out": 2, "src": "10.20.0.1", "dst": "10.30.0.1", "src_port": 40000,
    "dst_port": 2049, "protocol": 6, "tcp_flags": 24, "tos": 0, "sampling_rate": 1, "start": 1666345513807,
    "end": 1666345513907, "arrival": 1666345514500, "seq": 7, "version": 9, "domain": 3, "bytes": 15000, "packets": 10,
    "flows": 1,
}  # fmt: skip
INIT = '{"event_type": "purge_init", "writer_id": "flows/12319"}'
CLOSE = (
    '{"event_type": "purge_close", "writer_id": "flows/12319", "purged_entries": 2, "total_entries": 2, "duration": 0}'
)


def read(*lines: str) -> Parsed:
    return read_chunk(("\n".join(lines) + "\n").encode(), JSON)


def line(**changes: object) -> str:
    return json.dumps({**GOOD, **changes})


def without(*keys: str) -> str:
    return json.dumps({key: value for key, value in GOOD.items() if key not in keys})


def test_reads_records_between_markers() -> None:
    raw = f"{INIT}\n{line()}\n{CLOSE}".encode()
    parsed = read_chunk(raw, sniff(raw))
    assert dict(parsed.frame.schema) == RECORD_SCHEMA
    assert parsed.frame.to_dicts() == [RECORD]
    assert parsed.dead.height == 0


def test_markers_alone_are_no_records() -> None:
    assert read(INIT, CLOSE).frame.height == 0
    assert read(INIT, CLOSE).dead.height == 0


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (line(ip_proto="253"), {"protocol": 253}),
        (line(ip_proto=17), {"protocol": 17}),
        (line(ip_proto="ipv6-icmp"), {"protocol": 58}),
        (line(bytes="15000"), {}),
        (line(iface_in="4"), {"iface_in": 4}),
        (line(tcp_flags=24), {}),
        (line(timestamp_start=1666345513.807), {}),
        (line(timestamp_start="2022-10-21 09:45:13.807000"), {}),
        (line(timestamp_end="0000-00-00 00:00:00.000000"), {"end": None}),
        (line(timestamp_end="0.000000"), {"end": None}),
        (line(timestamp_start="0.000000", export_proto_version=5), {"start": None, "version": SFLOW}),
        (line(sampling_rate=None), {"sampling_rate": 0}),
        (line(peer_ip_src="::ffff:10.0.0.9"), {"exporter": "10.0.0.9"}),
        (line(label="x", nested={"a": [1]}), {}),
        (without("flows"), {}),
        (without("packets"), {"packets": 0}),
        (without("timestamp_end", "tcp_flags"), {"end": None, "tcp_flags": 0}),
        (without("peer_ip_src", "event_type"), {"exporter": None}),
        (without("timestamp_start")[:-1] + ', "stamp_inserted": "2022-10-21 09:45:00"}', {"start": 1666345500000}),
    ],
)
def test_tolerates_the_ways_in_which_a_value_is_printed(text: str, changed: dict[str, object]) -> None:
    """Alone in a chunk, and beside a line that is no JSON: which path reads it makes no difference."""
    expected = {**RECORD, **changed}
    assert read(text).frame.to_dicts() == [expected]
    mixed = read(line(), "nonsense", text, INIT)
    assert mixed.frame.to_dicts() == [RECORD, expected]
    assert mixed.counts == {"not_a_record": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line()[:100], Reason.NOT_A_RECORD),
        (line() + line(), Reason.NOT_A_RECORD),
        ("[1, 2]", Reason.NOT_A_RECORD),
        ('{"a": NaN, }', Reason.NOT_A_RECORD),
        ("--START (1)--", Reason.NOT_A_RECORD),
        ('{"a":' + "[" * 40_000 + "}", Reason.NOT_A_RECORD),
        ('{"a":' + "[" * 70_000 + "}", Reason.LINE_TOO_LONG),
        ("{}", Reason.MISSING_FIELD),
        (without("bytes"), Reason.MISSING_FIELD),
        (line(ip_src=""), Reason.MISSING_FIELD),
        (line(bytes=-1), Reason.COUNTER_OUT_OF_RANGE),
        (line(bytes=18446744073709551615), Reason.COUNTER_OUT_OF_RANGE),
        (line(packets=2**63), Reason.COUNTER_OUT_OF_RANGE),
        (line(bytes=True), Reason.BAD_COUNTER),
        (line(ip_proto="what"), Reason.BAD_PROTOCOL),
        (line(timestamp_start="soon"), Reason.BAD_TIME),
        (line(port_src=70000), Reason.BAD_NUMBER),
    ],
)
def test_a_bad_line_is_one_dead_letter_and_its_neighbours_live(text: str, reason: Reason) -> None:
    parsed = read(INIT, line(), text, line(), CLOSE)
    assert parsed.frame.to_dicts() == [RECORD, RECORD]
    assert parsed.dead.rows() == [(text, reason.value)]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_raise(garbage: bytes) -> None:
    raw = line().encode() + b"\n" + garbage + b"\n" + line().encode()
    parsed = read_chunk(raw, JSON)
    assert parsed.frame.height >= 2
    assert dict(parsed.frame.schema) == RECORD_SCHEMA


KEYS = st.sampled_from(list(GOOD))
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2)
)
LINES = st.one_of(
    st.just(line()),
    st.sampled_from([INIT, CLOSE, "{", "null", ""]),
    st.tuples(KEYS, VALUES).map(lambda pair: line(**{pair[0]: pair[1]})),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(LINES, max_size=8), st.integers(0, 8))
def test_every_split_gives_the_same_records(lines: list[str], cut: int) -> None:
    whole = read(*lines)
    parts = [read(*lines[:cut]), read(*lines[cut:])]
    assert pl.concat([part.frame for part in parts]).equals(whole.frame)
    assert sorted(row for part in parts for row in part.dead.rows()) == sorted(whole.dead.rows())
    markers = sum(text in (INIT, CLOSE, "") for text in lines)
    assert whole.frame.height + whole.dead.height + markers == len(lines)


@pytest.mark.parametrize("garbage", [b"\x00\xffgarbage\n", b"nfacctd: some words\n\n", b"1,2,3\n"])
def test_garbage_before_the_first_object_does_not_make_it_another_format(garbage: bytes) -> None:
    raw = garbage + b'{"ip_src": "10.0.0.1", "ip_dst": "10.0.0.2", "packets": 1, "bytes": 10}\n' * 3
    fmt = sniff(raw)
    assert fmt.kind is Kind.JSON
    parsed = read_chunk(raw, fmt)
    assert parsed.frame.height == 3
    assert parsed.dead.height == 1
