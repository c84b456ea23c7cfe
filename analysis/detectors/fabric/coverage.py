"""What flow records see of each group pair, against the transport that cluster.yaml declares.

The state of a pair follows from an hour's bytes:

- declared tcp: nothing seen; not as declared, where most of it is RoCEv2 (UDP/4791); else as declared.
- declared roce: as declared where RoCEv2 was seen; not as declared where other traffic of 1 GB or more was seen and no
  RoCEv2, as when a collective library falls back to sockets; else invisible.
- declared roce-sampled: not as declared in the same case; nothing seen where there was nothing; else as declared.
- declared infiniband: not as declared where 1 GB or more was seen over IP; else invisible.

What is seen can still be a part of what there is. A pair is partly seen where all its bytes come from exporters whose
flows do not count, or where the flow records of the plane that it uses add up to less than half of what the
interfaces' own counters say (sFlow): records are lost, sampled at another rate than believed, or not exported for some
traffic. Counters know neither groups nor protocols, so this is said of a plane's pairs all together.
"""

from dataclasses import dataclass

from cluster.model import Transport
from store.schema import CoverageState

LEAST_BYTES = 1_000_000_000
"""Bytes an hour below which traffic of an invisible transport is its set-up, and below which counters say nothing."""

LEAST_SHARE = 0.5
"""Share of the counters' bytes that flow records must reach: the headers that only counters count (small packets), the
error of sampling and the edges of the hour stay well above it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What an hour held of a pair: bytes counted once, of these RoCEv2, and bytes that only uncounted exporters saw.

    Attributes:
        share: flow bytes over counter bytes on its main plane; None without counters.
    """

    bytes: int
    roce: int
    uncounted: int
    share: float | None = None


def state_of(declared: Transport, seen: Seen) -> int:
    """Return one of the values of CoverageState."""
    others = seen.bytes - seen.roce
    match declared:
        case Transport.TCP:
            state = CoverageState.UNDECLARED if seen.roce > others else CoverageState.SEEN
        case Transport.ROCE if seen.roce:
            state = CoverageState.SEEN
        case Transport.ROCE_SAMPLED:
            fell_back = not seen.roce and others >= LEAST_BYTES
            state = CoverageState.UNDECLARED if fell_back else CoverageState.SEEN
        case Transport.ROCE:
            return CoverageState.UNDECLARED if others >= LEAST_BYTES else CoverageState.INVISIBLE
        case Transport.INFINIBAND:
            return CoverageState.UNDECLARED if seen.bytes >= LEAST_BYTES else CoverageState.INVISIBLE
    if not seen.bytes:
        return CoverageState.PARTIAL if seen.uncounted else CoverageState.IDLE
    if state == CoverageState.SEEN and seen.share is not None and seen.share < LEAST_SHARE:
        return CoverageState.PARTIAL
    return state
