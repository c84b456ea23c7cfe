"""`Cluster` -> cluster.yaml with every default written out; loading that gives an equal `Cluster`."""

from typing import Any

import yaml

from cluster.model import ROOT, Cluster


def dump_cluster(cluster: Cluster) -> str:
    """Return the cluster as YAML. Secrets are named, never shown; nodes of a CSV inventory stand in ``nodes:``."""
    return yaml.safe_dump(plain_cluster(cluster), sort_keys=False, default_flow_style=None, width=120)


def plain_cluster(cluster: Cluster) -> dict[str, Any]:
    """Return what `dump_cluster` writes as plain data: mappings, lists, texts and numbers."""
    written = ROOT.write(cluster)
    return written if isinstance(written, dict) else {}
