"""`clusterflow flows`: sums, shares, periods and outputs, on an archive whose every row is known."""

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from click.testing import CliRunner, Result
from test_archive import T0, an_archive, rows, saved

from app.application import Application
from archive.query import Filter
from cluster.options import moment_of
from operations.questions.flows_cli import flows, period_words

CLUSTER = """cluster: lab
site: {time_zone: Asia/Tokyo}
groups: {training: {role: training, prefixes: [10.1.0.0/16]}}
exporters: {leaf: {address: 192.0.2.1}, spine: {address: 192.0.2.2}, torn: {address: 192.0.2.3},
  canary: {address: 127.0.0.1, watched: false}}
archive: {folder: FOLDER}
"""


@pytest.fixture
def run(tmp_path: Path) -> "Run":
    archive = an_archive(tmp_path / "archive")
    archive.take(rows(100, 200, 300))
    archive.take(rows(4000, dst="198.51.100.9", dst_node="198.51.100.9", dst_port=4444, rate=1000))
    archive.take(rows(50, exporter="spine", counted=False))
    saved(archive)
    archive.close()
    config = tmp_path / "cluster.yaml"
    config.write_text(CLUSTER.replace("FOLDER", str(tmp_path / "archive")))
    return Run(config)


class Run:
    def __init__(self, config: Path) -> None:
        self.config = config

    def __call__(self, *arguments: str) -> Result:
        application = Application(name="clusterflow")
        application.add_command(flows)
        period = () if "--from" in arguments else ("--from", "2026-09-21T22:00", "--to", "2026-09-22T04:00")
        return CliRunner().invoke(application, ["flows", "-c", str(self.config), *period, *arguments])

    def json(self, *arguments: str) -> dict[str, object]:
        found = self("--json", *arguments)
        assert found.exit_code == 0, found.output
        document: dict[str, object] = json.loads(found.stdout)
        return document


def test_the_period_of_these_tests_holds_the_rows() -> None:
    assert T0 == 1_789_999_200, "2026-09-21 23:20 in Tokyo"


def test_sum_and_share_of_a_port(run: Run) -> None:
    found = run.json("--port", "4444")
    assert found["bytes"] == 4000
    assert found["all_bytes"] == 4600
    (row,) = found["rows"]  # type: ignore[misc]
    assert (row["dst_node"], row["dst_port"], row["bytes"]) == ("198.51.100.9", 4444, 4000)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--address", "198.51.100.9"), 4000),
        (("--dst", "203.0.113.0/24"), 600),
        (("--src", "10.1.0.0/16", "--dst", "198.51.100.9"), 4000),
        (("--src", "198.51.100.9"), 0),
        (("--node", "gpu-100", "--node", "gpu-200"), 300),
        (("--group", "training", "--port", "443"), 600),
        (("--proto", "udp"), 0),
        (("--interface", "in"), 4600),
        (("--exporter", "leaf"), 4600),
        ((), 4600),
    ],
)
def test_every_filter_leaves_what_it_says(run: Run, arguments: tuple[str, ...], expected: int) -> None:
    assert run.json(*arguments)["bytes"] == expected


def test_a_table_names_the_zone_and_what_is_lacking(run: Run) -> None:
    found = run("--top", "1").stdout
    assert "(Asia/Tokyo)" in found
    assert "from 2026-09-21 22:00:00 to 2026-09-22 04:00:00 (Asia/Tokyo)" in found
    assert "4,600 bytes, 100.00% of all traffic (4,600)" in found
    assert "lacks: packets between samples: 4,000 bytes are an estimate\n" in found
    assert "lacks: exporters without a record: torn\n" in found


def test_both_hours_of_an_autumn_night_are_told_apart() -> None:
    """And what is printed may be asked for: without its offset a time is of the first of the two."""
    zone = ZoneInfo("Europe/Amsterdam")
    summer, winter = (int(datetime(2026, 10, 25, hour, 30, tzinfo=UTC).timestamp()) for hour in (0, 1))
    said = period_words(Filter(summer, winter), zone)
    assert said == "2026-10-25 02:30:00+0200 to 2026-10-25 02:30:00+0100 (Europe/Amsterdam)"
    begin, end = (part.partition(" (")[0] for part in said.split(" to "))
    assert [moment_of(text, zone) for text in (begin, end)] == [summer, winter]
    later = period_words(Filter(winter + 3600, winter + 7200), zone)
    assert later == "2026-10-25 03:30:00 to 2026-10-25 04:30:00 (Europe/Amsterdam)"


def test_csv_and_parquet_hold_the_same_rows(run: Run, tmp_path: Path) -> None:
    printed = pl.read_csv(io.StringIO(run("--by", "src_node,dst_port", "--csv").stdout))
    file = tmp_path / "found.parquet"
    assert run("--by", "src_node,dst_port", "--parquet", str(file)).exit_code == 0
    kept = pl.read_parquet(file)
    assert printed["bytes"].to_list() == kept["bytes"].to_list() == [4000, 300, 200, 100]


def test_a_full_disk_under_parquet_is_one_line(run: Run) -> None:
    found = run("--parquet", "/dev/full")
    assert found.exit_code == 2
    assert "/dev/full: No space left on device" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--group", "traning"), "--group traning: no such group"),
        (("--by", "colour"), "--by colour: no such column"),
        (("--from", "2026-09-22T04:00", "--to", "2026-09-22T03:00"), "the period is empty"),
        (("--job", "nobody"), "--job nobody: no such job"),
        (("--src", "10.20.0.0/33"), "10.20.0.0/33: expected a prefix (such as 10.20.0.0/16)"),
        (("--prefix", "10.20.0.7/16"), "10.20.0.7/16: expected a prefix (host bits are set: write 10.20.0.0/16)"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_exit_code_2(run: Run, arguments: tuple[str, ...], told: str) -> None:
    found = run(*arguments)
    assert found.exit_code == 2
    assert told in found.stderr
