"""What clients asked inference for, and who they were: read once a pass, for every study that judges it."""

import time
from collections.abc import Callable, Sequence

import polars as pl

from analysis.detectors.inference.access import EVERY, with_users
from analysis.detectors.study import Span
from app.errors import UserError
from app.log import Log
from cluster.model import Cluster, Role
from enrichment.identity.identity_table import canonical
from enrichment.identity.signin_sources import Identity
from enrichment.watched import FileReading
from store import schema
from store.influx import Store, read_secret
from store.influxql import Condition, Select, compare, is_in, newest
from store.packed import ASKED, told_apart, unpacked
from store.points import WINDOW, columns
from store.schema import Field, Measurement
from store.sums import binned

VOLUME = (schema.BYTES, schema.FLOWS)


def identity_of(cluster: Cluster, keep: int | None = None) -> Identity:
    """Return the sign-ins of a cluster, nothing read yet.

    Args:
        cluster: where they are.
        keep: seconds for which they matter; None: as long as raw windows do.

    Raises:
        UserError: the key of pseudonyms is not there, or too short.
    """
    settings = cluster.identity
    key = read_secret(settings.pseudonymise).encode() if settings.pseudonymise else None
    try:
        return Identity(settings, cluster.site, cluster.store.keep_raw if keep is None else keep, key)
    except ValueError as error:
        raise UserError(f"identity.pseudonymise: {error}", "make one with `openssl rand -hex 32`") from error


def delay_of(cluster: Cluster) -> int:
    """Return how many seconds later clients are judged than everything else: exports of sign-ins come late."""
    return cluster.identity.delay if cluster.identity.sources else 0


class Asked:
    """Conversations of clients, each with the user who had the address then.

    Args:
        cluster: groups and nodes.
        store: read from.
        log: for trouble with exports.
        clock: the time of day, by which sign-ins of the future are refused.

    Attributes:
        identity: who had which address.
    """

    def __init__(self, cluster: Cluster, store: Store, log: Log, clock: Callable[[], float] = time.time) -> None:
        self.identity = identity_of(cluster)
        self._store, self._log, self._clock = store, log, clock
        self._window = cluster.bridge.window
        self._inference = tuple(group.id for group in cluster.groups_with(Role.INFERENCE))
        self._addresses = {
            node.name: tuple(canonical(str(one.address)) for one in node.addresses) for node in cluster.nodes
        }
        self._told: dict[str, str] = {}
        self._refreshed_for: Span | None = None
        self._read_for: tuple[Span, pl.DataFrame] | None = None

    @staticmethod
    def begin(span: Span) -> int:
        """Return from when on `of` tells: a multiple of EVERY, at or before the begin of a span."""
        return (-(-span.start // EVERY) - 1) * EVERY

    def of(self, span: Span) -> pl.DataFrame:
        """Return what clients sent to inference groups from `begin` until the span closes: ASKED, UNNAMED, USER."""
        # All who judge a pass are handed the same span, and see the same.
        if self._read_for is None or self._read_for[0] is not span:
            self.refresh(span)
            self._read_for = span, self.with_users(self._asked(self.begin(span), span.closed))
        return self._read_for[1]

    def refresh(self, span: Span) -> None:
        """Read new sign-ins, once a pass."""
        if self._refreshed_for is not span:
            self._refreshed_for = span
            self.identity.refresh(self._clock())
            self._tell()

    def with_users(self, conversations: pl.DataFrame) -> pl.DataFrame:
        """Return conversations (WINDOW, SRC, ...) with USER."""
        if not len(self.identity.table):
            return conversations.with_columns(pl.lit(schema.UNKNOWN_USER).alias(schema.USER))
        return with_users(conversations, self.identity.table, self._addresses, self._window)

    def read(
        self, measurement: Measurement, fields: tuple[Field, ...], start: int, stop: int, where: list[Condition]
    ) -> pl.DataFrame:
        """Return the windows of a measurement that hold anything, all shards together."""
        tags = [tag for tag in measurement.tags if tag != schema.SHARD]
        found = binned(
            self._store,
            measurement,
            schema.RAW,
            fields,
            tags,
            start=start,
            stop=stop,
            seconds=self._window,
            where=where,
            as_stored=True,
        )
        filled = found.with_columns(pl.col(field.name).fill_null(0) for field in fields)
        return filled.filter(pl.col(schema.BYTES.name) + pl.col(schema.FLOWS.name) > 0)

    def last_seen(self, measurement: Measurement, tags: Sequence[str], start: int, stop: int) -> pl.DataFrame:
        """Return the last window with any bytes in a range of each combination of tags: WINDOW, the tags."""
        there = Select(measurement, schema.RAW).take(newest(schema.BYTES)).where(compare(schema.BYTES, ">", 0))
        rows = [(moment, *of) for moment, *of, _ in self._store.rows(there.by(*tags).between(start, stop))]
        return pl.DataFrame(rows, schema=columns(*tags), orient="row")

    def readings(self) -> list[FileReading]:
        """Return the state of each source of sign-ins."""
        return self.identity.readings()

    def _asked(self, start: int, stop: int) -> pl.DataFrame:
        named, rest = pl.DataFrame(schema=ASKED), pl.DataFrame(schema=ASKED)
        if self._inference:
            where = [is_in(schema.DST_GROUP, sorted(self._inference))]
            named = self.read(schema.INFERENCE, (*VOLUME, schema.DURATION), start, stop, where).select(*ASKED)
            rest = unpacked(self._store, schema.INFERENCE_UNNAMED, ASKED, start=start, stop=stop, where=where)
        return told_apart(named, rest, [WINDOW, schema.DST_GROUP])

    def _tell(self) -> None:
        """Say once what is wrong with an export, and when it is well again."""
        for reading in self.identity.readings():
            if self._told.get(reading.name, "") != reading.error:
                self._told[reading.name] = reading.error
                if reading.error:
                    self._log.warning("sign_ins_invalid", source=reading.name, why=reading.error)
                else:
                    self._log.line("sign_ins_recovered", source=reading.name)
