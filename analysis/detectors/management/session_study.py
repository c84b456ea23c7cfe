"""The ledger of management sessions: how often, how long and how much, by who opened them, every five minutes."""

from collections.abc import Sequence

import polars as pl

from analysis.detectors.inference.access import EVERY
from analysis.detectors.inference.asked import Asked
from analysis.detectors.study import Points, Span
from cluster.model import Cluster, Job
from store import schema
from store.points import WINDOW

_SESSIONS, _OPEN = schema.SESSIONS.name, schema.OPEN_SECONDS.name
_SUMS = (schema.BYTES, schema.TX_BYTES, schema.FLOWS)
_OF = [schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, schema.SERVICE]
_TAGS = list(schema.SESSION.tags)


def ledger(used: pl.DataFrame, *, start: int, stop: int, gap: int, window: int) -> pl.DataFrame:
    """Return the rows of SESSION with start <= WINDOW <= stop: sums over them are those of the sessions.

    A window adds to its session the time since the one before, so that nothing needs to be remembered but the gap.

    Args:
        used: WINDOW, tags of SESSION, bytes, tx_bytes, flows, from `start` - EVERY on, and of each pair the last window
            in `gap` and a window before that.
        start: epoch seconds, a multiple of EVERY.
        stop: epoch seconds; what ended by then is whole.
        gap: seconds without a record after which the next one begins another session.
        window: seconds.
    """
    since = pl.col(WINDOW) - pl.col(WINDOW).shift(1).over(_OF)
    goes_on = (since <= gap + window).fill_null(value=False)
    return (
        used.group_by(WINDOW, *_TAGS)
        .agg(pl.sum(*(field.name for field in _SUMS)))
        .sort(WINDOW, *_TAGS)
        .with_columns(
            (~goes_on).cast(pl.Int64).alias(_SESSIONS), pl.when(goes_on).then(since).otherwise(window).alias(_OPEN)
        )
        .with_columns((pl.col(WINDOW) // EVERY + 1) * EVERY)
        .filter(pl.col(WINDOW).is_between(start, stop))
        .group_by(WINDOW, *_TAGS)
        .agg(pl.sum(*(field.name for field in schema.SESSION.fields)))
        .sort(WINDOW, *_TAGS)
    )


class SessionStudy:
    """Keeps the ledger.

    Args:
        cluster: the length of a gap.
        asked: reads windows, and knows who had which address.
    """

    measurements = (schema.SESSION,)

    def __init__(self, cluster: Cluster, asked: Asked) -> None:
        self._gap, self._window, self._asked = cluster.management.session_gap, cluster.bridge.window, asked

    def judge(self, span: Span, jobs: Sequence[Job]) -> Points:
        """Return the rows of the pass, each window under the user who had the address then."""
        del jobs
        self._asked.refresh(span)
        first = Asked.begin(span) + EVERY
        begin = first - EVERY
        # A live analysis does this every few seconds: of what was before, when each pair was last seen is enough.
        before = self._asked.last_seen(schema.MANAGED, _OF, begin - self._gap - self._window, begin)
        windows = self._asked.read(schema.MANAGED, _SUMS, begin, span.closed, [])
        used = pl.concat([self._asked.with_users(windows), before], how="diagonal").with_columns(
            pl.col(_TAGS).fill_null(""), pl.col(*(field.name for field in _SUMS)).fill_null(0)
        )
        stop = span.closed // EVERY * EVERY
        return [(schema.SESSION, ledger(used, start=first, stop=stop, gap=self._gap, window=self._window))]
