"""What an hour's bytes say of a group pair."""

import pytest

from analysis.detectors.fabric.coverage import Seen, state_of
from cluster.model import Transport
from store.schema import CoverageState as State

GB = 1_000_000_000
TCP, ROCE, SAMPLED, IB = Transport.TCP, Transport.ROCE, Transport.ROCE_SAMPLED, Transport.INFINIBAND


@pytest.mark.parametrize(
    ("declared", "seen", "state"),
    [
        (TCP, Seen(0, 0, 0), State.IDLE),
        (TCP, Seen(1, 0, 0), State.SEEN),
        (TCP, Seen(10 * GB, 4 * GB, 0), State.SEEN),  # RDMA storage beside it
        (TCP, Seen(10 * GB, 6 * GB, 0), State.UNDECLARED),
        (TCP, Seen(0, 0, 5 * GB), State.PARTIAL),  # only a spine that does not count saw it
        (TCP, Seen(10 * GB, 0, 0, 0.49), State.PARTIAL),
        (TCP, Seen(10 * GB, 0, 0, 0.5), State.SEEN),
        (TCP, Seen(10 * GB, 0, 0, 1.3), State.SEEN),  # sampling estimates, it may overshoot
        (TCP, Seen(10 * GB, 6 * GB, 0, 0.1), State.UNDECLARED),  # the worse word
        (ROCE, Seen(0, 0, 0), State.INVISIBLE),
        (ROCE, Seen(GB - 1, 0, 0), State.INVISIBLE),  # its set-up over TCP
        (ROCE, Seen(GB, 0, 0), State.UNDECLARED),  # fell back to sockets
        (ROCE, Seen(100 * GB, 99 * GB, 0), State.SEEN),  # a top-of-rack switch's sFlow shows it
        (ROCE, Seen(100 * GB, 99 * GB, 0, 0.2), State.PARTIAL),
        (SAMPLED, Seen(0, 0, 0), State.IDLE),
        (SAMPLED, Seen(GB - 1, 0, 0), State.SEEN),
        (SAMPLED, Seen(GB, 0, 0), State.UNDECLARED),
        (SAMPLED, Seen(100 * GB, 99 * GB, 0), State.SEEN),
        (SAMPLED, Seen(100 * GB, 99 * GB, 0, 0.2), State.PARTIAL),
        (IB, Seen(0, 0, 0), State.INVISIBLE),
        (IB, Seen(GB - 1, 0, 0), State.INVISIBLE),
        (IB, Seen(GB, 0, 0), State.UNDECLARED),
        (IB, Seen(GB, GB, 0), State.UNDECLARED),
        (IB, Seen(0, 0, 9 * GB), State.INVISIBLE),
    ],
)
def test_state(declared: Transport, seen: Seen, state: int) -> None:
    assert state_of(declared, seen) == state
