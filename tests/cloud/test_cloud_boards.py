"""Boards of a cluster whose records are flow logs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.load import load_cluster
from cluster.model import CloudFormat
from dashboards.lint import faults
from dashboards.provision import boards

DEMO = load_cluster(Path(__file__).parents[2] / "cluster.yaml")
OF_A_CLOUD = {"What the cloud did not let through", "What the cloud's flow logs cannot show",
              "Interfaces whose flow logs left records out"}  # fmt: skip


def _titles(cloud: CloudFormat | None) -> set[str]:
    cluster = replace(DEMO, cloud=replace(DEMO.cloud, format=cloud))
    found = {name: json.loads(text) for name, text in boards(cluster).items()}
    assert not [fault for board in found.values() for fault in faults(board)]
    return {panel["title"] for board in found.values() for panel in board["panels"]}


@pytest.mark.parametrize("cloud", list(CloudFormat))
def test_a_cloud_has_panels_of_its_own(cloud: CloudFormat) -> None:
    assert _titles(cloud) >= OF_A_CLOUD


def test_without_a_cloud_they_are_not_there() -> None:
    assert not _titles(None) & OF_A_CLOUD
