"""What pmacct prints twice counts once, wherever the reader is cut off or killed; what only looks like it counts."""

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ingest.collect import quick_printf
from ingest.collect.supervise import Collector
from ingest.read.readers import read_chunk
from ingest.read.records import FIRST_IP_NUMBER, FIRST_NUMBER, PRINTED_COLUMNS
from ingest.read.spool import Spool
from tests.ingest.test_numbered import line
from tests.ingest.test_pmacct_daemons import EXPORTERS, a_cluster, send, spooled, v5
from tests.waiting import wait_for

HEADER = ",".join(PRINTED_COLUMNS)


def block(pid: int, lines: list[str]) -> str:
    return "\n".join([f"--START ({pid})--", *lines, f"--END ({pid})--", ""])


def numbered(first: int, count: int, **values: int) -> list[str]:
    return [line(number, size=number % 1000, **values) for number in range(first, first + count)]


def read(folder: Path, limit: int = 1 << 24, *, restarts: bool = False) -> tuple[list[int], int]:
    """Return the bytes of all records, and how many were said to be there again."""
    found: list[int] = []
    again = 0
    spool = Spool(folder, once=True)
    try:
        while (chunk := spool.next_chunk(limit)) is not None:
            found += read_chunk(chunk.raw, chunk.fmt).frame.get_column("bytes").to_list()
            if restarts:
                again += spool.counts.get("printed_again", 0)
                spool.close()
                spool = Spool(folder, once=True)
                spool.resume(json.loads(json.dumps(chunk.position)))
    finally:
        spool.close()
    return found, again + spool.counts.get("printed_again", 0)


def write(folder: Path, *blocks: str, name: str = "nfacct-20260301-120000.csv") -> None:
    text = "\n".join([HEADER, *blocks]).encode()
    (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)


A, B, C = numbered(FIRST_NUMBER, 40), numbered(FIRST_NUMBER + 40, 50), numbered(FIRST_NUMBER, 30, seq=8)
ALL = [*range(90), *range(30)]


@pytest.mark.parametrize("limit", [1 << 24, 3000, 700])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("name", ["nfacct-20260301-120000.csv", "nfacct-20260301-120000.csv.gz"])
def test_a_block_that_repeats_the_one_before_counts_once(
    tmp_path: Path, limit: int, name: str, *, restarts: bool
) -> None:
    """And the daemon that is started then, whose numbers begin anew."""
    write(tmp_path, block(1, A), block(2, B), block(3, B), block(4, C), name=name)
    assert read(tmp_path, limit, restarts=restarts) == (ALL, 50)


def test_a_part_is_enough_and_one_that_was_cut_off_too(tmp_path: Path) -> None:
    write(tmp_path, block(1, A), block(2, B), "\n".join(["--START (3)--", *B[20:], ""]) + block(4, C))
    assert read(tmp_path) == (ALL, 30)


def test_what_was_printed_first_before_any_other_counts_once(tmp_path: Path) -> None:
    write(tmp_path, block(1, A), block(2, A))
    assert read(tmp_path) == ([*range(40)], 40)


def test_of_a_daemon_that_starts_again_the_same_numbers_count(tmp_path: Path) -> None:
    write(tmp_path, block(1, C), HEADER, block(2, A))
    assert read(tmp_path) == ([*range(30), *range(40)], 0)


def test_sflow_has_numbers_of_two_kinds(tmp_path: Path) -> None:
    mixed = [*numbered(FIRST_IP_NUMBER, 3), *numbered(FIRST_NUMBER, 3)]
    write(tmp_path, block(1, mixed[:2]), block(2, mixed[2:]), block(3, mixed[2:]))
    assert read(tmp_path) == ([0, 1, 2, 0, 1, 2], 4)


def test_lines_without_numbers_are_no_proof(tmp_path: Path) -> None:
    """Tags of a site's own, and two flows that are alike."""
    write(tmp_path, block(1, numbered(7, 5)), block(2, numbered(7, 5)))
    assert len(read(tmp_path)[0]) == 10


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has pmacct be told to end as soon as it has forked, once a file is there; the file."""
    flag, source, made = (tmp_path / name for name in ("now", "hasty.c", "hasty.so"))
    source.write_text(
        f"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <signal.h>
        #include <unistd.h>
        pid_t fork(void) {{
          pid_t (*of_libc)(void) = dlsym(RTLD_NEXT, "fork"), child = of_libc();
          if (child > 0 && !access("{flag}", F_OK)) raise(SIGINT);
          return child;
        }}
        """
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source], check=True)
    monkeypatch.setattr(quick_printf, "library", lambda _folder: made)
    return flag


@pytest.mark.service
@pytest.mark.skipif(shutil.which("nfacctd") is None, reason="pmacct is not installed")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_pmacct_prints_a_second_twice_when_it_is_told_to_end_as_it_forks(tmp_path: Path, hasty: Path) -> None:
    cluster, spool = a_cluster(*EXPORTERS[:2]), tmp_path / "spool"
    with Collector(cluster, tmp_path / "run", spool=spool):
        send(cluster.collector.netflow_port, [v5(0, 30)])
        wait_for(lambda: spooled(spool).height == 30)
        hasty.touch()
        # One datagram: of several it might be told to end between two.
        send(cluster.collector.netflow_port, [v5(30, 30)])
        wait_for(lambda: spooled(spool).height == 60)
    lines = [text for path in spool.glob("*.csv") for text in path.read_text().splitlines() if text[0].isdecimal()]
    assert len(lines) > len({*lines}) == 60, "pmacct is mended: printed_again is to go"
    assert sorted(spooled(spool)["bytes"]) == list(range(1000, 1060))
