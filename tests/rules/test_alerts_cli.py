"""`clusterflow alerts`, as a user runs it, on a real store; and `clusterflow status`, which counts the same alerts."""

import json
import time
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from analysis.audit import Period
from app.application import Application
from cluster.dump import dump_cluster
from cluster.load import load_cluster, parse_cluster
from cluster.model import StoreSettings
from operations.alert_history import MOST, StoredAlert
from operations.alerts_cli import alerts, show
from operations.cli import status
from reporting.content import Table
from reporting.look import Look
from reporting.sections.alerts import history
from rules.common.texts import FACTS
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.points import WINDOW, encode

NOW = int(time.time())
IDS = ("3fa94c1e" + "0" * 24, "3fa95555" + "0" * 24)


@pytest.fixture
def config(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> Path:
    settings = StoreSettings(url=influxdb_v1.url, database=fresh_database)
    cluster = replace(parse_cluster("cluster: lab\ngroups: {a: {role: custom}}\n"), store=settings)
    store = Store(settings)
    store.ensure(cluster.retentions())
    rows = [
        {WINDOW: NOW - ago, schema.RULE: "exfil_volume", schema.SEVERITY: "critical", schema.SRC: "db-1"}
        | {schema.ALERT_KEY: str(ago), schema.CHANGE: schema.Change.FIRED.value, schema.INCIDENT.name: incident}
        | {schema.ALERT_STATE.name: schema.FIRING, schema.ALERT_SUMMARY.name: "much [red]sent[/red]"}
        | {schema.ALERT_SOURCE.name: "db-1 (Data)", schema.ALERT_DESTINATION.name: "203.0.113.9"}
        for ago, incident in zip((600, 90_000), IDS, strict=True)
    ]
    store.write(encode(schema.ALERT, pl.DataFrame(rows)), schema.ALERT.kept)
    store.close()
    path = tmp_path / "cluster.yaml"
    path.write_text(dump_cluster(cluster), encoding="utf-8")
    return path


def _run(config: Path, *arguments: str) -> Result:
    application = Application(name="clusterflow")
    application.add_command(alerts)
    application.add_command(status)
    name, *rest = arguments
    several = [name, rest.pop(0)] if name == "alerts" else [name]
    return CliRunner().invoke(application, [*several, "--config", str(config), *rest])


def test_alerts_are_listed_newest_first_and_marked(config: Path) -> None:
    found = [json.loads(line) for line in _run(config, "alerts", "list", "--json").stdout.splitlines()]
    assert [one["id"] for one in found] == list(IDS)
    assert [one["id"] for one in found if one["false"]] == []
    marked = _run(config, "alerts", "mark", "3fa94", "--false", "--acknowledged", "--why", "planned [move]")
    assert marked.stdout == "3fa94c1e firing, acknowledged, false: much [red]sent[/red]\n"
    (one, _) = (json.loads(line) for line in _run(config, "alerts", "list", "--json").stdout.splitlines())
    assert (one["false"], one["why"]) == (True, "planned [move]")
    assert NOW <= one["acknowledged"] <= time.time()
    assert _run(config, "alerts", "mark", IDS[0], "--true").exit_code == 0
    listed = _run(config, "alerts", "list", "--from", "1h").stdout
    assert "firing, acknowledged " in listed
    assert "db-1 (Data) → 203.0.113.9" in listed
    assert "no such alert" in _run(config, "alerts", "list", "--rule", "incast").stderr
    shown = json.loads(_run(config, "status", "--json").stdout)
    assert [one["id"] for one in shown["alert_history"]] == [IDS[0]]
    assert "last 24 h: 1 alerts, 0 of them over" in _run(config, "status").stdout


@pytest.mark.parametrize(("ago", "is_shown"), [(None, True), (1800, True), (7200, False)])
def test_an_alert_that_began_long_ago_is_listed_while_it_fires(config: Path, ago: int | None, is_shown: bool) -> None:
    state = {schema.ALERT_STATE.name: "resolved", schema.ENDED.name: float(NOW - ago)} if ago else {}
    tags = {schema.RULE: "exfil_volume", schema.SEVERITY: "critical", schema.SRC: "db-1", schema.ALERT_KEY: "90000"}
    row = {
        WINDOW: NOW - 90_000,
        **tags,
        schema.CHANGE: schema.Change.FIRED.value,
        schema.INCIDENT.name: IDS[1],
        **state,
    }
    with closing(Store(load_cluster(config).store)) as store:
        store.write(encode(schema.ALERT, pl.DataFrame([row])), schema.ALERT.kept)
        told = history(Look(load_cluster(config), store, Period(NOW - 3600, NOW, schema.MINUTE, 60), NOW))
    listed = _run(config, "alerts", "list", "--from", "1h", "--json").stdout.splitlines()
    found = [json.loads(line)["id"] for line in listed]
    assert found == list(IDS)[: 1 + is_shown]
    assert ("1 alert from before the period still fired" in told.lead) == is_shown
    (table,) = [block for block in told.blocks if isinstance(block, Table) and block.key == "alerts"]
    assert len(table.rows) == len(found)


def test_a_flood_of_one_rule_hides_no_alert_of_another(config: Path) -> None:
    tags = {schema.RULE: "link_full", schema.SEVERITY: "warning", schema.SRC: "leaf-1", schema.ALERT_KEY: "0"}
    rows = pl.DataFrame({WINDOW: range(NOW - MOST, NOW)}).with_columns(
        *(pl.lit(text).alias(name) for name, text in {**tags, schema.CHANGE: schema.Change.FIRED}.items()),
        pl.lit("0").alias(schema.INCIDENT.name),
    )
    with closing(Store(load_cluster(config).store)) as store:
        store.write(encode(schema.ALERT, rows), schema.ALERT.kept)
    found = _run(config, "alerts", "list", "--json", "--rule", "exfil_volume").stdout.splitlines()
    assert [json.loads(line)["id"] for line in found] == list(IDS)
    assert "only the newest 10,000 are shown" in _run(config, "alerts", "list", "--json").stderr


def test_in_a_narrow_terminal_no_name_is_in_pieces() -> None:
    ends = {"source": "dgx-b200-nord-rack07-001 (GPU Training Nodes)", "destination": "203.0.113.9 (outside)"}
    facts = dict.fromkeys(FACTS, "") | ends | {"bytes": "65 GB", "duration": "5m 10s"}
    one = StoredAlert(IDS[0], {schema.RULE: "exfiltration"}, schema.FIRING, "", "", NOW, None, facts)
    out = StringIO()
    show([one], ZoneInfo("Europe/Berlin"), Console(width=80, file=out))
    head, told = out.getvalue().splitlines()
    assert (head.split()[0], head.split()[3:]) == ("3fa94c1e", ["firing", "exfiltration"])
    assert told.split() == f"{ends['source']} → {ends['destination']}  65 GB  5m 10s".split()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mark", "3fa94"), "nothing to mark"),
        (("mark", "3fa9", "--false"), "2 alerts begin so"),
        (("mark", "xyz1", "--false"), "expected 4 to 32"),
        (("mark", "beef", "--false"), "no alert of the history"),
        (("list", "--from", "soon"), "--from soon: expected a time"),
    ],
)
def test_a_wrong_word_is_one_line(config: Path, arguments: tuple[str, ...], words: str) -> None:
    result = _run(config, "alerts", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
