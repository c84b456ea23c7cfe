"""Who administered what: management sessions of the flow archive, with country and user of their sources."""

import time
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from analysis.detectors.inference.asked import identity_of
from analysis.detectors.management import sessions
from app.errors import UserError
from archive import schema
from archive.query import Answer, Filter, archive_folder, ask, end_is
from cluster.model import RESERVED_GROUPS, Cluster
from enrichment.addresses.geography import GeographyFiles
from store.schema import COUNTRY, USER

COLUMNS = (
    schema.START, schema.END, "seconds", schema.SRC_NODE, schema.SRC_GROUP, COUNTRY, USER, schema.DST_NODE,
    schema.DST_GROUP, schema.SERVICE, sessions.PORT, sessions.SENT, sessions.RECEIVED, sessions.CONNECTIONS,
    schema.FLOWS, sessions.BEGUN_BEFORE, sessions.GOES_ON, schema.SRC, schema.DST, schema.PROTOCOL,
)  # fmt: skip
"""Of a session: times in epoch seconds, SRC opened it; country and user empty where unknown."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found.

    Attributes:
        frame: sessions, COLUMNS, in the order in which they began.
        answer: of the archive, which knows what the period lacks.
        unread: exports of sign-ins that could not be read, a sentence each.
    """

    frame: pl.DataFrame
    answer: Answer
    unread: tuple[str, ...]


def sessions_of(
    cluster: Cluster, question: Filter, *, services: tuple[str, ...] = (), users: tuple[str, ...] = ()
) -> Found:
    """Return the sessions of a period.

    Args:
        cluster: its management services, sign-ins, files that know countries.
        question: `src` opened them, `dst` was opened; what else holds for either side.
        services: only these.
        users: only theirs: names, or pseudonyms.

    Raises:
        UserError: there is no archive or no such service, or the key of pseudonyms is not there.
    """
    asked = sessions.served(cluster, services)
    if not asked.served:
        hint = "list services under management.sessions; those of sessions_there need a group of role management"
        raise UserError("cluster.yaml has no such management service", hint)
    answer = ask(
        archive_folder(cluster), replace(question, either_way=True, served=asked.served), settings=cluster.archive
    )
    turned = sessions.oriented(answer.frame, cluster)
    ends = [end_is(side, texts, turned) for side, texts in (("src", question.src), ("dst", question.dst)) if texts]
    named = [pl.col(schema.SERVICE).is_in(services)] if services else []
    turned = turned.filter(*ends, *named)
    found = sessions.joined(turned, cluster.management.session_gap, question.start, question.stop)
    who, unread = _users(cluster, found, question.start)
    frame = found.with_columns(_countries(cluster, found), who).select(COLUMNS)
    if users:
        frame = frame.filter(pl.col(USER).is_in([identity_of(cluster).names.listed(user) for user in users]))
    return Found(frame, answer, unread)


def _countries(cluster: Cluster, found: pl.DataFrame) -> pl.Series:
    texts = dict.fromkeys(found[schema.SRC].unique(), "")
    if cluster.geography.files:
        files = GeographyFiles(cluster.geography)
        files.refresh()
        texts = dict(zip(texts, files.label([*texts])[COUNTRY], strict=True))
    outside = {*cluster.outside_ids(), *RESERVED_GROUPS}
    rows = found.select(schema.SRC, schema.SRC_GROUP).iter_rows()
    return pl.Series(COUNTRY, [texts[address] if group in outside else "" for address, group in rows], pl.String)


def _users(cluster: Cluster, found: pl.DataFrame, start: int) -> tuple[pl.Series, tuple[str, ...]]:
    """Return who had the source's address when each session began; else, when it ended."""
    if not cluster.identity.sources:
        return pl.Series(USER, [""] * found.height, pl.String), ()
    now = time.time()
    identity = identity_of(cluster, max(int(now) - start, 0))
    identity.refresh(now)
    addresses = found[schema.SRC].to_list()
    begun, ended = (identity.table.user_at(addresses, found[name].to_numpy()) for name in (schema.START, schema.END))
    users = np.where(begun == "", ended, begun)
    unread = tuple(f"sign-ins {one.name}: {one.error}" for one in identity.readings() if one.error)
    return pl.Series(USER, users.tolist(), pl.String), unread
