"""Plays one evasion: written beside what is usual, judged as the analysis does, taken out again."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from analysis.detectors.egress.exfiltration_study import ExfiltrationStudy, learnt, summed
from analysis.detectors.egress.history import EgressHistory
from analysis.detectors.egress.shapes import ShapeStudy
from analysis.detectors.study import Span, Study
from bench.evasions.library import Theft
from bench.evasions.scene import DAY, HOUR, NOW, add, stolen
from cluster.model import Cluster
from store import schema
from store.influx import Store
from store.points import WINDOW

_STEP = 4 * HOUR
_SHARD = "theft"


@dataclass(frozen=True)
class Outcome:
    """What was told of one trial.

    Attributes:
        alerts: incidents of the critical rule `exfiltration`.
        kind: which sum was too large first; empty without an alert.
        name: source and destination of the first.
        after: seconds from the theft's first byte to it.
        gone: bytes of the theft that had left by then.
        warned: odd ways out that warnings name besides.
    """

    alerts: int
    kind: str = ""
    name: tuple[str, str] = ("", "")
    after: int = 0
    gone: int = 0
    warned: tuple[str, ...] = ()


def study_of(cluster: Cluster, store: Store) -> ExfiltrationStudy:
    """Return the study of all groups, as the analysis has it."""
    return ExfiltrationStudy(cluster, store, EgressHistory(cluster, store), summed(cluster), learnt(cluster))


def judged(study: Study, start: int, stop: int, step: int = _STEP) -> pl.DataFrame:
    """Return the rows of a run over the past."""
    spans = [
        Span(at, min(at + step, stop), min(at + step, stop), min(at + step, stop)) for at in range(start, stop, step)
    ]
    return pl.concat(frame for span in spans for _, frame in study.judge(span, ()))


def play(cluster: Cluster, store: Store, theft: Theft, seed: int = 0) -> Outcome:
    """Return what is told of a theft.

    Args:
        cluster: whose thresholds count.
        store: holds what is usual; afterwards nothing else again.
        theft: what to do.
        seed: of sampling, and of the minute at which it begins; 0: on the hour.
    """
    # What is stored here are minutes: judging more often finds nothing sooner.
    cluster = replace(cluster, bridge=replace(cluster.bridge, window=60))
    delay = theft.delay + (int(np.random.default_rng(seed).integers(0, 60)) * 60 if seed else 0)
    begin = NOW + delay
    taken = pl.DataFrame()
    if theft.pairs:
        taken = stolen(
            theft.pairs, theft.volume, theft.seconds, delay=delay, bursts=theft.bursts,
            takes_turns=theft.takes_turns, rate=theft.rate, seed=seed,
        )  # fmt: skip
        add(store, taken, _SHARD)
    start, stop = (begin - 2 * HOUR) // HOUR * HOUR, begin // HOUR * HOUR + max(theft.seconds, DAY) + 2 * HOUR
    study = study_of(cluster, store)
    study.sampling = theft.rate
    # In one pass: shorter ones read the same weeks again and again.
    found = judged(study, start, stop, stop - start)
    shapes = judged(ShapeStudy(cluster, store, study.history), start, stop, stop - start)
    if theft.pairs:
        add(store, taken.with_columns(pl.lit(0, pl.Int64).alias("bytes")), _SHARD)
    warned = tuple(sorted(shapes.filter(pl.col(schema.LEAK_UNTIL.name) > 0).get_column(schema.KIND).unique()))
    alerts = found.filter(pl.col(schema.LEAK_UNTIL.name) > 0)
    begun = alerts.unique(list(schema.EXFILTRATION.tags), keep="first", maintain_order=True)
    if begun.is_empty():
        return Outcome(0, warned=warned)
    first = begun.row(0, named=True)
    gone = int(taken.filter(pl.col(WINDOW) < first[WINDOW]).get_column("bytes").sum()) if theft.pairs else 0
    name = (first[schema.SRC], first[schema.DST])
    return Outcome(begun.height, first[schema.KIND], name, first[WINDOW] - begin, gone, warned)
