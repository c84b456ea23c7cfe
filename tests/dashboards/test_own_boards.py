"""Boards of the site's own: what cluster.yaml names is written beside ours, and mistakes are told in one line."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from clusterflow import main
from dashboards.board import TAG
from dashboards.boards import egress
from operations import code_advice

REPOSITORY = Path(__file__).resolve().parents[2]
DEMO = (REPOSITORY / "cluster.yaml").read_text(encoding="utf-8")
BOARDS = "out/grafana/dashboards"
EXAMPLE_RULE, EXAMPLE_BOARD = re.findall(
    r"```python\n(.*?)```", (REPOSITORY / "docs/extending.md").read_text(encoding="utf-8"), re.DOTALL
)

AS_IT_IS = """
from grafanalib import core

def boards(cluster):
    panel = core.Text(title="Words", content="hello", mode="markdown")
    return [core.Dashboard(title="As it is", uid="as-it-is", tags=["team"], panels=[panel])]
"""
PAGE = """
from dashboards.board import Page
from dashboards.panels import Face, text
from dashboards.registry import Board

BOARD = Board("my-team", "My team", "What?", ("words",))

def boards(cluster):
    face = Face("words", "Words", "Shows.", "Cannot.", "Then.", x=0, y=0, w=6, h=4)
    return [Page(BOARD, (text(cluster, face, "hello"),))]
"""


def _site(folder: Path, code: str, more: str = "") -> Path:
    path = folder / "my_team.py"
    path.write_text(code, encoding="utf-8")
    path.chmod(0o644)
    config = folder / "cluster.yaml"
    config.write_text(f"{DEMO}\nboards: [my_team.py]\n{more}", encoding="utf-8")
    return config


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def _build(config: Path) -> dict[str, Any]:
    result = _run("build", "--config", str(config), "--out", str(config.parent / "out"))
    assert result.exit_code == 0, result.output
    files = (config.parent / BOARDS).glob("*.json")
    return {path.name: json.loads(path.read_text()) for path in files}


def test_the_example_of_the_docs_is_written_beside_ours(tmp_path: Path) -> None:
    config = _site(tmp_path, EXAMPLE_BOARD)
    built = _build(config)
    board = built["storage-team.json"]
    assert [(panel["id"], panel["title"]) for panel in board["panels"]] == [
        (1, "Bytes read"), (2, "Rate by reader"), (3, "Readers and services"),
    ]  # fmt: skip
    assert TAG in board["tags"]
    assert "\"src_group\" = 'storage'" in board["panels"][0]["targets"][0]["query"]
    # It goes when it is named no more; what somebody put there himself stays.
    config.write_text(DEMO, encoding="utf-8")
    assert set(built) - set(_build(config)) == {"storage-team.json"}


def test_what_only_a_browser_would_show_is_told(tmp_path: Path) -> None:
    result = _run("check", "--config", str(_site(tmp_path, EXAMPLE_BOARD)))
    assert "storage-team.json" not in result.stderr
    code = EXAMPLE_BOARD.replace(", overrides=group_series(cluster)", "")
    result = _run("check", "--config", str(_site(tmp_path, code)))
    assert result.exit_code == 0
    assert "storage-team.json: Rate by reader: query A names its series $tag_dst_group: legends" in result.stderr


def test_boards_of_grafanalib_are_taken_as_they_are(tmp_path: Path) -> None:
    board = _build(_site(tmp_path, AS_IT_IS))["as-it-is.json"]
    assert (board["title"], board["tags"], board["links"]) == ("As it is", ["team"], [])
    assert [(panel["id"], panel["title"]) for panel in board["panels"]] == [(1, "Words")]


UNREGISTERED = PAGE.replace('Face("words"', 'Face("wrods"')


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("pass", ": no function boards(cluster)"),
        ("def boards(cluster):\n    return [1]\n", ": boards() returned int: expected Page, or Dashboard"),
        ("def boards(cluster):\n    return None\n", ": TypeError: 'NoneType' object is not iterable"),
        ("import nothing_of_this_name\n", ":1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("def boards(cluster:\n", ":1: SyntaxError: "),
        ("def boards(cluster):\n    raise SystemExit(0)\n", ":2: SystemExit: 0"),
        (EXAMPLE_BOARD.replace('"storage-team"', '"storage team"'), ": board 'Storage team': uid 'storage team': exp"),
        (EXAMPLE_BOARD.replace("schema.DST_GROUP, schema.SERVICE", '"reader"'), ":17: ValueError: traffic: no tag"),
        (PAGE.replace("Page(BOARD", 'Page("my_team"'), ": board 'my_team' is registered nowhere (add it to BOARDS"),
        (UNREGISTERED, ": board my-team: panel 'wrods' is registered nowhere (append the name"),
        (PAGE.replace("boards(cluster):", "boards(cluster):\n    {}['no_such_key']"), ":9: KeyError: no_such_key ("),
        (PAGE.replace('"my-team"', '"cf-egress"'), ": board cf-egress (My team): its uid, title or file name is taken"),
        (PAGE.replace('"My team"', '"Explore"'), ": board my-team (Explore): its uid, title or file name is taken"),
        (PAGE.replace('"My team"', '"Runbook"'), ": board my-team (Runbook): its uid, title or file name is taken"),
        (PAGE.replace('"my-team"', '"runbook"'), ": board runbook (My team): its uid, title or file name is taken"),
        (PAGE.replace('"my-team"', '"noc-wall"'), ": board noc-wall (My team): its uid, title or file name is taken"),
        (PAGE.replace('("words",)', '("words")'), ":6: ValueError: board my-team: panels: expected a tuple of names"),
        (PAGE.replace('("words",)', '("words", "words")'), ":6: ValueError: board my-team: panels: expected a tuple"),
        (PAGE.replace('"My team"', '""'), ":6: ValueError: board my-team: no title"),
        (PAGE.replace('"hello"),)', '"hello"),) * 2'), ": board my-team: panel 'words' is there twice"),
        (PAGE.replace('"hello"),)', '"hello"),), since=24'), ":10: ValueError: page: since is 24: expected a number"),
        (PAGE.replace('"hello"),)', '"hello"),), refresh=9'), ":10: ValueError: page: refresh is 9: expected a number"),
        (AS_IT_IS.replace('tags=["team"]', "tags=[object()]"), ": TypeError: Object of type object is not JSON"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["check", "build"])
def test_a_mistake_is_told_in_one_line(tmp_path: Path, code: str, said: str, command: str) -> None:
    result = _run(command, "--config", str(_site(tmp_path, code)))
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{tmp_path}/my_team.py{said}")
    assert any(hint in line for hint in ("docs/extending.md", "append", "its name is its id"))


def test_a_rule_may_link_to_a_board_of_the_sites_own(tmp_path: Path) -> None:
    (tmp_path / "backup_size.py").write_text(
        EXAMPLE_RULE.replace('panel_ref("explore", "groups_over_time")', 'PanelRef("storage-team", 3)').replace(
            "import panel_ref", "import PanelRef"
        )
    )
    config = _site(tmp_path, EXAMPLE_BOARD, "rules: [backup_size.py]\n")
    assert _run("check", "--config", str(config)).exit_code == 0
    _site(tmp_path, PAGE, "rules: [backup_size.py]\n")
    result = _run("check", "--config", str(config))
    assert result.exit_code == 2
    assert result.stderr == (
        f"{tmp_path}/backup_size.py: its alerts link to panel 3 of the board storage-team, which is not there "
        "(put the panel back, or let the rule's `panel` name another)\n"
    )


def test_a_panel_of_ours_that_an_alert_links_to_cannot_go(monkeypatch: pytest.MonkeyPatch) -> None:
    page = egress.page

    def without_its_tile(cluster: Any) -> Any:
        made = page(cluster)
        return type(made)(made.board, tuple(one for one in made.panels if one.name != "unknown_volume"))

    monkeypatch.setattr(egress, "page", without_its_tile)
    result = _run("check", "--config", str(REPOSITORY / "cluster.yaml"))
    assert result.exit_code == 2
    assert (
        "rules/alerts/security/exfil_volume.py: its alerts link to panel unknown_volume of "
        "the board cf-egress, which is not there" in result.stderr
    )


def test_a_module_that_is_registered_nowhere_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(code_advice._unregistered()) == []
    packages = tmp_path / "dashboards/boards", tmp_path / "rules/alerts"
    makes = "def page(cluster: Cluster) -> Page:\n", "def build(cluster: Cluster) -> RuleSet:\n"
    for package, code in zip(packages, makes, strict=True):
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "my_team.py").write_text(code)
        (package / "helper.py").write_text("def pages(cluster): ...\n")
    monkeypatch.setattr(code_advice, "_folder", lambda package: tmp_path / package)
    assert list(code_advice._unregistered()) == [
        f"{tmp_path}/{name}/{floor}/my_team.py: registered nowhere, "
        f"so nothing is made of it: add it to {name}/registry.py"
        for name, floor in (("dashboards", "boards"), ("rules", "alerts"))
    ]


@pytest.mark.service
def test_a_checkout_whose_code_does_not_run_is_told(tmp_path: Path) -> None:
    """The command is installed from another folder: what is changed here has no effect."""
    for package in ("cluster", "store", "dashboards", "rules"):
        for path in (REPOSITORY / package).rglob("*.py"):
            copy = tmp_path / path.relative_to(REPOSITORY)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    said = f"warning: the boards and rules of {REPOSITORY} are used, not those of this folder: "
    assert said not in _from(tmp_path)
    with (tmp_path / "dashboards/boards/egress.py").open("a") as module:
        module.write("# mine\n")
    assert said in _from(tmp_path)


def _from(folder: Path) -> str:
    # As an installed command runs: Python's own path does not begin with this folder.
    command = [str(Path(sys.executable).parent / "clusterflow"), "build", "--config", str(REPOSITORY / "cluster.yaml")]
    done = subprocess.run([*command, "--out", "made"], cwd=folder, capture_output=True, text=True, check=True)
    return done.stderr
