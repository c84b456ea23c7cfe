"""What cluster.yaml names: small files of the user's own that a backup takes along."""

from pathlib import Path

from cluster.model import Cluster

MOST_BYTES = 4 << 20
"""Of a file that is taken along; what is larger is made by a machine, which can make it again."""

_PRIVATE = b"PRIVATE KEY"
"""What a key in PEM says of itself; some keep it in one file with its certificate."""


def named_files(cluster: Cluster) -> list[Path]:
    """Return certificates and lists of names and addresses, each once.

    What others write, and write again, is not among them: threat feeds, MMDB files, sign-ins, jobs. Nor are secrets:
    keys, passwords, tokens, a kubeconfig.
    """
    settings = (cluster.store, cluster.kafka, *cluster.delivery.destinations)
    certificates = (getattr(one, key, None) for one in settings for key in ("ca_file", "certificate_file"))
    names = (one.file for one in cluster.names.files)
    applications = (one.file for one in cluster.applications.files)
    return [Path(name) for name in dict.fromkeys((*certificates, *names, *applications)) if name]


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
