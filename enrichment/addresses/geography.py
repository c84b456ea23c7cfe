"""Country, city and network of outside addresses, from MMDB files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.model import Geography
from enrichment.addresses.mmdb import load_mmdb
from enrichment.addresses.prefixes import address_keys, as_listed
from enrichment.watched import WatchedFile
from store import schema

KIND = "geography"


class GeographyFiles:
    """A provider of labels: of each thing the first file counts that knows it of the address.

    Args:
        settings: the files.
    """

    columns = (schema.COUNTRY, schema.CITY, schema.NETWORK)

    def __init__(self, settings: Geography) -> None:
        self.files = tuple(WatchedFile(Path(path), load_mmdb, name=name, kind=KIND) for name, path in settings.files)

    def refresh(self) -> bool:
        """Read again what has changed; return whether `label` may answer otherwise than before."""
        changed = [file.refresh() for file in self.files]
        return any(changed)

    def label(self, addresses: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return for each of `columns` one text an address, empty where no file knows it."""
        keys, is_address = address_keys(addresses)
        keys = as_listed(keys)
        found = [[""] * len(addresses) for _ in self.columns]
        for file in self.files:
            if (known := file.value) is None:
                continue
            for number, own in enumerate(zip(*known.places(keys), strict=True)):
                found[number] = [before or text for before, text in zip(found[number], own, strict=True)]
        # The key of what is no address is that of an address.
        for position in (~is_address).nonzero()[0].tolist():
            for texts in found:
                texts[position] = ""
        return dict(zip(self.columns, found, strict=True))
