"""Rates at the edges of a range: over all of a bin, the sum of a part of it looks like a drop."""

import time
from pathlib import Path

import pytest
from board_store import expand

from cluster.load import load_cluster
from store import schema
from store.influx import Store
from store.influxql import Select, bit_rate

CLUSTER = load_cluster(Path("cluster.yaml"))
RATE = 8_000


@pytest.mark.parametrize(("span", "bin_seconds"), [(3600, 60), (5000, 600), (6 * 3600, 3600)])
def test_a_steady_rate_is_level_from_edge_to_edge(store: Store, span: int, bin_seconds: int) -> None:
    end = int(time.time()) - 3600 + 17
    lines = [f"traffic,src_group=a,dst_group=b,shard=0 bytes={RATE * 60 // 8}i {moment}"
             for moment in range((end - span) // 60 * 60 - 120, end + 120, 60)]  # fmt: skip
    store.write("\n".join(lines).encode(), schema.MINUTE)
    query = Select(schema.TRAFFIC, schema.MINUTE).take(bit_rate(schema.BYTES)).over_time(CLUSTER)
    text = expand(query.text, start=end - span, end=end, minimum="", variables={}, points=span // bin_seconds)
    (series,) = store.query(text)
    rates = [rate for _, rate in series.values if rate is not None]
    assert rates == pytest.approx([RATE] * len(rates))
    # Longer bins may be settled later than the range ends.
    assert len(rates) >= span // bin_seconds - (1 if bin_seconds == 60 else 2)
