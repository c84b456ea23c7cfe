"""Running totals of everything that the pipeline did or refused, and its latest readings."""

import threading
from collections.abc import Iterable, Mapping

import polars as pl

from store import schema
from store.points import columns
from store.schema import Stage

Key = tuple[str, str]
"""Stage and reason."""

_BEFORE = 60
"""Seconds by which a total was 0 before it was told first."""


class Counters:
    """Totals only grow and survive a restart through the checkpoint; readings are of now. Safe to use from threads."""

    def __init__(self) -> None:
        self._totals: dict[Key, float] = {}
        self._readings: dict[Key, float] = {}
        self._told: set[Key] = set()
        self._lock = threading.Lock()

    def add(self, stage: Stage, reason: str, amount: float = 1) -> None:
        """Add to a total; an amount of 0 makes the total known as 0."""
        key = (stage.value, reason)
        with self._lock:
            self._totals[key] = self._totals.get(key, 0) + amount

    def add_all(self, stage: Stage, amounts: Mapping[str, float]) -> None:
        """Add to several totals of a stage."""
        for reason, amount in amounts.items():
            self.add(stage, reason, amount)

    def read(self, stage: Stage, reason: str, value: float) -> None:
        """Set a reading."""
        with self._lock:
            self._readings[stage.value, reason] = value

    def total(self, stage: Stage, reason: str) -> float:
        """Return a total; 0 if nothing was added yet."""
        return self._totals.get((stage.value, reason), 0)

    def totals(self) -> Iterable[tuple[Key, float]]:
        """Return all totals in order of their names."""
        with self._lock:
            return sorted(self._totals.items())

    def take(self) -> Iterable[tuple[Key, float]]:
        """Return all totals, and begin again at nothing."""
        with self._lock:
            totals, self._totals = self._totals, {}
        return sorted(totals.items())

    def readings(self) -> Iterable[tuple[Key, float]]:
        """Return all readings in order of their names."""
        with self._lock:
            return sorted(self._readings.items())

    def points(self, window: int, shard: str) -> pl.DataFrame:
        """Return totals and readings as rows of the `pipeline` measurement at this window.

        A total that is told for the first time was 0 a minute before: growth is the difference of what is stored.
        """
        totals = dict(self.totals())
        rows: list[tuple[object, ...]] = [(window, *key, shard, value, None) for key, value in totals.items()]
        rows += [(window - _BEFORE, *key, shard, 0.0, None) for key in totals.keys() - self._told]
        self._told |= totals.keys()
        rows += [(window, *key, shard, None, value) for key, value in self.readings()]
        kinds = columns(schema.STAGE, schema.REASON, schema.SHARD, schema.TOTAL, schema.VALUE)
        return pl.DataFrame(rows, schema=kinds, orient="row")

    def dump(self) -> list[tuple[str, str, float]]:
        """Return the totals for the checkpoint."""
        return [(stage, reason, value) for (stage, reason), value in self.totals()]

    def load(self, rows: Iterable[tuple[str, str, float]]) -> None:
        """Take the totals of a checkpoint."""
        self._totals = {(stage, reason): value for stage, reason, value in rows}
        self._told = set(self._totals)
