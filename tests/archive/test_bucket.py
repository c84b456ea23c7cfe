"""Hours that are over are in the bucket once, whatever is killed, and answers have them when the disk has them no more.

The bucket is a real server of S3's protocol (moto) on a port of its own.
"""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import polars as pl
import pytest
from click.testing import CliRunner
from moto.server import ThreadedMotoServer
from test_archive import ALL, T0, an_archive, rows, saved

from app.application import Application
from app.errors import UserError
from archive import writer
from archive.bucket import Bucket
from archive.manifest import HOUR
from archive.query import Answer, Filter, ask
from archive.writer import Archive
from cluster.model import ArchiveSettings
from cluster.scalars.kinds import Secret
from operations.questions.flows_cli import flows

KEYS: dict[str, Any] = {"bucket_key_id": Secret(env="S3_ID"), "bucket_key": Secret(env="S3_KEY")}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    served = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    served.start()
    host, port = served.get_host_and_port()
    yield f"http://{host}:{port}"
    served.stop()


@pytest.fixture
def settings(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    monkeypatch.setenv("S3_ID", "id")
    monkeypatch.setenv("S3_KEY", "secret")
    monkeypatch.setattr(writer, "_AGAIN_SECONDS", 0)
    name = f"flows-{tmp_path.name.replace('_', '-')}".lower()[:60].rstrip("-")
    # The server makes a bucket for a PUT of its name.
    obstore.put(obstore.store.HTTPStore(server, client_options={"allow_http": True}), name, b"")
    return {"bucket": f"s3://{name}/lab", "bucket_endpoint": server, "keep": 2 * HOUR, **KEYS}


def objects(settings: dict[str, Any]) -> list[str]:
    bucket = Bucket(replace(ArchiveSettings(), **settings))
    return sorted(one["path"] for page in obstore.list(bucket._store) for one in page)


def found(folder: Path, settings: dict[str, Any], question: Filter = ALL) -> Answer:
    return ask(folder, question, settings=replace(ArchiveSettings(), **settings))


def wait(archive: Archive) -> bool:
    """Wait for the threads; return whether they were busy."""
    jobs = [job for job in (archive._merging and archive._merging[1], archive._copying) if job is not None]
    for job in jobs:
        job.exception()
    return bool(jobs)


def settle(archive: Archive, now: float = 0) -> dict[str, Any]:
    """Checkpoints until nothing is left to merge or to copy."""
    while True:
        saved(archive, now)
        if not wait(archive):
            # What the bucket has the disk lets go.
            return saved(archive, now)


@pytest.mark.service
def test_killed_at_any_instant_every_row_is_there_once_on_the_disk_or_in_the_bucket(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    archive, notes = an_archive(tmp_path, **settings), None
    for hour in range(8):
        mine = rows(hour + 1, hour + 101, hour=hour, rank=1 + hour % 2)
        archive.take(mine)
        for step in range(5):
            after = archive.seal(T0 + hour * HOUR)
            wait(archive)
            if (hour + step) % 3:
                notes = after
                archive.commit()
                continue
            # Killed before or after the checkpoint, before readers are told.
            is_saved = step % 2 == 1
            notes = after if is_saved else notes
            archive.close()
            archive = an_archive(tmp_path, notes, **settings)
            if step == 0:
                archive.take(mine)
        notes = settle(archive, T0 + hour * HOUR)
        expected = [*range(1, hour + 2), *range(101, hour + 102)]
        answer = found(tmp_path, settings)
        assert (sorted(answer.frame["bytes"]), answer.all_bytes) == (expected, sum(expected))
        assert answer.gaps == ()
    notes = settle(archive, T0 + 8 * HOUR)
    archive.close()
    assert {file["hour"] for file in notes["files"]} == {T0 + 6 * HOUR, T0 + 7 * HOUR}
    there = objects(settings)
    assert len([path for path in there if path.endswith(".parquet")]) == 6
    assert len({path.rpartition("/sorted")[0] for path in there if path.endswith(".parquet")}) == 1


@pytest.mark.service
def test_a_bucket_that_is_away_loses_nothing_and_is_told(tmp_path: Path, settings: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
    archive = an_archive(tmp_path, **settings | {"bucket_endpoint": nobody})
    for hour in range(5):
        archive.take(rows(hour + 1, hour=hour))
    for _ in range(8):
        notes = saved(archive, now=T0 + 9 * HOUR)
        wait(archive)
    assert len(notes["files"]) == 5, "older than `keep`, and nowhere else"
    assert archive.readings["uncopied_hours"] == 3
    assert archive.take_counts()["copy_failures"] > 0
    archive.close()
    away = ask(tmp_path, ALL, settings=replace(ArchiveSettings(), **settings | {"bucket_endpoint": nobody}))
    assert away.bytes == 15
    assert "does not answer" in away.gaps[0]
    archive = an_archive(tmp_path, notes, **settings)
    archive.take(rows(6, hour=5))
    notes = settle(archive, now=T0 + 9 * HOUR)
    assert {file["hour"] for file in notes["files"]} == {T0 + 4 * HOUR, T0 + 5 * HOUR}, "not over"
    counts = archive.take_counts()
    assert (counts["copied_rows"], counts["moved_rows"]) == (4, 4)
    assert "deleted_rows" not in counts
    assert archive.readings["uncopied_hours"] == 0
    assert found(tmp_path, settings).bytes == 21
    archive.close()


def test_late_rows_a_lost_disk_and_the_end_of_what_is_kept(tmp_path: Path, settings: dict[str, Any]) -> None:
    archive = an_archive(tmp_path, **settings)
    archive.take(rows(1, rank=2, exporter="spine"))
    archive.take(rows(1, hour=4))
    settle(archive, now=T0 + 9 * HOUR)
    assert found(tmp_path, settings, replace(ALL, exporter=("spine",))).bytes == 1
    # The better exporter's record comes when only the bucket has the hour.
    archive.take(rows(1, rank=1))
    settle(archive, now=T0 + 9 * HOUR)
    archive.take(rows(2, hour=7))
    settle(archive, now=T0 + 9 * HOUR)
    archive.close()
    answer = found(tmp_path, settings)
    assert (answer.bytes, answer.all_bytes, answer.suppressed_bytes) == (4, 4, 1)
    answer = found(tmp_path / "another", settings)
    assert (answer.bytes, answer.all_bytes, answer.suppressed_bytes) == (2, 2, 1), "of hours that are over"
    archive = an_archive(tmp_path, **settings | {"bucket_keep": 3 * HOUR})
    archive.take(rows(3, hour=9))
    settle(archive, now=T0 + 9 * HOUR)
    archive.close()
    answer = found(tmp_path, settings)
    assert answer.bytes == 5
    assert any("deleted to make room: 3 rows" in gap for gap in answer.gaps)
    assert len([path for path in objects(settings) if "/sorted/" in path]) == 1


def test_a_bucket_whose_list_is_gone_keeps_its_files_and_is_told(tmp_path: Path, settings: dict[str, Any]) -> None:
    archive = an_archive(tmp_path, **settings)
    for hour in range(3):
        archive.take(rows(hour + 1, hour=hour))
    settle(archive, now=T0 + 9 * HOUR)
    listed = next(path for path in objects(settings) if path.endswith("manifest.json"))
    bucket = Bucket(replace(ArchiveSettings(), **settings))
    text = bytes(obstore.get(bucket._store, listed).bytes())
    obstore.delete(bucket._store, listed)
    before = objects(settings)
    archive.take(rows(9, hour=6))
    archive.take(rows(10, hour=9))
    # Tried again for ever.
    for _ in range(6):
        saved(archive, now=T0 + 9 * HOUR)
        wait(archive)
    assert [path for path in objects(settings) if path in before] == before
    assert archive.readings["bucket_away_seconds"] >= 0
    assert archive.take_counts()["copy_failures"] > 0
    obstore.put(bucket._store, listed, text)
    settle(archive, now=T0 + 9 * HOUR)
    assert found(tmp_path, settings).bytes == 1 + 2 + 3 + 9 + 10
    archive.close()


def test_killed_when_the_disk_had_let_go_of_all_that_was_copied(tmp_path: Path, settings: dict[str, Any]) -> None:
    archive = an_archive(tmp_path, **settings)
    archive.take(rows(1))
    archive.take(rows(2, hour=4))
    settle(archive, now=T0 + 2 * HOUR)
    archive.take(rows(3, hour=9))
    notes = settle(archive, now=T0 + 2 * HOUR)
    archive.close()
    notes["files"] = [file for file in notes["files"] if file["copied"]]
    assert notes["files"]
    for file in notes["files"]:
        (tmp_path / "0" / file["name"]).unlink()
    archive = an_archive(tmp_path, notes, **settings)
    assert archive.is_usable
    archive.close()


def test_flows_and_polars_ask_the_bucket(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = an_archive(tmp_path / "archive", **settings)
    archive.take(rows(7, src="10.1.0.7", dst_port=4444))
    archive.take(rows(1, hour=4))
    settle(archive, now=T0 + 9 * HOUR)
    archive.close()
    config = tmp_path / "cluster.yaml"
    config.write_text(
        "cluster: lab\nsite: {time_zone: UTC}\ngroups: {training: {role: training, prefixes: [10.1.0.0/16]}}\n"
        f"exporters: {{leaf: {{address: 192.0.2.1}}}}\narchive: {{folder: {tmp_path}/archive, "
        f"bucket: {settings['bucket']}, bucket_endpoint: '{settings['bucket_endpoint']}', "
        "bucket_key_id: {env: S3_ID}, bucket_key: {env: S3_KEY}}\n"
    )
    application = Application(name="clusterflow")
    application.add_command(flows)
    asked = ["flows", "-c", str(config), "--port", "4444", "--from", "2026-09-21", "--to", "2026-09-23", "--csv"]
    told = CliRunner().invoke(application, asked)
    assert told.exit_code == 0, told.output
    assert pl.read_csv(told.stdout.encode())["bytes"].to_list() == [7]
    monkeypatch.delenv("S3_KEY")
    told = CliRunner().invoke(application, asked)
    assert told.exit_code == 2
    assert "environment variable S3_KEY is not set" in told.stderr
    for name, value in (("ACCESS_KEY_ID", "id"), ("SECRET_ACCESS_KEY", "secret"), ("ALLOW_HTTP", "true")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", settings["bucket_endpoint"])
    copied = pl.scan_parquet(f"{settings['bucket']}/*/*/sorted/*.parquet").filter(pl.col("counted")).collect()
    assert copied["bytes"].to_list() == [7]


def test_without_the_client_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(UserError, match="client of S3 storage is not installed"):
        Bucket(replace(ArchiveSettings(), bucket="s3://flows"))
