from pathlib import Path
from typing import Any

from cluster.load import parse_cluster
from cluster.model import ROOT
from cluster.reference import reference
from cluster.scalars.declared import REQUIRED, Key, OneOf, Section
from cluster.scalars.kinds import Kind, ListOf, MapOf, OneOrMany
from cluster.sections.bridge import BRIDGE
from cluster.sections.collector import COLLECTOR
from cluster.sections.grafana import GRAFANA
from cluster.sections.network.site import COST
from cluster.sections.thresholds import THRESHOLDS

FOLDER = Path(__file__).parent.parent.parent


def keys_of(kind: Kind[Any]) -> list[Key]:
    if isinstance(kind, Section):
        return [*kind.keys, *(deeper for key in kind.keys for deeper in keys_of(key.kind))]
    if isinstance(kind, OneOf):
        return [key for section in kind.sections.values() for key in keys_of(section)]
    if isinstance(kind, ListOf | MapOf | OneOrMany):
        return keys_of(kind.item)
    return []


def test_the_committed_reference_is_what_the_code_says() -> None:
    committed = (FOLDER / "docs/reference/configuration.md").read_text(encoding="utf-8")
    assert committed == reference(), "run: python -m cluster.reference docs/reference/configuration.md"


def test_every_key_is_documented() -> None:
    text = reference()
    for key in keys_of(ROOT):
        assert f"| `{key.name}` |" in text
        assert key.text in text
        assert key.text.endswith((".", "?"))


def test_every_default_is_valid_by_its_own_kind() -> None:
    """A default that one could not write into the file would be a trap."""
    lines = [
        f"{section.label}: {{{key.name}: {key.kind.write(key.default)!s}}}\n"
        for section in (THRESHOLDS, COST, COLLECTOR, BRIDGE, GRAFANA)
        for key in section.keys
        if key.default is not None and key.default is not REQUIRED
    ]
    small = "cluster: lab\ngroups: {a: {role: custom}}\n"
    expected = parse_cluster(small)
    for line in lines:
        assert parse_cluster(small + line) == expected, line
