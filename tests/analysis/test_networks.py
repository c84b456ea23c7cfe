"""New networks as tables: what groups sent in, networks and points out."""

import polars as pl
import pytest

from analysis.detectors.egress.networks import (
    FIRST_SEEN,
    KNOWN,
    NAMES,
    NEW,
    SENT,
    TALKS,
    NetworkPolicy,
    find,
    number_of,
    rows,
    sources,
    young,
)
from cluster.model import Cluster, Group, Role
from store import schema
from store.points import WINDOW, encode

T0 = 1_760_000_000
POLICY = NetworkPolicy(volume=100, window=60, episode=50)
NOBODY = pl.DataFrame(schema=KNOWN)
NOTHING = pl.DataFrame(schema=NAMES)

Summary = list[tuple[int, str, str, int]]


def sent(*given: tuple[int, str, str, int]) -> pl.DataFrame:
    """Rows of (seconds after T0, group, network, bytes)."""
    return pl.DataFrame([(T0 + at, *rest) for at, *rest in given], schema=SENT, orient="row")


def known(*given: tuple[str, str, int, int]) -> pl.DataFrame:
    return pl.DataFrame([(group, net, T0 + at, new) for group, net, at, new in given], schema=KNOWN, orient="row")


def look(frame: pl.DataFrame, before: pl.DataFrame = NOBODY, *, start: int = 0, learning_end: int = 0) -> Summary:
    """Return (seconds after T0, group, network, new) of what becomes known."""
    found = find(frame, before, start=T0 + start, learning_end=T0 + learning_end, policy=POLICY)
    return found.select(pl.col(FIRST_SEEN) - T0, schema.SRC_GROUP, schema.NETWORK, NEW).rows()


def test_a_network_is_known_once_more_than_the_floor_went_there_within_the_window() -> None:
    drip = sent((0, "a", "AS1", 50), (30, "a", "AS1", 50), (70, "a", "AS1", 49), (80, "a", "AS1", 2))
    assert look(drip) == [(80, "a", "AS1", 1)]


def test_what_is_below_the_floor_never_is() -> None:
    assert look(sent(*((at, "a", "AS1", 50) for at in range(0, 600, 30)))) == []


def test_a_known_network_is_none() -> None:
    assert look(sent((0, "a", "AS1", 500)), known(("a", "AS1", -900, 0))) == []


def test_what_is_known_to_one_group_is_new_to_another() -> None:
    assert look(sent((0, "a", "AS1", 500), (0, "b", "AS1", 500)), known(("a", "AS1", -900, 0))) == [(0, "b", "AS1", 1)]


def test_while_learning_a_byte_makes_a_network_known() -> None:
    frame = sent((0, "a", "AS1", 1), (10, "a", "AS2", 500), (100, "a", "AS1", 500), (100, "a", "AS3", 500))
    assert look(frame, learning_end=50) == [(0, "a", "AS1", 0), (10, "a", "AS2", 0), (100, "a", "AS3", 1)]


def test_what_came_before_the_range_counts_towards_the_floor() -> None:
    assert look(sent((-20, "a", "AS1", 80), (10, "a", "AS1", 30))) == [(10, "a", "AS1", 1)]


@pytest.mark.parametrize(
    ("label", "number"),
    [
        ("AS64500 ExampleHost", "AS64500"),
        ("AS64500 ExampleHost B.V.", "AS64500"),
        ("AS64500", "AS64500"),
        ("ExampleHost", "ExampleHost"),
        ("AS64500x", "AS64500x"),
    ],
)
def test_networks_are_told_apart_by_their_number(label: str, number: str) -> None:
    assert pl.select(number_of(pl.lit(label))).item() == number


# -- rows ----------------------------------------------------------------------------------------------


def talks(*given: tuple[int, str, str, str, int]) -> pl.DataFrame:
    """Rows of (seconds after T0, source, destination, label, bytes): tcp/https from group a, 4 s each."""
    full = [
        (T0 + at, src, "a", dst, "tcp", "https", "NL", label, "", "", size, 4.0) for at, src, dst, label, size in given
    ]
    return pl.DataFrame(full, schema=TALKS, orient="row")


def told(frame: pl.DataFrame, networks: pl.DataFrame, *, start: int = 0) -> list[tuple[object, ...]]:
    """Return (seconds, source, destination, network, bytes, duration, sources, destinations) of each row."""
    found = rows(frame, young([networks], T0 + start, POLICY), start=T0 + start, policy=POLICY, told=NOTHING)
    numbers = (schema.BYTES, schema.DURATION, schema.EVENT_SOURCES, schema.EVENT_DESTINATIONS)
    tags = (schema.SRC, schema.DST, schema.NETWORK)
    return found.select(pl.col(WINDOW) - T0, *tags, *(one.name for one in numbers)).rows()


def test_the_first_row_holds_what_led_to_it_and_names_the_largest() -> None:
    frame = talks(
        (-70, "n1", "x", "AS1 One", 900),   # before the window of the floor
        (-10, "n1", "x", "AS1 One", 30), (0, "n2", "y", "AS1 One", 80),
        (10, "n1", "z", "AS1 One", 500), (10, "n1", "z", "AS2 Two", 7), (40, "n3", "z", "AS1 One", 5),
        (50, "n1", "x", "AS1 One", 5),      # after its first minutes
    )  # fmt: skip
    assert told(frame, known(("a", "AS1", 0, 1))) == [
        (0, "n2", "y", "AS1 One", 110, 8.0, 2, 2),
        (10, "n2", "y", "AS1 One", 500, 4.0, 2, 3),
        (40, "n2", "y", "AS1 One", 5, 4.0, 3, 3),
    ]


def test_rows_go_on_from_pass_to_pass() -> None:
    frame = talks(*((at, f"n{at % 30}", f"x{at}", "AS1 One", 60 + at) for at in range(-20, 60, 10)))
    new = known(("a", "AS1", 0, 1))
    whole = told(frame, new)
    assert [row for row in whole if row[0] >= 20] == told(frame, new, start=20)  # type: ignore[operator]


def test_what_was_learnt_gives_no_rows() -> None:
    assert told(talks((0, "n1", "x", "AS1 One", 900)), known(("a", "AS1", 0, 0))) == []


def test_a_row_is_written_as_the_schema_says() -> None:
    found = rows(
        talks((0, "n1", "x", "AS1 One", 900)), known(("a", "AS1", 0, 1)), start=T0, policy=POLICY, told=NOTHING
    )
    tags = "src=n1,src_group=a,dst=x,dst_group=external,proto=tcp,service=https,country=NL,network=AS1\\ One"
    fields = f"bytes=900i,duration=4.0,sources=1i,destinations=1i,first_seen={T0}.0"
    assert encode(schema.NEW_NETWORK, found).decode() == f"new_network,{tags} {fields} {T0}"


def test_people_s_machines_are_not_judged_unless_they_are_sensitive() -> None:
    groups = (
        Group("models", "Models", Role.MODEL_STORAGE),
        Group("users", "Users", Role.CUSTOM),
        Group("vault", "Vault", Role.CUSTOM, sensitive=True),
        Group("partner", "Partner", Role.APPROVED_EXTERNAL),
    )
    assert [group.id for group in sources(Cluster("lab", groups))] == ["models", "vault"]
