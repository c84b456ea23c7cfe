"""What goes wrong with a played job, laid over the trace."""

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """Names of faults."""

    SLOW = "slow"  # one worker computes longer
    HALF_LINK = "half_link"  # one rail of one host at half rate
    DEAD_RAIL = "dead_rail"  # one rail of one host: its bytes take the host's other rails
    PAUSE = "pause"  # nobody computes for a while
    HANG = "hang"  # one worker never goes on


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        kind: what.
        begin, end: seconds since the job's begin; a pause begins with the step in which `begin` lies.
        worker: all but PAUSE.
        rail: of HALF_LINK and DEAD_RAIL.
        share: of SLOW, how much longer it computes: 0.1 is 10 %.
        seconds: of PAUSE.
    """

    kind: FaultKind
    begin: float = 0.0
    end: float = float("inf")
    worker: int = 0
    rail: int = 0
    share: float = 0.0
    seconds: float = 10.0
