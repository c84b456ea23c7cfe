"""A background for weeks: a few conversations of each kind, at fixed rhythms and by the hour of the day.

What `background` draws at its natural rate would fill a store with millions of points a day. Here everybody
still talks to everybody with whom they ordinarily do, every exporter is heard each minute, and inference has its days,
nights and weekends; but most conversations fit into one window.
"""

from collections.abc import Callable, Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cluster.calendar import DAY, SATURDAY, THURSDAY, local_time, off_window_mask
from cluster.model import ExportProtocol
from simulate.packets.flows import ETHERNET, UDP, Ints, no_talks, talks
from simulate.scenarios.scenario import Run
from simulate.traffic.background import Draw
from simulate.traffic.cast import Cast

_HTTPS, _INFERENCE_PORT, _SSH, _DNS, _NTP, _SNMP, _METRICS, _LUSTRE = 443, 8443, 22, 53, 123, 161, 9100, 988
_OSPF = 89

_MINUTE, _HOUR = 60_000, 3_600_000
_GRID = 10_000
"""Milliseconds: conversations begin on this grid, so that a short one lies in one window."""

_USERS_EACH, _CLIENTS_EACH = 2, 1
"""Clients of each inference server: from groups of users, and from the internet."""

LOAD_SECONDS = 300
"""Each client asks once in so many seconds ..."""
_REQUEST, _ANSWER = 3e6, 30e6
"""... so many bytes at the weekly peak, and gets so many."""

_CHATTER = 6_800
"""Bytes a second that a switch hears of its neighbours while a job runs: enough to be sampled each minute."""

_BEFORE = 3_600_000
"""Milliseconds."""

_NIGHT, _WEEKEND = 0.3, 0.5
"""Load of inference at 4 in the morning, and at weekends, as a share of a working day's afternoon."""
_LOAD_NOISE = 0.05

_INFERENCE, _PULLS, _REPLICATION, _SNMP_POLLS, _LOGINS, _NAMES, _TIME = range(300, 307)
"""Streams of random numbers for who begins when."""


def _beats(draw: Draw, parties: int, period: int, stream: int) -> tuple[Ints, Ints]:
    """Return (party, epoch ms) of everything that begins in the slice: each party once in a period (ms)."""
    rng = np.random.default_rng([draw.seed, stream])
    offset = rng.integers(0, max(period // _GRID, 1), parties) * _GRID
    first = draw.start + (offset - draw.start) % period
    count = np.maximum(-(-(draw.end - first) // period), 0)
    party = np.repeat(np.arange(parties), count)
    number = np.arange(len(party)) - np.repeat(np.cumsum(count) - count, count)
    return party, first[party] + number * period


def load_level(cast: Cast, at: Ints) -> NDArray[np.float64]:
    """Return the load of inference at some moments (epoch ms) as a share of its weekly peak: a day's hump."""
    site = cast.cluster.site
    local = local_time(site.time_zone, at // 1000)
    hour = local % DAY / 3600
    hump = (1 - np.cos((hour - 4) / 24 * 2 * np.pi)) / 2
    is_weekend = (local // DAY + THURSDAY) % 7 >= SATURDAY
    return np.asarray((_NIGHT + (1 - _NIGHT) * hump) * np.where(is_weekend, _WEEKEND, 1.0), np.float64)


def _pairs(cast: Cast) -> list[tuple[int, int]]:
    """Return (client, server): each inference server has a few clients of its own."""
    return [
        (int(client), int(server))
        for clients, each in ((cast.users, _USERS_EACH), (cast.clients, _CLIENTS_EACH))
        if cast.allowed(clients, cast.inference)
        for position, server in enumerate(cast.inference)
        for client in clients[[(position * each + number) % len(clients) for number in range(each)]]
    ]


def expected_load(cast: Cast, at: int) -> float:
    """Return what all clients of inference together send at a moment (epoch seconds), bytes a second."""
    level = float(load_level(cast, np.array([at * 1000]))[0])
    return len(_pairs(cast)) * _REQUEST * level / LOAD_SECONDS


def inference_requests(draw: Draw) -> pl.DataFrame:
    """Each inference server has a few clients, which ask every five minutes; nobody outside `inference.hours`."""
    cast = draw.cast
    pairs = _pairs(cast)
    party, start = _beats(draw, len(pairs), LOAD_SECONDS * 1000, _INFERENCE)
    site, hours = cast.cluster.site, cast.cluster.inference.hours
    # Nobody asks in the last minute before closing time, so that no request reaches beyond it.
    asks = ~off_window_mask(site, hours, start // 1000) & ~off_window_mask(site, hours, start // 1000 + 60)
    party, start = party[asks], start[asks]
    if not len(party):
        return no_talks()
    client, server = np.array(pairs, np.int64)[party].T
    level = load_level(cast, start) * draw.rng.lognormal(0, _LOAD_NOISE, len(party))
    return talks(
        src=client,
        dst=server,
        src_port=draw.ports(len(party)),
        dst_port=_INFERENCE_PORT,
        start=start + 500,
        end=start + draw.rng.integers(4_000, 9_000, len(party)),
        volume=level * _REQUEST,
        reply=level * _ANSWER,
        packet=ETHERNET,
    )


def model_pulls(draw: Draw) -> pl.DataFrame:
    """Inference servers fetch a model four times a day."""
    cast = draw.cast
    if not cast.allowed(cast.models, cast.inference):
        return no_talks()
    party, start = _beats(draw, len(cast.inference), 6 * _HOUR, _PULLS)
    n = len(party)
    return talks(
        src=draw.pick(cast.models, n),
        dst=cast.inference[party],
        src_port=_HTTPS,
        dst_port=draw.ports(n),
        start=start,
        end=start + draw.rng.integers(12_000, 25_000, n),
        volume=draw.rng.uniform(8e9, 20e9, n),
    )


def replication(draw: Draw) -> pl.DataFrame:
    """Storage and model storage copy to their neighbours every hour."""
    cast, frames = draw.cast, [no_talks()]
    for number, (servers, volume) in enumerate(
        (
            (cast.storage_v6 if len(cast.storage_v6) > 1 else cast.storage, 2e9),
            (cast.models_v6 if len(cast.models_v6) > 1 else cast.models, 1e9),
        )
    ):
        if len(servers) < 2:
            continue
        party, start = _beats(draw, len(servers), _HOUR, _REPLICATION + 100 * number)
        frames.append(
            talks(
                src=servers[party],
                dst=servers[(party + 1) % len(servers)],
                src_port=draw.ports(len(party)),
                dst_port=_LUSTRE,
                start=start,
                end=start + draw.rng.integers(3_000, 9_000, len(party)),
                volume=draw.rng.uniform(0.8, 1.2, len(party)) * volume,
            )
        )
    return pl.concat(frames)


def management(draw: Draw) -> pl.DataFrame:
    """Managers poll every node's management port every three hours, and log in now and then."""
    cast, frames = draw.cast, [no_talks()]
    if not cast.allowed(cast.managers, cast.control):
        return no_talks()
    for port, proto, period, stream, request, answer in (
        (_SSH, 6, 12 * _HOUR, _LOGINS, 60_000, 300_000),
        (_SNMP, UDP, 3 * _HOUR, _SNMP_POLLS, 9_000, 90_000),
    ):
        party, start = _beats(draw, len(cast.control), period, stream)
        n = len(party)
        frames.append(
            talks(
                src=draw.pick(cast.managers, n),
                dst=cast.control[party],
                src_port=draw.ports(n),
                dst_port=port,
                proto=proto,
                start=start,
                end=start + draw.rng.integers(1_000, 9_000, n),
                volume=draw.rng.uniform(0.5, 1.5, n) * request,
                reply=draw.rng.uniform(0.5, 1.5, n) * answer,
                packet=600,
            )
        )
    return pl.concat(frames)


def names_and_time(draw: Draw) -> pl.DataFrame:
    """Every node asks the managers for names and the time every three hours."""
    cast, frames = draw.cast, [no_talks()]
    training = np.array(list(cast.training.values()), np.int64)
    groups = (training, cast.storage, cast.inference, cast.models)
    nodes = np.concatenate([group for group in groups if cast.allowed(group, cast.managers)] or [training[:0]])
    for port, stream, request, answer in ((_DNS, _NAMES, 4_000, 9_000), (_NTP, _TIME, 760, 760)):
        party, start = _beats(draw, len(nodes), 3 * _HOUR, stream)
        n = len(party)
        if not n:
            continue
        frames.append(
            talks(
                src=nodes[party],
                dst=draw.pick(cast.managers, n),
                src_port=draw.ports(n),
                dst_port=port,
                proto=UDP,
                start=start,
                end=start + draw.rng.integers(5, 50, n),
                volume=request,
                reply=answer,
                packet=max(request, answer) // 10,
            )
        )
    return pl.concat(frames)


def hellos(draw: Draw) -> pl.DataFrame:
    """Every switch hears its neighbour's routing protocol, bundled every second minute, so that none is silent."""
    cast = draw.cast
    minutes = np.arange(draw.start + -draw.start % _MINUTE, draw.end, _MINUTE)
    speakers = _speakers(cast)
    start, number = np.repeat(minutes, len(speakers)), np.tile(np.arange(len(speakers)), len(minutes))
    # Half of them in each minute: there is none without any record.
    speaks = (start // _MINUTE + number) % 2 == 0
    start, number = start[speaks], number[speaks]
    return talks(
        src=np.array(speakers, np.int64)[number],
        dst=cast.all_routers,
        src_port=0,
        dst_port=0,
        proto=_OSPF,
        start=start,
        end=start + 5_000,
        volume=680_000,
        packet=68,
    )


def chatter(draw: Draw, runs: Iterable[Run]) -> pl.DataFrame:
    """While a job runs, and the hour before, every switch hears something in every window, whatever the job does.

    Without it, a job that stops would look as if its switches had fallen silent, and their silence would mean nothing.
    """
    wanted = sorted((run.start * 1000 - _BEFORE, run.end * 1000) for run in runs)
    spans: list[tuple[int, int]] = []
    for begin, stop in wanted:
        start, end = max(begin, draw.start, spans[-1][1] if spans else begin), min(stop, draw.end)
        if start < end:
            spans.append((start, end))
    found = [(number, *span) for span in spans for number in _speakers(draw.cast)]
    return talks(
        src=[number for number, _, _ in found],
        dst=draw.cast.all_routers,
        src_port=0,
        dst_port=0,
        proto=_OSPF,
        start=[start for _, start, _ in found],
        end=[end for _, _, end in found],
        volume=[(end - start) * _CHATTER // 1000 for _, start, end in found],
        packet=68,
    )


def _speakers(cast: Cast) -> list[int]:
    """Return the addresses that switches of NetFlow hear hellos from."""
    return [
        cast.addresses.number(address)
        for address, exporter in zip(cast.routers, cast.cluster.exporters, strict=True)
        if exporter.protocol is ExportProtocol.NETFLOW
    ]


def telemetry(draw: Draw) -> pl.DataFrame:
    """A manager reads one node's metrics a minute: enough packets for a switch that samples to notice."""
    cast = draw.cast
    if not cast.allowed(cast.managers, cast.control):
        return no_talks()
    minutes = np.arange(draw.start + -draw.start % _MINUTE, draw.end, _MINUTE)
    number = minutes // _MINUTE
    return talks(
        src=cast.managers[number % len(cast.managers)],
        dst=cast.control[number % len(cast.control)],
        src_port=draw.ports(len(minutes)),
        dst_port=_METRICS,
        start=minutes,
        end=minutes + 9_000,
        volume=120_000,
        reply=4_000_000,
        packet=ETHERNET,
    )


ROUTINE: tuple[Callable[[Draw], pl.DataFrame], ...] = (
    inference_requests,
    model_pulls,
    replication,
    management,
    names_and_time,
    hellos,
    telemetry,
)
"""Every kind; each draws from a stream of its own, by its position."""
