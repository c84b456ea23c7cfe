"""Messages between relay and workers: what is encoded is what is decoded, and nothing else is ever believed."""

import json
import struct
from io import BytesIO

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from cluster.scalars import names
from ingest.kafka.flow_messages import (
    MAX_TEXT_BYTES,
    MAX_VALUE_BYTES,
    MESSAGE_BYTES,
    Kind,
    MessageError,
    decode,
    encode,
)
from ingest.kafka.partitioner import Partitions
from ingest.kafka.relay_status import STATUS_SCHEMA
from ingest.read import records
from ingest.read.counter_samples import SAMPLE_SCHEMA
from ingest.read.records import RECORD_SCHEMA

ADDRESSES = st.sampled_from(["10.20.0.1", "fd00:20::1234:5678:9abc:def0", "::ffff:10.20.0.1", "192.0.2.255", ""])
SMALL = {
    name: st.integers(0, {pl.Int16(): 1 << 14, pl.Int32(): 1 << 30}.get(dtype, 1 << 47))
    for name, dtype in RECORD_SCHEMA.items()
    if dtype != pl.String()
}
OPTIONAL = (records.IFACE_IN, records.IFACE_OUT, records.PROTOCOL, records.START, records.END, records.SEQ)
ROW = st.fixed_dictionaries(
    {name: ADDRESSES for name, dtype in RECORD_SCHEMA.items() if dtype == pl.String()}
    | {name: st.none() | values if name in OPTIONAL else values for name, values in SMALL.items()}
)


def frame(count: int) -> pl.DataFrame:
    """Return records of which no two are equal, with addresses of both families; some columns are not printed."""
    return pl.DataFrame(
        {
            name: [f"fd00::{i % 9}:{i % 77:x}" if i % 2 else f"10.20.{i % 9}.{i % 77}" for i in range(count)]
            if dtype == pl.String()
            else [None if name in OPTIONAL else i for i in range(count)]
            for name, dtype in RECORD_SCHEMA.items()
        },
        schema_overrides=RECORD_SCHEMA,
    ).select(*RECORD_SCHEMA)


@settings(deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=20))
def test_what_is_encoded_is_what_is_decoded(rows: list[dict[str, object]]) -> None:
    sent = pl.DataFrame(rows, schema=RECORD_SCHEMA)
    (value,) = encode(sent, relay="leaf-1")
    message = decode(value)
    assert_frame_equal(message.frame, sent)
    assert (message.kind, message.relay, message.lost) == (Kind.RECORDS, "leaf-1", {})


def test_many_rows_become_messages_of_bounded_size_in_order() -> None:
    sent = frame(30_000)
    values = encode(sent, relay="leaf-1", lost={"10.60.0.1": 7})
    assert len(values) > 2
    assert max(map(len, values)) <= MESSAGE_BYTES
    assert min(map(len, values[:-1])) > 0.9 * MESSAGE_BYTES
    messages = [decode(value) for value in values]
    assert_frame_equal(pl.concat([message.frame for message in messages]), sent)
    assert [message.lost for message in messages] == [{"10.60.0.1": 7}, *[{}] * (len(values) - 1)]


def test_rows_of_a_part_take_no_more_than_their_share() -> None:
    """Strings of a filtered frame still share the memory of the whole."""
    whole = frame(20_000)
    part = whole.filter(pl.int_range(pl.len()) % 100 == 0)
    assert sum(map(len, encode(part, relay="r"))) < sum(map(len, encode(whole, relay="r"))) / 50


def test_samples_of_counters() -> None:
    sent = pl.DataFrame({name: ["10.60.0.1"] if name == "exporter" else [1] for name in SAMPLE_SCHEMA}, SAMPLE_SCHEMA)
    (value,) = encode(sent, relay="r", kind=Kind.COUNTERS)
    assert_frame_equal(decode(value).frame, sent)
    assert decode(value).kind is Kind.COUNTERS


STATUS = pl.DataFrame({name: [1_790_000_000_000 + i] for i, name in enumerate(STATUS_SCHEMA)}, STATUS_SCHEMA)


def test_the_status_of_a_relay() -> None:
    (value,) = encode(STATUS, relay="rack-7", kind=Kind.STATUS)
    message = decode(value)
    assert_frame_equal(message.frame, STATUS)
    assert (message.kind, message.relay, message.lost) == (Kind.STATUS, "rack-7", {})


def test_a_relay_tells_what_befell_its_collector() -> None:
    told = {"refused leaf-1": 5, "died nfacctd": 1, "unreadable 2001:db8::1": 3}
    (value,) = encode(STATUS, relay="rack-7", kind=Kind.STATUS, told=told)
    assert decode(value).told == told


@pytest.mark.parametrize(
    "told",
    [{"refused a,b=c": 1}, {"unreadable leaf-1": 1}, {"stolen leaf-1": 1}, {"died nfacctd": -1},
     {f"refused leaf-{i}": 1 for i in range(1025)}],
    ids=["name", "address", "kind", "count", "many"],
)  # fmt: skip
def test_what_no_relay_tells_is_refused(told: dict[str, int]) -> None:
    (value,) = encode(STATUS, relay="rack-7", kind=Kind.STATUS, told=told)
    with pytest.raises(MessageError, match="tells what none does"):
        decode(value)


def test_no_rows_are_no_message() -> None:
    assert encode(frame(0), relay="r") == []


def test_short_numbers_stay_what_they_are_whatever_length_they_need() -> None:
    """Each column by its largest value, up to those that a type of its own length holds no more."""
    edges = [0, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, 1 << 49, -1]
    for most in edges:
        sent = (
            frame(3)
            .with_columns([pl.lit(most, pl.Int64).alias("bytes"), pl.lit(min(most, 9999), pl.Int16).alias("tos")])
            .with_columns(iface_in=pl.Series([None, most, 0], dtype=pl.Int64))
        )
        (value,) = encode(sent.with_columns(bytes=pl.col("bytes").clip(0)), relay="r")
        assert_frame_equal(decode(value).frame, sent.with_columns(bytes=pl.col("bytes").clip(0)))


def test_numbers_may_have_their_full_length() -> None:
    sent = frame(5)
    assert_frame_equal(decode(_with(HEADER, _arrow(sent.drop(OPTIONAL)))).frame, sent)


def _partitions(addresses: list[str | None], count: int) -> list[int]:
    column = pl.Series("src", addresses, pl.String)
    return [int(number) for number in Partitions(count).of(column)]


def test_an_address_has_the_same_partition_for_ever() -> None:
    """Golden: relays and workers of all versions must agree, or a node's totals are in two places."""
    addresses = ["10.20.0.1", "10.20.0.2", "fd00::1", "::ffff:10.20.0.1", "10.20.0.1", None]
    assert _partitions(addresses, 8) == [0, 2, 7, 0, 0, 0]
    assert _partitions(addresses, 1000) == [312, 210, 695, 312, 312, 0]


def test_addresses_spread_over_partitions() -> None:
    found = _partitions([f"10.20.{i // 256}.{i % 256}" for i in range(4096)], 16)
    counts = [found.count(number) for number in range(16)]
    assert min(counts) > 200
    assert max(counts) < 320


def test_rows_are_split_in_their_order_and_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.kafka.partitioner._MOST_REMEMBERED", 50)
    partitions = Partitions(7)
    for start in (0, 40, 20, 300):
        rows = frame(600).slice(start, 90).with_row_index("row")
        parts = dict(partitions.split(rows, "src"))
        for number, part in parts.items():
            assert part["row"].is_sorted()
            assert set(_partitions(part["src"].to_list(), 7)) == {number}
        assert sorted(row for part in parts.values() for row in part["row"]) == rows["row"].to_list()
    assert list(partitions.split(frame(0), "src")) == []


# -- what is refused -----------------------------------------------------------------------------------


def _refused(value: bytes | None) -> str:
    with pytest.raises(MessageError) as caught:
        decode(value)
    return caught.value.message


def _with(header: object, body: bytes = b"", magic: bytes = b"cfr\x03") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<4sI", magic, len(text)) + text + body


def _arrow(table: pl.DataFrame, compression: str = "uncompressed") -> bytes:
    buffer = BytesIO()
    table.write_ipc_stream(buffer, compression=compression)  # type: ignore[arg-type]
    return buffer.getvalue()


HEADER = {"kind": "records", "relay": "r", "lost": {}}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "a message without a value"),
        (b"", "no message of a relay: too short"),
        (b'{"event_type": "purge"}', "no message of a relay"),
        (_with(HEADER, magic=b"cfr\x02"), "a message of format version 2, expected 3"),
        (struct.pack("<4sI", b"cfr\x03", 1 << 31), "a message with a broken header"),
        (_with(["records"]), "a message with a broken header"),
        (_with(HEADER | {"kind": "jobs"}), "a message with a broken header"),
        (_with(HEADER | {"relay": None}), "a message with a broken header"),
        (_with(HEADER | {"lost": {"10.0.0.1": -1}}), "a message with a broken header"),
        (_with(HEADER | {"lost": {"x" * 65: 1}}), "a message with a broken header"),
        (_with(HEADER), "a message with broken records"),
        (_with(HEADER, b"garbage"), "a message with broken records"),
        (_with(HEADER, _arrow(frame(5))[:-40]), "a message with broken records"),
        (_with(HEADER, _arrow(frame(500), "lz4")), "a message with broken records"),
        (_with(HEADER, _arrow(frame(500), "zstd")), "a message with broken records"),
        (_with(HEADER, _arrow(frame(5).with_columns(more=1))), "a message with other columns than records have"),
        (_with(HEADER, _arrow(frame(5).cast({"bytes": pl.Int32}))), "a message with other columns than records have"),
        (_with(HEADER, _arrow(frame(5).drop("bytes"))), "a message with records that no reader lets through"),
        (
            _with(HEADER, _arrow(frame(5).with_columns(bytes=pl.lit(-1, pl.Int64)))),
            "a message with records that no reader lets through",
        ),
        (
            _with(HEADER, _arrow(frame(5).with_columns(src=pl.lit("x" * (MAX_TEXT_BYTES + 1))))),
            "a message with records that no reader lets through",
        ),
        (_with(HEADER | {"kind": "counters"}, _arrow(frame(5))), "a message with other columns than counters have"),
        (_with(HEADER, _arrow(pl.DataFrame({"seq": pl.Series([None] * 300_000)}))), "a message with broken records"),
        (b"cfr\x03" + bytes(MAX_VALUE_BYTES), f"a message of {MAX_VALUE_BYTES + 4} bytes, more than {MAX_VALUE_BYTES}"),
    ],
    ids=range(23),
)
def test_what_is_no_message_of_ours_is_refused(value: bytes | None, why: str) -> None:
    assert _refused(value) == why


@pytest.mark.parametrize("moment", [-1, 253_402_300_800_001, (1 << 63) - 1])
@pytest.mark.parametrize("name", [records.START, records.END, records.ARRIVAL])
def test_a_time_that_no_reader_gives_is_refused(name: str, moment: int) -> None:
    rows = frame(5).with_columns(pl.lit(moment, pl.Int64).alias(name))
    assert _refused(_with(HEADER, _arrow(rows))) == "a message with records that no reader lets through"


SAYS = {"kind": "status", "relay": "rack-7", "lost": {}}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        *(
            (_with(SAYS | {"relay": relay}, _arrow(STATUS)), "a message with a status of a relay whose id is none")
            for relay in ("", "7", "a b", "a/b", "x" * 64, "räck", "rack-7\n", '",shard=k0')
        ),
        (_with(SAYS, _arrow(pl.concat([STATUS, STATUS]))), "a message with a status of 2 rows"),
        (_with(SAYS, _arrow(STATUS.clear())), "a message with a status of 0 rows"),
        (_with(SAYS, _arrow(STATUS.drop("records"))), "a message with status that no reader lets through"),
        (_with(SAYS, _arrow(STATUS.with_columns(moment=None))), "a message with other columns than status have"),
        (_with(SAYS, _arrow(STATUS.with_columns(more=1))), "a message with other columns than status have"),
        (_with(SAYS, _arrow(frame(1))), "a message with other columns than status have"),
        *(
            (
                _with(SAYS, _arrow(STATUS.with_columns(pl.lit(number, pl.Int64).alias(name)))),
                "a message with status that no reader lets through",
            )
            for name, number in (
                ("moment", -1),
                ("moment", 1 << 62),
                ("records", -1),
                ("drained", -1),
                ("backlog_bytes", (1 << 62) + 1),
            )
        ),
    ],
    ids=range(19),
)
def test_a_status_that_no_relay_sends_is_refused(value: bytes, why: str) -> None:
    assert _refused(value) == why


WHOLE = encode(frame(60), relay="r", lost={"10.60.0.1": 3})[0]
SAID = encode(STATUS, relay="rack-7", kind=Kind.STATUS)[0]


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_a_damaged_status_is_refused_or_harmless(data: st.DataObject) -> None:
    value = bytearray(SAID)
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(value) - 1))
        value[place] = data.draw(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255))
    try:
        message = decode(bytes(value))
    except MessageError:
        return
    assert (message.kind, message.frame.shape) == (Kind.STATUS, STATUS.shape)
    assert names.NAME.parse(message.relay)


@settings(deadline=None, max_examples=500)
@given(data=st.data())
def test_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    """Whatever becomes of the bytes: a message, or MessageError; never another error, a crash or gigabytes."""
    value = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 6))):
        # Most of what can mislead a reader stands in front.
        place = data.draw(st.integers(0, len(value) - 1) | st.integers(0, 2600))
        value[place] = data.draw(st.sampled_from([0, 1, 127, 128, 255]) | st.integers(0, 255))
    del value[data.draw(st.just(len(value)) | st.integers(0, len(value))) :]
    try:
        message = decode(bytes(value))
    except MessageError:
        return
    assert message.frame.height <= 60
    assert dict(message.frame.schema) == RECORD_SCHEMA
    assert len(message.frame.write_json()) < 10 * len(WHOLE)


def test_a_buffer_that_claims_an_exabyte_is_refused() -> None:
    """polars would allocate it, and the process would end."""
    stream = bytearray(_arrow(frame(60)))
    length = struct.pack("<q", 60 * 8)
    places = [i for i in range(len(stream) - 8) if stream[i : i + 8] == length and i % 8 == 0][:40]
    assert places
    for place in places:
        broken = bytearray(stream)
        broken[place : place + 8] = struct.pack("<q", 1 << 60)
        with pytest.raises(MessageError, match="a message with broken records"):
            decode(_with(HEADER, bytes(broken)))
