"""What exporters make of played transfers: packet samples of sFlow, or flow records of NetFlow."""

import numpy as np
import polars as pl

from app.errors import UserError
from bench.traces.layout import host_name
from bench.traces.play import Played

PACKET = 4096 + 58
"""IP bytes of a full packet: RoCEv2 at an MTU of 4,096 with its headers."""

_JITTER = 0.005
"""Seconds until an agent sends its sample, at most."""


def sflow(played: Played, rate: int, seed: int) -> pl.DataFrame:
    """Return packet samples, in order: time, src, dst (hosts), src_rail, dst_rail, bytes (scaled by the rate).

    Args:
        played: what to sample.
        rate: one packet in so many.
        seed: of the sampling.
    """
    if rate < 1:
        raise UserError(f"a rate of {rate}: expected one packet in 1 or more", "such as 4096")
    rng = np.random.default_rng(seed)
    moved = played.transfers
    start, end, volume = (moved.get_column(name).to_numpy() for name in ("start", "end", "bytes"))
    rows = np.repeat(np.arange(moved.height), rng.poisson(volume / PACKET / rate))
    times = start[rows] + rng.random(len(rows)) * (end - start)[rows]
    picked = moved.select("src", "dst", "src_rail", "dst_rail")[rows]
    samples = picked.with_columns(
        time=pl.Series(times + rng.random(len(rows)) * _JITTER), bytes=pl.lit(PACKET * rate, pl.Int64)
    )
    return named(samples.filter(pl.col("time") < played.end).sort("time"))


def netflow(played: Played, timeout: float = 60.0) -> pl.DataFrame:
    """Return flow records: start, end (whole milliseconds), src, dst, src_rail, dst_rail, bytes.

    Unsampled. A record begins with the first packet after the one before was exported, and holds all until `timeout`
    seconds later: a job's queue pairs never end.
    """
    key = ("src", "dst", "src_rail", "dst_rail")
    ordered = played.transfers.sort(*key, "start")
    since = pl.col("start") - played.begin
    # Timeouts count from the first packet of each flow.
    record = ((since - since.min().over(key)) / timeout).floor().cast(pl.Int64).alias("record")
    found = ordered.group_by(*key, record).agg(pl.min("start"), pl.max("end"), pl.sum("bytes"))
    times = (pl.col("start", "end") * 1000).round() / 1000
    return named(found.drop("record").with_columns(times).sort("end", *key))


def named(frame: pl.DataFrame) -> pl.DataFrame:
    """Return hosts by name."""
    numbers = [frame.get_column(side) for side in ("src", "dst")]
    most = max((int(one.to_numpy().max(initial=0)) for one in numbers), default=0)
    names = [host_name(number) for number in range(most + 1)]
    every = pl.Series(names, dtype=pl.Enum(names))
    return frame.with_columns(every.gather(one.cast(pl.UInt32)).alias(one.name) for one in numbers)
