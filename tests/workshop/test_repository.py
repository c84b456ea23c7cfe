"""What may be in the repository at all: no machine's paths, no registries' hosts, no secrets; scripts that run."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

# Put together here so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile(
    "|".join(["/wo" + r"rk/(?!flows)", "/ro" + "ot/", "/ho" + "me/", "/tm" + r"p/\w", r"/U" + "sers/"])
)
REGISTRIES = re.compile(
    "|".join(
        re.escape(host)
        for host in (
            "py" + "pi.org", "python" + "hosted.org", "npm" + "js.org", "proxy." + "golang.org", "crates" + ".io",
            "repo.maven" + ".apache.org", "deb." + "debian.org", "security." + "debian.org", "docker" + ".io/",
            "gh" + "cr.io",
        )
    )
)  # fmt: skip
# The names by which traffic to them is known.
NAMES_OF_REGISTRIES = "enrichment/addresses/applications.yaml"
SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\bAKIA[0-9A-Z]{16}\b|\bxox[abp]-[0-9A-Za-z-]{10,}|\bghp_[0-9A-Za-z]{30,}"
    r"|\bhooks\.slack\.com/services/T\w+/B\w+/\w{10,}"
)


def _git_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, text=True)
    return [REPOSITORY / name for name in listed.stdout.split("\0") if name]


def _text_lines() -> list[tuple[str, int, str]]:
    lines = []
    for path in _git_files():
        if not path.is_file():  # removed, not yet committed
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        name = str(path.relative_to(REPOSITORY))
        lines += [(name, number, line) for number, line in enumerate(text.splitlines(), 1)]
    return lines


if not shutil.which("git") or not (REPOSITORY / ".git").exists():
    pytest.skip("not a git checkout", allow_module_level=True)

LINES = _text_lines()


def _offenders(pattern: re.Pattern[str]) -> list[str]:
    return [f"{name}:{number}: {line.strip()[:120]}" for name, number, line in LINES if pattern.search(line)]


def test_the_repository_was_read() -> None:
    assert len(LINES) > 1000


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (MACHINE_PATHS, "log in /ro" + "ot/x"),
        (MACHINE_PATHS, "see /tm" + "p/out"),
        (REGISTRIES, "https://py" + "pi.org/simple"),
        (SECRETS, "-----BEGIN RSA PRIVATE" + " KEY-----"),
    ],
)
def test_the_patterns_find(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)


@pytest.mark.parametrize(
    ("pattern", "what"),
    [(MACHINE_PATHS, "paths of one machine"), (REGISTRIES, "registry hosts"), (SECRETS, "secrets")],
    ids=["paths", "registries", "secrets"],
)
def test_no_file_holds(pattern: re.Pattern[str], what: str) -> None:
    found = _offenders(pattern)
    if pattern is REGISTRIES:
        found = [line for line in found if not line.startswith(f"{NAMES_OF_REGISTRIES}:")]
    assert not found, f"{what}:\n" + "\n".join(found)


def test_no_secret_file_is_committed() -> None:
    names = {str(path.relative_to(REPOSITORY)) for path in _git_files()}
    assert not [
        name for name in names if name.startswith(("secrets/", "var/", ".venv/")) or name.endswith((".pem", ".key"))
    ]


def _starts_with_bash(path: Path) -> bool:
    return path.is_file() and path.read_bytes()[:20].startswith(b"#!/usr/bin/env bash")


def _shell_scripts() -> list[Path]:
    return [path for path in _git_files() if path.suffix == ".sh" or _starts_with_bash(path)]


def test_the_two_commands_are_there() -> None:
    names = {str(path.relative_to(REPOSITORY)) for path in _shell_scripts()}
    assert {"scripts/run", "scripts/test", "scripts/lib.sh", ".ci/run"} <= names


@pytest.mark.parametrize("script", _shell_scripts(), ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_script_is_sound(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True, capture_output=True)
    if script.name != "lib.sh":  # sourced, never run
        assert os.access(script, os.X_OK), f"{script} is not executable: chmod +x"


@pytest.mark.service
@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed: scripts/test installs it")
def test_shellcheck_finds_nothing() -> None:
    scripts = [str(path.relative_to(REPOSITORY)) for path in _shell_scripts()]
    result = subprocess.run(
        ["shellcheck", "--external-sources", *scripts], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("closed", "mode"),
    [("docker", 0o750), ("docker/cluster.yaml", 0o640), ("docker/tokens.sh", 0o754), ("provisioning/grafana", 0o751)],
)
def test_make_secrets_tells_of_files_that_containers_cannot_read(closed: str, mode: int, tmp_path: Path) -> None:
    """A clone under a umask of 027: InfluxDB and Grafana would start anew for ever, each with a riddle in its log."""
    (tmp_path / "provisioning" / "grafana").mkdir(parents=True)
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "cluster.yaml").write_text("cluster: lab\n")
    (tmp_path / "docker" / "tokens.sh").write_text("true\n")
    (tmp_path / "docker" / "tokens.sh").chmod(0o755)
    script = shutil.copy(REPOSITORY / "docker/make-secrets", tmp_path / "docker")
    subprocess.run(["chmod", "-R", "a+rX", "."], cwd=tmp_path, check=True)
    (tmp_path / closed).chmod(mode)
    result = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {closed}: not readable for the containers' users (")
    (command,) = re.findall(r": (chmod [^)]*)\)", line)
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    result = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert len(list((tmp_path / "secrets").glob("*_*"))) == 4


def test_make_secrets_keeps_what_is_there(tmp_path: Path) -> None:
    """The folder is closed, the files are long and unlike each other, and a second run changes none."""
    folder = tmp_path / "secrets"
    command = ["bash", str(REPOSITORY / "docker/make-secrets"), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    first = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
    subprocess.run(command, check=True, capture_output=True)
    assert {path.name: path.read_text() for path in folder.iterdir() if path.is_file()} == first
    assert len(set(first.values())) == len(first) == 4
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in first.values())
    assert folder.stat().st_mode & 0o777 == 0o700
