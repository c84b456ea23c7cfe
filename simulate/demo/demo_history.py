"""What went wrong before the demo begins: over and done, but on the boards, as in a cluster that has been running."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from app.errors import UserError
from cluster.model import Role
from simulate.incidents.incident import Incident, IncidentKind, Transfer
from simulate.incidents.stage import Stage
from simulate.incidents.staging_egress import approved_transfer, first_contact, known_bad
from simulate.incidents.staging_inside import (
    forbidden_transfer,
    incast,
    inference_intruder,
    management_intruder,
    shadow_node,
    storage_bleed,
    unusual_country,
)
from simulate.incidents.staging_jobs import (
    checkpoint_late,
    checkpoint_short,
    cohort_slowdown,
    job_stalled,
    node_dropout,
    rack_down,
)

LIVE_RUN = 2 * 3600
"""Seconds before the end of history at which the job begins that still runs in the live phase."""
RUN_SECONDS = 40 * 60
RUNS_BEFORE = (4 * 3600 + 1800, 12 * 3600 + 1800, 20 * 3600 + 1800)
"""Seconds before the end of each day of history at which its runs begin."""
CHECKPOINT_SECONDS = 600
"""From checkpoint to checkpoint."""

_MINUTE, _HOUR = 60, 3600
_MIRROR_EVERY, _MIRROR_SECONDS, _MIRROR_BYTES = 300, 20, 40_000_000
_STRANGERS = 70
"""The first addresses outside that nobody meets live; their networks are others, too, so that those stay new."""


@dataclass(frozen=True, slots=True)
class _Past:
    """Something that happened: so many seconds before the end of history, for so long."""

    before: int
    seconds: int
    make: Callable[..., Incident]


# The last hour holds one of each that boards show over an hour. It is all over before the 15 minutes that rules look
# back.
_PAST = (
    _Past(20 * _HOUR + 15 * _MINUTE, 5 * _MINUTE, cohort_slowdown),
    _Past(19 * _HOUR, 30, forbidden_transfer),
    _Past(16 * _HOUR, 10, first_contact),
    _Past(14 * _HOUR, 30, shadow_node),
    _Past(12 * _HOUR + 15 * _MINUTE, 3 * _MINUTE, rack_down),
    _Past(11 * _HOUR, 20, known_bad),
    _Past(9 * _HOUR, 10, first_contact),
    _Past(7 * _HOUR, 30, management_intruder),
    _Past(4 * _HOUR + 15 * _MINUTE, 4 * _MINUTE, job_stalled),
    _Past(100 * _MINUTE, CHECKPOINT_SECONDS, checkpoint_short),
    _Past(58 * _MINUTE, 6 * _MINUTE, node_dropout),
    _Past(50 * _MINUTE, CHECKPOINT_SECONDS, checkpoint_late),
    _Past(47 * _MINUTE, 10, first_contact),
    _Past(44 * _MINUTE, 30, forbidden_transfer),
    _Past(41 * _MINUTE, 30, shadow_node),
    _Past(38 * _MINUTE, 30, storage_bleed),
    _Past(35 * _MINUTE, 20, known_bad),
    _Past(32 * _MINUTE, 30, management_intruder),
    _Past(29 * _MINUTE, 30, inference_intruder),
    _Past(26 * _MINUTE, 30, unusual_country),
    _Past(23 * _MINUTE, 30, incast),
)

_DETAILS: dict[Callable[..., Incident], dict[str, object]] = {
    # Another node than those that are low live, and late enough to be late, but not missed.
    node_dropout: {"position": 0.6},
    checkpoint_late: {"seconds": 200},
    known_bad: {"volume": 3_000_000_000},
}


def past_incidents(stage: Stage, end: int) -> Iterator[Incident]:
    """Yield what happened before `end` (epoch seconds); what the cluster has no nodes for did not.

    They owe no alert: nobody looked then.
    """
    for number, one in enumerate(_PAST):
        start = end - one.before
        place = replace(stage, number=_STRANGERS + number)
        with suppress(UserError):
            incident = one.make(place, start, start + one.seconds, **_DETAILS.get(one.make, {}))
            yield replace(incident, id=f"{incident.id}-{one.before // _MINUTE}m-before", alerts=())
    business = stage.business_hours()
    if business is not None:
        yield approved_transfer(stage, *business)


def mirror(stage: Stage, start: int, end: int) -> Incident:
    """Return what goes out by night, too: model storage keeps a partner's copy fresh, before the live phase and in it.

    Little enough for every rule, off-hours included; and not between those who have a part in an incident.
    """
    source, partner = stage.nodes(Role.MODEL_STORAGE)[0], stage.partner(1)
    address = stage.address(source)
    transfers = tuple(
        Transfer(address, partner, at, at + _MIRROR_SECONDS, _MIRROR_BYTES) for at in range(start, end, _MIRROR_EVERY)
    )
    return Incident(
        id=f"mirror-{source.name}",
        kind=IncidentKind.APPROVED_TRANSFER,
        start=start,
        end=end,
        src=source.name,
        src_address=address,
        dst=partner,
        volume=_MIRROR_BYTES * len(transfers),
        transfers=transfers,
    )
