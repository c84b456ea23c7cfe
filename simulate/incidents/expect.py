"""Which alerts staged traffic owes, by the cluster's own thresholds; ids of rules, and what their labels must say.

Rules sum planned bytes as the store will hold them, so the moment at which the evidence is complete follows from the
plan. How long after that an alert may still begin differs by rule: as long as the evidence stays in the range that the
rule looks at.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.detectors.egress import beacons
from analysis.detectors.egress.beacons import BeaconPolicy
from analysis.detectors.egress.contacts import ContactPolicy
from analysis.detectors.egress.exfiltration_study import watched as watched_groups
from analysis.detectors.egress.networks import sources
from analysis.detectors.storage.incast import LATELY
from cluster.calendar import local_time, off_hours_mask, off_window_mask
from cluster.model import EXTERNAL, CheckpointMode, CheckpointPlan, Exporter, FirstContact, Interface, Node, Role
from simulate.incidents.alert_evidence import Crossing, Piece, crossing
from simulate.incidents.incident import Expected, Transfer
from simulate.incidents.stage import Stage
from simulate.packets.flows import JUMBO
from simulate.packets.polls import POLL_SECONDS
from simulate.scenarios.scenario import Run
from store import schema
from store.points import WINDOW

RESTS_ON_HISTORY = frozenset(
    {
        "first_external_contact",
        "egress_new_asn",
        "first_management_session",
        "exfiltration",
        "steady_connection",
        "beacon",
        "unseen_bytes",
        "low_and_slow_24h",
        "low_and_slow_7d",
        "recurring_dependency",
        "inference_unusual_country",
        "inference_spike",
        "incast",
        "node_dropout",
        "dropout_digest",
        "cohort_slowdown",
    }
)
"""Rules that say nothing without the hours, days or runs before."""

_MINUTE, _HOUR, _DAY, _WEEK = 60, 3600, 86_400, 7 * 86_400

LEDGER_SECONDS = 300
"""The ledger has a row so often."""
_LEDGER_SEEN = 900
"""Its rules look back so far."""
_LEDGER_ROLES = frozenset({Role.MODEL_STORAGE, Role.STORAGE, Role.TRAINING})
_EGRESS_ROLES = frozenset({Role.MODEL_STORAGE, Role.TRAINING})
"""What these open outside is reported by rules about what leaves, and not as a violation."""

GRACE = 120
"""Seconds that every alert gets beyond the time that follows from its thresholds: rounds of analysis and evaluation."""

_OTHER_UPLINKS = 0.05
_EVALUATION = 10
"""Seconds between two evaluations of most rules."""
CLOSE = 0.98
"""Share of a limit from which stored bytes may be beyond it: sampling 1 in 1,000 estimates 50 GB to 0.6 %."""

_ACKNOWLEDGED = 200
"""Bytes for which at least one byte of acknowledgements comes back."""

_BEACON_NOISE = 0.02
"""By so much the score of stored calls may differ from that of planned ones."""

_CONTACT_SHOWN = 900
"""Seconds after a first contact within which its alert may begin: an episode, and the time it is shown."""


def labels(**values: str) -> tuple[tuple[str, str], ...]:
    """Return labels that an alert must have, as far as its rule has them."""
    return tuple(sorted(values.items()))


def early(stage: Stage, due: int, *, step: int = 0, spare: int = 0) -> int:
    """Return the earliest moment for an alert whose evidence is complete at another.

    Args:
        stage: how long a window is: one that still fills may be enough.
        due: when it is complete.
        step: seconds between two looks at it, where that is longer than a window.
        spare: seconds by which it may be complete sooner than planned.
    """
    return due - max(step, stage.cluster.bridge.window) - _EVALUATION - spare


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


def threat_alerts(stage: Stage, node: str, transfers: Sequence[Transfer]) -> tuple[Expected, ...]:
    """Return what is owed for what a node sends to one address that a threat feed lists.

    What the address sends back is reported too: bare acknowledgements are about a fiftieth.
    """
    limits = stage.cluster.thresholds
    address = transfers[0].dst
    pieces = [Piece(talk.start, talk.end, talk.volume) for talk in transfers]
    forth = labels(**{schema.SRC: node, schema.DST: address})
    told = volume_alert(
        stage, "threat_match", forth, pieces, window=limits.threat_window, limit=max(limits.threat_bytes, 1)
    )
    back = labels(**{schema.SRC: address, schema.DST: node})
    is_certain = sum(piece.volume for piece in pieces) > _ACKNOWLEDGED * limits.threat_bytes
    return (*told, *(replace(alert, labels=back, must=is_certain) for alert in told))


def network_alerts(stage: Stage, node: str, transfers: Sequence[Transfer]) -> tuple[Expected, ...]:
    """Return what is owed for what a node sends to a network that no file places anybody else in."""
    learnt, limits = stage.places_learnt(), stage.cluster.thresholds
    group = stage.cluster.group(stage.node(node).group)
    talks = sorted(transfers, key=lambda talk: talk.start)
    # What a group sends while networks are learnt makes them known, however little it is.
    if learnt is None or talks[0].start < learnt or group not in sources(stage.cluster):
        return ()
    pieces = [Piece(talk.start, talk.end, talk.volume) for talk in talks]
    about = labels(**{schema.SRC: node, schema.DST: talks[0].dst})
    told = volume_alert(
        stage, "egress_new_asn", about, pieces, window=limits.new_network_window, limit=limits.new_network_bytes
    )
    return tuple(replace(alert, most=1) for alert in told)


def session_alerts(stage: Stage, source: Node, target: Node, transfers: Sequence[Transfer]) -> tuple[Expected, ...]:
    """Return what is owed for management sessions of one source and service; a manager's logins are known."""
    cluster, limits = stage.cluster, stage.cluster.thresholds
    port, proto = transfers[0].port, transfers[0].proto
    named = [one.name for one in cluster.services if port in one.ports and proto in one.protocols]
    is_session = set(named) & set(cluster.management.sessions)
    pair = source.group, target.group
    may = (
        cluster.is_allowed(*pair)
        and cluster.is_allowed(*pair[::-1])
        and all(cluster.may_open(*pair, one) for one in named)
    )
    is_learnt = stage.history is not None and transfers[0].start < stage.history.start + limits.session_learning
    # Managers log in to every node, by SSH.
    is_usual = stage.role(source.group) is Role.MANAGEMENT and "ssh" in named
    if not is_session or not may or is_learnt or is_usual:
        return ()
    about = labels(**{schema.SRC: source.name, schema.DST: target.name})
    pieces = [Piece(talk.start, talk.end, talk.volume + (talk.reply or 0)) for talk in transfers]
    told = volume_alert(
        stage,
        "first_management_session",
        about,
        pieces,
        window=limits.violation_window,
        limit=limits.first_session_bytes,
    )
    return tuple(replace(alert, most=1) for alert in told)


def scan_alerts(stage: Stage, node: str, transfers: Sequence[Transfer], start: int, end: int) -> tuple[Expected, ...]:
    """Return what is owed for a node that knocks at many addresses: the first few by name, and a digest of the rest."""
    window = stage.cluster.bridge.window
    named = named_of_scan([(talk.start // window * window, talk.dst) for talk in transfers], ContactPolicy())
    each = egress_alerts(stage, node, transfers)
    told = [alert for alert in each if dict(alert.labels).get(schema.DST) in named]
    until = end + _CONTACT_SHOWN + GRACE
    # One for all that are not named; other rules look at an address each and find too little there.
    digest = labels(**{schema.SRC: node, schema.DST: schema.OTHER})
    rules = dict.fromkeys(alert.rule for alert in each if alert not in told)
    return (*told, *(Expected(rule, digest, start, until) for rule in rules))


def named_of_scan(probes: Iterable[tuple[int, str]], policy: ContactPolicy) -> set[str]:
    """Return which of the addresses that one source probes, each in a window, are told by name.

    As long as there are not more than `storm_limit` within `storm_seconds`, windows as wholes; probes are too small to
    keep their names in a storm.
    """
    by_window: dict[int, list[str]] = {}
    for window, address in probes:
        by_window.setdefault(window, []).append(address)
    found: set[str] = set()
    for window, addresses in by_window.items():
        met = [one for at, some in by_window.items() if window - policy.storm_seconds < at <= window for one in some]
        if len(met) <= policy.storm_limit:
            found |= set(addresses)
    return found


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

    def owe(rule: str, seen: Crossing | None, lasts: int, *, every: int = 0) -> None:
        # What the ordinary traffic between the two fires by itself is not this incident's.
        if seen is not None and seen.last >= start:
            due, until = max(seen.first, start), max(seen.last, end) + lasts + GRACE
            earliest = early(stage, seen.earliest, step=every)
            found.append(Expected(rule, about, due, until, earliest=earliest, most=seen.times))

    told = None
    if source.role is Role.MODEL_STORAGE and group == EXTERNAL:
        told = crossing(everything, window=limits.exfil_window, limit=limits.exfil_volume, step=step, close=CLOSE)
        owe("exfil_volume", told, limits.exfil_window)
    is_known = group != EXTERNAL and (node, address) in stage.known(start)
    is_new = not is_known and not stage.is_learning(start)
    volume = sum(piece.volume for piece in sent)
    is_told = group == EXTERNAL or cluster.group(group).first_contact is FirstContact.ALERT
    watched = is_told and source.role in (Role.MODEL_STORAGE, Role.TRAINING)
    if watched and is_new and volume > limits.first_contact_bytes and any(not talk.answers for talk in talks):
        found.append(Expected("first_external_contact", about, start, start + _CONTACT_SHOWN + GRACE))
    if source.sensitive:

        def is_off(windows: NDArray[np.int64]) -> NDArray[np.bool_]:
            return off_hours_mask(cluster.site_of(source.id), windows)

        seen = crossing(
            everything,
            window=limits.off_hours_window,
            limit=limits.off_hours_bytes,
            step=step,
            counts=is_off,
            close=CLOSE,
        )
        owe("off_hours_transfer", seen, limits.off_hours_window)
    # A burst that was reported is not told again as low and slow.
    if told is None and (source.role in _LEDGER_ROLES or source.sensitive):
        day, week = (
            crossing(everything, window=span, limit=limit, step=LEDGER_SECONDS, close=CLOSE)
            for span, limit in ((_DAY, limits.low_and_slow_24h), (_WEEK, limits.low_and_slow_7d))
        )
        owe("low_and_slow_24h", day, _LEDGER_SEEN, every=LEDGER_SECONDS)
        owe("low_and_slow_7d", _before(week, day), _LEDGER_SEEN, every=LEDGER_SECONDS)
    if group == EXTERNAL:
        found += _unlisted(stage, source.id, address, about, talks)
    forbidden = not cluster.is_allowed(source.id, group) and source.role not in _EGRESS_ROLES
    if forbidden:
        both = [Piece(talk.start, talk.end, talk.volume + (talk.reply or 0)) for talk in talks]
        seen = crossing(both, window=limits.violation_window, limit=limits.violation_bytes, step=step, close=CLOSE)
        owe("segmentation_violation", seen, limits.violation_window)
    return found


def _unlisted(
    stage: Stage, source: str, address: str, about: tuple[tuple[str, str], ...], talks: list[Transfer]
) -> list[Expected]:
    """Return what is owed because nobody lists the address."""
    opened = [talk for talk in talks if not talk.answers]
    found = [*_new_network(stage, source, about, talks)]
    found += _recurring(stage, source, address, [talk.start for talk in opened])
    if source in [group.id for group in watched_groups(stage.cluster)]:
        found += _beacon(stage, about, opened)
    return found


def _new_network(
    stage: Stage, source: str, about: tuple[tuple[str, str], ...], talks: list[Transfer]
) -> list[Expected]:
    """Return what may be owed where files know networks: whose the address is, the plan does not say."""
    cluster, limits = stage.cluster, stage.cluster.thresholds
    is_judged = bool(cluster.geography.files) and cluster.group(source) in sources(cluster)
    if not is_judged or sum(map(_outwards, talks)) <= limits.new_network_bytes:
        return []
    start, end = talks[0].start, max(talk.end for talk in talks)
    return [Expected("egress_new_asn", about, start, end + limits.new_network_window + GRACE, must=False)]


def _before(week: Crossing | None, day: Crossing | None) -> Crossing | None:
    """Return the week; None where a day was too much before: it is not told again."""
    return week if week is None or day is None or week.first < day.first else None


def _recurring(stage: Stage, group: str, address: str, calls: list[int]) -> list[Expected]:
    """Return what is owed for an unlisted address that is called at these moments, in their order."""
    limits, zone = stage.cluster.thresholds, stage.cluster.site.time_zone
    days: set[int] = set()
    hours: deque[int] = deque()
    due, complete = None, 0
    for moment, local in zip(calls, local_time(zone, np.array(calls, np.int64)).tolist(), strict=True):
        days.add(local // _DAY)
        if not hours or hours[-1] != moment // _HOUR:
            hours.append(moment // _HOUR)
        while hours[0] * _HOUR <= moment - _WEEK:
            hours.popleft()
        if len(days) >= limits.recurrence_days or len(hours) >= limits.recurrence_hours:
            due, complete = -(-(moment + 1) // LEDGER_SECONDS) * LEDGER_SECONDS, moment
            break
    if due is None:
        return []
    about = labels(**{schema.DST: address, schema.SRC_GROUP: group})
    until = max(calls) + _WEEK + _LEDGER_SEEN
    return [Expected("recurring_dependency", about, due, until, earliest=early(stage, complete))]


def _beacon(stage: Stage, about: tuple[tuple[str, str], ...], talks: list[Transfer]) -> list[Expected]:
    """Return what is owed for calls at a steady rhythm: by their planned begins and bytes, an hour after the other."""
    policy, window = BeaconPolicy(), stage.cluster.bridge.window
    if len(talks) < policy.least_calls:
        return []
    planned = pl.DataFrame(
        {
            WINDOW: [talk.start // window * window for talk in talks],
            schema.BYTES.name: [talk.volume for talk in talks],
            schema.SERVICE: [_service(stage, talk) for talk in talks],
        }
    ).with_columns(pl.lit("planned").alias(tag) for tag in (*beacons.KEY, *beacons.PLACES) if tag != schema.SERVICE)
    keys = beacons.KEY
    seen = beacons.calls(planned.select(*keys, *beacons.PLACES, WINDOW, schema.BYTES.name), 0, window)
    limit = stage.cluster.thresholds.beacon_score
    start, end = talks[0].start, max(talk.end for talk in talks)
    moments = pl.DataFrame({"at": range(-(-start // _HOUR) * _HOUR, end + _DAY, _HOUR)})
    # All moments at once: the day before each is a source of its own, and ends at 0.
    days = (
        seen.join(moments, how="cross")
        .filter(pl.col(WINDOW) >= pl.col("at") - _DAY, pl.col(WINDOW) < pl.col("at"))
        .with_columns(pl.col("at").cast(pl.String).alias(schema.SRC), pl.col(WINDOW) - pl.col("at"))
    )
    judged = beacons.rows(days.select(seen.columns), 0, window, replace(policy, named=days.height))
    scores = sorted((int(at), score) for at, score in judged.select(schema.SRC, schema.BEACON_SCORE.name).iter_rows())
    above = [at for at, score in scores if score >= limit + _BEACON_NOISE]
    close = [at for at, score in scores if score >= limit - _BEACON_NOISE]
    if not close:
        return []
    due = above[0] if above else close[0]
    earliest = early(stage, close[0], step=_HOUR)
    return [
        Expected("beacon", about, due, close[-1] + 3 * _HOUR + GRACE, must=bool(above), earliest=max(earliest, start))
    ]


def _service(stage: Stage, talk: Transfer) -> str:
    """Return the service by the server's port."""
    found = (one.name for one in stage.cluster.services if talk.port in one.ports and talk.proto in one.protocols)
    return next(found, schema.OTHER)


def _outwards(talk: Transfer) -> int:
    """Return the bytes that leave the cluster."""
    return (talk.reply or 0) if talk.answers else talk.volume


# -- inside the cluster ----------------------------------------------------------------------------


def volume_alert(
    stage: Stage, rule: str, about: tuple[tuple[str, str], ...], pieces: list[Piece], *, window: int, limit: float
) -> tuple[Expected, ...]:
    """Return the alert of a rule that compares the bytes of a sliding window with a limit."""
    seen = crossing(pieces, window=window, limit=limit, step=stage.cluster.bridge.window, close=CLOSE)
    return () if seen is None else (_exceeding(stage, rule, about, seen, window),)


def _exceeding(stage: Stage, rule: str, about: tuple[tuple[str, str], ...], seen: Crossing, window: int) -> Expected:
    earliest = early(stage, seen.earliest)
    return Expected(rule, about, seen.first, seen.last + window + GRACE, earliest=earliest, most=seen.times)


def refused_alerts(stage: Stage, source: str, transfers: Sequence[Transfer]) -> tuple[Expected, ...]:
    """Return what is owed for calls to one group that a cloud refuses; nothing where no cloud tells of them."""
    limits, called = stage.cluster.thresholds, dict[str, int]()
    for talk in transfers:
        called.setdefault(talk.dst, talk.start)
    if stage.cluster.cloud.format is None or len(called) < limits.refused_targets:
        return ()
    due = sorted(called.values())[limits.refused_targets - 1]
    until = transfers[-1].end + limits.violation_window + GRACE
    return (Expected("refused_inside", labels(**{schema.SRC: source}), due, until),)


def incast_alerts(stage: Stage, target: str, transfers: Sequence[Transfer]) -> tuple[Expected, ...]:
    """Return what is owed for nodes that write alike to one endpoint all at once, while its peers idle."""
    limits, window = stage.cluster.thresholds, stage.cluster.bridge.window
    start, end = min(talk.start for talk in transfers), max(talk.end for talk in transfers)
    lasts = -(-end // window) * window - start // window * window
    if len({talk.src for talk in transfers}) < limits.incast_sources or lasts < limits.incast_for:
        return ()
    pieces = [Piece(talk.start, talk.end, talk.volume) for talk in transfers]
    seen = crossing(pieces, window=LATELY, limit=limits.incast_bytes, step=window, close=CLOSE)
    if seen is None:
        return ()
    least = start // window * window + limits.incast_for
    due, earliest = max(seen.first, least), early(stage, max(seen.earliest, least))
    return (Expected("incast", labels(**{schema.DST: target}), due, end + GRACE, earliest=earliest),)


def disturbance_alerts(stage: Stage, source: str, target: str, talk: Transfer) -> tuple[Expected, ...]:
    """Return what is owed for what a training node sends to a node of a job that is not its own."""
    limits = stage.cluster.thresholds
    running = [run for run in stage.runs if run.start <= talk.start and talk.end <= run.end]
    victims = [run for run in running if target in run.nodes]
    if not victims or any(source in run.nodes for run in victims):
        return ()
    about = labels(**{schema.SRC: source, schema.DST: target, schema.JOB: victims[0].job})
    found = volume_alert(
        stage, "job_disturbed", about, [Piece(talk.start, talk.end, talk.volume)], window=limits.disturbance_window,
        limit=limits.disturbance_bytes,
    )  # fmt: skip
    # Told once final, by whole minutes; told on for as long as the rule looks back. A backtest, for which all rows are
    # there already, finds it when the limit is crossed: no earlier moment than that.
    late = stage.cluster.bridge.grace + _MINUTE
    return tuple(replace(one, due=one.due + late, until=one.until + 2 * late) for one in found)


# -- jobs ------------------------------------------------------------------------------------------

_CLEAR_DROP = 1.5
"""A dropout counts as one that must be found when it is so many times deeper than the limit of the rule."""
_LEAST_DROP = 0.1
_NOISES = 3
"""Below its limit by so many deviations of its noise, a node stays below it."""
_NODE_SPREAD = 0.02
"""Least relative spread of a node's share."""
_COHORT_SPREAD = 0.04
"""Least relative spread of a cohort's rate."""
_NEAR = 0.65
"""From this part of a cohort's limit on, it may be reached: a checkpoint takes another 5 % from the minute it is in."""
_LASTING_LOSS, _LASTING_FOR, _LEARNT_IN = 0.08, 1200, 3600
"""Part of its rate that a cohort surely may not lose for so many seconds, once it ran for so many."""
_LEAST_LOSS, _LEAST_FOR, _LEAST_RUNS = 0.02, 240, 6
"""Part and seconds from which a loss that lasts may be found, and earlier runs without which its own beginning must
be known."""
_COHORT_WINDOWS = 6
"""Windows over which a cohort's rate is smoothed."""


def dropout_alerts(stage: Stage, run: Run, node: str, *, start: int, end: int, share: float) -> tuple[Expected, ...]:
    """Return what is owed for a node that sends only a share of its bytes from `start` to `end`."""
    thresholds, window = stage.cluster.thresholds, stage.cluster.bridge.window
    runs = len([one for one in earlier_runs(stage, run) if node in one.nodes])
    noise = (run.profile or stage.profile).noise
    limit = thresholds.dropout_spreads * max(noise, _NODE_SPREAD)
    is_clear = 1 - share >= max(_CLEAR_DROP * limit, _LEAST_DROP)
    long_enough = end - start >= thresholds.dropout_for + 2 * window
    if (
        runs < thresholds.dropout_min_runs
        or 1 - share < limit - _NOISES * noise
        or end - start < thresholds.dropout_for
    ):
        return ()
    about = labels(**{schema.NODE: node, schema.JOB: run.job})
    due = start + thresholds.dropout_for
    # Near the limit, or hardly longer than it takes: either is right.
    is_certain = is_clear and long_enough
    return (Expected("node_dropout", about, due, end + GRACE, must=is_certain, earliest=early(stage, due)),)


def digest_alerts(stage: Stage, run: Run, nodes: Sequence[str], *, start: int, end: int) -> tuple[Expected, ...]:
    """Return what is owed for nodes of one job that fall silent together: beyond a few, one alert for all."""
    each = [dropout_alerts(stage, run, node, start=start, end=end, share=0.0) for node in nodes]
    found = tuple(alert for alerts in each for alert in alerts)
    if len(found) <= stage.cluster.thresholds.dropout_digest:
        return found
    # All of them fall in the same window, so none is reported by itself first.
    return (replace(found[0], rule="dropout_digest", labels=labels(**{schema.JOB: run.job}), must=True),)


def earlier_runs(stage: Stage, run: Run) -> list[Run]:
    """Return the runs of the same class that were over before this one began."""
    job_class = (run.profile or stage.profile).job_class
    return [one for one in stage.runs if one.end <= run.start and (one.profile or stage.profile).job_class == job_class]


def slowdown_alerts(stage: Stage, run: Run, *, start: int, end: int, share: float) -> tuple[Expected, ...]:
    """Return what is owed for a cohort that sends only a share of its bytes from `start` to `end`."""
    limits = stage.cluster.thresholds
    limit = limits.slowdown_spreads * _COHORT_SPREAD
    is_clear = 1 - share >= _CLEAR_DROP * limit
    long_enough = end - start >= limits.slowdown_for + _COHORT_WINDOWS * stage.cluster.bridge.window
    is_short = end - start < limits.slowdown_for
    if len(earlier_runs(stage, run)) < limits.dropout_min_runs or is_short:
        return ()
    if 1 - share < _NEAR * limit:
        return _lasting_slowdown(stage, run, start=start, end=end, share=share)
    alert = _of_job(stage, "cohort_slowdown", run, start + limits.slowdown_for, end + GRACE)
    return (replace(alert, must=is_clear and long_enough),)


def _lasting_slowdown(stage: Stage, run: Run, *, start: int, end: int, share: float) -> tuple[Expected, ...]:
    """Return what is owed for a loss that is too small for single windows: only its length tells of it."""
    is_unknown = start - run.start < _LASTING_FOR and len(earlier_runs(stage, run)) < _LEAST_RUNS
    if 1 - share <= _LEAST_LOSS or end - start < _LEAST_FOR or is_unknown:
        return ()
    alert = _of_job(stage, "cohort_slowdown", run, start + _LEAST_FOR, end + GRACE)
    is_sure = 1 - share >= _LASTING_LOSS and end - start >= _LASTING_FOR and start - run.start >= _LEARNT_IN
    return (replace(alert, must=is_sure),)


def stall_alerts(stage: Stage, run: Run, *, start: int, end: int) -> tuple[Expected, ...]:
    """Return what is owed for a job that sends nothing from `start` to `end`."""
    limit = stage.cluster.thresholds.stalled_for
    if end - start < limit + _COHORT_WINDOWS * stage.cluster.bridge.window:
        return ()
    return (_of_job(stage, "job_stalled", run, start + limit, end + GRACE),)


def held_alerts(stage: Stage, run: Run, *, start: int, end: int) -> tuple[Expected, ...]:
    """Return what is owed for nodes of a job that are silent from `start` to `end`."""
    limit = stage.cluster.thresholds.held_silent_for
    if end - start < limit + 2 * _MINUTE:
        return ()
    return (_of_job(stage, "held_silent", run, start + limit + _MINUTE, end + GRACE + 2 * _MINUTE),)


def rail_alerts(stage: Stage, run: Run, node: str, rail: int, *, start: int, end: int) -> tuple[Expected, ...]:
    """Return what is owed for a rail of a node that sends nothing from `start` to `end`."""
    limits = stage.cluster.thresholds
    least = limits.rail_low * limits.rail_low_window + 2 * _MINUTE
    if end - start < least:
        return ()
    about = labels(**{schema.JOB: run.job, schema.NODE: node, schema.RAIL: str(rail)})
    # Told once final, by whole minutes; told on for as long as the rule looks back.
    late = stage.cluster.bridge.grace + _MINUTE
    due = round(max(start + least, run.start + limits.rail_low_window)) + late
    earliest = early(stage, due, step=late + 2 * _MINUTE)
    return (Expected("rail_low", about, due, end + limits.rail_low_window + 2 * late, earliest=earliest),)


def packet_size_alerts(stage: Stage, run: Run, node: str, packet: int, *, start: int, end: int) -> tuple[Expected, ...]:
    """Return what is owed for a node that sends packets of so many bytes from `start` to `end`.

    Of a window with a part p of such bytes the mean is JUMBO / (1 + p * (JUMBO / packet - 1)); whole minutes.
    """
    limits = stage.cluster.thresholds
    more = JUMBO / packet - 1
    part = (1 / (1 - limits.packet_size_low) - 1) / more if more > 0 else np.inf
    least = part * limits.packet_size_window + 2 * _MINUTE
    if end - start < least:
        return ()
    late = stage.cluster.bridge.grace + _MINUTE
    due = round(max(start + least, run.start + limits.packet_size_window)) + late
    # Acknowledgements make the mean fall sooner or later than that by a minute or two.
    earliest = early(stage, due, step=late + 4 * _MINUTE)
    about = labels(**{schema.JOB: run.job, schema.NODE: node})
    return (Expected("packet_size_low", about, due, end + limits.packet_size_window + 2 * late, earliest=earliest),)


def congestion_alerts(
    stage: Stage, exporter: Exporter, link: Interface, node: str, *, load: float, discards: int, marks: float,
    start: int, end: int,
) -> tuple[Expected, ...]:  # fmt: skip
    """Return what is owed for an interface that is so full, and for a node whose packets are marked.

    Of a window that looks back as far as the incident has lasted, the sum grows evenly up to the limit.
    """
    limits = stage.cluster.thresholds
    here = labels(**{schema.EXPORTER: exporter.name, schema.INTERFACE: link.name})
    rules = [
        ("link_full", here, limits.link_full_window, limits.link_full / load if load else np.inf),
        ("link_discards", here, limits.link_discards_window,
         limits.link_discards / (discards * limits.link_discards_window) if discards else np.inf),
        ("ecn_marks", labels(**{schema.NODE: node}), limits.ecn_marks_window, limits.ecn_marks / marks if marks else
         np.inf),
    ]  # fmt: skip
    uplinks = [one for one in exporter.interfaces if not one.counts]
    if link in uplinks and len(uplinks) > 1:
        # The others carry what nodes of two leaves send each other: a few per cent.
        about = labels(**{schema.EXPORTER: exporter.name})
        apart = limits.uplinks_uneven / max(load - _OTHER_UPLINKS, 1e-9)
        rules.append(("uplinks_uneven", about, limits.uplinks_uneven_window, apart))
    found = []
    # As `Workload.batches` has polls: as far apart as records may be.
    poll = POLL_SECONDS if stage.history is None else max(POLL_SECONDS, stage.history.timeout)
    for rule, about, window, part in rules:
        if part < 1 and part * window + poll + _MINUTE <= end - start:
            due = round(start + part * window) + poll
            found.append(Expected(rule, about, due, end + window + poll + GRACE, earliest=start))
    return tuple(found)


def _of_job(stage: Stage, rule: str, run: Run, due: int, until: int) -> Expected:
    return Expected(rule, labels(**{schema.JOB: run.job}), due, until, earliest=early(stage, due))


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
    return (_of_job(stage, "checkpoint_missed", run, due, run.end + GRACE),)


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
        close=CLOSE,
    )
    if seen is None:
        return ()
    about = labels(**{schema.SRC: client, schema.DST: node})
    return (_exceeding(stage, "inference_off_window", about, seen, limits.inference_window),)
