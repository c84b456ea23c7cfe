"""`clusterflow test-rules`: what a file may say, and what is told where an outcome is not as expected."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.errors import ConfigError, UserError
from cluster.model import StoreSettings
from clusterflow import main
from rules.evaluate.case_runs import run_case
from rules.evaluate.cases import BEGINS, CaseKind, load_cases, missing_kinds
from simulate.rule_checks_cli import test_rules as command
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

CLUSTER = Path(__file__).parent / "cluster.yaml"
SERIES = (
    "egress,src=model-store-1,src_group=model_storage,dst=203.0.113.9,dst_group=external,proto=tcp,service=https,"
    "off_hours=no,initiator=src,shard=0"
)
LABELS = (
    "{src: model-store-1, src_group: model_storage, dst: 203.0.113.9, dst_group: external, proto: tcp, service: https, "
    "country: '', network: '', feed: ''}"
)


def _file(folder: Path, cases: str, head: str = "") -> Path:
    path = folder / "mine.yaml"
    path.write_text(f"rule: exfil_volume\n{head}cases:\n{cases}", encoding="utf-8")
    return path


def _case(name: str, expected: str, *, size: int = 60_000_000_000, more: str = "") -> str:
    return (
        f"  - name: {name}\n    points:\n"
        f"      - {{series: '{SERIES}', fields: {{bytes: {size}, duration: 10}}, from: 0}}\n"
        f"{more}{expected}"
    )


POINTS = "  - {name: a, points: [{%s, from: 0}], until: 0, firings: []}\n"
FIRES = f"    expect: [{{at: 0, alerts: [{{state: Alerting, active_at: 0, fired_at: 0, labels: {LABELS}}}]}}]\n"


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["--config", str(CLUSTER), *arguments])


# What a file may say ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        ("  - {name: a, points: [], expekt: []}\n", "mine.yaml:3: cases[0].expekt: unknown key: expected a key of"),
        ("  - {name: a, points: []}\n", "cases[0]: nothing expected: expected expect or firings"),
        ("  - {name: a, expect: []}\n", "cases[0]: neither: expected points or a scenario"),
        ("  - {name: a, points: [], scenario: b, expect: []}\n", "cases[0]: both: expected points or a scenario"),
        ("  - {name: a, points: [], expect: []}\n", "cases[0].until: missing: expected the last evaluation"),
        (
            POINTS % "series: egres, fields: {bytes: 1}",
            ("series: egres: expected a measurement of docs/reference/measurements.md and its tags "
            "(did you mean egress?)"),
        ),
        (
            POINTS % "series: 'egress,source=x', fields: {bytes: 1}",
            "expected the tags of egress: src, src_group",
        ),
        (
            POINTS % "series: egress, fields: {byts: 1}",
            "cases[0].points[0].fields.byts: unknown field: expected a field of egress (did you mean bytes?)",
        ),
        (
            POINTS % "series: egress, fields: {bytes: many}",
            "cases[0].points[0].fields.bytes: many: expected a number",
        ),
        (
            POINTS % "series: egress, fields: {bytes: 1}, until: -10",
            "cases[0].points[0].until: -10: expected not before `from`, 0",
        ),
        (
            "  - {name: a, points: [], start: 60, until: 50, firings: []}\n",
            "cases[0].until: 50: expected not before the first evaluation, 60",
        ),
        (
            "  - {name: a, points: [], until: 0, firings: [{labels: {}, start: [9, 3]}]}\n",
            "cases[0].firings[0].start: a list: expected whole seconds, or [earliest, latest]",
        ),
        (
            "  - {name: a, points: [], expect: [{at: 0, alerts: [{state: Alertin}]}]}\n",
            "alerts[0].state: Alertin: expected Pending, Alerting, Recovering, NoData or Error (did",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(tmp_path: Path, cases: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_cases(_file(tmp_path, cases), CLUSTER)
    assert any(said in line for line in raised.value.lines()), raised.value.lines()


def test_a_files_cluster(tmp_path: Path) -> None:
    """The one that it names; else the one beside it; else that of --config."""
    path = _file(tmp_path, _case("a", FIRES))
    (case,) = load_cases(path, CLUSTER)
    assert case.cluster == CLUSTER
    (tmp_path / "cluster.yaml").touch()
    (case,) = load_cases(path, CLUSTER)
    assert case.cluster == tmp_path / "cluster.yaml"
    (case,) = load_cases(_file(tmp_path, _case("a", FIRES), "cluster: other.yaml\n"), CLUSTER)
    assert case.cluster == tmp_path / "other.yaml"
    assert (case.begins, case.line) == (BEGINS, 4)


def test_what_cases_cover(tmp_path: Path) -> None:
    text = _case("all of it leaves", FIRES) + "  - {name: near miss, points: [], expect: [{at: 0, alerts: []}]}\n"
    cases = load_cases(_file(tmp_path, text), CLUSTER)
    assert [case.kinds() for case in cases] == [{CaseKind.FIRES}, {CaseKind.NEAR_MISS}]
    assert [str(one) for one in missing_kinds(cases)] == ["exfil_volume: no case that covers: no data, query error"]


def test_texts_and_windows_of_other_lengths(tmp_path: Path) -> None:
    text = (
        "  - name: a\n    begins: 2026-03-29T00:30:00Z\n    points:\n"
        "      - {series: 'ledger,src=a,dst=b', fields: {artefact: 'a \"b\"', bytes_7d: 5}, "
        "from: 0, until: 600, every: 300}\n"
        "      - {series: 'traffic,src_group=a', fields: {bytes: 5}, from: 0, retention: 1h}\n"
        "    until: 0\n    firings: []\n"
    )
    (case,) = load_cases(_file(tmp_path, text), CLUSTER)
    lines = case.lines()
    assert lines["raw"].decode().splitlines() == [
        f'ledger,src=a,dst=b artefact="a \\"b\\"",bytes_7d=5i {1774744200 + at}' for at in (0, 300, 600)
    ]
    assert lines["1h"] == b"traffic,src_group=a bytes=5i 1774744200"


# What is told -------------------------------------------------------------------------------------


def test_every_difference_is_told(tmp_path: Path, influxdb_v1: LocalInfluxDB) -> None:
    expected = f"""\
    expect:
      - at: 0
        alerts:
          - {{state: Pending, active_at: 0, labels: {LABELS}, values: {{bytes: 61e9}}, annotations: {{bytes: 61GB}}}}
          - {{state: Alerting, labels: {{src: somebody}}}}
      - {{at: 10, alerts: []}}
      - {{at: 15, alerts: []}}
"""
    (case,) = load_cases(_file(tmp_path, _case("a", expected)), CLUSTER)
    labels = (
        "{country=, dst=203.0.113.9, dst_group=external, feed=, network=, proto=tcp, service=https, src=model-store-1, "
        "src_group=model_storage}"
    )
    summary = (
        "model-store-1 (Model Storage) sent 60GB to 203.0.113.9 (Unknown External) within 15m: more than 50 GB to an "
        "address that nobody approved."
    )
    assert run_case(case, influxdb_v1.url).differences == (
        "at 0 s:",
        f"  {labels}:",
        "    state:", "      - Pending", "      + Alerting",
        "    fired_at:", "      - nothing", "      + 0",
        "    values.bytes:", "      - 61000000000.0", "      + 60000000000.0",
        "    annotations.bytes:", "      - 61GB", "      + 60GB",
        "  missing: Alerting {src=somebody}",
        "at 10 s:",
        f"  not expected: Alerting {labels} since 0 s: {summary}",
        "at 15 s: never evaluated; the rule is evaluated every 10 s",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("firings", "differences"),
    [
        (f"[{{labels: {LABELS}, start: 0, end: 970, annotations: {{bytes: 60GB}}, last: {{duration: 10s}}}}]", 0),
        (f"[{{labels: {LABELS}, start: [0, 20], end: [900, 1000]}}]", 0),
        (f"[{{labels: {LABELS}, start: [10, 20], end: 970}}]", 4),
        (f"[{{labels: {LABELS}, start: 0}}]", 4),
        (f"[{{labels: {LABELS}, start: 0, end: 970, last: {{bytes: 1GB}}}}]", 4),
        ("[]", 1),
        (f"[{{labels: {LABELS}, start: 0, end: 970}}, {{labels: {LABELS}, start: 2000}}]", 1),
    ],
)
def test_firings_from_beginning_to_end(
    tmp_path: Path, influxdb_v1: LocalInfluxDB, firings: str, differences: int
) -> None:
    text = _case("a", f"    until: 1000\n    firings: {firings}\n")
    (case,) = load_cases(_file(tmp_path, text), CLUSTER)
    told = run_case(case, influxdb_v1.url).differences
    assert len(told) == differences, told


def test_a_rule_that_there_is_not(tmp_path: Path, influxdb_v1: LocalInfluxDB) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("rule: exfil_volum\ncases:\n" + _case("a", FIRES), encoding="utf-8")
    (case,) = load_cases(path, CLUSTER)
    with pytest.raises(UserError, match="the cluster has none of this id"):
        run_case(case, influxdb_v1.url)


# The command --------------------------------------------------------------------------------------


def test_exit_codes(tmp_path: Path, influxdb_v1: LocalInfluxDB) -> None:
    path = _file(tmp_path, _case("it leaves", FIRES) + _case("a byte too much", FIRES, size=50_000_000_000))
    result = _run(str(path), "--url", influxdb_v1.url)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0] == f"FAILED  {path}:7: exfil_volume: a byte too much"
    assert "exfil_volume: no case that covers: near miss, no data, query error" in lines
    assert lines[-1].startswith("2 cases: 1 as expected, 1 not (")
    told = json.loads(_run(str(path), "--url", influxdb_v1.url, "--json").stdout)
    assert [(one["case"], bool(one["differences"])) for one in told["cases"]] == [
        ("it leaves", False),
        ("a byte too much", True),
    ]
    asked = ["--config", str(CLUSTER), str(path), "--url", influxdb_v1.url, "--case", "leaves"]
    good = CliRunner().invoke(main, ["test-rules", *asked, "-v"])
    assert good.exit_code == 0
    assert good.output.splitlines()[0] == f"ok      {path}:3: exfil_volume: it leaves"
    assert _run(str(path), "--url", influxdb_v1.url, "--rule", "exfil_volume", "--case", "leaves").exit_code == 0
    assert isinstance(_run(str(path), "--rule", "nothing").exception, UserError)
    # One of two that is misspelt would pass, too, and --complete with it.
    both = _run(str(path), "--rule", "exfil_volume", "--rule", "exfiltrations", "--complete").exception
    assert isinstance(both, UserError)
    assert both.message == "no case is chosen by --rule exfiltrations"
    path.write_text("rule: x\ncases: []\n")
    assert isinstance(_run(str(path)).exception, ConfigError)
    (tmp_path / "empty").mkdir()
    assert isinstance(_run(str(tmp_path / "empty")).exception, UserError)


def test_values_are_compared_to_the_byte(tmp_path: Path, influxdb_v1: LocalInfluxDB) -> None:
    """Of 60 GB, too: sums of floats differ by their order, but not by that."""
    told = FIRES.replace("fired_at: 0,", "fired_at: 0, values: {bytes: 60000000000},")
    for size, code in ((60_000_000_000, 0), (60_000_000_001, 1)):
        path = _file(tmp_path, _case("it leaves", told, size=size))
        assert _run(str(path), "--url", influxdb_v1.url).exit_code == code


def test_incomplete_cases_fail_where_that_is_asked(tmp_path: Path, influxdb_v1: LocalInfluxDB) -> None:
    path = _file(tmp_path, _case("it leaves", FIRES))
    assert _run(str(path), "--url", influxdb_v1.url).exit_code == 0
    assert _run(str(path), "--url", influxdb_v1.url, "--complete").exit_code == 1
    assert _run(str(path), "--url", influxdb_v1.url, "--complete", "--rule", "exfil_volume").exit_code == 1


def test_nothing_is_left_in_the_store(tmp_path: Path, influxdb_v1: LocalInfluxDB) -> None:
    _run(str(_file(tmp_path, _case("it leaves", FIRES))), "--url", influxdb_v1.url)

    names = [
        row[0] for series in Store(StoreSettings(url=influxdb_v1.url)).query("SHOW DATABASES") for row in series.values
    ]
    assert not [name for name in names if name.startswith("case_")]
