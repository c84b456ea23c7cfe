"""The systemd units: what they start exists, systemd accepts them, and they are closed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from cluster.model import BridgeSettings, CollectorSettings
from clusterflow import main
from ingest.collect import supervise
from ingest.collect.pmacct import NFACCTD, SFACCTD

REPOSITORY = Path(__file__).resolve().parents[2]
KNOWN = {name: main.get_command(click.Context(main), name) for name in main.list_commands(click.Context(main))}
GUARD = REPOSITORY / "provisioning/systemd/clusterflow-guard.service"
"""Runs as root, on purpose: it has the rights that the collector's unit has not."""
DRILL = REPOSITORY / "provisioning/systemd/clusterflow-drill.service"
"""Runs once, by its timer."""
UNITS = sorted({*(REPOSITORY / "provisioning/systemd").glob("*.service")} - {GUARD, DRILL})
MOST_EXPOSED = 2.0
"""systemd's own measure of what a service could reach, from 0 to 10; it calls everything below 2.5 safe."""

COMMANDS = {
    "clusterflow-analyze": "analyze",
    "clusterflow-collect": "collect",
    "clusterflow-deliver": "deliver",
    "clusterflow-ingest": "ingest",
    "clusterflow-relay": "relay",
    "clusterflow-worker@": "ingest",
}
"""What each unit runs."""

IN_COMPOSE = {
    "clusterflow-analyze": "analysis",
    "clusterflow-collect": "collector",
    "clusterflow-deliver": "deliver",
    "clusterflow-ingest": "bridge",
    "clusterflow-relay": "relay",
    "clusterflow-worker@": "worker",
}
"""The service that runs the same in containers."""

WITH_SPOOL = ("clusterflow-collect", "clusterflow-ingest", "clusterflow-relay")

each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def _settings(unit: Path) -> dict[str, list[str]]:
    """Return every setting of a unit; a name may stand several times."""
    settings: dict[str, list[str]] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"(\w+)=(.*)", line):
            settings.setdefault(match[1], []).append(match[2])
    return settings


def test_there_is_a_unit_for_each_daemon() -> None:
    assert [unit.stem for unit in UNITS] == list(COMMANDS)


def test_the_recipe_installs_every_file() -> None:
    patterns = re.findall(r"provisioning/systemd/\S+", (REPOSITORY / "docs/deployment.md").read_text(encoding="utf-8"))
    installed = {path for pattern in patterns for path in REPOSITORY.glob(pattern)}
    assert installed == set((REPOSITORY / "provisioning/systemd").iterdir())


@each_unit
def test_unit_starts_one_of_our_commands(unit: Path) -> None:
    (start,) = _settings(unit)["ExecStart"]
    program, command, option, path, *more = start.split()
    assert program == "/opt/clusterflow/bin/clusterflow"
    assert command == COMMANDS[unit.stem]
    options = {option for parameter in KNOWN[command].params for option in parameter.opts}
    assert {option, *(word for word in more if word.startswith("-"))} <= options
    assert path == "/etc/clusterflow/cluster.yaml"


def test_the_guard_has_the_rights_that_the_filter_takes_and_no_more() -> None:
    settings = _settings(GUARD)
    assert settings["ExecStart"] == ["/opt/clusterflow/bin/clusterflow guard -c /etc/clusterflow/cluster.yaml"]
    rights = {"CAP_BPF", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "CAP_DAC_OVERRIDE"}
    assert set(settings["CapabilityBoundingSet"][0].split()) == rights
    assert settings["ReadWritePaths"] == ["/var/spool/clusterflow"]
    assert "secrets" in settings["InaccessiblePaths"][0]


def test_the_drill_runs_once_a_month_with_a_file_of_its_own_secrets() -> None:
    settings = _settings(DRILL)
    assert settings["ExecStart"] == ["/opt/clusterflow/bin/clusterflow drill -c /etc/clusterflow/cluster.yaml"]
    assert settings["Type"] == ["oneshot"]
    assert settings["EnvironmentFile"] == ["-/etc/clusterflow/drill.env"]
    assert _settings(DRILL.with_suffix(".timer"))["OnCalendar"] == ["Tue *-*-01..07 10:00:00"]


@each_unit
def test_unit_restarts_unless_the_configuration_is_wrong(unit: Path) -> None:
    settings = _settings(unit)
    assert settings["Restart"] == ["on-failure"]
    assert settings["RestartPreventExitStatus"] == ["2"]
    assert settings["StartLimitIntervalSec"] == ["0"]


@each_unit
def test_unit_can_write_where_the_defaults_point(unit: Path) -> None:
    settings = _settings(unit)
    state = [f"/var/lib/{name}" for name in settings.get("StateDirectory", [])]
    assert state == [BridgeSettings().state] * (unit.stem != "clusterflow-collect")
    assert settings["WorkingDirectory"] == (state or [CollectorSettings().spool])
    assert settings.get("ReadWritePaths", []) == [CollectorSettings().spool] * (unit.stem in WITH_SPOOL)
    tmpfiles = (REPOSITORY / "provisioning/systemd/clusterflow.tmpfiles.conf").read_text(encoding="utf-8")
    assert f"d {CollectorSettings().spool} 0750 clusterflow clusterflow -" in tmpfiles


def test_deliver_can_write_the_file_that_its_documentation_names() -> None:
    (unit,) = [unit for unit in UNITS if unit.stem == "clusterflow-deliver"]
    settings = _settings(unit)
    folders = [f"/var/log/{name}" for name in settings.get("LogsDirectory", [])]
    guide = (REPOSITORY / "docs/delivery.md").read_text(encoding="utf-8")
    written = re.findall(r"type: file, path: (\S+)/[^/\s]+}", guide)
    assert settings["ProtectSystem"] == ["strict"]
    assert written == folders


@each_unit
def test_unit_holds_no_secret(unit: Path) -> None:
    assert not re.search(r"(?i)(password|token|secret)\w*=", unit.read_text(encoding="utf-8"))


@each_unit
def test_unit_gets_its_own_secrets_only(unit: Path) -> None:
    """A file a service; none for the collector, which runs what reads packets of strangers."""
    own = unit.stem.removeprefix("clusterflow-").rstrip("@")
    files = _settings(unit).get("EnvironmentFile", [])
    assert files == ([] if own == "collect" else [f"-/etc/clusterflow/{own}.env"])
    guide = (REPOSITORY / "docs/deployment.md").read_text(encoding="utf-8")
    assert all(f"`{Path(name).name}`" in guide for name in files)


def test_the_collector_sees_nothing_of_its_users_other_services() -> None:
    """They run as the same user: no mode of a file would keep nfacctd from what is theirs."""
    (unit,) = [unit for unit in UNITS if unit.stem == "clusterflow-collect"]
    settings = _settings(unit)
    (hidden,) = settings["InaccessiblePaths"]
    assert hidden.split() == [f"-{BridgeSettings().state}", "-/var/log/clusterflow", "-/etc/clusterflow/secrets"]
    # Without it /proc/PID/environ of the bridge can be read; see user_namespaces(7), ptrace(2).
    assert settings["PrivateUsers"] == ["true"]
    assert not {"StateDirectory", "LogsDirectory", "RuntimeDirectory", "LoadCredential"} & settings.keys()


@each_unit
def test_unit_is_bounded_as_its_container_is(unit: Path) -> None:
    settings = _settings(unit)
    services = {
        name: service
        for file in ("docker-compose.kafka.yml", "docker-compose.yml")
        for name, service in yaml.safe_load((REPOSITORY / file).read_text(encoding="utf-8"))["services"].items()
    }
    service = services[IN_COMPOSE[unit.stem]]
    (memory,), (tasks,) = settings["MemoryMax"], settings["TasksMax"]
    assert service["mem_limit"].endswith(f":-{memory.lower()}}}")
    assert service["pids_limit"] == int(tasks)


def test_a_daemon_out_of_memory_does_not_take_the_other_with_it() -> None:
    """By default systemd would stop the whole unit; the supervisor starts the one again."""
    (unit,) = [unit for unit in UNITS if unit.stem == "clusterflow-collect"]
    assert _settings(unit)["OOMPolicy"] == ["continue"]


@pytest.mark.service
@pytest.mark.parametrize("name", WITH_SPOOL)
def test_a_spool_that_would_be_another_for_each_service_is_refused(name: str, tmp_path: Path) -> None:
    """They run in folders of their own: what the collector wrote to a relative one, nobody would read."""
    (unit,) = [unit for unit in UNITS if unit.stem == name]
    config = tmp_path / "cluster.yaml"
    config.write_text(
        "cluster: lab\ngroups: {training: {role: training, prefixes: [10.20.0.0/16]}}\n"
        "collector: {spool: var/spool}\nkafka: {brokers: ['127.0.0.1:1']}\n"
    )
    given = dict(one.split("=", 1) for one in _settings(unit)["Environment"])
    result = subprocess.run(
        [sys.executable, "-m", "clusterflow", COMMANDS[name], "-c", str(config)],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(REPOSITORY)} | given, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    (said,) = result.stderr.splitlines()
    assert said.startswith("collector.spool: var/spool: expected an absolute path, as each service runs in a folder")
    assert list(tmp_path.iterdir()) == [config]


def test_a_spool_has_one_reader() -> None:
    (relay,) = [unit for unit in UNITS if unit.stem == "clusterflow-relay"]
    assert _settings(relay)["Conflicts"] == ["clusterflow-ingest.service"]


@each_unit
def test_what_a_unit_is_in_conflict_with_has_stopped_before_it_starts(unit: Path) -> None:
    """A conflict alone orders nothing: the relay would find the spool still locked, end with code 2, and stay so."""
    settings = _settings(unit)
    others = " ".join(settings.get("Conflicts", [])).split()
    assert set(others) <= set(" ".join(settings["After"]).split())


def test_pmacct_may_call_chown_and_nobody_else() -> None:
    """nfacctd does at each purge, to change nothing, and warns each second where that is refused."""
    filters = {unit.stem: _settings(unit)["SystemCallFilter"] for unit in UNITS}
    common = ["@system-service", "~@privileged"]
    assert filters == {name: common + ["@chown"] * (name == "clusterflow-collect") for name in COMMANDS}
    (collect,) = [unit for unit in UNITS if unit.stem == "clusterflow-collect"]
    assert _settings(collect)["CapabilityBoundingSet"] == [""]


def test_the_collector_has_the_time_that_an_orderly_stop_may_take() -> None:
    (unit,) = [unit for unit in UNITS if unit.stem == "clusterflow-collect"]
    compose = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8"))
    needed = supervise._DRAIN_SECONDS + len((NFACCTD, SFACCTD)) * supervise._STOP_SECONDS
    assert int(_settings(unit)["TimeoutStopSec"][0]) > needed
    assert int(compose["services"]["collector"]["stop_grace_period"].removesuffix("s")) > needed


def test_workers_of_one_host_do_not_get_in_each_others_way() -> None:
    (worker,) = [unit for unit in UNITS if unit.stem == "clusterflow-worker@"]
    *_, state, _, listen = _settings(worker)["ExecStart"][0].split()
    assert "%i" in state
    assert "%i" in listen


@needs_systemd
@each_unit
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    # A template is judged by one of its instances.
    installed = tmp_path / unit.name.replace("@.", "@1.")
    # `verify` wants the program to be there; on the machine of a test it is not.
    installed.write_text(unit.read_text(encoding="utf-8").replace("/opt/clusterflow/bin/clusterflow", "/bin/true"))
    result = subprocess.run(
        ["systemd-analyze", "verify", str(installed)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (result.returncode, result.stderr) == (0, "")


@needs_systemd
@each_unit
def test_unit_is_closed(unit: Path) -> None:
    result = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout.splitlines()[-1]
