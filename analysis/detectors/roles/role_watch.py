"""Roles, steps and verdicts of the running jobs, as the analyser has them told and stored; and where traffic is read.

It runs beside the live rounds: samples are kept for hours only, so that a rerun over the past tells nothing of them,
and takes nothing back.
"""

import time
from collections.abc import Sequence

import polars as pl

from analysis.beside import Beside
from analysis.detectors.roles.told import Told, tell
from analysis.detectors.roles.traffic import Traffic, traffic_of
from analysis.jobs.job_windows import end_of, start_of
from app.errors import UserError
from app.log import Log
from archive import samples
from archive import schema as archived
from archive.query import Filter, archive_folder, ask
from cluster.model import Cluster, Job, Role
from store import schema
from store.influx import Store
from store.points import WINDOW, batches
from store.schema import Measurement

EVERY = 300
"""Seconds between two looks at a job."""

LOOK = 600
"""Seconds of samples in a look."""

_MOST = 2_000_000
"""Samples of a look: of more, one in so many is taken."""

_PLACES = 5
_NOBODY = "nobody"
_POLL = 5.0


def samples_of(cluster: Cluster, start: float, stop: float, nodes: Sequence[str] = ()) -> Traffic:
    """Return packet samples in [start, stop), epoch seconds: of a job's nodes, or of all training nodes."""
    found = samples.read_samples(cluster, start, stop, nodes, _MOST)
    return traffic_of(found.with_columns(pl.col(samples.SRC_RAIL).clip(0)))


def records_of(cluster: Cluster, start: float, stop: float, nodes: Sequence[str] = ()) -> Traffic:
    """Return the same of the flow archive, a row a pair, address and second in which records ended."""
    groups = tuple(group.id for group in cluster.groups_with(Role.TRAINING))
    asked = Filter(int(start), int(stop), node=tuple(nodes), group=() if nodes else groups)
    by = (archived.SRC_NODE, archived.DST_NODE, archived.SRC, archived.END)
    rails = {str(one.address): one.rail or 0 for node in cluster.nodes for one in node.addresses}
    try:
        found = ask(archive_folder(cluster), asked, by, settings=cluster.archive).frame
    except UserError:
        # Nothing was archived.
        found = pl.DataFrame(schema={name: archived.SCHEMA[name] for name in (*by, archived.BYTES)})
    inside = nodes or [node.name for node in cluster.nodes if node.group in groups]
    return traffic_of(
        found.filter(pl.all_horizontal(pl.col(archived.SRC_NODE, archived.DST_NODE).is_in(inside))).select(
            pl.col(archived.SRC_NODE).alias("src"), pl.col(archived.DST_NODE).alias("dst"), archived.BYTES,
            pl.col(archived.END).alias("time"),
            pl.col(archived.SRC).replace_strict(rails, default=0, return_dtype=pl.Int64).alias("src_rail"),
        )
    )  # fmt: skip


class RoleLook:
    """Looks at each running job every five minutes, and stores what is told.

    Args:
        cluster: whose samples are read.
        store: written to; used by one thread at a time.
    """

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster, self._store = cluster, store
        self._looked: dict[tuple[str, float], float] = {}
        self.jobs: Sequence[Job] = ()

    def look(self, now: float | None = None) -> int:
        """Look at the jobs that are due; return how many had steps. StoreError: the next look does it all."""
        now = time.time() if now is None else now
        running = {(job.id, start_of(job)): job for job in self.jobs if start_of(job) < now < end_of(job)}
        self._looked = {key: moment for key, moment in self._looked.items() if key in running}
        told = 0
        for key, job in running.items():
            # Also after a clock that was set back.
            if len(job.nodes) < 2 or abs(now - self._looked.get(key, 0)) < EVERY:
                continue
            traffic = samples_of(self._cluster, max(start_of(job), now - LOOK), now, job.nodes)
            if len(traffic.time):
                # Not until now: that samples are under way is no silence of the job.
                told += self._write(job, tell(traffic, samples.newest_sample(self._cluster)), now)
            self._looked[key] = now
        return told

    def _write(self, job: Job, told: Told, now: float) -> bool:
        if told.steps is None:
            return False
        judged = told.judged().head(_PLACES)
        if judged.is_empty():
            judged = pl.DataFrame({schema.BLAME.name: [_NOBODY]})
        judged = judged.with_columns(pl.int_range(1, pl.len() + 1).cast(pl.String).alias(schema.PLACE))
        moment = int(now // self._cluster.bridge.window * self._cluster.bridge.window)
        frames: list[tuple[Measurement, pl.DataFrame]] = [
            (schema.JOB_ROLE, told.nodes()), (schema.JOB_PAIR, told.matrix()), (schema.JOB_VERDICT, judged),
            (schema.JOB_STEPS, told.windows(self._cluster.bridge.window)),
        ]  # fmt: skip
        for measurement, frame in frames:
            at = [] if WINDOW in frame.columns else [pl.lit(moment).alias(WINDOW)]
            for lines, _ in batches(measurement, frame.with_columns(pl.lit(job.id).alias(schema.JOB), *at)):
                self._store.write(lines, schema.RAW)
        return True


class RoleWatching:
    """Looks that go on beside the analysis, with a connection of their own.

    Args:
        cluster: see `RoleLook`.
        store: see there.
        log: told of what went wrong.
    """

    def __init__(self, cluster: Cluster, store: Store, log: Log) -> None:
        self._store = store.another()
        self._look = RoleLook(cluster, self._store)
        self._beside = Beside("roles", self._look.look, log, _POLL)

    def start(self) -> None:
        """Begin."""
        self._beside.start()

    def know(self, jobs: Sequence[Job]) -> None:
        """Take the jobs that are looked at from now on."""
        self._look.jobs = jobs

    def stop(self) -> None:
        """End."""
        self._beside.stop()
        self._store.close()
