"""The directory of outside addresses: a row when one is first seen, and when what is known of it has changed."""

import ipaddress
from collections import OrderedDict
from collections.abc import Iterable

import polars as pl

from cluster.model import Cluster
from enrichment.addresses.host_names import HostNames
from store import schema
from store.points import WINDOW, columns
from store.schema import Measurement

_MOST_REMEMBERED = 50_000
"""Addresses whose last row is remembered: about 20 MB."""
_MOST_NEW = 20_000
_DAY = 86_400.0

_ENDS = {schema.EGRESS.name: (schema.DST, schema.DST_GROUP), schema.INFERENCE.name: (schema.SRC, schema.SRC_GROUP)}
"""Measurements that tell outside addresses apart, and at which end they have them."""
_FIELDS = tuple(field.name for field in schema.ADDRESS_NAME.fields)
_COLUMNS = columns(schema.ADDRESS, *schema.ADDRESS_NAME.fields)

Known = tuple[str, ...]
"""In the order of the fields of ADDRESS_NAME."""


class AddressDirectory:
    """Gathers addresses from points, asks for their names, and says what is new of them.

    Args:
        cluster: which groups are outside.
        names: who knows names; None: nobody.
    """

    def __init__(self, cluster: Cluster, names: HostNames | None) -> None:
        self._outside = cluster.outside_ids()
        self._names = names
        self._told: OrderedDict[str, Known] = OrderedDict()
        self._seen: dict[str, tuple[str, ...]] = {}
        self._before: dict[str, tuple[str, ...]] = {}
        self._day, self._new = 0, 0

    def see(self, points: Iterable[tuple[Measurement, pl.DataFrame]]) -> None:
        """Take note of the outside addresses in points, and of their labels."""
        for measurement, frame in points:
            end, group = _ENDS.get(measurement.name, ("", ""))
            if not end or frame.is_empty():
                continue
            # Without anybody to ask, points have no labels.
            labels = [
                pl.col(tag).fill_null("") if tag in frame.columns else pl.lit("").alias(tag) for tag in schema.LABELS
            ]
            outside = frame.filter(pl.col(group).is_in(self._outside) & (pl.col(end) != schema.OTHER))
            rows = outside.sort(WINDOW).unique(end, keep="last").select(end, *labels).rows()
            for address, *known in rows:
                if len(self._seen) < _MOST_REMEMBERED:
                    self._seen[address] = tuple(known)

    def points(self, now: float, window: int) -> pl.DataFrame:
        """Return the rows of ADDRESS_NAME for what is new of the addresses seen since the last call.

        Those of the call before are looked at once more: by then, name servers have answered.

        Args:
            now: epoch seconds.
            window: of the rows, epoch seconds.
        """
        addresses = {one: labels for one, labels in (self._before | self._seen).items() if _is_address(one)}
        self._before, self._seen = self._seen, {}
        asked = list(addresses)
        named = self._names.of(asked) if self._names is not None else [None] * len(asked)
        rows = []
        for address, name in zip(asked, named, strict=True):
            known: Known = (name.name, name.source, *addresses[address]) if name else ("", "", *addresses[address])
            before = self._told.get(address)
            if known == before or (before is None and not (any(known) and self._has_room(now))):
                continue
            self._told[address] = known
            self._told.move_to_end(address)
            rows.append((window, address, *known))
        while len(self._told) > _MOST_REMEMBERED:
            self._told.popitem(last=False)
        return pl.DataFrame(rows, schema=_COLUMNS, orient="row")

    def _has_room(self, now: float) -> bool:
        """Count a new address; whether the day still takes it."""
        day = int(now // _DAY)
        if day != self._day:
            self._day, self._new = day, 0
        self._new += 1
        return self._new <= _MOST_NEW


def _is_address(text: str) -> bool:
    """Whether it is no name of a node that the inventory has in an outside group."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
