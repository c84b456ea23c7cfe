"""Scenarios as the input of rule cases and of backtests."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.errors import UserError
from cluster.load import load_cluster
from cluster.model import StoreSettings
from rules.evaluate.cases import load_cases
from simulate.backtest_cli import _with_own, backtest
from simulate.rule_checks_cli import test_rules as command
from simulate.scenarios.case_scenarios import Scenarios
from simulate.scenarios.script import load_script
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

DEMO = Path(__file__).parents[2] / "cluster.yaml"
SCENARIO = """
title: A leak
about: 65 GB leave within two minutes, and a tenth less than is too much another time.
days: 0.08
background: none
incidents:
  - {kind: bulk_exfil, on: 1, at: "00:30", lasting: 2m}
  - {kind: bulk_exfil, on: 1, at: "01:15", lasting: 2m, factor: 0.9}
"""
LABELS = (
    "{src: model-store-1, src_group: model_storage, dst: 203.0.113.41, dst_group: external, proto: tcp, "
    "service: https, country: '', network: '', feed: ''}"
)
CASES = f"""
rule: exfil_volume
cases:
  - name: a leak
    scenario: leak.yaml
    firings:
      - labels: {LABELS}
        start: [1800, 2000]
        end: [2700, 2900]
        last: {{source: model-store-1 (Model Storage), protocol: tcp (https)}}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "leak.yaml").write_text(SCENARIO)
    (tmp_path / "exfil_volume.yaml").write_text(CASES)
    return tmp_path


def test_a_case_is_held_against_what_the_scenario_makes(files: Path, influxdb_v1: LocalInfluxDB) -> None:
    path = files / "exfil_volume.yaml"
    result = CliRunner().invoke(command, [str(path), "--url", influxdb_v1.url])
    assert result.exit_code == 0, result.output
    path.write_text(CASES.replace("start: [1800, 2000]", "start: [0, 60]"))
    result = CliRunner().invoke(command, [str(path), "--url", influxdb_v1.url])
    assert result.exit_code == 1
    assert "- 0 to 60 s" in result.output
    names = Store(StoreSettings(url=influxdb_v1.url)).query("SHOW DATABASES")
    assert not [row for series in names for row in series.values if row[0].startswith("scenario_")]


def _site(files: Path) -> Path:
    """Write a cluster.yaml with the rule of the docs, and return it."""
    page = (DEMO.parent / "docs/extending.md").read_text(encoding="utf-8")
    (files / "backup_size.py").write_text(page.split("```python\n")[1].split("```")[0])
    config = files / "cluster.yaml"
    config.write_text(f"{DEMO.read_text()}\nrules: [backup_size.py]\n")
    return config


@pytest.mark.parametrize(
    ("expected", "own"), [("", []), (", expect: [off_hours_transfer, backup_size]", ["backup_size"])]
)
def test_a_rule_of_the_sites_own_that_a_scenario_expects_is_evaluated(
    expected: str, own: list[str], files: Path
) -> None:
    scenario = files / "leak.yaml"
    scenario.write_text(SCENARIO.replace("factor: 0.9", f"factor: 0.9{expected}"))
    cluster = _with_own(load_cluster(_site(files)), load_script(scenario), ())
    assert [Path(path).stem for path in cluster.rules] == own


def test_a_backtest_knows_the_scenarios_truth(files: Path, influxdb_v1: LocalInfluxDB) -> None:
    """A rule of the site's own is evaluated, too, where it is asked for."""
    arguments = [
        "-c",
        str(_site(files)),
        "--scenario",
        str(files / "leak.yaml"),
        "--url",
        influxdb_v1.url,
        "--rule",
        "exfil_volume",
        "--rule",
        "backup_size",
    ]
    result = CliRunner().invoke(backtest, [*arguments, "--sweep", "exfil_volume=50GB,58GB", "--json", "-"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["score"]["all"]["due"], report["score"]["all"]["found"], report["score"]["all"]["false"]) == (
        1,
        1,
        0,
    )
    assert [one["firings"] for one in report["sweeps"][0]["values"]] == [1, 1]
    assert [one["rule"] for one in report["rules"]] == ["exfil_volume", "backup_size"]
    assert report["source"] == "Scenario leak, seed 1: A leak"


def test_each_scenario_is_played_once(files: Path, influxdb_v1: LocalInfluxDB) -> None:
    (case,) = load_cases(files / "exfil_volume.yaml", DEMO)
    with Scenarios(influxdb_v1.url) as scenarios:
        assert scenarios.stage(case).store is scenarios.stage(case).store
        with pytest.raises(UserError, match="no such scenario"):
            scenarios.play("nothing-of-this-name", None)


def test_two_play_on_one_influxdb_at_once(files: Path, influxdb_v1: LocalInfluxDB) -> None:
    """Two backtests, or one and `test-rules`, with the same --url: neither takes the other's points away."""
    (files / "other.yaml").write_text(SCENARIO.replace("factor: 0.9", "factor: 0.5"))
    with Scenarios(influxdb_v1.url) as scenarios, Scenarios(influxdb_v1.url) as others:
        played = scenarios.play("leak.yaml", None, files)
        asked = f'SELECT sum("{schema.BYTES.name}") FROM "{schema.RAW}"."{schema.EGRESS.name}"'
        before = played.store.query(asked)[0].values
        others.play("other.yaml", None, files)
        assert played.store.query(asked)[0].values == before


def test_a_scenario_has_a_time_of_its_own() -> None:
    result = CliRunner().invoke(backtest, ["-c", str(DEMO), "--scenario", "bulk-exfil", "--from", "1d"])
    assert isinstance(result.exception, UserError)
