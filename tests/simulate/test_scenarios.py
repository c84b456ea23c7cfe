"""The library: what its files say must fire follows from thresholds; and faults are told where they are."""

import itertools
import re
from functools import cache
from pathlib import Path

import pytest

from app.errors import ConfigError, UserError
from bench.scorecard import SEEDS
from rules.registry import IDS
from simulate.incidents.incident import Incident, IncidentKind
from simulate.incidents.incident_kinds import KINDS
from simulate.packets.netflow import FlowFormat
from simulate.scenarios.reference import reference
from simulate.scenarios.scenario import Run, default_styles
from simulate.scenarios.script import Script, find_script, library, load_script
from simulate.scenarios.script_fields import SCRIPT
from store import schema

REPOSITORY = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
NAMES = [path.stem for path in library()]

_EXPECTATION = re.compile(r",? *expect: \[[^\]]*\]")


@cache
def loaded(name: str) -> Script:
    return load_script(find_script(name))


def without_expectations(path: Path, folder: Path) -> Script:
    """Load a scenario as if its file said nothing of alerts."""
    lines = (line for line in _EXPECTATION.sub("", path.read_text()).splitlines() if line.strip())
    bare = folder / path.name
    bare.write_text("\n".join(lines))
    return load_script(bare)


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, *SEEDS])
def test_the_library_agrees_with_the_thresholds_on_every_seed_of_the_scorecard(seed: int) -> None:
    """A file that disagrees does not load."""
    for path in library():
        assert load_script(path, seed=seed).scenario.seed == seed


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.thorough) if name == "beacons" else name for name in NAMES),
        str(FOLDER / "night.yaml"),
    ],
)
def test_what_must_fire_follows_from_the_thresholds(name: str, tmp_path: Path) -> None:
    """Each file says it once more, for its readers; both must agree."""
    path = find_script(name)
    stated, derived = loaded(name), without_expectations(path, tmp_path)
    assert stated.title
    assert len(stated.about) > 40
    for one, other in zip(stated.incidents, derived.incidents, strict=True):
        assert set(one.expected) == set(other.expected), one.id


def test_every_rule_has_a_scenario_and_every_scenario_its_rules() -> None:
    """All that is owed are rules of ours, and nothing of ours is owed by nobody."""
    owed = {rule for name in NAMES for one in loaded(name).incidents for rule in one.expected}
    # Nothing staged has templates: they alone show that an exporter samples (tests/ingest/test_unread_exports.py), or
    # kill (tests/ingest/test_guard.py).
    # No store that is staged refuses anything: tests/faults/test_faults_store.py.
    # What a cloud refuses: the rule's own cases, and `demo --cloud`.
    missing = set(IDS) - owed - {"rate_unknown", "collector_attacked", "points_refused", "refused_inside"}
    assert not missing, f"simulate/scenarios/library: no `expect` of {missing}"
    assert owed <= set(IDS)


def test_every_scenario_has_a_near_miss_and_every_kind_that_owes_something() -> None:
    """Of kinds that no rule looks at, and of weeks in which nothing happens, there is none."""
    staged = {name: loaded(name).incidents for name in NAMES}
    assert [name for name, each in staged.items() if each and not any(one.is_near_miss for one in each)] == []
    kinds = {one.kind for each in staged.values() for one in each if one.expected}
    assert kinds - {one.kind for each in staged.values() for one in each if one.is_near_miss} == set()


def test_nothing_in_the_library_is_left_open() -> None:
    """What is staged must fire or must not."""
    assert [one.id for name in NAMES for one in loaded(name).incidents for alert in one.alerts if not alert.must] == []


def test_every_kind_is_in_the_library_as_an_incident_or_near_miss() -> None:
    staged = {incident.kind for name in NAMES for incident in loaded(name).incidents}
    # Recordings are of exporters, and these do not see that a cloud refuses: `demo --cloud` plays it.
    assert staged | {IncidentKind.REFUSED_SCAN} == set(KINDS) == set(IncidentKind)


def test_alerts_are_about_somebody_and_due_in_time() -> None:
    """Labels name a party of the incident; the evidence is complete while it lasts, or soon after."""
    for name in NAMES:
        script = loaded(name)
        ids = [incident.id for incident in script.incidents]
        assert len(ids) == len(set(ids)), name
        for incident in script.incidents:
            assert script.start <= incident.start < incident.end <= script.end
            for alert in incident.alerts:
                parties = {
                    schema.OTHER,
                    incident.src,
                    incident.dst,
                    incident.job,
                    incident.exporter,
                    str(incident.rail),
                    *_parties(script, incident),
                }
                assert all(value in parties for _, value in alert.labels), (incident.id, alert)
                assert incident.start <= alert.due <= alert.until
                assert alert.earliest <= alert.due
                assert alert.due <= incident.end + 3600


def _parties(script: Script, incident: Incident) -> set[str]:
    found = {address for talk in incident.transfers for address in (talk.src, talk.dst)} | set(incident.nodes)
    found |= {link.name for one in script.cluster.exporters if one.name == incident.exporter for link in one.interfaces}
    groups = {node.group for node in script.cluster.nodes}
    found |= {node.name for node in script.cluster.nodes for entry in node.addresses if str(entry.address) in found}
    return found | groups | {one.country for one in incident.placements}


def test_seeds_draw_anew_and_keep_the_plan() -> None:
    first, same, other = (load_script(find_script("node-death"), seed=seed) for seed in (1, 1, 2))
    assert first == same
    assert other.scenario.seed == 2
    assert [run.start for run in other.scenario.runs] == [run.start for run in first.scenario.runs]
    assert load_script(other.path, seed=1).scenario == first.scenario


def test_times_are_the_sites_also_when_clocks_go_back(tmp_path: Path) -> None:
    """At 05:30 on the Sunday of the change it is an hour later, by UTC, than on the day before."""
    text = "title: t\nabout: a\nstart: 2026-10-24\ndays: 3\nincidents:\n" + "".join(
        f'  - {{kind: first_contact, on: {day}, at: "05:30", lasting: 1m}}\n' for day in (1, 2, 3)
    )
    starts = [incident.start for incident in load_script(write(tmp_path, text)).incidents]
    assert [b - a for a, b in itertools.pairwise(starts)] == [25 * 3600, 24 * 3600]


def test_job_plans_become_runs_and_job_windows(tmp_path: Path) -> None:
    """Weekends off, parts of the cluster, schedules that cluster.yaml declares, and those that it does not."""
    text = """
title: t
about: a
start: 2026-09-11
days: 4
jobs:
  - {class: a, nodes: 8, at: ["23:50", "04:00"], lasting: 30m, weekends: false, checkpoints: {every: 10m}}
  - {class: b, nodes: ["gpu-{09..16}"], at: ["04:10"], lasting: 10m, checkpoints: {every: 2m, mode: learn}}
"""
    script = load_script(write(tmp_path, text))
    runs: dict[str, list[Run]] = {"a": [], "b": []}
    for run in script.scenario.runs:
        runs[run.job[0]].append(run)
    # A Friday and a Monday; the last run would end after the scenario.
    assert len(runs["a"]) == 3
    assert len(runs["b"]) == 4
    assert {len(run.nodes) for run in script.scenario.runs} == {8}
    assert [job.id for job in script.cluster.jobs] == [run.job for run in script.scenario.runs]
    assert [one.name for one in script.cluster.job_classes] == ["a"]
    assert runs["a"][0].checkpoint_times() == (runs["a"][0].start + 600, runs["a"][0].start + 1200)


LEAK = 'title: t\nabout: a\ndays: 2\nincidents:\n  - {kind: bulk_exfil, on: 2, at: "12:00", lasting: 10m, %s}\n'


def test_the_file_may_name_rules_of_ones_own_and_what_may_come_along(tmp_path: Path) -> None:
    keys = "expect: [my_rule, exfiltration, exfil_volume, first_external_contact], may: [low_and_slow_24h]"
    (incident,) = load_script(write(tmp_path, LEAK % keys)).incidents
    assert set(incident.expected) == {"my_rule", "exfiltration", "exfil_volume", "first_external_contact"}
    assert [alert.rule for alert in incident.alerts if not alert.must] == ["low_and_slow_24h"]


def test_what_may_fire_need_not(tmp_path: Path) -> None:
    """And keeps its labels: it is about the same source and destination."""
    keys = "expect: [exfiltration, exfil_volume], may: [first_external_contact]"
    (incident,) = load_script(write(tmp_path, LEAK % keys)).incidents
    assert incident.expected == ("exfil_volume", "exfiltration")
    (open_one,) = (alert for alert in incident.alerts if not alert.must)
    assert dict(open_one.labels)["src"] == incident.src


@pytest.mark.parametrize("stated", ["", "exfil_volume", "exfil_volume, first_external_contact, incast"])
def test_a_file_that_asks_for_something_else_is_not_right(stated: str, tmp_path: Path) -> None:
    """Neither does it lose an alert by leaving it out, nor gain one."""
    with pytest.raises(ConfigError) as caught:
        load_script(write(tmp_path, LEAK % f"expect: [{stated}]"))
    (line,) = (line for line in caught.value.lines() if "expect" in line)
    assert (
        f"incidents[0].expect: [{stated}]: expected [exfil_volume, first_external_contact, exfiltration] (that is what"
        in line
    )


def test_what_is_too_close_to_tell_stands_under_may(tmp_path: Path) -> None:
    text = HEAD + JOB + "incidents: [{kind: node_dropout, run: 4, after: 5m, lasting: 8m, share: 0.92%s}]\n"
    with pytest.raises(ConfigError) as caught:
        load_script(write(tmp_path, text % ""))
    assert any("incidents[0]: node_dropout may fire or not: expected" in line for line in caught.value.lines())
    (incident,) = load_script(write(tmp_path, text % ", may: [node_dropout]")).incidents
    assert [(alert.rule, alert.must) for alert in incident.alerts] == [("node_dropout", False)]


@pytest.mark.parametrize(
    ("keys", "fires"),
    [
        ("lasting: 60s, sources: 8, volume: 5 GB", True),
        ("lasting: 60s, sources: 7, volume: 5 GB", False),
        ("lasting: 60s, sources: 10, volume: 490 MB", False),
        ("lasting: 60s, sources: 10, volume: 510 MB", True),
        ("lasting: 10s, sources: 14, volume: 5 GB", False),
        ("lasting: 20s, sources: 14, volume: 5 GB", True),
    ],
)
def test_incast_follows_from_its_thresholds(keys: str, *, fires: bool, tmp_path: Path) -> None:
    """Sources, bytes and duration."""
    text = HEAD + f'incidents: [{{kind: incast, on: 1, at: "10:00", {keys}}}]\n'
    (incident,) = load_script(write(tmp_path, text)).incidents
    assert incident.expected == (("incast",) if fires else ())


@pytest.mark.parametrize(("share", "must"), [(0.6, [True]), (0.76, [True]), (0.87, [False]), (0.9, [])])
def test_a_cohort_near_its_limit_may_be_slow_or_not(share: float, must: list[bool], tmp_path: Path) -> None:
    text = HEAD + JOB + f"incidents: [{{kind: cohort_slowdown, run: 4, after: 5m, lasting: 8m, share: {share}, %s}}]\n"
    may = "may: [cohort_slowdown]" if must == [False] else ""
    (incident,) = load_script(write(tmp_path, text % may)).incidents
    assert [alert.must for alert in incident.alerts] == must


@pytest.mark.parametrize(("seconds", "must"), [(50, []), (60, []), (100, [False]), (150, [True])])
def test_an_exporter_may_have_been_silent_for_a_minute_before(seconds: int, must: list[bool], tmp_path: Path) -> None:
    text = HEAD + f'incidents: [{{kind: exporter_silent, on: 1, at: "10:00", lasting: {seconds}s, %s}}]\n'
    may = "may: [exporter_silent]" if must == [False] else ""
    (incident,) = load_script(write(tmp_path, text % may)).incidents
    assert [alert.must for alert in incident.alerts] == must


def test_settings_change_the_cluster_and_with_it_what_is_owed(tmp_path: Path) -> None:
    text = 'title: t\nabout: a\ndays: 2\nincidents: [{kind: bulk_exfil, on: 2, at: "12:00", lasting: 10m}]\n'
    (before,) = load_script(write(tmp_path, text)).incidents
    script = load_script(write(tmp_path, text + "settings: {thresholds: {first_contact_bytes: 1 TB}}\n"))
    assert "first_external_contact" in before.expected
    assert script.incidents[0].expected == ("exfil_volume", "exfiltration")
    assert script.cluster.thresholds.first_contact_bytes == 10**12


def test_an_exfiltration_in_samples_is_due_when_what_left_at_least_is_too_much(tmp_path: Path) -> None:
    """By 1 packet in 65,535, 50 GB are sure from 54 on: half an hour later at 7 GB an hour."""
    text = 'title: t\nabout: a\ndays: 2\nincidents: [{kind: theft, on: 1, at: "06:00", lasting: 20h}]\n'
    due = [
        next(
            one.due
            for one in load_script(write(tmp_path, text + more)).incidents[0].alerts
            if one.rule == "exfiltration"
        )
        for more in ("", "sampling: 65535\n")
    ]
    assert 1800 <= due[1] - due[0] <= 3600


def test_a_cluster_of_ones_own(tmp_path: Path) -> None:
    """Beside the scenario's file; its store keeps the scenario's days whatever cluster.yaml says."""
    (tmp_path / "site.yaml").write_text((REPOSITORY / "cluster.yaml").read_text())
    script = load_script(write(tmp_path, "title: t\nabout: a\ndays: 1\ncluster: site.yaml\n"))
    assert script.cluster.name == "demo"
    assert script.cluster.store.keep_raw == 3650 * 86_400
    with pytest.raises(ConfigError, match="1 problem"):
        load_script(write(tmp_path, "title: t\nabout: a\ndays: 1\ncluster: other.yaml\n"))


def test_without_ipv4_no_exporter_speaks_a_format_that_cannot_carry_ipv6() -> None:
    """It would be silent for ever, and rightly told of."""
    formats = {style.flow_format for style in default_styles(loaded("ipv6-only").cluster).values()}
    assert FlowFormat.V5 not in formats
    assert FlowFormat.V5 in {style.flow_format for style in default_styles(loaded("straggler").cluster).values()}


def test_played_now_nothing_is_owed_that_rests_on_earlier_days() -> None:
    path = find_script("bulk-exfil")
    now = load_script(path, begin=1_800_000_000)
    then = load_script(path)
    assert now.start == 1_800_000_000
    assert now.scenario.live.timeout == 10
    assert "first_external_contact" in then.incidents[0].expected
    assert now.incidents[0].expected == ("exfil_volume",)


HEAD = "title: t\nabout: a\ndays: 2\n"
JOB = 'jobs: [{at: ["02:00", "08:00"], lasting: 20m, checkpoints: {every: 5m}}]\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "an empty file: expected a scenario (docs/reference/scenarios.md shows one)"),
        ("- a\n", "a list: expected a mapping that begins with `title: ...`"),
        (
            HEAD + "cluster: huge\n",
            "cluster: huge: expected demo, 64 nodes, 1,024 nodes, or the path of a cluster.yaml",
        ),
        (HEAD + "seeds: 3\n", "seeds: unknown key: expected a key of docs/reference/scenarios.md (did you mean seed?)"),
        (HEAD.replace("2", "0"), "days: 0: expected a number from 0.01 to 62"),
        (HEAD + "incidents: [{kind: flood}]\n", "incidents[0].kind: flood: expected"),
        (
            HEAD + "incidents: [{kind: bulk_exfil}]\n",
            "incidents[0]: neither at nor run: expected either `on` and `at`, or `run` and `after`",
        ),
        (
            HEAD + 'incidents: [{kind: bulk_exfil, at: "10:00", run: 1}]\n',
            "incidents[0]: at and run: expected either `on` and `at`, or `run` and `after`",
        ),
        (
            HEAD + 'incidents: [{kind: bulk_exfil, on: 3, at: "10:00"}]\n',
            "incidents[0]: day 3.42: expected a time within the 2 days",
        ),
        (
            HEAD + 'incidents: [{kind: node_dropout, on: 1, at: "10:00"}]\n',
            "incidents[0]: no job runs at that time: expected something that can be staged (stage it during a run)",
        ),
        (
            HEAD + JOB + "incidents: [{kind: node_dropout, run: 9}]\n",
            "incidents[0].run: 9: expected a run of llama-70b: there are 4",
        ),
        (
            HEAD + JOB + "incidents: [{kind: node_dropout, run: 1, class: llama}]\n",
            "incidents[0].class: llama: expected a class of `jobs`",
        ),
        (
            HEAD + JOB + "incidents: [{kind: node_dropout, run: 1, after: 20m}]\n",
            "incidents[0].after: 20m: expected less than the run's 20m",
        ),
        (
            HEAD + JOB + "incidents: [{kind: node_dropout, run: 1, node: nas-1}]\n",
            "incidents[0]: node_dropout: nas-1 is no node of llama-70b-0907-0000: expected",
        ),
        (
            HEAD + JOB + "incidents: [{kind: checkpoint_missed, run: 1, after: 1m, lasting: 1m}]\n",
            "incidents[0]: no checkpoint of llama-70b-0907-0000 is planned in that time: expected",
        ),
        (
            HEAD + 'jobs: [{at: ["02:00", "02:10"], lasting: 20m}]\n',
            "jobs: llama-70b-0907-0000 and llama-70b-0907-0010 overlap: expected runs that share no node at the same",
        ),
        (HEAD + 'jobs: [{nodes: 99, at: ["02:00"], lasting: 20m}]\n', "jobs[0].nodes: 99: expected at most 16, all"),
        (
            HEAD + 'jobs: [{nodes: [gpu-1], at: ["02:00"], lasting: 20m}]\n',
            "jobs[0].nodes: gpu-1: expected a training node (did you mean gpu-1",
        ),
        (
            HEAD + 'jobs: [{nodes: ["gpu-{1-4}"], at: ["02:00"], lasting: 20m}]\n',
            "jobs[0].nodes: gpu-{1-4}: expected a range such as {01..16}",
        ),
        (
            HEAD + 'jobs: [{nodes: ["gpu-{1..65536}"], at: ["02:00"], lasting: 20m}]\n',
            "jobs[0].nodes: gpu-1 and 65,528 more: expected a training node",
        ),
        (
            HEAD + 'incidents: [{kind: exporter_silent, at: "10:00", exporter: leaf-9}]\n',
            "incidents[0]: no exporter leaf-9: expected something that can be staged (one of leaf-1, leaf-2, spine-1,",
        ),
        (
            HEAD + 'incidents: [{kind: bulk_exfil, at: "10:00", node: gpu-99}]\n',
            "incidents[0]: gpu-99: no node of that name: expected something that can be staged",
        ),
        (HEAD + "settings: {thresholds: {exfil: 5 GB}}\n", ": settings: thresholds.exfil: unknown key: expected"),
        (
            HEAD
            + "settings:\n  a0: &a0 x\n"
            + "".join(f"  a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)),
            "settings: a mapping: expected at most 100,000 values, in at most 32 levels",
        ),
    ],
)
def test_faults_are_told_where_they_are(text: str, problem: str, tmp_path: Path) -> None:
    """Place, value, what was expected, and what to do."""
    with pytest.raises(ConfigError) as caught:
        load_script(write(tmp_path, text))
    assert any(problem in line for line in caught.value.lines()), caught.value.lines()
    assert caught.value.exit_code == 2


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    text = HEAD + 'incidents: [{kind: bulk_exfil, on: 9, at: "10:00"}, {kind: node_dropout, on: 1, at: "10:00"}]\n'
    with pytest.raises(ConfigError) as caught:
        load_script(write(tmp_path, text))
    assert len(caught.value.problems) == 2
    assert all(problem.line for problem in caught.value.problems)


def test_names_that_are_not_there_are_told() -> None:
    with pytest.raises(UserError, match="node-deth: no such scenario") as caught:
        find_script("node-deth")
    assert caught.value.hint == "did you mean node-death?"
    with pytest.raises(ConfigError, match="1 problem"):
        load_script(find_script("nowhere/x.yaml"))


def test_the_example_in_the_documentation_is_right(tmp_path: Path) -> None:
    committed = (REPOSITORY / "docs/reference/scenarios.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", committed, re.DOTALL)
    path = write(tmp_path, example)
    stated, derived = load_script(path), without_expectations(path, tmp_path)
    assert [one.expected for one in stated.incidents] == [("node_dropout",), ("off_hours_transfer",)]
    assert [one.expected for one in derived.incidents] == [one.expected for one in stated.incidents]


@pytest.mark.thorough
def test_the_committed_documentation_is_what_the_files_say() -> None:
    committed = (REPOSITORY / "docs/reference/scenarios.md").read_text(encoding="utf-8")
    assert committed == reference(), "run: python -m simulate.scenarios.reference docs/reference/scenarios.md"
    assert all(f"`{name}`" in committed for name in NAMES)
    assert all(f"| `{key.name}` |" in committed for key in SCRIPT.keys)
