"""What an analysis should say of a scenario: jobs, checkpoints and first contacts, found independently of it."""

from typing import Any

import numpy as np
import polars as pl

from cluster.model import LOCAL, Cluster
from simulate.packets.addresses import Addresses
from simulate.scenarios.scenario import Scenario
from simulate.traffic.planned_checkpoints import saves_of
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
