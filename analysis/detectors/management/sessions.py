"""Sessions of management: records of one client, server and service, joined while gaps are short.

What a flow record tells of a session is who opened it, what was sent and when. It tells neither what was typed nor
whether the login succeeded.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from archive import schema
from archive.query import Filter
from cluster.model import Cluster, Role
from ingest.flows.service_ports import (
    ANSWERS,
    NO_HANDSHAKE,
    OPENS,
    ServiceBook,
    handshakes,
    protocol_names,
)

SENT, RECEIVED = "sent", "received"
"""Bytes of the client, and bytes that it got."""
CONNECTIONS, PORT = "connections", "port"
BEGUN_BEFORE, GOES_ON = "begun_before", "goes_on"
"""Whether a session may have begun before the period, or gone on after it."""

KEYS = (
    schema.SRC_NODE, schema.SRC_GROUP, schema.DST_NODE, schema.DST_GROUP, schema.PROTOCOL, schema.SERVICE, PORT,
)  # fmt: skip
"""What a session is of; SRC opened it."""

_TALK = ["near", "near_port", "far", "far_port", schema.PROTOCOL]
_SIDED = ((schema.SRC, schema.DST), (schema.SRC_NODE, schema.DST_NODE), (schema.SRC_GROUP, schema.DST_GROUP),
          (schema.SRC_PORT, schema.DST_PORT))  # fmt: skip


def served(cluster: Cluster, services: Sequence[str] = ()) -> Filter:
    """Return the question for all records of management services, or of some of them; its period is empty."""
    settings = cluster.management
    managing = tuple(group.id for group in cluster.groups_with(Role.MANAGEMENT))
    protocols = protocol_names()
    asked = [(settings.sessions, ()), *([(settings.sessions_there, managing)] if managing else [])]
    return Filter(
        0, 0, either_way=True,
        served=tuple(
            (protocols[protocol], service.ports, groups)
            for names, groups in asked
            for service in cluster.services
            if service.name in names and (not services or service.name in services)
            for protocol in service.protocols
        ),
    )  # fmt: skip


def oriented(records: pl.DataFrame, cluster: Cluster) -> pl.DataFrame:
    """Return the records of management services with the client as source, and SENT, RECEIVED, PORT.

    Which side is the client, TCP flags of any record of its connection say, whichever direction was seen; else the port
    does that belongs to a service; where both ports are the same, who was seen first.

    Args:
        records: rows of the flow archive.
        cluster: its services, and which of them are management's.
    """
    book = ServiceBook(cluster.services)
    codes = {name: code for code, name in enumerate(protocol_names())}
    protocol = records[schema.PROTOCOL].replace_strict(codes, default=len(codes) - 1, return_dtype=pl.Int64).to_numpy()
    src_port, dst_port = (records[name].cast(pl.Int64).to_numpy() for name in (schema.SRC_PORT, schema.DST_PORT))
    packets = (records[schema.PACKETS] // records[schema.RATE].clip(1)).to_numpy()
    flags = handshakes(protocol, records[schema.TCP_FLAGS].cast(pl.Int64).to_numpy(), packets)
    says = np.zeros(len(records), np.int8) if flags is None else flags
    _, by_port = book.resolve(protocol, src_port, dst_port)
    is_turned = (pl.col(schema.SRC) > pl.col(schema.DST)) | (
        (pl.col(schema.SRC) == pl.col(schema.DST)) & (pl.col(schema.SRC_PORT) > pl.col(schema.DST_PORT))
    )
    ends = (("near", schema.SRC, schema.DST), ("near_port", schema.SRC_PORT, schema.DST_PORT),
            ("far", schema.DST, schema.SRC), ("far_port", schema.DST_PORT, schema.SRC_PORT))  # fmt: skip
    is_open = pl.col("says") == OPENS
    near_opens = pl.when(pl.col("says") != NO_HANDSHAKE).then(is_open != pl.col("turned"))
    is_even = pl.col(schema.SRC_PORT) == pl.col(schema.DST_PORT)
    judged = (
        records.with_columns(pl.Series("says", says), pl.Series("src_serves", by_port), is_turned.alias("turned"))
        .with_columns(
            *(pl.when("turned").then(other).otherwise(one).alias(name) for name, one, other in ends),
            near_opens.alias("near_opens"),
        )
        .sort(schema.START, maintain_order=True)
        .with_columns(
            pl.coalesce(
                pl.col("near_opens").drop_nulls().first().over(_TALK),
                # The first record's source opened it.
                pl.when(is_even).then(~pl.col("turned").first().over(_TALK)),
                ~pl.col("src_serves") != pl.col("turned"),
            ).alias("near_opens")
        )
        .with_columns((pl.col("near_opens") == pl.col("turned")).alias("src_serves"))
    )
    serves = judged["src_serves"].to_numpy()
    src_port, dst_port = (judged[name].cast(pl.Int64).to_numpy() for name in (schema.SRC_PORT, schema.DST_PORT))
    numbers = judged[schema.PROTOCOL].replace_strict(codes, default=len(codes) - 1, return_dtype=pl.Int64).to_numpy()
    service, _ = book.resolve(numbers, src_port, dst_port, np.where(serves, ANSWERS, OPENS).astype(np.int8))
    settings = cluster.management
    managing = [group.id for group in cluster.groups_with(Role.MANAGEMENT)]
    name, server = pl.col(schema.SERVICE), pl.col(schema.DST_GROUP)
    volume = pl.col(schema.BYTES)
    return (
        judged.with_columns(
            pl.Series(schema.SERVICE, book.names).gather(pl.Series(service, dtype=pl.UInt32)),
            *(
                pl.when("src_serves").then(b if column == a else a).otherwise(column).alias(column)
                for a, b in _SIDED
                for column in (a, b)
            ),
            pl.when("src_serves").then(0).otherwise(volume).alias(SENT),
            pl.when("src_serves").then(volume).otherwise(0).alias(RECEIVED),
        )
        .filter(name.is_in(settings.sessions) | (name.is_in(settings.sessions_there) & server.is_in(managing)))
        .with_columns(pl.col(schema.DST_PORT).cast(pl.Int64).alias(PORT))
        .select(*records.columns, SENT, RECEIVED, PORT)
    )


def joined(records: pl.DataFrame, gap: int, start: int, stop: int) -> pl.DataFrame:
    """Return sessions, a row each, in the order in which they began.

    Args:
        records: as `oriented` gives them.
        gap: seconds: a record that begins later than this after the end of all before it begins another session.
        start: begin of the period whose records these are, epoch seconds.
        stop: its end.

    Returns:
        KEYS, src, dst (an address of each), start, end, seconds, sent, received, connections, flows,
        BEGUN_BEFORE, GOES_ON.
    """
    ended = pl.col(schema.END).cum_max().shift(1).over(KEYS)
    begins = (pl.col(schema.START) - ended > gap).fill_null(value=True)
    return (
        records.sort(schema.START, schema.END)
        .with_columns(begins.cum_sum().over(KEYS).alias("number"))
        .group_by(*KEYS, "number")
        .agg(
            pl.min(schema.SRC, schema.DST, schema.START),
            pl.max(schema.END),
            pl.sum(SENT, RECEIVED, schema.FLOWS),
            pl.struct(schema.SRC, schema.SRC_PORT).n_unique().cast(pl.Int64).alias(CONNECTIONS),
        )
        .with_columns(
            (pl.col(schema.END) - pl.col(schema.START)).alias("seconds"),
            (pl.col(schema.START) <= start + gap).alias(BEGUN_BEFORE),
            (pl.col(schema.END) >= stop - gap).alias(GOES_ON),
        )
        .drop("number")
        .sort(schema.START, *KEYS)
    )


def by_pair(sessions: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Return how often, how long and how much for each value of columns: the most sessions first."""
    return (
        sessions.group_by(columns)
        .agg(
            pl.len().cast(pl.Int64).alias("sessions"),
            pl.sum("seconds"),
            pl.max("seconds").alias("longest"),
            pl.sum(SENT, RECEIVED, CONNECTIONS, schema.FLOWS),
            pl.min(schema.START),
            pl.max(schema.END),
        )
        .sort("sessions", *columns, descending=[True, *[False] * len(columns)])
    )
