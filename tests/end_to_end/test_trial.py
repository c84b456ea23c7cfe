"""A night with an incident of every common kind: all of it is found, by the right rule, in time, and nothing else."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from rules.evaluate.truth import score
from rules.registry import rules_of
from simulate.incidents.incident import Expected
from simulate.scenarios.script import Script, load_script
from simulate.traffic.workload import Workload
from simulate.trial import analyse, evaluate, play, run_trial
from simulate.truth.ground_truth import GroundTruth
from simulate.truth.matching import truth_of
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB
from store.schema import CheckpointState

NIGHT = Path(__file__).parents[1] / "simulate" / "night.yaml"
SOON = 60
"""Two windows, the lateness, flushes, a round of the analysis, one of the rules, and a record's share of a minute."""


@pytest.fixture(scope="module")
def night(influxdb_v1: LocalInfluxDB, tmp_path_factory: pytest.TempPathFactory) -> tuple[Script, Store]:
    """The night in a store, analysed."""
    script = load_script(NIGHT)
    cluster = replace(script.cluster, store=replace(script.cluster.store, url=influxdb_v1.url, database="night"))
    store = Store(cluster.store)
    reckoning = play(script, store)
    assert reckoning.differences == ()
    assert reckoning.checked > 200
    analyse(script, cluster, store, tmp_path_factory.mktemp("state"))
    return replace(script, cluster=cluster), store


def test_everything_staged_is_found_in_time_and_nothing_else(night: tuple[Script, Store]) -> None:
    script, store = night
    rules = rules_of(script.cluster).rules
    run = evaluate(script, script.cluster, store, rules)
    scores = score(truth_of(script.incidents), run.firings, [rule.id for rule in rules], script.start, script.end)
    assert [str(one) for each in scores for one in each.missed] == []
    assert [str(one.firing) for each in scores for one in each.false] == []
    assert sum(each.due for each in scores) == 11
    delays = {each.rule: each.first_delays() for each in scores if each.due}
    assert max(delay for found in delays.values() for delay in found) <= SOON, delays


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_the_analysis_says_what_the_truth_says(night: tuple[Script, Store]) -> None:
    """Checkpoints with begin, bytes and nodes; first contacts; job windows."""
    script, store = night
    workload = Workload(script.cluster, script.scenario)
    truth = GroundTruth(workload)
    for batch in workload.batches(script.scenario.live):
        truth.add(batch.frame)
    document = truth.document()
    window = script.cluster.bridge.window
    for run in document["jobs"]:
        planned = [one for one in document["checkpoints"] if one["job"] == run["job"]]
        found = store.query(
            f'SELECT "{schema.EVENT_BYTES.name}", "{schema.EVENT_NODES.name}", "{schema.CHECKPOINT_STATE.name}" '
            f'FROM "{schema.CHECKPOINT.kept}"."{schema.CHECKPOINT.name}" WHERE "job" = \'{run["job"]}\''
        )
        rows = [row for series in found for row in series.values if row[3] != CheckpointState.MISSED]
        kinds = {
            one.kind.value
            for one in script.incidents
            if one.start < moment(run["end"]) and moment(run["start"]) < one.end
        }
        if "job_stalled" in kinds:
            # The checkpoint falls into the stall: nothing is written.
            planned = planned[1:]
        assert len(rows) == len(planned), run["job"]
        for row, one in zip(rows, planned, strict=True):
            assert abs(row[0] / 1000 - moment(one["start"])) < window
            if row[3] == CheckpointState.UNJUDGED:
                assert "exporter_silent" in kinds
                continue
            assert row[3] == CheckpointState.ON_TIME
            assert row[1] == pytest.approx(one["bytes"], rel=0.02)
            assert row[2] == one["nodes"]
    contacts = {
        (series.tags["src"], series.tags["dst"]): min(row[1] for row in series.values)
        for series in store.query(
            f'SELECT "{schema.CONTACT_FIRST.name}" FROM "raw"."{schema.CONTACT.name}" GROUP BY "src", "dst"'
        )
    }
    met = {
        (one["src"], one["dst"]): datetime.fromisoformat(one["first"]).timestamp() for one in document["first_contacts"]
    }
    assert set(contacts) == set(met)
    assert len(met) >= 3
    assert all(first - window < contacts[pair] <= first for pair, first in met.items())
    (started,) = store.query('SELECT count("event") FROM "raw"."job" WHERE "event" = \'start\'')
    assert started.values[0][1] == len(document["jobs"]) == 7


def test_a_trial_tells_what_went_wrong(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> None:
    """A scenario that owes what does not come, and one that does not owe what does."""
    path = tmp_path / "wrong.yaml"
    path.write_text("""
title: Wrong
about: A shadow node of which nothing is owed, and a rule that has no reason to fire.
days: 0.03
incidents:
  - {kind: shadow_node, on: 1, at: "00:20", lasting: 2m}
""")
    right = load_script(path)
    (incident,) = right.incidents
    (alert,) = incident.alerts

    def owing(*alerts: Expected) -> Script:
        return replace(right, scenario=replace(right.scenario, incidents=(replace(incident, alerts=alerts),)))

    script, bare = owing(replace(alert, rule="exfil_volume")), owing()
    rules = ("exfil_volume", "shadow_node")
    missed = run_trial(script, influxdb_v1.url, tmp_path, rules=rules, database=fresh_database)
    assert not missed.is_right
    assert any("exfil_volume: MISSED shadow_node-" in line for line in missed.lines())
    false = run_trial(bare, influxdb_v1.url, tmp_path, rules=rules, database=f"{fresh_database}_2")
    assert not false.is_right
    assert any(line.startswith("shadow_node: 09-06 22:20:") and line.endswith(": FALSE") for line in false.lines())
