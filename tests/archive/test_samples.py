"""Single samples keep their times, are there once whatever dies, and give way to newer ones."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from trouble import fill_up, small_disk

from app.log import Log
from archive.samples import BYTES, SCHEMA, TIME, Samples, read_samples, samples_folder
from bench.traces.play import play
from bench.traces.records import sflow
from cluster.load import parse_cluster
from tests.bench.synthetic_trace import synthetic_trace

sys.path.append(str(Path(__file__).parents[1] / "analysis"))

import trace_scene

T0 = 1_790_000_000.0


def rows(*seconds: float, exporter: str = "leaf", src: str = "a", dst: str = "b") -> pl.DataFrame:
    values = {TIME: [int((T0 + one) * 1000) for one in seconds], BYTES: [4154] * len(seconds)}
    names = {"exporter": exporter, "src": src, "dst": dst, "src_rail": 0, "dst_rail": 0}
    return pl.DataFrame(values).with_columns(**{name: pl.lit(one) for name, one in names.items()}).select(
        pl.col(name).cast(kind) for name, kind in SCHEMA.items()
    )  # fmt: skip


def test_samples_of_a_played_job_are_there_each_with_its_time_and_rail(tmp_path: Path) -> None:
    trace = synthetic_trace()
    samples = sflow(play(trace, 5, 5, begin=T0), trace_scene.RATE, 6)
    cluster = trace_scene.kept(samples, tmp_path)
    found = read_samples(cluster, T0, T0 + 60)
    columns = ["time", "src", "dst", "src_rail", "dst_rail", "bytes"]
    wanted, told = (
        one.select(columns).cast({"src": pl.String, "dst": pl.String, "src_rail": pl.Int16, "dst_rail": pl.Int16})
        .sort(*columns[1:], columns[0])
        for one in (samples, found)
    )  # fmt: skip
    assert told.drop("time").equals(wanted.drop("time"))
    assert (told["time"] - wanted["time"]).abs().max() <= 0.001
    size = sum(path.stat().st_size for path in samples_folder(cluster).rglob("*.parquet"))
    assert size / samples.height <= 15


def test_of_exporters_that_sample_the_same_pair_one_is_taken(tmp_path: Path) -> None:
    cluster = parse_cluster(trace_scene.config(2, tmp_path))
    writer = Samples(samples_folder(cluster) / "0", cluster.archive, Log(quiet=True))
    writer.take(rows(1, 2, 3, exporter="leaf"))
    writer.take(rows(1, 2, exporter="spine"))
    writer.take(rows(4, exporter="spine", dst="c"))
    writer.seal(T0)
    assert read_samples(cluster, T0, T0 + 9)["exporter"].to_list() == ["leaf"] * 3 + ["spine"]
    assert read_samples(cluster, T0 + 2, T0 + 3)["time"].to_list() == [T0 + 2]
    assert read_samples(cluster, T0, T0 + 9, ["a", "c"]).height == 1
    assert read_samples(cluster, T0 + 9, T0 + 99).is_empty()


@pytest.mark.parametrize(("most", "kept"), [(100, 40), (40, 40), (39, 20), (8, 5), (1, 1)])
def test_samples_of_others_thin_out_nobody(tmp_path: Path, most: int, kept: int) -> None:
    """A job has 40 samples in two files, beside 4,000 of others."""
    cluster = parse_cluster(trace_scene.config(2, tmp_path))
    writer = Samples(samples_folder(cluster) / "0", cluster.archive, Log(quiet=True))
    for begin in (0, 100):
        writer.take(rows(*(begin + second for second in range(20))))
        writer.take(rows(*(begin + number / 100 for number in range(2000)), src="c", dst="d"))
        writer.seal(T0)
    found = read_samples(cluster, T0, T0 + 999, ["a", "b"], most)
    assert found.height == kept
    assert found[BYTES].sum() == pytest.approx(40 * 4154, rel=0.7)
    assert set(found["src"].cast(pl.String)) == {"a"}


def test_what_no_checkpoint_knows_is_taken_once(tmp_path: Path) -> None:
    cluster = parse_cluster(trace_scene.config(2, tmp_path))

    def writer(known: int | None) -> Samples:
        made = Samples(samples_folder(cluster) / "0", cluster.archive, Log(quiet=True))
        made.load(known)
        return made

    first = writer(None)
    first.take(rows(1))
    known = first.seal(T0)
    first.take(rows(2, 3))
    first.seal(T0)  # killed before the checkpoint
    again = writer(known)
    again.take(rows(2, 3))
    again.seal(T0)
    assert read_samples(cluster, T0, T0 + 9)["time"].to_list() == [T0 + 1, T0 + 2, T0 + 3]


@pytest.mark.parametrize("limit", ["age", "size"])
def test_the_oldest_give_way(tmp_path: Path, limit: str) -> None:
    cluster = parse_cluster(trace_scene.config(2, tmp_path))
    settings = replace(cluster.archive, keep_samples=600, **({"samples_size": 1} if limit == "size" else {}))
    writer = Samples(samples_folder(cluster) / "0", settings, Log(quiet=True))
    for moment in (0, 1000):
        writer.take(rows(moment))
        writer.seal(T0 + moment)
    assert read_samples(cluster, T0, T0 + 9999)["time"].to_list() == ([T0 + 1000] if limit == "age" else [])


def test_a_disk_that_refuses_costs_samples_that_are_counted(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    writer = Samples(blocked / "0", parse_cluster(trace_scene.config(2, tmp_path)).archive, Log(quiet=True))
    writer.take(rows(1, 2))
    writer.seal(T0)
    assert writer.take_counts() == {"lost_samples": 2}


def test_a_full_disk_is_left_no_part_of_a_file(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 200) as disk:
        ballast = fill_up(disk)
        writer = Samples(disk / "0", parse_cluster(trace_scene.config(2, tmp_path)).archive, Log(quiet=True))
        for moment in range(3):
            # Somebody else's room, that comes back and goes.
            os.truncate(ballast, ballast.stat().st_size - 16_384)
            writer.take(rows(*range(moment, moment + 50_000)))
            writer.seal(T0)
        assert writer.take_counts() == {"lost_samples": 150_000}
        assert [path for path in disk.rglob("*") if path.is_file()] == [ballast]
