"""What nfacctd's file of templates says of exporters: whether their records tell how many flows they stand for.

nfacctd keeps the templates of NetFlow v9 and IPFIX in the spool, a JSON object a line, so that they outlive a restart
(``nfv9_template.c``). A record whose template lacks IE 3, deltaFlowCount, is one flow, always.
"""

import json
from pathlib import Path
from typing import Any

NAME = ".nfacctd.templates"
"""Beside the files of flows."""

_DELTA_FLOW_COUNT = 3
_DATA = 0
"""The type of templates of flows; others are of options."""

_MAX_BYTES = 64 << 20
"""A larger file is not looked at: some thousand exporters fill a tenth."""


class TemplateFile:
    """The templates that nfacctd knows, read again only when the file has changed.

    Args:
        folder: the spool. Where it holds no such file, or one that cannot be read, nothing is known of any exporter.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._read: tuple[int, int, int] | None = None
        self._counts: dict[str, bool] = {}

    def lacks_flow_count(self, exporter: str) -> bool:
        """Whether templates of this exporter are known, and none of them, since we look, has IE 3."""
        # nfacctd writes the file again at each template that comes: who is believed for ever needs no look.
        if not self._counts.get(exporter):
            self._look()
        return self._counts.get(exporter) is False

    def _look(self) -> None:
        try:
            status = self._path.stat()
            now: tuple[int, int, int] | None = (status.st_mtime_ns, status.st_size, status.st_ino)
            if now == self._read or status.st_size > _MAX_BYTES:
                return
            with self._path.open("rb") as file:
                lines = file.read(_MAX_BYTES).splitlines()
        except OSError:
            # Taken away, as where templates are kept no more: what it said may hold no longer.
            now, lines = None, []
        self._read = now
        self._counts = {exporter: True for exporter, counts in self._counts.items() if counts}
        for line in lines:
            exporter, counts = _of_line(line)
            # An exporter whose templates had it once stays believed: what we read may be older than its last ones.
            self._counts[exporter] = counts or self._counts.get(exporter, False)


def _of_line(line: bytes) -> tuple[str, bool]:
    """Return whose template a line holds, and whether IE 3 is in it; nobody's where it is none of flows."""
    try:
        template: Any = json.loads(line)
        if template["template_type"] != _DATA:
            return "", False
        fields = [field["otpl"] for field in template["list"] if "otpl" in field]
        return str(template["agent"]), any(field["tpl_index"] == _DELTA_FLOW_COUNT for field in fields)
    except (ValueError, KeyError, TypeError, RecursionError):
        # nfacctd is writing just now, or the file is somebody else's: the rest of it still counts.
        return "", False
