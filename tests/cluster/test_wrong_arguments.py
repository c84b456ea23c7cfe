"""Wrong arguments are told as such, by every command that asks a store, also while no store answers."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner, Result

from bench.scorecard import main as scorecard
from cluster import options
from clusterflow import main
from store.local_influxdb import free_port

CLUSTER = """\
cluster: lab
groups:
  training: {{role: training, prefixes: [10.20.0.0/16]}}
  models: {{role: model_storage, prefixes: [10.40.0.0/24], sensitive: true}}
  canary: {{role: canary, prefixes: [10.50.0.0/24]}}
  drill: {{role: drill, prefixes: [10.51.0.0/24]}}
nodes:
  "gpu-{{0..5}}": {{group: training, addresses: ["10.20.0.{{1..6}}"]}}
  "canary-{{0..1}}": {{group: canary, addresses: ["10.50.0.{{1..2}}"]}}
exporters:
  leaf-1: {{address: 127.0.0.1}}
store: {{url: "{url}"}}
grafana: {{url: "{url}"}}
bridge: {{state: {folder}/state}}
collector: {{spool: {folder}/spool}}
"""
CASES = """\
rule: exfil_volume
cases:
  - name: of a scenario that there is not
    scenario: nosuch
    firings: []
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """cluster.yaml of a store, and a Grafana, that nobody started."""
    monkeypatch.setenv("CLUSTERFLOW_GRAFANA_TOKEN", "x")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER.format(url=f"http://127.0.0.1:{free_port()}", folder=tmp_path))
    (tmp_path / "cases.yaml").write_text(CASES)
    return path


def run(config: Path, arguments: str) -> Result:
    command, *rest = arguments.split()
    return CliRunner().invoke(main, [command, "-c", str(config), *rest])


PERIOD = "the period is empty (--from must be before --to"
FOLDER = "there is no folder no (make it, or name a file elsewhere)"

WRONG = {
    "analyze --from now --to 7d": PERIOD,
    "analyze --from 1d --to 2d": PERIOD,
    "analyze --from 2100-01-01": PERIOD,
    "analyze --to 1d": "--to needs --from",
    "analyze --from 400d": "the range begins before the raw retention",
    "analyze --from 1s": "the range holds no closed window",
    "analyze --from nan": "nan: expected a time",
    "analyze --every 0s": "--every 0s: expected more than 0 seconds",
    "audit --from 1d --to 2d": PERIOD,
    "audit --from 9000d": "the period begins before anything that is kept",
    "audit --from nan": "nan: expected a time",
    "audit --to 1e30": "1e30: expected a time",
    "audit --csv no/a.csv": f"--csv no/a.csv: {FOLDER}",
    "audit --json no/a.json": f"--json no/a.json: {FOLDER}",
    "audit --fail-on nosuch": "'nosuch' is not one of",
    "access --from 1d --to 2d": PERIOD,
    "access --csv no/a.csv": f"--csv no/a.csv: {FOLDER}",
    "access --json no/a.json": f"--json no/a.json: {FOLDER}",
    "report --from 1d --to 2d": PERIOD,
    "report --from nan": "nan: expected a time",
    "report --from soon": "--from soon: expected a time",
    "report --from 9000d": "the period begins before anything that is kept",
    "report --output no/x.html": f"no/x.html: {FOLDER}",
    "explore --src nosuch": "--src nosuch: no such group",
    "explore --dst nosuch": "--dst nosuch: no such group",
    "explore --from soon": "--from soon: expected a time",
    "explore --from 0s": PERIOD,
    "explore --from 999999999d": "--from 999999999d: expected a time",
    "explore --service https": "--service https: nodes are kept without services",
    "explore --plane nosuch": "'nosuch' is not one of",
    "backtest --rule nosuch": "--rule nosuch: the cluster has no such rule",
    "backtest --sweep exfil_volume": "--sweep exfil_volume (expected NAME=VALUE",
    "backtest --sweep exfil_volume=ten": "--sweep exfil_volume=ten (expected a byte size",
    "backtest --sweep exporter_silent=nan": "--sweep exporter_silent=nan (expected",
    "backtest --sweep nosuch=1": "--sweep nosuch: neither a threshold of cluster.yaml nor a rule",
    "backtest --against nosuch": "--against nosuch: no such file",
    "backtest --truth cluster.yaml": "cluster.yaml: no ground truth",
    "backtest --from 1d --to 2d": "expected a time before --to",
    "backtest --from nan": "nan: expected a time",
    "backtest --html no/x.html": f"--html no/x.html: {FOLDER}",
    "backtest --json no/x.json": f"--json no/x.json: {FOLDER}",
    "backtest --fail-on missed": "--fail-on missed, false: against what?",
    "backtest --url {nobody}": "--url: of what? (add --scenario NAME)",
    "backtest --seed 3": "--seed: of what? (add --scenario NAME)",
    "backtest --scenario node-death --url influx": "--url influx: expected an http:// or https:// address",
    "backtest --scenario nosuch --url {nobody}": "nosuch: no such scenario",
    "backtest --scenario node-death --url {nobody} --rule nosuch": "--rule nosuch: the cluster has no such rule",
    "backtest --scenario node-death --url {nobody} --from 1d": "--scenario: has a time and a truth of its own",
    "test-rules --url influx cases.yaml": "--url influx: expected an http:// or https:// address",
    "test-rules --url {nobody} cases.yaml": "nosuch: no such scenario",
    "test-rules --url {nobody} --rule nosuch cases.yaml": "no case is chosen",
    "canary --within 0s": "--within 0s: expected more than 0 seconds",
    "canary --exporter nosuch": "nosuch",
    "canary --netflow nosuch": "nosuch: expected HOST:PORT",
    "playlist --grafana-url grafana": "--grafana-url grafana: expected an http:// or https:// address",
    "playlist --interval soon": "--interval soon: expected a duration",
    "playlist --token-file nosuch": "secret file nosuch: No such file",
    "simulate --scenario node-death --into-store --influx-url influx": "--influx-url influx: expected an http://",
    "simulate --scenario node-death --into-store --database a/b": "--database a/b: expected a database name",
    "simulate --scenario node-death --into-store --database clusterflow": "--database clusterflow: cluster.yaml's own",
    "simulate --scenario node-death --into-store --truth no/t.json": f"--truth no/t.json: {FOLDER}",
    "simulate --scenario node-death --into-store --write-cluster no/c.yaml": f"--write-cluster no/c.yaml: {FOLDER}",
    "simulate --scenario nosuch --into-store": "nosuch: no such scenario",
}
"""A command line -> what its one line must say."""


@pytest.mark.parametrize("arguments", WRONG)
def test_a_mistake_is_named_where_no_store_answers(config: Path, arguments: str) -> None:
    result = run(config, arguments.format(nobody=f"http://127.0.0.1:{free_port()}"))
    assert result.exit_code == 2, result.output
    assert WRONG[arguments] in result.stderr
    assert "does not answer" not in result.output


@pytest.mark.parametrize(
    "command",
    ["analyze --once", "audit", "access", "report", "explore", "backtest", "playlist", "status", "canary", "drill"],
)
def test_what_is_right_is_told_that_the_store_is_away(config: Path, command: str) -> None:
    """The other half: such commands do ask."""
    result = run(config, command)
    assert result.exit_code == 1, result.output
    assert "does not answer" in result.output
    assert "in cluster.yaml" in result.output


def test_a_store_whose_name_is_unknown_is_not_told_to_be_down(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "its name does not resolve (" in run(config, "status").output


@pytest.mark.parametrize("arguments", [["nosuch"], ["node-death", "nosuch"], ["--url", "influx"]])
def test_the_scorecard_begins_no_hours_of_work_for_a_mistake(arguments: list[str]) -> None:
    result = CliRunner().invoke(
        scorecard, ["--check", "--seed", "0", "--url", f"http://127.0.0.1:{free_port()}", *arguments]
    )
    assert type(result.exception).__name__ == "UserError"
    assert any(word in str(result.exception) for word in ("nosuch: no such scenario", "--url influx: expected"))


def option_list(command: click.Command) -> Iterator[click.Option]:
    yield from (one for one in command.params if isinstance(one, click.Option))
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from option_list(found)


def test_every_option_that_takes_an_address_or_a_name_of_the_store_is_checked_like_its_key() -> None:
    checked = [one for one in (*option_list(main), *option_list(scorecard)) if one.metavar == "URL"]
    assert {one.opts[0] for one in checked} == {"--influx-url", "--url", "--grafana-url"}
    assert all(one.type is options.URL for one in checked)
    others = {"--database": options.DATABASE, "--shard": options.SHARD, "--metrics-listen": options.LISTEN_OR_OFF}
    for one in option_list(main):
        assert one.type is others.get(one.opts[0], one.type), one.opts
