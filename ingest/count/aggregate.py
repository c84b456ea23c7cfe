"""Flows to partial points: what comes of the conversations of many batches, as small sums for each measurement.

What exporters and interfaces say has a pass of its own over each batch (`links`), and so has what is kept in windows of
a second (`pulse`).
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from cluster.calendar import off_hours_mask, off_window_mask
from cluster.model import (
    EXTERNAL,
    LOCAL,
    LOCAL_PREFIXES,
    NOBODYS_PREFIXES,
    PRIVATE_PREFIXES,
    UNLISTED,
    Cluster,
    Opening,
    Role,
)
from enrichment.feeds.threats import threats_in
from enrichment.labels import Labels
from ingest.count.conversations import Conversations, conversations, folded
from ingest.count.entry_places import EntryPlaces
from ingest.count.link_totals import LinkSums, link_points, link_sums
from ingest.count.pulse import pulse_points
from ingest.count.tag_words import Words, is_set
from ingest.count.windows import Shares, prorate
from ingest.flows.classify import NO_RAIL, Prefixes
from ingest.flows.labelled import KnownBad, LabelledAddresses
from ingest.flows.normalise import Flags, Flows, Ints, Normaliser
from store import schema
from store.points import WINDOW

FIRST, LAST = "first_ms", "last_ms"
"""Columns of partial points that become the duration: first and last moment of a piece, epoch ms."""

Partials = dict[str, pl.DataFrame]
"""By measurement name: WINDOW, tags without the shard, summed fields (and FIRST, LAST where it has a duration)."""

_MOST_UNFOLDED = 200_000
_LARGEST_SUM = 1 << 62
_NOTHING = (0, 0, 0)

_OURS, _NOBODYS = Prefixes((*PRIVATE_PREFIXES, *LOCAL_PREFIXES)), Prefixes(NOBODYS_PREFIXES)
"""Sources that no route leads back to from outside; where drills go."""

_WITH_PORTS = (6, 17, 132)
"""TCP, UDP, SCTP: only of these does a service say what was opened."""

_SG, _DG, _BYTES, _PACKETS, _FLOWS = "sg", "dg", "bytes", "packets", "flows"
_SRC, _DST, _PROTOCOL, _SERVICE_CODE, _PLANE_CODE = "src_number", "dst_number", "protocol", "service_code", "plane_code"
_LOW_PORT, _HIGH_PORT, _PLACE = "low_port", "high_port", "place"


@dataclass(frozen=True, slots=True)
class Watermark:
    """Where the stream stood before this batch, as numbers of windows.

    Attributes:
        closed: windows below this one had been closed.
        oldest: the oldest window still kept; None keeps all.
        oldest_second: the same for windows of a second.
    """

    closed: int
    oldest: int | None
    oldest_second: int | None


class Aggregator:
    """Turns flows into partial points.

    Args:
        cluster: groups, allowed pairs, calendar.
        normaliser: its books give names to the codes in the flows.
        labels: what is known of outside addresses, where anybody says.
        beside: sums a batch while the next one is made ready; one thread.
    """

    def __init__(
        self,
        cluster: Cluster,
        normaliser: Normaliser,
        labels: Labels | None = None,
        *,
        beside: Executor,
    ) -> None:
        self._site = cluster.site
        self._inference_hours = cluster.inference.hours
        self._books = normaliser
        self._words = Words(normaliser)
        self._places = EntryPlaces(normaliser)
        self._seconds = cluster.bridge.window
        groups = normaliser.addresses.groups
        known = {group.id: group for group in cluster.groups}
        self._own_hours = {groups.index(name): cluster.site_of(name) for name in cluster.own_hours()}
        with_inventory = {node.group for node in cluster.nodes}

        def having(*roles: Role) -> pl.Series:
            return pl.Series("role", [name in known and known[name].role in roles for name in groups])

        inside = [name in known and not known[name].is_outside for name in groups]
        self._inside = pl.Series("inside", inside)
        outside = [not is_in and name != LOCAL for is_in, name in zip(inside, groups, strict=True)]
        self._outside = pl.Series("outside", outside)
        self._has_group = pl.Series("has_group", [name in known for name in groups])
        self._drills = having(Role.DRILL)
        self._labels = LabelledAddresses(labels, normaliser.addresses, self._outside.to_numpy()) if labels else None
        threats = threats_in(labels) if labels else None
        self._threats = KnownBad(threats, normaliser.addresses, self._outside.to_numpy()) if threats else None
        self._training = having(Role.TRAINING)
        self._storage = having(Role.STORAGE, Role.MODEL_STORAGE)
        self._inference = having(Role.INFERENCE)
        self._has_inventory = pl.Series("inventory", [name in with_inventory for name in groups])
        self._width = len(groups)
        self._allowed = pl.Series("allowed", [cluster.is_allowed(a, b) for a in groups for b in groups])
        self._management = having(Role.MANAGEMENT)
        managing = {group.id for group in cluster.groups_with(Role.MANAGEMENT)}
        openings = [cluster.opening(a, b) if managing & {a, b} else None for a in groups for b in groups]
        self._opens_services = pl.Series("services", [what is Opening.SERVICES for what in openings])
        self._opens_nothing = pl.Series("nothing", [what is Opening.NOTHING for what in openings])
        expected = [name in cluster.management.services for name in normaliser.services.names]
        self._expected_services = pl.Series("expected", expected)
        self._session_services, self._session_services_there = (
            pl.Series("listed", [name in listed for name in normaliser.services.names])
            for listed in (cluster.management.sessions, cluster.management.sessions_there)
        )
        self._pending: list[Conversations] = []
        self._links: list[LinkSums] = []
        self._pulses: list[pl.DataFrame] = []
        self._taken = 0
        self._held = _NOTHING
        self._beside = beside
        self._last: Future[None] | None = None
        self._waiting = 0

    @property
    def pending_rows(self) -> int:
        """Conversations that wait for `points`: those in memory, or a quarter of what all batches had, if that is more.

        So a flood is folded away as soon as memory asks for it, and what comes again and again not much earlier. The
        last batch counts as one: it may not be summed yet, and when to flush must not depend on that.
        """
        return self._waiting + (self._last is not None)

    def _await_last(self) -> None:
        """Wait for the last batch; what went wrong with it goes wrong here."""
        last, self._last = self._last, None
        if last is not None:
            last.result()
            rows = max(sum(map(len, self._pending)), self._taken // 4)
            self._waiting = rows + sum(pulses.height for pulses in self._pulses)

    def shares(self, flows: Flows, watermark: Watermark) -> Shares:
        """Return the pieces of a batch."""
        return prorate(
            flows.start,
            flows.end,
            (flows.bytes, flows.packets, flows.flows),
            window_ms=self._seconds * 1000,
            oldest=watermark.oldest,
        )

    def take(self, flows: Flows, shares: Shares, watermark: Watermark, held: Flags | None = None) -> None:
        """Take a batch. It waits for `points`, which must be asked for before the address book forgets numbers.

        Args:
            flows: the batch.
            shares: its pieces.
            watermark: where the stream stood before it.
            held: records whose conversations `add` brings later; of exporters and interfaces they are part now.
        """
        self._await_last()
        self._held = self._with(flows)
        self._last = self._beside.submit(self._sum, flows, shares, watermark, held, self._places.of(flows.entered))

    def _sum(self, flows: Flows, shares: Shares, watermark: Watermark, held: Flags | None, places: Ints) -> None:
        """Sum a batch, given where each record entered; nobody else looks at the sums meanwhile."""
        if held is None or not held.all():
            without = held if held is not None and held.any() else None
            self._keep(conversations(flows, shares, places, without))
        self._links.append(link_sums(flows, shares, closed=watermark.closed, seconds=self._seconds, books=self._books))
        addresses = self._books.addresses
        pulses = pulse_points(
            flows, addresses.group_codes, addresses.listed, self._words,
            oldest=watermark.oldest_second, window=self._seconds,
        )  # fmt: skip
        if pulses.height:
            self._pulses.append(pulses)

    def has_room(self, flows: Flows) -> bool:
        """Whether these may be taken before `points` is asked for: sums stay within 64 bits."""
        return max(self._with(flows)) < _LARGEST_SUM

    def _with(self, flows: Flows) -> tuple[int, int, int]:
        """Return bytes, packets and flow records of what waits and of these; the normaliser bounds those of a batch."""
        volume, packets, count = self._held
        return volume + int(flows.bytes.sum()), packets + int(flows.packets.sum()), count + int(flows.flows.sum())

    def add(self, rows: Conversations) -> None:
        """Take the conversations of records that were held."""
        self._await_last()
        self._keep(rows)

    def _keep(self, rows: Conversations) -> None:
        self._taken += len(rows)
        self._pending.append(rows)
        # The same conversations come with every batch: memory holds each about once.
        if sum(map(len, self._pending[1:])) > max(_MOST_UNFOLDED, len(self._pending[0])):
            self._pending = [folded(self._pending)]

    def points(self) -> Partials:
        """Return the partial points of all batches taken since it was last asked."""
        self._await_last()
        seconds = {schema.PULSE.name: pl.concat(self._pulses)} if self._pulses else {}
        self._pulses, self._waiting = [], 0
        if not self._pending:
            return seconds
        whole = folded(self._pending)
        self._pending, self._held, self._taken = [], _NOTHING, 0
        rows = self._named(whole)
        del whole
        traffic = self._traffic(rows)
        # Nothing else looks at the others, and there may be half a million.
        rows = rows.filter("counts")
        sent, received = self._of_nodes(rows, _SRC), self._of_nodes(rows, _DST)
        partials = {
            schema.TRAFFIC.name: traffic,
            schema.NODE_TRAFFIC.name: pl.concat([self._nodes(sent, sends=True), self._nodes(received, sends=False)]),
            schema.PAIR.name: self._pairs(rows),
            schema.RAIL_TRAFFIC.name: self._rails(sent),
            schema.STORAGE_IO.name: self._storage_io(rows),
            schema.EGRESS.name: self._egress(rows),
            schema.THREAT.name: self._known_bad(rows),
            schema.VIOLATION.name: self._violations(rows),
            schema.UNKNOWN_NODE.name: self._unknown_nodes(rows),
            schema.INFERENCE.name: self._requests(rows),
            schema.MANAGED.name: self._sessions(rows),
            # None where a batch came before, and only what it held comes now.
            **(link_points(self._links, self._books) if self._links else {}),
        }
        self._links.clear()
        return seconds | {name: frame for name, frame in partials.items() if frame.height}

    def _named(self, rows: Conversations) -> pl.DataFrame:
        """Return conversations with what their codes mean."""
        book = self._books.addresses
        return pl.DataFrame(
            {
                _SRC: rows.src,
                _DST: rows.dst,
                _SG: book.group_codes[rows.src].astype(np.int64),
                _DG: book.group_codes[rows.dst].astype(np.int64),
                "src_listed": book.listed[rows.src],
                "dst_listed": book.listed[rows.dst],
                _PROTOCOL: rows.protocol,
                _SERVICE_CODE: rows.service,
                "dst_opened": rows.dst_opened,
                _PLANE_CODE: rows.plane,
                "counts": rows.counts,
                "wrong_plane": rows.wrong_plane,
                WINDOW: rows.window * self._seconds,
                _BYTES: rows.bytes,
                _PACKETS: rows.packets,
                _FLOWS: rows.flows,
                FIRST: rows.first,
                LAST: rows.last,
                _LOW_PORT: rows.low_port,
                _HIGH_PORT: rows.high_port,
                _PLACE: rows.place,
            }
        )

    # -- groups and nodes --------------------------------------------------------------------------

    def _traffic(self, rows: pl.DataFrame) -> pl.DataFrame:
        counted = pl.col("counts")
        sums = rows.group_by(WINDOW, _SG, _DG, _PROTOCOL, _SERVICE_CODE, _PLANE_CODE).agg(
            pl.col(_BYTES).filter(counted).sum().alias(schema.BYTES.name),
            pl.col(_PACKETS).filter(counted).sum().alias(schema.PACKETS.name),
            pl.col(_FLOWS).filter(counted).sum().alias(schema.FLOWS.name),
            pl.col(_BYTES).sum().alias(schema.SEEN_BYTES.name),
        )
        return sums.select(
            WINDOW,
            self._words.group(_SG, schema.SRC_GROUP),
            self._words.group(_DG, schema.DST_GROUP),
            *self._kind_of_traffic(),
            self._words.plane(_PLANE_CODE),
            schema.BYTES.name,
            schema.PACKETS.name,
            schema.FLOWS.name,
            schema.SEEN_BYTES.name,
        )

    def _of_nodes(self, rows: pl.DataFrame, end: str) -> pl.DataFrame:
        """Sum what listed nodes sent (end _SRC) or received (_DST) by address, peer group and plane."""
        sends = end == _SRC
        own, peer = (_SG, _DG) if sends else (_DG, _SG)
        return (
            rows.filter("src_listed" if sends else "dst_listed")
            .group_by(
                WINDOW, pl.col(end).alias("number"), pl.col(own).alias("own"), pl.col(peer).alias("peer"), _PLANE_CODE
            )
            .agg(pl.sum(_BYTES), pl.sum(_PACKETS), pl.sum(_FLOWS))
        )

    def _nodes(self, sums: pl.DataFrame, *, sends: bool) -> pl.DataFrame:
        nothing = pl.lit(0, pl.Int64)
        volume, packets = pl.col(_BYTES), pl.col(_PACKETS)
        return sums.select(
            WINDOW,
            self._words.name("number", schema.NODE),
            self._words.group("own", schema.GROUP),
            self._words.group("peer", schema.PEER_GROUP),
            self._words.plane(_PLANE_CODE),
            (volume if sends else nothing).alias(schema.TX_BYTES.name),
            (nothing if sends else volume).alias(schema.RX_BYTES.name),
            (packets if sends else nothing).alias(schema.TX_PACKETS.name),
            (nothing if sends else packets).alias(schema.RX_PACKETS.name),
            pl.col(_FLOWS).alias(schema.FLOWS.name),
        )

    def _rails(self, sums: pl.DataFrame) -> pl.DataFrame:
        rail = pl.Series(schema.RAIL, self._books.addresses.rails[sums.get_column("number").to_numpy()])
        on_rails = sums.with_columns(rail).filter(pl.col(schema.RAIL) != NO_RAIL)
        if on_rails.is_empty():
            return pl.DataFrame()
        whole = on_rails.group_by(WINDOW, "number", "own", schema.RAIL).agg(pl.sum(_BYTES))
        return whole.select(
            WINDOW,
            self._words.name("number", schema.NODE),
            self._words.group("own", schema.GROUP),
            pl.col(schema.RAIL).cast(pl.String),
            pl.col(_BYTES).alias(schema.TX_BYTES.name),
        )

    def _pairs(self, rows: pl.DataFrame) -> pl.DataFrame:
        training = is_set(self._training, _SG) & is_set(self._training, _DG)
        sums = (
            rows.filter(training & pl.col("src_listed") & pl.col("dst_listed"))
            .group_by(WINDOW, _SRC, _DST, _PLANE_CODE)
            .agg(pl.sum(_BYTES))
        )
        return sums.select(
            WINDOW,
            self._words.name(_SRC, schema.SRC),
            self._words.name(_DST, schema.DST),
            self._words.plane(_PLANE_CODE),
            pl.col(_BYTES).alias(schema.BYTES.name),
        )

    # -- storage and inference ---------------------------------------------------------------------

    def _storage_io(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Both directions of every storage endpoint. What two endpoints say to each other is load of both."""
        sides = []
        for endpoint, own, listed, peer, peer_group, reads in (
            (_SRC, _SG, "src_listed", _DST, _DG, True),
            (_DST, _DG, "dst_listed", _SRC, _SG, False),
        ):
            of_storage = rows.filter(is_set(self._storage, own))
            if of_storage.is_empty():
                continue
            sums = of_storage.group_by(WINDOW, endpoint, own, listed, peer, peer_group).agg(pl.sum(_BYTES))
            # Whoever probes a prefix in which nobody stands must not make a series of each address.
            is_known = pl.col(listed) | ~is_set(self._has_inventory, own)
            name = self._words.name(endpoint, schema.ENDPOINT)
            nothing, volume = pl.lit(0, pl.Int64), pl.col(_BYTES)
            sides.append(
                sums.select(
                    WINDOW,
                    pl.when(is_known).then(name).otherwise(pl.lit(schema.OTHER)).alias(schema.ENDPOINT),
                    self._words.group(own, schema.ENDPOINT_GROUP),
                    self._words.name(peer, schema.NODE),
                    self._words.group(peer_group, schema.GROUP),
                    (volume if reads else nothing).alias(schema.READ_BYTES.name),
                    (nothing if reads else volume).alias(schema.WRITE_BYTES.name),
                )
            )
        return _all_of(sides)

    def _requests(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What clients sent to inference nodes in conversations that they opened."""
        opened = is_set(self._inference, _DG) & (pl.col(_SG) != pl.col(_DG)) & ~pl.col("dst_opened")
        requests = rows.filter(opened)
        if requests.is_empty():
            return pl.DataFrame()
        return requests.select(
            WINDOW,
            *self._parties(),
            *self._kind_of_traffic(),
            self._by_window(
                requests, lambda windows: off_window_mask(self._site, self._inference_hours, windows)
            ).alias(schema.OFF_WINDOW),
            *self._labels_of(requests, _SRC),
            *_counts(),
            *self._details(),
        )

    def _sessions(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Uses of management services, both directions under who opened them."""
        server = pl.when("dst_opened").then(_SG).otherwise(_DG)
        is_there = is_set(self._session_services_there, _SERVICE_CODE) & is_set(self._management, server)
        used = rows.filter(is_set(self._session_services, _SERVICE_CODE) | is_there)
        if used.is_empty():
            return pl.DataFrame()
        turned = used.with_columns(
            *(
                pl.when("dst_opened").then(other).otherwise(one).alias(one)
                for pair in ((_SRC, _DST), (_SG, _DG))
                for one, other in (pair, pair[::-1])
            ),
            pl.when("dst_opened").then(0).otherwise(_BYTES).alias(schema.TX_BYTES.name),
            pl.lit(False).alias("dst_opened"),
        )
        return turned.select(
            WINDOW,
            *self._parties(),
            *self._kind_of_traffic(),
            *(one for one in self._labels_of(turned, _SRC) if one.name in schema.MANAGED.tags),
            pl.col(_BYTES).alias(schema.BYTES.name),
            schema.TX_BYTES.name,
            pl.col(_FLOWS).alias(schema.FLOWS.name),
            *self._details(),
        )

    # -- what should not be ------------------------------------------------------------------------

    def _egress(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What goes to the outside, whoever sends it: a source that is no group's is forged, or nobody listed it.

        What public addresses answer is what somebody fetched from them past our exporters: it stays `external`. Who
        sends in a drill's name to somebody real is not drilling.
        """
        leaving = rows.filter(is_set(self._outside, _DG))
        if leaving.is_empty():
            return pl.DataFrame()
        keys = self._books.addresses.keys
        is_ours, to_nobody = (
            pl.lit(pl.Series(prefixes.hold(keys[leaving.get_column(end).to_numpy()])))
            for prefixes, end in ((_OURS, _SRC), (_NOBODYS, _DST))
        )
        src, _, dst, dst_group = self._parties()
        return leaving.select(
            WINDOW,
            src,
            pl.when(is_set(self._has_group, _SG) & (to_nobody | ~is_set(self._drills, _SG)))
            .then(self._words.group(_SG, schema.SRC_GROUP))
            .when(is_ours | ~pl.col("dst_opened"))
            .then(pl.lit(UNLISTED))
            .otherwise(pl.lit(EXTERNAL))
            .alias(schema.SRC_GROUP),
            dst,
            dst_group,
            *self._kind_of_traffic(),
            self._off_hours(leaving).alias(schema.OFF_HOURS),
            _opener().alias(schema.INITIATOR),
            *self._labels_of(leaving, _DST),
            *_counts(),
            *self._details(),
        )

    def _off_hours(self, rows: pl.DataFrame) -> pl.Expr:
        """Return YES in rows of off-hours, by the source group's own where it has any."""
        found = self._by_window(rows, partial(off_hours_mask, self._site))
        for number, site in self._own_hours.items():
            own = self._by_window(rows, partial(off_hours_mask, site))
            found = pl.when(pl.col(_SG) == number).then(own).otherwise(found)
        return found

    def _known_bad(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Conversations with listed addresses, in either direction."""
        if self._threats is None:
            return pl.DataFrame()
        flags = pl.Series("listed", self._threats.flags())
        found = []
        for direction, own, peer, end in (
            (schema.OUTWARD, _SG, _DG, _DST),
            (schema.INWARD, _DG, _SG, _SRC),
        ):
            crossing = rows.filter(is_set(flags, end) & is_set(self._inside, own) & is_set(self._outside, peer))
            if crossing.height:
                listed = self._threats.listed(crossing, end, self._seconds)
                known = [one for one in self._labels_of(listed, end) if one.name != schema.FEED]
                found.append(listed.with_columns(pl.lit(direction).alias(schema.DIRECTION), *known))
        if not found:
            return pl.DataFrame()
        return pl.concat(found).select(
            WINDOW,
            *self._parties(),
            *self._kind_of_traffic(),
            schema.DIRECTION,
            pl.lit(schema.NO).alias(schema.LATE),
            schema.FEED,
            schema.INDICATOR,
            schema.COUNTRY,
            schema.NETWORK,
            *_counts(),
            *self._details(),
            schema.CONFIDENCE.name,
            schema.LISTED_SINCE.name,
            schema.KNOWN_SINCE.name,
            pl.col(WINDOW).alias(schema.SEEN_AT.name),
        )

    def _violations(self, rows: pl.DataFrame) -> pl.DataFrame:
        is_allowed = is_set(self._allowed, pl.col(_SG) * self._width + pl.col(_DG))
        of_management = rows.filter(self._is_management())
        kinds = (
            (schema.Violation.NOT_ALLOWED, rows.filter(~is_allowed)),
            (schema.Violation.WRONG_PLANE, rows.filter("wrong_plane")),
            (schema.Violation.MANAGEMENT, of_management.filter(~is_allowed | self._is_unexpected())),
        )
        return _all_of(
            found.select(
                WINDOW,
                pl.lit(kind.value).alias(schema.KIND),
                *self._parties(),
                *self._kind_of_traffic(),
                _opener().alias(schema.INITIATOR),
                pl.col(_BYTES).alias(schema.BYTES.name),
                pl.col(_FLOWS).alias(schema.FLOWS.name),
                *self._details(),
            )
            for kind, found in kinds
            if found.height
        )

    def _is_management(self) -> pl.Expr:
        """Whether another group talks with a management group."""
        return (is_set(self._management, _SG) | is_set(self._management, _DG)) & (pl.col(_SG) != pl.col(_DG))

    def _is_unexpected(self) -> pl.Expr:
        """Whether `management` does not expect the conversation, by who opened it and its service."""
        forth, back = pl.col(_SG) * self._width + pl.col(_DG), pl.col(_DG) * self._width + pl.col(_SG)
        opener = pl.when("dst_opened").then(back).otherwise(forth)
        is_other_service = ~is_set(self._expected_services, _SERVICE_CODE) & pl.col(_PROTOCOL).is_in(_WITH_PORTS)
        return is_set(self._opens_nothing, opener) | (is_set(self._opens_services, opener) & is_other_service)

    def _unknown_nodes(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Addresses that no inventory knows, in groups that have one."""
        sides = []
        for end, listed, group in ((_SRC, "src_listed", _SG), (_DST, "dst_listed", _DG)):
            unlisted = rows.filter(~pl.col(listed) & is_set(self._has_inventory, group))
            if unlisted.is_empty():
                continue
            sides.append(
                unlisted.select(
                    WINDOW,
                    self._words.group(group, schema.GROUP),
                    self._words.name(end, schema.ADDRESS),
                    pl.col(_BYTES).alias(schema.BYTES.name),
                    pl.col(_FLOWS).alias(schema.FLOWS.name),
                    # Whoever is only called need not be there: a scan calls every address.
                    (pl.col(_BYTES) if end == _SRC else pl.lit(0, pl.Int64)).alias(schema.TX_BYTES.name),
                )
            )
        return _all_of(sides)

    # -- columns that several measurements have -----------------------------------------------------

    def _parties(self) -> tuple[pl.Expr, ...]:
        return (
            self._words.name(_SRC, schema.SRC),
            self._words.group(_SG, schema.SRC_GROUP),
            self._words.name(_DST, schema.DST),
            self._words.group(_DG, schema.DST_GROUP),
        )

    def _details(self) -> tuple[pl.Expr, ...]:
        """What tells more of a conversation without a series of its own: addresses, the server's port, the entry."""
        has_ports = pl.col(_PROTOCOL).is_in(_WITH_PORTS) & (pl.col(_HIGH_PORT) > 0)
        texts = pl.lit(self._books.addresses.texts)
        return (
            texts.gather(pl.col(_SRC)).alias(schema.SRC_ADDRESS.name),
            texts.gather(pl.col(_DST)).alias(schema.DST_ADDRESS.name),
            pl.when(has_ports).then(_LOW_PORT).alias(schema.PORT.name),
            pl.when(has_ports).then(_HIGH_PORT).alias(schema.PORT_MAX.name),
            _opener().alias(schema.OPENED_BY.name),
            self._places.text(_PLACE).alias(schema.ENTERED.name),
        )

    def _kind_of_traffic(self) -> tuple[pl.Expr, ...]:
        return self._words.protocol(_PROTOCOL), self._words.service(_SERVICE_CODE)

    def _labels_of(self, rows: pl.DataFrame, end: str) -> list[pl.Series]:
        """Return what is known of the addresses at one end (_SRC or _DST); no column where nobody is asked."""
        return self._labels.columns(rows.get_column(end)) if self._labels else []

    def _by_window(self, rows: pl.DataFrame, mask: Callable[[Ints], Flags]) -> pl.Expr:
        """Return YES where the calendar's mask holds for a row's window, else NO."""
        windows = rows.get_column(WINDOW).unique().sort()
        marks = pl.Series("mark", mask(windows.to_numpy()))
        is_marked = rows.get_column(WINDOW).replace_strict(windows, marks, return_dtype=pl.Boolean)
        return pl.when(is_marked).then(pl.lit(schema.YES)).otherwise(pl.lit(schema.NO))


def _all_of(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return the frames' rows; a frame without columns where there is none."""
    found = list(frames)
    return pl.concat(found) if found else pl.DataFrame()


def _opener() -> pl.Expr:
    return pl.when("dst_opened").then(pl.lit(schema.BY_DESTINATION)).otherwise(pl.lit(schema.BY_SOURCE))


def _counts() -> tuple[pl.Expr, ...]:
    return (
        pl.col(_BYTES).alias(schema.BYTES.name),
        pl.col(_PACKETS).alias(schema.PACKETS.name),
        pl.col(_FLOWS).alias(schema.FLOWS.name),
        pl.col(FIRST),
        pl.col(LAST),
    )
