"""Everything beside training and incidents: inference, model pulls, replication, management, approved transfers.

Each function draws the talks that begin in one slice of time. In coarse phases, many small conversations become one
with all their bytes, so that bytes per second stay what they are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

import numpy as np
import polars as pl

from simulate.packets.flows import ETHERNET, UDP, Ints, no_talks, talks
from simulate.scenarios.scenario import is_off_hours
from simulate.traffic.cast import Cast

_HTTPS = 443
_INFERENCE_PORT = 8443
_SSH, _DNS, _NTP, _SNMP, _MDNS = 22, 53, 123, 161, 5353
_REPLICATION_PORT = 988

_BUSINESS_BEGINS, _BUSINESS_ENDS = time(9, 30), time(16, 30)


@dataclass(frozen=True, slots=True)
class Draw:
    """One slice of time and what is needed to draw in it: start and end in epoch ms, and the phase's coarseness."""

    cast: Cast
    start: int
    end: int
    coarse: int
    rng: np.random.Generator
    seed: int = 0

    def count(self, per_second: float) -> int:
        """Return how many conversations begin."""
        return int(self.rng.poisson(per_second * (self.end - self.start) / 1000 / self.coarse))

    def starts(self, count: int) -> Ints:
        """Return when they begin, epoch ms."""
        return self.rng.integers(self.start, self.end, count)

    def pick(self, numbers: Ints, count: int) -> Ints:
        """Return so many of these addresses."""
        return self.rng.choice(numbers, count)

    def ports(self, count: int) -> Ints:
        """Return ephemeral ports."""
        return self.rng.integers(32_768, 61_000, count)

    def lasting(self, low: float, high: float, count: int) -> Ints:
        """Return durations in ms, longer where many conversations became one."""
        stretch = min(self.coarse, 30)
        return (self.rng.uniform(low, high, count) * 1000 * stretch).astype(np.int64)


def inference_requests(draw: Draw) -> pl.DataFrame:
    """Users and the internet ask, inference answers."""
    cast, frames = draw.cast, [no_talks()]
    for clients, rate in ((cast.users, 2.0), (cast.clients, 1.0)):
        if not cast.allowed(clients, cast.inference):
            continue
        n = draw.count(rate * len(cast.inference))
        start = draw.starts(n)
        frames.append(
            talks(
                src=draw.pick(clients, n),
                dst=draw.pick(cast.inference, n),
                src_port=draw.ports(n),
                dst_port=_INFERENCE_PORT,
                start=start,
                end=start + draw.lasting(0.3, 3, n),
                volume=draw.rng.lognormal(8.5, 0.6, n) * draw.coarse,
                reply=draw.rng.lognormal(12.5, 0.8, n) * draw.coarse,
                packet=ETHERNET,
            )
        )
    return pl.concat(frames)


def model_pulls(draw: Draw) -> pl.DataFrame:
    """Inference servers fetch a model now and then."""
    cast = draw.cast
    if not cast.allowed(cast.models, cast.inference):
        return no_talks()
    n = draw.count(len(cast.inference) / 240 * draw.coarse)
    start = draw.starts(n)
    return talks(
        src=draw.pick(cast.models, n),
        dst=draw.pick(cast.inference, n),
        src_port=_HTTPS,
        dst_port=draw.ports(n),
        start=start,
        end=start + draw.rng.integers(12_000, 25_000, n),
        volume=draw.rng.uniform(8e9, 20e9, n),
    )


def replication(draw: Draw) -> pl.DataFrame:
    """Storage and model storage copy to their neighbours, over IPv6 where they have it."""
    cast, frames = draw.cast, [no_talks()]
    for servers, rate, volume in (
        (cast.storage_v6 if len(cast.storage_v6) > 1 else cast.storage, 0.1, 150e6),
        (cast.models_v6 if len(cast.models_v6) > 1 else cast.models, 0.03, 60e6),
    ):
        if len(servers) < 2:
            continue
        n = draw.count(rate * len(servers))
        start, source = draw.starts(n), draw.rng.integers(0, len(servers), n)
        frames.append(
            talks(
                src=servers[source],
                dst=servers[(source + 1) % len(servers)],
                src_port=draw.ports(n),
                dst_port=_REPLICATION_PORT,
                start=start,
                end=start + draw.lasting(2, 8, n),
                volume=draw.rng.uniform(0.5, 1.5, n) * volume * draw.coarse,
            )
        )
    return pl.concat(frames)


def management(draw: Draw) -> pl.DataFrame:
    """Managers log in to the nodes' management ports, and poll them."""
    cast, frames = draw.cast, [no_talks()]
    if not cast.allowed(cast.managers, cast.control):
        return no_talks()
    for port, proto, rate, request, answer in ((_SSH, 6, 0.02, 6_000, 30_000), (_SNMP, UDP, 0.1, 900, 9_000)):
        n = draw.count(rate * len(cast.control))
        start = draw.starts(n)
        frames.append(
            talks(
                src=draw.pick(cast.managers, n),
                dst=draw.pick(cast.control, n),
                src_port=draw.ports(n),
                dst_port=port,
                proto=proto,
                start=start,
                end=start + draw.lasting(0.2, 4, n),
                volume=draw.rng.uniform(0.5, 1.5, n) * request * draw.coarse,
                reply=draw.rng.uniform(0.5, 1.5, n) * answer * draw.coarse,
                packet=600,
            )
        )
    return pl.concat(frames)


def names_and_time(draw: Draw) -> pl.DataFrame:
    """Every node asks the managers for names and the time."""
    cast, frames = draw.cast, [no_talks()]
    for nodes in (np.array(list(cast.training.values()), np.int64), cast.storage, cast.inference, cast.models):
        if not cast.allowed(nodes, cast.managers):
            continue
        for port, rate, request, answer in ((_DNS, 0.05, 70, 180), (_NTP, 0.01, 76, 76)):
            n = draw.count(rate * len(nodes))
            start = draw.starts(n)
            frames.append(
                talks(
                    src=draw.pick(nodes, n),
                    dst=draw.pick(cast.managers, n),
                    src_port=draw.ports(n),
                    dst_port=port,
                    proto=UDP,
                    start=start,
                    end=start + draw.lasting(0.002, 0.02, n),
                    volume=request * draw.coarse,
                    reply=answer * draw.coarse,
                    packet=max(request, answer),
                )
            )
    return pl.concat(frames)


def multicast(draw: Draw) -> pl.DataFrame:
    """Hosts announce themselves to their segment."""
    cast = draw.cast
    nodes = np.concatenate([np.array(list(cast.training.values()), np.int64), cast.storage])
    if not len(nodes):
        return no_talks()
    n = draw.count(0.005 * len(nodes))
    start = draw.starts(n)
    return talks(
        src=draw.pick(nodes, n),
        dst=cast.mdns,
        src_port=_MDNS,
        dst_port=_MDNS,
        proto=UDP,
        start=start,
        end=start + 5,
        volume=240 * draw.coarse,
        packet=240,
    )


BACKGROUND: tuple[Callable[[Draw], pl.DataFrame], ...] = (
    inference_requests,
    model_pulls,
    replication,
    management,
    names_and_time,
    multicast,
)
"""Every kind; each draws from a stream of its own, by its position."""


@dataclass(frozen=True, slots=True)
class ApprovedTransfer:
    """A model sent to an approved destination in business hours. Times are epoch seconds."""

    node: str
    src: int
    dst: int
    start: int
    end: int
    volume: int


def approved_transfers(cast: Cast, seed: int, start: int, end: int) -> Iterator[ApprovedTransfer]:
    """Yield the transfers that begin in [start, end) (epoch seconds): every model node to every partner, once a day.

    They keep clear of the site's off-hours, also where those reach into the day; what falls into them does not happen.
    """
    site = cast.cluster.site
    pairs = [
        (node, int(src), int(dst))
        for node, own in cast.model_nodes.items()
        for src, dst in _partners(cast, own)
        if cast.allowed(np.array([src]), np.array([dst]))
    ]
    day = datetime.fromtimestamp(start, site.time_zone).date() - timedelta(days=1)
    last = datetime.fromtimestamp(end, site.time_zone).date()
    while day <= last:
        rng = np.random.default_rng([seed, 3, day.toordinal()])
        opens = datetime.combine(day, _BUSINESS_BEGINS, site.time_zone).astimezone(UTC).timestamp()
        closes = datetime.combine(day, _BUSINESS_ENDS, site.time_zone).astimezone(UTC).timestamp()
        for node, src, dst in pairs:
            begin = int(rng.uniform(opens, closes))
            length, volume = int(rng.integers(60, 300)), int(rng.uniform(2e9, 12e9))
            in_hours = not any(is_off_hours(site, at) for at in (begin, begin + length))
            if start <= begin and begin + length <= end and in_hours:
                yield ApprovedTransfer(node, src, dst, begin, begin + length, volume)
        day += timedelta(days=1)


def _partners(cast: Cast, own: Ints) -> Iterator[tuple[int, int]]:
    """Yield a node's address with every partner of the same family."""
    for src in own[:1]:
        for dst in cast.partners if not cast.addresses.is_v6[src] else cast.partners_v6:
            yield int(src), int(dst)
    if not len(own) or cast.addresses.is_v6[own[0]]:
        return
    node = cast.addresses.node[own[0]]
    for src in cast.models_v6[cast.addresses.node[cast.models_v6] == node][:1]:
        for dst in cast.partners_v6:
            yield int(src), int(dst)


def approved_talks(draw: Draw, seed: int) -> pl.DataFrame:
    """Return the approved transfers that begin in the slice."""
    found = [
        t
        for t in approved_transfers(draw.cast, seed, draw.start // 1000, draw.end // 1000 + 86_400)
        if draw.start <= t.start * 1000 < draw.end
    ]
    return talks(
        src=[t.src for t in found],
        dst=[t.dst for t in found],
        src_port=draw.ports(len(found)),
        dst_port=_HTTPS,
        start=[t.start * 1000 for t in found],
        end=[t.end * 1000 for t in found],
        volume=[t.volume for t in found],
    )
