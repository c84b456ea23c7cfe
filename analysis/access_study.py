"""Access as the analyser runs it: from ingest's conversations and the exports of sign-ins to `access` rows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from analysis import access
from analysis.access import ASKED, EVERY
from analysis.breaches import oriented
from analysis.study import Points, Span
from analysis.sums import any_of, binned
from cluster import schema
from cluster.errors import UserError
from cluster.model import Cluster, Job, Role
from cluster.schema import Field, Measurement, Violation
from enrichment.identity import canonical
from enrichment.identity_sources import Identity
from ingest.logs import Log
from ingest.points import WINDOW
from ingest.store import Store, read_secret

_VOLUME = (schema.BYTES, schema.FLOWS)


def access_studies(cluster: Cluster, store: Store, log: Log) -> tuple["AccessStudy", ...]:
    """Return the study where cluster.yaml asks for it: sign-ins to read, or a list of who may ask inference."""
    if not cluster.identity.sources and not cluster.inference.access:
        return ()
    return (AccessStudy(cluster, store, identity_of(cluster), log),)


def identity_of(cluster: Cluster) -> Identity:
    """Return the sign-ins of a cluster, nothing read yet.

    Raises:
        UserError: the key of pseudonyms is not there, or too short.
    """
    settings = cluster.identity
    key = read_secret(settings.pseudonymise).encode() if settings.pseudonymise else None
    try:
        return Identity(settings, cluster.site, cluster.store.keep_raw, key)
    except ValueError as error:
        raise UserError(f"identity.pseudonymise: {error}", "make one with `openssl rand -hex 32`") from error


class AccessStudy:
    """Says who asked inference and management, and who of them is not on the list.

    Args:
        cluster: groups, `inference.access`.
        store: read from.
        identity: who had which address.
        log: where trouble with exports is told.
        clock: the time of day, by which sign-ins of the future are refused.
    """

    measurements = (schema.ACCESS, schema.ACCESS_BREACH)

    def __init__(
        self, cluster: Cluster, store: Store, identity: Identity, log: Log, clock: Callable[[], float] = time.time
    ) -> None:
        self._cluster, self._store, self._identity, self._log, self._clock = cluster, store, identity, log, clock
        self._window = cluster.bridge.window
        self._inference = tuple(group.id for group in cluster.groups_with(Role.INFERENCE))
        spelled = tuple(
            replace(entry, users=tuple(identity.names.listed(user) for user in entry.users))
            for entry in cluster.inference.access
        )
        self._policy = access.policy_of(cluster, spelled)
        self._addresses = {
            node.name: tuple(canonical(str(one.address)) for one in node.addresses) for node in cluster.nodes
        }
        self._told: dict[str, str] = {}

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return what was asked in the five minutes before each, and what is not on the list, window by window."""
        del jobs
        self._identity.refresh(self._clock())
        self._tell()
        first = -(-span.start // EVERY) * EVERY
        asked = self._users(self._asked(min(first - EVERY, span.start), span.closed))
        managed = self._users(self._managed(first - EVERY, span.closed))
        found = access.accesses(pl.concat([asked, managed]), first, span.closed // EVERY * EVERY)
        points = [(schema.ACCESS, found)]
        if self._policy.entries:
            denied = access.breaches(asked, self._policy, self._cluster, span.start)
            points.append((schema.ACCESS_BREACH, denied))
        return points

    def _users(self, asked: pl.DataFrame) -> pl.DataFrame:
        return access.with_users(asked, self._identity.table, self._addresses, self._window)

    def _asked(self, start: int, stop: int) -> pl.DataFrame:
        """Return what clients sent to inference groups."""
        if not self._inference:
            return pl.DataFrame(schema=ASKED)
        where = [any_of(schema.DST_GROUP, self._inference)]
        return self._read(schema.INFERENCE, (*_VOLUME, schema.DURATION), start, stop, where).select(*ASKED)

    def _managed(self, start: int, stop: int) -> pl.DataFrame:
        """Return unexpected connections with management groups, both directions of each together."""
        where = [any_of(schema.KIND, [Violation.MANAGEMENT.value])]
        found = oriented(self._read(schema.VIOLATION, _VOLUME, start, stop, where))
        return found.select(
            WINDOW,
            schema.SRC,
            schema.SRC_GROUP,
            schema.DST,
            schema.DST_GROUP,
            schema.PROTO,
            schema.SERVICE,
            *(pl.lit("").alias(tag) for tag in (schema.OFF_WINDOW, schema.COUNTRY, schema.NETWORK)),
            (pl.col(schema.TX_BYTES.name) + pl.col(schema.RX_BYTES.name)).alias(schema.BYTES.name),
            schema.FLOWS.name,
            pl.lit(0.0).alias(schema.DURATION.name),
        )

    def _read(
        self, measurement: Measurement, fields: tuple[Field, ...], start: int, stop: int, where: list[str]
    ) -> pl.DataFrame:
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
        )
        filled = found.with_columns(pl.col(field.name).fill_null(0) for field in fields)
        return filled.filter(pl.col(schema.BYTES.name) + pl.col(schema.FLOWS.name) > 0)

    def _tell(self) -> None:
        """Say once what is wrong with an export, and when it is well again."""
        for reading in self._identity.readings():
            if self._told.get(reading.name, "") != reading.error:
                self._told[reading.name] = reading.error
                self._log.line("sign_ins", source=reading.name, why=reading.error or "well again")
