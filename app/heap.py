"""How this process keeps memory that it has freed."""

import ctypes
from contextlib import suppress

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_KEPT = 1 << 27
_LARGEST = 1 << 25
"""Bytes above which a block is the kernel's own to give; glibc takes no more."""


def keep_freed() -> None:
    """Have freed memory kept for the next batch, which takes as much, and one heap for all threads.

    Pages that come from the kernel anew with each array take a sixteenth of the bridge's processor time, and a heap a
    thread a tenth more memory. Call it before threads start; where there is no glibc, nothing happens.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, _KEPT)):
            mallopt(option, value)
