"""The audit on a real InfluxDB: all that was staged is in it, to the byte, and what could not be seen."""

import csv
import io
import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result
from test_breaches_store import T0 as BASE
from test_breaches_store import flow, probe

from analysis.audit import Audit, Period, _gaps, audit, period_of
from analysis.audit_cli import audit as audit_command
from app.application import Application
from app.errors import UserError
from app.log import Log
from app.signing import SUFFIX
from cluster.load import load_cluster
from cluster.model import Cluster
from ingest.count.engine import Engine
from ingest.counters import Counters
from ingest.flows.normalise import Clock
from ingest.read import records
from ingest.rollup import Rollup
from ingest.writer import Writer
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW

HOUR = 3_600
T0 = BASE - BASE % HOUR
"""2025-06-15 15:00:00 UTC: the hour in which everything happens."""

OFFSET = BASE - T0

CONFIG = """
cluster: audited
groups:
  training: {{title: GPU Training Nodes, role: training, prefixes: [10.20.0.0/16]}}
  storage: {{title: Storage, role: storage, prefixes: [10.30.0.0/16], plane: storage}}
  control: {{title: Management, role: management, prefixes: [10.60.0.0/24]}}
  users: {{title: Users, role: custom, prefixes: [10.70.0.0/16]}}
nodes:
  "gpu-{{1..20}}":
    group: training
    addresses: [{{address: "10.20.0.{{1..20}}", plane: compute}}, {{address: "10.20.2.{{1..20}}", plane: storage}}]
  "nas-{{1..4}}": {{group: storage, addresses: ["10.30.0.{{1..4}}"]}}
  mgmt-1: {{group: control, addresses: [10.60.0.1]}}
exporters:
  leaf: {{address: 127.0.0.1, interfaces: {{1: {{name: rail, plane: compute}}}}}}
  border: {{address: 127.0.0.2}}
allowed:
  - {{from: training, to: storage}}
  - {{from: storage, to: training}}
  - {{from: users, to: training}}
  - {{from: training, to: users}}
  - {{from: "*", to: control}}
  - {{from: control, to: "*"}}
transport:
  - {{between: [training, users], is: roce}}
store: {{url: "{url}", database: {database}, retention: {{raw: 5000d, 1m: 5000d, 1h: 5000d}}}}
"""


@dataclass(frozen=True)
class Site:
    config: Path
    cluster: Cluster
    store: Store

    def audited(self, start: int = T0, stop: int = T0 + HOUR) -> Audit:
        return audit(self.cluster, self.store, period_of(self.cluster, start, stop, T0 + 2 * HOUR))


def rows() -> list[dict[str, object]]:
    """Half an hour: a user at storage three times, a log-in at management, storage over a rail, a shadow, a scan."""
    found: list[dict[str, object]] = []
    for at in range(0, 1800, 60):
        found += flow(at, "10.20.2.1", "10.30.0.1", 2049, 10**6)
        found += flow(at, "10.20.0.1", "10.60.0.1", 53, 80)
    for at in (100, 200, 900):
        found += flow(at, "10.70.0.9", "10.30.0.1", 2049, 5_000_000)
    found += flow(300, "10.20.0.7", "10.60.0.1", 22, 6_000)
    found += flow(400, "10.20.0.3", "10.30.0.2", 2049, 8 * 10**9, iface_in=1)
    found += flow(500, "10.20.9.9", "10.30.0.3", 2049, 70_000)
    found += [probe(600, "10.70.0.8", f"10.30.1.{number}", 31_000) for number in range(5)]
    return found


@pytest.fixture(scope="module")
def site(influxdb_v1: LocalInfluxDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    config = tmp_path_factory.mktemp("audit") / "cluster.yaml"
    config.write_text(CONFIG.format(url=influxdb_v1.url, database="audited"))
    cluster = load_cluster(config)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    engine = Engine(cluster, Clock.BACKFILL, Counters())
    full = [dict.fromkeys(records.RECORD_SCHEMA) | row for row in rows()]
    engine.take(pl.DataFrame(full, schema=records.RECORD_SCHEMA), T0)
    writer = Writer(
        store, cluster.retentions(), shard="0", counters=Counters(), stop=threading.Event(), log=Log(as_json=False)
    )
    rollup = Rollup(store, writer, cluster.retentions(), "0")
    for measurement, points in engine.merge():
        writer.write(measurement, points, schema.RAW)
        rollup.touch(points.get_column(WINDOW).unique())
    rollup.run()
    yield Site(config, cluster, store)
    store.close()


TALK = (schema.SRC, schema.DST, schema.SERVICE, schema.TX_BYTES.name, schema.RX_BYTES.name, schema.FLOWS.name)


@pytest.mark.parametrize(
    ("start", "stop", "retention"),
    [(T0, T0 + HOUR, "raw"), (T0 - 10 * HOUR, T0 + HOUR, "1m"), (T0 - 50 * 24 * HOUR, T0 + HOUR, "1h")],
)
def test_everything_is_found_whatever_the_period_is_read_from(
    site: Site, start: int, stop: int, retention: str
) -> None:
    found = site.audited(start, stop)
    assert found.period.retention == retention
    assert found.violations.select(*TALK).rows()[0] == ("10.70.0.9", "nas-1", "nfs", 15_000_000, 180, 6)
    assert sorted(found.violations.select(*TALK).rows()[1:]) == [
        ("10.70.0.8", f"10.30.1.{number}", "other", 40, 0, 1) for number in range(5)
    ]
    assert found.wrong_plane.select(*TALK).rows() == [("gpu-3", "nas-2", "nfs", 8 * 10**9, 60, 2)]
    assert found.management.select(*TALK).rows() == [("gpu-7", "mgmt-1", "ssh", 6_000, 60, 2)]
    shadows = found.shadows.select(schema.ADDRESS, "bytes", schema.TX_BYTES.name)
    assert shadows.rows() == [("10.20.9.9", 70_060, 70_000)]
    assert found.only_called == 5, "the scan calls addresses of which nobody knows whether they exist"


def test_first_and_last_are_windows_in_which_it_was_seen(site: Site) -> None:
    row = site.audited().violations.row(0, named=True)
    assert (row["first"], row["last"]) == (T0 + OFFSET + 100, T0 + OFFSET + 900)


def test_every_permit_is_used_unused_or_not_visible(site: Site) -> None:
    states = {(permit.src, permit.dst): permit.state for permit in site.audited().permits}
    assert {pair for pair, state in states.items() if state == "used"} == {
        ("training", "storage"), ("storage", "training"), ("training", "control"), ("control", "training"),
    }  # fmt: skip
    assert {pair for pair, state in states.items() if state == "not visible"} == {
        ("users", "training"), ("training", "users"),
    }  # fmt: skip
    assert {pair for pair, state in states.items() if state == "unused"} == {
        ("storage", "control"), ("users", "control"), ("external", "control"), ("control", "storage"),
        ("control", "users"), ("control", "external"),
    }  # fmt: skip


def test_a_permit_names_its_entry_and_its_bytes(site: Site) -> None:
    by_pair = {(permit.src, permit.dst): permit for permit in site.audited().permits}
    permit = by_pair["control", "users"]
    assert (permit.entry.src, permit.entry.dst, permit.bytes) == ("control", "*", 0)
    assert by_pair["training", "storage"].bytes == 30 * 10**6 + 8 * 10**9 + 70_000


def test_what_could_not_be_seen(site: Site) -> None:
    """The border never spoke; the leaf once a minute, and not at all after half an hour."""
    found = site.audited()
    never, leaf = found.silences
    assert (never.exporter, never.never, never.longest) == ("border", True, HOUR)
    assert (leaf.exporter, leaf.never) == ("leaf", False)
    heard = OFFSET // 60 * 60, (OFFSET + 1741) // 60 * 60 + 60
    assert leaf.longest == max(heard[0], HOUR - heard[1])
    assert found.blind == heard[0] + HOUR - heard[1]
    assert (found.records, found.lost) == (2 * (30 + 30 + 3 + 3) + 5, 0)


@pytest.mark.parametrize(
    ("windows", "gaps"),
    [
        ([], [600]),
        ([1000, 1060, 1120, 1180, 1240, 1300, 1360, 1420, 1480, 1540], []),
        ([1000, 1060, 1300], [180, 240]),
        ([1300], [300, 240]),
    ],
)
def test_gaps_are_the_stretches_between_bins(windows: list[int], gaps: list[int]) -> None:
    assert _gaps(windows, Period(1000, 1600, "1m", 60), 60) == gaps


def test_a_period_of_which_nothing_is_kept_is_refused(site: Site) -> None:
    with pytest.raises(UserError, match="before anything that is kept"):
        period_of(site.cluster, T0 - 6000 * 24 * HOUR, T0, T0)
    with pytest.raises(UserError, match="no whole window"):
        period_of(site.cluster, T0 - 30, T0, T0)


# -- the command -----------------------------------------------------------------------------------------


def run(site: Site, *arguments: str) -> Result:
    application = Application(name="clusterflow")
    application.add_command(audit_command)
    period = ["--from", str(T0), "--to", str(T0 + HOUR)]
    return CliRunner().invoke(application, ["audit", "--config", str(site.config), *period, *arguments])


def test_the_table_says_it_all(site: Site) -> None:
    result = run(site)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    headings = [line for line in lines if line and not line.startswith(" ") and ": " in line and line[0].isupper()]
    assert headings == [
        "Violations of `allowed`: 6",
        "Shadow nodes: addresses that sent and that no inventory knows: 1",
        "Storage traffic on the compute plane: 1",
        "Unexpected management connections: 1",
        "Unused permits: pairs of `allowed` without a byte: 6",
        "What could not be seen: 4",
        *[line for line in headings if line.startswith("An absence")],
    ]
    text = result.stdout
    assert "10.70.0.9" in text
    assert "15 MB" in text
    assert "5 more unknown addresses were only called: nothing shows that they exist" in text
    assert "not judged, as the inventory lists none of their nodes: Users" in text
    assert "GPU Training Nodes and Users: declared roce, flow records do not see it" in text
    assert "exporter border was never heard: what only it sees may be missing above" in text
    assert "4 of 12 pairs were used" in text


def test_each_file_is_signed(site: Site, tmp_path: Path) -> None:
    key, public = tmp_path / "key.pem", tmp_path / "public.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    files = [tmp_path / "audit.csv", tmp_path / "audit.json"]
    assert run(site, "--csv", str(files[0]), "--json", str(files[1]), "--sign", str(key)).exit_code == 0
    for file in files:
        check = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", public, "-in", file]
        subprocess.run([*check, "-sigfile", f"{file}{SUFFIX}"], check=True, capture_output=True)


def test_the_csv_has_a_row_a_finding(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "audit.csv"
    result = run(site, "--csv", str(path))
    assert "Violations" in result.stdout, "a file does not replace the table"
    table = list(csv.DictReader(io.StringIO(path.read_text())))
    sections = [row["section"] for row in table]
    assert {name: sections.count(name) for name in dict.fromkeys(sections)} == {
        "violation": 6, "storage_on_compute_plane": 1, "unexpected_management_connection": 1, "shadow_node": 1,
        "permit": 12, "silent_exporter": 2, "nothing_stored": 1, "not_visible": 1,
    }  # fmt: skip
    first = table[0]
    assert (first["src"], first["dst"], first["bytes"], first["tx_bytes"]) == (
        "10.70.0.9", "nas-1", "15000180", "15000000",
    )  # fmt: skip
    assert first["first"] == "2025-06-15T15:08:20Z"
    permits = {(row["src_group"], row["dst_group"]): row["note"] for row in table if row["section"] == "permit"}
    assert permits["control", "users"] == "unused; allowed: control -> *"
    assert permits["users", "training"] == "not visible; allowed: users -> training; declared roce"


def test_json_on_standard_output_is_nothing_but_json(site: Site) -> None:
    document = json.loads(run(site, "--json", "-").stdout)
    assert document["period"] == {
        "from": "2025-06-15T15:00:00Z", "to": "2025-06-15T16:00:00Z", "retention": "raw", "window_seconds": 10,
    }  # fmt: skip
    assert len(document["violations"]) == 6
    assert document["shadow_nodes"][0]["address"] == "10.20.9.9"
    assert document["visibility"]["silent_exporters"][0]["never_heard"] is True
    assert document["visibility"]["not_visible"] == [
        {"src_group": "training", "dst_group": "users", "transport": "roce"}
    ]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 0),
        (("--fail-on", "any"), 1),
        (("--fail-on", "management"), 1),
        (("--fail-on", "unused", "--fail-on", "gaps"), 1),
    ],
)
def test_the_exit_code_is_for_jobs(site: Site, arguments: tuple[str, ...], code: int) -> None:
    assert run(site, *arguments).exit_code == code


def test_a_quiet_period_fails_on_nothing_that_happened(site: Site) -> None:
    """Before anything was sent: no findings, but gaps."""
    quiet = ["--from", str(T0 - 5 * HOUR), "--to", str(T0 - 4 * HOUR)]
    application = Application(name="clusterflow")
    application.add_command(audit_command)
    for wanted, code in (("any", 0), ("gaps", 1)):
        arguments = ["audit", "--config", str(site.config), *quiet, "--fail-on", wanted]
        result = CliRunner().invoke(application, arguments)
        assert result.exit_code == code, result.output
        assert "Violations of `allowed`: none" in result.stdout


def test_an_empty_period_is_a_mistake(site: Site) -> None:
    application = Application(name="clusterflow")
    application.add_command(audit_command)
    result = CliRunner().invoke(application, ["audit", "--config", str(site.config), "--from", "1d", "--to", "2d"])
    assert result.exit_code == 2
    assert "--from must be before --to" in result.stderr
