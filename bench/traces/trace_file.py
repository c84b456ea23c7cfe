"""A trace of a training job: the operations of every worker in some sampled steps.

The columns are those of the traces published with "Understanding Stragglers in Large Model Training Using What-if
Analysis" (arXiv 2505.05713): `dp_rank`, `stage`, `rank`, `step`, `optype`, `start_ts` and `duration` (seconds since the
step began), `seq_id`, `mc` (model chunk). A *worker* is one data-parallel rank of one stage; what a trace leaves out
(tensor parallelism) stays inside its host.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from app.errors import UserError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc")
SENDS = {"forward-send": "forward-recv", "backward-send": "backward-recv"}
"""What a stage sends to its neighbour, and what the neighbour calls it."""

REDUCE, GATHER = "grads-reduce-scatter", "params-all-gather"
EMBEDDING = "embedding-grads-all-reduce"
COMPUTES = ("forward-compute", "backward-compute")
_KEY = ("rank", "optype", "seq_id", "mc")


@dataclass(frozen=True, slots=True)
class Trace:
    """Operations by position, in all steps; a step's times count from its own begin.

    Attributes:
        name: of the file, without its ending.
        ops: a row an operation: rank, dp_rank, stage, optype, seq_id, mc.
        start, end: [operation, step] seconds.
    """

    name: str
    ops: pl.DataFrame
    start: Floats
    end: Floats

    @property
    def workers(self) -> pl.DataFrame:
        """A row a worker, in the order of ranks: rank, dp_rank, stage."""
        return self.ops.select("rank", "dp_rank", "stage").unique().sort("rank")

    def worker_of_op(self) -> Ints:
        """Return [operation] the position of its worker."""
        ranks = self.workers.get_column("rank").to_numpy()
        return np.asarray(np.searchsorted(ranks, self.ops.get_column("rank").to_numpy()), np.int64)

    @property
    def stages(self) -> int:
        """Number of pipeline stages."""
        return self.ops.get_column("stage").n_unique()

    @property
    def steps(self) -> int:
        """Number of sampled steps."""
        return int(self.start.shape[1])


def read_trace(path: Path) -> Trace:
    """Read a Parquet file.

    Raises:
        UserError: it cannot be read, columns are missing, or it holds no whole step.
    """
    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(f"{path}: cannot be read: {error}", "a Parquet file of operations") from error
    if missing := [name for name in COLUMNS if name not in frame.columns]:
        raise UserError(f"{path}: no column {', '.join(missing)}", f"there must be {', '.join(COLUMNS)}")
    return trace_of(path.stem, frame)


def trace_of(name: str, frame: pl.DataFrame) -> Trace:
    """Return the trace of a frame with COLUMNS; UserError where no step of it can be played."""
    frame = frame.select(
        pl.col("dp_rank", "stage", "rank", "step", "seq_id", "mc").cast(pl.Int64),
        pl.col("optype").cast(pl.String),
        pl.col("start_ts").cast(pl.Float64).alias("start"),
        (pl.col("start_ts").cast(pl.Float64) + pl.col("duration").cast(pl.Float64)).alias("end"),
    ).drop_nulls()
    if not frame.height:
        raise UserError(f"{name}: no operations", "a row an operation of a worker in a step")
    if (negative := frame.filter(pl.col("end") < pl.col("start"))).height:
        raise UserError(f"{name}: {negative.height:,} operations end before they begin", "`duration` is in seconds")
    frame = frame.unique([*_KEY, "step"], keep="first", maintain_order=True)
    shapes = frame.group_by("step").agg(pl.struct(_KEY).hash().sort().implode().hash().first().alias("shape"))
    usual = shapes.get_column("shape").mode().sort()[0]
    steps = shapes.filter(pl.col("shape") == usual).get_column("step").sort()
    kept = frame.filter(pl.col("step").is_in(steps.implode()))
    # One order for all steps: that of the first.
    order = kept.filter(pl.col("step") == steps[0]).sort("rank", "start", "end", "seq_id", "optype")
    ops = order.select("rank", "dp_rank", "stage", "optype", "seq_id", "mc").with_row_index("op")
    placed = kept.join(ops.select("op", *_KEY), on=_KEY).sort("op", "step")
    shape = (ops.height, len(steps))
    start, end = (placed.get_column(one).to_numpy().reshape(shape) for one in ("start", "end"))
    if not ops.get_column("optype").is_in([*SENDS, REDUCE, GATHER]).any():
        raise UserError(f"{name}: nothing that crosses the network", f"such as {', '.join((*SENDS, REDUCE))}")
    return Trace(name, ops.drop("op"), start, end)
