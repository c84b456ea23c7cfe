"""nfacctd's file of templates: what an exporter's records have, and what of it nfacctd does not read.

nfacctd keeps the templates of NetFlow v9 and IPFIX in the spool, a JSON object a line, so that they outlive a restart
(``nfv9_template.c``). A record whose template lacks IE 3, deltaFlowCount, is one flow, always.
"""

import json
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ingest.collect.kernel.split import share_of
from store.schema import Unread

NAME = ".nfacctd.templates"
"""Beside the files of flows."""

_ALL = ".nfacctd*.templates"

SAMPLING = frozenset((34, 48, 50, 302, 304, 305, 306, 309, 310))
"""Fields of samplers and their rates, of flows and of options: who has them has somewhere to tell a rate."""

_DELTA_FLOW_COUNT = 3
_OCTETS, _INITIATOR = frozenset((1, 23, 85)), frozenset((231, 232))
_COUNTERS = frozenset((1, 2, 23, 24, 85, 86)) | _INITIATOR
_COUNTER_BYTES = (4, 8)
"""RFC 7011 (6.2) allows any number up to 8; nfacctd prints 0 for others than these."""
_SOURCES, _DESTINATIONS = frozenset((8, 27)), frozenset((12, 28))
_REVERSE, _REVERSE_COUNTERS = 29305, frozenset((1, 2, 85, 86))
"""RFC 5103: the enterprise of fields that tell of the way back."""
_VARIABLE = 65_535
_NOTHING = Unread(0)
_DATA = 0
"""The type of templates of flows; others are of options."""

_MAX_BYTES = 64 << 20
"""A larger file is not looked at: some thousand exporters fill a tenth."""


def name_of(share: int) -> str:
    """Return the name of the file of one of several nfacctd, from 0."""
    return f".nfacctd-{share + 1}.templates" if share else NAME


def forget(folder: Path) -> None:
    """Take the files away. OSError."""
    for path in folder.glob(_ALL):
        path.unlink(missing_ok=True)


def deal(folder: Path, shares: int) -> None:
    """Give each of so many nfacctd, none of which runs, the templates of its exporters, whoever knew them. OSError."""
    files = {path: path.read_bytes().splitlines(keepends=True) for path in folder.glob(_ALL)}
    dealt: dict[Path, list[bytes]] = {folder / name_of(share): [] for share in range(shares)}
    for line in dict.fromkeys(line for lines in files.values() for line in lines):
        try:
            share = share_of(ip_address(json.loads(line)["agent"]), shares)
        except (ValueError, TypeError, KeyError):
            share = 0
        dealt[folder / name_of(share)].append(line)
    for path, lines in dealt.items():
        if lines != files.get(path, []):
            _replace(path, lines)
    for path in files.keys() - dealt.keys():
        path.unlink()


def forget_endless(folder: Path, share: int = 0) -> int:
    """Take templates without a length out of a file, before nfacctd starts again; return how many there were."""
    path = folder / name_of(share)
    try:
        lines = path.read_bytes().splitlines(keepends=True)
        kept = [line for line in lines if not _is_endless(line)]
        if len(kept) < len(lines):
            _replace(path, kept)
    except OSError:
        return 0
    return len(lines) - len(kept)


def _replace(path: Path, lines: Sequence[bytes]) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_bytes(b"".join(lines))
    fresh.replace(path)


def _is_endless(line: bytes) -> bool:
    try:
        template = json.loads(line)
        return template["len"] == 0 and not template["vlen"]
    except (ValueError, TypeError, KeyError):
        return False


@dataclass(frozen=True, slots=True)
class _Template:
    """What matters of a template.

    Attributes:
        is_data: whether it is of flows.
        counts: whether it has IE 3.
        samples: whether it has a field about sampling.
        has_octets: whether it counts bytes as usual.
        is_two_way: whether it counts those of initiator and responder instead (ASA).
        unread: what of it nfacctd does not read.
    """

    exporter: str
    is_data: bool = False
    counts: bool = False
    samples: bool = False
    has_octets: bool = False
    is_two_way: bool = False
    unread: Unread = _NOTHING


class TemplateFile:
    """The templates that nfacctd knows, read again only when the file has changed. For one thread.

    Args:
        folder: the spool. Where it holds no such file, or one that cannot be read, nothing is known of any exporter.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: list[tuple[int, int, int]] | None = None
        self._lines: dict[bytes, _Template] = {}
        self._counts: dict[str, bool] = {}
        self._sampling: set[str] = set()
        self._two_way: frozenset[str] = frozenset()
        self._unread: dict[str, Unread] = {}

    def lacks_flow_count(self, exporter: str) -> bool:
        """Whether templates of this exporter are known, and none of them, since we look, has IE 3."""
        # Without our library, nfacctd writes the file at each template that comes: who is believed needs no look.
        if not self._counts.get(exporter):
            self._look()
        return self._counts.get(exporter) is False

    def tells_sampling(self, exporter: str) -> bool:
        """Whether templates of this exporter, of flows or of options, have had a field about sampling."""
        if exporter not in self._sampling:
            self._look()
        return exporter in self._sampling

    def two_way(self) -> frozenset[str]:
        """Return the exporters of which each record counts the bytes of both directions (IE 231 and 232)."""
        self._look()
        return self._two_way

    def unread(self) -> dict[str, Unread]:
        """Return what nfacctd does not read of the templates of each exporter that it has any of."""
        self._look()
        return self._unread

    def _look(self) -> None:
        try:
            paths = sorted(self._folder.glob(_ALL))
            status = [path.stat() for path in paths]
            now: list[tuple[int, int, int]] | None = [(one.st_mtime_ns, one.st_size, one.st_ino) for one in status]
            if now == self._read or sum(one.st_size for one in status) > _MAX_BYTES:
                return
            lines = []
            for path in paths:
                with path.open("rb") as file:
                    lines += file.read(_MAX_BYTES).splitlines()
        except OSError:
            # Taken away, as where templates are kept no more: what it said may hold no longer.
            now, lines = None, []
        # Most lines are those of the time before.
        self._lines = {line: self._lines.get(line) or _of_line(line) for line in lines}
        self._take([template for template in self._lines.values() if template.exporter])
        # At the end: what was not taken as a whole is looked at again.
        self._read = now

    def _take(self, templates: list[_Template]) -> None:
        counts = {exporter: True for exporter, counts in self._counts.items() if counts}
        octets, two_way = set(), set()
        unread: dict[str, Unread] = {}
        for one in templates:
            unread[one.exporter] = unread.get(one.exporter, _NOTHING) | one.unread
            if one.is_data:
                # An exporter whose templates had it once stays believed: what we read may be older than its last ones.
                counts[one.exporter] = one.counts or counts.get(one.exporter, False)
            if one.has_octets:
                octets.add(one.exporter)
            if one.is_two_way:
                two_way.add(one.exporter)
        # Of who has templates of both kinds, nobody knows which of them a record had.
        for exporter in two_way & octets:
            unread[exporter] |= Unread.REPLIES
        # Together, and only now: nobody finds half of what the file says.
        self._counts, self._unread, self._two_way = counts, unread, frozenset(two_way - octets)
        self._sampling = self._sampling | {one.exporter for one in templates if one.samples}


def _of_line(line: bytes) -> _Template:
    """Return the template that a line holds; one without an exporter where it is none."""
    try:
        template: Any = json.loads(line)
        if template["template_type"] != _DATA:
            return _of_options(str(template["agent"]), template["tpl"])
        return _of_flows(str(template["agent"]), template["list"])
    except (ValueError, KeyError, TypeError, RecursionError):
        # nfacctd is writing just now, or the file is somebody else's: the rest of it still counts.
        return _Template("")


def unread_of_flows(fields: Sequence[tuple[int, int]], others: AbstractSet[tuple[int, int]]) -> Unread:
    """Return what nfacctd does not read of a template of flows.

    Args:
        fields: its elements that are IANA's, with the bytes that each has.
        others: its elements of enterprises, with these before them.
    """
    unread = _NOTHING
    times = Counter(element for element, _ in fields)
    elements = times.keys()
    if elements & _COUNTERS and not (elements & _SOURCES and elements & _DESTINATIONS):
        unread |= Unread.ADDRESSES
    if any(enterprise == _REVERSE and element in _REVERSE_COUNTERS for enterprise, element in others):
        unread |= Unread.REPLIES
    if any(count > 1 for count in times.values()):
        unread |= Unread.REPEATED
    if any(element in _COUNTERS and size not in _COUNTER_BYTES for element, size in fields):
        unread |= Unread.SIZES
    return unread


def _of_flows(exporter: str, fields: list[Any]) -> _Template:
    known = [(int(one["tpl_index"]), int(one["tpl_len"])) for field in fields if (one := field.get("otpl"))]
    elements = frozenset(element for element, _ in known)
    others = {(int(field["utpl"]["pen"]), int(field["utpl"]["type"])) for field in fields if "utpl" in field}
    return _Template(
        exporter,
        is_data=True,
        counts=_DELTA_FLOW_COUNT in elements,
        samples=bool(elements & SAMPLING),
        has_octets=bool(elements & _OCTETS),
        is_two_way=elements >= _INITIATOR and not elements & _OCTETS,
        unread=unread_of_flows(known, others),
    )


def _of_options(exporter: str, fields: list[Any]) -> _Template:
    """Return what options say.

    nfacctd adds 65,535 for a field of varying length to an offset of 16 bits: what stands behind such a field is read
    from a byte before it, and rates there are garbage.
    """
    places = [(int(field["off"]), int(field["len"])) for field in fields if int(field["type"]) in SAMPLING]
    varies = min((int(field["off"]) for field in fields if field["len"] == _VARIABLE), default=None)
    is_garbled = varies is not None and any(begin + size > varies for begin, size in places)
    return _Template(exporter, samples=bool(places), unread=Unread.RATES if is_garbled else _NOTHING)
