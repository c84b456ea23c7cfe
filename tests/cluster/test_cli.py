import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from app.application import Application
from app.errors import StoreError, UserError
from cluster.cli import cluster_option, dump
from cluster.load import parse_cluster
from cluster.model import Cluster
from clusterflow import main
from operations.check_cli import check
from operations.draft.draft_cli import init

NEXT = "`clusterflow init` writes a first one; --config names another"
SMALL = "cluster: lab\ngroups: {training: {role: training, prefixes: [10.20.0.0/16]}}\n"


@click.command()
@cluster_option
def show(cluster: Cluster) -> None:
    """Print the cluster's name."""
    click.echo(cluster.name)


@click.command()
@click.argument("how")
def fail(how: str) -> None:
    """Fail in some way."""
    errors: dict[str, BaseException] = {
        "user": UserError("port 99999", "1 to 65535"),
        "store": StoreError("no answer"),
        "bug": ValueError("two\nlines"),
        "interrupt": KeyboardInterrupt(),
    }
    raise errors[how]


def run(*arguments: str) -> Result:
    application = Application(name="clusterflow")
    for command in (init, dump, check, show, fail):
        application.add_command(command)
    return CliRunner().invoke(application, arguments)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLUSTERFLOW_CONFIG", raising=False)
    return tmp_path


def test_check_counts_what_it_found() -> None:
    Path("cluster.yaml").write_text(SMALL + 'nodes: {n: {group: training, addresses: [10.20.0.1, "10.20.0.2"]}}\n')
    result = run("check")
    assert result.exit_code == 0
    assert result.stdout == "cluster.yaml: ok: lab: 1 group, 1 node, 2 addresses, 0 exporters, 0 jobs\n"
    assert "cluster.yaml: warning: notify: empty: alerts show on the boards only\n" in result.stderr


def test_check_takes_the_file_in_three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("other.yaml").write_text(SMALL)
    assert run("check", "other.yaml").stdout.startswith("other.yaml: ok: lab:")
    assert run("check", "--config", "other.yaml").stdout.startswith("other.yaml: ok: lab:")
    monkeypatch.setenv("CLUSTERFLOW_CONFIG", "other.yaml")
    assert run("check").stdout.startswith("other.yaml: ok: lab:")
    assert run("show").stdout == "lab\n"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("nowhere.yaml", f"nowhere.yaml: no such file: expected the cluster's description ({NEXT})\n"),
        (".", ".: a folder: expected a file\n"),
    ],
)
def test_check_without_a_file(name: str, line: str) -> None:
    result = run("check", name)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", line)


def test_init_writes_a_file_that_passes_check_and_lacks_only_where_grafana_is() -> None:
    assert run("init").exit_code == 0
    result = run("check")
    warning = "grafana.url: http://127.0.0.1:3000: the links in alerts open on Grafana's machine only"
    marked = "lines 4, 7, 17, 22, 28, 33 and 4 more: still as `clusterflow init` wrote them"
    hint = "put your own values in, or take the mark off"
    told = f"cluster.yaml: warning: {warning}\ncluster.yaml: warning: {marked}: {hint}\n"
    assert (result.exit_code, result.stderr) == (0, told)
    text = Path("cluster.yaml").read_text(encoding="utf-8")
    Path("cluster.yaml").write_text(text.replace("10.20.0.0/16]", "10.21.0.0/16, 10.20.0.0/16]"), encoding="utf-8")
    assert "lines 4, 7, 22, 28, 33, 38 and 3 more: still" in run("check").stderr, "line 17 is the user's now"
    assert result.stdout.startswith("cluster.yaml: ok: my-cluster: ")


def test_init_does_not_write_over_a_file() -> None:
    Path("cluster.yaml").write_text("mine")
    result = run("init")
    assert (result.exit_code, result.stderr) == (2, "cluster.yaml: is there already (--force writes over it)\n")
    assert Path("cluster.yaml").read_text() == "mine"
    assert run("init", "--force").exit_code == 0
    assert "my-cluster" in Path("cluster.yaml").read_text()


@pytest.mark.parametrize("name", ["missing/cluster.yaml", "."])
def test_init_where_nothing_can_be_written(name: str) -> None:
    result = run("init", name)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{name}: ")
    assert len(result.stderr.splitlines()) == 1


def test_dump_loads_again() -> None:
    Path("cluster.yaml").write_text(SMALL)
    assert parse_cluster(run("dump").stdout) == parse_cluster(SMALL)


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("user", 2, "port 99999 (1 to 65535)\n"),
        ("store", 1, "no answer\n"),
        ("interrupt", 130, "\n"),
    ],
)
def test_errors_end_in_one_place(how: str, code: int, text: str) -> None:
    result = run("fail", how)
    assert (result.exit_code, result.stderr, result.stdout) == (code, text, "")


def test_a_defect_is_one_line_and_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = run("fail", "bug")
    (log,) = tmp_path.glob("clusterflow-*.log")
    expected = f"unexpected error: ValueError: two lines (the traceback is in {log}: please report it)\n"
    assert (result.exit_code, result.stderr) == (3, expected)
    assert "ValueError: two" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_wrong_usage_ends_with_2() -> None:
    result = run("chek")
    assert result.exit_code == 2
    assert "check" in result.stderr


def test_a_reader_that_leaves_early_is_not_told_off(in_an_empty_folder: Path) -> None:
    Path("cluster.yaml").write_text(SMALL)
    root = Path(__file__).parent.parent.parent
    code = (
        "from app.application import Application; from cluster.cli import dump;"
        "a = Application(name='c'); a.add_command(dump); a.main()"
    )
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", code, "dump"],
        cwd=in_an_empty_folder,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_interrupt_from_the_keyboard_ends_with_130(in_an_empty_folder: Path) -> None:
    root = Path(__file__).parent.parent.parent
    code = (
        "import click, time; from app.application import Application\n"
        "@click.command()\n"
        "def wait():\n"
        "    print('ready', flush=True); time.sleep(60)\n"
        "a = Application(name='c'); a.add_command(wait); a.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, "wait"],
        cwd=in_an_empty_folder,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "\n")


def _with_output(path: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "clusterflow", *arguments]
    given = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    with Path(path).open("w", encoding="utf-8") as output:
        return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, env=given, check=False)


def test_an_interrupt_while_a_command_is_loaded_is_no_defect(capsys: pytest.CaptureFixture[str]) -> None:
    """Python 3.11 makes a RuntimeError of what is raised in __set_name__."""

    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    application = Application(name="clusterflow")

    @application.command()
    def load() -> None:
        type("Made", (), {"field": Field()})

    with pytest.raises(SystemExit) as ended:
        application.main(["load"])
    assert (ended.value.code, capsys.readouterr().err) == (130, "")


def test_a_full_disk_under_the_output_is_one_line_and_no_defect() -> None:
    Path("cluster.yaml").write_text(SMALL)
    done = _with_output("/dev/full", "dump")
    assert (done.returncode, done.stderr) == (1, "what it writes: No space left on device (make room, and try again)\n")


def test_a_place_that_takes_no_file_is_one_line_and_no_defect() -> None:
    Path("cluster.yaml").write_text(f"{SMALL}exporters: {{leaf-1: {{address: 127.0.0.31}}}}\n")
    done = CliRunner().invoke(main, ["simulate", "--spool", "/sys/kernel/spool", "--for", "10s"])
    assert done.exit_code == 2
    assert done.stderr.startswith("/sys/kernel/spool: ")
    assert done.stderr.endswith(" (make it, its folder and its disk writable for this user)\n")


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


@pytest.mark.parametrize("before", ["", SMALL])
def test_init_on_a_full_disk_leaves_all_as_it_was(before: str) -> None:
    if before:
        Path("cluster.yaml").write_text(before)
    command = [sys.executable, "-m", "clusterflow", "init", "--force"]
    given = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, preexec_fn=_small_files, capture_output=True, text=True, env=given, check=False)
    assert (done.returncode, done.stderr) == (2, "cluster.yaml: File too large (name a file that can be written)\n")
    assert [one.read_text() for one in Path().iterdir()] == ([before] if before else [])


def test_a_defect_is_told_where_no_file_takes_its_traceback() -> None:
    here = str(Path(__file__).parent)
    code = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); sys.path.insert(0, {here!r}); "
        "from test_cli import run; sys.stderr.write(run('fail', 'bug').stderr)"
    )
    given = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=given, check=False)
    assert "ValueError: two\nlines\n" in done.stderr
    assert done.stderr.endswith("unexpected error: ValueError: two lines (the traceback is above: please report it)\n")
