"""What a table has handed out so far, written over each other as InfluxDB does, always sums to what went in."""

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.count.aggregate import FIRST, LAST
from ingest.count.tables import NAMED, WindowTable
from ingest.read.records import MAX_TOTAL
from store import schema
from store.points import WINDOW

Row = tuple[int, str, str, int]
"""Window, source, destination, bytes."""

ROWS = st.lists(
    st.tuples(
        st.sampled_from([0, 10, 20]),
        st.sampled_from(["gpu-1", "gpu-2", "10.9.9.9"]),
        st.sampled_from([f"203.0.113.{n}" for n in range(9)]),
        st.integers(0, 1000),
    ),
    max_size=25,
)


def egress_table(named: int = 2, budget: int = 1000) -> WindowTable:
    return WindowTable(schema.EGRESS, listed=["gpu-1", "gpu-2"], named=named, budget=budget, keep=7 * 86_400)


def partial(rows: Sequence[Row]) -> pl.DataFrame:
    frame = pl.DataFrame(
        rows, schema={WINDOW: pl.Int64, schema.SRC: pl.String, schema.DST: pl.String, "bytes": pl.Int64}, orient="row"
    )
    constant = {
        schema.SRC_GROUP: "training",
        schema.DST_GROUP: "external",
        schema.PROTO: "tcp",
        schema.SERVICE: "https",
        schema.OFF_HOURS: schema.NO,
        schema.INITIATOR: schema.BY_SOURCE,
    }
    return frame.with_columns(
        *(pl.lit(value).alias(name) for name, value in constant.items()),
        pl.lit(1, pl.Int64).alias("packets"),
        pl.lit(1, pl.Int64).alias("flows"),
        (pl.col(WINDOW) * 1000).alias(FIRST),
        (pl.col(WINDOW) * 1000 + 500).alias(LAST),
    )


def upsert(store: dict[tuple[object, ...], int], table: WindowTable, points: pl.DataFrame) -> None:
    """Write points as InfluxDB does: same series and time, new value."""
    for row in points.iter_rows(named=True):
        store[tuple(row[key] for key in table.keys)] = row["bytes"]


@settings(deadline=None, max_examples=60)
@given(st.lists(ROWS, max_size=6), st.integers(0, 4))
def test_what_is_stored_is_what_went_in_after_every_merge(batches: list[list[Row]], named: int) -> None:
    table = egress_table(named)
    store: dict[tuple[object, ...], int] = {}
    total: dict[int, int] = {}
    for batch in batches:
        if batch:
            table.add(partial(batch))
        for window, _, _, volume in batch:
            total[window] = total.get(window, 0) + volume
        upsert(store, table, table.merge())
        stored: dict[int, int] = {}
        for key, volume in store.items():
            stored[int(str(key[0]))] = stored.get(int(str(key[0])), 0) + volume
        assert {window: volume for window, volume in stored.items() if volume} == {
            window: volume for window, volume in total.items() if volume
        }


@settings(deadline=None, max_examples=40)
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_rewriting_everything_after_a_restart_changes_nothing(batches: list[list[Row]]) -> None:
    table = egress_table()
    store: dict[tuple[object, ...], int] = {}
    for batch in batches:
        if batch:
            table.add(partial(batch))
        upsert(store, table, table.merge())
    restarted = egress_table()
    restarted.state, restarted.series = table.state, table.series
    again = dict(store)
    upsert(again, restarted, restarted.all_points())
    assert again == store


def test_no_window_names_more_than_twice_k() -> None:
    table = egress_table(named=2)
    for size in range(1, 9):
        table.add(partial([(0, "gpu-1", f"203.0.113.{size}", size * 100)]))
        table.merge()
    named = table.state.filter(pl.col(NAMED) & (pl.col(schema.DST) != schema.OTHER))
    assert named.height == 4


def test_a_large_latecomer_gets_a_name_though_k_are_given() -> None:
    table = egress_table(named=2)
    table.add(partial([(0, "gpu-1", "203.0.113.1", 5), (0, "gpu-1", "203.0.113.2", 5)]))
    table.merge()
    table.add(partial([(0, "gpu-1", "203.0.113.3", 10**9)]))
    points = table.merge()
    assert "203.0.113.3" in points[schema.DST].to_list()


def test_the_largest_get_the_names() -> None:
    table = egress_table(named=2)
    table.add(partial([(0, "gpu-1", f"203.0.113.{n}", n) for n in range(1, 7)]))
    points = table.merge()
    by_name = dict(points.select(schema.DST, "bytes").iter_rows())
    assert by_name == {"203.0.113.6": 6, "203.0.113.5": 5, schema.OTHER: 10}


def test_other_keeps_the_node_but_not_an_address_nobody_knows() -> None:
    table = egress_table(named=0)
    table.add(partial([(0, "gpu-1", "203.0.113.1", 1), (0, "10.9.9.9", "203.0.113.1", 2)]))
    points = table.merge()
    assert dict(points.select(schema.SRC, "bytes").iter_rows()) == {"gpu-1": 1, schema.OTHER: 2}
    assert set(points[schema.DST]) == {schema.OTHER}


def test_other_keeps_an_address_that_has_several_names_of_its_own() -> None:
    """A scanner that no inventory knows is not lost among the rest; whoever calls once is."""
    table = egress_table(named=3)
    scan = [(0, "10.9.9.9", f"203.0.113.{n}", 100) for n in range(50)]
    table.add(partial([*scan, (0, "10.8.8.8", "203.0.113.1", 1)]))
    points = table.merge().filter(pl.col(schema.DST) == schema.OTHER)
    assert dict(points.select(schema.SRC, "bytes").iter_rows()) == {"10.9.9.9": 4700, schema.OTHER: 1}


def test_beyond_the_series_budget_new_conversations_are_other_and_counted() -> None:
    table = egress_table(named=10, budget=3)
    table.add(partial([(0, "gpu-1", f"203.0.113.{n}", 10) for n in range(6)]))
    points = table.merge()
    assert points.filter(pl.col(schema.DST) != schema.OTHER).height == 3
    assert points["bytes"].sum() == 60
    assert table.over_budget == 3
    # A series that is in the budget already may be written in the next window, too.
    known = points.filter(pl.col(schema.DST) != schema.OTHER)[schema.DST][0]
    table.add(partial([(10, "gpu-1", known, 10)]))
    assert table.merge()[schema.DST].to_list() == [known]


def test_the_series_budget_goes_to_the_largest() -> None:
    table = egress_table(named=10, budget=3)
    table.add(partial([(0, "gpu-1", f"203.0.113.{n}", n) for n in range(40)]))
    points = table.merge()
    by_name = dict(points.select(schema.DST, "bytes").iter_rows())
    assert by_name == {"203.0.113.39": 39, "203.0.113.38": 38, "203.0.113.37": 37, schema.OTHER: sum(range(37))}


def test_evicted_windows_can_be_put_back_and_go_on() -> None:
    table = egress_table()
    table.add(partial([(0, "gpu-1", "203.0.113.1", 5), (10, "gpu-1", "203.0.113.1", 7)]))
    table.merge()
    old = table.evict(10)
    assert table.state[WINDOW].to_list() == [10]
    table.put_back(old)
    table.add(partial([(0, "gpu-1", "203.0.113.1", 1)]))
    points = table.merge()
    assert points.select(WINDOW, "bytes").rows() == [(0, 6)]


def test_duration_is_from_the_first_to_the_last_moment() -> None:
    table = egress_table()
    early = partial([(0, "gpu-1", "203.0.113.1", 5)])
    late = early.with_columns(pl.lit(4000, pl.Int64).alias(FIRST), pl.lit(9000, pl.Int64).alias(LAST))
    table.add(early)
    table.add(late)
    assert table.merge()[schema.DURATION.name].to_list() == [9.0]


@pytest.mark.parametrize("largest", [1 << 30, 1 << 50, MAX_TOTAL, (1 << 62) + 1])
def test_no_total_runs_over(largest: int) -> None:
    """Sums of 64 bits that run over turn negative, and hide what else was there."""
    table = egress_table()
    rows = [(10, "gpu-1", f"203.0.113.{i % 250}", largest) for i in range(5_000)]
    for _ in range(2):
        table.add(partial(rows))
        points = table.merge()
        lowest, highest = points.select(pl.min("bytes"), pl.max("bytes").alias("highest")).row(0)
        assert 0 < lowest <= highest <= MAX_TOTAL
    assert (table.capped > 0) == (largest > 1 << 30)


# -- labels ----------------------------------------------------------------------------------------------


def labelled(rows: Sequence[Row], country: str) -> pl.DataFrame:
    known = dict.fromkeys(schema.LABELS, "") | {schema.COUNTRY: country}
    return partial(rows).with_columns(pl.lit(value).alias(name) for name, value in known.items())


@settings(deadline=None)
@given(st.lists(st.tuples(ROWS, st.sampled_from(["", "NL", "DE"])), max_size=5), st.integers(1, 4))
def test_labels_that_change_while_a_window_is_open_split_rows_and_keep_sums(
    batches: list[tuple[list[Row], str]], named: int
) -> None:
    table, store = egress_table(named), {}
    for rows, country in batches:
        table.add(labelled(rows, country))
        upsert(store, table, table.merge())
    found, total = dict.fromkeys((0, 10, 20), 0), dict.fromkeys((0, 10, 20), 0)
    for key, size in store.items():
        found[int(str(key[0]))] += size
    for window, _, _, size in (row for rows, _ in batches for row in rows):
        total[window] += size
    assert found == total


def test_a_folded_row_says_other_in_every_label() -> None:
    table = egress_table(named=1)
    table.add(labelled([(0, "gpu-1", "203.0.113.1", 9), (0, "gpu-1", "203.0.113.2", 5)], "NL"))
    rows = table.merge().select(schema.DST, *schema.LABELS, "bytes").sort("bytes").rows()
    assert rows == [("other", *["other"] * 5, 5), ("203.0.113.1", "NL", "", "", "", "", 9)]


@pytest.mark.parametrize("country", ["", "NL"])
def test_a_state_of_before_labels_were_kept_goes_on_without_counting_twice(country: str) -> None:
    rows: list[Row] = [(0, "gpu-1", f"203.0.113.{n}", 10 + n) for n in range(6)]
    before, store = egress_table(), {}
    before.add(partial(rows))
    upsert(store, before, before.merge())
    # As that version wrote them: `other` without labels, the names under the hash of the other tags.
    plain = [tag for tag in before.tags if tag not in schema.LABELS]
    store = {
        tuple("" if name in schema.LABELS else value for name, value in zip(before.keys, key, strict=True)): size
        for key, size in store.items()
    }
    state = before.state.select(pl.exclude(schema.LABELS))
    names = before.state.filter(NAMED, pl.col(schema.DST) != schema.OTHER)
    after = egress_table(budget=2)
    after.restore(state)
    after.series = names.select(pl.struct(*plain).hash().alias("hash"), WINDOW)
    upsert(store, after, after.all_points())
    after.add(labelled(rows, country))
    upsert(store, after, after.merge())
    assert sum(store.values()) == 2 * sum(size for *_, size in rows)
    # Labels that came, or that are others now, spend no budget.
    for window, label in ((10, country), (20, "DE")):
        after.add(labelled([(window, "gpu-1", "203.0.113.5", 7)], label))
        assert after.merge().get_column(schema.DST).to_list() == ["203.0.113.5"]
    assert after.over_budget == 0


# -- kinds -----------------------------------------------------------------------------------------

Client = tuple[str, str, str, int]
"""Address, group, country, bytes."""


def inference_table(named: int = 40, budget: int = 100_000) -> WindowTable:
    return WindowTable(schema.INFERENCE, named=named, budget=budget, keep=7 * 86_400)


def requests(window: int, clients: Sequence[Client]) -> pl.DataFrame:
    tags = (schema.SRC, schema.SRC_GROUP, schema.COUNTRY)
    constant = {schema.DST: "infer-1", schema.DST_GROUP: "inference", schema.PROTO: "tcp", schema.SERVICE: "https"}
    return pl.DataFrame(clients, schema=[*tags, "bytes"], orient="row").with_columns(
        pl.lit(window, pl.Int64).alias(WINDOW),
        *(pl.lit(value).alias(name) for name, value in constant.items()),
        *(pl.lit("").alias(tag) for tag in (*schema.LABELS, schema.OFF_WINDOW) if tag != schema.COUNTRY),
        *(pl.lit(1, pl.Int64).alias(name) for name in ("packets", "flows")),
        *(pl.lit(window * 1000, pl.Int64).alias(name) for name in (FIRST, LAST)),
    )


def named(points: pl.DataFrame) -> set[str]:
    return set(points.get_column(schema.SRC)) - {schema.OTHER}


CROWD: list[Client] = [(f"10.70.{n // 250}.{n % 250}", "users", "", 50_000 + n) for n in range(5_000)]


def test_a_small_client_from_outside_has_a_name_among_five_thousand() -> None:
    table = inference_table()
    table.add(requests(0, [*CROWD, ("203.0.113.9", "external", "BR", 900)]))
    points = table.merge()
    assert "203.0.113.9" in named(points)
    assert points["bytes"].sum() == sum(one[-1] for one in CROWD) + 900


def test_a_client_that_is_new_has_a_name_before_the_crowd() -> None:
    table = inference_table()
    for window in range(0, 4_000, 1_000):
        table.add(requests(window, CROWD))
        table.merge()
    for window in (7_000, 7_010):
        table.add(requests(window, [*CROWD, ("10.70.99.1", "users", "", 900)]))
        assert "10.70.99.1" in named(table.merge())
    table.add(requests(12_000, [*CROWD, ("10.70.99.1", "users", "", 900)]))
    assert "10.70.99.1" not in named(table.merge()), "it is known by now"


def test_a_flood_of_forged_addresses_takes_a_quarter_of_the_names_and_the_budget_bounds_all() -> None:
    """The crowd and the largest thief keep theirs; the same records give the same names in whatever order they come."""
    table, turned = inference_table(budget=100), inference_table(budget=100)
    for window in range(0, 200, 10):
        forged = [(f"198.18.{window}.{n % 250}", "external", f"{n % 90:02d}", 60) for n in range(2_000)]
        rows = requests(window, [*CROWD, *forged, ("203.0.113.9", "external", "BR", 5_000_000)])
        table.add(rows)
        turned.add(rows.reverse())
        points = table.merge()
        assert named(points) == named(turned.merge())
        assert {"203.0.113.9", CROWD[-1][0], CROWD[-30][0]} <= named(points)
        assert len(named(points)) <= 50
    assert table.series.height <= 100
