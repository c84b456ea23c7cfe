"""What ``clusterflow status`` makes of counters that several bridges, or partitions of a topic, write."""

from operations.status.status import _of_all
from store import schema


def test_amounts_add_up_and_of_moments_the_latest_counts() -> None:
    said = {
        ("bridge", schema.HEARTBEAT, "k0"): 1_790_000_000.0,
        ("bridge", schema.HEARTBEAT, "k1"): 1_790_000_008.0,
        ("bridge", schema.LAG_SECONDS, "k0"): 3.0,
        ("bridge", schema.LAG_SECONDS, "k1"): 40.0,
        ("read", "records", "k0"): 5.0,
        ("read", "records", "k1"): 7.0,
    }
    assert dict(_of_all(said)) == {
        ("bridge", schema.HEARTBEAT): 1_790_000_008.0,
        ("bridge", schema.LAG_SECONDS): 40.0,
        ("read", "records"): 12.0,
    }
