"""Incast against what storage takes in every day."""

import numpy as np
import pytest

from analysis.baseline import Floats
from analysis.detectors.storage.incast import (
    LATELY,
    IncastPolicy,
    running,
    shares_of,
    sources_of,
    standing_out,
    usual_shares,
)

GB = 1e9
POLICY = IncastPolicy(sources=8, share=0.5, least=5 * GB, window=10)


def out(into: list[float], before: list[float] | None = None) -> list[int]:
    """Which endpoints stand out in a window, after an hour of such bytes."""
    bytes_before = np.zeros(len(into)) if before is None else np.array(before)
    usual = usual_shares(bytes_before, POLICY)
    return np.flatnonzero(standing_out(np.array([into]), usual[None, :], POLICY)[0]).tolist()


@pytest.mark.parametrize(
    ("into", "before", "expected"),
    [
        # A checkpoint: everybody to all endpoints, however large.
        ([5 * GB] * 4, None, []),
        ([500 * GB] * 16, [GB] * 16, []),
        # Nearly everything to one, its peers idle.
        ([10 * GB, 0, 0, 0], None, [0]),
        ([10 * GB, GB, GB, GB], None, [0]),
        # Twice its share is no incast.
        ([2 * GB, GB, GB, GB], None, []),
        # It is always so: the first endpoint holds the logs, say.
        ([10 * GB, GB, GB, GB], [900 * GB, 30 * GB, 40 * GB, 30 * GB], []),
        # What little was written in a quiet hour is no habit.
        ([10 * GB, 0, 0, 0], [GB / 10, 0, 0, 0], [0]),
        # Two of sixteen; five of sixteen are no longer few.
        ([10 * GB] * 2 + [0] * 14, None, [0, 1]),
        ([10 * GB] * 5 + [0] * 11, None, []),
        ([10 * GB] * 4 + [8 * GB] + [0] * 11, None, []),
        ([10 * GB] * 4 + [0] * 12, None, [0, 1, 2, 3]),
        # The one that gets all is not joined by a neighbour that gets a little.
        ([20 * GB, GB] + [0] * 14, None, [0]),
        # Two endpoints: half is usual, three quarters is the line.
        ([7 * GB, 3 * GB], None, []),
        ([8 * GB, 2 * GB], None, [0]),
        # A trickle; and an endpoint without peers.
        ([GB / 100, 0, 0, 0], None, []),
        ([100 * GB], None, []),
        ([0, 0, 0, 0], None, []),
    ],
)
def test_which_endpoints_stand_out(into: list[float], before: list[float] | None, expected: list[int]) -> None:
    assert out(into, before) == expected


def test_shares_add_up_to_one() -> None:
    usual = usual_shares(np.array([[GB, 2 * GB, 0], [0, 0, 0]]), POLICY)
    assert usual.sum(axis=1) == pytest.approx([1, 1])
    assert usual[1] == pytest.approx([1 / 3] * 3)
    assert shares_of(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist() == [[0.25, 0.75], [0, 0]]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [([], 0), ([0, 0], 0), ([5.0] * 12, 12), ([5.0] * 12 + [0.1] * 500, 12), ([100.0] + [1.0] * 11, 1)],
)
def test_who_takes_part(sent: list[float], expected: int) -> None:
    assert sources_of(np.array(sent, np.float64)) == expected


def test_a_burst_is_followed_back_no_further_than_anybody_would() -> None:
    windows = LATELY // POLICY.window + 10
    flags = np.ones(windows, np.bool_)
    flags[3] = False
    into: Floats = np.full(windows, GB)
    seconds, brought = running(flags, into, POLICY)
    assert seconds[:6].tolist() == [10, 20, 30, 0, 10, 20]
    assert brought[:6].tolist() == [GB, 2 * GB, 3 * GB, 0, GB, 2 * GB]
    assert (seconds[-1], brought[-1]) == (LATELY, LATELY / 10 * GB)
    # Begun later, it says the same of the windows that both see in full.
    later = running(flags[5:], into[5:], POLICY)
    assert later[0][-1] == seconds[-1]
