"""Whatever stands in the file, the answer is a cluster or a list of faults: never another error."""

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import ConfigError
from cluster.document import MAX_DEPTH
from cluster.load import parse_cluster
from cluster.model import ROOT, Cluster
from cluster.scalars.declared import OneOf, Section
from cluster.scalars.kinds import Kind, ListOf, MapOf, OneOrMany

RICH = yaml.safe_load((Path(__file__).parent / "rich.yaml").read_text(encoding="utf-8"))


def known_keys(kind: Kind[Any]) -> set[str]:
    if isinstance(kind, Section):
        return {key.name for key in kind.keys}.union(*(known_keys(key.kind) for key in kind.keys))
    if isinstance(kind, OneOf):
        return {kind.by}.union(*(known_keys(section) for section in kind.sections.values()))
    if isinstance(kind, ListOf | MapOf | OneOrMany):
        return known_keys(kind.item)
    return set()


KEYS = st.sampled_from(sorted(known_keys(ROOT) | {"training", "leaf-1", "gpu-{1..3}", "1", "<<", "env", "file"}))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.dates()
    | st.sampled_from(["training", "10.20.0.0/16", "10.20.0.{1..3}", "fd00::/8", "15m", "50 GB", "tcp", "webhook", "*"])
)
STRUCTURES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=6),
    max_leaves=40,
)


def load_or_tell(text: str) -> Cluster | None:
    """Load; where there are faults, each is one printable line that says what was expected."""
    try:
        return parse_cluster(text)
    except ConfigError as error:
        faults = error
    assert faults.problems
    assert all(problem.expected for problem in faults.problems)
    for line in faults.lines():
        assert line.isprintable()
        assert len(line) < 1_000
    return None


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    assert load_or_tell(text) is None


@settings(deadline=None)
@given(st.text(alphabet=":-[]{}#&*!|>'\"%@`,? \n\tabc1", max_size=60))
def test_any_punctuation(text: str) -> None:
    assert load_or_tell(text) is None


@settings(deadline=None)
@given(st.dictionaries(KEYS, STRUCTURES, max_size=8))
def test_any_structure(structure: dict[str, Any]) -> None:
    load_or_tell(yaml.safe_dump(structure))


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    children: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


@settings(max_examples=300 if os.environ.get("CLUSTERFLOW_FUZZ") else 100, deadline=None)
@given(st.sampled_from(places(RICH)[1:]), STRUCTURES)
def test_any_value_in_any_place_of_a_good_file(place: tuple[str | int, ...], value: object) -> None:
    changed = copy.deepcopy(RICH)
    target = changed
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    load_or_tell(yaml.safe_dump(changed))


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting(opening: str) -> None:
    assert load_or_tell(opening * 50_000) is None


def test_an_alias_bomb_is_cheap() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 200)]
    assert load_or_tell("\n".join([*lines, "groups: *a199", "allowed: *a199", "cluster: *a199"])) is None


def test_the_depth_that_is_allowed_is_enough() -> None:
    assert max(len(place) for place in places(RICH)) < MAX_DEPTH
