"""A folder of a cloud's logs on a mount that goes away, with errors that pass: every line once."""

import errno
import gzip
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.errors import ClusterflowError
from cluster.model import CloudFormat
from ingest.cloud import files
from ingest.cloud.files import CloudFiles
from ingest.read.source import Position

LINES = "".join(f"2 1 eni-1 10.0.0.1 10.0.0.2 {i} 2 6 1 100 1700000000 1700000060 ACCEPT OK\n" for i in range(200_000))
SOME = "".join(LINES.splitlines(keepends=True)[:20])


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look for a chunk is one at the folder, too, and what failed is tried again at once."""
    monkeypatch.setattr(files, "_SCAN_SECONDS", -1.0)
    monkeypatch.setattr(files, "RETRY_SECONDS", 0.0)


def put(path: Path, content: str | bytes, age: float = 3600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    os.utime(path, (time.time() - age,) * 2)
    return path


@contextmanager
def following(
    folder: Path, cloud: CloudFormat = CloudFormat.AWS, position: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[CloudFiles]:
    source = CloudFiles(folder, cloud, once=False)
    try:
        if position is not None:
            source.resume(json.loads(json.dumps(position)))
        yield source
    finally:
        source.close()


def drain(source: CloudFiles, limit: int = 1 << 20) -> int:
    """Return the number of lines to be had."""
    count = 0
    while (chunk := source.next_chunk(limit)) is not None:
        count += chunk.raw.count(b"\n")
    return count


def test_folders_that_were_away_go_on_where_they_were(tmp_path: Path) -> None:
    logs, away = tmp_path / "logs", tmp_path / "away"
    put(logs / "1" / "a.log", SOME)
    put(logs / "2" / "b.log", SOME)
    with following(logs) as source:
        assert drain(source) == 40
        (logs / "1").rename(away)
        assert drain(source) == 0
        away.rename(logs / "1")
        put(logs / "1" / "a.log", SOME + SOME)
        assert drain(source) == 20
        assert source.counts == {}


def test_of_an_empty_mount_point_everything_stays_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, away = tmp_path / "logs", tmp_path / "away"
    put(logs / "1" / "a.log", SOME)
    with following(logs) as source:
        assert drain(source) == 20
        position: Position = source.position
        (logs / "1").rename(away)
        assert (drain(source), drain(source), source.counts) == (0, 0, {"folder_empty": 1})
    # A bridge that starts before its mount.
    with following(logs, position=position) as source:
        assert (drain(source), source.counts) == (0, {"folder_empty": 1})
        # For as long as that lasts.
        monkeypatch.setattr(files, "_KNOWN_SECONDS", -1.0)
        assert drain(source) == 0
        position = source.position
    with following(logs, position=position) as source:
        away.rename(logs / "1")
        assert drain(source) == 0


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.EACCES])
def test_a_folder_that_cannot_be_listed_for_once_is_not_read_again(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "1" / "a.log", SOME)
    put(tmp_path / "2" / "b.log", SOME)
    with following(tmp_path) as source:
        assert drain(source) == 40
        with monkeypatch.context() as patch:
            walk = os.walk

            def failing(folder: Path, onerror: Any) -> Iterator[tuple[str, list[str], list[str]]]:
                for where, folders, names in walk(folder):
                    if where.endswith("/1"):
                        onerror(OSError(number, os.strerror(number), where))
                    else:
                        yield where, folders, names

            patch.setattr(os, "walk", failing)
            patch.setattr(files, "_KNOWN_SECONDS", -1.0)
            assert drain(source) == 0
            assert set(source.position) == {"1/a.log", "2/b.log"}
        assert drain(source) == 0
        assert source.counts == {"folder_unreadable": 1}


def test_a_file_that_cannot_be_looked_at_for_once_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        put(tmp_path / f"{name}.log", SOME)
    (tmp_path / "nowhere.log").symlink_to("removed")
    with following(tmp_path) as source:
        assert drain(source) == 40
        with monkeypatch.context() as patch:
            stat = Path.stat

            def failing(path: Path, **options: bool) -> os.stat_result:
                if path.name == "a.log":
                    raise OSError(errno.ESTALE, "Stale file handle", str(path))
                return stat(path, **options)

            patch.setattr(Path, "stat", failing)
            assert drain(source) == 0
            with pytest.raises(ClusterflowError, match=r"a\.log: Stale file handle"):
                CloudFiles(put(tmp_path / "once" / "a.log", SOME).parent, CloudFormat.AWS, once=True).next_chunk(1)
            shutil.rmtree(tmp_path / "once")
        assert drain(source) == 0
        assert source.counts == {"unreadable": 1}


def test_another_folder_in_the_place_of_the_locked_one_is_locked_and_its_files_go_on(tmp_path: Path) -> None:
    """A mount that went away and is back may be another folder to the system; so is what it was mounted on."""
    logs = tmp_path / "logs"
    put(logs / "a.log", SOME)
    with following(logs) as source:
        assert drain(source) == 20
        logs.rename(tmp_path / "was")
        assert drain(source) == 0
        assert source.counts == {"folder_unreadable": 1}
        logs.mkdir()
        assert drain(source) == 0
        assert source.counts == {"folder_unreadable": 1, "folder_empty": 1}
        logs.rmdir()
        shutil.copytree(tmp_path / "was", logs)
        put(logs / "b.log", SOME)
        with following(tmp_path / "was"):
            assert drain(source) == 20
        with pytest.raises(ClusterflowError, match="another bridge reads it"):
            CloudFiles(logs, CloudFormat.AWS, once=False)


def test_a_removed_file_is_known_for_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, half, _ = (put(tmp_path / name, LINES) for name in ("a.log", "b.log", "c.log"))
    half.write_text(LINES * 2)
    os.utime(half, (time.time() - 3600,) * 2)
    with following(tmp_path) as source:
        while source.position.get("b.log", {}).get("offset", 0) < len(LINES):
            assert source.next_chunk(len(LINES))
        gone.unlink()
        half.unlink()
        assert drain(source) == 200_000
        assert source.counts == {"vanished": 1}
        position = source.position
    with following(tmp_path, position=position) as source:
        put(half, LINES * 2)
        assert drain(source) == 200_000
        assert source.counts == {}
        assert set(source.position) == {"a.log", "b.log", "c.log"}
        monkeypatch.setattr(files, "_KNOWN_SECONDS", -1.0)
        assert drain(source) == 0
        assert set(source.position) == {"b.log", "c.log"}


def test_of_many_removed_files_the_last_ones_are_known_for_more_than_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_GONE", 2)
    for name in "abcde":
        put(tmp_path / f"{name}.log", SOME)
    with following(tmp_path) as source:
        drain(source)
        for name in "dbac":
            (tmp_path / f"{name}.log").unlink()
            assert drain(source) == 0
        assert len(source.position) == 5
        monkeypatch.setattr(files, "_DAY", -1.0)
        drain(source)
        assert set(source.position) == {"a.log", "c.log", "e.log"}


def test_a_new_file_under_the_name_of_a_removed_one_is_read(tmp_path: Path) -> None:
    put(tmp_path / "a.log", SOME)
    with following(tmp_path) as source:
        assert drain(source) == 20
        (tmp_path / "a.log").unlink()
        assert drain(source) == 0
        put(tmp_path / "a.log", SOME.replace("10.0.0.1", "10.0.9.1") * 2, age=0)
        assert drain(source) == 0, "it may still be being copied"
        put(tmp_path / "a.log", SOME.replace("10.0.0.1", "10.0.9.1") * 2)
        assert drain(source) == 40
        assert source.counts == {"folder_empty": 1, "replaced": 1}


def test_an_hour_of_azure_that_grew_while_it_was_away_goes_on(tmp_path: Path) -> None:
    """What it holds ends in brackets, which go further down: its first bytes may be others then."""
    tuples = [f"166314600{i}599,10.0.0.6,192.0.2.180,23956,443,6,O,E,NX,3,767,2,1580" for i in range(4)]

    def log(count: int) -> str:
        records = [{"flowRecords": {"flows": [{"flowGroups": [{"flowTuples": [one]}]}]}} for one in tuples[:count]]
        return json.dumps({"records": records})

    put(tmp_path / "PT1H.json", log(1))
    with following(tmp_path, CloudFormat.AZURE) as source:
        assert drain(source) == 1
        (tmp_path / "PT1H.json").unlink()
        assert drain(source) == 0
        put(tmp_path / "PT1H.json", log(4))
        assert drain(source) == 3


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE, errno.EACCES])
def test_an_error_that_passes_costs_nothing(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a.log", SOME)
    with following(tmp_path) as source:
        with monkeypatch.context() as patch:
            patch.setattr(files, "RETRY_SECONDS", 3600.0)
            patch.setattr(files, "_text", _failing(number))
            assert (drain(source), drain(source)) == (0, 0)
            assert source.counts == {"unreadable": 1}, "there is a pause"
        source._files["a.log"].retry = time.monotonic()
        assert drain(source) == 20


def _failing(number: int) -> Any:
    def fail(path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    return fail


def test_once_an_error_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a.log", SOME)
    monkeypatch.setattr(files, "_text", _failing(errno.EIO))
    source = CloudFiles(tmp_path, CloudFormat.AWS, once=True)
    assert drain(source) == 0
    assert source.is_finished
    assert source.unreadable() == ["a.log"]
    source.close()


@pytest.mark.parametrize("keeps_date", [False, True])
def test_a_broken_file_mended_at_the_same_size_is_read(tmp_path: Path, *, keeps_date: bool) -> None:
    """By another date; or, where a copy has that of its original, by when it came."""
    whole = gzip.compress(SOME.encode())
    path = put(tmp_path / "a.log.gz", bytes(len(whole)))
    before = path.stat()
    with following(tmp_path) as source:
        assert (drain(source), drain(source)) == (0, 0)
        assert source.counts == {"unreadable": 1}
        put(path, whole, age=1800)
        if keeps_date:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert drain(source) == 20


def test_an_archive_whose_copying_paused_is_read_to_its_end(tmp_path: Path) -> None:
    whole = gzip.compress(LINES.encode())
    path = put(tmp_path / "a.log.gz", whole[: len(whole) // 2])
    with following(tmp_path) as source:
        first = drain(source)
        assert 0 < first < 200_000
        position = source.position
    put(path, whole[: len(whole) // 4 * 3])
    with following(tmp_path, position=position) as source:
        more = drain(source)
        put(path, whole)
        assert first + more + drain(source) == 200_000
        assert source.counts == {"unreadable": 1}


def test_another_archive_in_the_place_of_one_that_was_begun_is_left(tmp_path: Path) -> None:
    whole = gzip.compress(LINES.encode())
    path = put(tmp_path / "a.log.gz", whole[: len(whole) // 2])
    with following(tmp_path) as source:
        assert drain(source) > 0
        put(path, gzip.compress(LINES.replace("10.0.0.1", "10.0.9.1").encode()))
        assert drain(source) == 0
        assert source.counts == {"unreadable": 1, "changed": 1}


ODD = [
    '{"records": 5}', '{"records": {"flowRecords": {}}}', "5", "[" * 100_000, '{"records": [' + "[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_json_that_is_no_log_of_azure_s_is_in_nobodys_way(tmp_path: Path, text: str) -> None:
    put(tmp_path / "a" / "PT1H.json", text)
    group = {"flowTuples": ["1663146003599,10.0.0.6,192.0.2.180,23956,443,6,O,E,NX,3,767,2,1580"]}
    put(tmp_path / "b" / "PT1H.json", json.dumps({"records": [{"flowRecords": {"flows": [{"flowGroups": [group]}]}}]}))
    with following(tmp_path, CloudFormat.AZURE) as source:
        assert drain(source) == 1
        assert source.unreadable() == ["a/PT1H.json"]
