"""Everything that is generated from cluster.yaml: boards, rules, and the collector's configuration."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from cluster.model import Cluster, Secret
from dashboards import provision
from ingest.pmacct import collector_files
from rules import encode
from rules.registry import rules_of

COLLECTOR = "pmacct"
"""Folder of the collector's files below the provisioning folder."""

COLLECTOR_INSTALLED = Path("/etc/clusterflow/pmacct")
"""Where those files lie on the collector's machine: they name each other by this path."""

_WITH_SECRETS = (f"{provision.PREFIX}/datasources/clusterflow.yaml", encode.CONTACT_POINTS)
# Grafana takes $$ for a plain $.
_REFERENCE = re.compile(r"(?<!\$)(?:\$\$)*\$__(env|file)\{([^}]*)\}")


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


def secrets_of_grafana(files: Mapping[str, str]) -> list[Secret]:
    """Return what Grafana must find where it runs, to load these files: each variable and file once, in their order."""
    texts = [text for path in _WITH_SECRETS for text in _texts(yaml.safe_load(files[path]))]
    found = [match for text in texts for match in _REFERENCE.findall(text)]
    return [Secret(**{kind: name}) for kind, name in dict.fromkeys(found)]


def _texts(content: object) -> Iterator[str]:
    """Return every text in a document."""
    if isinstance(content, dict):
        content = [*content.values()]
    if isinstance(content, list):
        for part in content:
            yield from _texts(part)
    elif isinstance(content, str):
        yield content
