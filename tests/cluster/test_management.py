"""What `management` and `artefacts` of cluster.yaml mean."""

from pathlib import Path

import pytest

from cluster.load import load_cluster, parse_cluster
from cluster.model import MANAGEMENT_SERVICES, Artefact, Management
from cluster.sections.network.services import WELL_KNOWN

RICH = load_cluster(Path(__file__).parent / "rich.yaml")
SITE = parse_cluster(
    """
cluster: lab
groups:
  training: {role: training, prefixes: [10.20.0.0/16]}
  admins: {role: custom, prefixes: [10.80.0.0/24]}
  control: {role: management, prefixes: [10.60.0.0/24]}
  bmc: {role: management, prefixes: [10.61.0.0/24]}
  mirror: {role: approved_external, prefixes: [198.51.100.0/24]}
allowed: [{from: "*", to: control}, {from: control, to: "*"}]
management: {services: [dns, https], sources: [admins]}
"""
)


def test_they_load() -> None:
    assert RICH.management == Management(("dns", "checkpoint"), ("pool",))
    assert RICH.artefacts == (Artefact("adapter", 300_000_000), Artefact("llama-70b", 141_000_000_000))


def test_without_a_section_the_usual_services_are_expected() -> None:
    assert parse_cluster("cluster: a\ngroups: {a: {role: custom}}\n").management.services == MANAGEMENT_SERVICES
    assert set(MANAGEMENT_SERVICES) <= {service.name for service in WELL_KNOWN}
    assert not {"ssh", "ipmi", "rdp", "vnc"} & set(MANAGEMENT_SERVICES)


@pytest.mark.parametrize(
    ("src", "dst", "service", "expected"),
    [
        ("training", "control", "dns", True),
        ("training", "control", "ssh", False),
        ("training", "control", "other", False),
        ("admins", "control", "ssh", True),
        ("admins", "control", "other", True),
        ("external", "control", "dns", False),
        ("mirror", "control", "https", False),
        ("local", "control", "ssh", True),
        ("control", "training", "ssh", True),
        ("control", "bmc", "ipmi", True),
        ("control", "control", "ssh", True),
        ("control", "external", "https", True),
        ("control", "external", "ssh", False),
        ("control", "mirror", "ssh", False),
        ("training", "external", "ssh", True),
    ],
)
def test_what_may_be_opened(src: str, dst: str, service: str, expected: bool) -> None:  # noqa: FBT001
    """The last row has no management group: not for this policy to say."""
    assert SITE.may_open(src, dst, service) is expected
