"""The search tree of an MMDB file, walked for whole arrays of addresses at once, a bit of all of them at a time.

It is read where it stands, so that a file is in use as soon as it is in memory, however many networks it has. Nothing
in it is believed: no number leads out of the file, and no walk is longer than an address.
Layout: https://maxmind.github.io/MaxMind-DB/
"""

import numpy as np
import numpy.typing as npt

from enrichment.addresses.prefixes import Keys, is_mapped

Ints = npt.NDArray[np.int64]

NOT_IN_TREE, DAMAGED = -1, -2
"""Instead of a record's place: the file says nothing of the address; or its tree leads nowhere."""

RECORD_BITS = (24, 28, 32)

_SEPARATOR = 16
"""Bytes between tree and data; some lie behind the last number of the tree, which is read as one of four bytes."""

_MAPPED_BITS = 96
_BLOCK = 1 << 18


class SearchTree:
    """The tree of one file.

    Args:
        content: the whole file.
        nodes: how many nodes the tree has, which stand at the beginning of the file.
        record_bits: one of RECORD_BITS, length of each of a node's two numbers.
        ip_version: 4, or 6 where IPv4 stands below ``::/96``.

    Raises:
        ValueError: it is longer than the file, or of a kind that there is not.
    """

    def __init__(self, content: bytes, nodes: int, record_bits: int, ip_version: int) -> None:
        self._nodes, self._record_bits, self._only_ipv4 = nodes, record_bits, ip_version == 4
        self._node_bytes, self._number_bytes = record_bits // 4, record_bits // 8
        self._size, self._end = self._node_bytes * nodes, len(content)
        if (
            record_bits not in RECORD_BITS
            or ip_version not in (4, 6)
            or nodes < 0
            or self._size + _SEPARATOR > self._end
        ):
            raise ValueError("no search tree")
        # Every four bytes of the tree as a number, wherever they begin.
        self._words: npt.NDArray[np.uint32] = np.ndarray((self._size + _SEPARATOR - 3,), ">u4", content, 0, (1,))
        self._first_ipv4 = np.zeros(1, np.int64)
        for _ in range(0 if self._only_ipv4 else _MAPPED_BITS):
            if self._first_ipv4[0] < nodes:
                self._first_ipv4 = self._numbers(self._first_ipv4, np.zeros(1, np.int64))

    @property
    def data(self) -> int:
        """Where the data begin, bytes from the file's beginning."""
        return self._size + _SEPARATOR

    def find(self, keys: Keys) -> Ints:
        """Return for each address where its record begins, bytes from the file's beginning; or one of the two above."""
        ends = np.full(len(keys), self._nodes, np.int64)
        bits = np.unpackbits(np.ascontiguousarray(keys).view(np.uint8).reshape(-1, 16), axis=1)
        of_ipv4 = is_mapped(keys)
        rows = np.flatnonzero(of_ipv4)
        ends[rows] = self._walked(bits[rows, _MAPPED_BITS:], int(self._first_ipv4[0]))
        if not self._only_ipv4:
            rows = np.flatnonzero(~of_ipv4)
            ends[rows] = self._walked(bits[rows], 0)
        return self._places(ends)

    def records(self) -> Ints:
        """Return where records begin that the tree leads to, each once, in order; DAMAGED first where it does so."""
        found = [np.empty(0, np.int64)]
        for start in range(0, self._nodes, _BLOCK):
            nodes = np.arange(start, min(start + _BLOCK, self._nodes), dtype=np.int64)
            for side in (0, 1):
                numbers = self._numbers(nodes, np.full(len(nodes), side, np.int64))
                found.append(np.unique(self._places(numbers[numbers > self._nodes])))
        return np.unique(np.concatenate(found))

    def _walked(self, bits: npt.NDArray[np.uint8], begin: int) -> Ints:
        """Return the numbers at which walks end that begin at a node, one for each row of bits."""
        ends = np.full(len(bits), begin, np.int64)
        rows = np.arange(len(bits) if begin < self._nodes else 0)
        for depth in range(bits.shape[1]):
            if not len(rows):
                break
            numbers = self._numbers(ends[rows], bits[rows, depth].astype(np.int64))
            ends[rows] = numbers
            rows = rows[numbers < self._nodes]
        return ends

    def _numbers(self, nodes: Ints, sides: Ints) -> Ints:
        """Return the left (0) or right (1) numbers of nodes, all of which are in the tree."""
        words: Ints = self._words[nodes * self._node_bytes + sides * self._number_bytes].astype(np.int64)
        if self._record_bits == 24:
            words >>= 8
            return words
        if self._record_bits == 32:
            return words
        # Two numbers of 28 bits share their middle byte: its upper half is the beginning of the left one.
        return np.where(sides == 0, words >> 8 | (words & 0xF0) << 20, words & 0x0FFF_FFFF)

    def _places(self, numbers: Ints) -> Ints:
        places = numbers - self._nodes + self._size
        places[(numbers < self._nodes) | (places >= self._end)] = DAMAGED
        places[numbers == self._nodes] = NOT_IN_TREE
        return places
