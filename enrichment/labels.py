"""What the user's files say about outside addresses, whichever files those are: country, network, feeds, ..."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from app.words import one_line
from enrichment.watched import WatchedFile
from store import schema

MOST_CHARACTERS = 120
"""Length beyond which a label is cut: it becomes a tag of every row about its address."""

_CACHE_LIMIT = 200_000
"""Addresses that are remembered: about 40 MB."""

Row = tuple[str, ...]
"""What is known of an address, in the order of `schema.LABELS`; empty texts where nothing is."""

NOTHING: Row = ("",) * len(schema.LABELS)


class Provider(Protocol):
    """Something that knows labels of addresses from files."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Which of `schema.LABELS` it knows."""

    @property
    def files(self) -> Sequence[WatchedFile[Any]]:
        """What it reads."""

    def refresh(self) -> bool:
        """Read again what has changed; return whether `label` may answer otherwise than before.

        Called by another thread than `label` is, and at the same time.
        """

    def label(self, addresses: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return for each of `columns` one text an address, empty where nothing is known.

        Args:
            addresses: distinct, in the spelling of `ipaddress`: IPv4 dotted, IPv6 compressed, never IPv4-mapped.
        """


class Labels:
    """Asks all providers, and remembers what they said until one of them reads another file.

    Where several know the same thing of an address, the first of them counts. One thread may call `refresh` and
    another one `of` at the same time.

    Args:
        providers: in the order in which they are asked.

    Attributes:
        generation: grows when a file was read that may change an answer; what others remember of answers ends then.
    """

    def __init__(self, providers: Sequence[Provider]) -> None:
        self._providers = tuple(providers)
        self._lock = threading.Lock()
        self._known: dict[str, Row] = {}
        self.generation = 0

    def __bool__(self) -> bool:
        """Whether there is any provider."""
        return bool(self._providers)

    @property
    def providers(self) -> tuple[Provider, ...]:
        """Who is asked, in this order."""
        return self._providers

    @property
    def files(self) -> tuple[WatchedFile[Any], ...]:
        """The files of all providers."""
        return tuple(file for provider in self._providers for file in provider.files)

    def refresh(self) -> bool:
        """Have every provider look at its files; return whether an answer may be another one now."""
        # All of them are asked, also after the first that has changed.
        changed = [provider.refresh() for provider in self._providers]
        if not any(changed):
            return False
        with self._lock:
            self._known = {}
            self.generation += 1
        return True

    def of(self, addresses: Sequence[str]) -> list[Row]:
        """Return what is known of each address.

        Args:
            addresses: distinct, in the spelling of `ipaddress`. A name of a node is no address: nothing is known of it.
        """
        known, generation = self._known, self.generation
        missing = [address for address in addresses if address not in known]
        if not missing:
            return [known[address] for address in addresses]
        fresh = dict(zip(missing, self._ask(missing), strict=True))
        found = [fresh[address] if address in fresh else known[address] for address in addresses]
        with self._lock:
            # A reader may get either answer while a file is read again; only the new one is remembered.
            if generation == self.generation:
                if len(known) + len(fresh) > _CACHE_LIMIT:
                    self._known = fresh
                else:
                    known.update(fresh)
        return found

    def _ask(self, addresses: Sequence[str]) -> list[Row]:
        columns: dict[str, list[str]] = {}
        for provider in self._providers:
            for name, texts in provider.label(addresses).items():
                # Many addresses share a text.
                spelled = {text: one_line(text, MOST_CHARACTERS) for text in set(texts)}
                tame = [spelled[text] for text in texts]
                before = columns.get(name)
                columns[name] = tame if before is None else [a or b for a, b in zip(before, tame, strict=True)]
        nothing = [""] * len(addresses)
        return list(zip(*(columns.get(name, nothing) for name in schema.LABELS), strict=True))
