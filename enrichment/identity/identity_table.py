"""Who had an address when: signs of users at addresses, and the table that gives the user at a moment.

A user has an address from a sign-in on, until the first of: a sign-out of that user, a sign-in of another user at the
same address, or `hold` seconds after the last sign of that user. Whoever signs in and out within one second has it
afterwards if they had it before: that one came back, the other was there for a moment. What a table answers depends on
which signs it was given, not on their order, nor on how often each came: exports repeat lines and mix them up.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

NOBODY = ""
"""The user where none is known."""

MOST_SIGNS = 1_000_000
"""Signs that a table keeps, 40 bytes each and its names. Beyond them the oldest go."""

_MOMENT_BITS = 36
"""Bits for a moment in a sort key: epoch seconds until the year 4147."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One line of an export: a user was at an address, or left it.

    Attributes:
        address: canonical, see `canonical`.
        user: name or pseudonym; NOBODY where a sign-out does not say whose it is: then it is everybody's.
        moment: epoch seconds.
        ends: whether the user left.
        hold: seconds for which the sign holds without another one.
    """

    address: str
    user: str
    moment: int
    ends: bool = False
    hold: int = 0


@lru_cache(100_000)
def canonical(text: str) -> str:
    """Return an address as the store spells it: IPv4-mapped ones as IPv4, without zone, port or brackets.

    Addresses that belong to no single machine (unspecified, loopback, link-local, multicast) become empty: exports
    name them for sign-ins at the server itself.

    Raises:
        ValueError: the text is no address.
    """
    bare = text.strip()
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    address = ip_address(bare.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_unspecified or address.is_loopback or address.is_link_local or address.is_multicast:
        return ""
    return str(address)


class IdentityTable:
    """Users by address and time. Several threads may use it.

    Args:
        most: signs that are kept, the newest.

    Attributes:
        dropped: signs that went because there were more.
    """

    def __init__(self, most: int = MOST_SIGNS) -> None:
        self.dropped = 0
        self._most = most
        self._lock = threading.Lock()
        self._pending: list[Sign] = []
        self._addresses: dict[str, int] = {}
        self._names: list[str] = []
        # [sign, column]: address, user, moment, ends, hold; each sign once.
        self._signs = np.zeros((0, 5), np.int64)
        self._answers: tuple[Integers, Integers, Integers, npt.NDArray[np.object_]] | None = None

    def __len__(self) -> int:
        with self._lock:
            self._settle()
            return len(self._signs)

    def add(self, signs: Iterable[Sign]) -> None:
        """Take signs in, in any order."""
        with self._lock:
            self._pending.extend(signs)
            if len(self._pending) > self._most // 8:
                self._settle()

    def forget(self, before: int) -> None:
        """Let go of what no longer matters to moments from `before` on."""
        with self._lock:
            self._settle()
            if len(self._signs):
                # One limit for all: a sign-out must not go before the sign-in that it ends; nor what says who was there
                # before those that came within the hold.
                self._keep(self._signs[:, 2] >= before - 2 * int(self._signs[:, 4].max()))

    def user_at(self, addresses: Sequence[str], moments: npt.ArrayLike) -> npt.NDArray[np.object_]:
        """Return who had each address at its moment, NOBODY if unknown.

        Args:
            addresses: (n,) canonical.
            moments: (n,) epoch seconds.

        Returns:
            (n,) texts.
        """
        asked = np.asarray(moments, np.int64)
        with self._lock:
            keys, users, until, names = self._answered()
            places = np.fromiter((self._addresses.get(one, -1) for one in addresses), np.int64, len(addresses))
        if not len(keys):
            return np.full(len(places), NOBODY, np.object_)
        limit = (1 << _MOMENT_BITS) - 1
        wanted = (places << _MOMENT_BITS) | np.clip(asked, 0, limit)
        last = np.searchsorted(keys, wanted, side="right") - 1
        is_known = (places >= 0) & (last >= 0)
        last = np.maximum(last, 0)
        is_known &= (keys[last] >> _MOMENT_BITS == places) & (asked < until[last])
        return np.where(is_known, names[users[last]], NOBODY)

    # -- signs -------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Bring what was added into the arrays."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        numbers = {name: place for place, name in enumerate(self._names)}
        rows = [
            (
                self._addresses.setdefault(sign.address, len(self._addresses)),
                numbers.setdefault(sign.user, len(numbers)),
                sign.moment,
                sign.ends,
                sign.hold,
            )
            for sign in pending
        ]
        self._names = list(numbers)
        self._signs = np.unique(np.concatenate([self._signs, np.array(rows, np.int64)]), axis=0)
        self._answers = None
        if len(self._signs) > self._most:
            surplus = len(self._signs) - self._most
            # The lowest rows of the oldest moment go, by value: which ones must not depend on their order either.
            order = np.lexsort((*self._ranked(), self._signs[:, 2]))
            self.dropped += surplus
            kept = np.ones(len(self._signs), np.bool_)
            kept[order[:surplus]] = False
            self._keep(kept)

    def _ranked(self) -> tuple[Integers, ...]:
        """Return columns of the signs that order them by value, whatever number a name happened to get."""
        names, addresses = _ranks(self._names), _ranks(list(self._addresses))
        return self._signs[:, 4], self._signs[:, 3], names[self._signs[:, 1]], addresses[self._signs[:, 0]]

    def _keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Let go of signs, and of the names that nothing else mentions."""
        if kept.all():
            return
        signs = self._signs[kept]
        used, signs[:, 0] = np.unique(signs[:, 0], return_inverse=True)
        texts = list(self._addresses)
        self._addresses = {texts[place]: number for number, place in enumerate(used.tolist())}
        used, signs[:, 1] = np.unique(signs[:, 1], return_inverse=True)
        self._names = [self._names[place] for place in used.tolist()]
        self._signs, self._answers = signs, None

    # -- answers -----------------------------------------------------------------------------------

    def _answered(self) -> tuple[Integers, Integers, Integers, npt.NDArray[np.object_]]:
        """Return keys of address and moment from which on a user has the address, the user, until when; the names."""
        self._settle()
        if self._answers is None:
            self._answers = (*self._changes(), np.array(self._names, np.object_))
        return self._answers

    def _changes(self) -> tuple[Integers, Integers, Integers]:
        if not len(self._signs):
            nothing = np.zeros(0, np.int64)
            return nothing, nothing, nothing
        rank = _ranks(self._names)
        address, user, moment, ends, hold = self._signs.T
        nobody = self._names.index(NOBODY) if NOBODY in self._names else -1
        # At one moment who leaves leaves first; of several who come, the last by name has it.
        order = np.lexsort((rank[user], 1 - ends, moment, address))
        signs = self._signs[order]
        brief = _brief(signs, nobody)
        if brief.any():
            # Those who were not there before come first, and leave.
            turn = np.where(brief, 1 + signs[:, 3], 3 * (1 - signs[:, 3]))
            signs = signs[np.lexsort((rank[signs[:, 1]], turn, signs[:, 2], signs[:, 0]))]
        address, user, moment, ends, hold = signs.T
        places = np.arange(len(order))
        begins = np.maximum.accumulate(np.where(_differs(address), places, 0))
        last_in = np.maximum.accumulate(np.where(ends == 0, places, -1))
        is_own = (last_in >= begins) & ((user == user[last_in]) | (user == nobody))
        # The late sign-out of an earlier user says nothing about the present one.
        matters = (ends == 0) | is_own
        address, user, moment, ends, hold = (part[matters] for part in (address, user, moment, ends, hold))
        run = np.cumsum(_differs(address) | _differs(user) | _differs(ends))
        shift = run << (_MOMENT_BITS + 1)
        until = np.maximum.accumulate(shift + moment + hold) - shift
        return (address << _MOMENT_BITS) | moment, user, np.where(ends == 1, 0, until)


def _brief(signs: Integers, nobody: int) -> npt.NDArray[np.bool_]:
    """Return which signs are of somebody who comes and goes within a second, and was not there before.

    Who was there follows from the last sign-in before that is not itself one of two within a second.

    Args:
        signs: [sign, column] as a table keeps them, ordered by address, moment, and who leaves first.
        nobody: number of the user of sign-outs that do not say whose they are.
    """
    address, user, moment, ends, hold = signs.T
    count = len(signs)
    second = np.cumsum(_differs(address) | _differs(moment)) - 1
    comes, goes, is_freed = np.zeros((3, count), np.bool_)
    comes[second[ends == 0]], goes[second[ends == 1]] = True, True
    if not (comes & goes).any():
        return np.zeros(count, np.bool_)
    is_freed[second[(ends == 1) & (user == nobody)]] = True
    users = int(user.max()) + 1
    _, own = np.unique(second * users + user, return_inverse=True)
    own_comes, own_goes = np.zeros((2, count), np.bool_)
    own_comes[own[ends == 0]], own_goes[own[ends == 1]] = True, True
    is_own = own_comes[own] & own_goes[own]
    is_both = is_own | np.where(ends == 0, is_freed[second], (user == nobody) & comes[second])
    # The last row before the second, and the last sign-in up to there.
    numbers = np.arange(count)
    before = np.maximum.accumulate(np.where(_differs(second), numbers, 0)) - 1
    came_last = np.maximum.accumulate(np.where(~is_both & (ends == 0), numbers, -1))
    holder = np.where(before >= 0, came_last[before], -1)
    holds = (holder >= 0) & (address[holder] == address) & (moment[holder] + hold[holder] >= moment)
    holds &= ~is_own | (user == nobody) | (user[holder] == user)
    # Since then that user, or nobody in particular, may have left.
    left = numbers[~is_both & (ends == 1)]
    # The first stands for none: it is of no address.
    keys = np.concatenate([[-1], np.sort((address[left] * users + user[left]) * count + left)])
    for who in (user[holder], *([np.full(count, nobody)] if nobody >= 0 else [])):
        wanted = address * users + who
        found = keys[np.searchsorted(keys, wanted * count + np.maximum(before, 0), side="right") - 1]
        holds &= (found // count != wanted) | (found % count < holder)
    is_brief: npt.NDArray[np.bool_] = is_both & ~holds
    return is_brief


def _differs(values: Integers) -> npt.NDArray[np.bool_]:
    """Return where a value is another one than that before it; the first is."""
    return np.concatenate([np.ones(min(len(values), 1), np.bool_), values[1:] != values[:-1]])


def _ranks(texts: Sequence[str]) -> Integers:
    """Return the place of each text in their order."""
    ranks = np.empty(len(texts), np.int64)
    ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    return ranks
