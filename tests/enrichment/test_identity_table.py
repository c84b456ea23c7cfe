"""Who had an address when: against a plain walk through the signs, whatever their order."""

import random
from collections.abc import Collection, Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrichment.identity.identity_table import NOBODY, IdentityTable, Sign, canonical

ADDRESSES = ("10.8.0.5", "10.8.0.6", "2001:db8::5")

signs = st.builds(
    Sign,
    address=st.sampled_from(ADDRESSES[:2]),
    user=st.sampled_from(["alice", "bob", "carol"]),
    moment=st.integers(0, 40),
    ends=st.booleans(),
    hold=st.sampled_from([0, 3, 10, 25]),
) | st.builds(
    Sign, address=st.sampled_from(ADDRESSES[:2]), user=st.just(NOBODY), moment=st.integers(0, 40), ends=st.just(True)
)


def are_both(mine: Collection[Sign], sign: Sign) -> bool:
    """Whether somebody comes and goes within the second of a sign."""
    others = [one for one in mine if one.moment == sign.moment and one.ends != sign.ends]
    return any(one.user == sign.user or NOBODY in (one.user, sign.user) for one in others)


def is_brief(mine: Collection[Sign], sign: Sign) -> bool:
    """Whether who comes and goes within the second of a sign was not there before."""
    if not are_both(mine, sign):
        return False
    clear = [one for one in mine if one.moment < sign.moment and not are_both(mine, one)]
    came = max((one for one in clear if not one.ends), key=lambda one: (one.moment, one.user, one.hold), default=None)
    if came is None or came.moment + came.hold < sign.moment:
        return True
    if any(one.ends and one.moment > came.moment and one.user in (came.user, NOBODY) for one in clear):
        return True
    own = any(one.user == sign.user and one.ends != sign.ends and one.moment == sign.moment for one in mine)
    return own and sign.user not in (came.user, NOBODY)


def walked(known: Iterable[Sign], address: str, moment: int) -> str:
    """Return the user as the rule says it, sign by sign."""
    user, until = NOBODY, 0
    mine = {sign for sign in known if sign.address == address and sign.moment <= moment}
    turns = {sign: 1 + sign.ends if is_brief(mine, sign) else 3 * (not sign.ends) for sign in mine}
    for sign in sorted(mine, key=lambda sign: (sign.moment, turns[sign], sign.user)):
        if sign.ends:
            if sign.user in (user, NOBODY):
                user, until = NOBODY, 0
        elif sign.user == user:
            until = max(until, sign.moment + sign.hold)
        else:
            user, until = sign.user, sign.moment + sign.hold
    return user if moment < until else NOBODY


def table_of(known: Iterable[Sign]) -> IdentityTable:
    table = IdentityTable()
    table.add(known)
    return table


def everything(table: IdentityTable, first: int = 0) -> list[str]:
    moments = [moment for _ in ADDRESSES for moment in range(first, 70)]
    addresses = [address for address in ADDRESSES for _ in range(first, 70)]
    return table.user_at(addresses, moments).tolist()  # type: ignore[no-any-return]


@given(st.lists(signs, max_size=25))
def test_the_table_agrees_with_a_walk_through_the_signs(known: list[Sign]) -> None:
    expected = [walked(known, address, moment) for address in ADDRESSES for moment in range(70)]
    assert everything(table_of(known)) == expected


@given(st.lists(signs, max_size=25), st.randoms(use_true_random=False), st.integers(1, 5))
def test_order_repetition_and_portions_change_nothing(known: list[Sign], chance: random.Random, portion: int) -> None:
    mixed = known + chance.choices(known, k=len(known)) if known else []
    chance.shuffle(mixed)
    table = IdentityTable()
    for start in range(0, len(mixed), portion):
        table.add(mixed[start : start + portion])
        table.user_at(ADDRESSES[:1], [5])
    assert everything(table) == everything(table_of(known))


@given(st.lists(signs, max_size=25), st.integers(0, 60))
def test_what_is_forgotten_did_not_matter_any_more(known: list[Sign], before: int) -> None:
    table = table_of(known)
    expected = everything(table, before)
    table.forget(before)
    assert everything(table, before) == expected
    assert len(table) <= len(set(known))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], ""),
        ([Sign("10.8.0.5", "alice", 50, hold=3600)], "alice"),
        ([Sign("10.8.0.5", "alice", 50, hold=20)], ""),
        ([Sign("10.8.0.5", "alice", 50, hold=3600), Sign("10.8.0.5", "alice", 60, ends=True)], ""),
        ([Sign("10.8.0.5", "bob", 50, hold=3600)], ""),
    ],
    ids=["nobody", "same", "long ago", "left", "another"],
)
@pytest.mark.parametrize("who", ["alice", NOBODY])
def test_who_comes_and_goes_within_a_second_is_there_if_there_before(before: list[Sign], after: str, who: str) -> None:
    pair = [Sign("10.8.0.5", "alice", 100, hold=3600), Sign("10.8.0.5", who, 100, ends=True)]
    is_handed_over = who == NOBODY and bool(before) and before[0].user == "bob"
    assert at(table_of([*before, *pair]), 200) == ("alice" if is_handed_over else after)


def at(table: IdentityTable, moment: int) -> str:
    return str(table.user_at(["10.8.0.5"], [moment])[0])


def test_an_address_that_passes_from_hand_to_hand() -> None:
    """Alice signs in at 100, bob gets her address at 200; her late sign-out at 250 is not his."""
    table = table_of([
        Sign("10.8.0.5", "alice", 100, hold=3600),
        Sign("10.8.0.5", "bob", 200, hold=3600),
        Sign("10.8.0.5", "alice", 250, ends=True),
        Sign("10.8.0.5", "bob", 300, ends=True),
    ])  # fmt: skip
    assert [at(table, moment) for moment in (99, 100, 199, 200, 260, 299, 300, 5000)] == [
        "", "alice", "alice", "bob", "bob", "bob", "", "",
    ]  # fmt: skip


def test_a_line_that_comes_late_still_counts_for_its_time() -> None:
    table = table_of([Sign("10.8.0.5", "alice", 100, hold=1000)])
    assert at(table, 500) == "alice"
    table.add([Sign("10.8.0.5", "bob", 400, hold=1000)])
    assert [at(table, moment) for moment in (399, 400, 500)] == ["alice", "bob", "bob"]


def test_a_user_is_held_from_the_last_sign_on_by_the_longest_hold() -> None:
    table = table_of([Sign("10.8.0.5", "alice", 100, hold=1000), Sign("10.8.0.5", "alice", 200, hold=10)])
    assert [at(table, moment) for moment in (205, 1099, 1100)] == ["alice", "alice", ""]


def test_memory_is_bounded_and_the_newest_signs_stay() -> None:
    table = IdentityTable(most=100)
    table.add(
        Sign(f"10.8.{number // 250}.{number % 250}", f"user{number}", number, hold=10_000) for number in range(500)
    )
    assert (len(table), table.dropped) == (100, 400)
    assert table.user_at(["10.8.1.249", "10.8.0.1"], [500, 500]).tolist() == ["user499", ""]
    assert len(table._names) == len(table._addresses) == 100


def test_nothing_known_is_nobody() -> None:
    assert IdentityTable().user_at(["10.8.0.5"], [5]).tolist() == [NOBODY]
    assert IdentityTable().user_at([], []).tolist() == []


def test_a_hundred_thousand_addresses_are_told_in_one_go() -> None:
    """As slow as a dictionary look-up each: far below a second for what a minute of a busy cluster asks."""
    table = table_of(Sign(f"10.{n % 250}.{n // 250 % 250}.7", f"user{n % 977}", n, hold=10**6) for n in range(50_000))
    addresses = [f"10.{n % 250}.{n // 250 % 250}.7" for n in range(50_000)] * 2
    users = table.user_at(addresses, np.full(100_000, 60_000))
    assert users[:3].tolist() == ["user0", "user1", "user2"]
    assert (users != NOBODY).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.8.0.5", "10.8.0.5"),
        ("::ffff:10.8.0.5", "10.8.0.5"),
        ("198.51.100.7:51234", "198.51.100.7"),
        ("[2001:DB8::1]:443", "2001:db8::1"),
        ("2001:0db8:0:0::1", "2001:db8::1"),
        ("::1", ""),
        ("127.0.0.1", ""),
        ("fe80::1%eth0", ""),
    ],
)
def test_addresses_are_spelled_as_in_the_store(text: str, expected: str) -> None:
    assert canonical(text) == expected


@pytest.mark.parametrize("text", ["", "-", "host", "10.8.0", "10.8.0.5 or so"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="IPv4 or IPv6 address"):
        canonical(text)
