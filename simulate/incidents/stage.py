"""Where incidents are staged: who is there, who has met whom before, and what the background sends between them."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address

from app.errors import UserError
from cluster.model import Cluster, Node, Plane, Role
from simulate.incidents.alert_evidence import Piece
from simulate.packets.addresses import group_of
from simulate.scenarios.scenario import Background, Phase, Profile, Run
from simulate.traffic.background import ApprovedTransfer, approved_transfers
from simulate.traffic.cast import Cast


@dataclass(frozen=True, slots=True)
class Stage:
    """Where incidents are staged.

    Attributes:
        cluster, cast, profile, runs: of the scenario.
        history: the time before an incident of which the store knows; None if there is none.
        seed: of the scenario.
        number: how many incidents were staged before this one: each has a stranger of its own.
        background: of the scenario.
    """

    cluster: Cluster
    cast: Cast
    profile: Profile
    runs: tuple[Run, ...]
    history: Phase | None
    seed: int
    number: int = 0
    background: Background = Background.DENSE

    # -- who -----------------------------------------------------------------------------------------

    def nodes(self, *roles: Role) -> list[Node]:
        """Return the nodes of some roles that have addresses; UserError if there is none."""
        groups = {group.id for group in self.cluster.groups_with(*roles)}
        found = [node for node in self.cluster.nodes if node.group in groups and node.addresses]
        if not found:
            words = " or ".join(role.value for role in roles)
            raise UserError(f"no {words} nodes to stage it with", f"add nodes to a group of role {words}")
        return found

    def node(self, name: str) -> Node:
        """Return the node with this name; UserError if there is none with addresses."""
        for node in self.cluster.nodes:
            if node.name == name and node.addresses:
                return node
        raise UserError(f"{name}: no node of that name", "see nodes in cluster.yaml")

    def chosen(self, name: str, position: float, *roles: Role) -> Node:
        """Return the named node, or without a name one of these roles, at a position from 0 to below 1."""
        if name:
            return self.node(name)
        found = self.nodes(*roles)
        return found[int(position * len(found))]

    def address(self, node: Node, plane: Plane | None = None) -> str:
        """Return the node's address on a plane, else its first IPv4 address, else its first one."""
        entries = [entry for entry in node.addresses if entry.plane is plane] if plane is not None else []
        entries = entries or [entry for entry in node.addresses if entry.address.version == 4]
        return str((entries or list(node.addresses))[0].address)

    def role(self, group_id: str) -> Role | None:
        """Return a group's role; None for the reserved ones."""
        return next((group.role for group in self.cluster.groups if group.id == group_id), None)

    def group_of(self, address: str) -> str:
        """Return the group of an address."""
        return group_of(self.cluster.groups, ip_address(address))

    def stranger(self, position: int | None = None) -> str:
        """Return an address outside that only this incident talks to."""
        strangers = self.cast.strangers
        return self._text(strangers[(self.number if position is None else position) % len(strangers)])

    def strangers(self, count: int) -> list[str]:
        """Return so many of them, the last ones first."""
        strangers = self.cast.strangers[::-1][:count]
        if len(strangers) < count:
            raise UserError(f"{count} targets", f"at most {len(strangers)}: there are no more addresses to play with")
        return [self._text(number) for number in strangers]

    def partner(self, position: int = 0) -> str:
        """Return an approved destination; negative positions count from the last one."""
        if not len(self.cast.partners):
            raise UserError("no approved destination", "add a group of role approved_external")
        return self._text(self.cast.partners[position % len(self.cast.partners)])

    def run_at(self, moment: int, job: str = "") -> Run:
        """Return the run (of that job) at a moment; UserError if there is none."""
        for run in self.runs:
            if run.start <= moment < run.end and job in ("", run.job):
                return run
        raise UserError("no job runs at that time", "stage it during a run")

    def _text(self, number: int) -> str:
        return str(self.cast.addresses.text[int(number)])

    # -- what was before -----------------------------------------------------------------------------

    def known(self, before: int | None = None) -> set[tuple[str, str]]:
        """Return (node, address outside) that have met in the history, or in what of it lies before a moment."""
        text = self.cast.addresses.text
        return {
            (transfer.node, text[transfer.dst])
            for transfer in self._approved()
            if before is None or transfer.start < before
        }

    def is_learning(self, moment: int) -> bool:
        """Whether so little is known at a moment that no contact is called new."""
        return self.history is not None and moment < self.history.start + self.cluster.thresholds.contact_learning

    def places_learnt(self) -> int | None:
        """Return when the networks of addresses are learnt, epoch seconds; None if nobody's are known before.

        Files of places know the partners, so learning begins with the first transfer to one.
        """
        first = min((transfer.start for transfer in self._approved()), default=None)
        return None if first is None else first + self.cluster.thresholds.contact_learning

    def business_hours(self) -> tuple[int, int] | None:
        """Return begin and end of the last transfer to a partner in the history, epoch seconds; None without one."""
        last = max(self._approved(), key=lambda transfer: transfer.start, default=None)
        return None if last is None else (last.start, last.end)

    def ordinary(self, src: str, dst: str) -> list[Piece]:
        """Return what a node sends to an approved destination anyway."""
        text = self.cast.addresses.text
        return [
            Piece(transfer.start, transfer.end, transfer.volume)
            for transfer in self._approved()
            if transfer.node == src and text[transfer.dst] == dst
        ]

    def _approved(self) -> Iterator[ApprovedTransfer]:
        if self.history is None or self.background is Background.NONE:
            return iter(())
        return approved_transfers(self.cast, self.seed, self.history.start, self.history.end)
