"""What docs/security.md promises and admits is how the files are."""

import re
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import yaml

from cluster.allow_list import MOST_LINES
from cluster.load import load_cluster
from cluster.model import CollectorSettings
from ingest.pmacct import nfacctd_config, sfacctd_config

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")
CLUSTER = load_cluster(ROOT / "cluster.yaml")


def _section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def test_it_says_which_daemon_takes_everybodys_datagrams() -> None:
    assert "nfacctd_allow_file" in nfacctd_config(CLUSTER)
    assert "allow_file" not in sfacctd_config(CLUSTER), "then the page says too little of sFlow"
    named = yaml.safe_load(_section("Who may send").split("```yaml\n", 1)[1].split("```", 1)[0])["collector"]
    sources = tuple(map(ip_network, named["sflow_sources"]))
    collector = replace(CLUSTER.collector, sflow_sources=sources)
    assert "sfacctd_allow_file" in sfacctd_config(replace(CLUSTER, collector=collector))
    (row,) = [line for line in PAGE.splitlines() if line.startswith("| exporters → collector")]
    assert "**sFlow: none, every sender is taken,** unless `collector.sflow_sources` names them." in row
    assert "senders that `cluster.yaml` names, only" not in PAGE
    assert "can, without forging a source,**" in " ".join(_section("Who may send").split())
    assert f"{MOST_LINES:,} lines of an allow file" in _section("Who may send")


def test_its_firewall_is_for_the_ports_of_the_collector_and_comes_before_dockers_translation() -> None:
    match = re.search(r"```nft\n(.*?)```", _section("Who may send"), re.DOTALL)
    assert match is not None
    rules = match[1]
    for port in (CollectorSettings().netflow_port, CollectorSettings().sflow_port):
        assert re.search(rf"udp dport {port} ip saddr != \{{ .* \}} counter drop", rules)
    # Docker translates at dstnat, -100; what it translated never passes the hook `input`.
    hook = re.search(r"hook (\w+) priority (-?\d+); policy accept;", rules)
    assert hook is not None
    assert hook[1] == "prerouting"
    assert int(hook[2]) < -100
    assert rules.count("{") == rules.count("}")


def test_it_says_how_images_are_pinned_and_what_the_list_of_packages_covers() -> None:
    files = [ROOT / name for name in ("docker-compose.yml", "docker-compose.kafka.yml", "docker/Dockerfile")]
    named = [
        image
        for file in files
        for image in re.findall(r"^(?: +image:|FROM) (\S+:\d\S*)", file.read_text(encoding="utf-8"), re.MULTILINE)
        if not image.startswith("clusterflow/")
    ]
    assert {image.split(":")[0] for image in named} == {"python", "influxdb", "grafana/grafana", "apache/kafka"}
    pinned = _section("What is pinned")
    assert ("**by tag, not by digest.**" in pinned) == any("@sha256:" not in image for image in named)
    assert all(f"`{image.split(':')[0]}`" in pinned for image in named)
    sbom = (ROOT / "sbom.json").read_text(encoding="utf-8")
    assert set(re.findall(r'"purl": "pkg:(\w+)/', sbom)) == {"pypi"}
    assert "**only these**" in pinned
