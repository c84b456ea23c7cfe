"""Flows to partial points: one pass over the pieces of a batch, then small sums for each measurement.

The pass folds ports, exporters and interfaces away; what remains is one row for each conversation and window, and every
measurement is a sum over those rows.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from cluster import schema
from cluster.calendar import off_hours_mask
from cluster.model import LOCAL, Cluster, Role
from ingest.classify import PLANES
from ingest.normalise import Flows, Normaliser
from ingest.points import WINDOW
from ingest.windows import Shares, prorate

FIRST, LAST = "first_ms", "last_ms"
"""Columns of partial points that become the duration: first and last moment of a piece, epoch ms."""

Partials = dict[str, pl.DataFrame]
"""By measurement name: WINDOW, tags without the shard, summed fields (and FIRST, LAST where it has a duration)."""

# One number says everything of a piece but its addresses: protocol (9 bits), service (12), who opened it (1),
# plane (3), whether it counts (1), and above them the window.
_SERVICE, _OPENER, _PLANE, _COUNTS, _SLOT = 9, 21, 22, 25, 26

_SG, _DG, _BYTES, _PACKETS, _FLOWS = "sg", "dg", "bytes", "packets", "flows"


@dataclass(frozen=True, slots=True)
class Watermark:
    """Where the stream stood before this batch, as numbers of windows.

    Attributes:
        closed: windows below this one had been closed.
        oldest: the oldest window still kept; None keeps all.
    """

    closed: int
    oldest: int | None


class Aggregator:
    """Turns flows into partial points.

    Args:
        cluster: groups, allowed pairs, calendar.
        normaliser: its books give names to the codes in the flows.
    """

    def __init__(self, cluster: Cluster, normaliser: Normaliser) -> None:
        self._site = cluster.site
        self._books = normaliser
        self._seconds = cluster.bridge.window
        groups = normaliser.addresses.groups
        known = {group.id: group for group in cluster.groups}
        with_inventory = {node.group for node in cluster.nodes}
        inside = [name in known and not known[name].is_outside for name in groups]
        self._inside = pl.Series("inside", inside)
        outside = [not is_in and name != LOCAL for is_in, name in zip(inside, groups, strict=True)]
        self._outside = pl.Series("outside", outside)
        self._training = pl.Series("training", [name in known and known[name].role is Role.TRAINING for name in groups])
        self._has_inventory = pl.Series("inventory", [name in with_inventory for name in groups])
        self._allowed = pl.Series("allowed", [cluster.is_allowed(a, b) for a in groups for b in groups])
        self._group_names = pl.Series("group", groups, pl.String)
        self._protocol_names = pl.Series("protocol", normaliser.protocols, pl.String)
        self._service_names = pl.Series("service", normaliser.services.names, pl.String)
        self._plane_names = pl.Series("plane", [plane.value for plane in PLANES], pl.String)

    def aggregate(self, flows: Flows, watermark: Watermark) -> Partials:
        """Return the batch's partial points by measurement."""
        shares = prorate(
            flows.start,
            flows.end,
            (flows.bytes, flows.packets, flows.flows),
            window_ms=self._seconds * 1000,
            oldest=watermark.oldest,
        )
        conversations = self._conversations(flows, shares)
        counted = conversations.filter("counts")
        partials = {
            schema.TRAFFIC.name: self._traffic(conversations),
            schema.NODE_TRAFFIC.name: self._nodes(counted),
            schema.PAIR.name: self._pairs(counted),
            schema.EGRESS.name: self._egress(counted),
            schema.VIOLATION.name: self._violations(counted),
            schema.UNKNOWN_NODE.name: self._unknown_nodes(counted),
            schema.EXPORTER_STATUS.name: self._exporters(flows, shares, watermark),
        }
        return {name: frame for name, frame in partials.items() if frame.height}

    # -- the pass over all pieces ------------------------------------------------------------------

    def _conversations(self, flows: Flows, shares: Shares) -> pl.DataFrame:
        """Sum the pieces of each conversation and window; attach what the codes mean."""
        meta = (
            flows.protocol
            | (flows.service.astype(np.int64) << _SERVICE)
            | (flows.dst_opened.astype(np.int64) << _OPENER)
            | (flows.plane.astype(np.int64) << _PLANE)
            | (flows.counts.astype(np.int64) << _COUNTS)
        )
        record = shares.record
        is_whole = len(record) == len(flows)
        pair = (flows.src << 32) | flows.dst
        pieces = pl.DataFrame(
            {
                "pair": pair if is_whole else pair[record],
                "slot": (meta if is_whole else meta[record]) | (shares.window << _SLOT),
                _BYTES: shares.bytes,
                _PACKETS: shares.packets,
                _FLOWS: shares.flows,
                FIRST: shares.first,
                LAST: shares.last,
            }
        )
        sums = pieces.group_by("pair", "slot").agg(
            pl.sum(_BYTES), pl.sum(_PACKETS), pl.sum(_FLOWS), pl.min(FIRST), pl.max(LAST)
        )
        pairs, slots = sums.get_column("pair").to_numpy(), sums.get_column("slot").to_numpy()
        src, dst = pairs >> 32, pairs & 0xFFFF_FFFF
        book = self._books.addresses
        return sums.select(
            pl.Series("src_number", src),
            pl.Series("dst_number", dst),
            pl.Series(_SG, book.group_codes[src]).cast(pl.Int64),
            pl.Series(_DG, book.group_codes[dst]).cast(pl.Int64),
            pl.Series("src_listed", book.listed[src]),
            pl.Series("dst_listed", book.listed[dst]),
            pl.Series("protocol", slots & 0x1FF),
            pl.Series("service_code", (slots >> _SERVICE) & 0xFFF),
            pl.Series("dst_opened", ((slots >> _OPENER) & 1).astype(np.bool_)),
            pl.Series("plane_code", (slots >> _PLANE) & 7),
            pl.Series("counts", ((slots >> _COUNTS) & 1).astype(np.bool_)),
            pl.Series(WINDOW, (slots >> _SLOT) * self._seconds),
            _BYTES,
            _PACKETS,
            _FLOWS,
            FIRST,
            LAST,
        )

    # -- measurements ------------------------------------------------------------------------------

    def _traffic(self, rows: pl.DataFrame) -> pl.DataFrame:
        counted = pl.col("counts")
        sums = rows.group_by(WINDOW, _SG, _DG, "protocol", "service_code", "plane_code").agg(
            pl.col(_BYTES).filter(counted).sum().alias(schema.BYTES.name),
            pl.col(_PACKETS).filter(counted).sum().alias(schema.PACKETS.name),
            pl.col(_FLOWS).filter(counted).sum().alias(schema.FLOWS.name),
            pl.col(_BYTES).sum().alias(schema.SEEN_BYTES.name),
        )
        return sums.select(
            WINDOW,
            self._group(_SG, schema.SRC_GROUP),
            self._group(_DG, schema.DST_GROUP),
            self._protocol(),
            self._service(),
            self._plane(),
            schema.BYTES.name,
            schema.PACKETS.name,
            schema.FLOWS.name,
            schema.SEEN_BYTES.name,
        )

    def _nodes(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Both directions of every conversation of a listed node."""
        sides = []
        for end, group, peer, sends in (("src", _SG, _DG, True), ("dst", _DG, _SG, False)):
            sums = (
                rows.filter(f"{end}_listed")
                .group_by(WINDOW, f"{end}_number", group, peer, "plane_code")
                .agg(pl.sum(_BYTES), pl.sum(_PACKETS), pl.sum(_FLOWS))
            )
            nothing = pl.lit(0, pl.Int64)
            volume, packets = pl.col(_BYTES), pl.col(_PACKETS)
            sides.append(
                sums.select(
                    WINDOW,
                    self._name(f"{end}_number", schema.NODE),
                    self._group(group, schema.GROUP),
                    self._group(peer, schema.PEER_GROUP),
                    self._plane(),
                    (volume if sends else nothing).alias(schema.TX_BYTES.name),
                    (nothing if sends else volume).alias(schema.RX_BYTES.name),
                    (packets if sends else nothing).alias(schema.TX_PACKETS.name),
                    (nothing if sends else packets).alias(schema.RX_PACKETS.name),
                    pl.col(_FLOWS).alias(schema.FLOWS.name),
                )
            )
        return pl.concat(sides)

    def _pairs(self, rows: pl.DataFrame) -> pl.DataFrame:
        training = self._is(self._training, _SG) & self._is(self._training, _DG)
        sums = (
            rows.filter(training & pl.col("src_listed") & pl.col("dst_listed"))
            .group_by(WINDOW, "src_number", "dst_number", "plane_code")
            .agg(pl.sum(_BYTES))
        )
        return sums.select(
            WINDOW,
            self._name("src_number", schema.SRC),
            self._name("dst_number", schema.DST),
            self._plane(),
            pl.col(_BYTES).alias(schema.BYTES.name),
        )

    def _egress(self, rows: pl.DataFrame) -> pl.DataFrame:
        leaving = rows.filter(self._is(self._inside, _SG) & self._is(self._outside, _DG))
        if leaving.is_empty():
            return pl.DataFrame()
        windows = leaving.get_column(WINDOW).unique().sort()
        at_night = pl.Series("night", off_hours_mask(self._site, windows.to_numpy()))
        night = leaving.get_column(WINDOW).replace_strict(windows, at_night, return_dtype=pl.Boolean)
        return leaving.select(
            WINDOW,
            self._name("src_number", schema.SRC),
            self._group(_SG, schema.SRC_GROUP),
            self._name("dst_number", schema.DST),
            self._group(_DG, schema.DST_GROUP),
            self._protocol(),
            self._service(),
            pl.when(night).then(pl.lit(schema.YES)).otherwise(pl.lit(schema.NO)).alias(schema.OFF_HOURS),
            pl.when("dst_opened")
            .then(pl.lit(schema.BY_DESTINATION))
            .otherwise(pl.lit(schema.BY_SOURCE))
            .alias(schema.INITIATOR),
            pl.col(_BYTES).alias(schema.BYTES.name),
            pl.col(_PACKETS).alias(schema.PACKETS.name),
            pl.col(_FLOWS).alias(schema.FLOWS.name),
            FIRST,
            LAST,
        )

    def _violations(self, rows: pl.DataFrame) -> pl.DataFrame:
        width = len(self._group_names)
        pair = (pl.col(_SG) * width + pl.col(_DG)).alias("pair")
        allowed = (
            rows.select(pair)
            .to_series()
            .replace_strict(pl.Series(range(width * width)), self._allowed, return_dtype=pl.Boolean)
        )
        return rows.filter(~allowed).select(
            WINDOW,
            self._group(_SG, schema.SRC_GROUP),
            self._group(_DG, schema.DST_GROUP),
            self._name("src_number", schema.SRC),
            self._name("dst_number", schema.DST),
            self._protocol(),
            self._service(),
            pl.col(_BYTES).alias(schema.BYTES.name),
            pl.col(_FLOWS).alias(schema.FLOWS.name),
        )

    def _unknown_nodes(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Addresses that no inventory knows, in groups that have one."""
        sides = []
        for end, group in (("src", _SG), ("dst", _DG)):
            unlisted = rows.filter(~pl.col(f"{end}_listed") & self._is(self._has_inventory, group))
            sides.append(
                unlisted.select(
                    WINDOW,
                    self._group(group, schema.GROUP),
                    self._name(f"{end}_number", schema.ADDRESS),
                    pl.col(_BYTES).alias(schema.BYTES.name),
                    pl.col(_FLOWS).alias(schema.FLOWS.name),
                )
            )
        return pl.concat(sides)

    def _exporters(self, flows: Flows, shares: Shares, watermark: Watermark) -> pl.DataFrame:
        record = shares.record
        is_first = np.ones(len(record), np.bool_)
        is_first[1:] = record[1:] != record[:-1]
        late = np.where(shares.window < watermark.closed, shares.bytes, 0)
        pieces = pl.DataFrame(
            {
                "exporter": flows.exporter[record],
                WINDOW: shares.window * self._seconds,
                schema.EXPORTER_RECORDS.name: is_first.astype(np.int64),
                schema.EXPORTER_BYTES.name: shares.bytes,
                schema.EXPORTER_SUPPRESSED.name: np.where(flows.counts[record], 0, shares.bytes),
                schema.UNKNOWN_RATE.name: (is_first & flows.unknown_rate[record]).astype(np.int64),
                schema.ZERO_COUNTERS.name: (is_first & flows.zero[record]).astype(np.int64),
                schema.SKEWED.name: (is_first & flows.skewed[record]).astype(np.int64),
                schema.LATE_BYTES.name: late,
                schema.CLAMPED_BYTES.name: shares.clamped,
            }
        )
        sums = pieces.group_by("exporter", WINDOW).agg(pl.exclude("exporter", WINDOW).sum())
        names = pl.Series("names", self._books.exporters.names, pl.String)
        exporter = names.gather(sums.get_column("exporter")).alias(schema.EXPORTER)
        return sums.with_columns(exporter)

    # -- codes to words ----------------------------------------------------------------------------

    def _is(self, flags: pl.Series, group: str) -> pl.Expr:
        return pl.lit(flags).gather(pl.col(group))

    def _name(self, number: str, tag: str) -> pl.Expr:
        return pl.lit(self._books.addresses.names).gather(pl.col(number)).alias(tag)

    def _group(self, code: str, tag: str) -> pl.Expr:
        return pl.lit(self._group_names).gather(pl.col(code)).alias(tag)

    def _protocol(self) -> pl.Expr:
        return pl.lit(self._protocol_names).gather(pl.col("protocol")).alias(schema.PROTO)

    def _service(self) -> pl.Expr:
        return pl.lit(self._service_names).gather(pl.col("service_code")).alias(schema.SERVICE)

    def _plane(self) -> pl.Expr:
        return pl.lit(self._plane_names).gather(pl.col("plane_code")).alias(schema.PLANE)
