"""Who the ends of a conversation are: from tags and labels, the inventory, and what the store says of addresses."""

import re
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Protocol

from cluster import schema
from cluster.model import EXTERNAL, RESERVED_GROUPS, Cluster, Role
from delivery.event import Party

INBOUND, OUTBOUND = "inbound", "outbound"
_NETWORK = re.compile(r"AS(\d{1,10})\b\s*(.*)")


class AboutAddresses(Protocol):
    """What says more of outside addresses than tags do."""

    def about(self, address: str) -> Mapping[str, str]:
        """Return what is known of an address: the schema's names of labels, and NAME."""


class UserAt(Protocol):
    """What knows who was at an address when."""

    def user(self, address: str, moment: float) -> str:
        """Return the user; empty where nobody knows."""


class Nobody:
    """Knows nothing of any address."""

    def about(self, address: str) -> Mapping[str, str]:
        """Return nothing."""
        del address
        return {}

    def user(self, address: str, moment: float) -> str:
        """Return nobody."""
        del address, moment
        return ""


class Parties:
    """Turns names and addresses as they are stored into parties.

    Args:
        cluster: groups and inventory.
        directory: what else is known of outside addresses.
        users: who was at which address.
    """

    def __init__(self, cluster: Cluster, directory: AboutAddresses | None = None, users: UserAt | None = None) -> None:
        self._directory: AboutAddresses = directory or Nobody()
        self._users: UserAt = users or Nobody()
        known = {group.id for group in cluster.groups} | set(RESERVED_GROUPS)
        self._titles = {group: cluster.title(group) for group in known}
        outside = {group.id for group in cluster.groups_with(Role.APPROVED_EXTERNAL)}
        self._outside = outside | {EXTERNAL}
        # A node with several addresses is known by its name alone: which one it was, nothing says.
        self._addresses = {
            node.name: str(node.addresses[0].address) for node in cluster.nodes if len(node.addresses) == 1
        }
        self._groups = {node.name: node.group for node in cluster.nodes}

    def party(self, name: str, group: str, moment: float, labels: Mapping[str, str] | None = None) -> Party:
        """Return one end.

        Args:
            name: a node, an address, `other`, or nothing.
            group: id of its group; empty where nobody says.
            moment: of the event, for who was at the address.
            labels: tags that tell of it.
        """
        group = group or self._groups.get(name, "")
        address = _address(name)
        node = "" if address or name == schema.OTHER else name
        address = address or self._addresses.get(name, "")
        found = Party(name=node, address=address, group=group, group_title=self._titles.get(group, group))
        known = {key: value for key, value in (labels or {}).items() if value and value != schema.OTHER}
        if address and (not group or self.is_outside(group)):
            known = {**self._directory.about(address), **known}
        return _labelled(replace(found, user=self._users.user(address, moment) if address else ""), known)

    def is_outside(self, group: str) -> bool:
        """Whether a group stands outside the cluster."""
        return group in self._outside

    def direction(self, src_group: str, dst_group: str) -> str:
        """Return which way a conversation crosses the border; empty where it does not, or nobody knows."""
        src, dst = self.is_outside(src_group), self.is_outside(dst_group)
        if src is dst or not src_group or not dst_group:
            return ""
        return INBOUND if src else OUTBOUND


def _labelled(party: Party, known: Mapping[str, str]) -> Party:
    network = known.get(schema.NETWORK, "")
    match = _NETWORK.fullmatch(network)
    return replace(
        party,
        name=party.name or known.get(schema.NAME, ""),
        country=known.get(schema.COUNTRY, ""),
        city=known.get(schema.CITY, ""),
        asn=int(match[1]) if match else None,
        organisation=match[2] if match else network,
        application=known.get(schema.APPLICATION, ""),
    )


def _address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        return ""
