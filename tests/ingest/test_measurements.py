"""What goes into which measurement, where it takes more than adding up: planes, endpoints, interfaces, seconds."""

from dataclasses import replace
from datetime import time
from ipaddress import ip_address

import numpy as np
import polars as pl
import pytest
from test_engine import T0, cluster, one, take

from cluster.model import Inference, InferenceHours, Node, NodeAddress, Plane
from cluster.sections.network.services import ROCE_PORT, with_well_known
from ingest.count import pulse
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.interfaces import UNKNOWN_LIMIT, InterfaceBook
from ingest.flows.normalise import Clock
from ingest.read import records
from store import schema
from store.points import WINDOW
from store.schema import Violation


def engine() -> Engine:
    return Engine(cluster(), Clock.LIVE, Counters())


STORAGE = {"src": "10.1.0.2", "dst": "10.2.0.1"}
"""From a training node whose address has no plane to the storage."""


@pytest.mark.parametrize(
    ("values", "is_wrong"),
    [
        # The interface says where it was seen.
        ({**STORAGE, "iface_in": 1}, True),
        ({**STORAGE, "iface_in": 2}, False),
        ({"src": "10.1.0.1", "dst": "10.2.0.1", "iface_in": 2}, False),
        # Without one, the address in the inventory does, at either end.
        ({"src": "10.1.0.1", "dst": "10.2.0.1"}, True),
        ({"src": "10.2.0.1", "dst": "10.1.0.1"}, True),
        # That its group belongs to the compute plane is no evidence.
        (STORAGE, False),
        # Storage of which nobody says where it belongs.
        ({"src": "10.1.0.1", "dst": "10.2.9.1", "iface_in": 1}, False),
        # Nothing that leaves the cluster, and nothing without storage.
        ({"src": "10.2.0.1", "dst": "203.0.113.5", "iface_in": 1}, False),
        ({"src": "10.1.0.1", "dst": "10.1.0.2", "iface_in": 1}, False),
    ],
)
def test_storage_traffic_on_the_compute_plane(values: dict[str, object], *, is_wrong: bool) -> None:
    found = take(engine(), one(**values)).get("violation")
    kinds = [] if found is None else found.filter(pl.col(schema.KIND) == Violation.WRONG_PLANE)["bytes"].to_list()
    assert kinds == ([1000] if is_wrong else [])


def test_storage_that_lives_on_the_compute_plane_is_on_no_wrong_one() -> None:
    groups = tuple(replace(group, plane=Plane.COMPUTE) for group in cluster().groups)
    shared = Engine(replace(cluster(), groups=groups), Clock.LIVE, Counters())
    assert "violation" not in take(shared, one(**STORAGE, iface_in=1))


def test_the_address_of_the_destination_tells_the_plane_before_the_group_of_the_source_does() -> None:
    traffic = take(engine(), one(src="10.2.0.1", dst="10.1.0.1"))["traffic"]
    assert traffic[schema.PLANE].to_list() == ["compute"]


@pytest.mark.parametrize(("port", "plane"), [(ROCE_PORT, "compute"), (ROCE_PORT + 1, "unknown")])
def test_rocev2_is_traffic_of_the_compute_plane(port: int, plane: str) -> None:
    groups = tuple(replace(group, plane=None) for group in cluster().groups)
    bare = replace(cluster(), groups=groups, nodes=(), services=with_well_known(()))
    sampled = one(exporter="127.0.0.4", dst="10.1.0.2", protocol=17, dst_port=port, start=None, end=None)
    traffic = take(Engine(bare, Clock.LIVE, Counters()), sampled)["traffic"]
    assert traffic[schema.PLANE].to_list() == [plane]
    assert (traffic[schema.SERVICE].to_list() == ["rocev2"]) is (port == ROCE_PORT)


def test_what_a_rail_sends_in_each_minute() -> None:
    rows = [
        one(dst="10.1.1.1"), one(src="10.1.1.1", dst="10.1.0.2", bytes=7),
        one(dst="10.1.1.1", start=T0 + 25_000, end=T0 + 25_000, bytes=5),
    ]  # fmt: skip
    points = take(engine(), pl.concat(rows), T0 + 30_000)["rail"]
    minute = T0 // 60_000 * 60
    assert minute + 60 > T0 // 1000 + 25
    columns = [WINDOW, schema.NODE, schema.RAIL, schema.TX_BYTES.name]
    assert sorted(points.select(columns).rows()) == [(minute, "gpu-1", "0", 1005), (minute, "gpu-1", "1", 7)]


def test_probes_of_the_storage_prefix_make_no_series_each() -> None:
    rows = [one(src="10.1.0.1", dst=f"10.2.0.{n}") for n in range(1, 101)]
    points = take(engine(), pl.concat(rows))["storage_io"]
    columns = [schema.ENDPOINT, schema.NODE, schema.WRITE_BYTES.name]
    assert sorted(points.select(columns).rows()) == [("nas-1", "gpu-1", 1000), ("other", "gpu-1", 99_000)]


def test_endpoints_that_nobody_lists_keep_their_addresses_where_no_storage_is_listed() -> None:
    nodes = tuple(node for node in cluster().nodes if node.group != "storage")
    bare = Engine(replace(cluster(), nodes=nodes), Clock.LIVE, Counters())
    assert take(bare, one(dst="10.2.0.1"))["storage_io"][schema.ENDPOINT].to_list() == ["10.2.0.1"]


def test_what_storage_groups_read_and_write_is_what_traffic_between_groups_says() -> None:
    """A board shows storage groups by the traffic of group pairs, of which there are fewer rows."""
    rows = [
        one(**STORAGE),
        one(src="10.2.0.1", dst="10.1.0.1", bytes=20),
        one(src="10.2.0.1", dst="10.2.0.9", bytes=300),
        one(src="203.0.113.5", dst="10.2.0.7", bytes=4000),
        one(src="10.2.0.7", dst="203.0.113.5", bytes=50_000),
        # What others count already.
        one(exporter="127.0.0.2", **STORAGE),
        *(one(src="10.1.0.1", dst=f"10.2.1.{n}", bytes=600) for n in range(1, 101)),
    ]
    points = take(engine(), pl.concat(rows))
    for tag, field in ((schema.SRC_GROUP, schema.READ_BYTES), (schema.DST_GROUP, schema.WRITE_BYTES)):
        of_groups = points["traffic"].filter(pl.col(tag) == "storage")[schema.BYTES.name].sum()
        of_endpoints = points["storage_io"].filter(pl.col(schema.ENDPOINT_GROUP) == "storage")[field.name].sum()
        assert of_groups == of_endpoints > 0


def test_inference_outside_its_hours() -> None:
    nine_to_five = Inference(InferenceHours(time(9), time(17)))
    day = T0 // 86_400_000 * 86_400_000
    served = Engine(replace(cluster(), inference=nine_to_five), Clock.BACKFILL, Counters())
    moments = [day + hour * 3_600_000 for hour in (8, 9, 16, 17)]
    rows = [one(dst="10.3.0.1", start=moment, end=moment, arrival=moment) for moment in moments]
    points = take(served, pl.concat(rows))["inference"].sort("window")
    assert points[schema.OFF_WINDOW].to_list() == ["yes", "no", "no", "yes"]


def test_answers_are_no_requests_and_neither_is_what_inference_nodes_say_to_each_other() -> None:
    answer = one(src="203.0.113.5", src_port=443, dst="10.3.0.1", dst_port=50_000)
    among = one(src="10.3.0.1", dst="10.3.0.7")
    assert "inference" not in take(engine(), pl.concat([answer, among]))


# -- interfaces ----------------------------------------------------------------------------------------


def test_an_interface_has_its_name_plane_kind_and_speed() -> None:
    rows = [
        one(iface_in=1, iface_out=49),
        one(iface_in=49, iface_out=2, bytes=5),
        one(exporter="127.0.0.2", iface_in=3, iface_out=0),
    ]
    points = take(engine(), pl.concat(rows))["interface"]
    columns = [schema.EXPORTER, schema.INTERFACE, schema.PLANE, schema.KIND, "in_bytes", "out_bytes", "speed"]
    assert sorted(points.select(columns).rows()) == [
        ("leaf", "host", "compute", "edge", 1000, 0, 400_000_000_000),
        ("leaf", "nas", "storage", "edge", 0, 5, None),
        # Nobody says on which plane the uplink is, but that it is one.
        ("leaf", "up", "unknown", "core", 5, 1000, None),
        # An exporter that sees only what others count, and an interface that is not listed.
        ("spine", "3", "unknown", "core", 1000, 0, None),
    ]


def test_interfaces_of_a_flood_share_one_name() -> None:
    book = InterfaceBook(cluster())
    before = len(book.names)
    exporters, indexes = np.full(1000, 1), np.arange(1, 1001)
    for _ in range(2):
        numbers = book.number(exporters, indexes)
        names = book.names.gather(numbers)
        assert (names == "other").sum() == 1000 - UNKNOWN_LIMIT
    assert len(book.names) == before + UNKNOWN_LIMIT + 1
    assert set(book.exporters[numbers].tolist()) == {1}


@pytest.mark.parametrize(
    ("index", "is_sflow", "name"),
    [
        (7, True, "7"),
        (0, False, ""),
        (-1, False, ""),
        (0x3FFF_FFFF, True, ""),  # the switch itself
        (0x4000_0102, True, ""),  # dropped, and why
        (0x8000_000A, True, ""),  # went out of ten ports
        (0x4000_0102, False, str(0x4000_0102)),  # NetFlow's ifIndexes may be that large
    ],
)
def test_bits_of_sflow_interfaces(index: int, name: str, *, is_sflow: bool) -> None:
    book = InterfaceBook(cluster())
    number = book.number(np.array([3]), np.array([index]), np.array([is_sflow]))
    assert book.names.gather(number).to_list() == [name]


# -- seconds -------------------------------------------------------------------------------------------


def sample(second: float, **values: object) -> pl.DataFrame:
    moment = T0 + round(second * 1000)
    at = {records.START: None, records.END: None, records.ARRIVAL: moment}
    row = {"exporter": "127.0.0.4", "dst": "10.1.0.2", "bytes": 1018, "sampling_rate": 100}
    return one(**{**row, **at, **values})


def test_samples_are_kept_by_the_second_and_their_packets_by_the_window() -> None:
    rows = [sample(0.2), sample(0.9, tos=3), sample(1.1, tos=0b0000_0111), sample(1.2, tos=1)]
    points = take(engine(), pl.concat(rows), T0 + 2000)["pulse"].sort("window")
    assert "bytes" not in points.columns
    columns = ["window", schema.NODE, schema.PLANE, "kib", "packets", schema.MARKED_PACKETS.name]
    start = T0 // 1000
    assert points.select(columns).rows() == [
        (start, "gpu-1", "compute", 195, 400, 200),
        (start + 1, "gpu-1", "compute", 195, None, None),
    ]


def test_netflow_and_what_goes_to_other_groups_is_not_kept_by_the_second() -> None:
    rows = [one(dst="10.1.0.2"), sample(0, dst="10.2.0.1"), sample(0, src="10.1.7.7")]
    assert "pulse" not in take(engine(), pl.concat(rows))


def test_an_exporter_that_cluster_yaml_does_not_know_speaks_sflow_where_its_records_say_so() -> None:
    rows = [sample(0, exporter="192.0.2.9", version=version) for version in (records.SFLOW, 9, None)]
    assert take(engine(), pl.concat(rows))["pulse"]["packets"].to_list() == [100]


def test_a_netflow_clock_that_is_ahead_ages_no_second() -> None:
    running = engine()
    take(running, pl.concat([sample(0), one(start=T0 + 110_000, end=T0 + 110_000)]))
    running.evict()
    points = take(running, sample(1), T0 + 1000)["pulse"]
    assert sorted(points["window"]) == [T0 // 1000, T0 // 1000 + 1]


def test_samples_that_were_held_up_go_to_the_oldest_second_kept() -> None:
    running = engine()
    take(running, sample(200), T0 + 200_000)
    running.evict()
    held_up = take(running, sample(10), T0 + 200_000)["pulse"]
    oldest = T0 // 1000 + 200 - cluster().bridge.lateness - pulse.GRACE
    assert held_up.select("window", "packets").rows() == [(oldest, 100)]
    assert running.tables["pulse"].state["packets"].sum() == 200


def test_a_node_of_two_addresses_on_a_rail_is_one_row() -> None:
    nodes = (
        Node("gpu-1", "training", tuple(NodeAddress(ip_address(f"10.1.0.{n}"), Plane.COMPUTE, 0) for n in (1, 5))),
        *cluster().nodes[1:],
    )
    points = take(
        Engine(replace(cluster(), nodes=nodes), Clock.LIVE, Counters()),
        pl.concat([one(dst="10.1.0.2"), one(src="10.1.0.5", dst="10.1.0.2")]),
    )["rail"]
    assert points[schema.TX_BYTES.name].to_list() == [2000]


def test_seconds_of_a_checkpoint_of_before_they_were_kib_stay_bytes() -> None:
    """Their points are in the store as bytes: written again as KiB, they would count twice."""
    before = engine()
    take(before, sample(0))
    frames, notes = before.dump()
    del notes["minutes_from"]
    after = engine()
    after.load(frames, notes)
    points = take(after, pl.concat([sample(0.5), sample(60)]), T0 + 61_000)["pulse"].sort("window")
    assert points.select("window", "bytes", "kib").rows() == [
        (T0 // 1000, 200_000, None),
        (T0 // 1000 + 60, None, 98),
    ]
