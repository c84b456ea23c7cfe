"""What the documentation names exists: links, anchors, commands, options, files."""

import re
import subprocess
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from app.errors import ConfigError
from cluster.load import parse_cluster
from cluster.model import ROOT
from clusterflow import main

REPOSITORY = Path(__file__).resolve().parents[2]
KNOWN = {name: main.get_command(click.Context(main), name) for name in main.list_commands(click.Context(main))}
PAGES = sorted(
    {
        REPOSITORY / "README.md",
        REPOSITORY / "CONTRIBUTING.md",
        REPOSITORY / "CHANGELOG.md",
        *REPOSITORY.glob("docs/**/*.md"),
    }
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
COMMAND = re.compile(r"(?:^|[\s/`(])clusterflow ([a-z][a-z-]*)((?: +(?:--?[a-z][\w-]*|[\w./-]+|[A-Z]+))*)")
EXAMPLE = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECTIONS = {key.name for key in ROOT.keys}
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
WORDS_AFTER_THE_NAME = {
    "is",
    "and",
    "never",
    "keeps",
    "installed",
    "turns",
    "to",
    "says",
    "writes",
    "for",
    "reads",
    "knows",
}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings, and those that it names itself."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in HEADING.findall(text)}
    return made | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):  # another site
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (anchor and linked.suffix == ".md" and anchor not in _anchors(linked)):
            broken.append(target)
    assert not broken


@each_page
def test_commands_and_their_options_exist(page: Path) -> None:
    wrong = []
    for name, rest in COMMAND.findall(page.read_text(encoding="utf-8")):
        if name in WORDS_AFTER_THE_NAME:
            continue
        command = KNOWN.get(name)
        if command is None:
            wrong.append(f"clusterflow {name}")
            continue
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        if not isinstance(command, click.Group):
            used = re.findall(r"(?<= )--?[a-z][\w-]*", rest)
            wrong += [f"clusterflow {name} {option}" for option in used if option not in known | {"--help", "-h"}]
    assert not wrong


def test_every_command_is_in_a_page() -> None:
    """A newcomer reads of each command somewhere before finding it in --help."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert not [name for name in KNOWN if f"clusterflow {name}" not in text and f"`{name}`" not in text]


@each_page
def test_keys_of_cluster_yaml_in_examples_exist(page: Path) -> None:
    """What a part alone lacks, such as a group that stands elsewhere, does not count."""
    unknown: list[str] = []
    for text in EXAMPLE.findall(page.read_text(encoding="utf-8")):
        part = yaml.safe_load(text)
        # `volumes` are docker-compose.yml's, whose `services` are others than ours.
        if isinstance(part, dict) and part.keys() <= SECTIONS and "volumes:" not in text:
            with pytest.raises(ConfigError) as raised:
                parse_cluster(f"no_section: 1\n{text}")
            unknown += [one.path for one in raised.value.problems if one.value == "unknown key"]
    assert not set(unknown) - {"no_section"}


@pytest.mark.parametrize(
    "page",
    [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "docs/deployment.md")],
    ids=lambda path: path.name,
)
def test_named_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(
        re.findall(
            r"(?:scripts|docker|provisioning|docs|cluster|ingest|analysis|dashboards|rules|store|tests)/[\w./*-]*\w",
            text,
        )
    )
    # Words in capitals stand for names that the reader chooses.
    chosen = re.compile(r"\b[A-Z]{3,}\b")
    missing = [name for name in named if not chosen.search(name) and not list(REPOSITORY.glob(name.rstrip(".")))]
    assert not missing


def test_readme_has_the_numbers_of_the_scorecard() -> None:
    card = (REPOSITORY / "docs/reference/scorecard.md").read_text(encoding="utf-8")
    counts = re.search(r"([\d.]+) simulated days: (\d+) of (\d+) alerts found \(.*\), (\d+) false", card)
    assert counts is not None
    days, found, due, false = counts.groups()
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert f"{found} of {due} alerts found, {false} false in {days} simulated days" in " ".join(readme.split())


def test_contributing_says_where_every_folder_is() -> None:
    """No folder of the repository goes without a line; new ones are noticed here."""
    page = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    folders = {name.split("/")[0] for name in tracked.splitlines() if "/" in name and not name.startswith(".")}
    assert not [folder for folder in sorted(folders - {"tests"}) if f"`{folder}/`" not in page]


def test_the_picture_of_the_rooms_is_the_import_order() -> None:
    layers, _ = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    picture = re.search(
        r"^ +(bench -->.*)$", (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert picture is not None
    assert picture[1].replace(" & ", " | ").split(" --> ") == layers["layers"]
