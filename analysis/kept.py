"""What a run has taught so far, in little room: a day of windows, of each of thousands of jobs."""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

_CHUNK = 64


@dataclass(slots=True)
class Kept:
    """Rows of numbers, one after the other.

    Attributes:
        width: numbers in a row.
        kind: of number.
        chunks, count: the rows, and how many of them are there.
    """

    width: int
    kind: npt.DTypeLike = np.float64
    chunks: list[npt.NDArray[np.floating]] = field(default_factory=list)
    count: int = 0

    def __len__(self) -> int:
        return self.count

    def empty(self) -> "Kept":
        """Return rows of the same kind that are none yet."""
        return Kept(self.width, self.kind)

    def copy(self) -> "Kept":
        """Return rows that can go their own way; all but the newest are shared."""
        return replace(self, chunks=[*self.chunks[:-1], *(one.copy() for one in self.chunks[-1:])])

    def append(self, row: npt.ArrayLike) -> None:
        """Add a row."""
        place = self.count % _CHUNK
        if not place:
            self.chunks.append(np.empty((_CHUNK, self.width), self.kind))
        self.chunks[-1][place] = row
        self.count += 1

    def chosen(self, kept: npt.NDArray[np.bool_]) -> "Kept":
        """Return some of the rows: of [row] those that are True."""
        result = self.empty()
        for place in np.flatnonzero(kept).tolist():
            result.append(self.chunks[place // _CHUNK][place % _CHUNK])
        return result

    def array(self, columns: slice = slice(None)) -> npt.NDArray[np.float64]:
        """Return [row, column] some columns of all rows."""
        parts = [one[:, columns] for one in self.chunks] or [np.empty((0, self.width))[:, columns]]
        return np.concatenate(parts)[: self.count].astype(np.float64)
