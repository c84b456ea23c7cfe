"""Numbers for texts of which a few thousand come again and again in millions of rows."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from ingest.count.grouped import Ints, renumbered

_MOST, _MOST_BYTES = 1 << 13, 1 << 20


@dataclass(frozen=True, slots=True)
class Words:
    """A column of texts as numbers.

    Attributes:
        texts: those of the column, each once; null among them where a row has none (String).
        codes: which of these each row has.
    """

    texts: pl.Series
    codes: Ints

    def of(self, rows: npt.NDArray[np.bool_]) -> "Words":
        """Return the words of some rows."""
        used, codes = renumbered(self.codes[rows], len(self.texts))
        return Words(self.texts.gather(used), codes)


class Texts:
    """Numbers texts in the order in which they were added.

    Attributes:
        known: number -> text (String).
    """

    def __init__(self) -> None:
        self.known = pl.Series("text", [], pl.String)
        self._type = pl.Enum(self.known)

    def __len__(self) -> int:
        return len(self.known)

    def __getitem__(self, number: int) -> str:
        return str(self.known[number])

    def add(self, texts: pl.Series) -> None:
        """Number further texts: String, different from each other and from all before, none null."""
        self.known = self.known.append(texts).rechunk()
        # polars looks words of an Enum up in less time than it takes for a join or a replacement.
        self._type = pl.Enum(self.known)

    def find(self, column: pl.Series) -> pl.Series:
        """Return the numbers of texts (UInt32); null for those that have none."""
        return column.cast(self._type, strict=False).to_physical().cast(pl.UInt32)

    def number(self, column: pl.Series) -> pl.Series:
        """Return the same with a number for each text; texts seen for the first time are added."""
        found = self.find(column)
        if found.null_count() > column.null_count():
            self.add(column.filter(found.is_null()).unique().drop_nulls().sort())
            found = self.find(column)
        return found


class Vocabulary:
    """Looks words up: what it learns of one column makes the next one quicker."""

    def __init__(self) -> None:
        self._texts = Texts()

    def words(self, column: pl.Series) -> Words:
        """Return a column's texts (String) once each, and which of them each row has."""
        # Whoever forges senders must not fill memory with their names.
        if len(self._texts) > _MOST or self._texts.known.estimated_size() > _MOST_BYTES:
            self._texts = Texts()
        numbers = self._texts.number(column)
        beyond = len(self._texts)
        used, codes = renumbered(numbers.fill_null(beyond).to_numpy().astype(np.int64), beyond + 1)
        return Words(self._texts.known.extend_constant(None, 1).gather(used), codes)
