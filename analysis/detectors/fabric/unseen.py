"""Bytes that interface counters saw and flow records did not: export stopped, or was stopped, while traffic went on.

Counters count whole frames, both ways of what is told only once, and what is never exported, so flows never reach all
of them. What share they usually reach is learnt for each interface: the upper quartile of the last day's hours, which a
silence of up to 18 hours does not lower. In bins of five minutes,

    expected = share * counter bytes        missing = expected - flow bytes, over the newest bins in a row in which an
                                            exporter's flows are less than half of what is expected

Only interfaces whose counters come (sFlow), of which flows are usually half, and whose last day has six busy hours.
"""

import numpy as np

from analysis.baseline import Floats

LEAST_HOUR = 10_000_000
"""Counter bytes of an hour below which its share says nothing."""
MIN_HOURS = 6
_LEAST_SHARE = 0.5
_QUIET = 0.5
"""Flows below this part of what is expected are missing, and not noise of sampling."""


def usual_share(flows: Floats, counters: Floats) -> Floats:
    """Return [interface] which share of counter bytes flows reach; 0 where that is not known or too little.

    Args:
        flows: [hour, interface] bytes of earlier whole hours.
        counters: the same, as the interfaces count.
    """
    is_busy = counters >= LEAST_HOUR
    shares = np.where(is_busy, flows / np.maximum(counters, 1), np.nan)
    found = np.zeros(flows.shape[1])
    for place in np.flatnonzero(is_busy.sum(axis=0) >= MIN_HOURS):
        found[place] = min(float(np.nanquantile(shares[:, place], 0.75)), 1.0)
    return np.where(found >= _LEAST_SHARE, found, 0.0)


def missing(flows: Floats, counters: Floats, share: Floats) -> tuple[float, int]:
    """Return the bytes that are missing of one exporter, and in how many of the newest bins.

    Args:
        flows: [bin, interface] bytes, the newest bin last.
        counters: the same, as the interfaces count.
        share: [interface], as usual.
    """
    is_known = share > 0
    expected = (counters * share).sum(axis=1)
    seen = flows[:, is_known].sum(axis=1)
    is_short = (seen < _QUIET * expected) & (expected > 0)
    length = int(np.argmin(np.append(is_short[::-1], [False])))
    if not length:
        return 0.0, 0
    return float((expected - seen)[-length:].sum()), length
