"""The examples of docs/security.md fit what is generated."""

import re
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import yaml

from cluster.load import load_cluster
from ingest.collect.pmacct import collector_files

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")
CLUSTER = load_cluster(ROOT / "cluster.yaml")


def _section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def test_its_example_names_who_may_send_sflow() -> None:
    assert "allow_file" not in collector_files(CLUSTER, ROOT)["sfacctd.conf"]
    named = yaml.safe_load(_section("Who may send").split("```yaml\n", 1)[1].split("```", 1)[0])["collector"]
    collector = replace(CLUSTER.collector, sflow_sources=tuple(map(ip_network, named["sflow_sources"])))
    files = collector_files(replace(CLUSTER, collector=collector), ROOT)
    assert "sfacctd_allow_file" in files["sfacctd.conf"]


def test_it_says_how_images_are_pinned_and_what_the_list_of_packages_covers() -> None:
    files = [ROOT / name for name in ("docker-compose.yml", "docker-compose.kafka.yml", "docker/Dockerfile")]
    named = [
        image
        for file in files
        for image in re.findall(r"^(?: +image:|FROM) (\S+:\d\S*)", file.read_text(encoding="utf-8"), re.MULTILINE)
        if not image.startswith("clusterflow/")
    ]
    assert {image.split(":")[0] for image in named} == {"python", "influxdb", "grafana/grafana", "apache/kafka"}
    pinned = " ".join(_section("What is pinned").split())
    assert ("**by tag, not by digest.**" in pinned) == any("@sha256:" not in image for image in named)
    assert all(f"`{image.split(':')[0]}`" in pinned for image in named)
    sbom = (ROOT / "sbom.json").read_text(encoding="utf-8")
    assert set(re.findall(r'"purl": "pkg:(\w+)/', sbom)) == {"pypi"}
    assert "**only these**" in pinned
