"""The directory of outside addresses: who gets a row, when again, and how many."""

import contextlib
import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from test_bridge import HEADER, a_bridge, known, line  # noqa: F401 - a fixture

from app.errors import StoreError
from cluster.dump import dump_cluster
from cluster.load import parse_cluster
from cluster.model import ApplicationFile, ApplicationFormat, Applications, Cluster, HostNaming, NamesFile
from enrichment.addresses.host_names import HostNames
from ingest.flows import address_directory as module
from ingest.flows.address_directory import AddressDirectory
from ingest.flows.normalise import Clock
from ingest.read.spool import Spool
from operations.status.lists import stored_lists
from operations.status.lists_cli import lists
from store import schema
from store.influx import Store
from store.points import WINDOW, encode
from store.schema import Measurement

CLUSTER = parse_cluster(
    "cluster: one\n"
    "groups:\n"
    "  nodes: {role: training, prefixes: [10.0.0.0/8]}\n"
    "  partner: {role: approved_external, prefixes: [198.51.100.0/24]}\n"
)
NL, DE = ("NL", "", "AS64500 One", "", ""), ("DE", "", "AS64501 Two", "", "blocklist")
NONE = ("",) * 5


def egress(*rows: tuple[str, str, tuple[str, ...]], window: int = 0) -> tuple[Measurement, pl.DataFrame]:
    """Return points from gpu-01 to (address, group, labels)."""
    columns = (WINDOW, schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, *schema.LABELS)
    table = [(window, "gpu-01", "nodes", address, group, *labels) for address, group, labels in rows]
    return schema.EGRESS, pl.DataFrame(table, schema=columns, orient="row")


def told(frame: pl.DataFrame) -> dict[str, tuple[str, ...]]:
    return {row[1]: row[2:] for row in frame.rows()}


def names_of(tmp_path: Path, text: str) -> HostNames:
    (tmp_path / "hosts").write_text(text, encoding="ascii")
    names = HostNames(HostNaming((NamesFile("hosts", str(tmp_path / "hosts")),)))
    names.refresh()
    return names


def test_an_address_is_told_once_and_again_when_something_else_is_known_of_it(tmp_path: Path) -> None:
    names = names_of(tmp_path, "203.0.113.9 mirror.example\n")
    book = AddressDirectory(CLUSTER, names)
    book.see([egress(("203.0.113.9", "external", NL), ("198.51.100.7", "partner", DE))])
    first = told(book.points(1000, 990))
    assert first == {"203.0.113.9": ("mirror.example", "hosts", *NL), "198.51.100.7": ("", "", *DE)}
    book.see([egress(("203.0.113.9", "external", NL), window=10)])
    assert told(book.points(1010, 1000)) == {}
    book.see([egress(("203.0.113.9", "external", DE), ("203.0.113.9", "external", NL), window=20)])
    book.see([egress(("203.0.113.9", "external", DE), window=30)])
    assert told(book.points(1020, 1010)) == {"203.0.113.9": ("mirror.example", "hosts", *DE)}
    (tmp_path / "hosts").write_text("203.0.113.9 moved-away.example\n", encoding="ascii")
    names.refresh()
    book.see([egress(("203.0.113.9", "external", DE), window=40)])
    lines = encode(schema.ADDRESS_NAME, book.points(1030, 1020)).decode()
    assert lines == (
        'address,address=203.0.113.9 name="moved-away.example",name_source="hosts",country="DE",city="",'
        'network="AS64501 Two",application="",feed="blocklist" 1020'
    )


def test_a_name_that_came_late_is_told_though_the_address_is_quiet_by_then(tmp_path: Path) -> None:
    names = names_of(tmp_path, "203.0.113.1 else.example\n")
    book = AddressDirectory(CLUSTER, names)
    book.see([egress(("203.0.113.9", "external", NONE))])
    assert told(book.points(1000, 990)) == {}, "nothing is known of it"
    (tmp_path / "hosts").write_text("203.0.113.9 late.example\n", encoding="ascii")
    names.refresh()
    assert told(book.points(1010, 1000)) == {"203.0.113.9": ("late.example", "hosts", *NONE)}
    assert told(book.points(1020, 1010)) == {}


def test_clients_of_inference_from_outside_are_in_it_and_nobody_else() -> None:
    columns = (WINDOW, schema.SRC, schema.SRC_GROUP, schema.DST, schema.DST_GROUP, *schema.LABELS)
    rows = [
        (0, "203.0.113.1", "external", "infer-1", "nodes", *NL),
        (0, "10.0.0.9", "nodes", "infer-1", "nodes", *NONE),
        (0, schema.OTHER, "external", "infer-1", "nodes", *(schema.OTHER,) * 5),
        (0, "partner-node", "partner", "infer-1", "nodes", *NL),
    ]
    book = AddressDirectory(CLUSTER, None)
    asked = pl.DataFrame(rows, schema=columns, orient="row")
    book.see([(schema.INFERENCE, asked), (schema.VIOLATION, asked), egress(), (schema.EGRESS, asked.head(0))])
    assert told(book.points(0, 0)) == {"203.0.113.1": ("", "", *NL)}


def test_points_without_labels_are_taken() -> None:
    measurement, frame = egress(("203.0.113.9", "external", NL))
    book = AddressDirectory(CLUSTER, None)
    book.see([(measurement, frame.drop(schema.LABELS))])
    assert told(book.points(0, 0)) == {}


def test_a_scan_fills_neither_memory_nor_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NEW", 10)
    monkeypatch.setattr(module, "_MOST_REMEMBERED", 12)
    book = AddressDirectory(CLUSTER, None)
    rows = 0
    for number in range(5):
        book.see([egress(*((f"203.0.{number}.{last}", "external", NL) for last in range(40)))])
        rows += book.points(1000, 990).height
    assert rows == 10
    assert len(book._told) <= 12
    book.see([egress(("203.0.113.1", "external", NL))])
    assert book.points(86_400 + 1000, 990).height > 0, "the next day has room again"


def test_a_bridge_writes_the_directory_and_says_how_its_lists_are(
    known: Cluster,  # noqa: F811
    tmp_path: Path,
) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    (folder / "flows-1.csv").write_bytes(HEADER + line(time.time() - 60))
    (tmp_path / "hosts").write_text("203.0.113.5 cdn.hub.example\n203.0.113.6 quiet.example\n", encoding="ascii")
    hub = "applications: [{application: model hub, hosts: [hub.example]}]\n"
    (tmp_path / "own.yaml").write_text(hub, encoding="ascii")
    (tmp_path / "broken.json").write_text("{", encoding="ascii")
    files = (
        ApplicationFile("own", str(tmp_path / "own.yaml")),
        ApplicationFile("aws", str(tmp_path / "broken.json"), ApplicationFormat.AWS, "AWS"),
    )
    naming = HostNaming((NamesFile("hosts", str(tmp_path / "hosts")),))
    there = replace(known, names=naming, applications=Applications(files=files))
    stop = threading.Event()
    store = Store(there.store)
    with Spool(folder) as spool:
        running = threading.Thread(target=a_bridge(there, spool, tmp_path, stop, Clock.LIVE).run)
        running.start()
        try:
            wait_for(store)
        finally:
            stop.set()
            running.join()
    (series,) = store.query('SELECT "name", "name_source", "application", "country" FROM "1h"."address" GROUP BY *')
    assert series.tags == {"address": "203.0.113.5"}
    assert [row[1:] for row in series.values] == [["cdn.hub.example", "hosts", "model hub", ""]]
    (egress_row, *_) = store.query('SELECT "bytes" FROM "raw"."egress" GROUP BY "application"')
    assert egress_row.tags == {"application": "model hub"}
    states = {one.name: (one.state, one.in_use) for one in stored_lists(store, int(time.time()))}
    assert states == {"own": (0, True), "aws": (2, False), "hosts": (0, True)}
    status = CliRunner().invoke(lists, ["--config", str(configured(tmp_path, there))])
    assert status.exit_code == 1, status.output
    assert "as the bridge has them" in status.output
    assert "Expecting property name" in status.output
    machine = CliRunner().invoke(lists, ["--config", str(configured(tmp_path, there)), "--files", "--json"])
    told = json.loads(machine.output)
    assert told["source"] == "files"
    assert {one["name"]: one["state"] for one in told["lists"]} == {"own": "ok", "aws": "broken", "hosts": "ok"}


def wait_for(store: Store) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(StoreError):  # the database is made when the bridge begins
            told = stored_lists(store, int(time.time()))
            if len(told) == 3 and store.query('SELECT * FROM "1h"."address"'):
                return
        time.sleep(0.1)
    raise AssertionError("nothing was told within 30 s")


def configured(tmp_path: Path, described: Cluster) -> Path:
    path = tmp_path / "cluster.yaml"
    whole = replace(CLUSTER, store=described.store, names=described.names, applications=described.applications)
    path.write_text(dump_cluster(whole), encoding="utf-8")
    return path
