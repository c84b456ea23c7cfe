import json
import os
import resource
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from cluster.config_log import FIRST, LOG, Record, newest, note_configuration, read_log
from cluster.config_log_cli import config_log
from cluster.errors import ClusterflowError
from cluster.load import load_cluster
from cluster.sources import files_of

TEXT = """\
cluster: lab
groups:
  a: {role: training, prefixes: [10.0.0.0/8]}
inventory: nodes.csv
rules: [own.py]
store: {username: writer, password: {file: secret}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(TEXT)
    (tmp_path / "nodes.csv").write_text("name,group,address\nn1,a,10.0.0.1\n")
    (tmp_path / "own.py").write_text("RULE = None\n")
    (tmp_path / "secret").write_text("hunter2")
    return path


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def note(state: Path, file: Path, process: str = "ingest") -> Record | None:
    return note_configuration(state, process, load_cluster(file), file)


def test_the_first_start_is_a_record_and_the_same_again_is_none(state: Path, file: Path) -> None:
    first = note(state, file)
    assert first is not None
    assert (first.summary(), first.total) == (FIRST, 0)
    assert set(first.sha256) == {path.name for path in files_of(file)} == {"cluster.yaml", "nodes.csv", "own.py"}
    assert note(state, file) is None
    assert read_log(state) == [first]


def test_every_process_notices_a_change_for_itself(state: Path, file: Path) -> None:
    note(state, file)
    note(state, file, "analyze")
    file.write_text(TEXT + "thresholds: {exfil_volume: 1 GB}\n")
    told = [note(state, file), note(state, file, "analyze")]
    assert [record and record.summary() for record in told] == ["thresholds.exfil_volume"] * 2
    assert [record.process for record in read_log(state)] == ["ingest", "analyze"] * 2


def test_a_change_of_the_inventory_tells_the_node_and_one_of_a_rule_the_file(state: Path, file: Path) -> None:
    note(state, file)
    (file.parent / "nodes.csv").write_text("name,group,address\nn1,a,10.0.0.1\nn2,a,10.0.0.2\n")
    (file.parent / "own.py").write_text("RULE = 1\n")
    record = note(state, file)
    assert record is not None
    paths = [change.path for change in record.changes]
    assert paths == ["nodes.n2", "files.nodes.csv", "files.own.py"]


def test_a_new_comment_is_told_as_such(state: Path, file: Path) -> None:
    note(state, file)
    file.write_text(f"# why\n{TEXT}")
    record = note(state, file)
    assert record is not None
    assert record.summary() == "comments or form only"


def test_neither_the_log_nor_what_was_seen_holds_a_secret_and_others_cannot_read_the_log(
    state: Path, file: Path
) -> None:
    note(state, file)
    file.write_text(TEXT.replace("file: secret", "file: other"))
    note(state, file)
    written = "".join(path.read_text() for path in state.iterdir())
    assert "secret" in written
    assert "hunter2" not in written
    assert not stat.S_IMODE((state / LOG).stat().st_mode) & 0o007


def test_a_line_that_a_crash_cut_short_is_left_out(state: Path, file: Path) -> None:
    note(state, file)
    with (state / LOG).open("a") as log:
        log.write('{"time": 17')
    assert len(read_log(state)) == 1


def test_a_line_that_a_crash_cut_short_does_not_swallow_the_next(state: Path, file: Path) -> None:
    first = note(state, file)
    with (state / LOG).open("a") as log:
        log.write('{"time": 17')
    file.write_text(f"# why\n{TEXT}")
    assert [first, note(state, file)] == read_log(state)


def test_a_disk_that_is_full_leaves_the_log_as_it_was(state: Path, file: Path) -> None:
    note(state, file)
    before = (state / LOG).read_bytes()
    file.write_text(f"# why\n{TEXT}")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(ClusterflowError, match="cannot be written"):
            note(state, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (state / LOG).read_bytes() == before
    assert note(state, file) is not None


@pytest.mark.parametrize("kept", ["{}", "[]", '{"cluster": [], "sha256": {}}', '{"cluster": {}, "sha256": "x"}'])
def test_what_was_seen_and_is_damaged_makes_a_first_record_again(state: Path, file: Path, kept: str) -> None:
    note(state, file)
    (state / "config-seen-ingest.json").write_text(kept)
    record = note(state, file)
    assert record is not None
    assert record.note == FIRST


def test_others_may_read_neither_the_log_nor_what_was_seen(state: Path, file: Path) -> None:
    before = os.umask(0o022)
    try:
        note(state, file)
    finally:
        os.umask(before)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()} == {
        LOG: 0o640,
        "config-seen-ingest.json": 0o640,
    }


def test_processes_that_start_at_once_write_whole_lines(state: Path, file: Path) -> None:
    cluster = load_cluster(file)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: note_configuration(state, f"p{n}", cluster, file), range(24)))
    assert sorted(record.process for record in read_log(state)) == sorted(f"p{n}" for n in range(24))


def test_thousands_of_changed_nodes_are_counted(state: Path, file: Path) -> None:
    note(state, file)
    rows = (f"m{n},a,10.1.{n // 250}.{n % 250}" for n in range(1_500))
    (file.parent / "nodes.csv").write_text("\n".join(["name,group,address", "n1,a,10.0.0.1", *rows]))
    record = note(state, file)
    assert record is not None
    assert (record.total, len(record.changes)) == (1_501, 1_000)


def test_a_folder_that_cannot_be_written_is_one_clear_line(file: Path) -> None:
    (file.parent / "taken").write_text("")
    with pytest.raises(ClusterflowError, match="cannot be written"):
        note(file.parent / "taken", file)


def test_the_command_shows_keys_with_old_and_new_values_or_json(state: Path, file: Path) -> None:
    note(state, file)
    file.write_text(TEXT + "thresholds: {exfil_volume: 1 GB}\n")
    note(state, file)
    shown = CliRunner().invoke(config_log, ["-c", str(file), "--state", str(state)])
    lines = shown.output.splitlines()
    assert lines[0].endswith(FIRST)
    assert lines[-1] == '    thresholds.exfil_volume: "50 GB" -> "1 GB"'
    as_json = CliRunner().invoke(config_log, ["-c", str(file), "--state", str(state), "--json"])
    assert [json.loads(line)["total"] for line in as_json.output.splitlines()] == [0, 1]


def test_a_start_knows_what_earlier_ones_may_not_have_stored(state: Path, file: Path) -> None:
    note(state, file)
    for size in range(1, 30):
        file.write_text(TEXT + f"thresholds: {{exfil_volume: {size} GB}}\n")
        note(state, file)
    note_configuration(state, "analyze", load_cluster(file), file)
    found = newest(state, "ingest")
    assert {record.process for record in found} == {"ingest"}
    assert [record.changes[0].new for record in found] == [f'"{size} GB"' for size in range(10, 30)]
    assert newest(state / "elsewhere", "ingest") == []
