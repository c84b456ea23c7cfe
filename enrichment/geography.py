"""Country, city and network of outside addresses, from MMDB files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster import schema
from cluster.model import Geography
from enrichment.mmdb import Mmdb, load_mmdb
from enrichment.watched import WatchedFile

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
        in_use = [file.value for file in self.files if file.value is not None]
        places = [_place(address, in_use) for address in addresses]
        return {name: [place[position] for place in places] for position, name in enumerate(self.columns)}


def _place(address: str, files: Sequence[Mmdb]) -> tuple[str, ...]:
    country = city = network = ""
    for file in files:
        first, second, third = file.place(address)
        country, city, network = country or first, city or second, network or third
    return country, city, network
