"""`clusterflow check` on each file of broken/ ends with 2 and says exactly what stands in the .txt beside it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from app.application import Application
from operations.check_cli import check

BROKEN = Path(__file__).parent / "broken"
FILES = sorted(path.name for path in BROKEN.glob("*.yaml"))


@pytest.mark.parametrize("name", FILES)
def test_check_tells_every_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)
    application = Application(name="clusterflow")
    application.add_command(check)
    result = CliRunner().invoke(application, ["check", name])
    assert result.stderr == (BROKEN / name).with_suffix(".txt").read_text(encoding="utf-8")
    assert result.stdout == ""
    assert result.exit_code == 2


def test_there_are_enough_of_them() -> None:
    assert len(FILES) >= 24
    assert {path.stem for path in BROKEN.glob("*.txt")} == {Path(name).stem for name in FILES}
