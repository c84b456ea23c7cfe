"""A threat feed's file, whatever its format: read when it changes, the last good version stays in use."""

import json
from pathlib import Path

from app.errors import UserError
from cluster.model import FeedFormat, ThreatFeed
from enrichment.feeds import feed_lists, feed_misp, feed_stix
from enrichment.feeds.feed import Entries, Feed, Refused
from enrichment.watched import Loaded, WatchedFile

_MOST_BYTES = 512 << 20
"""What is larger takes more memory than the bridge has, which would end with each start."""

KIND = "feed"
"""What `FileReading.kind` says of feeds."""

_PLACES = {
    FeedFormat.LIST: feed_lists.place,
    FeedFormat.CSV: feed_lists.place,
    FeedFormat.STIX: feed_stix.place,
    FeedFormat.MISP: feed_misp.place,
}


class FeedFile(WatchedFile[Feed]):
    """The file of a feed.

    Args:
        settings: what cluster.yaml says of it.
        refused: what no feed may list.
    """

    def __init__(self, settings: ThreatFeed, refused: Refused) -> None:
        super().__init__(Path(settings.file), self._read, name=settings.name, kind=KIND)
        self._settings, self._refused = settings, refused

    def _read(self, path: Path) -> Loaded[Feed]:
        return read_feed(path, self._settings, self._refused, self.value)


def read_feed(path: Path, settings: ThreatFeed, refused: Refused, before: Feed | None = None) -> Loaded[Feed]:
    """Return what a file lists.

    Args:
        path: the file.
        settings: its format and confidence.
        refused: what it may not list.
        before: the version read before, if there was any: what both list is listed since then.

    Raises:
        UserError: it is not of its format, or nothing in it is right.
        OSError: it cannot be read.
    """
    status = path.stat()
    if status.st_size > _MOST_BYTES:
        raise UserError(f"{path}: larger than {_MOST_BYTES >> 20} MiB", "a feed has some millions of entries at most")
    text = path.read_text("utf-8-sig", errors="replace")
    if not text.strip():
        raise UserError(f"{path}: an empty file", "a list without entries has at least a comment")
    entries = Entries(
        path, _PLACES[settings.format], confidence=settings.confidence, least_confidence=settings.least_confidence
    )
    if settings.format is FeedFormat.LIST:
        feed_lists.read_list(text, entries)
    elif settings.format is FeedFormat.CSV:
        feed_lists.read_csv(text, entries, settings.columns, path)
    elif settings.format is FeedFormat.STIX:
        feed_stix.read_stix(_json(text, path), entries, path)
    else:
        feed_misp.read_misp(_json(text, path), entries, path)
    return entries.loaded(refused, before, status.st_mtime)


def _json(text: str, path: Path) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise UserError(f"{path}: JSON is nested too deep") from None
