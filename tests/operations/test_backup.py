"""Backup and restore over real checkpoints and SQLite files."""

import errno
import fcntl
import hashlib
import io
import itertools
import json
import os
import shutil
import sqlite3
import stat
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest
from click.testing import CliRunner, Result
from trouble import small_disk

from analysis.jobs.register import Register
from analysis.state import State
from app.errors import ClusterflowError, UserError
from app.sqlite_file import VERSION
from cluster.load import load_cluster
from cluster.sections.network.prefix_files import keep
from cluster.sources import named_in
from delivery.queue import Spool
from ingest.checkpoint import Checkpoint
from operations.backup import backup_file
from operations.backup.backup_cli import backup, restore
from operations.backup.backup_named import named_files

CLUSTER = """\
cluster: lab
groups:
  a: {{role: training, prefixes: [10.0.0.0/8]}}
inventory: lists/nodes.csv
rules: [own.py]
store: {{username: writer, password: {{file: secret}}}}
bridge: {{state: {state}}}
"""

PEM = "-----BEGIN {0}-----\nMIIB\n-----END {0}-----\n"


class Site:
    """A state folder, and a folder with cluster.yaml."""

    def __init__(self, home: Path) -> None:
        self.home, self.state, self.config = home, home / "state", home / "etc" / "cluster.yaml"
        (home / "etc" / "lists").mkdir(parents=True)
        # By default it would be the machine's own.
        delivery = f"delivery: {{state: {home / 'delivery'}}}\n"
        self.config.write_text(CLUSTER.format(state=self.state) + delivery)
        (home / "etc" / "lists" / "nodes.csv").write_text("name,group,address\nn1,a,10.0.0.1\n")
        (home / "etc" / "own.py").write_text("RULE = None\n")
        (home / "etc" / "secret").write_text("hunter2")
        self.file = home / "site.tar.gz"

    def deliver_to(self, destinations: str) -> None:
        self.config.write_text(
            self.config.read_text().replace("delivery}", f"delivery, destinations: {destinations}}}")
        )

    def save(self, number: int) -> None:
        checkpoint = Checkpoint(self.state / "bridge")
        checkpoint.load()
        save(checkpoint, number)
        checkpoint.close()

    def loaded(self) -> object:
        checkpoint = Checkpoint(self.state / "bridge")
        try:
            return checkpoint.load()
        finally:
            checkpoint.close()

    def make(self, *arguments: str) -> Result:
        return CliRunner().invoke(backup, ["-c", str(self.config), str(self.file), *arguments])

    def bring_back(self, *arguments: str) -> Result:
        return CliRunner().invoke(restore, ["-c", str(self.config), str(self.file), *arguments])


def tree(folder: Path) -> dict[str, bytes]:
    """Return what is in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def frames(number: int) -> dict[str, pl.DataFrame]:
    return {name: pl.DataFrame({"n": [number] * 1000}) for name in ("traffic", "node", "egress")}


def save(checkpoint: Checkpoint, number: int) -> None:
    checkpoint.save(frames(number), {"number": number})


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    site.save(1)
    with State.open(site.state) as state:
        state.advance(1_772_352_000)
    (site.state / "contacts-audit.jsonl").write_text('{"action": "ack"}\n')
    return site


def test_what_was_backed_up_comes_back(site: Site) -> None:
    before = {path: path.read_bytes() for path in (site.config, *site.config.parent.rglob("*.*")) if path.is_file()}
    assert site.make().exception is None
    site.save(2)
    for path in before:
        path.write_text("broken")
    (site.state / "analysis.sqlite").write_bytes(b"broken")
    (site.state / "contacts-audit.jsonl").unlink()
    done = site.bring_back("--force")
    assert done.exception is None, done.output
    assert {path: path.read_bytes() for path in before} == before
    loaded = site.loaded()
    assert isinstance(loaded, tuple)
    assert loaded[1] == {"number": 1}
    assert loaded[0]["traffic"].equals(frames(1)["traffic"])
    with State.open(site.state) as state:
        assert state.position == 1_772_352_000
    assert (site.state / "contacts-audit.jsonl").read_text() == '{"action": "ack"}\n'


def test_it_comes_back_to_a_machine_that_has_nothing(site: Site) -> None:
    site.make()
    empty = site.home / "other"
    arguments = ["-c", str(empty / "cluster.yaml"), str(site.file), "--state", str(empty / "state")]
    done = CliRunner().invoke(restore, arguments)
    assert done.exception is None, done.output
    assert load_cluster(empty / "cluster.yaml").nodes == load_cluster(site.config).nodes
    assert (empty / "state" / "bridge" / "manifest.json").exists()


def test_state_that_no_service_will_look_for_is_told(site: Site) -> None:
    site.make()
    done = site.bring_back("--force", "--state", str(site.home / "other"))
    assert f"bridge.state is {site.state}: set it to {site.home / 'other'}" in done.stderr
    site.config.write_text(site.config.read_text().replace(str(site.state), str(site.home / "other")))
    assert "warning" not in site.bring_back("--force", "--state-only", "--state", str(site.home / "other")).output


def test_what_may_not_be_written_says_what_to_do(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.make()
    refused = PermissionError(errno.EACCES, "Permission denied", "lock")
    monkeypatch.setattr("operations.backup.restore._without_service", Mock(side_effect=refused))
    done = site.bring_back("--force")
    assert isinstance(done.exception, UserError)
    assert "lock: Permission denied (run it as the user of the services, or as root, or" in done.exception.lines()[0]


def test_a_bridge_does_not_begin_with_nothing_where_a_restore_was_killed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.make()
    with monkeypatch.context() as patch:
        # The folder that was there is aside; the one that takes its place is whole, and what would remove it is dead.
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        patch.setattr(Path, "rename", lambda one, to: one.replace(to) if to.name != "bridge" else sys.exit())
        site.bring_back("--force")
    with pytest.raises(UserError, match="a restore ended in the middle"):
        site.loaded()
    assert site.bring_back("--force").exception is None
    assert isinstance(site.loaded(), tuple)


def test_no_secret_is_in_it_and_nobody_else_may_read_it(site: Site) -> None:
    site.make()
    with tarfile.open(site.file) as archive:
        texts = [file.read() for member in archive if (file := archive.extractfile(member))]
        assert all(b"hunter2" not in text for text in texts)
        assert not any("secret" in name for name in archive.getnames())
    assert stat.S_IMODE(site.file.stat().st_mode) == 0o600


def test_a_checkpoint_that_is_replaced_meanwhile_is_taken_as_one(site: Site) -> None:
    stop = threading.Event()

    def work() -> None:
        checkpoint = Checkpoint(site.state / "bridge")
        checkpoint.load()
        number = 1
        while not stop.is_set():
            number += 1
            save(checkpoint, number)
        checkpoint.close()

    worker = threading.Thread(target=work)
    worker.start()
    seen = set()
    try:
        for number in range(15):
            site.file = site.home / f"{number}.tar.gz"
            assert site.make().exception is None
            where = site.home / f"back-{number}"
            back = ["-c", str(where / "cluster.yaml"), str(site.file), "--state", str(where)]
            assert CliRunner().invoke(restore, back).exception is None
            checkpoint = Checkpoint(where / "bridge")
            loaded = checkpoint.load()
            checkpoint.close()
            assert loaded is not None
            found = {frame["n"][0] for frame in loaded[0].values()}
            assert found == {loaded[1]["number"]}
            seen |= found
    finally:
        stop.set()
        worker.join()
    assert len(seen) > 3, "the checkpoint did not change meanwhile"


def test_nothing_is_overwritten_unasked(site: Site) -> None:
    site.make()
    site.save(2)
    site.config.write_text("mine")
    done = site.bring_back()
    assert isinstance(done.exception, UserError)
    (line,) = done.exception.lines()
    assert "is there already" in line
    assert "(--force takes their place)" in line
    assert site.config.read_text() == "mine"
    loaded = site.loaded()
    assert isinstance(loaded, tuple)
    assert loaded[1] == {"number": 2}


def test_the_checkpoint_that_was_there_is_kept_aside(site: Site) -> None:
    site.make()
    site.save(2)
    site.bring_back("--force")
    (aside,) = site.state.glob("bridge.before-restore-*")
    assert json.loads((aside / "manifest.json").read_text())["notes"] == {"number": 2}


def test_the_configuration_can_be_left_as_it_is(site: Site) -> None:
    site.make()
    mine = f"bridge: {{state: {site.state}}}\nnot: whole yet\n"
    site.config.write_text(mine)
    site.save(2)
    assert site.bring_back("--state-only", "--force").exception is None
    assert site.config.read_text() == mine


def test_a_state_whose_folder_is_named_needs_no_configuration(site: Site) -> None:
    site.make()
    site.config.unlink()
    state = site.home / "other"
    done = site.bring_back("--state-only", "--state", str(state))
    assert done.exception is None, done.output
    assert (state / "bridge" / "manifest.json").exists()
    assert not site.config.exists()


@pytest.mark.parametrize("lock", ["bridge/lock", "analysis.lock"])
def test_a_running_bridge_or_analysis_refuses_a_restore(site: Site, lock: str) -> None:
    site.make()
    with (site.state / lock).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = site.bring_back("--force")
    assert isinstance(done.exception, UserError)
    assert str(site.state) in done.exception.message
    assert not list(site.state.glob("*before-restore*"))


def test_a_target_that_is_there_is_refused(site: Site) -> None:
    site.file.write_text("mine")
    done = site.make()
    assert isinstance(done.exception, UserError)
    assert site.file.read_text() == "mine"


def test_a_backup_of_a_state_folder_without_anything_is_none(site: Site) -> None:
    arguments = ["-c", str(site.config), "--state", str(site.home / "none"), str(site.file)]
    done = CliRunner().invoke(backup, arguments)
    assert isinstance(done.exception, UserError), done.output
    (line,) = done.exception.lines()
    assert f"{site.home / 'none'} and {site.home / 'delivery'}: nothing of the state is there" in line
    assert "--config-only" in line
    assert not site.file.exists()


def test_what_is_missing_of_the_state_is_told(site: Site) -> None:
    shutil.rmtree(site.state / "bridge")
    done = site.make()
    assert done.exception is None
    assert f"warning: no checkpoint in {site.state / 'bridge'}" in done.output
    assert f"warning: no jobs.sqlite in {site.state}" in done.output


def test_the_configuration_alone_can_be_saved_and_brought_back(site: Site) -> None:
    done = site.make("--config-only")
    assert done.exception is None
    assert "warning" not in done.output
    text = site.config.read_text()
    before = tree(site.state)
    site.config.unlink()
    # Nothing of the state is touched: whoever runs on it may go on.
    with (site.state / "bridge" / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = site.bring_back("--force")
    assert done.exception is None, done.output
    assert site.config.read_text() == text
    assert tree(site.state) == before


@pytest.mark.parametrize("options", [["--state-only", "--force"], ["--state-only"]])
def test_a_checkpoint_stays_that_the_backup_does_not_hold(site: Site, options: list[str]) -> None:
    kept = site.state / "bridge"
    shutil.rmtree(kept)
    site.make()
    (site.state / "analysis.sqlite").unlink()
    site.save(7)
    before = tree(kept)
    done = site.bring_back(*options)
    assert done.exception is None, done.output
    assert tree(kept) == before
    assert not list(site.state.glob("*before-restore*"))
    assert f"restored {kept}" not in done.output
    assert f"left as it was, for the backup holds none: {kept}\n" in done.output


def test_sqlite_files_and_logs_stay_that_the_backup_does_not_hold(site: Site) -> None:
    (site.state / "contacts-audit.jsonl").unlink()
    site.make()
    with Register.open(site.state):
        pass
    (site.state / "contacts-audit.jsonl").write_text("{}\n")
    names = ("jobs.sqlite", "contacts-audit.jsonl")
    before = {name: (site.state / name).read_bytes() for name in names}
    done = site.bring_back("--force")
    assert done.exception is None, done.output
    assert {name: (site.state / name).read_bytes() for name in names} == before
    left = ", ".join(str(site.state / name) for name in names)
    assert f"left as it was, for the backup holds none: {left}\n" in done.output
    assert all(f"restored {site.state / name}" not in done.output for name in names)


def test_certificates_and_lists_of_names_are_in_it_and_no_key(site: Site) -> None:
    folder, elsewhere = site.config.parent, site.home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "ca.pem").write_text(PEM.format("CERTIFICATE"))
    (folder / "client.pem").write_text(PEM.format("CERTIFICATE"))
    (folder / "client.key").write_text(PEM.format("PRIVATE KEY"))
    (folder / "both.pem").write_text(PEM.format("CERTIFICATE") + PEM.format("EC PRIVATE KEY"))
    (folder / "lists" / "hosts.txt").write_text("192.0.2.1 mirror.example\n")
    (folder / "lists" / "cdn.txt").write_text("192.0.2.0/24\n")
    (folder / "lists" / "broken.txt").write_bytes(b"\xff\0")
    with (folder / "lists" / "large.txt").open("wb") as file:
        file.truncate((4 << 20) + 1)
    (folder / "lists" / "feed.txt").write_text("198.51.100.1\n")
    site.config.write_text(
        f"""{CLUSTER.format(state=site.state).replace("store: {", f"store: {{ca_file: {elsewhere / 'ca.pem'}, ")}
names: {{files: {{hosts: lists/hosts.txt, broken: lists/broken.txt, large: lists/large.txt, gone: lists/gone.txt}}}}
applications: {{files: {{cdn: {{file: lists/cdn.txt, format: prefixes, application: cdn}}}}}}
threat_feeds: {{bad: lists/feed.txt}}
delivery:
  state: {site.home / "delivery"}
  destinations:
    siem: {{type: syslog, address: "siem.example:6514", certificate_file: client.pem, key_file: client.key}}
    soc: {{type: syslog, address: "soc.example:6514", certificate_file: both.pem, key_file: both.pem}}
"""
    )
    done = site.make()
    assert done.exception is None, done.output
    with tarfile.open(site.file) as archive:
        names = {name for name in archive.getnames() if name.startswith("config/")}
        texts = [file.read() for member in archive if (file := archive.extractfile(member))]
    assert all(b"PRIVATE KEY" not in text for text in texts)
    (outside,) = {name for name in names if "/elsewhere/" in name}
    assert outside.endswith("-ca.pem")
    ours = {"cluster.yaml", "own.py", "client.pem", "lists/nodes.csv", "lists/hosts.txt", "lists/cdn.txt"}
    assert names - {outside} == {f"config/{name}" for name in ours}
    reasons = {"both.pem": "private key", "broken.txt": "no text", "large.txt": "4 MiB", "gone.txt": "not there"}
    for name, why in reasons.items():
        (line,) = (line for line in done.output.splitlines() if name in line)
        assert "warning: without" in line
        assert why in line
    shutil.rmtree(folder)
    assert site.bring_back("--force").exception is None
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {
        outside.removeprefix("config/")
    } == ours


def test_a_file_with_prefixes_that_is_away_keeps_nothing_else_out_of_it(site: Site) -> None:
    """The bridge goes on with its last good version; a backup of that night is worth more than none."""
    prefixes = site.config.parent / "lists" / "cloud.txt"
    prefixes.write_text("198.51.100.0/24\n")
    group = "  cloud: {role: approved_external, prefixes_from: [lists/cloud.txt]}\n"
    site.config.write_text(site.config.read_text().replace("inventory:", f"{group}inventory:"))
    files = [file for one in load_cluster(site.config).groups for file in one.files]
    keep(files, site.state / "prefixes")
    prefixes.unlink()
    done = site.make()
    assert done.exception is None, done.exception
    assert f"warning: without {prefixes}: No such file or directory" in done.output
    with tarfile.open(site.file) as archive:
        assert {"config/lists/nodes.csv", "config/own.py"} <= set(archive.getnames())


def test_a_file_that_is_written_meanwhile_makes_no_damaged_backup(site: Site) -> None:
    nodes, stop = site.config.parent / "lists" / "nodes.csv", threading.Event()
    nodes.write_text("# 0\nname,group,address\n" + "".join(f"n{n},a,10.0.{n >> 8}.{n & 255}\n" for n in range(4096)))

    def write() -> None:
        with nodes.open("r+b", buffering=0) as file:
            for number in itertools.cycle(range(8)):
                os.pwrite(file.fileno(), str(number).encode(), 2)
                if stop.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(10):
            assert site.make().exception is None
            done = site.bring_back("--state-only", "--force")
            assert done.exception is None, done.exception
            site.file.unlink()
    finally:
        stop.set()
        writer.join()


def test_a_full_disk_under_the_temporary_files_is_no_fault_of_the_backup(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with State.open(site.state) as state:
        state.advance(1_772_352_000)
    site.make()
    whole = site.file.read_bytes()
    with small_disk(site.home / "small", 16) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        for done in (site.bring_back("--force"), (site.file.unlink(), site.make())[1]):
            error = done.exception
            assert isinstance(error, ClusterflowError), error
            assert not isinstance(error, UserError), error.lines()
            assert str(disk) in error.message
            assert "TMPDIR" in error.hint
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/none"])
    site.file.write_bytes(whole)
    error = site.bring_back("--force").exception
    assert isinstance(error, ClusterflowError)
    assert "TMPDIR" in error.hint


# -- events that are not delivered yet ---------------------------------------------------------------


@pytest.fixture
def delivering(site: Site) -> Path:
    """The state of a delivery that has ten events, of which its destination has four."""
    state = site.home / "delivery"
    destination = f"{{type: file, path: {site.home / 'events.ndjson'}}}"
    site.deliver_to(f"{{siem: {destination}}}")
    spool = Spool(state / "spool", 1_000_000)
    spool.register(["siem"])
    for number in range(10):
        spool.append([{"id": number}], {"alerts": {"open": number}})
    spool.delivered("siem", 4)
    spool.close()
    (state / "counters.json").write_text("{}")
    (state / "refused.jsonl").write_text('{"line": 1}\n{"li')
    return state


def waiting(state: Path) -> tuple[list[object], object]:
    """Return the events that a destination has not got, and what is noted."""
    spool = Spool(state / "spool", 1_000_000)
    try:
        spool.register(["siem"])
        found: list[object] = []
        while (batch := spool.read("siem", 100, 0)) is not None:
            found += [event["id"] for event in batch.events]
            spool.delivered("siem", batch.next)
        return found, spool.note("alerts")
    finally:
        spool.close()


def test_events_positions_and_alerts_come_back(site: Site, delivering: Path) -> None:
    assert site.make().exception is None
    shutil.rmtree(delivering)
    done = site.bring_back("--force")
    assert done.exception is None, done.output
    assert f"restored {delivering / 'spool'}" in done.output
    assert (delivering / "counters.json").read_text() == "{}"
    assert (delivering / "refused.jsonl").read_text() == '{"line": 1}\n'
    assert waiting(delivering) == ([4, 5, 6, 7, 8, 9], {"open": 9})


def test_without_destinations_the_events_of_the_alert_history_are_in_it(site: Site, delivering: Path) -> None:
    """`clusterflow deliver` keeps the history all the same; on its own machine there is no other state."""
    site.config.write_text(site.config.read_text().partition(", destinations")[0] + "}\n")
    shutil.rmtree(site.state)
    assert site.make().exception is None
    shutil.rmtree(delivering)
    assert site.bring_back("--force").exception is None
    assert waiting(delivering) == ([4, 5, 6, 7, 8, 9], {"open": 9})
    # Where nobody runs it, nothing is missing.
    shutil.rmtree(delivering)
    site.save(2)
    site.file.unlink()
    assert "events" not in site.make().output


def test_events_that_are_there_are_kept_aside(site: Site, delivering: Path) -> None:
    site.make()
    assert waiting(delivering)[0] == [4, 5, 6, 7, 8, 9]
    done = site.bring_back()
    assert isinstance(done.exception, UserError)
    assert str(delivering / "spool") in done.exception.message
    done = site.bring_back("--force")
    (aside,) = delivering.glob("spool.before-restore-*")
    assert f"kept {aside}: what was there" in done.output
    with closing(sqlite3.connect(aside / "events.sqlite")) as file:
        assert file.execute("SELECT * FROM position").fetchall() == [("siem", 10)]
    assert waiting(delivering)[0] == [4, 5, 6, 7, 8, 9]


def test_events_stay_that_the_backup_does_not_hold(site: Site, delivering: Path) -> None:
    kept = site.home / "kept"
    delivering.rename(kept)
    done = site.make()
    assert f"warning: no spool of events in {delivering / 'spool'}" in done.output
    kept.rename(delivering)
    before = tree(delivering)
    done = site.bring_back("--force")
    assert f"left as it was, for the backup holds none: {delivering / 'spool'}\n" in done.output
    assert tree(delivering) == before


def test_a_running_delivery_refuses_a_restore_of_its_events(site: Site, delivering: Path) -> None:
    site.make()
    spool = Spool(delivering / "spool", 1_000_000)
    try:
        done = site.bring_back("--force")
    finally:
        spool.close()
    assert isinstance(done.exception, UserError)
    assert "`clusterflow deliver` uses this state" in done.exception.message
    assert not list(site.home.rglob("*before-restore*"))


def test_the_folder_of_events_is_not_the_backups_to_say(site: Site, delivering: Path) -> None:
    site.make()
    elsewhere = site.home / "elsewhere"
    rewritten(site, lambda _, manifest: manifest.update(delivery=str(elsewhere)))
    done = site.bring_back("--force")
    assert isinstance(done.exception, UserError)
    assert "--delivery-state FOLDER" in done.exception.lines()[0]
    assert not elsewhere.exists()
    done = site.bring_back("--force", "--delivery-state", str(elsewhere))
    assert done.exception is None, done.output
    assert waiting(elsewhere)[0] == [4, 5, 6, 7, 8, 9]
    assert waiting(delivering)[0] == [4, 5, 6, 7, 8, 9]


def test_events_are_copied_while_they_come_and_go(site: Site, delivering: Path) -> None:
    spool = Spool(delivering / "spool", 1_000_000)
    spool.register(["siem"])
    stop, told = threading.Event(), 10

    def work() -> None:
        nonlocal told
        while not stop.wait(0.001):
            spool.append([{"id": told}, {"id": told + 1}], {"alerts": {"open": told + 1}})
            told += 2
            spool.delivered("siem", told - 15)

    worker = threading.Thread(target=work)
    worker.start()
    ends = set()
    try:
        for number in range(10):
            least = told - 15
            site.file = site.home / f"{number}.tar.gz"
            done = site.make()
            assert done.exception is None, done.output
            most = told
            state = site.home / f"back-{number}"
            back = ["-c", str(state / "cluster.yaml"), str(site.file), "--state", str(state)]
            back += ["--delivery-state", str(state / "delivery")]
            assert CliRunner().invoke(restore, back).exception is None
            events, noted = waiting(state / "delivery")
            assert isinstance(noted, dict)
            end = noted["open"] + 1
            # From what had been delivered at the latest when it began, without a gap, to what the notes say.
            assert least + 15 <= end <= most + 2
            start = events[0]
            assert isinstance(start, int)
            assert events == list(range(start, end))
            assert start <= max(most - 15, 4)
            ends.add(end)
    finally:
        stop.set()
        worker.join()
        spool.close()
    assert len(ends) > 3, "the spool did not change meanwhile"


def rewritten(site: Site, change: Callable[[dict[str, bytes], dict[str, object]], None]) -> None:
    """Write the archive again, with other members; the manifest is brought in line by nobody."""
    with tarfile.open(site.file) as archive:
        members = {member.name: file.read() for member in archive if (file := archive.extractfile(member))}
    manifest = json.loads(members.pop("backup.json"))
    change(members, manifest)
    with tarfile.open(site.file, "w:gz") as archive:
        for name, text in {"backup.json": json.dumps(manifest).encode(), **members}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))


EVIL = [
    "../evil", "config/../../evil", "/etc/evil", "state/evil", "state/bridge/../../evil", "config//evil", "config",
    "state/bridge/deep/evil.arrow", "config/a\\..\\evil", "other/evil", "delivery/evil", "delivery/spool/evil",
    "delivery/events.sqlite", "delivery/spool/lock", "delivery/../events.sqlite", "delivery/spool/a/events.sqlite",
]  # fmt: skip


@pytest.mark.parametrize("name", EVIL)
def test_a_name_that_leads_elsewhere_is_refused_even_if_the_manifest_lists_it(site: Site, name: str) -> None:
    site.make()

    def add(members: dict[str, bytes], manifest: dict[str, object]) -> None:
        members[name] = b"evil"
        files = manifest["files"]
        assert isinstance(files, dict)
        files[name] = {"bytes": 4, "sha256": "4c1ee48d6b1e0b3bb5b6e0c6f1fdb5e1"}

    rewritten(site, add)
    before = sorted(site.home.rglob("*"))
    done = site.bring_back("--force")
    assert isinstance(done.exception, UserError)
    assert sorted(site.home.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["ABSOLUTE", "../evil.conf", "lists/nodes.csv", "..", ".", "", "a\\b", "a\0b", 7, None]
)
def test_a_forged_name_of_the_configuration_renames_nothing(site: Site, name: object) -> None:
    site.make()
    victim = site.home / "victim.conf"
    victim.write_text("theirs")

    def forge(_: dict[str, bytes], manifest: dict[str, object]) -> None:
        manifest["config"] = str(victim) if name == "ABSOLUTE" else name

    rewritten(site, forge)
    before = sorted(site.home.rglob("*"))
    done = site.bring_back("--force")
    assert isinstance(done.exception, UserError), done.exception
    assert "config: " in done.exception.message
    assert sorted(site.home.rglob("*")) == before


@pytest.mark.parametrize("made", ["now", True, 1.5, -1, 1 << 60, None])
def test_a_forged_date_is_refused_before_anything_is_touched(site: Site, made: object) -> None:
    site.make()
    rewritten(site, lambda _, manifest: manifest.update(made=made))
    site.config.write_text("mine")
    done = site.bring_back("--force")
    assert isinstance(done.exception, UserError), done.exception
    assert site.config.read_text() == "mine"


@pytest.mark.parametrize("option", ["--force", "--state-only"])
def test_the_folder_of_the_state_is_not_the_backups_to_say(site: Site, option: str) -> None:
    site.make()
    elsewhere = site.home / "elsewhere"
    rewritten(site, lambda _, manifest: manifest.update(state=str(elsewhere)))
    done = site.bring_back("--force", option)
    assert isinstance(done.exception, UserError)
    (line,) = done.exception.lines()
    assert "--state FOLDER" in line
    assert not elsewhere.exists()


def test_a_configuration_that_is_a_link_comes_back_under_its_name(site: Site) -> None:
    kept = site.home / "git" / "lab.yaml"
    kept.parent.mkdir()
    site.config.rename(kept)
    site.config.symlink_to(kept)
    nodes = load_cluster(site.config).nodes
    site.make()
    site.config.unlink()
    done = site.bring_back("--force")
    assert done.exception is None, done.output
    assert load_cluster(site.config).nodes == nodes


def test_services_can_read_the_configuration_and_nobody_else_the_state(site: Site) -> None:
    site.make()
    own = site.config.with_name("own.py")
    own.write_text("broken")
    own.chmod(0o604)
    site.config.unlink()
    (site.state / "analysis.sqlite").unlink()
    assert site.bring_back("--force").exception is None
    files = (site.config, own, site.state / "analysis.sqlite")
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o644, 0o604, 0o640]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_all_that_root_restores_belongs_to_the_service(site: Site) -> None:
    site.make()
    shutil.rmtree(site.state)
    site.state.mkdir()
    os.chown(site.state, 10001, 10002)
    assert site.bring_back("--force").exception is None
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in site.state.rglob("*")}
    assert {"analysis.lock", "analysis.sqlite", "manifest.json", "lock"} <= owners.keys()
    assert {name for name, owner in owners.items() if owner != (10001, 10002)} == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_events_that_root_restores_belong_to_the_service(site: Site, delivering: Path) -> None:
    site.make()
    home = site.home / "var"
    home.mkdir()
    os.chown(home, 10001, 10002)
    done = site.bring_back("--force", "--delivery-state", str(home / "lib" / "delivery"))
    assert done.exception is None, done.output
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in home.rglob("*")}
    assert {"lib", "delivery", "spool", "lock", "events.sqlite", "counters.json"} <= owners.keys()
    assert set(owners.values()) == {(10001, 10002)}
    assert stat.S_IMODE((home / "lib" / "delivery" / "spool").stat().st_mode) == 0o750
    assert waiting(delivering)[0] == [4, 5, 6, 7, 8, 9]


def test_a_folder_that_cannot_be_written_leaves_everything_as_it_was(site: Site) -> None:
    site.make()
    site.save(2)
    (site.state / "contacts-audit.jsonl").write_text("mine")
    shutil.rmtree(site.config.parent / "lists")
    (site.config.parent / "lists").write_text("a file where a folder belongs")
    before = {path: path.read_bytes() for path in site.home.rglob("*") if path.is_file() and path.suffix != ".lock"}
    done = site.bring_back("--force")
    assert isinstance(done.exception, ClusterflowError), done.exception
    after = {path: path.read_bytes() for path in site.home.rglob("*") if path.is_file() and path.suffix != ".lock"}
    assert after == before


def test_what_is_there_already_is_not_written_again(site: Site) -> None:
    site.make()
    before = site.config.stat().st_ino
    done = site.bring_back("--force")
    assert done.exception is None
    assert site.config.stat().st_ino == before
    assert str(site.config) not in done.output


def test_an_sqlite_file_with_a_log_beside_it_is_not_what_was_saved(site: Site) -> None:
    site.make()
    site.bring_back("--force")
    (site.state / "analysis.sqlite-wal").write_bytes(b"newer")
    done = site.bring_back()
    assert isinstance(done.exception, UserError)
    assert "analysis.sqlite" in done.exception.message
    assert site.bring_back("--force").exception is None
    assert not (site.state / "analysis.sqlite-wal").exists()


def test_an_sqlite_file_is_replaced_after_the_log_beside_it_is_gone(site: Site) -> None:
    """Killed in between, SQLite would write what the log of the old file says into the restored one."""
    site.make()
    before = (site.state / "analysis.sqlite").read_bytes() + b"newer"
    (site.state / "analysis.sqlite").write_bytes(before)
    (site.state / "analysis.sqlite-wal").unlink(missing_ok=True)
    (site.state / "analysis.sqlite-wal").mkdir()
    assert isinstance(site.bring_back("--force").exception, ClusterflowError)
    assert (site.state / "analysis.sqlite").read_bytes() == before


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_only_plain_files_are_taken(site: Site, kind: bytes) -> None:
    site.make()
    with tarfile.open(site.file) as archive:
        text = archive.extractfile("backup.json")
        assert text is not None
        manifest = text.read()
    with tarfile.open(site.file, "w:gz") as archive:
        entry = tarfile.TarInfo("backup.json")
        entry.size = len(manifest)
        archive.addfile(entry, io.BytesIO(manifest))
        link = tarfile.TarInfo("config/cluster.yaml")
        link.type, link.linkname = kind, "/etc/passwd"
        archive.addfile(link)
    done = site.bring_back("--force")
    assert isinstance(done.exception, UserError)
    assert "does not belong into a backup" in done.exception.message


def add(site: Site, added: dict[str, bytes]) -> None:
    """Forge the archive: members of it are added or replaced, with checksums that are right."""

    def change(members: dict[str, bytes], manifest: dict[str, object]) -> None:
        files = manifest["files"]
        assert isinstance(files, dict)
        for name, text in added.items():
            members[name] = text
            files[name] = {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}

    rewritten(site, change)


def refused(site: Site, *arguments: str) -> str:
    """Return why a restore is refused that changes nothing."""
    before = {path: path.read_bytes() if path.is_file() else b"" for path in site.home.rglob("*")}
    done = site.bring_back("--force", *arguments)
    assert isinstance(done.exception, UserError), done.exception
    after = {path: path.read_bytes() if path.is_file() else b"" for path in site.home.rglob("*")}
    assert {path: text for path, text in after.items() if path.suffix != ".lock"} == {
        path: text for path, text in before.items() if path.suffix != ".lock"
    }
    (line,) = done.exception.lines()
    return line


NAMES = "names: {{files: {{a: {}}}}}\n"


UNNAMED = ["evil.sh", "lists/evil.csv", "lists/own.py", "elsewhere/evil", "elsewhere/1-evil", "elsewhere/x-own.py"]


@pytest.mark.parametrize("name", UNNAMED)
def test_a_file_that_the_archives_own_configuration_does_not_name_is_refused(site: Site, name: str) -> None:
    site.make()
    add(site, {f"config/{name}": b"evil"})
    line = refused(site)
    assert line.startswith(f"{site.file}: refused: '{name}': expected only files that its cluster.yaml names")
    assert "it was tampered with; nothing was changed" in line
    # The state is not to be lost for it.
    assert site.bring_back("--force", "--state-only").exception is None
    assert not (site.config.parent / name).exists()


@pytest.mark.parametrize("name", [".bashrc", ".ssh/authorized_keys", "lists/.hidden"])
def test_a_forged_configuration_gives_hidden_files_no_place(site: Site, name: str) -> None:
    site.make()
    forged = site.config.read_text() + NAMES.format(name)
    add(site, {"config/cluster.yaml": forged.encode(), f"config/{name}": b"evil"})
    assert f"refused: '{name}': " in refused(site)


def test_a_forged_configuration_puts_nothing_in_a_programs_place(site: Site) -> None:
    program = site.config.with_name("run-nightly")
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    site.make()
    forged = site.config.read_text() + NAMES.format("run-nightly")
    add(site, {"config/cluster.yaml": forged.encode(), "config/run-nightly": b"#!/bin/sh\necho evil\n"})
    assert refused(site).startswith(f"{program}: is a program there: expected a file of the configuration")
    add(site, {"config/run-nightly": b"\x7fELF\0\0"})
    assert "refused: 'run-nightly': expected text" in refused(site)
    assert program.read_text() == "#!/bin/sh\n"


def test_a_restored_file_is_never_one_to_be_run(site: Site) -> None:
    site.make()
    shutil.rmtree(site.config.parent)
    assert site.bring_back("--force").exception is None
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in site.config.parent.rglob("*") if path.is_file()}
    assert modes == {"cluster.yaml": 0o644, "own.py": 0o644, "nodes.csv": 0o644}


def test_nothing_is_restored_through_a_link_that_leads_out(site: Site) -> None:
    site.make()
    outside = site.home / "outside"
    outside.mkdir()
    shutil.rmtree(site.config.parent / "lists")
    (site.config.parent / "lists").symlink_to(outside)
    line = refused(site)
    assert line.startswith(f"{site.config.parent / 'lists' / 'nodes.csv'}: a link leads out of {site.config.parent}: ")
    assert not list(outside.iterdir())


def test_a_configuration_that_is_no_yaml_is_refused_in_one_line(site: Site) -> None:
    site.make()
    add(site, {"config/cluster.yaml": b"a: [b\n"})
    assert f"{site.file}: cluster.yaml cannot be read: column 1: expected YAML" in refused(site)


@pytest.mark.parametrize("way", ["absolute", "up and down", "hidden", "outside"])
def test_files_come_back_however_they_are_named(site: Site, way: str) -> None:
    folder = site.config.parent
    hosts = {
        "absolute": folder / "lists" / "hosts.txt",
        "up and down": folder / "lists" / "hosts.txt",
        "hidden": folder / ".hidden" / "hosts.txt",
        "outside": site.home / "hosts.txt",
    }[way]
    hosts.parent.mkdir(exist_ok=True)
    hosts.write_text("192.0.2.1 mirror.example\n")
    name = {"up and down": "../etc/lists/../lists/hosts.txt", "hidden": ".hidden/hosts.txt"}.get(way, str(hosts))
    with site.config.open("a") as file:
        file.write(NAMES.format(name))
    (folder / "secret").unlink()
    before = tree(folder)
    done = site.make()
    assert done.exception is None, done.output
    shutil.rmtree(folder)
    done = site.bring_back("--force")
    assert done.exception is None, done.output
    back = tree(folder)
    if way in ("hidden", "outside"):
        (elsewhere,) = back.keys() - before.keys()
        assert elsewhere.startswith("elsewhere/")
        assert back.pop(elsewhere) == b"192.0.2.1 mirror.example\n"
        before.pop(".hidden/hosts.txt", None)
    assert back == before


def test_a_backup_has_what_its_own_configuration_names(site: Site) -> None:
    """What is read without the files that it names, at a restore, is what the cluster as a whole says, at a backup."""
    nodes = """inventory:
  file: lists/nodes.csv
  sources: {nb: {type: netbox, url: "https://nb.example", ca_file: g.pem}}"""
    head = CLUSTER.replace("inventory: lists/nodes.csv", "NODES").format(state=site.state).replace("NODES", nodes)
    text = f"""{head.replace("store: {", "store: {ca_file: a.pem, ")}
kafka: {{brokers: ["k:9092"], tls: true, ca_file: b.pem, certificate_file: c.pem, key_file: c.key}}
names: {{files: {{a: a.txt, b: {{file: b.csv, format: csv}}}}}}
applications: {{files: {{c: {{file: c.txt, format: prefixes, application: cdn}}}}}}
delivery:
  destinations:
    d: {{type: syslog, address: "d.example:6514", certificate_file: d.pem, key_file: d.key, ca_file: e.pem}}
    f: {{type: splunk, url: "https://f.example", token: {{env: F}}, ca_file: f.pem}}
"""
    site.config.write_text(text)
    named = {path.name for path in named_files(load_cluster(site.config))}
    found = {Path(name).name for name in named_in(text, "cluster.yaml")}
    assert found == named | {"nodes.csv", "own.py"}
    assert len(named) == 10


def test_a_restored_configuration_takes_no_other_files_name(site: Site) -> None:
    """One of the two would be lost without a word."""
    other = site.config.with_name("lab.yaml")
    other.write_text("# names of hosts\n192.0.2.1 mirror.example\n")
    with site.config.open("a") as file:
        file.write(NAMES.format("lab.yaml"))
    site.make()
    asked = site.config.with_name("lab.yaml")
    done = CliRunner().invoke(restore, ["-c", str(asked), str(site.file), "--force"])
    assert isinstance(done.exception, UserError), done.exception
    (line,) = done.exception.lines()
    assert line == (
        f"{site.file}: holds cluster.yaml, and lab.yaml beside it: expected another name for the first "
        f"(--config {site.config})"
    )
    assert other.read_text().startswith("# names of hosts")
    # Its state goes by no such name.
    asked_for = ["-c", str(asked), str(site.file), "--force", "--state-only", "--state", str(site.state)]
    assert CliRunner().invoke(restore, asked_for).exception is None


def test_what_was_put_aside_before_is_never_lost(site: Site) -> None:
    """However often within a second, and whatever has the name."""
    site.make()
    now = time.time()
    taken = [time.strftime("bridge.before-restore-%Y%m%dT%H%M%SZ", time.gmtime(now + later)) for later in range(30)]
    for name in taken:
        (site.state / name).symlink_to("nowhere")
    for number in (2, 3, 4):
        site.save(number)
        done = site.bring_back("--force")
        assert done.exception is None, done.output
    kept = [path for path in site.state.glob("bridge.before-restore-*") if path.name not in taken]
    notes = sorted(json.loads((path / "manifest.json").read_text())["notes"]["number"] for path in kept)
    assert notes == [2, 3, 4]
    assert all((site.state / name).is_symlink() for name in taken)


def test_a_backup_is_not_written_through_a_link(site: Site) -> None:
    """In a folder that others may write to."""
    victim = site.home / "victim"
    victim.write_text("theirs")
    (site.home / f".{site.file.name}.partial").symlink_to(victim)
    done = site.make()
    assert done.exception is None, done.output
    assert victim.read_text() == "theirs"
    assert stat.S_IMODE(site.file.stat().st_mode) == 0o600
    assert site.bring_back("--force").exception is None
    assert not [path for path in site.home.glob(".*.partial") if not path.is_symlink()]


def test_a_target_that_is_a_link_to_nothing_is_refused(site: Site) -> None:
    site.file.symlink_to(site.home / "planted.tar.gz")
    done = site.make()
    assert isinstance(done.exception, UserError), done.exception
    assert done.exception.lines() == [f"{site.file}: is there already (name another file)"]
    assert not (site.home / "planted.tar.gz").exists()


def test_a_restore_writes_no_folder_through_a_link(site: Site) -> None:
    site.make()
    site.save(2)
    victim = site.home / "victim"
    victim.mkdir()
    (site.state / "bridge.restoring").symlink_to(victim)
    done = site.bring_back("--force")
    assert done.exception is None, done.output
    assert not list(victim.iterdir())
    assert not (site.state / "bridge").is_symlink()
    loaded = site.loaded()
    assert isinstance(loaded, tuple)
    assert loaded[1] == {"number": 1}


def _flip(members: dict[str, bytes], _: dict[str, object]) -> None:
    name = next(name for name in members if name.endswith(".arrow"))
    members[name] = members[name][:-1] + bytes([members[name][-1] ^ 1])


def _shorten(members: dict[str, bytes], _: dict[str, object]) -> None:
    members["config/cluster.yaml"] = members["config/cluster.yaml"][:-1]


def _remove(members: dict[str, bytes], _: dict[str, object]) -> None:
    del members["config/cluster.yaml"]


def _newer_checkpoint(_: dict[str, bytes], manifest: dict[str, object]) -> None:
    manifest["checkpoint_format"] = 99


def _no_files(_: dict[str, bytes], manifest: dict[str, object]) -> None:
    manifest["files"] = "none"


@pytest.mark.parametrize("change", [_flip, _shorten, _remove, _newer_checkpoint, _no_files])
def test_what_is_damaged_or_of_another_version_touches_nothing(
    site: Site, change: Callable[[dict[str, bytes], dict[str, object]], None]
) -> None:
    site.make()
    rewritten(site, change)
    site.config.write_text("mine")
    done = site.bring_back("--force")
    assert isinstance(done.exception, UserError), done.exception
    assert len(done.exception.lines()) == 1
    assert site.config.read_text() == "mine"


@pytest.mark.parametrize("what", ["format", "checkpoint_format", "sqlite_format"])
@pytest.mark.parametrize(
    ("version", "why", "hint"),
    [
        (99, "made by a newer clusterflow, 9.9", "install that version, or a newer one"),
        (0, "made by an older clusterflow, 9.9", "restore it with that version, then upgrade"),
    ],
)
def test_a_backup_of_another_version_says_which_way_to_go(
    site: Site, what: str, version: int, why: str, hint: str
) -> None:
    site.make()
    rewritten(site, lambda _, manifest: manifest.update({what: version, "clusterflow": "9.9"}))
    done = site.bring_back("--force")
    assert isinstance(done.exception, UserError)
    (line,) = done.exception.lines()
    assert why in line
    assert hint in line
    assert ("then upgrade" in line) == (version == 0)


def test_a_backup_with_sqlite_files_of_an_older_format_that_is_read_comes_back(site: Site) -> None:
    site.make()
    rewritten(site, lambda _, manifest: manifest.update({"sqlite_format": 1}))
    done = site.bring_back("--force")
    assert done.exception is None, done.output


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.8])
def test_a_file_that_was_cut_short_touches_nothing(site: Site, share: float) -> None:
    site.make()
    whole = site.file.read_bytes()
    site.file.write_bytes(whole[: int(len(whole) * share)])
    done = site.bring_back("--force")
    assert isinstance(done.exception, UserError), done.exception


def test_an_older_clusterflow_refuses_newer_files_in_one_line(site: Site) -> None:
    manifest = site.state / "bridge" / "manifest.json"
    text = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(text | {"version": 99}))
    with pytest.raises(UserError, match="written by a newer clusterflow \\(format 99, this one reads"):
        site.loaded()
    with sqlite3.connect(site.state / "analysis.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(UserError, match=f"written by a newer clusterflow \\(format 99, this one knows {VERSION}\\)"):
        State.open(site.state)
    with pytest.raises(ClusterflowError, match="newer clusterflow"):
        State.copy_of(site.state)


@pytest.mark.parametrize("version", [0, 1])
def test_a_file_of_an_older_version_is_read_and_refused_by_that_version_from_then_on(site: Site, version: int) -> None:
    """A program that knew no `contact.last_seen` could write to no such table, and said that the disk was full."""
    with sqlite3.connect(site.state / "analysis.sqlite") as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with State.open(site.state) as state:
        assert state.position == 1_772_352_000
    with sqlite3.connect(site.state / "analysis.sqlite") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert VERSION > 1


@pytest.mark.parametrize("what", ["traffic", "manifest"])
def test_a_checkpoint_that_a_disk_has_damaged_gets_into_no_backup(site: Site, what: str) -> None:
    """The bridge reads it at its next start only: until then nobody else would tell."""
    (path,) = (site.state / "bridge").glob(f"{what}*")
    raw = bytearray(path.read_bytes())
    raw[raw.index(b'"number": 1') + 10 if what == "manifest" else len(raw) // 2] ^= 1
    path.write_bytes(raw)
    done = site.make()
    assert isinstance(done.exception, ClusterflowError), done.output
    assert path.name in done.exception.message
    assert "is not what it was" in done.exception.message
    assert not site.file.exists()


def test_an_sqlite_file_that_a_disk_has_damaged_gets_into_no_backup(site: Site) -> None:
    path = site.state / "analysis.sqlite"
    text = bytearray(path.read_bytes())
    for page in range(4096, len(text), 4096):
        text[page : page + 8] = b"\xff" * 8
    path.write_bytes(text)
    done = site.make()
    assert isinstance(done.exception, ClusterflowError)
    assert f"{path}: is damaged: " in done.exception.message
    assert not site.file.exists()


def test_a_disk_without_hard_links_takes_a_backup_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stick, a share: what came meanwhile under the name is kept there as well."""
    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(errno.EPERM, "Operation not permitted")))
    assert site.make().exception is None
    assert stat.S_IMODE(site.file.stat().st_mode) == 0o600
    assert site.bring_back("--force").exception is None
    assert not [*site.home.glob(".*.partial")]
    before = site.file.read_bytes()
    with pytest.raises(UserError, match="is there already"):
        backup_file._link(site.config, site.file)
    assert site.file.read_bytes() == before
