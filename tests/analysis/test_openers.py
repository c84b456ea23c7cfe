"""Management sessions as analysis counts them: the sums of the ledger, and who is new to a service of a group."""

from collections.abc import Iterable

import polars as pl
import pytest

from analysis.detectors.egress.networks import NetworkPolicy, find
from analysis.detectors.inference.access import EVERY
from analysis.detectors.management.openers import KEY, KNOWN, MOST_NAMED, NAMES, rows, young
from analysis.detectors.management.session_study import ledger
from store import schema
from store.points import WINDOW

T0 = 1_790_000_000 // EVERY * EVERY
W, GAP = 10, 900
POLICY = NetworkPolicy(2_000, 900)


def windows(*seen: tuple[int, str, str, int], user: str = "-") -> pl.DataFrame:
    """Windows of SSH that a source opened to a node of the group training: moment, source, node, bytes."""
    found = [
        {WINDOW: T0 + at, schema.SRC: src, schema.SRC_GROUP: "management", schema.DST: dst,
         schema.DST_GROUP: "training",
         schema.PROTO: "tcp", schema.SERVICE: "ssh", schema.USER: user, schema.COUNTRY: "", schema.NETWORK: "",
         schema.BYTES.name: size, schema.TX_BYTES.name: size // 4, schema.FLOWS.name: 1}
        for at, src, dst, size in seen
    ]  # fmt: skip
    return pl.DataFrame(found)


def _sums(used: pl.DataFrame, *ranges: tuple[int, int]) -> list[tuple[int, ...]]:
    """Return sessions, open seconds and bytes over the ledger, made in one or several ranges."""
    parts = [ledger(used, start=T0 + start, stop=T0 + stop, gap=GAP, window=W) for start, stop in ranges]
    whole = pl.concat(parts)
    by_source = whole.group_by(schema.SRC).agg(pl.sum("sessions_begun", "open_seconds", "bytes")).sort(schema.SRC)
    return [row[1:] for row in by_source.iter_rows()]


LONG = [(at, "mgmt-1", "gpu-1", 40) for at in range(0, 7200, 600)]


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ([(0, "mgmt-1", "gpu-1", 40)], [(1, 10, 40)]),
        (LONG, [(1, 6610, 480)]),
        ([(0, "mgmt-1", "gpu-1", 1), (GAP + W, "mgmt-1", "gpu-1", 1)], [(1, GAP + 2 * W, 2)]),
        ([(0, "mgmt-1", "gpu-1", 1), (GAP + 2 * W, "mgmt-1", "gpu-1", 1)], [(2, 2 * W, 2)]),
        ([(0, "mgmt-1", "gpu-1", 1), (10, "mgmt-1", "gpu-2", 1), (20, "mgmt-2", "gpu-1", 1)], [(2, 20, 2), (1, 10, 1)]),
    ],
)
def test_sums_over_the_ledger_are_those_of_the_sessions(
    used: list[tuple[int, str, str, int]], expected: list[tuple[int, ...]]
) -> None:
    frame = windows(*used)
    assert _sums(frame, (0, 9000)) == expected
    # The same in passes of five minutes, each of which sees no more than it must.
    whole = range(0, 9000 + EVERY, EVERY)
    seen = [
        ledger(
            frame.filter(pl.col(WINDOW) >= T0 + end - EVERY - GAP - W),
            start=T0 + end, stop=T0 + end, gap=GAP, window=W,
        )
        for end in whole
    ]  # fmt: skip
    assert (
        pl.concat(seen)
        .sort(WINDOW, *schema.SESSION.tags)
        .equals(ledger(frame, start=T0, stop=T0 + 9000, gap=GAP, window=W))
    )


def test_a_session_whose_user_changes_is_one() -> None:
    both = pl.concat([windows((0, "mgmt-1", "gpu-1", 5), user="ada"), windows((60, "mgmt-1", "gpu-1", 5), user="bob")])
    found = ledger(both, start=T0, stop=T0 + EVERY, gap=GAP, window=W).select(
        schema.USER, "sessions_begun", "open_seconds"
    )
    assert found.rows() == [("ada", 1, 10), ("bob", 0, 60)]


def _found(used: pl.DataFrame, known: Iterable[tuple[object, ...]] = (), start: int = 0) -> pl.DataFrame:
    before = pl.DataFrame(list(known), schema=KNOWN, orient="row")
    sums = used.group_by(WINDOW, *KEY).agg(pl.sum("bytes"))
    found = find(sums, before, start=T0 + start, learning_end=T0 - 5_000, policy=POLICY, pair=KEY)
    fresh = young(pl.concat([before, found]), T0 + start, POLICY)
    return rows(used, fresh, start=T0 + start, window=W, policy=POLICY, told=pl.DataFrame(schema=NAMES))


def test_a_new_source_is_told_with_what_led_to_it() -> None:
    used = windows((0, "mgmt-2", "gpu-1", 900), (20, "mgmt-2", "gpu-2", 1500), (30, "mgmt-2", "gpu-3", 100))
    found = _found(used).select(WINDOW, schema.SRC, schema.DST, "bytes", "duration", "sources", "destinations")
    assert found.rows() == [
        (T0 + 20, "mgmt-2", "gpu-2", 2400, 20.0, 1, 2),
        (T0 + 30, "mgmt-2", "gpu-2", 100, 10.0, 1, 3),
    ]


def test_later_passes_go_on_with_the_same_rows() -> None:
    used = windows((0, "mgmt-2", "gpu-1", 2400), (30, "mgmt-2", "gpu-3", 100))
    known = [("mgmt-2", "training", "ssh", T0, 1)]
    assert _found(used, known, start=20).equals(_found(used).filter(pl.col(WINDOW) >= T0 + 20))


@pytest.mark.parametrize(
    ("used", "known"),
    [
        (windows((0, "mgmt-2", "gpu-1", 2_000)), []),
        (windows((0, "mgmt-2", "gpu-1", 1_500), (900, "mgmt-2", "gpu-1", 1_500)), []),
        (windows((0, "mgmt-2", "gpu-9", 90_000)), [("mgmt-2", "training", "ssh", T0 - 9_000, 0)]),
        (windows((0, "mgmt-2", "gpu-9", 90_000)), [("mgmt-2", "training", "ssh", T0 - 1_000, 1)]),
    ],
    ids=["too small", "too slow", "known, of another node of the group", "new, but no longer"],
)
def test_near_misses(used: pl.DataFrame, known: list[tuple[object, ...]]) -> None:
    assert _found(used, known).is_empty()


def test_many_new_sources_at_once_are_one_row() -> None:
    few = [(0, f"mgmt-{n}", "gpu-1", 3_000) for n in range(MOST_NAMED)]
    assert set(_found(windows(*few))[schema.SRC]) == {f"mgmt-{n}" for n in range(MOST_NAMED)}
    found = _found(windows(*few, (0, "mgmt-99", "gpu-2", 3_000))).select(schema.SRC, schema.DST, "bytes", "sources")
    assert found.rows() == [("other", "other", 3_000 * (MOST_NAMED + 1), MOST_NAMED + 1)]
