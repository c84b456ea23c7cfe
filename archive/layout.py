"""How rows lie in a file: close to those of the same source and to those of the same destination.

Sorted by source alone, a question about a destination reads everything. Rows are therefore in Morton order: the bits of
the source's and the destination's places in the file alternate, so that a row group holds few of both, and its
statistics tell readers to skip it. Measured on 4.2 M records of 1,024 nodes: 31 ms in place of 279 for a destination.

All rows of an hour are in order together, over the files that they take: in place of a million each, questions take
0.6 of the time, and the files 0.93 of the room.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from archive import schema

ROW_GROUP = 65_536

_EXPORTERS = "exporters"
_Z = "z"
_SPREAD = ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555))
_TOP = 65_535


def parted(paths: Sequence[Path], count: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of files in so many parts of the same size; all of a part come before those of the next."""
    if count == 1:
        yield pl.concat([_read(path) for path in paths])
        return
    ends = [_read(path, [schema.SRC, schema.DST]) for path in paths]
    order = np.argsort(_order(pl.concat(ends)), kind="stable")
    part = np.empty(len(order), np.int64)
    part[order] = np.arange(len(order)) * count // len(order)
    parts = np.split(part, np.cumsum([one.height for one in ends])[:-1])
    del ends, order
    for number in range(count):
        yield pl.concat([_read(path).filter(mine == number) for path, mine in zip(paths, parts, strict=True)])


def _read(path: Path, columns: list[str] | None = None) -> pl.DataFrame:
    return pl.read_parquet(path, columns=columns, hive_partitioning=False)


def in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows as a file of a whole hour has them."""
    order = pl.Series(_Z, _order(frame))
    return frame.with_columns(order).sort(_Z, schema.SRC, schema.DST, schema.END).drop(_Z)


def _order(frame: pl.DataFrame) -> npt.NDArray[np.uint64]:
    src, dst = (_place(frame.get_column(name)) for name in (schema.SRC, schema.DST))
    return (src << np.uint64(1)) | dst


def _place(column: pl.Series) -> npt.NDArray[np.uint64]:
    """Return the place of each text's first row among all, 0 to 65,535, with a 0 bit between its bits."""
    # By rows, not by texts: many addresses outside with a record each would leave no bits to the few inside.
    ranks = column.rank("min").to_numpy().astype(np.float64) - 1
    bits = (ranks * _TOP / max(float(ranks.max(initial=0)), 1.0)).astype(np.uint64)
    for shift, mask in _SPREAD:
        bits = (bits | (bits << np.uint64(shift))) & np.uint64(mask)
    return bits


def write(frame: pl.DataFrame, path: Path, *, is_final: bool) -> int:
    """Write a file so that it is there after a power failure; return its size. OSError, and nothing is left of it.

    Its footer names the exporters of its rows.
    """
    exporters = frame.get_column(schema.EXPORTER).unique().sort().to_list()
    try:
        with path.open("wb") as file:
            frame.write_parquet(
                file,
                compression="zstd",
                compression_level=3 if is_final else 1,
                row_group_size=ROW_GROUP,
                # Rows as they come are everywhere: there is nothing to skip.
                statistics=is_final,
                metadata={_EXPORTERS: json.dumps(exporters)},
            )
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
    except (OSError, pl.exceptions.PolarsError) as error:
        path.unlink(missing_ok=True)
        # polars words what the system said.
        raise error if isinstance(error, OSError) else OSError(str(error)) from error


def exporters(path: str, options: dict[str, str] | None) -> set[str] | None:
    """Return the exporters of a file's rows; None where its footer does not say."""
    said = pl.read_parquet_metadata(path, storage_options=options).get(_EXPORTERS)
    return None if said is None else set(json.loads(said))
