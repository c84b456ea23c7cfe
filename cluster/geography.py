"""Files that know where outside addresses are, from cluster.yaml."""

from pathlib import Path

from cluster.kinds import Placed, Table
from cluster.model import Geography


def build_geography(table: Table | None, folder: Path) -> Geography:
    """Return the files; a relative path is relative to `folder`.

    Whether they are there is not asked: they come and go while we run.
    """
    files: dict[str, Placed[str]] = (table or {}).get("files") or {}
    # Links stay as they are: whoever updates such files often turns one from the old to the new.
    return Geography(tuple((name, str((folder / placed.value).absolute())) for name, placed in files.items()))
