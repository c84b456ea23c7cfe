"""What an inventory source told last, as a file: it holds while the source is away, and after a restart."""

import csv
import io
import os
import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cluster.vocabulary import Address

_HEADER = ("name", "address", "word", "gpus")


@dataclass(frozen=True, slots=True, order=True)
class Machine:
    """A machine of a source; several of one name are one machine.

    Attributes:
        name: the key by which its history is kept.
        addresses: of all its interfaces.
        word: what the source calls its kind: a partition, role, namespace or group; only drafts use it.
        gpus: in it; None where the source does not say.
    """

    name: str
    addresses: tuple[Address, ...]
    word: str = ""
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class SourceInUse:
    """What a cluster took from a source: nodes, addresses in no group, and what does not fit, in words."""

    name: str
    nodes: int
    left_out: int
    conflicts: tuple[str, ...]


def kept_file(folder: Path, source: str) -> Path:
    """Return where the last answer of a source stands."""
    return folder / f"{source}.csv"


def text_of(machines: Iterable[Machine]) -> str:
    """Return machines as CSV, in order: equal answers are equal texts."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_HEADER)
    for one in sorted(machines, key=lambda one: (one.name, one.word, str(one.addresses))):
        writer.writerows(
            (one.name, address, one.word, "" if one.gpus is None else one.gpus) for address in one.addresses
        )
    return out.getvalue()


def machines_of(text: str) -> list[Machine]:
    """Return what `text_of` wrote, a machine an address; ValueError where it is none of its texts."""
    rows = csv.DictReader(io.StringIO(text))
    try:
        return [
            Machine(row["name"], (ip_address(row["address"]),), row["word"], int(row["gpus"]) if row["gpus"] else None)
            for row in rows
        ]
    except (KeyError, TypeError) as error:
        raise ValueError(f"expected the columns {', '.join(_HEADER)}") from error


def write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody reads half of it; OSError where that is not possible: then all is as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        beside.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copymode(path, beside)
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise
