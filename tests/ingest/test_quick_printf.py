"""The quicker printf that pmacct prints with: the same as libc's to the byte, by itself and in real daemons."""

import ctypes
import json
import shutil
import struct
import tempfile
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app import compiled
from app.errors import ClusterflowError
from cluster.model import Cluster, CollectorSettings, Exporter
from ingest.collect import quick_printf, template_file
from ingest.collect.supervise import Collector
from ingest.read.records import PRINTED_COLUMNS
from tests.ingest.test_pmacct_captures import HAS_CAPTURES, cases, replay
from tests.ingest.test_pmacct_daemons import a_cluster, free_udp_port, sampled_ip, send, sflow, spooled, v5, wait_for
from tests.ingest.test_unread_exports import ADDRESSES, COUNTERS, OPTIONS, a_set, dated, message, record, templates

HAS_COMPILER = shutil.which(compiled.COMPILER) is not None
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C compiler")
needs_pmacct = pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")

INTEGERS = {"%s%u": (0, 2**32 - 1), "%s%d": (-(2**31), 2**31 - 1), "%s%lu": (0, 2**64 - 1), "%s%lu\n": (0, 2**64 - 1)}
BUFFERS = {"full": 0, "lines": 1, "none": 2}
"""_IOFBF, _IOLBF and _IONBF of glibc."""
AF_INET, AF_INET6 = 2, 10


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path = tmp_path_factory.mktemp("library") / "quick_printf.so"
    quick_printf.LIBRARY.compile_to(path)
    library = ctypes.CDLL(str(path))
    library.inet_ntop.restype = ctypes.c_char_p
    return library


def printed(
    library: ctypes.CDLL, calls: list[tuple[str, list[Any]]], buffering: int, size: int
) -> tuple[bytes, list[int]]:
    """What stands in a file after some calls of fprintf, and what they returned."""
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    buffer = ctypes.create_string_buffer(size)
    with tempfile.NamedTemporaryFile() as file:
        stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"a"))
        libc.setvbuf(stream, buffer, buffering, ctypes.c_size_t(size))
        returned = [library.__fprintf_chk(stream, 1, form.encode(), *values) for form, values in calls]
        libc.fclose(stream)
        return Path(file.name).read_bytes(), returned


def a_call() -> some.SearchStrategy[tuple[str, list[Any], bytes]]:
    separators = some.sampled_from([b"", b",", b"; "])
    words = some.text("abc:.0/-é", max_size=60).map(str.encode)
    numbers = [
        some.tuples(some.just(form), separators, some.integers(*span) | some.sampled_from(span))
        for form, span in INTEGERS.items()
    ]
    return some.one_of(*numbers, some.tuples(some.just("%s%s"), separators, words)).map(as_call)


def as_call(drawn: tuple[str, bytes, int | bytes]) -> tuple[str, list[Any], bytes]:
    form, separator, value = drawn
    if isinstance(value, bytes):
        return form, [separator, value], separator + value
    kind = {"u": ctypes.c_uint, "d": ctypes.c_int}.get(form[3], ctypes.c_ulong)
    return form, [separator, kind(value)], separator + str(value).encode() + (b"\n" if form.endswith("\n") else b"")


@needs_compiler
@given(
    calls=some.lists(a_call(), max_size=60),
    how=some.sampled_from(sorted(BUFFERS)),
    size=some.sampled_from([1, 17, 4096]),
)
def test_columns_are_those_of_libc(
    ours: ctypes.CDLL, calls: list[tuple[str, list[Any], bytes]], how: str, size: int
) -> None:
    text, returned = printed(ours, [(form, values) for form, values, _ in calls], BUFFERS[how], size)
    assert text == b"".join(expected for *_, expected in calls)
    assert returned == [len(expected) for *_, expected in calls]


@needs_compiler
@pytest.mark.parametrize(
    ("form", "values", "expected"),
    [
        ("%s%u;", [b",", ctypes.c_uint(7)], b",7;"),
        ("%s%05d", [b",", ctypes.c_int(7)], b",00007"),
        ("%s%.2s", [b",", b"abc"], b",ab"),
        ("%s%lu;", [b",", ctypes.c_ulong(7)], b",7;"),
        ("%s%lx", [b",", ctypes.c_ulong(255)], b",ff"),
        ("%s%s", [b",", None], b",(null)"),
        ("%s%u", [None, ctypes.c_uint(7)], b"(null)7"),
        ("--START (%u)--\n", [ctypes.c_uint(7)], b"--START (7)--\n"),
        ("plain", [], b"plain"),
    ],
)
def test_other_formats_are_libcs_own(ours: ctypes.CDLL, form: str, values: list[Any], expected: bytes) -> None:
    assert printed(ours, [(form, values)], BUFFERS["full"], 4096)[0] == expected


@needs_compiler
def test_a_stream_that_cannot_be_written_says_so(ours: ctypes.CDLL) -> None:
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fopen(b"/dev/full", b"w"))
    libc.setvbuf(stream, None, BUFFERS["none"], ctypes.c_size_t(0))
    assert ours.__fprintf_chk(stream, 1, b"%s%u", b",", ctypes.c_uint(7)) < 0
    libc.fclose(stream)


@needs_compiler
def test_a_stream_that_becomes_line_buffered_is_flushed_at_each_line(ours: ctypes.CDLL, tmp_path: Path) -> None:
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fopen(bytes(tmp_path / "file"), b"w"))
    ours.__fprintf_chk(stream, 1, b"%s%s", b"a", b"b")
    libc.setlinebuf(stream)
    ours.__fprintf_chk(stream, 1, b"%s%lu\n", b",", ctypes.c_ulong(7))
    assert (tmp_path / "file").read_bytes() == b"ab,7\n"
    libc.fclose(stream)


@needs_compiler
@given(second=some.integers(-(2**63), 2**63 - 1), fraction=some.integers(-10, 10**6 + 10), size=some.integers(0, 64))
def test_moments_are_those_of_libc(ours: ctypes.CDLL, second: int, fraction: int, size: int) -> None:
    room = ctypes.create_string_buffer(b"\xaa" * 64, 64)
    values = ctypes.c_long(second), ctypes.c_long(fraction)
    sign, digits = ("-" if fraction < 0 else ""), abs(fraction)
    expected = f"{second}.{sign}{digits:06}".encode()
    wanted = ctypes.c_size_t(size), 1, ctypes.c_size_t(64)
    assert ours.__snprintf_chk(room, *wanted, b"%ld.%.6ld", *values) == len(expected)
    assert room.raw[:size] == (expected[: size - 1] + b"\0" + b"\xaa" * 64)[:size]
    assert room.raw[size:] == b"\xaa" * (len(room) - size)


@needs_compiler
@given(address=some.integers(0, 2**32 - 1).map(IPv4Address) | some.integers(0, 2**128 - 1).map(IPv6Address))
def test_addresses_are_those_of_libc(ours: ctypes.CDLL, address: IPv4Address | IPv6Address) -> None:
    room = ctypes.create_string_buffer(46)
    family = AF_INET if address.version == 4 else AF_INET6
    assert ours.inet_ntop(family, address.packed, room, ctypes.c_uint(46))
    theirs = ctypes.create_string_buffer(46)
    libc = ctypes.CDLL(None)
    libc.inet_ntop(family, address.packed, theirs, ctypes.c_uint(46))
    assert room.value == theirs.value
    assert ours.inet_ntop(family, address.packed, room, ctypes.c_uint(1)) is None


@needs_compiler
def test_it_is_compiled_once_for_each_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_printf.LIBRARY, "shipped", tmp_path / "shipped.so")
    own = quick_printf.library(tmp_path)
    made = own.stat().st_mtime_ns
    assert quick_printf.library(tmp_path) == own
    assert own.stat().st_mtime_ns == made
    monkeypatch.setattr(quick_printf.LIBRARY, "name", "quick_printf-of-another-release.so")
    assert quick_printf.library(tmp_path) != own
    own.rename(quick_printf.LIBRARY.shipped)
    assert quick_printf.library(tmp_path) == quick_printf.LIBRARY.shipped


@needs_compiler
def test_one_that_cannot_be_loaded_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_printf.LIBRARY, "shipped", tmp_path / "none.so")
    spaced = tmp_path / "a folder"
    spaced.mkdir()
    with pytest.raises(ClusterflowError, match="cannot be loaded"):
        quick_printf.library(spaced)
    (tmp_path / quick_printf.LIBRARY.name).touch()
    with pytest.raises(ClusterflowError, match="cannot be loaded"):
        quick_printf.library(tmp_path)


def lines_of(folder: Path, *, fast: bool) -> list[str]:
    """What real daemons print, of all captures too if they are here, but for markers, numbers and times of arrival."""
    settings = CollectorSettings("127.0.0.1", free_udp_port(), free_udp_port(), fast_printing=fast)
    with Collector(Cluster("captures", (), collector=settings), folder / "run", spool=folder / "spool") as collector:
        for pid in collector.pids.values():
            assert ("quick_printf" in Path(f"/proc/{pid}/maps").read_text()) is fast
        for number, case in enumerate(cases().values(), 1):
            port = settings.sflow_port if case["protocol"] == "sflow" else settings.netflow_port
            replay(port, f"127.0.1.{number}", case["files"])
        send(
            settings.sflow_port, [sflow("10.0.0.7"), sampled_ip("10.0.0.7", v6=True), sampled_ip("10.0.0.7", v6=False)]
        )
        send(settings.netflow_port, [v5(1, 30), struct.pack(">H", 5)])
    rows = [line.split(",") for path in (folder / "spool").glob("*.csv") for line in path.read_text().splitlines()]
    left = [i for i, title in enumerate(PRINTED_COLUMNS) if title not in ("TAG2", "TIMESTAMP_ARRIVAL")]
    return sorted(",".join(row[i] for i in left) for row in rows if len(row) == len(PRINTED_COLUMNS))


@needs_compiler
@needs_pmacct
@pytest.mark.service
def test_daemons_print_the_same_with_it_and_without(tmp_path: Path) -> None:
    fast, slow = lines_of(tmp_path / "fast", fast=True), lines_of(tmp_path / "slow", fast=False)
    assert len(fast) > (150 if HAS_CAPTURES else 30)
    assert fast == slow


@needs_pmacct
@pytest.mark.service
@pytest.mark.parametrize("why", ["no compiler", "a compiler that fails"])
def test_without_it_pmacct_prints_by_itself_and_it_is_said(
    why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick_printf.LIBRARY, "shipped", tmp_path / "none" / "quick_printf.so")
    monkeypatch.setattr(compiled, "COMPILER", "no-such-cc" if why == "no compiler" else "false")
    said: list[tuple[str, str]] = []
    settings = CollectorSettings("127.0.0.1", free_udp_port(), free_udp_port())
    cluster = Cluster("test", (), collector=settings)

    def log(event: str, **values: object) -> None:
        said.append((event, f"{values.get('why')} {values.get('hint')}"))

    with Collector(cluster, tmp_path / "run", spool=tmp_path / "spool", log=log):
        send(settings.netflow_port, [v5(1, 3)])
        wait_for(lambda: any("10.20.0.3" in path.read_text() for path in (tmp_path / "spool").glob("nfacct-*.csv")))
    (told,) = [text for event, text in said if event == "printing_slowly"]
    assert ("no C compiler" if why == "no compiler" else "false fails") in told
    assert "apt-get install gcc" in told
    assert "collector.fast_printing: false" in told
    off = replace(cluster, collector=replace(settings, fast_printing=False))
    said.clear()
    with Collector(off, tmp_path / "run", spool=tmp_path / "spool", log=log):
        assert "printing_slowly" not in dict(said)


BEFORE, AFTER = [*ADDRESSES, *COUNTERS], [*ADDRESSES, *COUNTERS, *((9, number, 1) for number in range(150))]
"""A template, and another of the same number whose line is longer than pmacct can read."""


def templates_in(file: Path) -> list[tuple[str, int, int]]:
    """What nfacctd's file has, in its order: whose, the number as it is sent, how many fields."""
    try:
        lines = [json.loads(line) for line in file.read_text().splitlines()]
    except (OSError, ValueError):
        return []  # is being written
    return [(line["agent"], int.from_bytes(line["template_id"].to_bytes(2, "little")), line["num"]) for line in lines]


@needs_compiler
@needs_pmacct
@pytest.mark.service
def test_templates_outlive_a_restart_and_are_written_only_where_one_changes(tmp_path: Path) -> None:
    leaves = [f"127.0.6.{i}" for i in (1, 12, 2)]
    cluster = a_cluster(*(Exporter(leaf, ip_address(leaf)) for leaf in leaves))
    port, spool = cluster.collector.netflow_port, tmp_path / "spool"
    file = spool / template_file.NAME
    same, other = dated(templates(BEFORE, OPTIONS)), dated(templates(AFTER, OPTIONS))
    first = [(leaf, *one) for leaf in leaves for one in ((300, len(BEFORE)), (301, len(OPTIONS)))]
    then = [(leaves[0], 300, len(AFTER)), *first[1:]]
    with Collector(cluster, tmp_path / "run", spool=spool):
        for leaf in leaves:
            send(port, [same], leaf)
        wait_for(lambda: templates_in(file) == first)
        mode = file.stat().st_mode
        for leaf, again in zip(leaves, (other, same, same), strict=True):
            send(port, [again], leaf)
        # pmacct by itself moves each that comes to the end.
        wait_for(lambda: templates_in(file) == then)
        file.unlink()
        send(port, [same], leaves[1])
        wait_for(lambda: templates_in(file) == then)
        assert file.stat().st_mode == mode
        assert not list(spool.glob(".*.copy"))
    with Collector(cluster, tmp_path / "run", spool=spool):
        send(port, [dated(message(a_set(300, record(AFTER, 5000, 2, *range(150)))))], leaves[0])
        wait_for(lambda: any("10.1.0.1,203.0.113.5" in path.read_text() for path in spool.glob("nfacct-*.csv")))
    assert spooled(spool)["bytes"].to_list() == [5000]
    assert "WARN" not in (tmp_path / "run" / "nfacctd.log").read_text()
