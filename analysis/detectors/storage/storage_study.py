"""Phases, checkpoints and loading of a job, as the analyser runs them: all from one reading of its bursts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.detectors.rows import Rows, tags_of
from analysis.detectors.storage import checkpoints, dataset_load, phases
from analysis.detectors.storage.checkpoints import CheckpointCarry, CheckpointPolicy, Ledger, Usual
from analysis.detectors.storage.dataset_load import LoadCarry, LoadPolicy, LoadSubject
from analysis.detectors.storage.phases import PhaseCarry, PhasePolicy, Phases, Subject
from analysis.detectors.study import JobWindows, Memory
from analysis.evidence import Reader
from analysis.jobs.job_windows import computes_in_sight, gpus_in, gpus_of, start_of
from cluster.model import Cluster, Job, Role
from store import schema
from store.points import WINDOW

_HEARD_BEFORE = 3600
"""Seconds before a job over which is learnt how often each exporter is heard."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A job between two windows: what it is judged by, and what the windows so far hand on."""

    subject: Subject
    ledger: Ledger
    load_subject: LoadSubject
    phases: PhaseCarry
    checkpoints: CheckpointCarry
    load: LoadCarry


_PHASES = PhasePolicy()


class StorageStudy:
    """Judges what a job has to do with storage.

    Args:
        cluster: its job classes, transports, thresholds and costs.
        reader: of the store.
    """

    name = "storage"
    measurements = (schema.PHASE, schema.CHECKPOINT, schema.CHECKPOINT_STATUS, schema.DATASET_LOAD)
    closer = 0

    def __init__(self, cluster: Cluster, reader: Reader) -> None:
        self._cluster, self._reader, self._window = cluster, reader, cluster.bridge.window
        self._groups, self._gpus = {node.name: node.group for node in cluster.nodes}, gpus_of(cluster)

    def first(self, job: Job, earlier: Sequence[Memory], begin: int) -> Standing:
        """Return the standing before a job's first window."""
        plan = self._cluster.job_class(job.job_class).checkpoint
        # Each run hands on what it had from the one before; but the rhythm of an inferred job is that of any model.
        known: Any = earlier[0] if earlier and not self._cluster.is_inferred(job) else {}
        sees_compute, sees_storage = self._sees(job)
        subject = Subject(
            job=job,
            window=self._window,
            sees_compute=computes_in_sight(self._cluster, job, self._groups),
            level=float(known.get("level", 0.0)),
            checkpoint_bytes=plan.size,
            policy=_PHASES,
        )
        ledger = Ledger(
            job=job,
            window=self._window,
            plan=plan,
            regularity=self._cluster.thresholds.checkpoint_regularity,
            gpus=gpus_in(job, self._gpus),
            usd_per_gpu_hour=self._cluster.cost.usd_per_gpu_hour,
            sees_compute=sees_compute,
            sees_storage=sees_storage,
            policy=CheckpointPolicy(),
        )
        usual = Usual(*(tuple(known.get(name, ())) for name in ("gaps", "sizes", "lengths", "nodes")))
        heard = self._reader.storage_heard(begin - math.ceil(_HEARD_BEFORE / self._window) * self._window, begin)
        return Standing(
            subject,
            ledger,
            LoadSubject(job, self._window, LoadPolicy()),
            phases.first_carry(list(zip(usual.sizes, usual.lengths, strict=True)), heard, _PHASES),
            CheckpointCarry(usual),
            # What a job reads whose beginning the store has lost is no load any more.
            LoadCarry(is_over=begin > start_of(job)),
        )

    def _sees(self, job: Job) -> tuple[bool, bool]:
        """Return whether the job's collectives, and what it writes to any storage, cross devices that export flows."""
        groups = {self._groups[name] for name in job.nodes if name in self._groups}
        storage = self._cluster.groups_with(Role.STORAGE) or self._cluster.groups_with(Role.MODEL_STORAGE)
        sees_compute = all(self._cluster.transport_of(group, group).is_visible for group in groups)
        sees_storage = all(self._cluster.transport_of(a, b.id).is_visible for a in groups for b in storage)
        return sees_compute, sees_storage and bool(storage)

    def judge(self, job: Job, carry: Standing, windows: JobWindows) -> tuple[Standing, list[Rows]]:
        """Judge consecutive windows."""
        phase_carry, found = phases.follow(carry.subject, carry.phases, windows)
        checkpoint_carry, events, status = checkpoints.judge(carry.ledger, carry.checkpoints, found, windows)
        load_carry, loads = dataset_load.judge(carry.load_subject, carry.load, found, windows)
        after = Standing(carry.subject, carry.ledger, carry.load_subject, phase_carry, checkpoint_carry, load_carry)
        return after, [_phase_rows(job, found, windows), events, status, loads]

    def retold(self, job: Job, carry: Standing) -> Standing:
        """Return the standing of a job whose end became known."""
        return replace(
            carry,
            subject=replace(carry.subject, job=job),
            ledger=replace(carry.ledger, job=job),
            load_subject=replace(carry.load_subject, job=job),
        )

    def remember(self, job: Job, carry: Standing) -> Memory:
        """Return what is known of the class's checkpoints after this run."""
        del job
        usual = carry.checkpoints.usual
        level = phases.usual_level(carry.phases, _PHASES) or carry.subject.level
        return {
            "level": level,
            "gaps": list(usual.gaps),
            "sizes": list(usual.sizes),
            "lengths": list(usual.lengths),
            "nodes": list(usual.nodes),
        }


def _phase_rows(job: Job, found: Phases, windows: JobWindows) -> Rows:
    competing = windows.competing if len(windows.competing) == len(windows) else np.zeros(len(windows))
    totals = {
        schema.COMPUTE_BYTES: windows.sent.sum(axis=1),
        schema.JOB_READ_BYTES: windows.read.sum(axis=1),
        schema.JOB_WRITE_BYTES: windows.written.sum(axis=1),
        schema.OTHER_STORAGE_BYTES: competing,
    }
    return Rows(
        schema.PHASE,
        {
            WINDOW: windows.starts,
            schema.PHASE_STATE.name: found.phase,
            **{field.name: np.rint(values) for field, values in totals.items()},
        },
        tags_of(job),
    )
