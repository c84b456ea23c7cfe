"""All sign-ins of a cluster: every source read into one table, names spelled or made pseudonyms on the way in."""

import hashlib
import hmac
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path

from app.words import lasting
from cluster.model import IdentitySettings, SignInSource, Site
from enrichment.identity.identity_table import IdentityTable, Sign, canonical
from enrichment.identity.log_times import Clock
from enrichment.identity.signin_files import SourceFiles, Tally
from enrichment.identity.signin_lines import Mark
from enrichment.watched import FileReading

LONGEST = 128
"""Characters of a name; of longer ones the end becomes a checksum, so that two stay two."""

_PSEUDONYM = re.compile(r"u-[0-9a-f]{16}")
_LEAST_KEY = 16
"""Bytes of a key below which its pseudonyms could be undone by trying keys."""


class Names:
    r"""Spells users.

    Args:
        domains: whose prefix (``DOMAIN\``) or suffix (``@domain``) is left out, so that all sources agree on a name.
        key: names become pseudonyms under this key; None: they stay in clear.

    Raises:
        ValueError: the key is too short to keep anything secret.
    """

    def __init__(self, domains: Iterable[str] = (), key: bytes | None = None) -> None:
        if key is not None and len(key) < _LEAST_KEY:
            raise ValueError(f"a key of {len(key)} bytes: expected at least {_LEAST_KEY}")
        self._domains = frozenset(domain.casefold() for domain in domains)
        self._key = key
        self.of = lru_cache(100_000)(self._spelled)

    def _spelled(self, text: str) -> str:
        """Return the name of a user as exports write it; empty where there is none."""
        name = "".join(sign if sign.isprintable() else "?" for sign in text.strip()).casefold()
        prefix, slash, rest = name.rpartition("\\")
        if slash and prefix.rpartition("\\")[2] in self._domains:
            name = rest
        rest, at, suffix = name.rpartition("@")
        if at and suffix in self._domains:
            name = rest
        # The store has no backslash in a tag, and exports write a dash where there is no user.
        name = name.replace("\\", "/")
        if name in {"", "-"}:
            return ""
        if self._key is not None:
            return f"u-{hmac.new(self._key, name.encode('utf-8', 'replace'), hashlib.sha256).hexdigest()[:16]}"
        if len(name) > LONGEST:
            check = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12]
            return f"{name[: LONGEST - 13]}~{check}"
        return name

    def listed(self, text: str) -> str:
        """Return the name of a user whom cluster.yaml lists, in clear or already as a pseudonym."""
        if self._key is not None and _PSEUDONYM.fullmatch(text.strip()):
            return text.strip()
        return str(self.of(text))


AHEAD = 300
"""Seconds by which a sign may lie in the future: clocks differ. What lies further ahead is refused."""

KIND = "identity"

_PATIENCE_SECONDS = 20.0
"""For how long a look waits where nothing more is read: then the disk does not answer."""

_PORTION = 10_000
"""Signs that are handed over at once, so that a large file is never held as a whole."""


@dataclass
class _Source:
    settings: SignInSource
    hold: int
    files: SourceFiles
    tally: Tally = field(default_factory=Tally)
    error: str = ""


class Identity:
    """Who has which address when.

    Args:
        settings: `identity` of cluster.yaml.
        site: its time zone holds for times without an offset.
        keep: seconds for which answers are wanted.
        key: of pseudonyms, where names must not leave in clear.

    Attributes:
        names: spells users.
        table: answers.

    Raises:
        ValueError: the key is too short.
    """

    def __init__(self, settings: IdentitySettings, site: Site, keep: int, key: bytes | None = None) -> None:
        self.names = Names(settings.domains, key)
        self.table = IdentityTable()
        self._keep, self._shared = keep, settings.shared
        self._zone = site.time_zone
        holds = [settings.hold, *(source.hold for source in settings.sources if source.hold is not None)]
        self._reach = keep + 2 * max(holds)
        self._looking: Future[None] | None = None
        self._at: _Source | None = None
        self._sources = [
            _Source(one, settings.hold if one.hold is None else one.hold, SourceFiles(one, self._reach))
            for one in settings.sources
        ]

    def refresh(self, now: float) -> None:
        """Read what is new, for as long as that takes. What is wrong stands in `readings`.

        A disk that does not answer is waited for once: until it does, look-ups go by what was read before.
        """
        if self._looking is not None and not self._looking.done():
            return
        self._looking = looking = Future[None]()
        # A daemon: no end waits for that disk either.
        threading.Thread(target=self._look, args=(now, looking), name="sign-ins", daemon=True).start()
        read = -1
        while not looking.done() and read != (read := sum(source.tally.read for source in self._sources)):
            wait_for([looking], _PATIENCE_SECONDS)
        if looking.done():
            looking.result()
        elif (source := self._at) is not None:
            source.error = (
                f"{source.settings.path}: nothing was read for {_PATIENCE_SECONDS:g} s (does its disk answer?)"
            )

    def _look(self, now: float, looking: Future[None]) -> None:
        try:
            self._read(now)
        except BaseException as error:  # noqa: BLE001 - `refresh` raises it, where somebody handles it
            looking.set_exception(error)
        else:
            looking.set_result(None)

    def _read(self, now: float) -> None:
        for source in self._sources:
            self._at = source
            signs: list[Sign] = []
            clock = Clock(source.settings.time_zone or self._zone, now)
            source.error = source.files.refresh(clock, self._taker(source, now, signs), source.tally)
            self.table.add(signs)
        self.table.forget(int(now) - self._keep)

    def readings(self) -> list[FileReading]:
        """Return the state of each source."""
        return [
            FileReading(
                source.settings.name,
                KIND,
                Path(source.settings.path),
                source.tally.entries,
                None if source.tally.newest is None else float(source.tally.newest),
                source.settings.format.value,
                source.tally.skipped,
                source.error or source.tally.note,
                # A log in which nobody has signed in yet is as it should be.
                in_use=source.tally.entries > 0 or not source.error,
                broken=bool(source.error),
            )
            for source in self._sources
        ]

    def _taker(self, source: _Source, now: float, signs: list[Sign]) -> Callable[[Mark, str], None]:
        tally = source.tally

        def take(mark: Mark, place: str) -> None:
            del place
            try:
                address = canonical(mark.address)
            except ValueError:
                raise ValueError("no address where one is expected") from None
            ahead = mark.moment - now
            if ahead > AHEAD:
                raise ValueError(f"a time {lasting(ahead)} in the future (is a clock wrong, or time_zone?)")
            user = self.names.of(mark.user)
            if not address or not (user or mark.ends) or self._is_shared(address):
                return
            tally.entries += 1
            tally.newest = max(mark.moment, tally.newest or mark.moment)
            if mark.moment > now - self._reach:
                signs.append(Sign(address, user, mark.moment, mark.ends, 0 if mark.ends else source.hold))
            if len(signs) >= _PORTION:
                self.table.add(signs)
                signs.clear()

        return take

    def _is_shared(self, text: str) -> bool:
        if not self._shared:
            return False
        address = ip_address(text)
        return any(address in prefix for prefix in self._shared if prefix.version == address.version)
