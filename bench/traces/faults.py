"""What goes wrong with a played job, laid over the trace."""

from dataclasses import dataclass
from enum import StrEnum

from app.errors import UserError
from bench.traces.layout import Layout


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
        worker: of SLOW and HANG; of the rail's faults, one on its host.
        rail: of HALF_LINK and DEAD_RAIL, the number within the worker's host.
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

    def checked(self, layout: Layout) -> "Fault":
        """Return it; UserError where the job has no such worker or rail, or none to take over from a dead rail."""
        if not 0 <= self.worker < len(layout.host):
            raise UserError(f"worker {self.worker}: no such one", f"there are {len(layout.host)}, from 0 on")
        if not 0 <= self.rail < layout.rails:
            raise UserError(f"rail {self.rail}: no such one", f"there are {layout.rails}, from 0 on")
        if self.kind is FaultKind.DEAD_RAIL and layout.rails < 2:
            raise UserError("dead_rail: the hosts have one rail", "at least two: another one takes the bytes")
        return self
