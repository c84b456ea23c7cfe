"""How this process keeps memory that it has freed."""

import ctypes
import mmap
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_KEPT = 1 << 27
_LARGEST = 1 << 25
"""Bytes above which a block is the kernel's own to give; glibc takes no more."""


# polars has a heap of its own, jemalloc's, which reads this as polars is loaded: import this module before it.
os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0")


def keep_freed() -> None:
    """Have freed memory kept for the next batch, which takes as much, and one heap for all threads.

    Pages that come from the kernel anew with each array take a sixteenth of the bridge's processor time, and a heap a
    thread a tenth more memory. Call it before threads start; where there is no glibc, nothing happens.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, _KEPT)):
            mallopt(option, value)


def set_apart(columns: Mapping[str, Sequence[np.ndarray]]) -> dict[str, np.ndarray]:
    """Return arrays put together of parts, in memory of their own, which the kernel has back with the last of them.

    Arrays that stay for minutes, among others that come and go with each batch, leave holes in the heap.
    """
    shapes = {name: (np.result_type(*parts), sum(map(len, parts))) for name, parts in columns.items()}
    size = sum(kind.itemsize * rows for kind, rows in shapes.values())
    block = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    found, offset = {}, 0
    # The widest first: each begins at a multiple of its size.
    for name, (kind, rows) in sorted(shapes.items(), key=lambda one: -one[1][0].itemsize):
        found[name] = np.frombuffer(block, kind, rows, offset)
        np.concatenate(columns[name], out=found[name])
        offset += found[name].nbytes
    return found
