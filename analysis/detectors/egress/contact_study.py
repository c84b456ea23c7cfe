"""First contacts as the analyser runs them: from the store's egress rows to `contact` rows and the memory of pairs."""

import math
from collections.abc import Sequence

import polars as pl

from analysis.detectors.egress import contacts
from analysis.detectors.egress.contacts import ContactPolicy
from analysis.detectors.study import Points, Span
from analysis.evidence import Reader
from analysis.state import State
from app.log import Log
from app.units import format_moment
from cluster.model import Cluster, Job
from store import schema
from store.points import WINDOW

_DAY = 86_400
_FORGOTTEN_AT_ONCE = 10_000
"""Pairs that a round forgets at most: it should not take seconds longer than others."""


class ContactStudy:
    """Finds first contacts.

    Args:
        cluster: whose windows are read.
        reader: of the store.
        state: remembers every pair seen, for as long as any retention does.
        log: for new contacts.
    """

    measurements = (schema.CONTACT,)

    def __init__(self, cluster: Cluster, reader: Reader, state: State, log: Log) -> None:
        self._window = cluster.bridge.window
        self._reader, self._state, self._log = reader, state, log
        self._policy = ContactPolicy()
        self._keep = max(one.keep for one in cluster.retentions())
        self._looked = 0

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return rows up to `span.now`: a first contact need not wait for its window to close."""
        del jobs
        episode = math.ceil(self._policy.episode / self._window) * self._window
        since = span.start - max(episode, self._policy.storm_seconds)
        # What was before is asked for young contacts alone, and most of the time there are none.
        young = pl.col(contacts.FIRST_SEEN).is_between(span.start - episode, span.start, closed="none")
        is_young = self._state.contacts(since).select(young.any()).item()
        egress = self._reader.egress(span.start - episode if is_young else span.start, span.now)
        pairs = egress.filter(pl.col(WINDOW) >= span.start).group_by(contacts.PAIR).agg(pl.max(WINDOW))
        known = self._state.known_contacts(pairs, since)
        told = known.filter(pl.col(contacts.FIRST_SEEN) >= span.start)
        known = known.filter(pl.col(contacts.FIRST_SEEN) < span.start)
        found = contacts.find(
            egress,
            known.select(*contacts.CONTACT_COLUMNS),
            self._state.decisions(),
            start=span.start,
            learning_end=self._state.learning_end,
            window=self._window,
            policy=self._policy,
        )
        self._tell(found.contacts, told)
        # From the same start on they are found again, so that a crash before the position moves costs nothing.
        self._state.save_contacts(span.start, found.contacts, _to_note(known, pairs))
        self._forget(span.start)
        return [(schema.CONTACT, found.points)]

    def _forget(self, now: int) -> None:
        """Forget what the store has forgotten: a pair that came back then would be new to a rebuilt state, too."""
        if self._looked <= now < self._looked + _DAY:
            return
        # What is noted once a day may be a day older than it says.
        oldest = now - self._keep - _DAY
        count = self._state.forget_contacts(now, oldest, _FORGOTTEN_AT_ONCE)
        if count:
            self._log.line("contacts_forgotten", contacts=count, unseen_since=format_moment(oldest))
        if count < _FORGOTTEN_AT_ONCE:
            self._looked = now

    def _tell(self, found: pl.DataFrame, told: pl.DataFrame) -> None:
        fresh = found.filter(pl.col(contacts.NEW) == 1, pl.col(contacts.DIGEST) == 0)
        for row in fresh.join(told.select(contacts.PAIR), on=contacts.PAIR, how="anti").iter_rows(named=True):
            self._log.line(
                "new_contact",
                src=row[schema.SRC],
                dst=row[schema.DST],
                service=f"{row[schema.PROTO]}/{row[schema.SERVICE]}",
                first_seen=format_moment(row[contacts.FIRST_SEEN]),
            )


def _to_note(known: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the known pairs that were last noted a day before their newest window (`pairs`) or earlier."""
    stale = pl.col(WINDOW) - pl.col(contacts.LAST_SEEN) >= _DAY
    return known.join(pairs, on=contacts.PAIR).filter(stale).with_columns(pl.col(WINDOW).alias(contacts.LAST_SEEN))
