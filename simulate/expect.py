"""Which alerts staged traffic owes, by the cluster's own thresholds; ids of rules, and what their labels must say.

Rules sum planned bytes as the store will hold them, so the moment at which the evidence is complete follows from the
plan. How long after that an alert may still begin differs by rule: as long as the evidence stays in the range that the
rule looks at.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cluster import schema
from cluster.calendar import local_time, off_hours_mask, off_window_mask
from cluster.model import EXTERNAL, CheckpointMode, CheckpointPlan, Role
from simulate.evidence import Crossing, Piece, crossing
from simulate.incident import Expected, Transfer
from simulate.scenario import Run
from simulate.stage import Stage

EXFIL_VOLUME = "exfil_volume"
FIRST_EXTERNAL_CONTACT = "first_external_contact"
OFF_HOURS_TRANSFER = "off_hours_transfer"
LOW_AND_SLOW_24H = "low_and_slow_24h"
LOW_AND_SLOW_7D = "low_and_slow_7d"
RECURRING_DEPENDENCY = "recurring_dependency"
SEGMENTATION_VIOLATION = "segmentation_violation"
SHADOW_NODE = "shadow_node"
STORAGE_ON_COMPUTE_PLANE = "storage_on_compute_plane"
UNEXPECTED_MANAGEMENT_CONNECTION = "unexpected_management_connection"
INFERENCE_UNAUTHORISED_SOURCE = "inference_unauthorised_source"
INFERENCE_SPIKE = "inference_spike"
INFERENCE_OFF_WINDOW = "inference_off_window"
INCAST = "incast"
NODE_DROPOUT = "node_dropout"
DROPOUT_DIGEST = "dropout_digest"
COHORT_SLOWDOWN = "cohort_slowdown"
JOB_STALLED = "job_stalled"
CHECKPOINT_MISSED = "checkpoint_missed"
EXPORTER_SILENT = "exporter_silent"
FLOW_LOSS = "flow_loss"
INGEST_LAG = "ingest_lag"
ANALYSIS_STALLED = "analysis_stalled"
INGEST_DEADMAN = "ingest_deadman"

RESTS_ON_HISTORY = frozenset(
    {
        FIRST_EXTERNAL_CONTACT,
        LOW_AND_SLOW_24H,
        LOW_AND_SLOW_7D,
        RECURRING_DEPENDENCY,
        INFERENCE_SPIKE,
        INCAST,
        NODE_DROPOUT,
        DROPOUT_DIGEST,
        COHORT_SLOWDOWN,
    }
)
"""Rules that say nothing without the hours, days or runs before."""

_HOUR, _DAY, _WEEK = 3600, 86_400, 7 * 86_400

LEDGER_SECONDS = 300
"""The ledger has a row so often."""
_LEDGER_SEEN = 900
"""Its rules look back so far."""
_LEDGER_ROLES = frozenset({Role.MODEL_STORAGE, Role.STORAGE, Role.TRAINING})
_EGRESS_ROLES = frozenset({Role.MODEL_STORAGE, Role.TRAINING})
"""What these open outside is told by rules about what leaves, and not as a violation."""

GRACE = 120
"""Seconds that every alert gets beyond the time that follows from its thresholds: rounds of analysis and evaluation."""

_CONTACT_SHOWN = 900
"""Seconds after a first contact within which its alert may begin: an episode, and the time it is shown."""


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    """Return labels that an alert must have, as far as its rule has them."""
    return tuple(sorted(values.items()))


def egress_alerts(stage: Stage, node: str, transfers: Iterable[Transfer]) -> tuple[Expected, ...]:
    """Return what is owed for what a node sends to addresses outside.

    Args:
        stage: thresholds, groups, off-hours, who has met whom.
        node: the sender.
        transfers: what it sends; its address is `src`, or `dst` of those that answer it.
    """
    by_destination: dict[str, list[Transfer]] = {}
    for one in transfers:
        by_destination.setdefault(one.src if one.answers else one.dst, []).append(one)
    found: list[Expected] = []
    for address, talks in by_destination.items():
        found += _egress_pair(stage, node, address, sorted(talks, key=lambda talk: talk.start))
    return tuple(found)


def scan_alerts(stage: Stage, node: str, transfers: Iterable[Transfer], start: int, end: int) -> tuple[Expected, ...]:
    """Return what is owed for a node that knocks at many addresses: a digest, and the first few by name."""
    each = egress_alerts(stage, node, transfers)
    about, until = labels(**{schema.SRC: node}), end + _CONTACT_SHOWN + GRACE
    return tuple(Expected(rule, about, start, until) for rule in dict.fromkeys(alert.rule for alert in each))


def _egress_pair(stage: Stage, node: str, address: str, talks: list[Transfer]) -> list[Expected]:
    cluster, limits = stage.cluster, stage.cluster.thresholds
    source = cluster.group(stage.node(node).group)
    group = stage.group_of(address)
    start, end = talks[0].start, max(talk.end for talk in talks)
    about = labels(**{schema.SRC: node, schema.DST: address})
    sent = [Piece(talk.start, talk.end, _outwards(talk)) for talk in talks]
    # The background goes to approved destinations only.
    everything = [*sent, *(stage.ordinary(node, address) if group != EXTERNAL else ())]
    step = cluster.bridge.window
    found = []

    def owe(rule: str, seen: Crossing | None, lasts: int, *, must: bool = True) -> None:
        # What the ordinary traffic between the two fires by itself is not this incident's.
        if seen is not None and seen.last >= start:
            due = max(seen.first, start)
            found.append(Expected(rule, about, due, max(seen.last, end) + lasts + GRACE, must))

    told = None
    if source.role is Role.MODEL_STORAGE and group == EXTERNAL:
        told = crossing(everything, window=limits.exfil_window, limit=limits.exfil_volume, step=step)
        owe(EXFIL_VOLUME, told, limits.exfil_window)
    is_known = group != EXTERNAL and (node, address) in stage.known(start)
    is_new = not is_known and not stage.is_learning(start)
    volume = sum(piece.volume for piece in sent)
    watched = source.role in (Role.MODEL_STORAGE, Role.TRAINING)
    if watched and is_new and volume > limits.first_contact_bytes and any(not talk.answers for talk in talks):
        found.append(Expected(FIRST_EXTERNAL_CONTACT, about, start, start + _CONTACT_SHOWN + GRACE))
    if source.sensitive:

        def is_off(windows: NDArray[np.int64]) -> NDArray[np.bool_]:
            return off_hours_mask(cluster.site, windows)

        seen = crossing(
            everything, window=limits.off_hours_window, limit=limits.off_hours_bytes, step=step, counts=is_off
        )
        owe(OFF_HOURS_TRANSFER, seen, limits.off_hours_window)
    # A burst that was told of is not told again as low and slow.
    if told is None and (source.role in _LEDGER_ROLES or source.sensitive):
        day, week = (
            crossing(everything, window=span, limit=limit, step=LEDGER_SECONDS)
            for span, limit in ((_DAY, limits.low_and_slow_24h), (_WEEK, limits.low_and_slow_7d))
        )
        owe(LOW_AND_SLOW_24H, day, _LEDGER_SEEN)
        # Where a day was too much, the week is not told again; unless it was told before that day.
        owe(LOW_AND_SLOW_7D, week, _LEDGER_SEEN, must=day is None or (week is not None and week.first < day.first))
    if group == EXTERNAL:
        found += _recurring(stage, source.id, address, [talk.start for talk in talks if not talk.answers])
    forbidden = not cluster.is_allowed(source.id, group) and source.role not in _EGRESS_ROLES
    if forbidden:
        both = [Piece(talk.start, talk.end, talk.volume + (talk.reply or 0)) for talk in talks]
        seen = crossing(both, window=limits.violation_window, limit=limits.violation_bytes, step=step)
        owe(SEGMENTATION_VIOLATION, seen, limits.violation_window)
    return found


def _recurring(stage: Stage, group: str, address: str, calls: list[int]) -> list[Expected]:
    """Return what is owed for an unlisted address that is called at these moments."""
    limits, zone = stage.cluster.thresholds, stage.cluster.site.time_zone
    days = local_time(zone, np.array(calls, np.int64)) // _DAY
    hours = np.array(calls, np.int64) // _HOUR
    due = None
    for number, moment in enumerate(calls, start=1):
        of_days = len(np.unique(days[:number]))
        of_hours = len(np.unique(hours[:number][hours[:number] * _HOUR > moment - _WEEK]))
        if of_days >= limits.recurrence_days or of_hours >= limits.recurrence_hours:
            due = -(-(moment + 1) // LEDGER_SECONDS) * LEDGER_SECONDS
            break
    if due is None:
        return []
    about = labels(**{schema.DST: address, schema.SRC_GROUP: group})
    return [Expected(RECURRING_DEPENDENCY, about, due, max(calls) + _WEEK + _LEDGER_SEEN)]


def _outwards(talk: Transfer) -> int:
    """Return the bytes that leave the cluster."""
    return (talk.reply or 0) if talk.answers else talk.volume


# -- inside the cluster ----------------------------------------------------------------------------


def volume_alert(
    stage: Stage, rule: str, about: tuple[tuple[str, str], ...], pieces: list[Piece], *, window: int, limit: float
) -> tuple[Expected, ...]:
    """Return the alert of a rule that compares the bytes of a sliding window with a limit."""
    seen = crossing(pieces, window=window, limit=limit, step=stage.cluster.bridge.window)
    return () if seen is None else (Expected(rule, about, seen.first, seen.last + window + GRACE),)


# -- jobs ------------------------------------------------------------------------------------------

_CLEAR_DROP = 1.5
"""A dropout counts as one that must be found when it is so many times deeper than the limit of the rule."""
_LEAST_DROP = 0.1
_NODE_SPREAD = 0.02
"""Least relative spread of a node's share."""
_COHORT_SPREAD = 0.04
"""Least relative spread of a cohort's rate."""
_COHORT_WINDOWS = 6
"""Windows over which a cohort's rate is smoothed."""


def dropout_alerts(stage: Stage, run: Run, node: str, *, start: int, end: int, share: float) -> tuple[Expected, ...]:
    """Return what is owed for a node that sends only a share of its bytes from `start` to `end`."""
    thresholds, window = stage.cluster.thresholds, stage.cluster.bridge.window
    runs = len([one for one in earlier_runs(stage, run) if node in one.nodes])
    limit = thresholds.dropout_spreads * max((run.profile or stage.profile).noise, _NODE_SPREAD)
    is_clear = 1 - share >= max(_CLEAR_DROP * limit, _LEAST_DROP)
    long_enough = end - start >= thresholds.dropout_for + 2 * window
    if runs < thresholds.dropout_min_runs or 1 - share < limit / 2 or end - start < thresholds.dropout_for:
        return ()
    about = labels(**{schema.NODE: node, schema.JOB: run.job})
    due = start + thresholds.dropout_for
    # Near the limit, or hardly longer than it takes: either is right.
    return (Expected(NODE_DROPOUT, about, due, end + GRACE, must=is_clear and long_enough),)


def digest_alerts(stage: Stage, run: Run, nodes: Sequence[str], *, start: int, end: int) -> tuple[Expected, ...]:
    """Return what is owed for nodes of one job that fall silent together: beyond a few, one alert for all."""
    each = [dropout_alerts(stage, run, node, start=start, end=end, share=0.0) for node in nodes]
    found = tuple(alert for alerts in each for alert in alerts)
    if len(found) <= stage.cluster.thresholds.dropout_digest:
        return found
    about = labels(**{schema.JOB: run.job})
    return (Expected(DROPOUT_DIGEST, about, found[0].due, found[0].until), *(replace(one, must=False) for one in found))


def earlier_runs(stage: Stage, run: Run) -> list[Run]:
    """Return the runs of the same class that were over before this one began."""
    job_class = (run.profile or stage.profile).job_class
    return [one for one in stage.runs if one.end <= run.start and (one.profile or stage.profile).job_class == job_class]


def slowdown_alerts(stage: Stage, run: Run, *, start: int, end: int, share: float) -> tuple[Expected, ...]:
    """Return what is owed for a cohort that sends only a share of its bytes from `start` to `end`."""
    limits = stage.cluster.thresholds
    depth = _CLEAR_DROP * limits.slowdown_spreads * _COHORT_SPREAD
    long_enough = end - start >= limits.slowdown_for + _COHORT_WINDOWS * stage.cluster.bridge.window
    if len(earlier_runs(stage, run)) < limits.dropout_min_runs or 1 - share < depth or not long_enough:
        return ()
    return (Expected(COHORT_SLOWDOWN, labels(**{schema.JOB: run.job}), start + limits.slowdown_for, end + GRACE),)


def stall_alerts(stage: Stage, run: Run, *, start: int, end: int) -> tuple[Expected, ...]:
    """Return what is owed for a job that sends nothing from `start` to `end`."""
    limit = stage.cluster.thresholds.stalled_for
    if end - start < limit + _COHORT_WINDOWS * stage.cluster.bridge.window:
        return ()
    return (Expected(JOB_STALLED, labels(**{schema.JOB: run.job}), start + limit, end + GRACE),)


def missed_checkpoint_alerts(stage: Stage, run: Run, times: list[int], *, lateness: int | None) -> tuple[Expected, ...]:
    """Return what is owed for checkpoints that come later than planned.

    Args:
        stage: thresholds and the declared plan.
        run: whose.
        times: when they were planned to begin.
        lateness: how many seconds later they begin; None: never.
    """
    job_class = (run.profile or stage.profile).job_class
    plan = next((one.checkpoint for one in stage.cluster.job_classes if one.name == job_class), CheckpointPlan())
    if plan.mode is not CheckpointMode.SCHEDULED:
        return ()
    patience = plan.tolerance + stage.cluster.thresholds.checkpoint_overdue
    due = times[0] + patience
    ends = run.end if lateness is None else times[-1] + lateness
    if due >= ends:
        return ()
    return (Expected(CHECKPOINT_MISSED, labels(**{schema.JOB: run.job}), due, run.end + GRACE),)


def off_window_alert(stage: Stage, client: str, node: str, pieces: list[Piece]) -> tuple[Expected, ...]:
    """Return what is owed for a client that asks inference outside its hours."""
    cluster = stage.cluster
    limits = cluster.thresholds

    def is_off(windows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return off_window_mask(cluster.site, cluster.inference.hours, windows)

    seen = crossing(
        pieces,
        window=limits.inference_window,
        limit=limits.inference_off_window_bytes,
        step=cluster.bridge.window,
        counts=is_off,
    )
    if seen is None:
        return ()
    about = labels(**{schema.SRC: client, schema.DST: node})
    return (Expected(INFERENCE_OFF_WINDOW, about, seen.first, seen.last + limits.inference_window + GRACE),)
