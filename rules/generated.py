"""Everything that is generated from cluster.yaml: boards, rules, and the collector's configuration."""

from pathlib import Path

from cluster.model import Cluster
from dashboards import provision
from ingest.pmacct import collector_files
from rules import encode
from rules.registry import rules_of

COLLECTOR = "pmacct"
"""Folder of the collector's files below the provisioning folder."""

COLLECTOR_INSTALLED = Path("/etc/clusterflow/pmacct")
"""Where those files lie on the collector's machine: they name each other by this path."""


def artefacts(cluster: Cluster, grafana: str = provision.INSTALLED) -> dict[str, str]:
    """Return all generated files, path below the provisioning folder -> text; the same for the same cluster.

    Args:
        cluster: what they are generated from.
        grafana: folder in which Grafana will find its files.
    """
    collector = collector_files(cluster, COLLECTOR_INSTALLED)
    return {
        **provision.artefacts(cluster, grafana, [str(entry) for entry in rules_of(cluster).skipped]),
        **encode.artefacts(cluster),
        **{f"{COLLECTOR}/{name}": text for name, text in collector.items()},
    }
