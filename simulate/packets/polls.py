"""Interface counters of sFlow agents: what really went through their interfaces, told at regular times."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from cluster.model import Cluster
from simulate.incidents.incident import Incident, IncidentKind
from simulate.packets.flows import Ints, column

POLL_SECONDS = 20
"""What sFlow agents do unless told otherwise."""

DEFAULT_SPEED = 10_000_000_000

CARRIED_SCHEMA: dict[str, pl.DataType] = {
    "exporter": pl.Int64(),
    "in_iface": pl.Int64(),
    "out_iface": pl.Int64(),
    "start": pl.Int64(),
    "end": pl.Int64(),
    "octets": pl.Int64(),  # frames, before sampling
}
"""Columns of what interfaces of sFlow agents carried."""


@dataclass(frozen=True, slots=True)
class InterfaceCounters:
    """Running totals of one interface; `speed` in bits per second."""

    index: int
    speed: int
    in_octets: int
    out_octets: int
    in_errors: int = 0
    out_errors: int = 0
    in_discards: int = 0
    out_discards: int = 0


@dataclass(frozen=True, slots=True)
class Poll:
    """What an agent (exporter number) tells of all its interfaces at a moment (epoch ms)."""

    at: int
    exporter: int
    interfaces: tuple[InterfaceCounters, ...]


class LinkCounters:
    """Counts what interfaces carry, and makes the polls.

    Args:
        cluster: its exporters.
        agents: numbers of those that speak sFlow.
        incidents: of the scenario; some fill an interface.
    """

    def __init__(self, cluster: Cluster, agents: Iterable[int], incidents: Iterable[Incident] = ()) -> None:
        self._speeds = {
            (number, interface.index): interface.speed or DEFAULT_SPEED
            for number in agents
            for interface in cluster.exporters[number].interfaces
        }
        self._agents = sorted({number for number, _ in self._speeds})
        numbers = {exporter.name: number for number, exporter in enumerate(cluster.exporters)}
        self._full = [
            ((numbers[one.exporter], one.interface), one)
            for one in incidents
            if one.kind is IncidentKind.CONGESTED_LINK
        ]
        self._done: tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]] = Counter(), Counter()
        self._waiting = pl.DataFrame(schema=CARRIED_SCHEMA)

    def add(self, carried: pl.DataFrame) -> None:
        """Take what was carried (CARRIED_SCHEMA)."""
        self._waiting = pl.concat([self._waiting, carried])

    def polls(self, after: int, until: int, seconds: int = POLL_SECONDS) -> tuple[Poll, ...]:
        """Return the polls after one moment up to another (epoch ms), in their order; ask for each time once."""
        step = seconds * 1000
        return tuple(poll for at in range(after - after % step + step, until + 1, step) for poll in self._at(at))

    def _at(self, at: int) -> list[Poll]:
        over = self._waiting.filter(pl.col("end") <= at)
        self._waiting = self._waiting.filter(pl.col("end") > at)
        sides = list(zip(("in_iface", "out_iface"), self._done, strict=True))
        for name, total in sides:
            _sum(total, over, column(over, "octets"), name)
        so_far = tuple(Counter(total) for total in self._done)
        start, end = column(self._waiting, "start"), column(self._waiting, "end")
        passed = column(self._waiting, "octets") * np.clip(at - start, 0, None) // np.maximum(end - start, 1)
        for (name, _), total in zip(sides, so_far, strict=True):
            _sum(total, self._waiting, passed, name)
        discarded: Counter[tuple[int, int]] = Counter()
        for link, one in self._full:
            lasted = min(max(at / 1000 - one.start, 0), one.end - one.start)
            so_far[1][link] += int(self._speeds[link] / 8 * one.load * lasted)
            discarded[link] += int(one.discards * lasted)
        return [
            Poll(
                at,
                agent,
                tuple(
                    InterfaceCounters(
                        index,
                        speed,
                        so_far[0][agent, index],
                        so_far[1][agent, index],
                        out_discards=discarded[agent, index],
                    )
                    for (number, index), speed in self._speeds.items()
                    if number == agent
                ),
            )
            for agent in self._agents
        ]


def _sum(total: Counter[tuple[int, int]], frame: pl.DataFrame, octets: Ints, interface: str) -> None:
    sums = frame.with_columns(octets=pl.Series(octets)).group_by("exporter", interface).agg(pl.sum("octets"))
    for exporter, index, size in sums.iter_rows():
        total[exporter, index] += size


def as_printed(poll: Poll, agent: str, sequence: int) -> list[str]:
    """Return a poll's lines as sfacctd 1.7.7 writes them.

    Args:
        poll: the poll.
        agent: its address.
        sequence: number of the sample, of each interface.
    """
    moment = f"{poll.at // 1000}.{poll.at % 1000:03}000"
    return [
        json.dumps(
            {
                "timestamp": moment,
                "peer_ip_src": agent,
                "event_type": "log",
                "source_id_index": one.index,
                "sflow_cnt_seq": sequence,
                "sf_cnt_type": "sflow_cnt_generic",
                "ifIndex": one.index,
                "ifType": 6,
                "ifSpeed": one.speed,
                "ifDirection": 1,
                "ifStatus": 3,
                "ifInOctets": one.in_octets,
                "ifInDiscards": one.in_discards,
                "ifInErrors": one.in_errors,
                "ifOutOctets": one.out_octets,
                "ifOutDiscards": one.out_discards,
                "ifOutErrors": one.out_errors,
            }
        )
        for one in poll.interfaces
    ]
