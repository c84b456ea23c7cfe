"""Our library in C, which reads records and adds them up: the slow half of a bridge's work in a third of the time.

Without it the same is done by polars and numpy.
"""

import ctypes
from contextlib import suppress
from functools import cache
from pathlib import Path

from app.compiled import Compiled
from app.errors import ClusterflowError
from app.log import Log

SOURCES = ("read/quick_records.c", "count/quick_groups.c", "count/quick_pieces.c")
LIBRARY = Compiled(Path(__file__).parent, SOURCES)

_loaded: list[ctypes.CDLL] = []
"""The one that was asked for."""


def load(folder: Path, library: Compiled = LIBRARY) -> None:
    """Load the library for all that this process does.

    Args:
        folder: where it is compiled to, unless it is there or was shipped.
        library: which one.

    Raises:
        ClusterflowError: it cannot be had; then all is done the slow way.
    """
    path = library.path(folder)
    try:
        _loaded[:] = [_opened(path)]
    except OSError as error:
        raise ClusterflowError(f"{path} cannot be loaded: {error}", "remove it, or choose another folder") from error


def prepare(folder: Path | None, log: Log) -> None:
    """Load the library as `load` does, or tell that all is done the slow way; None: only one that was shipped."""
    if folder is None:
        return
    try:
        load(folder)
    except ClusterflowError as error:
        costs = "records take up to three times as much processor time to read, and more to add up"
        log.warning("reading_slowly", why=error, hint=f"{error.hint}; {costs}" if error.hint else costs)


def _opened(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    pointer, count, text = ctypes.c_void_p, ctypes.c_int64, (ctypes.c_char_p, ctypes.c_size_t)
    library.count_lines.argtypes = text
    library.read_csv.argtypes = library.read_json.argtypes = (*text, pointer)
    library.number_keys.argtypes = (pointer, count, ctypes.c_uint64, pointer, pointer)
    for fold in (library.add_up, library.keep_least, library.keep_largest):
        fold.argtypes, fold.restype = (pointer, pointer, count, pointer), None
    library.cut.argtypes, library.cut.restype = (pointer, pointer, count, count, count, *(pointer,) * 6), None
    for counted in (library.count_lines, library.read_csv, library.read_json, library.number_keys):
        counted.restype = count
    return library


def library() -> ctypes.CDLL | None:
    """Return the library; None without one."""
    return _loaded[0] if _loaded else _shipped()


@cache
def _shipped(library: Compiled = LIBRARY) -> ctypes.CDLL | None:
    """Return the library that was compiled beforehand; None without one, or where it cannot be loaded."""
    with suppress(OSError):
        return _opened(library.shipped) if library.shipped.exists() else None
    return None
