"""Detached signatures of files that are handed over: Ed25519, by the `openssl` that checks them."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from app.errors import UserError

SUFFIX = ".sig"
"""Of the signature, which lies beside its file."""

_MAKE = "make one with `openssl genpkey -algorithm ed25519 -out FILE`"


def check_key(key: Path) -> None:
    """Raise UserError unless a file holds an Ed25519 key without a passphrase, PEM."""
    if not _openssl(key, "pkey", "-in", str(key), "-noout", "-text_pub").startswith("ED25519"):
        raise UserError(f"{key}: expected an Ed25519 key", _MAKE)


def sign(path: Path, key: Path) -> Path:
    """Write a file's signature beside it, 64 bytes as of RFC 8032, and return where; UserError if that fails."""
    signature = path.with_name(path.name + SUFFIX)
    _openssl(key, "pkeyutl", "-sign", "-rawin", "-inkey", str(key), "-in", str(path), "-out", str(signature))
    return signature


def _openssl(key: Path, *arguments: Sequence[str] | str) -> str:
    # A key with a passphrase must not ask for it: nobody may be there. What openssl says may quote the file: unheard.
    command = ["openssl", *map(str, arguments), "-passin", "pass:"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError as error:
        raise UserError("openssl is not there, which makes the signature", "install openssl 3") from error
    if done.returncode:
        why = "cannot be read" if not _is_readable(key) else "no private key that openssl reads without a passphrase"
        raise UserError(f"{key}: {why}", _MAKE)
    return done.stdout


def _is_readable(path: Path) -> bool:
    try:
        with path.open("rb"):
            return True
    except OSError:
        return False
