"""What a reader makes of the store's answers, and what it asks."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address

import numpy as np
import polars as pl
import pytest

from analysis.bins import Source, binned
from analysis.window_reader import WindowReader, sees_seconds
from cluster.model import Cluster, Exporter, ExportProtocol, Group, Job, Role, StoreSettings
from store import schema
from store.influx import ROWS, Numbers, Store
from store.influxql import Select

T0 = 1_760_000_000
CLUSTER = Cluster(
    "windows",
    (Group("training", "Training", Role.TRAINING), Group("storage", "Storage", Role.STORAGE)),
    exporters=(Exporter("leaf-1", ip_address("192.0.2.1")), Exporter("leaf-2", ip_address("192.0.2.2"))),
)
JOB = Job("a", "llm", ("n1", "n2"), datetime.fromtimestamp(T0, UTC))


class Answering(WindowReader):
    """A reader whose store knows the exporters of ten windows, and nothing of nodes."""

    def __init__(self, cluster: Cluster, rates: Sequence[Sequence[float]]) -> None:
        super().__init__(Store(StoreSettings()), cluster)
        self._rates, self.asked, self.fields = np.array(rates, np.float64), list[str](), list[str]()

    def _numbers(self, asked: Select) -> Numbers:
        self.asked.append(asked.text())
        names = [column.name for column in asked.columns]
        self.fields += names
        columns = ("time", *names)
        if asked.measurement is not schema.EXPORTER_STATUS:
            tags = dict.fromkeys(asked.tags, pl.String)
            return Numbers(pl.DataFrame(schema={**tags, ROWS: pl.Int64}), columns, np.zeros((0, 3)))
        count, windows = self._rates.shape
        tags = pl.DataFrame({schema.EXPORTER: ["leaf-1", "leaf-2"][:count], ROWS: [windows] * count})
        times = np.tile((T0 + np.arange(windows) * 10) * 1000.0, count)
        return Numbers(tags, columns, np.stack([times, np.full(len(times), 5e9), self._rates.ravel()], axis=1))


@pytest.fixture
def reader() -> Answering:
    return Answering(CLUSTER, [[1] * 10, [1] * 5 + [1000] * 3 + [np.nan] * 2])


def test_each_window_has_the_rate_of_its_own(reader: Answering) -> None:
    whole = reader.begin(T0, T0 + 100, JOB.nodes)
    assert whole.of(JOB, T0, T0 + 100).rates.tolist() == [1.0] * 5 + [1000.0] * 3 + [1.0] * 2
    assert whole.of(JOB, T0 + 40, T0 + 60).rates.tolist() == [1.0, 1000.0]
    assert whole.of(JOB, T0, T0 + 50).rates.max() == 1.0
    assert whole.of(JOB, T0 + 80, T0 + 80).rates.tolist() == []
    assert whole.of(JOB, T0, T0 + 100).heard.shape == (10, 2)


def test_a_replay_reads_packets_only_where_somebody_samples(reader: Answering) -> None:
    reader.begin(T0, T0 + 100, JOB.nodes).of(JOB, T0, T0 + 100)
    assert schema.TX_PACKETS.name in reader.fields
    whole = Answering(CLUSTER, np.ones((2, 10)))
    assert not whole.begin(T0, T0 + 100, JOB.nodes).of(JOB, T0, T0 + 100).packets.any()
    assert schema.TX_PACKETS.name not in whole.fields


def test_without_exporters_rates_are_one() -> None:
    nobody = Answering(replace(CLUSTER, exporters=()), np.ones((0, 10)))
    assert nobody.begin(T0, T0 + 100, JOB.nodes).of(JOB, T0, T0 + 30).rates.tolist() == [1.0] * 3


def test_seconds_of_large_jobs_are_asked_for_once(reader: Answering) -> None:
    large = tuple(f"n{number}" for number in range(101))
    for start in (T0, T0, T0 + 900):
        for nodes in (large, large[::-1], large[:100]):
            assert reader.pulse(nodes, start, start + 60).shape == (60, len(nodes))
    # All nodes of the cluster at two times; each small job for itself.
    assert [text.count("n99") for text in reader.asked] == [0, 1, 1, 0, 1]


def test_every_question_escapes_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    quoted = Answering(replace(CLUSTER, groups=(*CLUSTER.groups, Group("o'b", "O", Role.STORAGE))), np.ones((2, 10)))
    quoted.begin(T0, T0 + 100, ("n'1",)).of(replace(JOB, nodes=("n'1",)), T0, T0 + 100)
    asked = " ".join(quoted.asked)
    assert "= 'n\\'1'" in asked
    assert "= 'o\\'b'" in asked
    assert "!= 'o\\'b'" in asked
    texts: list[str] = []

    def numbers(_: Store, asked: Select) -> Numbers:
        texts.append(asked.text())
        tags = dict.fromkeys(asked.tags, pl.String)
        return Numbers(pl.DataFrame(schema={**tags, ROWS: pl.Int64}), ("time", "rx_bytes"), np.zeros((0, 2)))

    monkeypatch.setattr(Store, "numbers", numbers)
    source = Source(schema.NODE_TRAFFIC, schema.RAW, (schema.NODE,), (schema.GROUP, ("o'b",)))
    binned(Store(StoreSettings()), source, (schema.RX_BYTES,), T0, T0 + 60, seconds=60)
    assert "= 'o\\'b'" in texts[0]


@pytest.mark.parametrize(
    ("exporter", "seen"),
    [
        (Exporter("a", ip_address("192.0.2.3"), ExportProtocol.SFLOW), True),
        (Exporter("a", ip_address("192.0.2.3"), ExportProtocol.SFLOW, counts=False), False),
        (Exporter("a", ip_address("192.0.2.3")), False),
    ],
)
def test_only_samples_that_count_are_kept_by_the_second(exporter: Exporter, *, seen: bool) -> None:
    assert sees_seconds(replace(CLUSTER, exporters=(*CLUSTER.exporters, exporter))) is seen
