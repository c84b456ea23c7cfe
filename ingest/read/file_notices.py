"""What happened to files of a spool, where that is no ordinary thing, as lines of the log."""

from app.log import Log

_NOTICES = {
    "changed": "it was read, and is another now: what was read counts, the rest is left",
    "copied": "it repeats what another file of the spool has: that is counted once",
    "cut": "its end was cut off after it was read: what was read counts",
    "folder_empty": "it had files: is it mounted? What was read of them stays known until there are files again",
    "folder_unreadable": "looked at again until it is there",
    "line_too_long": "no record is that long: its beginning is a dead letter, the rest is skipped",
    "not_released": "it is read, but cannot be deleted",
    "printed_again": "pmacct printed some of its records twice as it was stopped: each counts once",
    "replaced": "it holds something else than before: read from its start",
    "truncated": "it was emptied and rewritten: read from its start",
    "unreadable": "not read completely; retried when it changes, after an error of the disk or a right every 10 s",
    "vanished": "removed by another process: its unread part is lost",
}


def tell_of_file(log: Log, reason: str, name: str) -> None:
    """Tell what happened to a file."""
    log.sparse(f"spool_{reason}", file=name, what=_NOTICES.get(reason, reason))
