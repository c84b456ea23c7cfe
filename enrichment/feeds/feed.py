"""What a threat feed lists: prefixes with their confidence and the time for which each holds, ready to be searched.

Readers of each format fill `Entries`; what comes of them is a `Feed`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from app.errors import UserError
from cluster.model import LOCAL_PREFIXES, Cluster
from enrichment.addresses.prefixes import NOT_FOUND, Bits, Keys, PrefixTable, as_keys, prefix_key, prefix_text
from enrichment.watched import Loaded

_WIDEST = {4: 8, 6: 16}
"""Shortest prefix by IP version that is taken: a wider one lists a good part of the world."""

_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
"""Addresses that mean another machine in every network (RFC 1918, 6598, 4193)."""

_SHOWN = 60

_LAST_SECOND = 1e11
"""Epoch seconds in the year 5138: a larger number counts something else."""

Floats = npt.NDArray[np.float64]

KEY_HIGH, KEY_LOW, BITS = "key_high", "key_low", "bits"


@dataclass(frozen=True, slots=True)
class Feed:
    """What one version of a feed lists: equally long arrays, an entry each.

    Attributes:
        keys: first address of the prefix.
        bits: its length, of 128.
        confidence: 0 to 100.
        start: when it begins to hold, epoch seconds; -inf where the feed does not say.
        end: when it holds no more, epoch seconds; inf where the feed does not say.
        listed: since when it is listed, epoch seconds: `start`, or else as `known`.
        known: the date of the first version that had it, of those that were read, epoch seconds.
        table: finds them.
    """

    keys: Keys
    bits: Bits
    confidence: npt.NDArray[np.uint8]
    start: Floats
    end: Floats
    listed: Floats
    known: Floats
    table: PrefixTable

    def __len__(self) -> int:
        return len(self.keys)

    def indicator(self, entry: int) -> str:
        """Return the prefix of an entry, or its address where it is a single one."""
        return prefix_text(self.keys[entry], int(self.bits[entry]))

    def identity(self) -> pl.DataFrame:
        """Return KEY_HIGH, KEY_LOW (UInt64) and BITS (UInt8): what tells an entry from another in any version."""
        return _identity(self.keys, self.bits)

    def part(self, entries: npt.NDArray[np.int64]) -> "Feed":
        """Return a feed that lists these entries only."""
        keys, bits = self.keys[entries], self.bits[entries]
        return Feed(
            keys=keys,
            bits=bits,
            confidence=self.confidence[entries],
            start=self.start[entries],
            end=self.end[entries],
            listed=self.listed[entries],
            known=self.known[entries],
            table=PrefixTable(keys, bits),
        )


class Refused:
    """Prefixes that no feed may list: the site's own, private ones, and those that never leave their segment."""

    def __init__(self, cluster: Cluster) -> None:
        inside = [str(prefix) for group in cluster.inside_groups() for prefix in group.prefixes]
        self._texts = [*inside, *_PRIVATE, *map(str, LOCAL_PREFIXES)]
        parsed = [prefix_key(text) for text in self._texts]
        self._keys = as_keys([key for key, _ in parsed])
        self._table = PrefixTable(self._keys, np.array([bits for _, bits in parsed], np.uint8))
        self._own = len(inside)

    def overlaps(self, keys: Keys, table: PrefixTable) -> dict[int, str]:
        """Return by entry why it is refused: it holds one of these prefixes, or lies in one."""
        found = {}
        within = self._table.longest(keys)
        for entry in np.flatnonzero(within != NOT_FOUND).tolist():
            found[entry] = self._why(int(within[entry]))
        for number, entry in zip(*(part.tolist() for part in table.all(self._keys)), strict=True):
            found.setdefault(entry, self._why(number))
        return found

    def _why(self, number: int) -> str:
        whose = "the cluster's own" if number < self._own else "not of the Internet"
        return f"expected addresses outside; {self._texts[number]} is {whose}"


class Entries:
    """Collects what a reader finds in a file, and what is wrong with the rest.

    Args:
        path: the file, for errors.
        place: says where the n-th thing stands: ``line 7``.
        confidence: of entries that tell none.
        least_confidence: entries below it are left out.
    """

    def __init__(self, path: Path, place: Callable[[int], str], *, confidence: int, least_confidence: int) -> None:
        self._path, self._place = path, place
        self._confidence, self._least = confidence, least_confidence
        self._keys: list[bytes] = []
        self._bits: list[int] = []
        self._confidences: list[int] = []
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._numbers: list[int] = []
        self._faults: list[tuple[int, str]] = []
        self._skipped = 0
        self._passed = 0

    def add(
        self,
        number: int,
        text: str,
        *,
        confidence: int | None = None,
        start: float = -math.inf,
        end: float = math.inf,
    ) -> None:
        """Take an address or prefix; what is none is skipped and counted."""
        shown = without_port(text.strip())
        try:
            key, bits = prefix_key(shown)
        except ValueError as error:
            self.skip(number, shown, str(error))
            return
        if not start < end:
            self.skip(number, shown, "expected an end of its validity after its beginning")
            return
        level = self._confidence if confidence is None else confidence
        if level < self._least:
            self._passed += 1
            return
        self._keys.append(key)
        self._bits.append(bits)
        self._confidences.append(level)
        self._starts.append(start)
        self._ends.append(end)
        self._numbers.append(number)

    def skip(self, number: int, shown: str, why: str) -> None:
        """Count a thing that is wrong."""
        self._skipped += 1
        if len(self._faults) < 1:
            self._faults.append((number, f"{_quoted(shown)}: {why}"))

    def leave_out(self) -> None:
        """Take note of a thing that is right and does not hold: revoked, deleted, not meant for detection."""
        self._passed += 1

    def loaded(self, refused: Refused, before: Feed | None, dated: float) -> Loaded[Feed]:
        """Return what was found.

        Args:
            refused: what it may not list.
            before: the version read before this one, if there was any.
            dated: when this version was made, epoch seconds.

        Raises:
            UserError: things were found, and none of them is right.
        """
        keys, bits = as_keys(self._keys), np.array(self._bits, np.uint8)
        kept = np.ones(len(keys), np.bool_)
        for entry, why in sorted(self._overlaps(refused, keys, bits).items()):
            kept[entry] = False
            self._skipped += 1
            self._faults.append((self._numbers[entry], f"{_quoted(prefix_text(keys[entry], int(bits[entry])))}: {why}"))
        number, fault = min(self._faults, default=(0, ""))
        note = f"{self._place(number)}: {fault}" if fault else ""
        if not kept.any() and self._skipped and not self._passed:
            raise UserError(f"{self._path}: {note}", f"none of its {self._skipped:,} entries can be used")
        starts, ends = np.array(self._starts, np.float64), np.array(self._ends, np.float64)
        chosen, confidence = _folded(keys, bits, starts, ends, np.array(self._confidences, np.uint8), kept=kept)
        starts, known = starts[chosen], np.full(len(chosen), dated)
        feed = Feed(
            keys=keys[chosen],
            bits=bits[chosen],
            confidence=confidence,
            start=starts,
            end=ends[chosen],
            listed=np.where(np.isfinite(starts), starts, dated),
            known=known,
            table=PrefixTable(keys[chosen], bits[chosen]),
        )
        if before is not None:
            _keep_dates(feed, before)
        return Loaded(feed, len(feed), skipped=self._skipped, note=f"{self._path}: {note}" if note else "")

    @staticmethod
    def _overlaps(refused: Refused, keys: Keys, bits: Bits) -> dict[int, str]:
        found = refused.overlaps(keys, PrefixTable(keys, bits))
        for entry in np.flatnonzero(bits < 128 - 32 + _WIDEST[4]).tolist():
            version = 4 if "." in prefix_text(keys[entry], int(bits[entry])) else 6
            length = int(bits[entry]) - (96 if version == 4 else 0)
            if length < _WIDEST[version]:
                found[entry] = f"expected a prefix of /{_WIDEST[version]} or longer"
        return found


def _identity(keys: Keys, bits: Bits) -> pl.DataFrame:
    halves = np.ascontiguousarray(keys).view(">u8").reshape(-1, 2).astype(np.uint64)
    return pl.DataFrame({KEY_HIGH: halves[:, 0], KEY_LOW: halves[:, 1], BITS: bits})


def _folded(
    keys: Keys,
    bits: Bits,
    starts: Floats,
    ends: Floats,
    confidence: npt.NDArray[np.uint8],
    *,
    kept: npt.NDArray[np.bool_],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return which of the kept entries stay, the first of those that are equal, and their highest confidence."""
    every = _identity(keys, bits).with_columns(start=starts, end=ends, confidence=confidence).with_row_index("entry")
    alike = every.filter(kept).group_by(KEY_HIGH, KEY_LOW, BITS, "start", "end", maintain_order=True)
    found = alike.agg(pl.first("entry"), pl.max("confidence"))
    return found.get_column("entry").cast(pl.Int64).to_numpy(), found.get_column("confidence").to_numpy()


def _keep_dates(feed: Feed, before: Feed) -> None:
    """What an earlier version had is known since then; without a date of its own it is listed since then, too."""
    undated = pl.Series(~np.isfinite(feed.start))
    earlier = (
        before.identity()
        .with_columns(listed=before.listed, known=before.known)
        .group_by(KEY_HIGH, KEY_LOW, BITS)
        .agg(pl.min("listed", "known"))
    )
    joined = feed.identity().with_row_index().join(earlier, on=[KEY_HIGH, KEY_LOW, BITS], how="left").sort("index")
    was_there = joined.get_column("known").is_not_null()
    for dates, name, kept in ((feed.listed, "listed", undated & was_there), (feed.known, "known", was_there)):
        mask = kept.to_numpy()
        dates[mask] = np.minimum(dates[mask], joined.get_column(name).to_numpy()[mask])


def without_port(text: str) -> str:
    """Return the address of ``192.0.2.1:443`` or ``[2001:db8::1]:443``, as feeds write it; other texts as they are."""
    if text.startswith("["):
        head, bracket, tail = text[1:].partition("]")
        return head if bracket and (not tail or (tail[0] == ":" and tail[1:].isdecimal())) else text
    head, colon, tail = text.rpartition(":")
    return head if colon and "." in head and ":" not in head and tail.isdecimal() else text


def moment(text: str) -> float:
    """Return a time as epoch seconds: ISO 8601, in UTC where it names no zone, or epoch seconds.

    Raises:
        ValueError: it is neither, such as milliseconds; the message says what was expected.
    """
    plain = text.strip().removesuffix("UTC").rstrip()
    if plain.isascii() and plain.isdecimal() and len(plain) != 8:
        if (seconds := float(plain)) > _LAST_SECOND:
            raise ValueError("expected a time in seconds since 1970, or such as 2026-05-01T12:00:00Z")
        return seconds
    try:
        found = datetime.fromisoformat(plain)
    except ValueError:
        raise ValueError("expected a time such as 2026-05-01T12:00:00Z") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _quoted(text: str) -> str:
    """Return foreign text as a short printable one."""
    line = "".join(letter if letter.isprintable() else "?" for letter in text)
    return f"'{line[:_SHOWN]}{'...' if len(line) > _SHOWN else ''}'"
