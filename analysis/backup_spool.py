"""The spool of `clusterflow deliver`, copied while it is written: segments of one moment, and positions of before it.

So the copy may hold events that a destination has got already, which come again with the same ids; none is missing. Its
files are named as `delivery.spool` names them: it appends to the last segment only, begins one by a rename, and deletes
the oldest.
"""

import io
import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from cluster.errors import ClusterflowError

SPOOL = "spool"
"""Its folder in `delivery.state`."""

LOCK = "lock"
SEGMENT, POSITION = ".events", ".position"
"""How the files end that hold events; and how far a destination has read them."""

COUNTERS, REFUSED = "counters.json", ("refused.jsonl", "refused.jsonl.1")
"""Beside the folder: counters, and what receivers refused for good."""

_FILES = re.compile(rf"[0-9]{{1,20}}{re.escape(SEGMENT)}|[A-Za-z0-9._-]+{re.escape(POSITION)}")
_TRIES = 50
_PAUSE = 0.1


def copied(state: Path, opened: ExitStack) -> dict[str, IO[bytes]]:
    """Return the files of `delivery.state` by their names in it, open; they stay readable when they are deleted.

    Raises:
        ClusterflowError: the spool changes too fast.
        OSError: it cannot be read.
    """
    members: dict[str, IO[bytes]] = {f"{SPOOL}/{name}": file for name, file in _spool(state / SPOOL, opened).items()}
    # The one before last after the last: what is moved meanwhile is there twice rather than not at all.
    for name in (COUNTERS, *REFUSED):
        path = state / name
        if path.is_file():
            text = path.read_bytes()
            members[name] = io.BytesIO(text if name == COUNTERS else whole_lines(text))
    return members


def whole_lines(text: bytes) -> bytes:
    """Return a text without the line at its end that is still being written."""
    return text[: text.rfind(b"\n") + 1]


def _spool(folder: Path, opened: ExitStack) -> dict[str, IO[bytes]]:
    for _ in range(_TRIES):
        with ExitStack() as these:
            try:
                # First: what a position says was delivered is then in the segments, or was deleted for it.
                files: dict[str, IO[bytes]] = {
                    name: io.BytesIO((folder / name).read_bytes()) for name in names_in(folder, POSITION)
                }
                segments = names_in(folder, SEGMENT)
                files |= {name: these.enter_context((folder / name).open("rb")) for name in segments}
                is_whole = names_in(folder, SEGMENT) == segments
            except FileNotFoundError:
                is_whole = False
            if is_whole:
                opened.push(these.pop_all())
                if not segments:
                    # Positions alone say nothing: there was no event yet.
                    return {}
                # It grows, and what a full disk cut short is taken back; those before it stay as they are.
                return files | {segments[-1]: io.BytesIO(whole_lines(files[segments[-1]].read()))}
        # A segment has just been begun or deleted.
        time.sleep(_PAUSE)
    raise ClusterflowError(f"{folder}: its files change too fast to be copied", "try again when it is calmer")


def names_in(folder: Path, suffix: str) -> list[str]:
    """Return the names of the files in a folder that end so, in order; nothing where it is not there."""
    try:
        return sorted(path.name for path in folder.iterdir() if path.name.endswith(suffix))
    except FileNotFoundError:
        return []


def is_ours(parts: list[str]) -> bool:
    """Whether a path in `delivery.state`, each part of it a plain name, is that of a file that is copied."""
    if len(parts) == 1:
        return parts[0] in {COUNTERS, *REFUSED}
    if len(parts) != 2 or parts[0] != SPOOL:
        return False
    return _FILES.fullmatch(parts[1]) is not None
