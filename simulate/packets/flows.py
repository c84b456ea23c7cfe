"""The columns in which simulated traffic travels: talks, then pieces of talks, then exported flow records.

A *talk* is one direction of a conversation at a constant rate. An exporter's active timeout cuts it into *pieces*. A
piece becomes one flow record at every exporter on its way (see ``simulate.packets.fabric``). Addresses are numbers of
``simulate.packets.addresses``; times are epoch milliseconds, ends exclusive.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from simulate.packets.polls import Poll

Ints = NDArray[np.int64]

TCP = 6
UDP = 17

NO_INCIDENT = -1

TALK_SCHEMA: dict[str, pl.DataType] = {
    "src": pl.Int64(),
    "dst": pl.Int64(),
    "src_port": pl.Int64(),
    "dst_port": pl.Int64(),
    "proto": pl.Int64(),
    "start": pl.Int64(),
    "end": pl.Int64(),
    "bytes": pl.Int64(),
    "packets": pl.Int64(),
    "incident": pl.Int64(),  # index into the scenario's incidents, NO_INCIDENT for ordinary traffic
}
"""Columns of talks and of pieces."""

FLOW_SCHEMA: dict[str, pl.DataType] = {
    "exporter": pl.Int64(),  # index into Cluster.exporters
    "export": pl.Int64(),  # when the exporter sends it, epoch ms
    "start": pl.Int64(),
    "end": pl.Int64(),  # of the last packet: inclusive, as exporters say it
    "src": pl.Int64(),
    "dst": pl.Int64(),
    "src_port": pl.Int64(),
    "dst_port": pl.Int64(),
    "proto": pl.Int64(),
    "tcp_flags": pl.Int64(),
    "in_iface": pl.Int64(),
    "out_iface": pl.Int64(),
    "packets": pl.Int64(),  # counters as exported: not multiplied by the rate
    "bytes": pl.Int64(),  # sFlow: length of the frame
    "rate": pl.Int64(),  # 1 in so many packets was sampled
    "counted": pl.Boolean(),  # False where another exporter counts the same flow
    "incident": pl.Int64(),
}
"""Columns of exported flow records."""

JUMBO = 9000
ETHERNET = 1500
_ACK = 64
_ACK_EVERY = 2


@dataclass(frozen=True, slots=True)
class FlowBatch:
    """Flow records in the order in which their exporters send them, with FLOW_SCHEMA.

    Attributes:
        frame: the records, sorted by `export`.
        until: epoch ms; all records sent before this moment are in this batch or an earlier one.
        polls: interface counters that sFlow agents send meanwhile, in their order.
    """

    frame: pl.DataFrame
    until: int
    polls: tuple["Poll", ...] = ()


def no_talks() -> pl.DataFrame:
    """Return a frame of talks without rows."""
    return pl.DataFrame(schema=TALK_SCHEMA)


def talks(
    *,
    src: ArrayLike,
    dst: ArrayLike,
    src_port: ArrayLike,
    dst_port: ArrayLike,
    start: ArrayLike,
    end: ArrayLike,
    volume: ArrayLike,
    proto: ArrayLike = TCP,
    packet: int = JUMBO,
    reply: ArrayLike | None = None,
    incident: int = NO_INCIDENT,
) -> pl.DataFrame:
    """Return talks and their answers, each argument a column or one value for all rows.

    Args:
        src: sender of the bulk of the bytes; whichever side opened the conversation.
        dst: receiver.
        src_port: port of `src`.
        dst_port: port of `dst`.
        start: epoch ms.
        end: epoch ms, exclusive.
        volume: IP bytes from src to dst.
        proto: IP protocol.
        packet: bytes of a full packet.
        reply: IP bytes back; None means bare acknowledgements of TCP, and nothing for other protocols.
        incident: what the forward direction is part of.
    """
    columns = [np.atleast_1d(np.asarray(v)) for v in (src, dst, src_port, dst_port, proto, start, end, volume)]
    source, target, port, service, protocol, first, last, size = (
        column.astype(np.int64) for column in np.broadcast_arrays(*columns)
    )
    last = np.maximum(last, first + 1)
    packets = np.maximum(-(-size // packet), 1)
    size = np.maximum(size, packets * 40)
    if reply is None:
        answer_packets = np.where(protocol == TCP, np.maximum(packets // _ACK_EVERY, 1), 0)
        answer = answer_packets * _ACK
    else:
        answer = np.broadcast_to(np.asarray(reply), size.shape).astype(np.int64)
        answer_packets = np.where(answer > 0, np.maximum(-(-answer // packet), 1), 0)
    forth = {
        "src": source, "dst": target, "src_port": port, "dst_port": service, "proto": protocol, "start": first,
        "end": last, "bytes": size, "packets": packets, "incident": np.full(len(source), incident),
    }  # fmt: skip
    back = forth | {
        "src": target, "dst": source, "src_port": service, "dst_port": port, "bytes": answer,
        "packets": answer_packets, "incident": np.full(len(source), NO_INCIDENT),
    }  # fmt: skip
    frames = (pl.DataFrame(columns, schema=TALK_SCHEMA) for columns in (forth, back))
    return pl.concat(frames).filter(pl.col("packets") > 0)


def cut(frame: pl.DataFrame, timeout: int) -> pl.DataFrame:
    """Cut talks into pieces no longer than the active timeout (ms), as exporters do; no byte or packet is lost."""
    if not frame.height:
        return frame
    start, end = column(frame, "start"), column(frame, "end")
    length = end - start
    pieces = np.maximum(-(-length // timeout), 1)
    row = np.repeat(np.arange(frame.height), pieces)
    number = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    before = np.minimum(number * timeout, length[row])
    after = np.minimum((number + 1) * timeout, length[row])
    span = np.maximum(length[row], 1)
    packets, size = column(frame, "packets")[row], column(frame, "bytes")[row]
    # Bytes follow packets, so that no piece has bytes without a packet.
    sent_before, sent_after = _share(packets, before, span), _share(packets, after, span)
    each, rest = np.divmod(size, packets)
    # The first packets have the byte more that a division leaves over.
    size_before, size_after = (each * sent + np.minimum(sent, rest) for sent in (sent_before, sent_after))
    return (
        frame[row]
        .with_columns(
            start=pl.Series(start[row] + before),
            end=pl.Series(start[row] + after),
            packets=pl.Series(sent_after - sent_before),
            bytes=pl.Series(size_after - size_before),
        )
        .filter(pl.col("packets") > 0)
    )


def _share(total: Ints, part: Ints, span: Ints) -> Ints:
    """floor(total * part / span) without overflow, for spans up to 2**31 (24 days in ms)."""
    whole, rest = np.divmod(total, span)
    return np.asarray(whole * part + rest * part // span, np.int64)


def clip(frame: pl.DataFrame, end: int) -> pl.DataFrame:
    """End all talks at `end` (epoch ms), with the bytes and packets that they had sent by then."""
    if not frame.height or int(column(frame, "end").max()) <= end:
        return frame
    span = pl.col("end") - pl.col("start")
    part = (pl.lit(end) - pl.col("start")).clip(0, span) / span
    return frame.with_columns(
        (pl.col("bytes") * part).cast(pl.Int64),
        (pl.col("packets") * part).ceil().cast(pl.Int64),
        pl.min_horizontal("end", pl.lit(end)).cast(pl.Int64),
    ).filter((pl.col("bytes") > 0) & (pl.col("packets") > 0) & (pl.col("start") < end))


def column(frame: pl.DataFrame, name: str) -> Ints:
    """Return an integer column as an array."""
    return frame.get_column(name).to_numpy().astype(np.int64, copy=False)
