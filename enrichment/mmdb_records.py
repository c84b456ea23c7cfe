"""Records of an MMDB file, and of each no more than is wanted: the rest is passed over, not read.

A record of a city may hold a hundred texts, of which two become labels. What several records share, the file has once,
and it is read once. Nothing in it is believed: whatever it leads to, a look-up ends soon, or raises DamageError.
Layout: https://maxmind.github.io/MaxMind-DB/
"""

from collections.abc import Mapping
from typing import Any

Wanted = Mapping[str, "Wanted"]
"""Keys of a map that are read, each with those of the map that it may lead to; none: a plain value is expected."""

OTHER = ...
"""Stands for a value of a kind that is never wanted: bytes, an array, a number with a fraction."""

_POINTER, _TEXT, _DOUBLE, _BYTES, _UINT16, _UINT32, _MAP, _INT32 = range(1, 9)
_UINT64, _UINT128, _ARRAY = 9, 10, 11
_BOOLEAN, _FLOAT = 14, 15
_UNSIGNED = frozenset({_UINT16, _UINT32, _UINT64, _UINT128})
_SIZED = _UNSIGNED | {_TEXT, _DOUBLE, _BYTES, _INT32, _FLOAT}
"""Kinds whose size is a number of bytes."""

_POINTER_BEGINS = (0, 2048, 526_336, 0)
"""What a pointer of so many further bytes, less one, counts from."""

_MOST_VALUES = 1 << 12
"""Values in a record beyond which it is none that anybody made: those of real files have some two hundred."""
_MOST_TEXT = 1 << 21
_MOST_INTEGER = 16
_MOST_KNOWN = 200_000
"""Shared values that are remembered of each kind: at most some 50 MB."""


class DamageError(ValueError):
    """What stands there is no record."""


class _Part:
    """What is wanted of a map, and what has been read of it wherever it stands."""

    def __init__(self, wanted: Wanted) -> None:
        self.keys = {name.encode(): (name, _Part(inner)) for name, inner in wanted.items()}
        self.known: dict[int, Any] = {}


class Records:
    """Reads records of one file. Only one thread may do so.

    Args:
        content: the whole file.
        begin: where its data begin.
        wanted: what is read of a record.
    """

    def __init__(self, content: bytes, begin: int, wanted: Wanted) -> None:
        self._content, self._begin = content, begin
        self._wanted = _Part(wanted)
        self._names: dict[int, bytes] = {}
        self._left = 0

    def read(self, place: int) -> Any:  # noqa: ANN401 - whatever stands there
        """Return the record at a place, of maps the wanted keys alone.

        Raises:
            DamageError: there is none.
        """
        self._left = _MOST_VALUES
        try:
            return self._value(place, self._wanted)[0]
        except (IndexError, UnicodeDecodeError) as error:
            raise DamageError from error

    def _value(self, at: int, part: _Part, *, is_target: bool = False) -> tuple[Any, int]:
        """Return a value, and what stands behind it."""
        kind, size, at = self._head(at)
        if kind == _POINTER:
            if is_target:
                raise DamageError
            target, at = self._target(size, at)
            if target not in part.known:
                if len(part.known) >= _MOST_KNOWN:
                    part.known.clear()
                part.known[target] = self._value(target, part, is_target=True)[0]
            return part.known[target], at
        if kind == _MAP:
            return self._map(size, at, part)
        return self._plain(kind, size, at), self._behind(kind, size, at)

    def _plain(self, kind: int, size: int, at: int) -> Any:  # noqa: ANN401 - as `read`
        if kind == _TEXT:
            return self._bytes(size, at, _MOST_TEXT).decode()
        if kind in _UNSIGNED:
            return int.from_bytes(self._bytes(size, at, _MOST_INTEGER), "big")
        if kind == _INT32:
            # Fewer bytes than four are the lower ones, as of the others.
            return int.from_bytes(self._bytes(size, at, 4).rjust(4, b"\x00"), "big", signed=True)
        return size != 0 if kind == _BOOLEAN else OTHER

    def _map(self, size: int, at: int, part: _Part) -> tuple[dict[str, Any], int]:
        self._charge(2 * size)
        found: dict[str, Any] = {}
        for _ in range(size):
            key, at = self._key(at)
            if key in part.keys:
                name, inner = part.keys[key]
                found[name], at = self._value(at, inner)
            else:
                at = self._behind(*self._head(at))
        return found, at

    def _key(self, at: int) -> tuple[bytes, int]:
        kind, size, at = self._head(at)
        if kind == _TEXT:
            return self._bytes(size, at, _MOST_TEXT), at + size
        if kind != _POINTER:
            raise DamageError
        target, at = self._target(size, at)
        if target not in self._names:
            kind, size, begin = self._head(target)
            if kind != _TEXT:
                raise DamageError
            if len(self._names) >= _MOST_KNOWN:
                self._names.clear()
            self._names[target] = self._bytes(size, begin, _MOST_TEXT)
        return self._names[target], at

    def _behind(self, kind: int, size: int, at: int) -> int:
        """Return what stands behind a value of which the head is read."""
        waiting = 0
        while True:
            if kind == _POINTER:
                at += (size >> 3) + 1
            elif kind in _SIZED:
                at += size
            elif kind in (_MAP, _ARRAY):
                inner = 2 * size if kind == _MAP else size
                self._charge(inner)
                waiting += inner
            elif kind != _BOOLEAN:
                raise DamageError
            if not waiting:
                return at
            waiting -= 1
            kind, size, at = self._head(at)

    def _head(self, at: int) -> tuple[int, int, int]:
        """Return a value's kind and size, and where it goes on. A pointer's size is but a part of it."""
        content = self._content
        control = content[at]
        kind, size = control >> 5, control & 0x1F
        at += 1
        if not kind:
            kind = content[at] + 7
            at += 1
        if size < 29 or kind == _POINTER:
            return kind, size, at
        if size == 29:
            return kind, 29 + content[at], at + 1
        if size == 30:
            return kind, 285 + (content[at] << 8 | content[at + 1]), at + 2
        return kind, 65_821 + (content[at] << 16 | content[at + 1] << 8 | content[at + 2]), at + 3

    def _target(self, size: int, at: int) -> tuple[int, int]:
        """Return where a pointer leads, and what stands behind it."""
        more = size >> 3
        end = at + more + 1
        number = int.from_bytes(self._content[at:end], "big")
        if more < 3:
            number |= (size & 7) << 8 * (more + 1)
        return self._begin + number + _POINTER_BEGINS[more], end

    def _bytes(self, size: int, at: int, most: int) -> bytes:
        if size > most or at + size > len(self._content):
            raise DamageError
        return self._content[at : at + size]

    def _charge(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise DamageError
