"""New openers: which source opens a management service of a group for the first time.

A source knows a service of a group once it exchanged more than a floor with it within some minutes, while the analysis
learns once it sent anything: refused attempts make nothing known. What is known after the learning period is new: for
its first minutes every base window becomes a row, the first with what led to it. Many new sources at once of one
service and group, as when a tool is rolled out, are one row `other`.

What `allowed` or `management` does not expect is told by rules of its own, and not learnt here. Everything is a
function of the windows and of what was known before them.
"""

import polars as pl

from analysis.detectors.egress.networks import FIRST_SEEN, NEW, NetworkPolicy, kept, remembered
from store import schema
from store.points import WINDOW

KEY = (schema.SRC, schema.DST_GROUP, schema.SERVICE)
KNOWN: dict[str, pl.DataType] = {**dict.fromkeys(KEY, pl.String()), FIRST_SEEN: pl.Int64(), NEW: pl.Int64()}
"""What is remembered: one row a source, group and service, since when, and whether it was new then."""

MOST_NAMED = 5
"""New sources of one service and group within `STORM` seconds that are told by name."""
STORM = 600

_BYTES = schema.BYTES.name
_SOURCES, _DESTINATIONS = schema.EVENT_SOURCES.name, schema.EVENT_DESTINATIONS.name
_NAMED = [schema.SRC_GROUP, schema.DST, schema.PROTO, schema.COUNTRY, schema.NETWORK]
NAMES: dict[str, pl.DataType] = dict.fromkeys([*KEY, *_NAMED], pl.String())
"""What rows say of an opener that is told by name."""
_ROW, _CROWD = "row", "crowd"
_OF_MANY = ((schema.SRC, schema.OTHER), (schema.DST, schema.OTHER), (schema.COUNTRY, ""), (schema.NETWORK, ""))


def young(known: pl.DataFrame, start: int, policy: NetworkPolicy) -> pl.DataFrame:
    """Return the openers (KNOWN) that get rows from `start` on, and how many came at once (`crowd`)."""
    place = [schema.DST_GROUP, schema.SERVICE]
    new = known.filter(pl.col(NEW) == 1).sort(*place, FIRST_SEEN)
    crowds = new.rolling(FIRST_SEEN, period=f"{STORM}i", group_by=place).agg(pl.len().alias(_CROWD))
    return (
        new.join(crowds.unique(), on=[*place, FIRST_SEEN], how="left")
        .filter(pl.col(FIRST_SEEN) > start - policy.episode)
    )  # fmt: skip


def rows(
    used: pl.DataFrame, openers: pl.DataFrame, *, start: int, window: int, policy: NetworkPolicy, told: pl.DataFrame
) -> pl.DataFrame:
    """Return the rows of young openers from `start` on, a frame for ``encode(schema.NEW_SESSION, ...)``.

    Args:
        used: windows of `managed`, from policy.window before the first of them became known.
        openers: as `young` gives them.
        start: epoch seconds.
        window: seconds.
        policy: see there.
        told: NAMES under which some of them were told before: other ones would make another alert.
    """
    began = pl.col(FIRST_SEEN)
    mine = (
        used.join(openers, on=KEY)
        .filter(pl.col(WINDOW) > began - policy.window, pl.col(WINDOW) < began + policy.episode)
        .with_columns(pl.max_horizontal(WINDOW, FIRST_SEEN).alias(_ROW))
    )
    largest = (
        mine.filter(pl.col(WINDOW) <= began)
        .group_by(*KEY, *_NAMED)
        .agg(pl.sum(_BYTES))
        .sort(_BYTES, *_NAMED, descending=[True, *[False] * len(_NAMED)])
        .group_by(KEY, maintain_order=True)
        .agg(pl.col(_NAMED).first())
    )
    met = (
        mine.group_by(*KEY, schema.DST).agg(pl.min(_ROW)).group_by(*KEY, _ROW).agg(pl.len().cast(pl.Int64).alias("met"))
    )
    each = (
        mine.group_by(*KEY, FIRST_SEEN, _CROWD, _ROW)
        .agg(pl.sum(_BYTES), (pl.n_unique(WINDOW) * window).cast(pl.Float64).alias(schema.DURATION.name))
        .join(met, on=[*KEY, _ROW], how="left")
        .sort(*KEY, _ROW)
        .with_columns(pl.col("met").fill_null(0).cum_sum().over(KEY).alias(_DESTINATIONS))
        .join(kept(largest, told, KEY), on=KEY)
    )
    is_many = pl.col(_CROWD) > MOST_NAMED
    return (
        each.filter(pl.col(_ROW) >= start)
        .with_columns(
            pl.when(is_many).then(pl.col(_CROWD).cast(pl.Int64)).otherwise(1).alias(_SOURCES),
            *(
                pl.when(is_many).then(pl.lit(text)).otherwise(tag).alias(tag)
                for tag, text in _OF_MANY
            ),
        )
        .group_by(pl.col(_ROW).alias(WINDOW), *schema.NEW_SESSION.tags)
        .agg(
            pl.sum(_BYTES),
            pl.max(schema.DURATION.name, _SOURCES, _DESTINATIONS),
            pl.min(FIRST_SEEN).cast(pl.Float64),
        )
        .sort(WINDOW, *schema.NEW_SESSION.tags)
    )  # fmt: skip


def names_of(found: pl.DataFrame, told: pl.DataFrame, openers: pl.DataFrame) -> pl.DataFrame:
    """Return NAMES of young openers: those of their rows, else those under which they were told before."""
    fresh = found.filter(pl.col(schema.SRC) != schema.OTHER).select(*NAMES).unique(KEY)
    return remembered(fresh, told, openers, KEY)
