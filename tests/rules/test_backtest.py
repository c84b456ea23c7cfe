"""`clusterflow backtest`: what would have fired, with other limits, before a change, and against what was staged."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.errors import UserError
from app.units import format_moment as moment
from cluster.load import load_cluster
from cluster.model import Thresholds
from operations.cli import build
from rules.evaluate.backtest import change_of, earlier_rules, settings_of
from rules.evaluate.cases import BEGINS
from rules.evaluate.truth import Owed, read_truth
from rules.grafana.decode import rules_from_text
from rules.grafana.encode import rules_text
from rules.registry import rules_of
from rules.rule import RuleSet
from simulate.backtest_cli import backtest
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

CASES = Path(__file__).parent / "cluster.yaml"
CLUSTER = load_cluster(CASES)
RULES = rules_of(CLUSTER).rules
BASIC = (
    "exfil_volume", "first_external_contact", "off_hours_transfer", "node_dropout", "exporter_silent", "ingest_deadman",
)  # fmt: skip
"""Rules for which the stored day has everything that they look at."""

TAGS = "src_group=model_storage,dst_group=external,proto=tcp,service=https,off_hours=no,initiator=src,shard=0"


class Site:
    """A day that is stored: heartbeats and exporters throughout; 60 GB, 30 GB and 12 GB leave for one address each."""

    def __init__(self, folder: Path, server: LocalInfluxDB, database: str) -> None:
        self.folder = folder
        self.config = folder / "cluster.yaml"
        store = f"\nstore:\n  url: {server.url}\n  database: {database}\n"
        self.config.write_text(CASES.read_text(encoding="utf-8") + store, encoding="utf-8")
        cluster = load_cluster(self.config)
        self.store = Store(cluster.store)
        self.store.ensure(tuple(replace(one, keep=0) for one in cluster.retentions()))
        lines = []
        for at in range(BEGINS - 600, BEGINS + 8000, 10):
            ages = {"leaf-1": 3, "leaf-2": 30, "mgmt-sw": 90}
            lines += [f"exporter,exporter={name},shard=0 age={age},records=9i {at}" for name, age in ages.items()]
            lines.append(f"pipeline,stage=bridge,reason=heartbeat,shard=0 value=1 {at}")
        for number, (at, size) in enumerate(((1000, 10), (3000, 5), (5000, 2))):
            somebody = f"egress,src=model-store-1,dst=203.0.113.{number + 1},{TAGS}"
            lines += [f"{somebody} bytes={size}000000000i,duration=9 {BEGINS + at + i * 10}" for i in range(6)]
        self.store.write("\n".join(lines).encode(), "raw")

    def run(self, *arguments: str) -> Result:
        start, end = moment(BEGINS), moment(BEGINS + 7200)
        if "--rule" not in arguments:
            arguments = (*(part for rule_id in BASIC for part in ("--rule", rule_id)), *arguments)
        return CliRunner().invoke(backtest, ["-c", str(self.config), "--from", start, "--to", end, *arguments])

    def report(self, *arguments: str) -> dict[str, object]:
        result = self.run("--json", "-", *arguments)
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert isinstance(found, dict)
        return found


@pytest.fixture
def site(tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str) -> Site:
    return Site(tmp_path, influxdb_v1, fresh_database)


def test_what_would_have_fired(site: Site) -> None:
    report = site.report()
    (firing,) = report["firings"]
    # The sixth 10 GB lie in the window that begins at 1050 s, which is seen 24 s later; 50 GB are left at 1910 s.
    assert firing["fired_at"] == moment(BEGINS + 1080)
    assert firing["ended_at"] == moment(BEGINS + 1970)
    assert (firing["rule"], firing["seconds"], firing["bytes"], firing["duration"]) == (
        "exfil_volume",
        890,
        "60GB",
        "54s",
    )
    assert firing["source"] == "model-store-1 (Model Storage)"
    (timeline,) = report["timelines"]
    assert [(span["state"], span["from"]) for span in timeline["spans"]] == [
        ("Alerting", moment(BEGINS + 1080)),
        ("Recovering", moment(BEGINS + 1910)),
        ("Recovering", moment(BEGINS + 1960)),
    ]
    evaluations = {rule["rule"]: rule["evaluations"] for rule in report["rules"]}
    assert evaluations == dict.fromkeys(BASIC, 721)
    assert "A point counts as seen 24 s after the start of its window" in " ".join(report["assumptions"])


def test_what_is_kept_for_seven_days_is_there_seven_days_ago(site: Site) -> None:
    """`7d` is read a moment before the present time is, and it is the default of what is kept."""
    said = []
    for start in ("7d", "8d"):
        arguments = ["-c", str(site.config), "--rule", "exfil_volume", "--from", start, "--to", "6d"]
        result = CliRunner().invoke(backtest, arguments)
        assert result.exit_code == 0, result.output
        said.append(result.stderr.partition(":")[0])
    assert said == ["", "warning"]


def test_as_stored_is_what_the_rule_tests_do(site: Site) -> None:
    (firing,) = site.report("--as-stored")["firings"]
    assert firing["fired_at"] == moment(BEGINS + 1050)


def test_the_terminal(site: Site) -> None:
    result = site.run("--rule", "exfil_volume", "--sweep", "exfil_volume=10GB,20GB,50GB,1TB")
    assert result.stderr.startswith("warning: raw points are kept for 7d 0h 0m 0s: what is before ")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0].startswith("2026-02-03T12:00:00Z to 2026-02-03T14:00:00Z: 1 rules, 721 evaluations, ")
    assert lines[1] == (
        "2026-02-03T12:18:00Z warning exfil_volume: model-store-1 (Model Storage) -> 203.0.113.1 (Unknown External), "
        "tcp (https), 60GB, 54s; fired for 14m 50s"
    )
    assert lines[-4:] == ["10GB 3", "20GB 2", "50GB (now) 1", "1TB 0"]


def test_a_sweep_of_a_window(site: Site) -> None:
    """The whole rule is built with the other value, its queries and texts too."""
    report = site.report("--rule", "exfil_volume", "--sweep", "exfil_window=30s,15m")
    (sweep,) = report["sweeps"]
    assert [(one["value"], one["firings"], one["is_present"]) for one in sweep["values"]] == [
        ("30s", 0, False), ("15m", 1, True),
    ]  # fmt: skip


def test_a_sweep_only_of_the_rules_in_question(site: Site) -> None:
    report = site.report("--rule", "exporter_silent", "--sweep", "exporter_silent=20s,1m,2m")
    (sweep,) = report["sweeps"]
    assert [(one["value"], one["firings"]) for one in sweep["values"]] == [("20s", 2), ("1m", 1), ("2m", 0)]
    assert isinstance(site.run("--rule", "exfil_volume", "--sweep", "exporter_silent=1s").exception, UserError)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exfil_volume", "expected NAME=VALUE,VALUE"),
        ("exfil_volume=", "expected NAME=VALUE,VALUE"),
        ("exfil_volum=1GB", "neither a threshold of cluster.yaml nor a rule"),
        ("exfil_volume=1", "expected a byte size"),
        ("dropout_spreads=3", "none of these rules compares with it"),
        ("node_dropout=many", "expected numbers"),
    ],
)
def test_a_sweep_that_makes_no_sense(text: str, said: str) -> None:
    with pytest.raises(UserError) as raised:
        settings_of(CLUSTER, RULES, text)
    assert said in " ".join(raised.value.lines())


# Against earlier rules ----------------------------------------------------------------------------


def test_against_another_cluster_yaml(site: Site) -> None:
    other = site.folder / "other.yaml"
    other.write_text(site.config.read_text().replace("exfil_volume: 50 GB", "exfil_volume: 20 GB"))
    result = site.run("--against", str(other), "--fail-on", "changed")
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert f"rules that differ from {other}: exfil_volume" in lines
    assert any(line.startswith("lost   2026-02-03T12:5") and "203.0.113.2" in line for line in lines)
    assert lines[-1] == "0 alerts added, 1 lost, 1 at other times, 0 alike"
    assert site.run("--against", str(site.config), "--fail-on", "changed").exit_code == 0


def test_against_a_revision(site: Site) -> None:
    """The generated file that was committed says what Grafana had."""
    out = site.folder / "provisioning"
    git = ["git", "-C", str(site.folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    CliRunner().invoke(build, ["-c", str(site.config), "--out", str(out)])
    for command in (["init", "-q"], ["add", "provisioning"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    site.config.write_text(site.config.read_text().replace("exfil_volume: 50 GB", "exfil_volume: 10 GB"))
    report = site.report("--against", "HEAD", "--provisioned", str(out))
    against = report["against"]
    assert (against["changed"], against["only_before"], against["only_now"]) == (["exfil_volume"], [], [])
    assert sorted(firing["labels"]["dst"] for firing in against["added"]) == ["203.0.113.2", "203.0.113.3"]
    assert (len(against["lost"]), len(against["moved"])) == (0, 1)
    wrong = site.run("--against", "no-such-revision", "--provisioned", str(out))
    assert isinstance(wrong.exception, UserError)
    assert "neither a file nor a revision" in wrong.exception.message


def test_rules_that_come_and_go(tmp_path: Path) -> None:
    fewer = tmp_path / "fewer.yaml"
    text = CASES.read_text(encoding="utf-8")
    fewer.write_text(text.replace("    role: model_storage\n", "    role: custom\n"))
    before = earlier_rules(str(fewer), tmp_path)
    change = change_of(CLUSTER, before, RULES)
    assert "exfil_volume" in change.only_now
    assert change_of(CLUSTER, RULES, before).only_before == change.only_now
    limits = replace(CLUSTER, thresholds=Thresholds(exporter_silent=60))
    assert change_of(CLUSTER, rules_of(limits).rules, RULES).changed == tuple(
        rule.id for rule, other in zip(RULES, rules_of(limits).rules, strict=True) if rule != other
    )


def test_another_interval_is_a_change() -> None:
    """It stands at the group in Grafana's file, not in the rule, and decides when an alert fires."""
    text = rules_text(CLUSTER, RuleSet(RULES, ()))
    before = rules_from_text(text.replace("interval: 10s", "interval: 1m"), "before")
    change = change_of(CLUSTER, before, rules_from_text(text, "now"))
    often = {rule.id for rule in RULES if rule.interval == 10}
    assert set(change.changed) == often
    assert {rule.id for rule in change.earlier} == often


# Against what was staged --------------------------------------------------------------------------


def _truth(folder: Path, *alerts: dict[str, object]) -> Path:
    path = folder / "truth.json"
    start, end = moment(BEGINS + 1000), moment(BEGINS + 1060)
    entry = {"id": "leak", "kind": "bulk_exfil", "start": start, "end": end, "near_miss": not alerts}
    path.write_text(json.dumps({"incidents": [entry | {"alerts": list(alerts)}]}))
    return path


def _owed(rule: str, due: int, *, must: bool = True) -> dict[str, object]:
    labels = {"src": "model-store-1", "dst": "203.0.113.1"}
    return {"rule": rule, "labels": labels, "due": moment(BEGINS + due), "until": moment(BEGINS + 2000), "must": must}


def test_precision_recall_and_delay(site: Site) -> None:
    truth = _truth(site.folder, _owed("exfil_volume", 1060), _owed("first_external_contact", 1010))
    report = site.report("--truth", str(truth))
    scores = {score["rule"]: score for score in report["score"]["rules"]}
    assert scores["exfil_volume"] == {
        "rule": "exfil_volume", "due": 1, "found": 1, "false": 0, "precision": 1.0, "recall": 1.0, "median_delay": 20,
    }  # fmt: skip
    assert scores["first_external_contact"]["recall"] == 0
    assert [(one["incident"], one["rule"]) for one in report["score"]["missed"]] == [("leak", "first_external_contact")]
    assert (report["firings"][0]["incident"], report["firings"][0]["delay"]) == ("leak", 20)
    assert site.run("--truth", str(truth), "--fail-on", "missed").exit_code == 1
    assert site.run("--truth", str(truth), "--fail-on", "false").exit_code == 0


def test_a_near_miss_that_fires_is_false(site: Site) -> None:
    truth = _truth(site.folder)
    assert site.run("--truth", str(truth), "--fail-on", "missed").exit_code == 0
    assert site.run("--truth", str(truth), "--fail-on", "false").exit_code == 1
    assert site.run("--fail-on", "fired", "--rule", "node_dropout").exit_code == 0
    assert site.run("--fail-on", "fired").exit_code == 1


def test_what_a_rule_owes_that_the_cluster_does_not_have_is_missed(site: Site) -> None:
    """Here nobody has inference, so its rules are not generated."""
    site.config.write_text(site.config.read_text().replace("    role: inference\n", "    role: custom\n"))
    site.store.ensure(load_cluster(site.config).retentions())
    truth = _truth(site.folder, _owed("inference_spike", 1010))
    whole = ["-c", str(site.config), "--from", moment(BEGINS), "--to", moment(BEGINS + 1800), "--truth", str(truth)]
    result = CliRunner().invoke(backtest, [*whole, "--json", "-", "--fail-on", "missed"])
    assert result.exit_code == 1, result.output
    assert [one["rule"] for one in json.loads(result.stdout)["score"]["missed"]] == ["inference_spike"]
    assert CliRunner().invoke(backtest, [*whole, "--rule", "exfil_volume"]).exit_code == 0


def test_a_time_at_which_nothing_is_due_is_no_test(site: Site) -> None:
    """Scenarios have days of their own: without --from nothing could be missed, whatever the rules do."""
    truth = _truth(site.folder, _owed("exfil_volume", 9000))
    said = site.run("--truth", str(truth), "--fail-on", "missed").exception
    assert isinstance(said, UserError)
    assert (
        said.message == "--fail-on missed: nothing of --truth is due from 2026-02-03T12:00:00Z to 2026-02-03T14:00:00Z"
    )
    assert "it is due from 2026-02-03T14:30:00Z" in said.hint
    assert site.run("--truth", str(truth)).exit_code == 0


@pytest.mark.parametrize(
    ("labels", "fired_at", "is_it"),
    [
        ({"src": "a", "dst": "b", "proto": "tcp"}, 150, True),
        ({"src": "a", "dst": "other"}, 150, True),
        ({"src": "a"}, 150, True),
        ({"src": "x", "dst": "b"}, 150, False),
        ({"dst": "other"}, 150, False),
        ({"exporter": "a"}, 150, False),
        ({"src": "a", "dst": "b"}, 99, False),
        ({"src": "a", "dst": "b"}, 301, False),
    ],
)
def test_what_explains_an_alert(labels: dict[str, str], fired_at: int, *, is_it: bool) -> None:
    """Labels that both have agree; a digest may stand for what it does not name."""
    owed = Owed("i", "r", (("src", "a"), ("dst", "b")), start=100, due=120, until=300)
    assert owed.explains("r", labels, fired_at) is is_it
    assert not owed.explains("another", labels, fired_at)


def test_a_file_that_is_no_truth(tmp_path: Path) -> None:
    path = tmp_path / "truth.json"
    for text in ("", "[]", '{"incidents": [{}]}'):
        path.write_text(text)
        with pytest.raises(UserError, match="no ground truth"):
            read_truth(path)


# The report ---------------------------------------------------------------------------------------


def test_the_report_is_one_file_that_needs_no_network(site: Site) -> None:
    truth = _truth(site.folder, _owed("exfil_volume", 1060))
    path = site.folder / "report.html"
    result = site.run(
        "--html", str(path), "--truth", str(truth), "--sweep", "exfil_volume=10GB,50GB", "--against", str(CASES)
    )
    assert result.exit_code == 0, result.output
    text = path.read_text(encoding="utf-8")
    body = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=", text[: text.index("<script>")] + body)
    assert "Plotly.newPlot" in text
    for words in (
        "model-store-1 (Model Storage)", "203.0.113.1 (Unknown External)", "60GB", "54s", "Against what was staged",
        "How many alerts, by", "What this rests on", "the rules are alike", "leak",
    ):  # fmt: skip
        assert words in body, words


def test_names_of_others_are_not_markup(site: Site) -> None:
    line = f"egress,src=<b>x</b>,dst=203.0.113.9,{TAGS} bytes=70000000000i,duration=9 {BEGINS + 6000}"
    site.store.write(line.encode(), "raw")
    path = site.folder / "report.html"
    assert site.run("--html", str(path)).exit_code == 0
    text = path.read_text(encoding="utf-8")
    assert "&lt;b&gt;x" in text
    assert "<b>x</b>" not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert "</b>x" not in text


def test_a_time_of_which_nothing_is_stored_is_not_called_quiet(site: Site) -> None:
    """Two hours before the first point."""
    start, end = BEGINS - 30_000, BEGINS - 22_800
    arguments = ["-c", str(site.config), "--from", moment(start), "--to", moment(end), "--rule", "exfil_volume"]
    said = f"nothing is stored from {moment(start)} to {moment(end)}: what would have fired cannot be told"
    result = CliRunner().invoke(backtest, arguments)
    assert result.exit_code == 0, result.output
    assert said in result.output
    assert "nothing would have fired" not in result.output
    refused = CliRunner().invoke(backtest, [*arguments, "--fail-on", "fired"]).exception
    assert isinstance(refused, UserError)
    assert refused.message == f"--fail-on fired: {said}"
    assert f"N{said[1:]}." in CliRunner().invoke(backtest, [*arguments, "--json", "-"]).stdout
    assert "nothing would have fired" in site.run("--rule", "node_dropout").output


def test_a_range_that_is_none(site: Site) -> None:
    result = CliRunner().invoke(backtest, ["-c", str(site.config), "--from", "1h", "--to", "2h"])
    assert isinstance(result.exception, UserError)
    assert isinstance(site.run("--rule", "exfil_volum").exception, UserError)
    assert isinstance(site.run("--fail-on", "missed").exception, UserError)
    assert isinstance(site.run("--fail-on", "changed").exception, UserError)
