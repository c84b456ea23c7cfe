"""What outside addresses are, by lists: first by trusted names, then by prefixes."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from cluster.model import ApplicationFile, Applications
from enrichment.addresses.application_files import ApplicationTable, load_applications
from enrichment.addresses.host_names import HostNames
from enrichment.list_states import BUILTIN
from enrichment.watched import WatchedFile
from store import schema

KIND = "applications"
BUILTIN_FILE = Path(__file__).with_name("applications.yaml")


class ApplicationLists:
    """A provider of labels: of each address the first file counts that knows it.

    A name says more than a range that thousands share. But whoever owns an address names it as he likes: only names
    from the user's files, and those that lead back to the address, are looked up.

    Args:
        settings: the files.
        names: who knows names; None: nobody.
    """

    columns = (schema.APPLICATION,)

    def __init__(self, settings: Applications, names: HostNames | None = None) -> None:
        files = [(file, KIND) for file in settings.files]
        if settings.builtin:
            files.append((ApplicationFile("built-in", str(BUILTIN_FILE)), BUILTIN))
        self.files: tuple[WatchedFile[ApplicationTable], ...] = tuple(
            WatchedFile(Path(file.file), partial(load_applications, file), name=file.name, kind=kind)
            for file, kind in files
        )
        self._names = names

    def refresh(self) -> bool:
        """Read again what has changed; return whether `label` may answer otherwise, also for names that are new."""
        changed = [file.refresh() for file in self.files]
        tables = self._tables()
        fresh = self._names.fresh() if self._names is not None else []
        return any(changed) or any(table.by_name(name) for name in fresh for table in tables)

    def label(self, addresses: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return what each address is, empty where no list knows it."""
        tables = self._tables()
        names = self._names.of(addresses) if self._names is not None else [None] * len(addresses)
        found = [
            next(filter(None, (table.by_name(name.name) for table in tables)), "")
            if name is not None and name.is_vouched
            else ""
            for name in names
        ]
        for table in tables:
            by_address = table.by_address(list(addresses))
            found = [before or text for before, text in zip(found, by_address, strict=True)]
        return {schema.APPLICATION: found}

    def _tables(self) -> list[ApplicationTable]:
        return [table for file in self.files if (table := file.value) is not None]
