"""How evenly the links between switches are filled, by switch."""

from collections.abc import Callable

from cluster.model import Cluster
from store import schema
from store.influxql import (
    BITS,
    Column,
    Select,
    Unit,
    aggregate,
    compare,
    highest,
    is_in,
    lowest,
    not_in,
    ratio,
    scaled,
    total,
)
from store.schema import Field, Link

_DIRECTIONS = (schema.IN_BYTES, schema.OUT_BYTES, schema.COUNTER_IN_BYTES, schema.COUNTER_OUT_BYTES)
_LINK = (schema.EXPORTER, schema.INTERFACE)
_LOAD, _RATE = "load", "rate"
_IDLE = 0.01
"""Share of its speed below which a link is a standby, or shut, and says nothing of hashing."""

APART, BUSIEST, EMPTIEST = "apart", "busiest", "emptiest"


def has_uplinks(cluster: Cluster) -> bool:
    """Return whether cluster.yaml names several links of one switch to others; all links of a spine are no choice."""
    leaves = (exporter for exporter in cluster.exporters if exporter.counts)
    return any(sum(not one.counts for one in exporter.interfaces) > 1 for exporter in leaves)


def over(seconds: int) -> Callable[[Field], Column]:
    """Return what makes bytes of so many seconds a rate."""
    return lambda field: scaled(total(field), f"{BITS / seconds}", _RATE, Unit.BITS_PER_SECOND)


def uplinks(cluster: Cluster, rate: Callable[[Field], Column], *, is_binned: bool = False) -> Select:
    """Return the load of each uplink that carries anything, its busier direction, as a question by exporter.

    Args:
        cluster: whose spines are left out: where their links lead, traffic itself differs.
        rate: a field of bytes as bit/s, in a column named "rate".
        is_binned: in the panel's bins.
    """

    def form(select: Select) -> Select:
        return select.binned() if is_binned else select

    def read(select: Select) -> tuple[Select, ...]:
        return form(select).by_interval(cluster) if is_binned else (select,)

    core = [is_in(schema.KIND, [Link.CORE.value])]
    if spines := [exporter.name for exporter in cluster.exporters if not exporter.counts]:
        core.append(not_in(schema.EXPORTER, spines))
    speed = highest(schema.SPEED)
    raw = [
        Select(schema.INTERFACE_TRAFFIC, schema.RAW).take(rate(one), speed).where(*core).by(*_LINK)
        for one in _DIRECTIONS
    ]
    load = ratio((raw[0].columns[0],), speed, _LOAD)
    each = tuple(form(Select(read(one)).take(load).by(*_LINK)) for one in raw)
    links = form(Select(each).take(highest(load)).by(*_LINK))
    return Select(links).where(compare(load, ">", _IDLE)).by(schema.EXPORTER)


def measures() -> tuple[Column, Column, Column]:
    """Return how far apart the busiest and the emptiest link are, and the load of each: shares of a link's speed."""
    load = Column("", _LOAD, Unit.RATIO, (_LOAD,))
    return aggregate("spread", load, APART), highest(load, BUSIEST), lowest(load, EMPTIEST)
