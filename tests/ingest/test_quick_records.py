"""The reader in C: what it takes it reads as the parsers of polars do, and what it does not take they judge."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from polars.testing import assert_frame_equal

from app import compiled
from app.errors import ClusterflowError
from ingest import quick as own
from ingest.flows.text_numbers import Words
from ingest.read import quick_records, readers_csv, readers_json, records
from ingest.read.readers_format import JSON_KEYS, Format, Kind
from ingest.read.records import Parsed

pytestmark = pytest.mark.skipif(shutil.which(compiled.COMPILER) is None, reason="no C compiler")

JSON = Format(Kind.JSON)
NUMBERED = ",".join(records.PRINTED_COLUMNS)
TIMES = {"TIMESTAMP_START", "TIMESTAMP_END", "TIMESTAMP_ARRIVAL"}
ADDRESSES = {"PEER_SRC_IP", "SRC_IP", "DST_IP"}
NARROW = {"SRC_PORT": 65535, "DST_PORT": 65535, "TCP_FLAGS": 65535, "PROTOCOL": 255, "TOS": 255}
MOST = {records.NUMBER_COLUMN: 2**63 - 1, "PACKETS": records.MAX_COUNTER, "BYTES": records.MAX_COUNTER}


@pytest.fixture(scope="module", autouse=True)
def _library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = own._loaded.copy()
    path = tmp_path_factory.mktemp("library") / own.LIBRARY.name
    own.LIBRARY.compile_to(path)
    own._loaded[:] = [own._opened(path)]
    yield
    own._loaded[:] = before


def a_good(title: str) -> some.SearchStrategy[str]:
    if title in ADDRESSES:
        names = some.sampled_from(["10.0.0.1", "10.20.30.40", "2001:db8::1", "::ffff:10.0.0.9", "a", "no-address"])
        return names | some.ip_addresses().map(str)
    if title in TIMES:
        seconds = some.sampled_from([1, 1795963110]) | some.integers(1, 9_000_000_000)
        some_time = some.tuples(seconds, some.integers(0, 999_999)).map(lambda one: f"{one[0]}.{one[1]:06}")
        return some.just("0.000000") | some_time
    if title == "EXPORT_PROTO_VERSION":
        return some.sampled_from(["5", "9", "10"])
    most = MOST.get(title, NARROW.get(title, 2**32 - 1))
    return (
        (some.sampled_from([0, 1, 10**7, 10**8, 10**12, 10**18, most]) | some.integers(0, most))
        .filter(lambda one: one <= most)
        .map(str)
    )


ODD = [
    "", "-1", "+1", " 1", "1 ", "007", "1e3", "1.5", "x", "é", "\x00", '"1"', "(1)", "99999999999999999999", "nan",
    "null", "253402300800", "9007199254.740993", "1.1234567", "0000000000.000000", "0.000001", "0.9", "1.", ".5", "tcp",
    "a" * 70, "1\r",
]  # fmt: skip


def a_record(titles: tuple[str, ...]) -> some.SearchStrategy[tuple[str, ...]]:
    return some.tuples(*(a_good(title) for title in titles))


TITLES = some.sampled_from(
    [
        records.PRINTED_COLUMNS,
        records.SPOOL_COLUMNS,
        (*records.SPOOL_COLUMNS, "LABEL"),
        ("SRC_IP", "BYTES", "DST_IP"),
        ("TAG", *records.SPOOL_COLUMNS[1:]),
    ]
)


def a_text() -> some.SearchStrategy[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    return TITLES.flatmap(lambda titles: some.tuples(some.just(titles), some.lists(a_record(titles), max_size=12)))


def quick_csv(text: bytes, fmt: Format) -> Parsed | None:
    return quick_records.read_csv(text, readers_csv._layout(fmt), fmt.separator)


def same(quick: Parsed | None, frame: pl.DataFrame | None) -> None:
    """What it takes the parsers of polars take as well, and it says the same."""
    if quick is None:
        return
    assert frame is not None
    assert_frame_equal(quick.frame, frame)
    assert quick.ends is not None
    for name, words in zip((records.SRC, records.DST), quick.ends, strict=True):
        assert unfolded(words) == frame.get_column(name).to_list()
    assert quick.ends[0].texts.n_unique() == len(quick.ends[0].texts)
    if quick.exporters is not None:
        assert unfolded(quick.exporters) == frame.get_column(records.EXPORTER).to_list()
        assert quick.exporters.texts.n_unique() == len(quick.exporters.texts)


def unfolded(words: Words) -> list[str]:
    return words.texts.gather(words.codes).to_list()


@settings(deadline=None)
@given(drawn=a_text(), separator=some.sampled_from(",;|\t"), marked=some.booleans())
def test_good_csv_is_read_as_polars_reads_it(
    drawn: tuple[tuple[str, ...], list[tuple[str, ...]]], separator: str, *, marked: bool
) -> None:
    titles, rows = drawn
    lines = [separator.join(row) for row in rows]
    if marked:
        lines = ["--START (12)--", *lines[:3], "--END (12)--", "--START (7)--", *lines[3:], "--END (7)--"]
    text = "".join(f"{line}\n" for line in lines).encode()
    fmt = Format(Kind.CSV, separator.join(titles))
    quick = quick_csv(text, fmt)
    assert quick is not None
    same(quick, readers_csv._read_clean(text, fmt))


@settings(deadline=None)
@given(drawn=a_text(), odd=some.sampled_from(ODD), seed=some.integers(0, 2**32))
def test_a_csv_value_that_is_odd_is_never_read_otherwise(
    drawn: tuple[tuple[str, ...], list[tuple[str, ...]]], odd: str, seed: int
) -> None:
    titles, rows = drawn
    draw = random.Random(seed)
    fields = [list(row) for row in rows]
    if fields:
        draw.choice(fields)[draw.randrange(len(titles))] = odd
    text = "".join(",".join(row) + "\n" for row in fields).encode()
    fmt = Format(Kind.CSV, ",".join(titles))
    same(quick_csv(text, fmt), readers_csv._read_clean(text, fmt))


@pytest.mark.thorough
@settings(deadline=None)
@given(drawn=some.lists(a_record(records.PRINTED_COLUMNS), min_size=1, max_size=6), seed=some.integers(0, 2**32))
def test_a_garbled_csv_is_never_read_otherwise(drawn: list[tuple[str, ...]], seed: int) -> None:
    fmt = Format(Kind.CSV, NUMBERED)
    text = garbled("".join(",".join(row) + "\n" for row in drawn).encode(), random.Random(seed))
    same(quick_csv(text, fmt), readers_csv._read_clean(text, fmt))


def garbled(text: bytes, draw: random.Random) -> bytes:
    """A text with a few bytes changed, gone, doubled or put in."""
    found = bytearray(text)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(found))
        match draw.randrange(4):
            case 0:
                found[place] = draw.choice(b'0159.,:-+"{}\n\r\\ (x\xff\x00')
            case 1:
                del found[place : place + draw.randint(1, 20)]
            case 2:
                found[place:place] = found[place : place + draw.randint(1, 40)]
            case _:
                found.insert(place, draw.choice(b'0159.,:-+"{}\n\r\\ (x\xff\x00'))
        if not found:
            return b""
    return bytes(found)


def as_json(row: tuple[str, ...], *, spaces: bool = False) -> str:
    """A record as pmacct prints it: numbers as such, but for flags and protocol."""
    keys = {title: key for title, name in CSV_NAMES.items() for key, other in JSON_KEYS.items() if other == name}
    quoted = {*TIMES, *ADDRESSES, "PROTOCOL", "TCP_FLAGS"}
    values = {
        keys[title]: value if title in quoted else int(value)
        for title, value in zip(records.SPOOL_COLUMNS, row, strict=True)
    }
    return json.dumps({"event_type": "purge", **values}, separators=(", ", ": ") if spaces else (",", ":"))


CSV_NAMES = dict(zip(Format(Kind.CSV, NUMBERED).titles, Format(Kind.CSV, NUMBERED).columns, strict=True))
MARKERS = (
    '{"event_type": "purge_init", "writer_id": "default_print/1"}',
    '{"event_type": "purge_close", "writer_id": "default_print/1", "purge_time": 12}',
)


@settings(deadline=None)
@given(rows=some.lists(a_record(records.SPOOL_COLUMNS), min_size=1, max_size=8), spaces=some.booleans())
def test_good_json_is_read_as_polars_reads_it(rows: list[tuple[str, ...]], *, spaces: bool) -> None:
    lines = [MARKERS[0], *(as_json(row, spaces=spaces) for row in rows), MARKERS[1]]
    text = "".join(f"{line}\n" for line in lines).encode()
    quick = quick_records.read_json(text)
    assert quick is not None
    same(quick, readers_json._read_clean(text, JSON))


def test_records_without_a_key_of_starts_are_sflows_and_without_a_column_they_may_be_any() -> None:
    text = b'{"ip_src":"10.0.0.1","ip_dst":"10.0.0.2","bytes":1,"export_proto_version":5}\n'
    quick = quick_records.read_json(text)
    assert quick is not None
    assert quick.frame.get_column(records.VERSION).to_list() == [records.SFLOW]
    same(quick, readers_json._read_clean(text, JSON))
    text, fmt = b"10.0.0.1,10.0.0.2,1,5\n", Format(Kind.CSV, "SRC_IP,DST_IP,BYTES,EXPORT_PROTO_VERSION")
    same(quick_csv(text, fmt), readers_csv._read_clean(text, fmt))


@pytest.mark.thorough
@settings(deadline=None)
@given(rows=some.lists(a_record(records.SPOOL_COLUMNS), min_size=1, max_size=4), seed=some.integers(0, 2**32))
def test_garbled_json_is_never_read_otherwise(rows: list[tuple[str, ...]], seed: int) -> None:
    text = "".join(f"{line}\n" for line in [MARKERS[0], *map(as_json, rows), MARKERS[1]]).encode()
    text = garbled(text, random.Random(seed))
    quick = quick_records.read_json(text)
    if quick is not None:
        same(quick, readers_json._read_slowly(text, JSON).frame)


@pytest.mark.parametrize(
    "line",
    [
        '{"ip_src":"10.0.0.1","ip_dst":"10.0.0.2"}',
        '{"ip_src":"10.0.0.1","ip_dst":"10.0.0.2","bytes":1,"bytes":2}',
        '{"ip_src":"10.0.0.1","ip_dst":"10.0.0.2","bytes":01}',
        '{"ip_src":"10.0.0.1","ip_dst":"10.0.0.2","bytes":1.5}',
        '{"ip_src":"10.0.0.1","ip_dst":"10.0.0.2","bytes":null}',
        '{"ip_src":"10.0.0.\\u0031","ip_dst":"10.0.0.2","bytes":1}',
        '{"ip_src":"10.0.0.1","ip_dst":"10.0.0.2","bytes":1,"stamp_inserted":"2026-01-01 00:00:00"}',
        '{"ip_src":"10.0.0.1","ip_dst":"10.0.0.2","bytes":1}}',
        '[{"ip_src":"10.0.0.1","ip_dst":"10.0.0.2","bytes":1}]',
    ],
)
def test_json_of_another_shape_is_for_the_other_reader(line: str) -> None:
    good = '{"ip_src":"10.0.0.1","ip_dst":"10.0.0.2","bytes":1}\n'
    assert quick_records.read_json(good.encode()) is not None
    assert quick_records.read_json(f"{good}{line}\n".encode()) is None


def test_words_of_thousands_of_addresses() -> None:
    """Far more than there is room for at first."""
    ends = [(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}", f"2001:db8::{i:x}") for i in range(20_000)]
    text = "".join(f"{src},{dst},1,{i}\n" for i, (src, dst) in enumerate(ends)).encode()
    fmt = Format(Kind.CSV, "SRC_IP,DST_IP,PACKETS,BYTES")
    quick = quick_csv(text, fmt)
    assert quick is not None
    assert quick.frame.select("src", "dst", "bytes").rows() == [(*pair, i) for i, pair in enumerate(ends)]


def test_what_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    (tmp_path / own.LIBRARY.name).write_bytes(b"no library")
    library = compiled.Compiled(Path(own.__file__).parent, own.SOURCES)
    library.shipped = tmp_path / "none"
    assert library.path(tmp_path) == tmp_path / library.name
    with pytest.raises(ClusterflowError, match="cannot be loaded"):
        own.load(tmp_path, library)
    library.shipped = tmp_path / library.name
    assert own._shipped(library) is None
