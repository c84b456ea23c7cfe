"""Who disturbs whom: traffic into nodes of a job from nodes of other jobs, of none, and from other groups.

    other_job     training nodes of another job send to nodes of the job
    unallocated   training nodes in no job do
    group         a group that may talk to training nodes does so on their compute plane; storage has a rule of its own
                  there (storage_on_compute_plane), and so has who may not (segmentation_violation)

Only jobs whose source tells of them can be disturbed: an inferred one is whoever talk to each other. Two nodes that
share a job, or did within two minutes before or after, are no strangers: records may tell of traffic a minute late.
Judged are the minutes of `disturbance_window`, once nothing can change them any more.
"""

from collections.abc import Sequence

import polars as pl

from analysis.detectors.study import Points, Span
from analysis.jobs.job_windows import end_of, overlapping, start_of
from cluster.model import Cluster, Job, Plane, Role
from store import schema
from store.influx import Store
from store.influxql import is_in, not_in
from store.points import WINDOW, columns
from store.schema import NO_JOB, OTHER, Disturber
from store.sums import binned

MINUTE = 60
_AT_ONCE = 60 * MINUTE
"""Seconds that are read at a time: pairs of a thousand nodes are many."""
_ROWS = 50_000
"""Pairs that are looked at at a time: joined with whose their nodes are, they take many times the room."""
SLACK = 120
"""Seconds before and after a run in which its nodes still are its own."""
_SHOWN = 0.01
"""Part of the threshold from which there is a row."""
_MOST = 0.5
"""Share of the bytes from which one node stands for all."""

_SENT, _INDEX = schema.BYTES.name, "_index"
_WHO = [schema.KIND, schema.SRC_GROUP, schema.FROM_JOB, schema.JOB, schema.JOB_CLASS]
_TALKS = pl.Schema(columns(*_WHO, schema.SRC, schema.DST, schema.BYTES))
MEMBERS = pl.Schema(
    {
        schema.NODE: pl.String, schema.JOB: pl.String, schema.JOB_CLASS: pl.String, "start": pl.Float64,
        "end": pl.Float64, "is_told": pl.Boolean,
    }
)  # fmt: skip
"""Whose a node is: epoch seconds; whether the job's source tells of it."""


def strangers(pairs: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Return what goes to nodes of jobs from nodes that are not of them, _TALKS.

    Args:
        pairs: WINDOW (a minute), SRC, SRC_GROUP, DST, bytes.
        members: MEMBERS.
    """
    indexed = pairs.with_row_index(_INDEX)
    near = (pl.col("start") < pl.col(WINDOW) + MINUTE + SLACK) & (pl.col("end") > pl.col(WINDOW) - SLACK)
    senders, receivers = (
        indexed.join(members, left_on=tag, right_on=schema.NODE).filter(near) for tag in (schema.SRC, schema.DST)
    )
    shared = senders.join(receivers, on=[_INDEX, schema.JOB], how="semi")
    origin = senders.group_by(_INDEX).agg(pl.col(schema.JOB).sort_by("start").last().alias(schema.FROM_JOB))
    is_none = pl.col(schema.FROM_JOB) == NO_JOB
    return (
        _disturbed(receivers.join(shared, on=_INDEX, how="anti"))
        .join(origin, on=_INDEX, how="left")
        .with_columns(pl.col(schema.FROM_JOB).fill_null(NO_JOB))
        .with_columns(
            pl.when(is_none).then(pl.lit(Disturber.UNALLOCATED.value)).otherwise(pl.lit(Disturber.OTHER_JOB.value))
            .alias(schema.KIND)
        )
        .select(*_TALKS)
    )  # fmt: skip


def from_groups(received: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Return what groups send to nodes of jobs, _TALKS; `received`: WINDOW (a minute), NODE, PEER_GROUP, rx_bytes."""
    return _disturbed(received.join(members, on=schema.NODE)).select(
        WINDOW,
        pl.lit(Disturber.GROUP.value).alias(schema.KIND),
        pl.col(schema.PEER_GROUP).alias(schema.SRC_GROUP),
        pl.lit(NO_JOB).alias(schema.FROM_JOB),
        schema.JOB,
        schema.JOB_CLASS,
        pl.lit(OTHER).alias(schema.SRC),
        pl.col(schema.NODE).alias(schema.DST),
        pl.col(schema.RX_BYTES.name).alias(_SENT),
    )


def _disturbed(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of jobs that run all through the minute and whose source tells of them."""
    return rows.filter("is_told", pl.col("start") <= pl.col(WINDOW), pl.col("end") >= pl.col(WINDOW) + MINUTE)


def rows(talks: pl.DataFrame, look_back: int, least: float) -> pl.DataFrame:
    """Return for every moment what each disturber sent within the time before it.

    Args:
        talks: _TALKS.
        look_back: seconds, whole minutes.
        least: bytes from which there is a row.

    Returns:
        A frame for ``encode(schema.DISTURBANCE, ...)``.
    """
    # A minute counts at its end and at the ends of those that follow.
    moments = pl.int_ranges(pl.col(WINDOW) + MINUTE, pl.col(WINDOW) + MINUTE + look_back, MINUTE)
    seen = talks.with_columns(pl.col(WINDOW).alias("minute"), moments.alias(WINDOW)).explode(WINDOW)
    key = [WINDOW, *_WHO]
    sums = [pl.col(_SENT).sum().over([*key, tag]).alias(f"{tag}_sum") for tag in (schema.SRC, schema.DST)]

    def most(tag: str) -> pl.Expr:
        has_most = pl.col(f"{tag}_sum").max() >= _MOST * pl.col(_SENT).sum()
        largest = pl.col(tag).sort_by(f"{tag}_sum", tag).last()
        return pl.when(has_most).then(largest).otherwise(pl.lit(OTHER)).alias(tag)

    return (
        seen.with_columns(*sums)
        .group_by(key)
        .agg(
            most(schema.SRC),
            most(schema.DST),
            pl.col(_SENT).sum().alias(schema.EVENT_BYTES.name),
            pl.col(schema.SRC).n_unique().cast(pl.Int64).alias(schema.EVENT_SOURCES.name),
            pl.col(schema.DST).n_unique().cast(pl.Int64).alias(schema.EVENT_DESTINATIONS.name),
            (pl.col("minute").n_unique() * float(MINUTE)).alias(schema.EVENT_SECONDS.name),
        )
        .filter(pl.col(schema.EVENT_BYTES.name) >= least)
        .sort(key)
    )


class DisturbanceStudy:
    """Looks, minute by minute, for traffic into jobs from who is not of them.

    Args:
        cluster: inventory, roles, thresholds.
        store: read from.
    """

    measurements = (schema.DISTURBANCE,)

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster, self._store = cluster, store
        self._groups = {node.name: node.group for node in cluster.nodes}
        training = sorted(group.id for group in cluster.groups_with(Role.TRAINING))
        own = {*training, *(group.id for group in cluster.groups_with(Role.STORAGE, Role.MODEL_STORAGE))}
        others = sorted(group.id for group in cluster.inside_groups() if group.id not in own)
        self._training, self._others = training, others
        # Who may not talk has rules of its own.
        pairs = [(src, dst) for src in (*training, *others) for dst in training if cluster.is_allowed(src, dst)]
        self._allowed = pl.DataFrame(pairs, schema=[schema.SRC_GROUP, schema.DST_GROUP], orient="row")
        self._look_back = -(-cluster.thresholds.disturbance_window // MINUTE) * MINUTE
        self._known: tuple[int, int, pl.DataFrame] = (0, 0, pl.DataFrame(schema=_TALKS))

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the moments of the span that are final."""
        first, last = -(-span.start // MINUTE) * MINUTE, span.final // MINUTE * MINUTE
        if not self._training or last < first:
            return []
        talks = self._talks(first - self._look_back, last, jobs)
        least = _SHOWN * self._cluster.thresholds.disturbance_bytes
        found = rows(talks, self._look_back, least)
        return [(schema.DISTURBANCE, found.filter(pl.col(WINDOW).is_between(first, last)))]

    def _talks(self, start: int, stop: int, jobs: Sequence[Job]) -> pl.DataFrame:
        """Return the talks of [start, stop); final minutes that the pass before has read are not read again."""
        begin, end, known = self._known
        if not begin <= start <= end:
            begin, end, known = start, start, known.clear()
        known = known.filter(pl.col(WINDOW) >= start)
        fresh = [self._read(at, min(at + _AT_ONCE, stop), jobs) for at in range(end, stop, _AT_ONCE)]
        known = pl.concat([known, *fresh])
        self._known = start, max(end, stop), known
        return known

    def _read(self, start: int, stop: int, jobs: Sequence[Job]) -> pl.DataFrame:
        near = overlapping(jobs, start - SLACK, stop + SLACK)
        told = {job.id for job in near if not self._cluster.is_inferred(job)}
        if not told:
            return pl.DataFrame(schema=_TALKS)
        members = pl.DataFrame(
            [
                (node, job.id, job.job_class, start_of(job), end_of(job), job.id in told)
                for job in near
                for node in job.nodes
            ],
            schema=MEMBERS,
            orient="row",
        )
        pairs = binned(
            self._store, schema.PAIR, schema.PAIR.kept, (schema.BYTES,), (schema.SRC, schema.DST),
            start=start, stop=stop, seconds=MINUTE,
            where=[not_in(schema.DST, [OTHER])], as_stored=True,
        ).with_columns(
            pl.col(tag).replace_strict(self._groups, default="", return_dtype=pl.String).alias(group)
            for tag, group in ((schema.SRC, schema.SRC_GROUP), (schema.DST, schema.DST_GROUP))
        )  # fmt: skip
        received = binned(
            self._store, schema.NODE_TRAFFIC, schema.RAW, (schema.RX_BYTES,),
            (schema.NODE, schema.GROUP, schema.PEER_GROUP), start=start, stop=stop, seconds=MINUTE,
            where=[
                is_in(schema.PEER_GROUP, self._others), is_in(schema.GROUP, self._training),
                is_in(schema.PLANE, [Plane.COMPUTE.value]),
            ],
        ).filter(pl.col(schema.RX_BYTES.name) > 0)  # fmt: skip
        allowed = self._allowed
        of_groups = {schema.SRC_GROUP: schema.PEER_GROUP, schema.DST_GROUP: schema.GROUP}
        pairs = pairs.join(allowed, on=allowed.columns, how="semi")
        return pl.concat([
            *(strangers(part, members) for part in pairs.iter_slices(_ROWS)),
            from_groups(
                received.join(allowed.rename(of_groups), on=[schema.PEER_GROUP, schema.GROUP], how="semi"), members
            ),
        ])  # fmt: skip
