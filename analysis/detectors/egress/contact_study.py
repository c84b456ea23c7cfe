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


class ContactStudy:
    """Finds first contacts.

    Args:
        cluster: whose windows are read.
        reader: of the store.
        state: remembers every pair ever seen.
        log: for new contacts.
    """

    measurements = (schema.CONTACT,)

    def __init__(self, cluster: Cluster, reader: Reader, state: State, log: Log) -> None:
        self._window = cluster.bridge.window
        self._reader, self._state, self._log = reader, state, log
        self._policy = ContactPolicy()

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return rows up to `span.now`: a first contact need not wait for its window to close."""
        del jobs
        seen = self._state.contacts()
        episode = math.ceil(self._policy.episode / self._window) * self._window
        known = seen.filter(pl.col(contacts.FIRST_SEEN) < span.start)
        # What was before is asked for young contacts alone, and most of the time there are none.
        is_young = known.select((pl.col(contacts.FIRST_SEEN) > span.start - episode).any()).item()
        found = contacts.find(
            self._reader.egress(span.start - episode if is_young else span.start, span.now),
            known,
            self._state.decisions(),
            start=span.start,
            learning_end=self._state.learning_end,
            window=self._window,
            policy=self._policy,
        )
        self._tell(found.contacts, seen.filter(pl.col(contacts.FIRST_SEEN) >= span.start))
        # From the same start on they are found again, so that a crash before the position moves costs nothing.
        self._state.save_contacts(span.start, found.contacts)
        return [(schema.CONTACT, found.points)]

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
