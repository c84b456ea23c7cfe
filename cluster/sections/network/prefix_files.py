"""Prefixes of a group from files: as providers publish them, or one a line."""

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Network, collapse_addresses
from pathlib import Path
from typing import Any

from app.errors import ConfigError
from app.words import some
from cluster.document import Faults, Scalar, read_text
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import Bad, ListOf, Placed, Table, closest
from cluster.vocabulary import Network

_Entry = tuple[str, str, str, str]
"""Place in the file, prefix, service, region; empty where the file does not tell."""

_FORMATS = (
    "one prefix a line, RPSL (`route: 192.0.2.0/24`), or JSON of AWS (ip-ranges), Google (cloud.json), Azure "
    "(ServiceTags), Fastly or Cloudflare"
)


# fmt: off
@record
class PrefixFile:
    """A file with prefixes; a file alone stands for its `file`."""

    file: str = key(names.FILE, f"The file: {_FORMATS}. It is read again when it changes.",
        example="lists/aws-ip-ranges.json")
    services: tuple[str, ...] = key(ListOf(names.LINE), "Only prefixes of these services, as the file names them.",
        default=(), absent="all", example="[S3]")
    regions: tuple[str, ...] = key(ListOf(names.LINE), "Only prefixes of these regions, as the file names them.",
        default=(), absent="all", example="[eu-west-1]")


PREFIX_FILE = Section.of(PrefixFile, "file with prefixes", short="file")
# fmt: on


@dataclass(frozen=True, slots=True)
class FileInUse:
    """A file whose prefixes a group has.

    Attributes:
        path: of the file.
        prefixes: how many it gave.
        dated: the time of what was read, epoch seconds.
        error: why that was the last good version and not the file itself; empty if it was the file.
    """

    path: str
    prefixes: int
    dated: float
    error: str = ""


def prefixes_of(
    given: list[Placed[Table]], folder: Path, kept: Path, faults: Faults, refused: Mapping[str, str] | None = None
) -> tuple[list[Placed[Network]], tuple[FileInUse, ...]]:
    """Return the prefixes of files, those that lie in others left out, with the paths of their lines; and the files.

    A fault is recorded for what cannot be read, and where nothing is left of a file, unless its last good version is
    in the folder `kept`: that counts then. So it does for paths in `refused`, with what is wrong with their files.
    """
    found: list[Placed[Network]] = []
    files: list[FileInUse] = []
    for placed in given:
        if "file" in placed.value:
            one: PrefixFile = PREFIX_FILE.build(placed.value, folder)
            # Its time first: one that is replaced meanwhile counts as another one.
            dated = changed_at(one.file)
            tried, error = Faults(faults.source), ""
            if refused and placed.path in refused:
                tried.add(placed.path, refused[placed.path], "prefixes that do not overlap")
            networks = [] if tried.problems else _read(one, placed.path, tried)
            if tried.problems:
                copy, of_copy, first = _copy(kept, one.file), Faults(faults.source), tried.problems[0]
                networks = _read(replace(one, file=str(copy)), placed.path, of_copy)
                if of_copy.problems:
                    networks = []
                    for problem in tried.problems:
                        faults.add(problem.path, problem.value, problem.expected, problem.hint)
                else:
                    dated, error = changed_at(str(copy)), f"{first.value}: expected {first.expected}"
            found += [Placed(placed.path, network) for network in networks]
            files.append(FileInUse(one.file, len(networks), dated, error))
    return found, tuple(files)


def keep(files: Collection[FileInUse], kept: Path) -> None:
    """Copy the good versions in use to a folder; OSError where that is not possible."""
    # Of a file that is good for one group and not for another, the version before is still in use.
    needed = {one.path for one in files if one.error}
    for one in files:
        copy = _copy(kept, one.path)
        if one.path not in needed and changed_at(str(copy)) != one.dated:
            kept.mkdir(parents=True, exist_ok=True)
            beside = copy.with_name(f".{copy.name}.{os.getpid()}")
            shutil.copy2(one.path, beside)
            # One that was replaced since it was read may be a broken one.
            if changed_at(str(beside)) == one.dated:
                beside.replace(copy)
            else:
                beside.unlink()


def _copy(kept: Path, path: str) -> Path:
    name = Path(path).absolute()
    return kept / f"{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}-{name.name}"


def changed_at(path: str) -> float:
    """Return when a file was changed, epoch seconds; 0 where it is not there."""
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0


def _read(one: PrefixFile, path: str, faults: Faults) -> list[Network]:
    try:
        entries = list(_entries(read_text(Path(one.file))))
    except ConfigError as error:
        faults.add(path, one.file, "a file with prefixes", error.problems[0].value)
        return []
    except (ValueError, KeyError, TypeError, AttributeError):
        faults.add(path, one.file, _FORMATS)
        return []
    wanted = entries
    for key_name, place, chosen in (("services", 2, one.services), ("regions", 3, one.regions)):
        known = sorted({entry[place] for entry in entries if entry[place]})
        for name in chosen:
            if name not in known:
                hint = closest(name, known) or (f"it has {some(known)}" if known else "this file does not tell them")
                faults.add(f"{path}.{key_name}", name, f"one of the {key_name} in {one.file}", hint)
        wanted = [entry for entry in wanted if not chosen or entry[place] in chosen]
    networks: list[Network] = []
    for place_in_file, text, _, _ in wanted:
        try:
            networks.append(names.PREFIX.read(Scalar(text if "/" in text else _alone(text), quoted=True), path, faults))
        except Bad as bad:
            faults.add(
                path, f"{one.file}: {place_in_file}: {text[:60]}", bad.expected or names.PREFIX.expected, bad.hint
            )
            return []
    if not networks and not (one.services or one.regions):
        faults.add(path, one.file, "a file with prefixes", "it lists none")
    fours = collapse_addresses(network for network in networks if isinstance(network, IPv4Network))
    sixes = collapse_addresses(network for network in networks if isinstance(network, IPv6Network))
    return [*fours, *sixes]


def _alone(text: str) -> str:
    return f"{text}/{128 if ':' in text else 32}"


def _entries(text: str) -> Iterator[_Entry]:
    if not text.lstrip().startswith(("{", "[")):
        yield from _of_lines(text)
        return
    document = json.loads(text)
    if "values" in document:
        yield from _of_azure(document)
    elif "result" in document or "addresses" in document:
        lists: dict[str, Any] = document.get("result") or document
        for name in ("ipv4_cidrs", "ipv6_cidrs", "addresses", "ipv6_addresses"):
            for number, prefix in enumerate(lists.get(name) or (), start=1):
                yield f"{name} {number}", str(prefix), "", ""
    else:
        # AWS has the two families apart; Google calls the region scope.
        for name in ("prefixes", "ipv6_prefixes"):
            for number, one in enumerate(
                document["prefixes"] if name == "prefixes" else document.get(name, ()), start=1
            ):
                prefix = next(
                    one[word] for word in ("ip_prefix", "ipv6_prefix", "ipv4Prefix", "ipv6Prefix") if word in one
                )
                yield f"{name} {number}", str(prefix), one.get("service", ""), one.get("region") or one.get("scope", "")


def _of_lines(text: str) -> Iterator[_Entry]:
    for number, line in enumerate(text.splitlines(), start=1):
        said = line.partition("#")[0].partition("%")[0].strip()
        word, colon, rest = said.partition(":")
        if colon and word.strip().lower() in ("route", "route6"):
            said = rest.strip()
        elif colon and rest[:1] in (" ", "\t", "") and not rest.startswith(":") and "/" not in word:
            continue  # another attribute of an RPSL object
        if said:
            yield f"line {number}", said.split()[0], "", ""


def _of_azure(document: dict[str, Any]) -> Iterator[_Entry]:
    for tag in document["values"]:
        about = tag["properties"]
        for number, prefix in enumerate(about["addressPrefixes"], start=1):
            yield f"{tag['name']} {number}", str(prefix), str(tag["name"]).partition(".")[0], about.get("region") or ""
