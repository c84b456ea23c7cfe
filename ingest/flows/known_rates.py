"""The sampling rates that exporters told, so that they hold where nfacctd has forgotten them.

NetFlow v9 and IPFIX tell the rate in options data, now and then. nfacctd keeps templates over a restart and these rates
not: until options come again it prints 0, and what was scaled by 1000 would count as it stands. NetFlow v5 and sFlow
have the rate in every datagram: there 0 is what the exporter says.

A zero is forgetfulness only until nfacctd has told a rate of that observation domain since its start. From then on it
means that nobody samples on that interface (or with a sampler that told nothing), and stays.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from app.log import Log
from ingest.collect.template_file import TemplateFile
from ingest.count.grouped import Ints, grouped, renumbered
from ingest.counters import Counters
from ingest.flows.text_numbers import Vocabulary
from ingest.read import records
from ingest.read.records import Parsed, whole
from ingest.read.spool_file import writer_of
from store.schema import Stage, Unread

SAMPLED = -1
"""SAMPLING_RATE of a record whose exporter shows that it samples, and by no rate that anybody knows."""

_IN_OPTIONS = (9, 10)
"""Versions whose exporters tell rates in options data."""

_KEY_BITS = 62
_DENSE = 64
_KEYS = (records.EXPORTER, records.DOMAIN, records.IFACE_IN)
_PLACE, _FILL, _BEFORE = "place", "fill", "before"
_MOST_LINKS = 1 << 16
"""Interfaces that are remembered; of further ones their domain's rate is."""
_MOST_DOMAINS = 1 << 13
_MOST_WRITERS = 64
"""Daemons whose files lie in one spool; more than may run."""
_TOLD = 8
"""Changes that a line of the log names."""

_Domain = tuple[str, int]


@dataclass(frozen=True, slots=True)
class RateChange:
    """An exporter that samples by another rate from here on.

    Attributes:
        exporter: its address, as printed.
        domain: observation domain or source id.
        before: the rate until now; None where it told none, and `records` were taken as they stand.
    """

    exporter: str
    domain: int
    before: int | None
    now: int
    records: int


@dataclass(slots=True)
class _Told:
    """What a domain told: the last rate, in which life of nfacctd, and that of each interface; 0 where none is."""

    rate: int = 0
    life: str = ""
    links: dict[int, int] = field(default_factory=dict)
    untold: int = 0


class KnownRates:
    """Follows what the exporters tell of their sampling.

    Args:
        templates: those that nfacctd knows: they show who samples, though not by which rate.
    """

    def __init__(self, templates: TemplateFile) -> None:
        self._templates = templates
        self._domains: dict[_Domain, _Told] = {}
        self._lives: dict[str, tuple[str, int, int]] = {}
        self._links = 0

    def take(self, parsed: Parsed, source: str) -> tuple[pl.DataFrame, list[RateChange]]:
        """Return the records of a chunk with the rates that nfacctd has forgotten, and what has changed.

        Args:
            parsed: the chunk, all of it from one life of nfacctd.
            source: the file that it is of.
        """
        frame = self._without_garbage(parsed.frame)
        exporters = parsed.exporters or Vocabulary().words(frame.get_column(records.EXPORTER))
        is_told = records.is_one_of(frame.get_column(records.VERSION).to_numpy(), _IN_OPTIONS)
        if exporters.texts.null_count():
            is_told &= exporters.texts.is_not_null().to_numpy()[exporters.codes]
        rows = np.flatnonzero(is_told)
        if not len(rows):
            return frame, []
        life = self._life_of(source, parsed.first_number)
        columns = (exporters.codes, *(whole(frame.get_column(name)) for name in (*_KEYS[1:], records.SAMPLING_RATE)))
        domains: dict[_Domain, list[tuple[int, int, int, int, int]]] = {}
        for exporter, domain, link, rate, first, last, count in _seen(rows, [one[rows] for one in columns]):
            domains.setdefault((exporters.texts[exporter], domain), []).append((link, rate, first, last, count))
        fills: list[tuple[str, int, int, int, int]] = []
        changes: list[RateChange] = []
        for key, seen in domains.items():
            told = self._domains.get(key) or _Told()
            begins = min((first for _, rate, first, _, _ in seen if rate > 0), default=frame.height)
            if any(rate <= 0 for _, rate, *_ in seen) and told.life != life:
                fills += self._fills(key, told, seen, begins, frame.height)
            changes += _learn(key, told, seen, life=life, begins=begins)
            self._remember(key, told)
        return _filled(frame, rows, fills), changes

    def _without_garbage(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return records without the rates that nfacctd has misread: such an exporter samples, nobody knows how."""
        garbled = [exporter for exporter, unread in self._templates.unread().items() if unread & Unread.RATES]
        if not garbled:
            return frame
        is_garbled = pl.col(records.EXPORTER).is_in(garbled) & pl.col(records.VERSION).is_in(_IN_OPTIONS)
        rate = pl.when(is_garbled).then(SAMPLED).otherwise(pl.col(records.SAMPLING_RATE))
        return frame.with_columns(rate.alias(records.SAMPLING_RATE))

    def _life_of(self, source: str, number: int | None) -> str:
        """Return which life of which nfacctd a chunk is of.

        Our own numbers begin anew with each; without them a file is taken for one.
        """
        if number is None:
            return source
        writer = writer_of(source)
        began, before, life = self._lives.get(writer, ("", number, 0))
        if number <= before:
            began, life = source, life + 1
        if writer in self._lives or len(self._lives) < _MOST_WRITERS:
            self._lives[writer] = began, number, life
        return f"{began}/{life}"

    def _fills(
        self, key: _Domain, told: _Told, rows: Iterable[tuple[int, int, int, int, int]], begins: int, height: int
    ) -> list[tuple[str, int, int, int, int]]:
        """Return what the zeros of a domain's interfaces are to become, and before which row; count those untold."""
        found = []
        for link, rate, first, _, count in rows:
            if rate > 0 or first >= begins:
                continue
            value = told.links.get(link, told.rate)
            if not value and not told.rate:
                told.untold += count
                is_sampled = begins < height or self._is_sampled(key[0])
                value = SAMPLED if is_sampled else 0
            if value:
                found.append((*key, link, value, begins))
        return found

    def _is_sampled(self, exporter: str) -> bool:
        """Whether an exporter told the rate of another domain, or its templates have a place for one."""
        others = (told.rate > 1 for (name, _), told in self._domains.items() if name == exporter)
        return any(others) or self._templates.tells_sampling(exporter)

    def _remember(self, key: _Domain, told: _Told) -> None:
        if key not in self._domains:
            # Anybody can send anything in the name of an exporter: what is full stays as it is.
            if len(self._domains) >= _MOST_DOMAINS:
                return
            self._domains[key] = told
        self._links += len(told.links)
        if self._links > _MOST_LINKS:
            self._links = sum(len(one.links) for one in self._domains.values())
            if self._links > _MOST_LINKS:
                self._links -= len(told.links)
                told.links.clear()

    # -- memory ------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return plain values from which `load` makes the same."""
        domains = [
            [*key, told.rate, told.life, told.untold, [[link, rate] for link, rate in told.links.items()]]
            for key, told in self._domains.items()
        ]
        return {"lives": [[writer, *life] for writer, life in self._lives.items()], "domains": domains}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take what `dump` gave; nothing where a checkpoint of before this was kept has none."""
        if saved:
            self._lives = {writer: (began, number, life) for writer, began, number, life in saved.get("lives", ())}
            self._domains = {
                (exporter, domain): _Told(rate, life, dict(links), untold)
                for exporter, domain, rate, life, untold, links in saved["domains"]
            }
            self._links = sum(len(told.links) for told in self._domains.values())


def tell_changes(changes: Sequence[RateChange], counters: Counters, log: Log, names: Mapping[str, str]) -> None:
    """Count changes of rates, and tell of them.

    Args:
        changes: those of a chunk.
        counters: where they are counted.
        log: where they are told.
        names: those of exporters, by address.
    """
    if not changes:
        return
    counters.add(Stage.NORMALISE, "rate_changes", len(changes))
    told = [
        f"{names.get(one.exporter, one.exporter)} 1:{one.before} -> 1:{one.now}"
        if one.before
        else f"{names.get(one.exporter, one.exporter)} 1:{one.now} after {one.records} records without a rate"
        for one in changes[:_TOLD]
    ]
    log.sparse("rates_changed", count=len(changes), which=", ".join(told))


def _learn(
    key: _Domain, told: _Told, rows: Iterable[tuple[int, int, int, int, int]], *, life: str, begins: int
) -> list[RateChange]:
    """Take what a chunk told of a domain, its rows in the order of their last records; return what has changed."""
    before: dict[int, int | None] = {}
    for link, rate, _, last, _ in rows:
        if rate > 0:
            was = told.links.get(link, 0) or (0 if told.links else told.rate)
            if not told.rate and told.untold:
                before[rate] = None
            elif was and was != rate:
                before[rate] = was
            told.rate, told.life, told.links[link] = rate, life, rate
        elif told.life == life or last > begins:
            told.links[link] = 0
    untold, told.untold = (told.untold, 0) if told.rate else (0, told.untold)
    return [RateChange(*key, was, rate, untold if was is None else 0) for rate, was in before.items()]


def _seen(rows: Ints, keys: list[Ints]) -> Iterator[tuple[int, ...]]:
    """Yield each different row of some columns, with its first place among `rows`, its last one, and how many it has.

    They come in the order of the last ones.
    """
    key, end = keys[0], int(keys[0].max()) + 1
    for column in keys[1:]:
        number = column - column.min()
        width = int(number.max()) + 1
        if width > _DENSE:
            # Rates are few, but large: the fewer numbers, the sooner rows are counted without being sorted.
            different, number = renumbered(number, width)
            width = len(different)
        if (end * width).bit_length() > _KEY_BITS:
            different, key = renumbered(key, end)
            end = len(different)
        key, end = key * width + number, end * width
    groups = grouped(key, end)
    places = np.arange(len(rows))
    first, last = groups.least(places), groups.largest(places)
    order = np.argsort(last)
    first, last, count = first[order], last[order], groups.count()[order]
    found = (*(column[first] for column in keys), rows[first], rows[last], count)
    yield from zip(*(column.tolist() for column in found), strict=True)


def _filled(frame: pl.DataFrame, rows: Ints, fills: list[tuple[str, int, int, int, int]]) -> pl.DataFrame:
    """Return records with other rates in place of zeros: of an interface, before a row, in some of the rows."""
    if not fills:
        return frame
    part = frame.select(*_KEYS, records.SAMPLING_RATE)[rows].with_columns(
        pl.col(_KEYS[1:]).fill_null(0), pl.Series(_PLACE, rows)
    )
    schema = {name: part.schema[name] for name in _KEYS} | {_FILL: pl.Int64(), _BEFORE: pl.Int64()}
    table = pl.DataFrame(fills, schema=schema, orient="row")
    zeros = part.filter(pl.col(records.SAMPLING_RATE) <= 0).join(table, on=_KEYS)
    zeros = zeros.filter(pl.col(_PLACE) < pl.col(_BEFORE))
    rates = np.array(frame.get_column(records.SAMPLING_RATE).to_numpy())
    rates[zeros.get_column(_PLACE).to_numpy()] = zeros.get_column(_FILL).to_numpy()
    return frame.with_columns(pl.Series(records.SAMPLING_RATE, rates))
