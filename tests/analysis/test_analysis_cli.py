"""The commands: analyze and contacts."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import click
import pytest
import scene
from click.testing import CliRunner
from trouble import fill_up, small_disk

from analysis.cli import Duration, Moment, analyze, contacts
from analysis.state import AUDIT, FILE, State, exclusive
from app.errors import ClusterflowError, StoreError, UserError
from cluster.load import load_cluster
from delivery.queue import Spool
from operations.cli import status as status_command
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB, free_port

REPOSITORY = Path(__file__).resolve().parents[2]

CONFIG = """\
cluster: scene
groups:
  training: {{title: GPU Training Nodes, role: training, prefixes: [10.20.0.0/16]}}
nodes:
  "gpu-{{0..5}}": {{group: training, addresses: ["10.20.0.{{1..6}}"]}}
exporters:
  leaf-1: {{address: 10.0.0.1, interfaces: {{1: {{name: rail, plane: compute}}}}}}
jobs:
  - {{id: now, class: llm, nodes: ["gpu-*"], start: "{start}"}}
store: {{url: "{url}", database: {database}}}
bridge: {{state: {state}}}
"""


@pytest.fixture
def config(influxdb_v1: LocalInfluxDB, fresh_database: str, tmp_path: Path) -> Path:
    """cluster.yaml of a job that began five minutes ago, whose windows are stored; a contact of two days ago."""
    now = int(time.time()) // 10 * 10
    start = time.strftime("%Y-%m-%d %H:%M:%S+00:00", time.gmtime(now - 300))
    path = tmp_path / "cluster.yaml"
    state = tmp_path / "state"
    path.write_text(CONFIG.format(start=start, url=influxdb_v1.url, database=fresh_database, state=state))
    cluster = load_cluster(path)
    store = Store(cluster.store)
    store.ensure(cluster.retentions())
    scene.write_training(store, now - 300, now)
    scene.write_egress(store, (now - 2 * 86_400, "gpu-0", "203.0.113.1", 50))
    store.close()
    return path


def run(command: click.Command, config: Path, *arguments: str) -> str:
    """Run a command that succeeds; return its standard output."""
    name, *rest = arguments or ("",)
    before = [name] if isinstance(command, click.Group) else []
    after = rest if isinstance(command, click.Group) else list(arguments)
    result = CliRunner().invoke(command, [*before, "-c", str(config), *after], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def contact(config: Path, dst: str) -> None:
    store = Store(load_cluster(config).store)
    scene.write_egress(store, (int(time.time()) // 10 * 10, "gpu-3", dst, 900))
    store.close()


def count(config: Path, measurement: str) -> int:
    store = Store(load_cluster(config).store)
    found = store.query(f'SELECT count(*) FROM "raw"."{measurement}"')
    store.close()
    return max(found[0].values[0][1:]) if found else 0


def test_once_writes_verdicts(config: Path) -> None:
    run(analyze, config, "--once")
    assert count(config, schema.BASELINE.name) > 20
    assert count(config, schema.JOB_STATUS.name) > 20


def test_from_to_needs_no_state_and_leaves_none(config: Path) -> None:
    run(analyze, config, "--from", "5m", "--to", "now")
    assert count(config, schema.BASELINE.name) > 20
    assert not (config.parent / "state").exists()


def test_two_analyses_of_one_folder_exclude_each_other(config: Path) -> None:
    with exclusive(config.parent / "state"), pytest.raises(UserError, match=f"process {os.getpid()}"):
        run(analyze, config, "--once")


def test_to_without_from_is_refused(config: Path) -> None:
    with pytest.raises(UserError, match="--to needs --from"):
        run(analyze, config, "--to", "now")


def test_once_with_the_store_away_fails_in_one_line(config: Path) -> None:
    text = config.read_text()
    url = next(word for word in text.split('"') if word.startswith("http"))
    config.write_text(text.replace(url, f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(StoreError, match="does not answer"):
        run(analyze, config, "--once")


def test_contacts_are_listed_acknowledged_forgotten_and_audited(config: Path) -> None:
    run(analyze, config, "--once")
    rows = [json.loads(line) for line in run(contacts, config, "list", "--json").splitlines()]
    assert [(row["src"], row["dst"], row["new"]) for row in rows] == [("gpu-0", "203.0.113.1", 0)]
    contact(config, "203.0.113.9")
    run(analyze, config, "--once")
    assert "203.0.113.9" in run(contacts, config, "list")
    run(contacts, config, "ack", "gpu-0", "203.0.113.1", "--note", "registry mirror")
    assert "acknowledged" in run(contacts, config, "list", "--src", "gpu-0")
    run(contacts, config, "forget", "gpu-0", "203.0.113.1")
    assert "203.0.113.1" not in run(contacts, config, "list", "--src", "gpu-0")
    entries = [json.loads(line) for line in (config.parent / "state" / AUDIT).read_text().splitlines()]
    assert [(entry["action"], entry["dst"], entry["note"]) for entry in entries] == [
        ("ack", "203.0.113.1", "registry mirror"),
        ("forget", "203.0.113.1", ""),
    ]
    with pytest.raises(UserError, match="was ever seen"):
        run(contacts, config, "ack", "gpu-0", "192.0.2.1")


@pytest.mark.parametrize("is_new", [False, True])
def test_a_disk_that_is_full_at_the_start_is_tried_again_by_who_starts_us(config: Path, *, is_new: bool) -> None:
    """Exit code 2 would keep systemd from it for good; so it is with the spool of `clusterflow deliver`."""
    with small_disk(config.parent / "state", 4000) as disk:
        if not is_new:
            run(analyze, config, "--once")
            Spool(disk / "spool", 1_000_000).close()
        fill_up(disk)
        asked = (lambda: run(analyze, config, "--once"), lambda: Spool(disk / "spool", 1_000_000))
        for ask in asked:
            with pytest.raises(ClusterflowError, match=str(disk)) as caught:
                ask()
            assert caught.value.exit_code == 1
            assert "make room" in caught.value.hint


def test_an_ipv6_address_is_listed_as_it_is(config: Path) -> None:
    """For some libraries its part `:a:` is the picture of an A."""
    run(analyze, config, "--once")
    contact(config, "2001:db8:1:a::1")
    run(analyze, config, "--once")
    assert "2001:db8:1:a::1" in run(contacts, config, "list")
    assert "-> 2001:db8:1:a::1: ack" in run(contacts, config, "ack", "gpu-3", "2001:DB8:1:A:0:0:0:1")


def test_a_state_that_cannot_be_written_is_the_users_to_mend(config: Path) -> None:
    config.write_text(config.read_text().replace(str(config.parent / "state"), "/proc/none"))
    with pytest.raises(UserError, match="/proc/none"):
        run(analyze, config, "--once")


def test_listing_before_the_first_start_is_empty_and_makes_nothing(config: Path) -> None:
    assert run(contacts, config, "list", "--json") == ""
    assert not (config.parent / "state" / FILE).exists()


def test_the_process_ticks_takes_up_nodes_of_a_source_and_ends_on_sigterm(config: Path) -> None:
    kept = config.parent / "state" / "inventory" / "slurm.csv"
    more = "inventory: {sources: {slurm: {type: slurm, file: nodes.txt}}}\n"
    config.write_text(config.read_text().replace("{0..5}", "{0..4}").replace("{1..6}", "{1..5}") + more)
    code = "import analysis.cli; analysis.cli._FOLLOW_SECONDS = 0; analysis.cli.analyze()"
    command = [sys.executable, "-c", code, "-c", str(config), "--every", "0.2s"]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "event=tick" in line:
                kept.parent.mkdir(exist_ok=True)
                kept.write_text("name,address,word,gpus\ngpu-5,10.20.0.6,gpu,8\n")
            if "event=started" in line and kept.exists():
                break
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(10) == 0, rest
        assert time.monotonic() - began < 5
    assert "event=started cluster=scene" in seen[0]
    assert "nodes.gpu-5: added" in next(line for line in seen if "event=configuration" in line)
    assert "event=stopped" in rest


class Machine:
    """`clusterflow analyze` with a state folder of its own, on the store of others."""

    def __init__(self, config: Path, name: str) -> None:
        own = config.with_name(f"{name}.yaml")
        text = config.read_text().replace("database:", "lease: true, database:")
        own.write_text(text.replace(f"state: {config.parent}/state", f"state: {config.parent}/{name}"))
        self.log = config.with_name(f"{name}.log")
        with self.log.open("w") as log:
            command = [sys.executable, "-m", "clusterflow", "analyze", "-c", str(own), "--every", "1s"]
            self.process = subprocess.Popen(command, cwd=REPOSITORY, stderr=log)

    def said(self, word: str, seconds: float = 30) -> str:
        """Wait for a line of its log."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if found := [line for line in self.log.read_text().splitlines() if word in line]:
                return found[-1]
            time.sleep(0.05)
        raise AssertionError(f"no {word} in {seconds} s: {self.log.read_text()}")


def test_a_second_analysis_takes_over_from_one_that_is_killed_and_says_nothing_twice(config: Path) -> None:
    def contacts_told() -> list[dict[str, object]]:
        with closing(Store(load_cluster(config).store)) as store:
            rows = scene.stored(store, schema.CONTACT).to_dicts()
        return [row for row in rows if row[schema.CONTACT_NEW.name]]

    first = Machine(config, "first")
    machines = [first]
    try:
        first.said("event=tick")
        machines.append(second := Machine(config, "second"))
        second.said("event=standing_by")
        # What is seen in the window of the first start is learnt.
        time.sleep(10)
        contact(config, "203.0.113.9")
        ends = time.monotonic() + 60
        while not contacts_told() and time.monotonic() < ends:
            time.sleep(0.2)
        (told,) = contacts_told()
        assert "event=tick" not in second.log.read_text()
        status = CliRunner().invoke(status_command, ["-c", str(config.with_name("first.yaml"))]).output
        assert f"analyze of {socket.gethostname()}:{config.parent}/first: leads" in status
        assert f"analyze of {socket.gethostname()}:{config.parent}/second: stands by" in status
        died = time.monotonic()
        first.process.kill()
        second.said("event=tick", 40)
        assert time.monotonic() - died < 30
        second.said("event=state_rebuilt")
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(20) == 0
        assert contacts_told() == [told]
        # Back again, it finds that another one led, and forgets what it knew.
        machines.append(again := Machine(config, "first"))
        again.said("event=leading")
        again.said("event=state_rebuilt")
        again.said("event=tick")
        assert contacts_told() == [told]
    finally:
        for one in machines:
            one.process.kill()
            one.process.wait()


def damage(path: Path) -> None:
    """Destroy all of an SQLite file but its header, beneath those who have it open."""
    with closing(sqlite3.connect(path)) as connection:
        # A commit of somebody else's, so that no page counts as known; and all pages in the file itself.
        connection.execute("INSERT INTO meta VALUES ('touched', 1)")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(4096)
            file.write(b"\xa5" * (size - 4096))


def test_a_state_that_breaks_ends_the_process_and_the_next_start_moves_it_aside(config: Path) -> None:
    command = [sys.executable, "-m", "clusterflow", "analyze", "-c", str(config), "--every", "2s"]
    path = config.parent / "state" / FILE
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            next(line for line in process.stderr if "event=tick" in line)
            damage(path)
            said = process.communicate(timeout=30)[1]
        finally:
            process.kill()
    assert process.returncode == 1, said
    assert "a file in the state folder is damaged: database disk image is malformed" in said
    assert "Traceback" not in said
    run(analyze, config, "--once")
    assert path.with_name(f"{FILE}.broken-1").exists()


def test_damage_anywhere_in_the_state_is_found_at_the_start(tmp_path: Path) -> None:
    """Page by page: what no count of rows comes across would end every tick, and every next start."""
    with State.open(tmp_path):
        pass
    page = 4096
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        rows = ((f"gpu-{n}", "203.0.113.9", "training", "external", "tcp", "https", n, 0, 0, n) for n in range(500))
        connection.executemany("INSERT INTO contact VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = (tmp_path / FILE).read_bytes()
    assert len(whole) > 15 * page
    for start in range(page, len(whole), page):
        folder = tmp_path / str(start)
        folder.mkdir()
        (folder / FILE).write_bytes(whole[:start] + b"\xa5" * page + whole[start + page :])
        with State.open(folder) as state:
            assert state.broken == f"{FILE}.broken-1", start


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1772366400", 1_772_366_400),
        ("2026-03-01T12:00:00", 1_772_366_400),
        ("2026-03-01T13:00:00+01:00", 1_772_366_400),
        ("2026-03-01", 1_772_323_200),
    ],
)
def test_moments(text: str, expected: float) -> None:
    assert Moment().convert(text, None, None) == expected


def test_moments_ago() -> None:
    assert Moment().convert("3d", None, None) == pytest.approx(time.time() - 3 * 86_400, abs=5)
    with pytest.raises(UserError, match="yesterday: expected a time"):
        Moment().convert("yesterday", None, None)


def test_durations() -> None:
    assert Duration().convert("90m", None, None) == 5400
    with pytest.raises(click.BadParameter, match="expected a duration"):
        Duration().convert("soon", None, None)
