"""Providers of labels of outside addresses: one line for each section of cluster.yaml."""

from collections.abc import Iterator

from cluster.model import Applications, Cluster, HostNaming
from enrichment.addresses.applications import ApplicationLists
from enrichment.addresses.geography import GeographyFiles
from enrichment.addresses.host_names import HostNames
from enrichment.feeds.threats import Threats
from enrichment.labels import Labels, Provider


def providers_of(cluster: Cluster) -> tuple[Provider, ...]:
    """Return the providers that a cluster configures; nothing is read before their first `refresh`."""
    return tuple(_configured(cluster))


def labels_of(cluster: Cluster) -> Labels:
    """Return the labels that a cluster configures, with every file read once."""
    labels = Labels(providers_of(cluster))
    labels.refresh()
    return labels


def _configured(cluster: Cluster) -> Iterator[Provider]:
    if cluster.geography.files:
        yield GeographyFiles(cluster.geography)
    names = HostNames(cluster.names) if cluster.names != HostNaming() else None
    if names is not None:
        yield names
    if cluster.applications != Applications():
        yield ApplicationLists(cluster.applications, names)
    if cluster.threat_feeds:
        yield Threats(cluster)
