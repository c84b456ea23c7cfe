"""What a reader makes of the store's answers, and what it asks."""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

import numpy as np
import polars as pl
import pytest

from analysis.bins import Source, binned
from analysis.detectors.study import JobWindows
from analysis.window_reader import WindowReader, Windows, sees_seconds
from cluster.model import Cluster, Exporter, ExportProtocol, Group, Job, Role, StoreSettings
from store import schema
from store.influx import ROWS, Numbers, Store
from store.influxql import Select
from store.local_influxdb import LocalInfluxDB

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
        values = [times, np.full(len(times), 5e9), self._rates.ravel(), np.zeros(len(times))]
        return Numbers(tags, columns, np.stack(values, axis=1))


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


# -- live rounds ---------------------------------------------------------------------------------------


class Bridge:
    """Writes totals of windows as a bridge does: those of nodes first, then what exporters told."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store, self.rng = store, np.random.default_rng(seed)
        self._sent: dict[tuple[str, int], int] = {}
        self._suppressed: dict[int, int] = {}

    def write_nodes(self, window: int) -> None:
        """Add to what some nodes exchanged with both groups."""
        for node in self.rng.choice(["n1", "n2", "n3", "n4"], 2, replace=False):
            self._sent[node, window] = self._sent.get((node, window), 0) + int(self.rng.integers(1, 1 << 40))
        lines = [
            f"node_traffic,node={node},group=training,peer_group={peer},plane=compute,shard=0 "
            f"tx_bytes={size}i,rx_bytes={size // 3}i,tx_packets={size // 900}i,rx_packets={size // 800}i {window}"
            for (node, at), size in self._sent.items()
            for peer in ("training", "storage")
            if at == window
        ]
        total = self._total(window)
        lines.append(f"traffic,src_group=other,dst_group=storage,proto=tcp,shard=0 bytes={total}i {window}")
        self._store.write("\n".join(lines).encode(), schema.RAW)

    def tell(self, window: int, *, suppressed: int = 0) -> None:
        """Write what the exporter sent for a window, and that so much more of it does not count."""
        self._suppressed[window] = self._suppressed.get(window, 0) + suppressed
        rate = 1000 if window % 70 == 0 else 1
        line = f"exporter,exporter=leaf-{1 + window % 20 // 10},shard=0 bytes={self._total(window)}i,sampling={rate}i"
        self._store.write(f"{line},suppressed_bytes={self._suppressed[window]}i {window}".encode(), schema.RAW)

    def _total(self, window: int) -> int:
        return sum(size for (_, at), size in self._sent.items() if at == window)


class Counting(WindowReader):
    """A reader that counts the windows of nodes that it asks for."""

    windows = 0

    def _nodes(self, *asked: Any) -> Any:
        self.windows += (asked[-1] - asked[-2]) // self.window
        return super()._nodes(*asked)


@pytest.mark.service
def test_live_rounds_know_all_windows_and_read_few(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    cluster = replace(CLUSTER, store=StoreSettings(url=influxdb_v1.url, database=fresh_database))
    job = replace(JOB, nodes=("n1", "n2", "n3", "n4", "n5"))
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    bridge, reader = Bridge(store, 4), Counting(store, cluster)
    start = int(time.time()) // 10 * 10 - 3000

    def round_of(number: int) -> tuple[Windows, int, int]:
        """Close one more window and look; return what was read, from when, and up to when it is settled."""
        stop = start + number * 10 + 10
        bridge.write_nodes(stop - 10)
        bridge.tell(stop - 10)
        position, settled = max(stop - 310, start), max(stop - 300, start)
        return reader.begin(position, stop, settled=settled), position, settled

    def same(found: Windows, position: int, until: int) -> None:
        """The windows before `until` are those of a reader that reads them all."""
        whole = WindowReader(store, cluster).begin(position, found.stop)
        assert_same(found.of(job, position, until), whole.of(job, position, until))

    for number in range(60):
        if number % 7 == 3:
            late = start + 10 * int(bridge.rng.integers(max(number - 29, 0), number))
            bridge.write_nodes(late)
            bridge.tell(late, suppressed=1000 * (number % 2))
        found, position, _ = round_of(number)
        same(found, position, found.stop)
    assert reader.windows < 60 * 2 * 12

    # A round that comes between what is told and what is meant by it: the next one knows.
    late = start + 450
    bridge.tell(late, suppressed=1)
    found, position, _ = round_of(60)
    same(found, position, found.stop)
    bridge.write_nodes(late)
    found, position, _ = round_of(61)
    same(found, position, found.stop)
    # What nobody told of is known when it is settled.
    bridge.write_nodes(late)
    for number in range(62, 76):
        found, position, settled = round_of(number)
        same(found, position, min(settled, late))
    same(found, position, late + 10)


def assert_same(one: JobWindows, other: JobWindows) -> None:
    for name in ("sent", "packets", "written", "read", "heard", "rates", "competing", "storage_heard"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
