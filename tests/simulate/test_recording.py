"""Scenarios straight into a store: the bridge's own sums of the bridge's own records, exact to the byte."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import requests

from ingest.read.readers import read_chunk
from ingest.read.readers_format import sniff
from simulate.incidents.incident import IncidentKind
from simulate.packets.netflow import FlowFormat
from simulate.packets.spool_files import SpoolWriter
from simulate.packets.wire import lost, plan
from simulate.recording import SHARD, RecordFrames, record
from simulate.scenarios.scenario import Phase
from simulate.scenarios.script import Script, find_script, library, load_script
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth
from simulate.truth.reckoning import reckon
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

NAMES = [path.stem for path in library()]


def part(script: Script, start: int, seconds: int) -> Workload:
    """Return the traffic of some seconds of a scenario."""
    whole = script.scenario.live
    phase = Phase(start, start + seconds, whole.timeout, seconds, whole.coarse, whole.poll)
    return Workload(script.cluster, replace(script.scenario, live=phase))


def around_first_incident(script: Script, seconds: int = 300) -> Workload:
    starts = [incident.start for incident in script.incidents] or [script.scenario.runs[0].start]
    return part(script, min(starts) // 60 * 60 - 120, seconds)


def store_of(script: Script, server: LocalInfluxDB, database: str) -> Store:
    return Store(replace(script.cluster.store, url=server.url, database=database))


@pytest.mark.parametrize("name", NAMES)
def test_the_store_holds_what_was_sent(influxdb_v1: LocalInfluxDB, fresh_database: str, name: str) -> None:
    """Group pairs, nodes, rails, storage endpoints, interfaces, transfers: around each scenario's first incident."""
    script = load_script(find_script(name))
    workload = around_first_incident(script)
    truth, store = GroundTruth(workload), store_of(script, influxdb_v1, fresh_database)
    recorded = record(workload, store, truth)
    result = reckon(store, truth.document(), SHARD)
    store.execute(f'DROP DATABASE "{fresh_database}"')
    store.close()
    assert [str(difference) for difference in result.differences] == []
    assert recorded.records == truth.records > 10
    assert result.checked > 30


def test_what_leaves_is_compared_whoever_sends_it(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """Rules about the outside read `egress`: bytes that it alone lacks differ, too."""
    script = load_script(find_script("thefts"))
    workload = around_first_incident(script)
    truth, store = GroundTruth(workload), store_of(script, influxdb_v1, fresh_database)
    record(workload, store, truth)
    assert reckon(store, truth.document(), SHARD).differences == ()
    asked = {"db": fresh_database, "q": f'DROP MEASUREMENT "{schema.EGRESS.name}"'}
    requests.post(f"{influxdb_v1.url}/query", params=asked, timeout=30).raise_for_status()
    differs = {one.what: one for one in reckon(store, truth.document(), SHARD).differences}
    gone = differs["egress inference external"]
    assert gone.sent > gone.stored == 0
    # What was taken back and never counted is told as well.
    store.write(f"traffic,src_group=a,dst_group=b,shard={SHARD} bytes=-5i {script.start}".encode(), schema.RAW)
    assert "groups a -> b: sent 0 bytes, stored -5 (-5)" in map(str, reckon(store, truth.document(), SHARD).differences)
    store.close()


def test_rollups_hold_the_same(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    script = load_script(find_script("node-death"))
    workload = around_first_incident(script)
    store = store_of(script, influxdb_v1, fresh_database)
    recorded = record(workload, store, GroundTruth(workload))
    assert recorded.rolled_up > 100
    for measurement in (schema.TRAFFIC, schema.NODE_TRAFFIC, schema.STORAGE_IO):
        name = measurement.fields[0].name
        sums = [
            store.query(f'SELECT sum("{name}") FROM "{retention}"."{measurement.name}"')[0].values[0][1]
            for retention in (schema.RAW, schema.MINUTE, schema.HOUR)
        ]
        assert len(set(sums)) == 1
        assert sums[0] > 0


@pytest.mark.parametrize("name", ["node-death", "sampled-1000", "ipv6-only", "flow-loss", "clock-skew"])
def test_records_are_what_the_readers_make_of_the_files(name: str, tmp_path: Path) -> None:
    """Every column of every record, whatever the exporter's format, also where some are lost on the way."""
    workload = around_first_incident(load_script(find_script(name)))
    with SpoolWriter(workload, tmp_path, GroundTruth(workload), file_records=10**9) as writer:
        for batch in workload.batches(workload.scenario.live):
            writer.write(batch)
    (path,) = tmp_path.glob("*.csv")
    raw = path.read_bytes()
    read = read_chunk(raw.split(b"\n", 2)[2], sniff(raw)).frame
    frames = RecordFrames(workload)
    made = [frames.named(*frames.arrived(batch)) for batch in workload.batches(workload.scenario.live)]
    # The writer plans datagrams of the whole file at once, the recorder those of each batch.
    assert pl.concat(made).drop("seq").equals(read.drop("seq"))
    assert pl.concat(made).get_column("seq").null_count() == 0


@pytest.mark.parametrize(("number", "format_"), [(0, FlowFormat.IPFIX), (1, FlowFormat.V9)])
def test_losses_show_as_gaps_of_the_exporter_and_when_they_happen(
    influxdb_v1: LocalInfluxDB, fresh_database: str, number: int, format_: FlowFormat
) -> None:
    script = load_script(find_script("flow-loss"))
    incident = script.incidents[number]
    workload = part(script, incident.start - 600, 3000)
    exporter = [exporter.name for exporter in script.cluster.exporters].index(incident.exporter)
    (loss,) = [
        loss for loss in workload.fabric.losses if (loss.start, loss.exporter) == (incident.start * 1000, exporter)
    ]
    store, truth = store_of(script, influxdb_v1, fresh_database), GroundTruth(workload)
    record(workload, store, truth)
    assert workload.fabric.styles[loss.exporter].flow_format is format_
    gone, largest = 0, 0
    for batch in workload.batches(workload.scenario.live):
        planned = plan(batch.frame, workload.cast.addresses, workload.fabric.styles)
        sizes = np.diff(planned.bounds)
        gone += int(sizes[lost(planned, [loss])].sum())
        largest = max(largest, int(sizes.max()))
    assert gone > 5
    (series,) = store.query(
        f'SELECT "seq_lost" FROM "raw"."exporter" WHERE "exporter" = \'{incident.exporter}\' AND "seq_lost" > 0'
    )
    # IPFIX numbers records; v9 numbers datagrams, and a missing one is taken to be as full as those around it.
    error = 0.05 if format_ is FlowFormat.V9 else 0.0
    # The last ones may have nothing after them that tells.
    assert gone * (1 - error) - 2 * largest <= sum(row[1] for row in series.values) <= gone * (1 + error)
    times = [row[0] / 1000 for row in series.values]
    assert incident.start <= min(times)
    assert max(times) <= incident.end + 300
    assert reckon(store, truth.document(), SHARD).differences == ()


def test_a_silent_exporter_ages_and_a_bridge_that_is_away_says_nothing(
    influxdb_v1: LocalInfluxDB, fresh_database: str
) -> None:
    script = load_script(find_script("exporter-silent"))
    incident = script.incidents[0]
    workload = part(script, incident.start - 300, 1200)
    store = store_of(script, influxdb_v1, fresh_database)
    record(workload, store, GroundTruth(workload))
    ages = {
        series.tags["exporter"]: {row[0] // 1000 - incident.start: row[1] for row in series.values}
        for series in store.query('SELECT "age" FROM "raw"."exporter" WHERE "age" >= 0 GROUP BY "exporter"')
    }
    assert set(ages) == {exporter.name for exporter in script.cluster.exporters}
    silent = ages.pop(incident.exporter)
    length = incident.end - incident.start
    # Its last records are those of the minute before.
    assert length <= silent[length] <= length + 61
    assert silent[length + 120] <= 61
    assert all(age <= 121 for name, each in ages.items() for age in each.values() if name != "border-1")

    outage = load_script(find_script("pipeline-outage"))
    stop = next(one for one in outage.incidents if one.kind is IncidentKind.INGEST_STOPPED)
    behind = next(one for one in outage.incidents if one.kind is IncidentKind.INGEST_BEHIND)
    for one in (stop, behind):
        workload = part(outage, one.start - 300, 1800)
        record(workload, store_of(outage, influxdb_v1, f"{fresh_database}_{one.kind.value}"), GroundTruth(workload))
    (beats,) = store_of(outage, influxdb_v1, f"{fresh_database}_ingest_stopped").query(
        'SELECT "value" FROM "raw"."pipeline" WHERE "reason" = \'heartbeat\''
    )
    moments = [row[0] // 1000 for row in beats.values]
    assert not any(stop.start <= moment < stop.end for moment in moments)
    assert stop.end in moments
    (lags,) = store_of(outage, influxdb_v1, f"{fresh_database}_ingest_behind").query(
        'SELECT "value" FROM "raw"."pipeline" WHERE "reason" = \'lag_seconds\''
    )
    late = {row[0] // 1000 for row in lags.values if row[1] == behind.seconds}
    assert min(late) == behind.start
    assert max(late) == behind.end - 30
