"""Backup and restore over real checkpoints and SQLite files."""

import fcntl
import io
import json
import os
import shutil
import sqlite3
import stat
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

from analysis.backup_cli import backup, restore
from analysis.state import State
from cluster.errors import ClusterflowError, UserError
from cluster.load import load_cluster
from ingest.checkpoint import Checkpoint

CLUSTER = """\
cluster: lab
groups:
  a: {{role: training, prefixes: [10.0.0.0/8]}}
inventory: lists/nodes.csv
rules: [own.py]
store: {{username: writer, password: {{file: secret}}}}
bridge: {{state: {state}}}
"""


class Site:
    """A state folder, and a folder with cluster.yaml."""

    def __init__(self, home: Path) -> None:
        self.home, self.state, self.config = home, home / "state", home / "etc" / "cluster.yaml"
        (home / "etc" / "lists").mkdir(parents=True)
        self.config.write_text(CLUSTER.format(state=self.state))
        (home / "etc" / "lists" / "nodes.csv").write_text("name,group,address\nn1,a,10.0.0.1\n")
        (home / "etc" / "own.py").write_text("RULE = None\n")
        (home / "etc" / "secret").write_text("hunter2")
        self.file = home / "site.tar.gz"

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

    def make(self) -> Result:
        return CliRunner().invoke(backup, ["-c", str(self.config), str(self.file)])

    def bring_back(self, *arguments: str) -> Result:
        return CliRunner().invoke(restore, ["-c", str(self.config), str(self.file), *arguments])


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


def test_a_backup_of_a_state_folder_without_anything_says_so(site: Site) -> None:
    done = CliRunner().invoke(backup, ["-c", str(site.config), "--state", str(site.home / "none"), str(site.file)])
    assert done.exception is None
    assert "warning: no checkpoint in" in done.output


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
    "state/bridge/deep/evil.arrow", "config/a\\..\\evil", "other/evil",
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
    with pytest.raises(UserError, match="written by a newer clusterflow \\(format 99, this one knows 1\\)"):
        State.open(site.state)
    with pytest.raises(ClusterflowError, match="newer clusterflow"):
        State.copy_of(site.state)


def test_a_file_from_before_the_versions_is_taken_as_the_first(site: Site) -> None:
    with sqlite3.connect(site.state / "analysis.sqlite") as connection:
        connection.execute("PRAGMA user_version = 0")
    with State.open(site.state) as state:
        assert state.position == 1_772_352_000
    with sqlite3.connect(site.state / "analysis.sqlite") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
