"""The ground truth: what was really sent, each flow counted once, and what alert rules must make of it."""

import json
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cluster.model import LOCAL, Cluster
from simulate.incidents.incident import Expected
from simulate.packets.addresses import Addresses
from simulate.packets.flows import NO_INCIDENT, Ints
from simulate.packets.polls import Poll
from simulate.scenarios.scenario import ExportStyle, Scenario
from simulate.traffic.planned_checkpoints import saves_of
from simulate.traffic.workload import Workload
from simulate.truth.tally import Tally
from simulate.truth.written_moments import iso


class Meetings:
    """Notes who opened a conversation with whom outside, and when first.

    Args:
        cluster: which groups stand outside.
        addresses: what the flows' numbers mean.
    """

    def __init__(self, cluster: Cluster, addresses: Addresses) -> None:
        self._addresses = addresses
        inside = {group.id for group in cluster.inside_groups()}
        is_inside = np.array([name in inside for name in addresses.groups])
        is_outside = np.array([name not in inside and name != LOCAL for name in addresses.groups])
        self._inside, self._outside = is_inside[addresses.group], is_outside[addresses.group]
        self._first: dict[tuple[int, int], int] = {}

    def add(self, counted: pl.DataFrame) -> None:
        """Take flow records (FLOW_SCHEMA) that count."""
        src, dst = counted["src"].to_numpy(), counted["dst"].to_numpy()
        # Servers have the lower port: what they answer, the other side has opened.
        leaves = self._inside[src] & self._outside[dst] & (counted["dst_port"] < counted["src_port"]).to_numpy()
        if leaves.any():
            found = counted.filter(pl.Series(leaves)).group_by("src", "dst").agg(pl.min("start"))
            for source, target, start in found.select("src", "dst", "start").iter_rows():
                self._first[source, target] = min(start, self._first.get((source, target), start))

    def document(self) -> list[dict[str, Any]]:
        """Return the pairs in the order of time: source as the store names it, destination, first moment."""
        addresses = self._addresses
        by_name: dict[tuple[str, str], int] = {}
        for (src, dst), first in self._first.items():
            node = addresses.node[src]
            name = addresses.nodes[node] if node >= 0 else str(addresses.text[src])
            key = name, str(addresses.text[dst])
            by_name[key] = min(first, by_name.get(key, first))
        return [
            {"src": src, "dst": dst, "first": iso(first)}
            for (src, dst), first in sorted(by_name.items(), key=lambda item: (item[1], item[0]))
        ]


def planned(scenario: Scenario) -> dict[str, list[dict[str, Any]]]:
    """Return job windows, and the checkpoints that are really written, both as plain data."""
    jobs, checkpoints = [], []
    for run in scenario.runs:
        profile = run.profile or scenario.profile
        jobs.append(
            {
                "job": run.job,
                "class": profile.job_class,
                "nodes": list(run.nodes),
                "start": iso(run.start * 1000),
                "end": iso(run.end * 1000),
            }
        )
        checkpoints += [
            {
                "job": run.job,
                "class": profile.job_class,
                "start": iso(save.begin * 1000),
                "end": iso(save.end * 1000),
                "bytes": save.volume * len(save.nodes),
                "nodes": len(save.nodes),
            }
            for save in saves_of(run, profile, scenario.incidents)
        ]
    return {"jobs": jobs, "checkpoints": checkpoints}


_CONVERSATIONS = 10_000
"""Conversations that the file lists, largest first; the rest is added up."""
_COMPACT_AT = 2_000_000
_COMPACT_PARTS = 500
"""Rows of partial conversation sums, and partial sums, at which they are folded."""

_RETOLD = frozenset({"transfers", "alerts"})
"""Parts of an incident that the document tells in its own words."""

_SUMS = ("bytes", "packets", "flows")
_CONVERSATION = ("src", "dst", "proto", "port")


class GroundTruth:
    """Adds up flow records as they are sent; it holds exactly what `add` was given.

    Args:
        workload: the simulation.
    """

    def __init__(self, workload: Workload) -> None:
        self._cluster: Cluster = workload.cluster
        self._scenario: Scenario = workload.scenario
        self._addresses = workload.cast.addresses
        self._styles: tuple[ExportStyle, ...] = workload.fabric.styles
        self._overhead = pl.Series([exporter.frame_overhead for exporter in workload.cluster.exporters], dtype=pl.Int64)
        groups, nodes = len(self._addresses.groups), len(self._addresses.nodes)
        self._pairs = np.zeros((groups * groups, 3), np.int64)
        # Last row: addresses that are no node.
        self._sent = np.zeros((nodes + 1, 3), np.int64)
        self._received = np.zeros((nodes + 1, 3), np.int64)
        # Records, datagrams, bytes, suppressed bytes, packets.
        self._exporters = np.zeros((len(self._styles), 5), np.int64)
        self._tally = Tally(workload.cluster, self._addresses)
        self._meetings = Meetings(workload.cluster, self._addresses)
        self._incidents: list[pl.DataFrame] = []
        self._conversations: list[pl.DataFrame] = []
        self._span: list[int] = []
        self._refused = np.zeros(2, np.int64)
        self.complete = False

    @property
    def records(self) -> int:
        """Flow records sent."""
        return int(self._exporters[:, 0].sum())

    @property
    def counted_bytes(self) -> int:
        """Bytes sent, each flow once."""
        return int(self._pairs[:, 0].sum())

    def add(self, frame: pl.DataFrame) -> None:
        """Add flow records (FLOW_SCHEMA) that were sent."""
        if not frame.height:
            return
        overhead = self._overhead.gather(frame.get_column("exporter"))
        scaled = frame.with_columns(
            ((pl.col("bytes") - pl.col("packets") * overhead) * pl.col("rate")).alias("bytes"),
            (pl.col("packets") * pl.col("rate")).alias("packets"),
            pl.lit(1, pl.Int64).alias("flows"),
        )
        bounds = [*self._span, int(np.min(frame["start"].to_numpy())), int(np.max(frame["end"].to_numpy()))]
        self._span = [min(bounds), max(bounds)]
        self._add_exporters(scaled)
        self._tally.add_seen(scaled)
        counted = scaled.filter("counted")
        self._meetings.add(counted)
        # Totals by pair of addresses first: everything else is a sum over those.
        pairs = counted.group_by("src", "dst").agg(pl.sum(*_SUMS))
        src, dst = pairs["src"].to_numpy(), pairs["dst"].to_numpy()
        sums = np.stack([pairs[name].to_numpy() for name in _SUMS], axis=1)
        addresses = self._addresses
        np.add.at(self._pairs, addresses.group[src] * len(addresses.groups) + addresses.group[dst], sums)
        np.add.at(self._sent, addresses.node[src], sums)
        np.add.at(self._received, addresses.node[dst], sums)
        self._tally.add_counted(src, dst, sums[:, 0])
        # The server's port names a conversation: the other one is any.
        port = pl.min_horizontal("src_port", "dst_port").alias("port")
        self._conversations.append(counted.group_by("src", "dst", "proto", port).agg(pl.sum(*_SUMS)))
        too_many = len(self._conversations) > _COMPACT_PARTS
        if too_many or sum(part.height for part in self._conversations) > _COMPACT_AT:
            self._fold()
        staged = counted.filter(pl.col("incident") != NO_INCIDENT)
        if staged.height:
            self._incidents.append(
                staged.group_by("incident").agg(
                    pl.sum(*_SUMS), pl.min("start").alias("first"), pl.max("end").alias("last")
                )
            )

    def _add_exporters(self, scaled: pl.DataFrame) -> None:
        suppressed = pl.col("bytes").filter(~pl.col("counted")).sum().alias("suppressed")
        table = scaled.group_by("exporter").agg(pl.sum(*_SUMS), suppressed)
        rows = table["exporter"].to_numpy()
        for position, name in ((0, "flows"), (2, "bytes"), (3, "suppressed"), (4, "packets")):
            self._exporters[rows, position] += table[name].to_numpy()

    def add_refused(self, frame: pl.DataFrame) -> None:
        """Add flow records (FLOW_SCHEMA) of what a cloud did not let through: no traffic."""
        self._refused += (frame.height, int(frame["packets"].sum()))

    def add_poll(self, poll: Poll) -> None:
        """Add interface counters that were sent."""
        self._tally.add_poll(poll)

    def add_datagrams(self, exporter: int, count: int = 1) -> None:
        """Count datagrams that an exporter (number) sent."""
        self._exporters[exporter, 1] += count

    def _fold(self) -> pl.DataFrame:
        if not self._conversations:
            return pl.DataFrame(schema=dict.fromkeys((*_CONVERSATION, *_SUMS), pl.Int64))
        whole = pl.concat(self._conversations).group_by(_CONVERSATION).agg(pl.sum(*_SUMS))
        self._conversations = [whole]
        return whole

    def document(self, conversations: int = _CONVERSATIONS) -> dict[str, Any]:
        """Return everything as plain data; `conversations` limits how many are listed."""
        pairs, sent, received = self._pairs, self._sent, self._received
        groups, nodes = self._addresses.groups, self._addresses.nodes
        owner = {node.name: node.group for node in self._cluster.nodes}
        between = [
            {"src_group": groups[i // len(groups)], "dst_group": groups[i % len(groups)], **_named(pairs[i])}
            for i in np.flatnonzero(pairs[:, 2]).tolist()
        ]
        outside = self._cluster.outside_ids()
        return {
            "cluster": self._cluster.name,
            "seed": self._scenario.seed,
            "first": iso(min(self._span)) if self._span else None,
            "last": iso(max(self._span)) if self._span else None,
            "complete": self.complete,
            "totals": {
                **_named(pairs.sum(axis=0)),
                "records": self.records,
                "seen_bytes": int(self._exporters[:, 2].sum()),
                "suppressed_bytes": int(self._exporters[:, 3].sum()),
                "datagrams": int(self._exporters[:, 1].sum()),
                "refused_flows": int(self._refused[0]),
                "refused_packets": int(self._refused[1]),
            },
            "group_pairs": between,
            "egress": [pair for pair in between if pair["dst_group"] in outside],
            "nodes": [
                {
                    "node": node,
                    "group": owner[node],
                    **{f"tx_{name}": value for name, value in _named(sent[i]).items()},
                    **{f"rx_{name}": value for name, value in _named(received[i]).items()},
                }
                for i, node in enumerate(nodes)
            ],
            **self._tally.document(),
            **self._listed_conversations(conversations),
            "exporters": [
                {
                    "exporter": exporter.name,
                    "address": str(exporter.address),
                    "format": style.flow_format.value,
                    "sampling": style.rate,
                    **dict(
                        zip(("records", "datagrams", "bytes", "suppressed_bytes", "packets"), row.tolist(), strict=True)
                    ),
                }
                for exporter, style, row in zip(self._cluster.exporters, self._styles, self._exporters, strict=True)
            ],
            **planned(self._scenario),
            "first_contacts": self._meetings.document(),
            "incidents": self._staged(),
        }

    def _listed_conversations(self, limit: int) -> dict[str, Any]:
        whole = self._fold().sort("bytes", *_CONVERSATION, descending=[True, *([False] * len(_CONVERSATION))])
        text = self._addresses.text
        top, rest = whole.head(limit), whole.slice(limit)
        named = top.with_columns(text.gather(top["src"]).alias("src"), text.gather(top["dst"]).alias("dst"))
        other = rest.select(pl.sum(*_SUMS)).row(0, named=True)
        return {"conversations": named.to_dicts(), "other_conversations": {"conversations": rest.height, **other}}

    def _staged(self) -> list[dict[str, Any]]:
        seen: dict[int, dict[str, Any]] = {}
        if self._incidents:
            whole = pl.concat(self._incidents).group_by("incident")
            table = whole.agg(pl.sum(*_SUMS), pl.min("first"), pl.max("last"))
            seen = {row["incident"]: row for row in table.to_dicts()}
        found = []
        for number, incident in enumerate(self._scenario.incidents):
            row = seen.get(number)
            names = [item.name for item in fields(incident) if item.name not in _RETOLD]
            plan = {name: _plain(getattr(incident, name)) for name in names}
            entry = plan | {
                "kind": incident.kind.value,
                "start": iso(incident.start * 1000),
                "end": iso(incident.end * 1000),
                "transfers": len(incident.transfers),
                "alerts": [_alert(alert, incident.start) for alert in incident.alerts],
                "expected": list(incident.expected),
                "near_miss": incident.is_near_miss,
                "sent": None,
            }
            if row is not None:
                entry["sent"] = {
                    **{name: row[name] for name in _SUMS},
                    "first": iso(row["first"]),
                    "last": iso(row["last"]),
                }
            found.append(entry)
        return found

    def write(self, path: Path) -> None:
        """Write the document as JSON; the file appears whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.part")
        partial.write_text(json.dumps(self.document(), indent=1) + "\n")
        partial.replace(path)


def _plain(value: object) -> object:
    """Return a part of an incident as JSON has it."""
    if not isinstance(value, tuple):
        return value
    return [asdict(one) if is_dataclass(one) and not isinstance(one, type) else one for one in value]


def _named(sums: Ints) -> dict[str, int]:
    return dict(zip(_SUMS, sums.tolist(), strict=True))


def _alert(alert: Expected, start: int) -> dict[str, Any]:
    return {
        "rule": alert.rule,
        "labels": dict(alert.labels),
        "earliest": iso(max(alert.earliest, start) * 1000),
        "due": iso(alert.due * 1000),
        "until": iso(alert.until * 1000),
        "must": alert.must,
        "most": alert.most,
    }
