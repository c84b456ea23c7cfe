"""sbom.json names what requirements.lock installs, with licences; scripts/audit says what it did."""

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sbom", REPOSITORY / "scripts/sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    bill: dict[str, Any] = json.loads((REPOSITORY / "sbom.json").read_text(encoding="utf-8"))
    return bill


def test_the_committed_bill_is_what_the_lock_says(sbom: ModuleType, bill: dict[str, Any]) -> None:
    assert sbom.document() == bill, "run python scripts/sbom.py"


def test_every_pin_is_a_component_with_an_accepted_licence(sbom: ModuleType, bill: dict[str, Any]) -> None:
    pins = {line.split(" ")[0] for line in (REPOSITORY / "requirements.lock").read_text().splitlines() if "==" in line}
    assert {f"{one['name']}=={one['version']}" for one in bill["components"]} == pins
    assert len(pins) > 20
    assert sbom.unaccepted(bill) == []


@pytest.mark.parametrize(
    ("licence", "is_accepted"),
    [
        ("MIT", True), ("MIT OR GPL-3.0-only", True), ("MIT AND GPL-3.0-only", False), ("AGPL-3.0-only", False),
        ("(MIT AND BSD-3-Clause)", True), ("unknown", False), ("not installed here", False), ("Proprietary", False),
    ],
)  # fmt: skip
def test_a_licence_that_asks_for_more_is_told(sbom: ModuleType, licence: str, *, is_accepted: bool) -> None:
    component = {"name": "x", "licenses": [{"expression": licence}]}
    assert (sbom.unaccepted({"components": [component]}) == []) is is_accepted


def test_every_dependency_leads_to_a_component(bill: dict[str, Any]) -> None:
    known = {one["bom-ref"] for one in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    reached = {ref for one in bill["dependencies"] for ref in (one["ref"], *one["dependsOn"])}
    assert reached == known


def test_the_audit_says_what_it_did_and_needs_no_network() -> None:
    done = subprocess.run(
        ["unshare", "--net", "--map-root-user", "bash", "scripts/audit"]
        if subprocess.run(["unshare", "--net", "--map-root-user", "true"], capture_output=True, check=False).returncode
        == 0
        else ["bash", "scripts/audit"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "locks: every package pinned" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("vulnerabilities: ")
