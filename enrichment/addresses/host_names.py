"""Names of outside addresses: the user's files first, then reverse DNS where it is configured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.model import HostNaming, NamesFormat, ReverseDns
from enrichment.addresses.host_files import Names, load_names
from enrichment.list_states import HOSTS
from enrichment.watched import WatchedFile

if TYPE_CHECKING:
    from enrichment.addresses.reverse_dns import ReverseNames

KIND = "names"
BY_DNS = "reverse DNS"
CONFIRMED = "reverse DNS, confirmed"
"""Sources of names; else it is the name of the file."""


@dataclass(frozen=True, slots=True)
class HostName:
    """A name and where it is from. `is_vouched`: the user's own file says so, or it leads back to the address."""

    name: str
    source: str
    is_vouched: bool


class HostNames:
    """Knows names of addresses. It is a provider whose labels are none: names are no tags, there are too many.

    Args:
        settings: where names come from.
    """

    columns: tuple[str, ...] = ()

    def __init__(self, settings: HostNaming) -> None:
        self.files: tuple[WatchedFile[Names], ...] = tuple(
            WatchedFile(
                Path(file.file),
                partial(load_names, file),
                name=file.name,
                kind=HOSTS if file.format is NamesFormat.HOSTS else KIND,
            )
            for file in settings.files
        )
        self._dns = _asking(settings.reverse_dns) if settings.reverse_dns else None

    def refresh(self) -> bool:
        """Read again what has changed; return whether a file gives other names now."""
        changed = [file.refresh() for file in self.files]
        return any(changed)

    def label(self, addresses: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return no labels."""
        del addresses
        return {}

    def of(self, addresses: Sequence[str]) -> list[HostName | None]:
        """Return the name of each address; None where none is known, or not yet. It never waits.

        Args:
            addresses: distinct, in the spelling of `ipaddress`.
        """
        in_use = [(file.name, file.value) for file in self.files if file.value is not None]
        found: dict[str, HostName] = {}
        for address in addresses:
            for source, names in in_use:
                if address in names:
                    found[address] = HostName(names[address], source, is_vouched=True)
                    break
        if self._dns is not None:
            rest = [address for address in addresses if address not in found]
            for address, answer in zip(rest, self._dns.of(rest), strict=True):
                if answer is not None and answer.name:
                    source = CONFIRMED if answer.confirmed else BY_DNS
                    found[address] = HostName(answer.name, source, is_vouched=answer.confirmed)
        return [found.get(address) for address in addresses]

    def fresh(self) -> list[str]:
        """Return confirmed names that DNS gave since the last call."""
        return self._dns.fresh() if self._dns is not None else []

    def close(self) -> None:
        """Ask name servers no more."""
        if self._dns is not None:
            self._dns.close()


def _asking(settings: ReverseDns) -> "ReverseNames":
    from enrichment.addresses.reverse_dns import ReverseNames  # noqa: PLC0415 - slow to import, and few ask

    return ReverseNames(settings)
