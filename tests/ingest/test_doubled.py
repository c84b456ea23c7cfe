"""Exporters whose records come twice are told from those whose records only look alike."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
import pytest

from ingest.count.doubled import DoubledExporters
from ingest.flows.text_numbers import Vocabulary
from ingest.read.records import RECORD_SCHEMA, SFLOW

EXPORTER = "10.0.0.1"
Record = tuple[int, int, int]
"""Source port, bytes, sequence number."""

RANDOM = np.random.default_rng(5)


def batch(records: Sequence[Record], second: int, *, version: int = 9, exporter: str = EXPORTER) -> pl.DataFrame:
    """Return records that arrived together."""
    values = {"exporter": exporter, "src": "10.1.0.1", "dst": "10.1.0.2", "arrival": second * 1000, "version": version}
    told = {name: [one[place] for one in records] for place, name in enumerate(("src_port", "bytes", "seq"))}
    return pl.DataFrame({"seq": told["seq"]}).select(
        pl.Series(name, told[name], dtype) if name in told else pl.lit(values.get(name, 0)).cast(dtype).alias(name)
        for name, dtype in RECORD_SCHEMA.items()
    )


def flows(seq: int, count: int = 24) -> list[Record]:
    """Return conversations of a datagram, each with bytes of its own."""
    return [(1024 + (seq * count + i) % 60_000, 1000 + i, seq) for i in range(count)]


def samples(seq: int, elephants: int) -> list[Record]:
    """Return sampled packets of a few large flows."""
    return [(int(flow), 1500, seq) for flow in RANDOM.integers(0, elephants, 8)]


def take(exporters: DoubledExporters, frame: pl.DataFrame) -> None:
    exporters.take(frame, Vocabulary().words(frame.get_column("exporter")))


@pytest.mark.parametrize(
    ("version", "made", "is_doubled"),
    [
        pytest.param(9, lambda at: flows(at) * 2, True, id="a datagram comes twice"),
        pytest.param(10, lambda at: flows(at) + [(*one, at + 24) for *one, _ in flows(at)], True, id="in and out"),
        pytest.param(9, lambda at: (flows(at) + flows(at)) * 100, False, id="a storm of the same is something else"),
        pytest.param(9, flows, False, id="once"),
        pytest.param(9, lambda _: flows(0), False, id="keepalives, the same each time"),
        pytest.param(9, lambda at: samples(at, 5), False, id="NetFlow without a cache"),
        pytest.param(SFLOW, lambda at: samples(at, 20) * 2, True, id="sFlow twice"),
        pytest.param(SFLOW, lambda at: samples(at, 1), False, id="sFlow of one large flow"),
        pytest.param(SFLOW, lambda at: samples(at, 3), False, id="sFlow of three large flows"),
        pytest.param(SFLOW, lambda at: [*samples(at, 20), *samples(at + 1, 20)], False, id="sFlow once"),
    ],
)
def test_who_sends_twice_is_told(version: int, made: Callable[[int], list[Record]], *, is_doubled: bool) -> None:
    exporters = DoubledExporters()
    for at in range(0, 60, 2):
        take(exporters, batch(made(at), at, version=version))
    assert exporters.told() == ({EXPORTER} if is_doubled else set())


def test_it_is_seen_in_a_crowd_and_over_once_it_is_mended() -> None:
    exporters = DoubledExporters()
    crowd = [batch(flows(at, 2000), 0, exporter=f"10.0.0.{at}") for at in range(2, 12)]
    for _ in range(30):
        take(exporters, pl.concat([*crowd, batch(flows(0, 500) * 2, 0)]))
    assert exporters.told() == {EXPORTER}
    for at in range(100, 160, 2):
        take(exporters, batch(flows(at), at))
    assert exporters.told() == set()
