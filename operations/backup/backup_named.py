"""The user's small files that cluster.yaml names and a backup contains."""

import os
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from cluster.model import Cluster

MOST_BYTES = 4 << 20
"""Of a file that is taken along; what is larger is made by a machine, which can make it again."""

ELSEWHERE = "elsewhere"
"""Folder beside cluster.yaml for files that it names outside of its own: each NUMBER-NAME."""

_PRIVATE = b"PRIVATE KEY"
"""What a key in PEM says of itself; some keep it in one file with its certificate."""


def named_files(cluster: Cluster) -> list[Path]:
    """Return certificates and lists of names and addresses, each once.

    What others write, and write again, is not among them: threat feeds, MMDB files, sign-ins, jobs. Nor are secrets:
    keys, passwords, tokens, a kubeconfig.
    """
    settings = (cluster.store, cluster.kafka, *cluster.delivery.destinations, *cluster.inventory.sources)
    certificates = (getattr(one, key, None) for one in settings for key in ("ca_file", "certificate_file"))
    names = (one.file for one in cluster.names.files)
    applications = (one.file for one in cluster.applications.files)
    return [Path(name) for name in dict.fromkeys((*certificates, *names, *applications)) if name]


def is_named(place: PurePosixPath, names: Collection[str]) -> bool:
    """Whether a file has its place beside cluster.yaml: it is one that cluster.yaml names.

    A name may be absolute, or lead up and down again, and nobody knows any more what it was relative to: a place is
    known by what a name ends with. Hidden files have none: shells and others heed those that lie in a home.

    Args:
        place: relative to cluster.yaml's folder.
        names: see `cluster.sources.named_in`.
    """
    if any(part.startswith(".") for part in place.parts):
        return False
    found = [PurePosixPath(os.path.normpath(name)) for name in names]
    number, _, last = place.name.partition("-")
    if place.parts[:-1] == (ELSEWHERE,) and number.isdecimal() and any(last == one.name for one in found):
        return True
    return any(one.parts[-len(place.parts) :] == place.parts for one in found)


def text_of(path: Path) -> bytes:
    """Return a file's text; ValueError, with the reason, where it is not to be taken along."""
    try:
        # A pipe would be waited for without end.
        if not path.is_file():
            raise ValueError("is not there" if not path.exists() else "is no plain file")
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(error.strerror or "cannot be read") from None
    if len(text) > MOST_BYTES:
        raise ValueError(f"has more than {MOST_BYTES >> 20} MiB")
    if _PRIVATE in text:
        raise ValueError("holds a private key")
    if not _is_text(text):
        raise ValueError("is no text")
    return text


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False
