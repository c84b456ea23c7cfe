"""Countries that a service of inference has not seen before.

A service is an inference group and the service that is called there: its nodes are replicas of each other, and who may
chat with a model from anywhere need not log in to it from anywhere. A country is seen by a service when a conversation
from there has brought more than `unusual_country_bytes` within five minutes (of the clock: 12:00 to 12:05): probes,
which every public address gets from all over the world, are no history, or nothing would ever be unusual.

What a service sees within `country_learning` after its first client is learnt: the first of all, so that one that was
asked from inside for months has learnt already when its first client from outside comes. All services learn for as long
after the first country that any of them sees: before it nobody may have known where clients are. A country that comes
later is new: for a day from its first conversation on, every window of every client from there is a row, so that each
is reported; then it is part of the history, for ever.

Everything here is a function of the conversations and of what was known before them: a live analysis and a later one
over the same range agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analysis.detectors.inference.access import EVERY, bounded
from store import schema
from store.packed import UNNAMED
from store.points import WINDOW

FIRST_SEEN = schema.CONTACT_FIRST.name
NEW = schema.CONTACT_NEW.name

COUNTRY_COLUMNS: dict[str, pl.DataType] = {
    schema.DST_GROUP: pl.String(),
    schema.SERVICE: pl.String(),
    schema.COUNTRY: pl.String(),
    FIRST_SEEN: pl.Int64(),  # start of the window in which it had brought enough
    NEW: pl.Int64(),  # 0: learnt
}
"""What is remembered: one row a service and country, also where none is known: it tells when the service began."""

_SERVICE = [schema.DST_GROUP, schema.SERVICE]
_PLACE = [*_SERVICE, schema.COUNTRY]
_TAGS = list(schema.UNUSUAL_COUNTRY.tags)
_BYTES, _FLOWS, _DURATION = schema.BYTES.name, schema.FLOWS.name, schema.DURATION.name
_BIN, _SO_FAR, _SECONDS_SO_FAR, _BEGIN = "bin", "so_far", "seconds_so_far", "begin"


@dataclass(frozen=True, slots=True)
class CountryPolicy:
    """The numbers of an unusual country.

    Attributes:
        least: bytes that a conversation must exceed within EVERY seconds for its country to be seen.
        learning: seconds after the first client of a service for which its countries are learnt.
        unusual: seconds for which a new country stays unusual.
    """

    least: int
    learning: int
    unusual: int = 86_400


@dataclass(frozen=True, slots=True)
class Found:
    """What a range held.

    Attributes:
        countries: first seen in it, COUNTRY_COLUMNS.
        points: frame for ``encode(schema.UNUSUAL_COUNTRY, ...)``.
    """

    countries: pl.DataFrame
    points: pl.DataFrame


def find(asked: pl.DataFrame, known: pl.DataFrame, *, start: int, learning_end: int, policy: CountryPolicy) -> Found:
    """Return the countries first seen from `start` on, and the rows of all that are unusual from then on.

    Args:
        asked: conversations (`packed.ASKED`) with UNNAMED and USER, from a multiple of EVERY at or before `start` on.
        known: COUNTRY_COLUMNS of what was seen before `start`.
        start: epoch seconds, a multiple of the window.
        learning_end: what is seen before it is learnt, whatever the service.
        policy: see there.
    """
    windows = (
        asked.group_by(WINDOW, *_TAGS)
        .agg(pl.sum(_BYTES, _FLOWS), pl.max(_DURATION), pl.col(UNNAMED).all())
        .sort(WINDOW, *_TAGS)
        .with_columns((pl.col(WINDOW) // EVERY).alias(_BIN))
        .with_columns(
            pl.col(_BYTES).cum_sum().over(*_TAGS, _BIN).alias(_SO_FAR),
            pl.col(_DURATION).cum_sum().over(*_TAGS, _BIN).alias(_SECONDS_SO_FAR),
        )
    )
    first = (
        windows.filter(pl.col(_SO_FAR) > policy.least, pl.col(WINDOW) >= start)
        .join(known, on=_PLACE, how="anti")
        .group_by(_PLACE)
        .agg(pl.min(WINDOW).alias(FIRST_SEEN))
    )
    seen = pl.concat([known.select(*_PLACE, FIRST_SEEN), first.select(*_PLACE, FIRST_SEEN)])
    begins = seen.group_by(_SERVICE).agg(pl.min(FIRST_SEEN).alias(_BEGIN))
    is_named = (pl.col(schema.COUNTRY) != "") & (pl.col(schema.COUNTRY) != schema.OTHER)
    places_known = seen.filter(is_named).select(pl.min(FIRST_SEEN)).item()
    begun = pl.max_horizontal(pl.col(_BEGIN), pl.lit(places_known, pl.Int64))
    is_learnt = pl.col(FIRST_SEEN) < pl.max_horizontal(begun + policy.learning, pl.lit(learning_end))
    countries = (
        first.join(begins, on=_SERVICE)
        .with_columns(pl.when(is_learnt | ~is_named).then(0).otherwise(1).cast(pl.Int64).alias(NEW))
        .select(*COUNTRY_COLUMNS)
        .sort(_PLACE)
    )
    return Found(countries, _points(windows, pl.concat([known.select(*COUNTRY_COLUMNS), countries]), start, policy))


def _points(windows: pl.DataFrame, countries: pl.DataFrame, start: int, policy: CountryPolicy) -> pl.DataFrame:
    age = pl.col(WINDOW) - pl.col(FIRST_SEEN)
    # What the first of its windows add up to made the country seen: the row of that moment has all of it.
    is_first = pl.col(WINDOW) == pl.col(FIRST_SEEN)
    rows = (
        windows.join(countries.filter(pl.col(NEW) == 1).select(*_PLACE, FIRST_SEEN), on=_PLACE)
        .filter(age >= 0, age < policy.unusual)
        .with_columns(
            pl.when(is_first).then(_SO_FAR).otherwise(_BYTES).alias(_BYTES),
            pl.when(is_first).then(_SECONDS_SO_FAR).otherwise(_DURATION).alias(_DURATION),
            pl.col(FIRST_SEEN).cast(pl.Float64),
        )
    )
    return (
        bounded(rows)
        .filter(pl.col(WINDOW) >= start)
        .group_by(WINDOW, *_TAGS)
        .agg(pl.sum(_BYTES, _FLOWS), pl.max(_DURATION, FIRST_SEEN))
        .sort(WINDOW, *_TAGS)
    )


def seeds(rows: Sequence[tuple[str, str, str, int]]) -> pl.DataFrame:
    """Return what history holds as learnt, COUNTRY_COLUMNS.

    Args:
        rows: group, service, country, when it was seen; each any number of times.
    """
    columns = {name: kind for name, kind in COUNTRY_COLUMNS.items() if name != NEW}
    frame = pl.DataFrame(list(rows), schema=columns, orient="row")
    return (
        frame.group_by(_PLACE)
        .agg(pl.min(FIRST_SEEN))
        .with_columns(pl.lit(0, pl.Int64).alias(NEW))
        .select(*COUNTRY_COLUMNS)
        .sort(_PLACE)
    )
