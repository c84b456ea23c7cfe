"""What exporters make of played transfers: packet samples of sFlow, or flow records of NetFlow."""

import numpy as np
import polars as pl

from app.errors import UserError
from bench.traces.layout import host_name
from bench.traces.play import Played
from simulate.packets.flows import TCP, UDP

PACKET = {UDP: 4096 + 58, TCP: 9000}
"""IP bytes of a full packet: RoCEv2 at an MTU of 4,096 with its headers, TCP in jumbo frames."""

_ACK, _ACK_EVERY = 64, 2
_JITTER = 0.005
"""Seconds until an agent sends its sample, at most."""


def sflow(played: Played, rate: int, seed: int, proto: int = UDP) -> pl.DataFrame:
    """Return packet samples, in order: time, src, dst (hosts), src_rail, dst_rail, bytes (scaled by the rate).

    Args:
        played: what to sample.
        rate: one packet in so many.
        seed: of the sampling.
        proto: UDP, of RoCEv2, or TCP.
    """
    if rate < 1:
        raise UserError(f"a rate of {rate}: expected one packet in 1 or more", "such as 4096")
    rng = np.random.default_rng(seed)
    moved = played.transfers
    start, end, volume = (moved.get_column(name).to_numpy() for name in ("start", "end", "bytes"))
    packets = volume / PACKET[proto]
    found = [_drawn(moved, rng.poisson(packets / rate), PACKET[proto] * rate, rng, start, end)]
    if proto == TCP:
        acks = moved.rename({"src": "dst", "dst": "src", "src_rail": "dst_rail", "dst_rail": "src_rail"})
        drawn = rng.poisson(packets / _ACK_EVERY / rate)
        found.append(_drawn(acks.select(moved.columns), drawn, _ACK * rate, rng, start, end))
    samples = pl.concat(found)
    times = samples.get_column("time").to_numpy() + rng.random(samples.height) * _JITTER
    return named(samples.with_columns(time=times).filter(pl.col("time") < played.end).sort("time"))


def _drawn(  # noqa: PLR0917 - columns of one frame
    moved: pl.DataFrame,
    counts: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    size: int,
    rng: np.random.Generator,
    start: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    end: "np.ndarray[tuple[int], np.dtype[np.float64]]",
) -> pl.DataFrame:
    rows = np.repeat(np.arange(moved.height), counts)
    times = start[rows] + rng.random(len(rows)) * (end - start)[rows]
    picked = moved.select("src", "dst", "src_rail", "dst_rail")[rows]
    return picked.with_columns(time=pl.Series(times), bytes=pl.lit(size, pl.Int64))


def netflow(played: Played, timeout: float = 60.0) -> pl.DataFrame:
    """Return flow records: start, end (whole milliseconds), src, dst, src_rail, dst_rail, bytes.

    Unsampled. A record begins with the first packet after the one before was exported, and holds all until `timeout`
    seconds later: a job's queue pairs never end.
    """
    if timeout <= 0:
        raise UserError(f"an active timeout of {timeout} s: expected more than 0", "such as 60 or 10")
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
