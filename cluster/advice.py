"""What is allowed in cluster.yaml, but probably not meant; and what flow data will not show."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from ipaddress import ip_address
from itertools import pairwise
from urllib.parse import urlsplit

from app.units import format_duration
from app.words import some
from cluster.allow_list import is_heard, overlong, senders
from cluster.model import ANY, Cluster, Exporter, ExportProtocol, HttpJobs, KafkaSettings, Plane, Role, SaslMechanism
from cluster.scalars.names import DAY, show_source
from cluster.sections.job_sources import is_loopback
from cluster.sections.network.groups import outer_groups

_LONG = timedelta(days=14)
"""Maintenance that lasts longer may be a slip of the pen."""
_MONTH = 31 * DAY
"""Of hours: what looks back furthest takes 30 days that are over, and the day that is not."""
_TOLD = 10
"""Conflicts of a source that are told each."""
_COHORT = 3
"""Nodes that a job needs for a median to compare each with."""


def advice(cluster: Cluster) -> list[str]:
    """Return one line for each thing to think about, with its YAML path first."""
    return [
        *_groups(cluster),
        *_holidays(cluster),
        *_maintenance(cluster),
        *_nodes(cluster),
        *_sources(cluster),
        *_converged(cluster),
        *_exporters(cluster),
        *_senders(cluster),
        *_daemons(cluster),
        *_inference(cluster),
        *_policies(cluster),
        *_jobs(cluster),
        *_kafka(cluster.kafka),
        *_store(cluster),
        *_metrics(cluster),
    ]


def _daemons(cluster: Cluster) -> Iterator[str]:
    count = sum(exporter.protocol is ExportProtocol.NETFLOW for exporter in cluster.exporters)
    if cluster.exporters and (cluster.collector.netflow_daemons or 1) > max(count, 1):
        yield f"collector.netflow_daemons: {count} NetFlow exporters: some daemons get nothing"


def _groups(cluster: Cluster) -> Iterator[str]:
    roles = {group.role for group in cluster.groups}
    for role in (Role.TRAINING, Role.MODEL_STORAGE):
        if role not in roles:
            yield f"groups: none has the role {role}: its rules are left out, its panels stay empty"
    for group in cluster.groups:
        path = f"groups.{group.id}"
        for file in group.files:
            if file.error:
                yield f"{path}.prefixes_from: {file.error}; its last good version is in use"
        if not group.prefixes:
            yield f"{path}: no prefixes: no address is ever in it"
        if group.nested_in is not None and group.nested_in not in outer_groups(group, cluster.groups):
            yield f"{path}.nested_in: no prefix of {group.nested_in} is around one of {group.id}"
        if group.sensitive and not any(group.id in (pair.src, pair.dst) for pair in cluster.allowed):
            yield f"{path}: sensitive, but `allowed` does not name it: each of its conversations is a violation"


def _holidays(cluster: Cluster) -> Iterator[str]:
    days = cluster.site.off_hours.holidays
    if days and max(days) < datetime.now(cluster.site.time_zone).date():
        yield f"site.off_hours.holidays: the last one was {max(days)}: add those that come"


def _maintenance(cluster: Cluster) -> Iterator[str]:
    for index, one in enumerate(cluster.site.maintenance):
        if isinstance(one.start, datetime) and isinstance(one.end, datetime) and one.end - one.start > _LONG:
            days = (one.end - one.start).days
            yield f"site.maintenance[{index}]: lasts {days} days: alerts that it mutes notify nobody for so long"


def _nodes(cluster: Cluster) -> Iterator[str]:
    inhabited = {node.group for node in cluster.nodes}
    if empty := [group.id for group in cluster.groups_with(Role.TRAINING) if group.id not in inhabited]:
        groups = "group" if len(empty) == 1 else "groups"
        yield f"nodes: none in training {groups} {some(empty, 3)}: dropouts cannot be judged"
    for group in cluster.groups_with(Role.TRAINING):
        without = [node.name for node in cluster.nodes if node.group == group.id and node.gpus == 0]
        if without:
            yield f"nodes: {some(without, 3)} of training group {group.id} without GPUs: idle time there costs nothing"
    if 0 < (count := len(cluster.nodes_with(Role.TRAINING))) < _COHORT:
        judged = f"dropouts are judged in jobs of {_COHORT} or more, smaller ones as a whole only"
        yield f"nodes: {count} in training groups: {judged}"


def _sources(cluster: Cluster) -> Iterator[str]:
    for one in cluster.sources:
        yield from (f"inventory.sources.{one.name}: {line}" for line in one.conflicts[:_TOLD])
        if (left := len(one.conflicts) - _TOLD) > 0:
            yield f"inventory.sources.{one.name}: {left:,} more; `clusterflow inventory --json` has all"
    for source in cluster.inventory.sources:
        place = urlsplit(getattr(source, "url", None) or "")
        if place.scheme == "http" and getattr(source, "token", None) and not _is_near(place.hostname or ""):
            yield f"inventory.sources.{source.name}.url: {place.geturl()} without TLS: the token can be read on the way"


def _converged(cluster: Cluster) -> Iterator[str]:
    """Yield storage that training nodes may reach, and can by their compute network alone: that is no wrong plane.

    A management port is no way to it.
    """
    planes = {group.id: group.plane for group in cluster.groups}
    for storage in cluster.groups_with(Role.STORAGE, Role.MODEL_STORAGE):
        own = {address.plane for node in cluster.nodes if node.group == storage.id for address in node.addresses}
        if not ({storage.plane, *own} - {None, Plane.COMPUTE}):
            continue
        for training in cluster.groups_with(Role.TRAINING):
            addresses = [one for node in cluster.nodes if node.group == training.id for one in node.addresses]
            found = {address.plane or planes[training.id] for address in addresses} - {Plane.MANAGEMENT}
            is_allowed = cluster.is_allowed(training.id, storage.id) or cluster.is_allowed(storage.id, training.id)
            if found == {Plane.COMPUTE} and is_allowed and not _crosses_elsewhere(cluster):
                yield (
                    f"groups.{storage.id}.plane: {storage.plane or 'its nodes have others'}, but {training.id} has "
                    "addresses on compute alone: what they exchange is a violation (wrong_plane); "
                    "one fabric for both? Write plane: compute there"
                )


def _crosses_elsewhere(cluster: Cluster) -> bool:
    """Whether an exporter's interface is said to be of the storage plane: traffic can go there."""
    return any(one.plane is Plane.STORAGE for exporter in cluster.exporters for one in exporter.interfaces)


def _exporters(cluster: Cluster) -> Iterator[str]:
    if cluster.cloud.format:
        return
    if not cluster.exporters:
        yield "exporters: none: nothing says whose records to take, nor which network they crossed"
    elif not any(exporter.counts for exporter in cluster.exporters):
        yield "exporters: none of them counts: every total stays zero"
    counting = [exporter for exporter in cluster.exporters if exporter.counts]
    # One that nobody watches sends drills and canaries.
    vague = [exporter.name for exporter in counting if exporter.watched and not exporter.interfaces]
    is_told = any(rule.pair.src == rule.pair.dst == ANY for rule in cluster.authority)
    if vague and len(counting) > 1 and not is_told:
        what = "has neither interfaces nor a line of" if len(vague) == 1 else "have neither interfaces nor a line of"
        yield (
            f"exporters: {some(vague, 3)} {what} `authority`: what several exporters see is found while records flow; "
            "`clusterflow suggest` says who counts"
        )
    if not is_told:
        yield from _links_that_count(counting)
    silent = {exporter.name for exporter in cluster.exporters if not exporter.counts}
    for index, rule in enumerate(cluster.authority):
        for name in rule.exporters:
            if name in silent:
                pair = f"{rule.pair.src} to {rule.pair.dst}"
                yield f"authority[{index}]: {name} is to count for {pair}, but has counts: false"


def _links_that_count(counting: list[Exporter]) -> Iterator[str]:
    """Yield interfaces, named after another exporter, where both ends count: who is described is believed."""
    described = [exporter for exporter in counting if exporter.interfaces]
    for exporter in described:
        for interface in exporter.interfaces:
            # spine-1 is no part of spine-10. Hundreds of switches have tens of thousands of interfaces.
            behind = [
                other.name
                for other in described
                if other.name in interface.name
                and other is not exporter
                and re.search(rf"(?<!\w){re.escape(other.name)}(?!\w)", interface.name)
            ]
            if behind and interface.counts:
                yield (
                    f"exporters.{exporter.name}.interfaces.{interface.index}: {interface.name} counts what "
                    f"{behind[0]} counts where it enters: twice, if this is the link to it; write counts: false"
                )


def _senders(cluster: Cluster) -> Iterator[str]:
    for exporter in cluster.exporters:
        if exporter.address.is_unspecified or exporter.address.is_multicast:
            yield f"exporters.{exporter.name}.address: {exporter.address}: no device sends from it"
    speaks_sflow = any(exporter.protocol is ExportProtocol.SFLOW for exporter in cluster.exporters)
    if cluster.collector.sflow_sources and cluster.exporters and not speaks_sflow:
        yield "collector.sflow_sources: no exporter speaks sflow: no sFlow is taken from anybody"
    networks = [network for protocol in ExportProtocol for network in senders(cluster, protocol)]
    if unheard := [show_source(network) for network in networks if not is_heard(cluster, network.version)]:
        yield (
            f"collector.listen: {cluster.collector.listen} hears nothing of {some(unheard, 3)}: "
            'write "::", which takes IPv6 and IPv4'
        )
    # `collect` refuses it; for all others the file is sound.
    yield from (" ".join(error.lines()) for error in overlong(cluster))


def _inference(cluster: Cluster) -> Iterator[str]:
    groups = cluster.groups_with(Role.INFERENCE)
    expected = cluster.inference
    if (expected.hours or expected.sources) and not groups:
        yield "inference: no group has the role inference: nothing is expected of anybody"
    for name in expected.sources:
        if groups and not any(cluster.is_allowed(name, group.id) for group in groups):
            yield f"inference.sources: `allowed` lets {name} reach no inference group: its clients are unauthorised"


def _policies(cluster: Cluster) -> Iterator[str]:
    if not cluster.allowed:
        yield "allowed: empty: every conversation between groups is a violation"
    for declared in cluster.transport:
        if not declared.transport.is_visible:
            pair = f"{declared.pair.src} and {declared.pair.dst}"
            yield f"transport: {pair} talk {declared.transport}: flow records do not show it, rules leave it out"
    if not cluster.notify:
        yield "notify: empty: alerts show on the boards only"
    elif (urlsplit(cluster.grafana.url).hostname or "") in ("localhost", "127.0.0.1", "::1"):
        yield f"grafana.url: {cluster.grafana.url}: the links in alerts open on Grafana's machine only"


def _jobs(cluster: Cluster) -> Iterator[str]:
    training = {group.id for group in cluster.groups_with(Role.TRAINING)}
    outside = {node.name for node in cluster.nodes if node.group not in training}
    for source in cluster.job_sources:
        if isinstance(source, HttpJobs) and not is_loopback(source.listen):
            yield f"job_sources: {source.name} listens on {source.listen} without TLS: its token can be read on the way"
    for job in cluster.jobs:
        others = [name for name in job.nodes if name in outside]
        if others:
            yield f"jobs: {some(others, 3)} of job {job.id} in no training group: not judged for dropout"


def _kafka(kafka: KafkaSettings) -> Iterator[str]:
    if kafka.username and not kafka.tls and kafka.mechanism is SaslMechanism.PLAIN:
        yield "kafka: PLAIN without TLS: the password can be read on the way"
    if kafka.tls and not kafka.verify_tls:
        yield "kafka.verify_tls: false: whoever answers is taken for the broker"


def _store(cluster: Cluster) -> Iterator[str]:
    store = cluster.store
    place = urlsplit(store.url)
    if place.scheme == "http" and not _is_near(place.hostname or "") and (store.token or store.username):
        yield f"store.url: {store.url} without TLS: what gives access to InfluxDB can be read on the way"
    if place.scheme == "https" and not store.verify_tls:
        yield "store.verify_tls: false: whoever answers is taken for InfluxDB; store.ca_file trusts one authority"
    for finer, coarser in pairwise(cluster.retentions()):
        if coarser.keep < finer.keep:
            yield (
                f"store.retention.{coarser.name}: shorter than {finer.name}: long times are read from it, and end there"
            )
    if store.keep_1h < _MONTH:
        yield (
            f"store.retention.1h: {format_duration(store.keep_1h)}: sums over 30 days (exfil_30d, the ledger), what is "
            "usual in egress and the trend of capacity see no further back; 31d is enough"
        )
    weeks = cluster.thresholds.inference_min_weeks
    if cluster.groups_with(Role.INFERENCE) and store.keep_1m < (7 * weeks + 1) * DAY:
        yield (
            f"store.retention.1m: {format_duration(store.keep_1m)}: inference_spike compares with {weeks} earlier "
            f"weeks, and stays learning; {7 * weeks + 1}d is enough"
        )


def _is_near(host: str) -> bool:
    """Whether a host is this one, or a neighbour such as a container on a network of its own: a name without a dot."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return "." not in host


def _metrics(cluster: Cluster) -> Iterator[str]:
    listen = cluster.bridge.metrics_listen
    if listen is not None and cluster.bridge.metrics_token is None and not is_loopback(listen):
        yield f"bridge.metrics_listen: {listen} is open to everyone who reaches it: set bridge.metrics_token"
