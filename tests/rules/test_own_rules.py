"""Rules of the site's own: what cluster.yaml names is built like the others, and mistakes are told in one line."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from app.errors import UserError
from cluster.load import load_cluster
from cluster.model import Role
from operations.check_cli import check
from operations.cli import build
from rules.evaluate.case_runs import run_case
from rules.evaluate.cases import load_cases
from rules.grafana.encode import rules_text
from rules.registry import IDS, rules_of
from store.local_influxdb import LocalInfluxDB

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs/extending.md"
CASES = (HERE / "cluster.yaml").read_text(encoding="utf-8")


def _example() -> str:
    rule, _board = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    return str(rule)


def _site(folder: Path, code: str, name: str = "backup_size") -> Path:
    (folder / "my_rules").mkdir(exist_ok=True)
    path = folder / f"my_rules/{name}.py"
    path.write_text(code, encoding="utf-8")
    path.chmod(0o644)
    config = folder / "cluster.yaml"
    config.write_text(f"{CASES}\nrules: [my_rules/{name}.py]\n", encoding="utf-8")
    return config


def test_the_example_of_the_docs_is_built_after_ours(tmp_path: Path) -> None:
    config = _site(tmp_path, _example())
    rules = rules_of(load_cluster(config)).rules
    assert tuple(rule.id for rule in rules) == (*IDS, "backup_size")
    result = CliRunner().invoke(build, ["--config", str(config), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    groups = yaml.safe_load((tmp_path / "out/grafana/alerting/rules.yaml").read_text())["groups"]
    assert [rule["uid"] for group in groups if group["name"] == "site" for rule in group["rules"]] == ["backup_size"]


def test_the_example_is_tested_like_ours(tmp_path: Path, influxdb_v1: LocalInfluxDB) -> None:
    _site(tmp_path, _example())
    cases = tmp_path / "backup_size.yaml"
    cases.write_text(
        """
rule: backup_size
cases:
  - name: 201 GB
    points:
      - series: traffic,src_group=management,dst_group=storage,proto=tcp,service=other,plane=storage,shard=0
        fields: {bytes: 201000000000}
        from: 0
    expect:
      - at: 0
        alerts:
          - state: Alerting
            active_at: 0
            fired_at: 0
            labels: {src_group: management, dst_group: storage, proto: tcp}
            annotations: {summary: management backed up 201GB within an hour.}
""",
        encoding="utf-8",
    )
    (case,) = load_cases(cases, tmp_path / "nowhere.yaml")
    assert run_case(case, influxdb_v1.url).differences == ()


def test_a_cluster_without_its_groups_says_so(tmp_path: Path) -> None:
    cluster = load_cluster(_site(tmp_path, _example()))
    bare = replace(cluster, groups=tuple(group for group in cluster.groups if group.role is not Role.MANAGEMENT))
    assert "backup_size: the whole rule: no management or no storage group" in map(str, rules_of(bare).skipped)


OTHER_ID = _example().replace("id=ID", 'id="another"').replace("Threshold(ID", 'Threshold("another"')
NO_THRESHOLD = _example().replace("Threshold(ID", 'Threshold("backup_limit"')


NO_PANEL = _example().replace('panel_ref("explore", "groups_over_time")', "None")
WRONG_PANEL = _example().replace('"groups_over_time"', '"wrong"')
NO_TEXT = _example().replace('"Backup is larger than it ever was"', "object()")
NO_TITLE = _example().replace('"Backup is larger than it ever was"', '""')
NO_RANGE = _example().replace("since=WINDOW", "since=WINDOW, until=WINDOW")
HALF_SECONDS = _example().replace("since=WINDOW", "since=WINDOW / 2")
TWO_COLUMNS = _example().replace(
    ".take(total(schema.BYTES))", ".take(total(schema.BYTES), total(schema.FLOWS))"
)  # fmt: skip


def _with(more: str) -> str:
    return _example().replace('group_by=("rule",),', f'group_by=("rule",), {more},')


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("ID = 'other'", "ID is 'other': expected 'backup_size', as the file is named"),
        ("pass", "ID is None: expected 'backup_size'"),
        ("ID = 'backup_size'", "no function build(cluster)"),
        ("ID = 'backup_size'\ndef build(cluster):\n    return 1\n", "build() returned int: expected a RuleSet"),
        ("ID = 'backup_size'\ndef build(cluster):\n    return cluster.gruops\n", ":3: AttributeError: "),
        ("ID = 'backup_size'\nimport nothing_of_this_name\n", ":2: ModuleNotFoundError: "),
        ("ID = 'backup_size'\ndef build(cluster:\n", "SyntaxError: "),
        (OTHER_ID, "rules of other ids: another"),
        # What only Grafana's file cannot hold.
        (NO_PANEL, ":22: ValueError: Rule: panel is NoneType: expected PanelRef"),
        (NO_TEXT, ":22: ValueError: Rule: title is object: expected str"),
        (_example().replace("Severity.WARNING", '"warning"'), ":22: ValueError: Rule: severity is 'warning': expected"),
        (_example().replace('("rule",)', '("rule")'), ":22: ValueError: Rule: group_by is 'rule': expected tuple"),
        (_example().replace("since=WINDOW),)", "since=WINDOW))"), "Rule: measures is Measure: expected tuple"),
        (re.sub(r"\.per_series\(.*?\)", "", _example()), ":27: ValueError: Measure: query is Select: expected Query"),
        (_example().replace("Comparison.ABOVE", '">"'), ":28: ValueError: Threshold: comparison is '>': expected"),
        (_example().replace("ABOVE, LIMIT", 'ABOVE, "200GB"'), ":28: ValueError: threshold backup_size is '200GB': ex"),
        (_example().replace("ABOVE, LIMIT", 'ABOVE, float("inf")'), ":28: ValueError: threshold backup_size is inf: e"),
        (_example().replace("(rule,), ()", "(rule, rule), ()"), ": build() returned 2 rules: expected one a file"),
        (_example().replace('"explore", ', '"explor", '), ":38: KeyError: no board 'explor'; there are noc_wall, expl"),
        (_example().replace("since=WINDOW", "since=691_200"), ": measure bytes looks 8d back: raw is kept for 7d"),
        # What a message would show.
        (_example().replace("$labels.{schema.PROTO}", "$labels.port"), ": alerts have no label 'port'; there are src"),
        (_example().replace("{schema.PROTO} }}}}", "{schema.PROTO} }}"), ": TemplateError: an action is not closed"),
        (re.sub('what_to_do=".*?"', 'what_to_do=""', _example()), ": the rule does not say: what_to_do"),
        (WRONG_PANEL, ":38: KeyError: cf-explore: no panel 'wrong'; there are question, nodes"),
        (NO_THRESHOLD, "cluster.yaml has no threshold 'backup_limit'"),
        # What Grafana refuses: it does not start then.
        (NO_TITLE, "backup_size: title '', family 'site': expected both"),
        (NO_RANGE, "measure bytes: from 3600 s to 3600 s ago: expected whole seconds, since > until"),
        (HALF_SECONDS, "measure bytes: from 1800.0 s to 0 s ago: expected whole seconds, since > until"),
        (_with("interval=15"), "backup_size: interval is 15: expected a multiple of 10 s"),
        (_with("pending_for=-60"), "backup_size: pending_for is -60: expected a whole number, at least 0"),
        (_with("missing_evaluations=0"), "missing_evaluations is 0: expected a whole number, at least 1"),
        # What it answers with an error at each evaluation.
        (TWO_COLUMNS, "measure bytes: its query has the columns bytes and flows: expected one, a measure each"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_one_line(tmp_path: Path, code: str, said: str) -> None:
    cluster = load_cluster(_site(tmp_path, code))
    with pytest.raises(UserError, match=re.escape(said)) as raised:
        rules_of(cluster)
    (line,) = raised.value.lines()
    assert line.startswith(f"{tmp_path}/my_rules/backup_size.py")


@pytest.mark.thorough
def test_a_number_that_may_be_missing_is_told(tmp_path: Path) -> None:
    bare = _example().replace("{texts.bytes_of('bytes')}", "{{{{ $values.bytes.Value }}}}")
    said = {}
    for name, code in (("good", _example()), ("bare", bare)):
        (tmp_path / name).mkdir()
        result = CliRunner().invoke(check, ["--config", str(_site(tmp_path / name, code))])
        assert result.exit_code == 0, result.output
        said[name] = [line for line in result.stderr.splitlines() if "backup_size" in line]
    assert said["good"] == []
    (line,) = said["bare"]
    assert "rule backup_size: annotation summary has $values.B.Value: where Grafana has no number it fails" in line


def test_the_rule_whose_interval_is_not_its_familys_is_named(tmp_path: Path) -> None:
    cluster = load_cluster(_site(tmp_path, _example().replace('family="site"', 'family="slow"')))
    with pytest.raises(UserError) as raised:
        rules_text(cluster, rules_of(cluster))
    assert str(raised.value.lines()[0]) == (
        "rule backup_size has an interval of 10 s, rule low_and_slow_24h of the same family, slow, of 60 s: expected "
        "one interval a family (a rule of one's own may have a family of its own)"
    )


def test_an_id_of_ours_is_taken(tmp_path: Path) -> None:
    cluster = load_cluster(_site(tmp_path, "ID = 'exfil_volume'", "exfil_volume"))
    with pytest.raises(UserError, match="there is a rule of this id already"):
        rules_of(cluster)


def test_a_file_that_everybody_may_change_is_not_run(tmp_path: Path) -> None:
    cluster = load_cluster(_site(tmp_path, "raise SystemExit('it was run')"))
    Path(cluster.rules[0]).chmod(0o666)
    with pytest.raises(UserError, match="everybody may change this file"):
        rules_of(cluster)
    Path(cluster.rules[0]).unlink()
    with pytest.raises(UserError, match="No such file"):
        rules_of(cluster)
