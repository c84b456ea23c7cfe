"""Read good records with quick_records.c, which takes a third of the time that a parser of any CSV or JSON takes.

Whoever has no C compiler, or a text with a line that is anything else, reads with `readers_csv` and `readers_json`: the
records are the same.
"""

import ctypes
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ingest import quick
from ingest.flows.text_numbers import Words
from ingest.read import records
from ingest.read.readers_format import JSON_KEYS
from ingest.read.readers_values import DEFAULTS, MAPPED, RANGES, REQUIRED, TEXTS, TIMES
from ingest.read.records import Parsed

_NO_TIME = np.iinfo(np.int64).min
_SEPARATORS = ",;|\t"
_EVENT = "event_type"
_QUOTED = {*TEXTS, *TIMES, records.PROTOCOL, records.TCP_FLAGS}

_SKIPPED, _NUMBER, _TIME, _WORD = range(4)
"""Kinds of columns, as in quick_records.c."""


class _CWords(ctypes.Structure):
    _fields_ = (
        ("text", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("prefix", ctypes.c_char_p),
        ("prefix_size", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("entries", ctypes.c_void_p),
        ("mask", ctypes.c_uint64),
    )


class _CColumn(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32),
        ("width", ctypes.c_int32),
        ("most", ctypes.c_int64),
        ("values", ctypes.c_void_p),
        ("words", ctypes.POINTER(_CWords)),
        ("key", ctypes.c_char_p),
        ("key_size", ctypes.c_uint32),
        ("is_quoted", ctypes.c_uint32),
    )


class _CLines(ctypes.Structure):
    _fields_ = (
        ("columns", ctypes.POINTER(_CColumn)),
        ("count", ctypes.c_int32),
        ("separator", ctypes.c_char),
        ("rows", ctypes.c_int64),
        ("present", ctypes.c_uint64),
    )


def read_csv(text: bytes, names: tuple[str, ...], separator: str) -> Parsed | None:
    """Return the records of lines of CSV and markers; None unless each line is good.

    Args:
        text: whole lines.
        names: the record column that each CSV column fills; others are none.
        separator: between them.
    """
    library = quick.library()
    if library is None or separator not in _SEPARATORS or not set(REQUIRED) <= set(names):
        return None
    table = _Table(text, names, library.count_lines(text, len(text)), separator=separator)
    rows = library.read_csv(text, len(text), ctypes.byref(table.lines))
    return table.read(rows, names) if rows >= 0 else None


def read_json(text: bytes) -> Parsed | None:
    """Return the records of lines of JSON; None unless each is good, and all have the same keys."""
    library = quick.library()
    if library is None:
        return None
    names = (_EVENT, *JSON_KEYS.values())
    table = _Table(text, names, library.count_lines(text, len(text)), keys=(_EVENT, *JSON_KEYS))
    rows = library.read_json(text, len(text), ctypes.byref(table.lines))
    found = [name for place, name in enumerate(names) if table.lines.present >> place & 1]
    return table.read(rows, found) if rows >= 0 and set(REQUIRED) <= set(found) else None


class _Table:
    """Room for the records of a text and for its words; what is not written to takes no memory."""

    def __init__(
        self, text: bytes, names: tuple[str, ...], rows: int, keys: tuple[str, ...] = (), separator: str = ","
    ) -> None:
        self._texts = {name: np.empty(len(text), np.uint8) for name in (records.EXPORTER, records.SRC)}
        prefixes = {records.EXPORTER: MAPPED.encode(), records.SRC: b""}
        self._words = {
            name: _CWords(
                text=room.ctypes.data, prefix=prefixes[name], prefix_size=len(prefixes[name]), seed=secrets.randbits(64)
            )
            for name, room in self._texts.items()
        }
        self._values = {name: np.empty(rows, _TYPES[name][1]) for name in names if name in _TYPES}
        self._columns = (_CColumn * len(names))()
        self._has_keys = bool(keys)
        for column, name in zip(self._columns, names, strict=True):
            if name in _TYPES:
                values = self._values[name]
                column.kind, column.width, column.values = _TYPES[name][0], values.itemsize, values.ctypes.data
            if name in RANGES:
                column.most = RANGES[name][1]
            if name in TEXTS:
                column.words = ctypes.pointer(self._words[_table_of(name)])
        for column, key, name in zip(self._columns, keys, names, strict=False):
            text = f'"{key}":'.encode()
            column.key, column.key_size, column.is_quoted = text, len(text), name in _QUOTED
        self.lines = _CLines(self._columns, len(names), separator.encode(), rows)

    def read(self, rows: int, names: Iterable[str]) -> Parsed:
        """Return what was read of so many rows with these columns."""
        values = {name: self._values[name][:rows] for name in names if name in self._values}
        texts = {name: self._words_of(name) for name in self._texts}
        words = {name: Words(texts[_table_of(name)], values[name].astype(np.int64)) for name in TEXTS if name in values}
        _tell_sflow(values, has_keys=self._has_keys)
        columns = [_series(name, dtype, values, words, rows) for name, dtype in records.RECORD_SCHEMA.items()]
        ends = words[records.SRC], words[records.DST]
        return Parsed(pl.DataFrame(columns), exporters=words.get(records.EXPORTER), ends=ends)

    def _words_of(self, table: str) -> pl.Series:
        text = self._texts[table][: self._words[table].size].tobytes().decode()
        return pl.Series(table, text.split("\n")[:-1], pl.String)


def _table_of(name: str) -> str:
    """Return which words a column of texts shares: those of both ends are the same addresses."""
    return records.SRC if name == records.DST else name


def _types() -> Mapping[str, tuple[int, Any]]:
    """Return kind and numpy's type of each column."""
    found: dict[str, tuple[int, Any]] = dict.fromkeys(TEXTS, (_WORD, np.int32))
    found |= dict.fromkeys(TIMES, (_TIME, np.int64))
    widths: dict[pl.DataType, Any] = {pl.Int16(): np.int16, pl.Int32(): np.int32, pl.Int64(): np.int64}
    return found | {name: (_NUMBER, widths[records.RECORD_SCHEMA.get(name, pl.Int64())]) for name in RANGES}


_TYPES = _types()


def _tell_sflow(values: dict[str, npt.NDArray[Any]], *, has_keys: bool) -> None:
    """Tell sFlow from NetFlow v5, as `readers_values.finish` does: a column that CSV lacks says nothing, a key does."""
    if records.VERSION not in values or (records.START not in values and not has_keys):
        return
    version = values[records.VERSION]
    is_sflow = version == 5
    if records.START in values:
        is_sflow &= values[records.START] == _NO_TIME
    if is_sflow.any():
        version[is_sflow] = records.SFLOW
        if records.NUMBER in values:
            version[is_sflow & (values[records.NUMBER] >= records.FIRST_IP_NUMBER)] = records.SFLOW_IP


def _series(
    name: str, dtype: pl.DataType, values: Mapping[str, npt.NDArray[Any]], words: Mapping[str, Words], rows: int
) -> pl.Series:
    """Return a column of the record frame."""
    if name in words:
        return words[name].texts.gather(words[name].codes).alias(name)
    if name not in values:
        return pl.repeat(DEFAULTS.get(name), rows, dtype=dtype, eager=True).alias(name)
    column = pl.Series(name, values[name], dtype)
    if name in TIMES and (is_missing := values[name] == _NO_TIME).any():
        return column.set(pl.Series(is_missing), None)
    return column
