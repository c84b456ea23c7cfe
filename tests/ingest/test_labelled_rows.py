"""Labels on rows of the engine and in the store: what the files say of each address, and every byte still once."""

import random
import threading
import time
from collections import Counter
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import mmdb_samples as samples
import polars as pl
import pytest
from mmdb_samples import geolite_asn, geolite_city
from test_bridge import HEADER, a_bridge, known, line, sent_bytes  # noqa: F401 - a fixture
from test_engine import T0, cluster, one, random_records, stored, take
from test_engine import frame as records_frame

from cluster.model import Cluster, Geography, Node, NodeAddress
from enrichment.labels import Labels
from enrichment.providers import labels_of
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock, Normaliser
from ingest.read.spool import Spool
from store import schema
from store.influx import Store
from store.schema import Kind

PLACES = [
    ("203.0.113.0/24", geolite_city("NL", "Amsterdam") | geolite_asn(64500, "ExampleHost")),
    ("198.51.100.0/24", geolite_city("FR")),
    ("2001:db8::/32", geolite_asn(64501, "Six, Inc.")),
    # Nobody asks about what is inside.
    ("10.0.0.0/8", geolite_city("US", "Nowhere")),
]
SAID = {
    "203.0.113.5": ("NL", "Amsterdam", "AS64500 ExampleHost", "", ""),
    "198.51.100.9": ("FR", "", "", "", ""),
    "2001:db8::5": ("", "", "AS64501 Six, Inc.", "", ""),
}


def located(path: Path, base: Cluster | None = None) -> Cluster:
    return replace(base or cluster(), geography=Geography((("city", str(path)),)))


@pytest.fixture
def labels(tmp_path: Path) -> Labels:
    return labels_of(located(samples.write(tmp_path / "c.mmdb", "sample", PLACES)))


@pytest.mark.thorough
@pytest.mark.parametrize("batch", [1000, 37])
def test_rows_say_what_the_files_say_and_no_byte_is_elsewhere(labels: Labels, batch: int) -> None:
    rows = random_records(1, 300)
    plain, engine = Engine(cluster(), Clock.LIVE, Counters()), Engine(cluster(), Clock.LIVE, Counters(), labels=labels)
    for one_of_both in (plain, engine):
        for first in range(0, len(rows), batch):
            one_of_both.take(records_frame(rows[first : first + batch]), T0 / 1000 + 120)
            one_of_both.merge()
    for name, table in plain.tables.items():
        if name != table.measurement.name:
            continue  # interface counters: none were taken
        tags = [tag for tag in table.tags if tag not in schema.LABELS]
        columns = table.state.columns
        sums = [one.name for one in table.measurement.fields if one.name in columns and one.kind is not Kind.STRING]
        for field in sums:
            assert stored(engine, table.measurement, tags, field) == stored(plain, table.measurement, tags, field), name
    for measurement, end in ((schema.EGRESS, schema.DST), (schema.INFERENCE, schema.SRC)):
        # Small conversations of sources outside all groups are one.
        found = engine.tables[measurement.name].all_points().filter(pl.col(end) != schema.OTHER)
        for address, *said in found.select(end, *schema.LABELS).unique().iter_rows():
            assert tuple(said) == SAID.get(address, ("",) * len(schema.LABELS))
        assert found.height
    outside = set(engine.tables["egress"].all_points().get_column(schema.DST)) - {schema.OTHER}
    assert outside == set(SAID), "every address with labels is there"


def test_an_outside_node_of_the_inventory_is_looked_up_by_its_address(labels: Labels) -> None:
    partner = Node("partner-sftp", "partner", (NodeAddress(ip_address("198.51.100.9")),))
    engine = Engine(replace(cluster(), nodes=(*cluster().nodes, partner)), Clock.LIVE, Counters(), labels=labels)
    points = take(engine, one(dst="198.51.100.9"))["egress"]
    assert points.select(schema.DST, schema.COUNTRY).rows() == [("partner-sftp", "FR")]


def test_one_address_in_any_spelling_has_one_row(labels: Labels) -> None:
    engine = Engine(cluster(), Clock.LIVE, Counters(), labels=labels)
    for dst in ("203.0.113.5", "::ffff:203.0.113.5", "2001:db8::5", "2001:DB8:0:0::5"):
        engine.take(one(dst=dst), T0 / 1000)
    (points,) = (points for measurement, points in engine.merge() if measurement is schema.EGRESS)
    found = points.select(schema.DST, schema.NETWORK, "bytes").sort(schema.DST).rows()
    assert found == [("2001:db8::5", "AS64501 Six, Inc.", 2000), ("203.0.113.5", "AS64500 ExampleHost", 2000)]


def test_a_label_that_changes_while_a_window_is_open_splits_its_rows_and_no_sum(labels: Labels, tmp_path: Path) -> None:
    engine, totals = Engine(cluster(), Clock.LIVE, Counters(), labels=labels), Counter[object]()
    written: dict[object, int] = {}
    draw = random.Random(3)
    for country in ("NL", "BE", "NL", ""):
        rows = [(country or "DE", "203.0.113.0/24")]
        samples.write(tmp_path / "c.mmdb", "sample", [(net, geolite_city(code)) for code, net in rows])
        assert labels.refresh()
        for _ in range(5):
            size, window = draw.randint(1, 10**6), draw.choice([0, 10])
            start = T0 + window * 1000
            engine.take(one(bytes=size, start=start, end=start, arrival=start), T0 / 1000 + 20)
            totals[window] += size
        for measurement, points in engine.merge():
            if measurement is schema.EGRESS:
                for window, found, size in points.select("window", schema.COUNTRY, "bytes").iter_rows():
                    written[window - T0 // 1000, found] = size
    assert {country for _, country in written} == {"NL", "BE", "DE"}
    assert {w: sum(size for (at, _), size in written.items() if at == w) for w in totals} == dict(totals)


def test_labels_are_right_when_an_address_book_that_is_shared_is_begun_anew(
    labels: Labels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.flows.classify._CACHE_LIMIT", 50)
    shared = Normaliser(cluster(), Clock.BACKFILL)
    first, second = (Engine(cluster(), Clock.BACKFILL, Counters(), shared, labels=labels) for _ in range(2))
    for turn in range(4):
        for engine, net in ((first, "203.0.113"), (second, "198.51.100")):
            scan = [one(dst=f"{net}.{turn * 40 + number}", bytes=1) for number in range(40)]
            engine.take(pl.concat(scan), T0 / 1000)
    for engine, country in ((first, "NL"), (second, "FR")):
        (points,) = (points for measurement, points in engine.merge() if measurement is schema.EGRESS)
        named = points.filter(pl.col(schema.DST) != schema.OTHER)
        assert set(named.get_column(schema.COUNTRY)) == {country}
        assert points["bytes"].sum() == 160


def test_folded_rows_say_other_and_clients_inside_nothing(labels: Labels) -> None:
    few = replace(cluster(), bridge=replace(cluster().bridge, named_per_window=1))
    engine = Engine(few, Clock.LIVE, Counters(), labels=labels)
    sent = [one(dst=f"203.0.113.{number}", bytes=number + 1) for number in range(9)]
    asked = one(src="10.1.0.2", dst="10.3.0.1", bytes=7)
    points = take(engine, pl.concat([*sent, asked]))
    found = points["egress"].select(schema.DST, *schema.LABELS, "bytes").sort("bytes").rows()
    assert found == [("203.0.113.8", *SAID["203.0.113.5"], 9), ("other", *["other"] * 5, 36)]
    assert points["inference"].select(schema.SRC, *schema.LABELS, "bytes").rows() == [("gpu-2", *[""] * 5, 7)]


# -- in the bridge -------------------------------------------------------------------------------------------


def countries(cluster_of_store: Cluster) -> dict[str, int]:
    query = f'SELECT sum("bytes") FROM "{schema.RAW}"."egress" GROUP BY "{schema.COUNTRY}"'
    return {one.tags[schema.COUNTRY]: int(one.values[0][1]) for one in Store(cluster_of_store.store).query(query)}


def test_a_new_file_is_taken_up_while_flows_come_and_a_bad_one_is_told(
    known: Cluster,  # noqa: F811 - the fixture
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ingest.flows.enriching._LOOK_SECONDS", 0.05)
    path = samples.write(tmp_path / "c.mmdb", "sample", [("203.0.113.0/24", geolite_city("NL"))])
    where = located(path, known)
    Store(where.store).ensure(where.retentions())
    folder = tmp_path / "spool"
    folder.mkdir()
    stop = threading.Event()

    def wait_for(wanted: dict[str, int]) -> None:
        deadline = time.monotonic() + 60
        while countries(where) != wanted and time.monotonic() < deadline:
            time.sleep(0.1)
        assert countries(where) == wanted

    def send(number: int) -> None:
        (folder / f"part-{number}").write_bytes(HEADER + line(time.time(), size=1000))
        (folder / f"part-{number}").rename(folder / f"flows-{number}.csv")

    def how_it_is() -> tuple[object, ...]:
        query = f'SELECT last("in_use"), "state", "error" FROM "{schema.RAW}"."{schema.ENRICHMENT.name}"'
        return tuple(Store(where.store).query(query)[0].values[0][1:])

    with Spool(folder) as spool:
        running = threading.Thread(target=a_bridge(where, spool, tmp_path, stop, Clock.LIVE).run)
        running.start()
        try:
            send(0)
            wait_for({"NL": 1000})
            fresh = samples.write(tmp_path / "new.mmdb", "sample", [("203.0.113.0/24", geolite_city("BE"))])
            fresh.rename(path)
            time.sleep(1)
            send(1)
            wait_for({"NL": 1000, "BE": 1000})
            path.write_text("404\n")
            time.sleep(1)
            send(2)
            wait_for({"NL": 1000, "BE": 2000})
            deadline = time.monotonic() + 30
            while how_it_is()[1] != schema.ListState.BROKEN and time.monotonic() < deadline:
                time.sleep(0.1)
            assert how_it_is()[:2] == (1, schema.ListState.BROKEN)
            assert "no MMDB file" in str(how_it_is()[2])
        finally:
            stop.set()
            running.join()
    assert sent_bytes(where) == 3000
