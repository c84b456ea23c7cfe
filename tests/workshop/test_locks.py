"""The locks pin every package exactly, with hashes, and agree with pyproject.toml and with each other."""

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+) \\$")


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins(name: str) -> dict[str, str]:
    lines = (REPOSITORY / name).read_text(encoding="utf-8").splitlines()
    return {_canonical(match[1]): match[2] for line in lines if (match := PINNED.match(line))}


def _wanted(*, dev: bool) -> list[str]:
    project: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional: dict[str, list[str]] = project["optional-dependencies"]
    extras = [line for name, lines in optional.items() if dev or name != "dev" for line in lines]
    return [*project["dependencies"], *extras]


@pytest.mark.parametrize(("lock", "dev"), [("requirements.lock", False), ("requirements-dev.lock", True)])
def test_lock_holds_all_that_pyproject_asks_for(lock: str, dev: bool) -> None:  # noqa: FBT001 - a table's column
    pins = _pins(lock)
    missing = [line for line in _wanted(dev=dev) if _canonical(re.split(r"[<>=!~ \[]", line)[0]) not in pins]
    assert not missing, f"run scripts/lock: {lock} lacks {missing}"
    assert "setuptools" in pins  # installing ourselves needs it, and must not fetch another


def test_whatever_we_import_is_asked_for() -> None:
    """A package that only comes with another one is gone, or of another version, when that one says so."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    setuptools = project["tool"]["setuptools"]
    own = {name.partition(".")[0] for name in (*setuptools["packages"], *setuptools["py-modules"])}
    files = [REPOSITORY / "clusterflow.py", *(file for name in own for file in (REPOSITORY / name).rglob("*.py"))]
    imported = {
        name.partition(".")[0]
        for file in files
        for name in re.findall(r"^ *(?:from|import) (\w[\w.]*)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    of_module = packages_distributions()
    wanted = {_canonical(re.split(r"[<>=!~ \[]", line)[0]) for line in _wanted(dev=False)}
    foreign = {name for name in imported & of_module.keys() if name not in own}
    missing = {name for name in foreign if not wanted & {_canonical(one) for one in of_module[name]}}
    assert not missing, f"pyproject.toml lacks {missing}"


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock", "tests/fuzz/requirements.lock"])
def test_every_line_is_a_pin_or_its_hash(lock: str) -> None:
    for line in (REPOSITORY / lock).read_text(encoding="utf-8").splitlines():
        assert not line or line.lstrip().startswith(("#", "--hash=sha256:")) or PINNED.match(line), line


def test_developers_run_what_users_run() -> None:
    run, dev = _pins("requirements.lock"), _pins("requirements-dev.lock")
    assert run.items() <= dev.items()
