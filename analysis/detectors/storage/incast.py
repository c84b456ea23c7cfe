"""Incast: many nodes write to one storage endpoint, or a few, while its peers idle.

A checkpoint is not one: all endpoints get their usual shares of it, however large it is. What counts is the share
beyond the usual: of the bytes that usually go elsewhere, how much goes to these few now. The usual share is that of the
hour before the last ten minutes, so that a burst does not make itself usual; an even share counts in with as much
weight as a burst needs bytes, for an hour in which next to nothing was written says little.

    excess(few) = (sum share - sum usual) / (1 - sum usual)

Everything is a function of windows of a fixed reach, so that whoever judges a window finds the same.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analysis.baseline import Floats

Flags = npt.NDArray[np.bool_]

LATELY = 600
"""Seconds: a burst is followed back so far at most, and the usual shares are those of the time before."""

BEFORE = 3_600
"""Seconds of usual shares."""

_FEW = 4
"""At most one endpoint of so many (one, of fewer) is a burst's destination; more of them is what storage is for."""

_LIKE = 0.5
"""An endpoint that gains this part of what the first one gains is one of them; where they are not few, none is."""

_GAIN = 0.25
"""Where nearly everything goes to an endpoint as it is, the little more is none: so much of all bytes it must be."""

_TAKES_PART = 0.1
"""A node whose bytes are less than this part of the largest node's only acknowledges, or does its own things."""


@dataclass(frozen=True, slots=True)
class IncastPolicy:
    """When it is incast.

    Attributes:
        sources: nodes that take part.
        share: excess, see the module.
        least: bytes that a burst must bring.
        window: seconds.
    """

    sources: int
    share: float
    least: float
    window: int


def usual_shares(before: Floats, policy: IncastPolicy) -> Floats:
    """Return each endpoint's usual share of its group's bytes; the last axis is the endpoint.

    Args:
        before: bytes of the hour.
        policy: see there.
    """
    endpoints = before.shape[-1]
    return np.asarray(
        (before + policy.least / endpoints) / (before.sum(axis=-1, keepdims=True) + policy.least), np.float64
    )


def shares_of(into: Floats) -> Floats:
    """Return [window, endpoint] each endpoint's share of a window's bytes; 0 where there are none."""
    total = into.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(into, total, out=np.zeros(into.shape), where=total > 0), np.float64)


def standing_out(into: Floats, usual: Floats, policy: IncastPolicy) -> Flags:
    """Return [window, endpoint] whether an endpoint is one of the few that get what usually goes to the others.

    Args:
        into: [window, endpoint] bytes.
        usual: [window, endpoint] usual shares.
        policy: see there.
    """
    endpoints = into.shape[1]
    shares = shares_of(into)
    beyond = shares - usual
    order = np.argsort(-beyond, axis=1, kind="stable")
    few = max(endpoints // _FEW, 1)
    gained = np.cumsum(np.take_along_axis(beyond, order, axis=1)[:, :few], axis=1)
    elsewhere = 1 - np.cumsum(np.take_along_axis(usual, order, axis=1)[:, :few], axis=1)
    excess = gained / np.maximum(elsewhere, 1e-9)
    most = np.take_along_axis(beyond, order[:, :1], axis=1)
    alike = (beyond >= _LIKE * most) & (beyond > 0)
    are_few = alike.sum(axis=1, keepdims=True) <= few
    enough = (excess >= policy.share) & (gained >= _GAIN) & are_few
    # The fewest that explain it, and their like: one that gets all is not joined by its innocent neighbour.
    count = np.where(enough.any(axis=1), np.argmax(enough, axis=1) + 1, 0)
    rank = np.argsort(order, axis=1, kind="stable")
    # A trickle is no burst: at this rate it would not bring the least within its reach.
    flows = into >= policy.least * policy.window / LATELY
    # With one endpoint there are no peers that could idle.
    is_one = ((rank < count[:, None]) | (alike & (count[:, None] > 0))) & (beyond > 0)
    return np.asarray(is_one & flows & (endpoints > 1), np.bool_)


def sources_of(sent: Floats) -> int:
    """Return how many nodes take part in what an endpoint got from each."""
    return int((sent >= _TAKES_PART * sent.max()).sum()) if len(sent) and sent.max() > 0 else 0


def running(flags: Flags, into: Floats, policy: IncastPolicy) -> tuple[Floats, Floats]:
    """Return [window] seconds and bytes of the burst so far, for each window of one endpoint; 0 outside of bursts.

    Args:
        flags: [window] whether the window is part of a burst. Windows before the first that counts let a burst be
            followed back.
        into: [window] bytes.
        policy: see there.
    """
    most = LATELY // policy.window
    length = np.zeros(len(flags), np.int64)
    for place, is_part in enumerate(flags.tolist()):
        length[place] = length[place - 1] + 1 if place and is_part else int(is_part)
    length = np.minimum(length, most)
    total = np.concatenate([[0.0], np.cumsum(into)])
    ends = np.arange(len(flags)) + 1
    brought = np.asarray(total[ends] - total[ends - length], np.float64)
    return np.asarray(length * policy.window, np.float64), brought
