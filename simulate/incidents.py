"""Staging: incidents that alert rules must find, and near misses on which they must stay quiet.

What must fire follows from the cluster's own thresholds, its off-hours, and whom the source has met before.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from ipaddress import ip_address

from cluster.errors import UserError
from cluster.model import EXTERNAL, Cluster, Role
from rules import exfil_volume, exporter_silent, first_external_contact, node_dropout, off_hours_transfer
from simulate.addresses import group_of
from simulate.background import approved_transfers
from simulate.cast import Cast
from simulate.scenario import Incident, IncidentKind, Phase, Profile, Run, is_off_hours

_CLEAR_DROP = 1.5
"""A dropout counts as one that must be found when it is so many times deeper than the limit of the rule."""
_LEAST_DROP = 0.1


@dataclass(frozen=True, slots=True)
class Stage:
    """Where incidents are staged.

    Attributes:
        cluster, cast, profile, runs: of the scenario.
        history: the phase before, None if there is none.
        seed: of the scenario.
    """

    cluster: Cluster
    cast: Cast
    profile: Profile
    runs: tuple[Run, ...]
    history: Phase | None
    seed: int

    def known(self) -> set[tuple[str, str]]:
        """Return (node, address outside) that have met in the history."""
        if self.history is None:
            return set()
        text = self.cast.addresses.text
        transfers = approved_transfers(self.cast, self.seed, self.history.start, self.history.end)
        return {(transfer.node, text[transfer.dst]) for transfer in transfers}

    def business_hours(self) -> tuple[int, int] | None:
        """Return begin and end of the last transfer to a partner in the history, epoch seconds; None without one."""
        if self.history is None:
            return None
        transfers = approved_transfers(self.cast, self.seed, self.history.start, self.history.end)
        last = max(transfers, key=lambda transfer: transfer.start, default=None)
        return None if last is None else (last.start, last.end)

    def bulk_exfil(self, start: int, end: int, factor: float = 1.3) -> Incident:
        """Model storage sends `factor` times the threshold to an unknown address."""
        src, address = self._model_node(0)
        volume = int(self.cluster.thresholds.exfil_volume * factor)
        kind = IncidentKind.BULK_EXFIL
        return self._transfer(kind, start, end, src=src, address=address, dst=self._stranger(0), volume=volume)

    def first_contact(self, start: int, end: int, volume: int = 4_000_000) -> Incident:
        """A training node sends little to an address that nobody has met."""
        names = list(self.cast.training)
        if not names:
            raise UserError(
                "first contact: no training nodes to stage it with", "add nodes to a group of role training"
            )
        src = names[len(names) // 5]
        kind, address = IncidentKind.FIRST_CONTACT, self._text(self.cast.training[src])
        return self._transfer(kind, start, end, src=src, address=address, dst=self._stranger(1), volume=volume)

    def off_hours_transfer(self, start: int, end: int, factor: float = 2.0) -> Incident:
        """Model storage sends `factor` times the off-hours threshold to a partner that it has met in the history."""
        # A near miss comes from another node and goes to another partner than the incident beside it.
        is_near_miss = factor < 1
        src, address = self._model_node(0 if is_near_miss else 1)
        partners = self.cast.partners
        if not len(partners):
            raise UserError("off-hours transfer: no approved destination", "add a group of role approved_external")
        dst = self._text(partners[len(partners) - 1 if is_near_miss else 0])
        volume = int(self.cluster.thresholds.off_hours_bytes * factor)
        kind = IncidentKind.OFF_HOURS_TRANSFER
        return self._transfer(kind, start, end, src=src, address=address, dst=dst, volume=volume)

    def approved_transfer(self, start: int, end: int, factor: float = 1.3) -> Incident:
        """Model storage sends more than the exfiltration threshold to a partner: allowed in business hours."""
        src, address = self._model_node(0)
        if not len(self.cast.partners):
            raise UserError("approved transfer: no approved destination", "add a group of role approved_external")
        volume = int(self.cluster.thresholds.exfil_volume * factor)
        dst = self._text(self.cast.partners[0])
        kind = IncidentKind.APPROVED_TRANSFER
        return self._transfer(kind, start, end, src=src, address=address, dst=dst, volume=volume)

    def node_dropout(self, start: int, end: int, share: float = 0.8, position: float = 0.4) -> Incident:
        """A node of the running job sends only `share` of its ordinary bytes; 0 is total.

        Args:
            start: epoch seconds, on a record's boundary.
            end: epoch seconds.
            share: what is left.
            position: which node of the job, as a part of their number.
        """
        run = next((run for run in self.runs if run.start <= start < run.end), None)
        if run is None:
            raise UserError("node dropout: no job runs at that time", "stage it during a run")
        src = run.nodes[int(position * len(run.nodes))]
        group = next(node.group for node in self.cluster.nodes if node.name == src)
        thresholds = self.cluster.thresholds
        runs = sum(earlier.end <= run.start and src in earlier.nodes for earlier in self.runs)
        depth = max(_CLEAR_DROP * thresholds.dropout_spreads * self.profile.noise, _LEAST_DROP)
        long_enough = min(end, run.end) - start >= thresholds.dropout_for + 2 * self.cluster.bridge.window
        must_fire = runs >= thresholds.dropout_min_runs and 1 - share >= depth and long_enough
        kind = IncidentKind.NODE_DROPOUT
        address = self._text(self.cast.rails[0].members[src]) if src in self.cast.rails[0].members else ""
        return Incident(
            id=f"{kind.value}-{src}",
            kind=kind,
            start=start,
            end=end,
            src=src,
            src_address=address,
            dst=group,
            port=29500,
            share=share,
            expected=(node_dropout.ID,) if must_fire else (),
        )

    def exporter_silent(self, start: int, end: int, exporter: str = "") -> Incident:
        """An exporter sends nothing; by default the last one that only sees what others count."""
        names = [e.name for e in self.cluster.exporters]
        idle = [e.name for e in self.cluster.exporters if not e.counts]
        name = exporter or (idle or names)[-1]
        if name not in names:
            raise UserError(f"exporter silent: no exporter {name}", f"one of {', '.join(names)}")
        kind = IncidentKind.EXPORTER_SILENT
        must_fire = end - start > self.cluster.thresholds.exporter_silent + 2 * self.cluster.bridge.window
        return Incident(
            id=f"{kind.value}-{name}",
            kind=kind,
            start=start,
            end=end,
            exporter=name,
            expected=(exporter_silent.ID,) if must_fire else (),
        )

    def _transfer(
        self, kind: IncidentKind, start: int, end: int, *, src: str, address: str, dst: str, volume: int
    ) -> Incident:
        name = f"{kind.value}-{src}"
        incident = Incident(name, kind, start, end, src=src, src_address=address, dst=dst, volume=volume)
        return replace(incident, expected=expected_rules(self.cluster, incident, self.known()))

    def _model_node(self, position: int) -> tuple[str, str]:
        nodes = list(self.cast.model_nodes.items())
        if not nodes:
            raise UserError("no model storage nodes to stage it with", "add nodes to a group of role model_storage")
        name, own = nodes[position % len(nodes)]
        return name, self._text(own[0])

    def _stranger(self, position: int) -> str:
        return self._text(self.cast.strangers[position])

    def _text(self, number: int) -> str:
        return str(self.cast.addresses.text[int(number)])


def expected_rules(cluster: Cluster, incident: Incident, known: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """Return the ids of the rules that a staged transfer must fire.

    Args:
        cluster: thresholds, groups, off-hours.
        incident: a transfer.
        known: (node, address outside) that have met before.
    """
    source = cluster.group(next(node.group for node in cluster.nodes if node.name == incident.src))
    dst_group = group_of(cluster, ip_address(incident.dst))
    thresholds = cluster.thresholds
    found = []
    if source.role is Role.MODEL_STORAGE and dst_group == EXTERNAL and incident.volume > thresholds.exfil_volume:
        found.append(exfil_volume.ID)
    is_new = (incident.src, incident.dst) not in known and incident.volume > thresholds.first_contact_bytes
    if source.role in (Role.MODEL_STORAGE, Role.TRAINING) and is_new:
        found.append(first_external_contact.ID)
    is_off = is_off_hours(cluster.site, incident.start) and is_off_hours(cluster.site, incident.end - 1)
    if source.sensitive and is_off and incident.volume > thresholds.off_hours_bytes:
        found.append(off_hours_transfer.ID)
    return tuple(found)
