"""The built artefact: what an installation by wheel (the container images') gets."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel, built from a copy of what git and the working tree hold, as the Dockerfile builds it."""
    source = tmp_path_factory.mktemp("source")
    names = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        if (
            re.fullmatch(r"[\w]+\.py|[a-z]+/.*|pyproject\.toml|README\.md|LICENSE", name)
            and (REPOSITORY / name).is_file()
        ):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((REPOSITORY / name).read_bytes())
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "-w", target, source],
        check=True,
        capture_output=True,
    )
    (built,) = target.glob("clusterflow-*.whl")
    return zipfile.ZipFile(built)


@pytest.mark.service
def test_wheel_holds_every_module(wheel: zipfile.ZipFile) -> None:
    """A new subfolder or data file that pyproject.toml does not name would be missing in containers only."""
    packages = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
        "packages"
    ]
    listed = subprocess.run(
        ["git", "ls-files", *packages], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    missing = {name for name in listed if (REPOSITORY / name).is_file()} - set(wheel.namelist())
    assert not missing
    assert "clusterflow.py" in wheel.namelist()


def test_every_package_is_named() -> None:
    named = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    shipped = [path.parent.relative_to(REPOSITORY) for path in REPOSITORY.glob("[a-z]*/**/__init__.py")]
    found = {".".join(folder.parts) for folder in shipped if folder.parts[0] not in {"tests", "bench", "build", "var"}}
    assert found == set(named)


@pytest.mark.service
def test_wheel_installs_the_command_and_its_licence(wheel: zipfile.ZipFile) -> None:
    (entry,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "clusterflow = clusterflow:main" in wheel.read(entry).decode()
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
