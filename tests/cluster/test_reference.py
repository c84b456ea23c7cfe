import dataclasses
from pathlib import Path
from typing import Any

from cluster import fields
from cluster.kinds import REQUIRED, Key, Kind, ListOf, MapOf, OneOf, OneOrMany, Section
from cluster.load import parse_cluster
from cluster.model import Thresholds
from cluster.reference import reference

ROOT = Path(__file__).parent.parent.parent


def keys_of(kind: Kind[Any]) -> list[Key]:
    if isinstance(kind, Section):
        return [*kind.keys, *(deeper for key in kind.keys for deeper in keys_of(key.kind))]
    if isinstance(kind, OneOf):
        return [key for section in kind.sections.values() for key in keys_of(section)]
    if isinstance(kind, ListOf | MapOf | OneOrMany):
        return keys_of(kind.item)
    return []


def test_the_committed_reference_is_what_the_code_says() -> None:
    committed = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert committed == reference(), "run: python -m cluster.reference docs/configuration.md"


def test_every_key_is_documented() -> None:
    text = reference()
    for key in keys_of(fields.ROOT):
        assert f"| `{key.name}` |" in text
        assert key.text in text
        assert key.text.endswith((".", "?"))


def test_every_threshold_is_a_key_with_the_default_of_the_model() -> None:
    written = {key.name: key.default for key in fields.THRESHOLDS.keys}
    assert written == dataclasses.asdict(Thresholds())


def test_every_default_is_valid_by_its_own_kind() -> None:
    """A default that one could not write into the file would be a trap."""
    lines = [
        f"{section.label}: {{{key.name}: {key.kind.write(key.default)!s}}}\n"
        for section in (fields.THRESHOLDS, fields.COST, fields.COLLECTOR, fields.BRIDGE, fields.GRAFANA)
        for key in section.keys
        if key.default is not None and key.default is not REQUIRED
    ]
    small = "cluster: lab\ngroups: {a: {role: custom}}\n"
    expected = parse_cluster(small)
    for line in lines:
        assert parse_cluster(small + line) == expected, line
