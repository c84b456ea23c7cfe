"""Warnings about the code of boards and rules that is probably not meant."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import yaml

from cluster.model import Cluster
from dashboards.lint import cut, faults
from dashboards.registry import BOARDS
from rules.registry import IDS

_MADE_FROM = ("cluster", "store", "dashboards", "rules")
_MADE_HERE: Mapping[str, tuple[re.Pattern[str], tuple[str, ...]]] = {
    "dashboards/boards": (re.compile(r"^def page\(cluster\b", re.MULTILINE), tuple(BOARDS)),
    "rules/alerts": (re.compile(r"^def build\(cluster: Cluster\) -> RuleSet\b", re.MULTILINE), IDS),
}
"""A folder, what a module in it has that makes a board or a rule, and the modules that are registered."""

_BARE = re.compile(r"[$.][vV]alues\.\w+\.Value")


def advice(files: Mapping[str, str], cluster: Cluster) -> list[str]:
    """Return one line for each thing to think about; `files`: what is generated of the cluster."""
    return [
        *_traps(files, {one.name: one.keep for one in cluster.retentions()}),
        *_bare_numbers(files),
        *_unregistered(),
        *_another_copy(Path.cwd()),
    ]


def _traps(files: Mapping[str, str], kept: Mapping[str, int]) -> Iterator[str]:
    for path, text in files.items():
        if path.endswith(".json"):
            # A board that another tool made may lack what the checks read: then they have nothing to say of it.
            with suppress(KeyError, TypeError, AttributeError):
                board = json.loads(text)
                yield from [f"{path}: {fault}" for fault in faults(board)]
                yield from [f"{path}: {fault}" for fault in cut(board, kept)]


def _bare_numbers(files: Mapping[str, str]) -> Iterator[str]:
    """Tell of annotations that fail in Grafana where a measure has no number."""
    for path, text in files.items():
        # Reading so much YAML takes seconds: only where there is something to tell.
        if not path.endswith(".yaml") or not _BARE.search(text):
            continue
        for rule in (rule for group in yaml.safe_load(text).get("groups", []) for rule in group["rules"]):
            for name, words in rule["annotations"].items():
                if bare := _BARE.search(words):
                    yield (
                        f"{path}: rule {rule['uid']}: annotation {name} has {bare[0]}: where Grafana has no number it "
                        "fails, the message shows its source, and each evaluation logs an error; take numbers by the "
                        "functions of rules.common.texts"
                    )


def _unregistered() -> Iterator[str]:
    for place, (makes, registered) in _MADE_HERE.items():
        package, _, floor = place.partition("/")
        for path in sorted((_folder(package) / floor).rglob("*.py")):
            if path.stem not in registered and makes.search(path.read_text(encoding="utf-8")):
                yield f"{path}: registered nowhere, so nothing is made of it: add it to {package}/registry.py"


def _another_copy(here: Path) -> Iterator[str]:
    """Say that this folder is a checkout, but its code is not what runs."""
    running = _folder("rules").parent
    if here == running or not all((here / package / "__init__.py").is_file() for package in _MADE_FROM):
        return
    if any(_texts(here / package) != _texts(running / package) for package in _MADE_FROM):
        yield f"the boards and rules of {running} are used, not those of this folder: `pip install -e .` changes that"


def _folder(package: str) -> Path:
    found = find_spec(package)
    if found is None or found.origin is None:
        raise LookupError(package)
    return Path(found.origin).parent


def _texts(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.py")}
