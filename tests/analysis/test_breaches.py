"""Breaches as tables: what ingest says of each direction in, one finding for each conversation out."""

import polars as pl
import pytest

from analysis.detectors.fabric.breaches import UNKNOWN, VIOLATIONS, Scope, find, recent
from store import schema
from store.points import WINDOW, encode
from store.schema import Breach, Violation

T0 = 1_760_000_000
SCOPE = Scope(
    window=10,
    look_back=900,
    with_inventory=frozenset({"training", "storage", "models", "control"}),
    watched=frozenset({"training", "models"}),
    outside=frozenset({"external", "partner"}),
    inference=frozenset({"inference"}),
)
GROUPS = {
    "gpu": "training",
    "nas": "storage",
    "mgm": "control",
    "sto": "models",
    "10.": "training",
    "vm-": "users",
    "inf": "inference",
}
NOT_ALLOWED, WRONG_PLANE, MANAGEMENT = Violation.NOT_ALLOWED, Violation.WRONG_PLANE, Violation.MANAGEMENT
FORTH, BACK = schema.BY_SOURCE, schema.BY_DESTINATION

Row = tuple[int, Violation, str, str, str, str, int, int]


def group(name: str) -> str:
    return "other" if name == "other" else GROUPS.get(name[:3], "external")


def violations(*rows: Row) -> pl.DataFrame:
    """Rows of (seconds after T0, kind, source, destination, service, initiator, bytes, flows), tcp."""
    full = [
        (T0 + at, kind.value, src, group(src), dst, group(dst), "tcp", service, initiator, volume, flows)
        for at, kind, src, dst, service, initiator, volume, flows in rows
    ]
    return pl.DataFrame(full, schema=VIOLATIONS, orient="row")


def unknown(*rows: tuple[int, str, int, int]) -> pl.DataFrame:
    """Rows of (seconds after T0, address, bytes, bytes sent), training, one flow."""
    full = [(T0 + at, "training", address, volume, 1, sent) for at, address, volume, sent in rows]
    return pl.DataFrame(full, schema=UNKNOWN, orient="row")


def told(found: pl.DataFrame) -> list[tuple[object, ...]]:
    rows = found.select(
        pl.col(WINDOW) - T0, schema.KIND, schema.SRC, schema.DST, schema.SERVICE, schema.TX_BYTES.name,
        schema.RX_BYTES.name, schema.FLOWS.name,
    )  # fmt: skip
    return sorted(rows.rows())


def look(*rows: Row, seen: pl.DataFrame | None = None, start: int = 0) -> pl.DataFrame:
    return find(violations(*rows), unknown() if seen is None else seen, SCOPE, T0 + start)


# -- one conversation, one kind --------------------------------------------------------------------------


def test_both_directions_are_one_conversation_of_who_opened_it() -> None:
    found = look(
        (0, NOT_ALLOWED, "vm-1", "nas-1", "nfs", FORTH, 100, 1), (0, NOT_ALLOWED, "nas-1", "vm-1", "nfs", BACK, 5000, 2)
    )
    assert told(found) == [(0, Breach.SEGMENTATION, "vm-1", "nas-1", "nfs", 100, 5000, 3)]
    row = found.row(0, named=True)
    assert (row[schema.SRC_GROUP], row[schema.DST_GROUP]) == ("users", "storage")
    assert (row["bytes"], row["duration"], row[schema.EVENT_SOURCES.name]) == (5100, 10.0, 1)
    assert row[schema.EVENT_DESTINATIONS.name] == 1


@pytest.mark.parametrize(
    ("kinds", "told_as"),
    [
        ((NOT_ALLOWED,), Breach.SEGMENTATION),
        ((WRONG_PLANE,), Breach.WRONG_PLANE),
        ((MANAGEMENT,), Breach.MANAGEMENT),
        ((NOT_ALLOWED, WRONG_PLANE), Breach.WRONG_PLANE),
        ((NOT_ALLOWED, MANAGEMENT), Breach.MANAGEMENT),
        ((NOT_ALLOWED, WRONG_PLANE, MANAGEMENT), Breach.MANAGEMENT),
    ],
)
def test_the_most_specific_kind_tells(kinds: tuple[Violation, ...], told_as: Breach) -> None:
    found = look(*((0, kind, "vm-1", "nas-1", "nfs", FORTH, 7, 1) for kind in kinds))
    assert told(found) == [(0, told_as, "vm-1", "nas-1", "nfs", 7, 0, 1)]


@pytest.mark.parametrize(
    ("src", "dst", "initiator", "is_told"),
    [
        # Model storage and training nodes that call outside have rules of their own.
        ("gpu-1", "203.0.113.9", FORTH, False),
        ("store-1", "203.0.113.9", FORTH, False),
        ("203.0.113.9", "gpu-1", BACK, False),
        # Other groups have none; and nobody else tells of who comes in.
        ("nas-1", "203.0.113.9", FORTH, True),
        ("vm-1", "203.0.113.9", FORTH, True),
        ("203.0.113.9", "gpu-1", FORTH, True),
        ("gpu-1", "203.0.113.9", BACK, True),
        # So have clients of inference, but not inference nodes that call others.
        ("vm-1", "infer-1", FORTH, False),
        ("infer-1", "vm-1", FORTH, True),
    ],
)
def test_what_has_rules_of_its_own_is_left_to_them(
    src: str,
    dst: str,
    initiator: str,
    is_told: bool,  # noqa: FBT001
) -> None:
    assert bool(told(look((0, NOT_ALLOWED, src, dst, "https", initiator, 7, 1)))) is is_told


def test_a_shadow_node_is_told_by_what_it_sends_and_not_again_by_what_it_breaks() -> None:
    rows = (
        (0, NOT_ALLOWED, "10.20.0.99", "vm-1", "ssh", FORTH, 500, 1),
        (0, WRONG_PLANE, "10.20.0.99", "nas-1", "nfs", FORTH, 600, 1),
    )
    assert told(look(*rows, seen=unknown((0, "10.20.0.99", 4000, 1100)))) == [
        (0, Breach.SHADOW, "10.20.0.99", "", "", 1100, 2900, 1)
    ]


def test_a_node_that_the_bridge_knows_and_we_do_not_yet_is_no_shadow() -> None:
    """What an inventory source tells is taken up here minutes later: until then its violations were nobody's."""
    (row,) = told(look((0, NOT_ALLOWED, "gpu-999", "nas-1", "nfs", FORTH, 5000, 2)))
    assert row == (0, Breach.SEGMENTATION, "gpu-999", "nas-1", "nfs", 5000, 0, 2)


def test_a_shadow_node_at_a_management_group_is_told_as_that_too() -> None:
    found = look(
        (0, MANAGEMENT, "10.20.0.99", "mgmt-1", "ssh", FORTH, 500, 1), seen=unknown((0, "10.20.0.99", 900, 500))
    )
    assert [row[1] for row in told(found)] == [Breach.MANAGEMENT, Breach.SHADOW]


def test_an_unlisted_address_of_a_group_without_inventory_is_no_shadow() -> None:
    assert told(look((0, NOT_ALLOWED, "vm-77", "nas-1", "nfs", FORTH, 9, 1)))[0][1] == Breach.SEGMENTATION


def test_an_address_that_is_only_called_is_no_shadow() -> None:
    assert told(look(seen=unknown((0, "10.20.0.99", 40, 0)))) == []


# -- digest ----------------------------------------------------------------------------------------------


def test_a_scan_is_one_row_a_window() -> None:
    found = look(*((0, NOT_ALLOWED, "vm-1", f"nas-{number}", "ssh", FORTH, 40, 1) for number in range(200)))
    assert told(found) == [(0, Breach.SEGMENTATION, "vm-1", "other", "other", 8000, 0, 200)]
    row = found.row(0, named=True)
    assert (row[schema.DST_GROUP], row[schema.PROTO], row[schema.EVENT_DESTINATIONS.name]) == ("storage", "tcp", 200)


def test_a_slow_scan_loses_its_names_after_a_few() -> None:
    rows = [(at * 60, NOT_ALLOWED, "vm-1", f"nas-{at}", "ssh", FORTH, 40, 1) for at in range(6)]
    assert [row[3] for row in told(look(*rows))] == ["nas-0", "nas-1", "nas-2", "other", "other", "other"]


def test_a_scan_over_several_groups_is_one_row() -> None:
    names = [f"nas-{number}" for number in range(5)] + [f"mgmt-{number}" for number in range(5)]
    found = look(*((0, NOT_ALLOWED, "vm-1", name, "ssh", FORTH, 40, 1) for name in names))
    assert found.select(schema.DST, schema.DST_GROUP, schema.EVENT_DESTINATIONS.name).rows() == [("other", "other", 10)]


def test_what_ingest_calls_other_is_many() -> None:
    assert told(look((0, NOT_ALLOWED, "vm-1", "other", "ssh", FORTH, 40, 1)))[0][3:5] == ("other", "other")


def test_a_port_scan_of_one_address_has_one_row() -> None:
    services = ["ssh", "https", "dns", "rdp", "vnc"]
    found = look(*((0, NOT_ALLOWED, "vm-1", "nas-1", service, FORTH, 40, 1) for service in services))
    assert told(found) == [(0, Breach.SEGMENTATION, "vm-1", "nas-1", "other", 200, 0, 5)]


def test_other_sources_keep_their_names_beside_a_scan() -> None:
    scan = [(0, NOT_ALLOWED, "vm-1", f"nas-{number}", "ssh", FORTH, 40, 1) for number in range(9)]
    found = look(*scan, (0, NOT_ALLOWED, "vm-2", "nas-1", "nfs", FORTH, 7, 1))
    assert [row[2:5] for row in told(found)] == [("vm-1", "other", "other"), ("vm-2", "nas-1", "nfs")]


def test_a_whole_job_on_the_wrong_plane_is_one_row() -> None:
    rows = [(0, WRONG_PLANE, f"gpu-{100 + number}", f"nas-{number % 4}", "nfs", FORTH, 1000, 2) for number in range(32)]
    found = look(*rows)
    assert told(found) == [(0, Breach.WRONG_PLANE, "other", "other", "other", 32_000, 0, 64)]
    row = found.row(0, named=True)
    assert (row[schema.SRC_GROUP], row[schema.DST_GROUP]) == ("training", "storage")
    assert (row[schema.EVENT_SOURCES.name], row[schema.EVENT_DESTINATIONS.name]) == (32, 4)


def test_a_rack_that_no_inventory_knows_is_one_row() -> None:
    found = look(seen=unknown(*((0, f"10.20.0.{number}", 50, 30) for number in range(100, 120))))
    assert told(found) == [(0, Breach.SHADOW, "other", "", "", 600, 400, 20)]
    assert found.get_column(schema.EVENT_SOURCES.name).to_list() == [20]


def test_names_come_back_when_the_look_back_is_over() -> None:
    scan = [(0, NOT_ALLOWED, "vm-1", f"nas-{number}", "ssh", FORTH, 40, 1) for number in range(9)]
    rows = [*scan, (890, NOT_ALLOWED, "vm-1", "nas-1", "ssh", FORTH, 7, 1),
            (900, NOT_ALLOWED, "vm-1", "nas-1", "ssh", FORTH, 7, 1)]  # fmt: skip
    assert [(row[0], row[3]) for row in told(look(*rows))] == [(0, "other"), (890, "other"), (900, "nas-1")]


@pytest.mark.parametrize("cut", [10, 60, 400, 900])
def test_passes_find_the_same_as_one(cut: int) -> None:
    rows: list[Row] = []
    for at in range(0, 1500, 10):
        rows.append((at, NOT_ALLOWED, "vm-1", f"nas-{at // 130}", "ssh", FORTH, at + 1, 1))
        rows += [
            (at, WRONG_PLANE, f"gpu-{100 + at // 50 % 14}", "nas-1", "nfs", FORTH, 10, 1),
            (at, NOT_ALLOWED, "nas-1", f"vm-{at % 3}", "nfs", BACK, 3, 1),
        ]
    whole = told(look(*rows))
    first = told(look(*(row for row in rows if row[0] < cut)))
    second = told(look(*(row for row in rows if row[0] > cut - 900), start=cut))
    assert first + second == whole


def test_members_are_counted_over_the_look_back() -> None:
    rows = pl.DataFrame(
        {"key": ["a"] * 5 + ["b"], "member": ["x", "y", "x", "z", "x", "x"], WINDOW: [0, 10, 20, 115, 130, 130]}
    )
    found = recent(rows, ["key"], ["member"], 100).sort("key", WINDOW)
    assert found.rows() == [("a", 0, 1), ("a", 10, 2), ("a", 20, 2), ("a", 115, 2), ("a", 130, 2), ("b", 130, 1)]


def test_a_row_is_written_as_the_schema_says() -> None:
    line = encode(schema.BREACH, look((0, NOT_ALLOWED, "vm-1", "nas-1", "nfs", FORTH, 100, 1))).decode()
    tags = "kind=segmentation,src=vm-1,src_group=users,dst=nas-1,dst_group=storage,proto=tcp,service=nfs"
    numbers = "tx_bytes=100i,rx_bytes=0i,bytes=100i,flows=1i,duration=10.0,sources=1i,destinations=1i"
    assert line == f"breach,{tags} {numbers} {T0}"
