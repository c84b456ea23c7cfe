"""Numbers for texts of which a few thousand come again and again in millions of rows."""

import polars as pl


class Texts:
    """Numbers texts in the order in which they were added."""

    def __init__(self) -> None:
        self._known = pl.Series("text", [], pl.String)
        self._type = pl.Enum(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, number: int) -> str:
        return str(self._known[number])

    def add(self, texts: pl.Series) -> None:
        """Number further texts: String, different from each other and from all before, none null."""
        self._known = self._known.append(texts).rechunk()
        # polars looks words of an Enum up in less time than it takes for a join or a replacement.
        self._type = pl.Enum(self._known)

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
