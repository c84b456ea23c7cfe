"""Who the ends of a conversation are: from tags and labels, the inventory, and what the store says of addresses."""

import re
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Protocol

from cluster.model import RESERVED_GROUPS, UNLISTED, Cluster
from delivery.event import Party
from operations.sightings import Sighting
from store import schema

INBOUND, OUTBOUND = "inbound", "outbound"
_NETWORK = re.compile(r"AS(\d{1,10})\b\s*(.*)")


class AboutAddresses(Protocol):
    """What says more of outside addresses than tags do."""

    def about(self, address: str) -> Mapping[str, str]:
        """Return what is known of an address: the schema's names of labels, and NAME."""


class UserAt(Protocol):
    """What knows who was at an address when."""

    def user(self, address: str, moment: float) -> str:
        """Return the user; empty if unknown."""


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
        known = {group.id for group in cluster.groups} | {UNLISTED, *RESERVED_GROUPS}
        self._titles = {group: cluster.title(group) for group in known}
        self._outside = frozenset(cluster.outside_ids())
        self._addresses = {node.name: [str(entry.address) for entry in node.addresses] for node in cluster.nodes}
        self._groups = {node.name: node.group for node in cluster.nodes}

    def party(
        self,
        name: str,
        group: str,
        moment: float,
        labels: Mapping[str, str] | None = None,
        *,
        until: float | None = None,
    ) -> Party:
        """Return one end.

        Args:
            name: a node, an address, `other`, or nothing.
            group: id of its group; empty if unknown.
            moment: of the event, for who was at the address.
            labels: tags about it.
            until: when the event ended, where it took a while.
        """
        group = group or self._groups.get(name, "")
        address = _address(name)
        node = "" if address or name == schema.OTHER else name
        own = [address] if address else self._addresses.get(name, [])
        # A node with several addresses is known by its name alone: which one it was, nothing says.
        address = own[0] if len(own) == 1 else ""
        # But whoever is signed in at one of them is at the machine.
        user = next(filter(None, (self._user(one, moment, until) for one in own)), "")
        found = Party(name=node, address=address, group=group, group_title=self._titles.get(group, group), user=user)
        known = {key: value for key, value in (labels or {}).items() if value and value != schema.OTHER}
        if address and (not group or self.is_outside(group)):
            known = {**self._directory.about(address), **known}
        return _labelled(found, known)

    def _user(self, address: str, moment: float, until: float | None) -> str:
        """Return who was at an address; empty where it passed from one user to another meanwhile."""
        first = self._users.user(address, moment)
        last = first if until is None else self._users.user(address, until - 1)
        if first and last and first != last:
            return ""
        return first or last

    def is_outside(self, group: str) -> bool:
        """Whether a group stands outside the cluster."""
        return group in self._outside

    def direction(self, src_group: str, dst_group: str) -> str:
        """Return which way a conversation crosses the border; empty where it does not, or if unknown."""
        src, dst = self.is_outside(src_group), self.is_outside(dst_group)
        if src is dst or not src_group or not dst_group:
            return ""
        return INBOUND if src else OUTBOUND


def with_sighting(source: Party, destination: Party, seen: Sighting) -> tuple[Party, Party]:
    """Return both ends with the addresses that they used, and the port of the one that was called."""
    source = replace(source, address=source.address or seen.src_address)
    destination = replace(destination, address=destination.address or seen.dst_address)
    highest = None if seen.port_max == seen.port else seen.port_max
    if seen.source_opened:
        return source, replace(destination, port=seen.port, port_max=highest)
    return replace(source, port=seen.port, port_max=highest), destination


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
