"""Rows that studies of jobs give: columns, which become a frame when those of all jobs are together.

Of a small job, frames of its own cost more than all else that is done of it, and clusters run thousands of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cluster.model import Job
from store import schema
from store.points import WINDOW, columns
from store.schema import Measurement

Column = npt.NDArray[Any]
"""Numbers, NaN where there is none, or texts (objects)."""

QUIET = "_quiet"
"""Column (Boolean): such a row is not written, unless to replace one that was written before."""


Same = Mapping[str, str | float]
"""Tags and fields that are the same in many rows, by name."""


def tags_of(job: Job) -> dict[str, str | float]:
    """Return the tags of a job: what every row about it has."""
    return {schema.JOB: job.id, schema.JOB_CLASS: job.job_class}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a measurement.

    Attributes:
        columns: WINDOW in epoch seconds, tags, fields and perhaps QUIET, all of one length.
        same: tags and fields that are the same in all rows.
        is_open: whether they rest on more than the job's windows: until these are final, they may change without them.
    """

    measurement: Measurement
    columns: Mapping[str, Column]
    same: Same = field(default_factory=dict)
    is_open: bool = False

    @classmethod
    def of(
        cls,
        measurement: Measurement,
        names: Collection[str],
        rows: Sequence[Sequence[object]],
        same: Same | None = None,
    ) -> "Rows":
        """Return rows that are few: each the values of `names`, as ``store.points.columns`` gives them."""
        values = zip(*rows, strict=True) if rows else [()] * len(names)
        found = {name: _column(list(column)) for name, column in zip(names, values, strict=True)}
        return cls(measurement, found, same or {})

    def __len__(self) -> int:
        return len(self.columns[WINDOW])

    def __getitem__(self, name: str) -> Column:
        """Return a column."""
        return self.columns[name]

    def where(self, kept: npt.NDArray[np.bool_]) -> "Rows":
        """Return some of them."""
        return replace(self, columns={name: column[kept] for name, column in self.columns.items()})

    def frame(self) -> pl.DataFrame:
        """Return them as a frame; see `frame_of`."""
        return frame_of([self])


def frame_of(parts: Sequence[Rows]) -> pl.DataFrame:
    """Return rows of one measurement as one frame for ``store.points.encode``, in their order.

    A column that a part does not have is null in its rows, and so is NaN.
    """
    measurement = parts[0].measurement
    kinds = {**columns(*measurement.tags, *measurement.fields), QUIET: pl.Boolean()}
    heights = [len(part) for part in parts]
    has = {name for part in parts for name in (*part.columns, *part.same)}
    return pl.DataFrame([_series(name, kind, parts, heights) for name, kind in kinds.items() if name in has])


def _series(name: str, kind: pl.DataType, parts: Sequence[Rows], heights: Sequence[int]) -> pl.Series:
    if all(name in part.same for part in parts):
        values = np.repeat(_column([part.same[name] for part in parts]), heights)
    else:
        missing = None if kind == pl.String else np.nan
        values = np.concatenate(
            [
                part.columns[name] if name in part.columns else np.full(height, part.same.get(name, missing))
                for part, height in zip(parts, heights, strict=True)
            ]
        )
    if kind == pl.String:
        return pl.Series(name, values.tolist(), kind)
    return pl.Series(name, values, nan_to_null=True).cast(kind)


def _column(values: Sequence[object]) -> Column:
    return np.array(values, object if any(isinstance(value, str) for value in values) else None)
