"""What users are called: one spelling for one person, bounded and safe to print, or a pseudonym."""

import hashlib
import hmac
import re
from collections.abc import Iterable
from functools import lru_cache

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
