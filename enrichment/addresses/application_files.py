"""Files that say what outside addresses are: a list of our own, and what cloud providers publish of their ranges."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from app.errors import UserError
from app.words import one_line
from cluster.model import ApplicationFile, ApplicationFormat
from enrichment.addresses.host_files import host_name
from enrichment.addresses.prefixes import NOT_FOUND, PrefixTable, address_keys, as_keys, prefix_key
from enrichment.watched import Loaded

_MOST_BYTES = 128 << 20
_MOST_ENTRIES = 2_000_000
_EVERYTHING = {"AMAZON", "AzureCloud", ""}
"""Services under which a provider lists all that he has, beside more exact ones."""


class _Loader(yaml.SafeLoader):
    """Knows no ``<<``: mappings merged into one another double with each."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Leave a mapping as it stands there."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A prefix or a host and what it is.

    Attributes:
        place: in the file, for people.
        text: the prefix or the host.
        application: what it is.
        is_host: which of the two it is.
        is_vague: of two equal prefixes, the one that is not counts.
    """

    place: str
    text: str
    application: str
    is_host: bool = False
    is_vague: bool = False


class ApplicationTable:
    """What a file says: hosts with all below them, and prefixes, the longest of which counts."""

    def __init__(self, hosts: dict[str, str], prefixes: list[tuple[bytes, int, str]]) -> None:
        self._hosts = hosts
        self._names = [name for _, _, name in prefixes]
        bits = np.array([length for _, length, _ in prefixes], np.uint8)
        self._prefixes = PrefixTable(as_keys([key for key, _, _ in prefixes]), bits) if prefixes else None

    def by_name(self, name: str) -> str:
        """Return what a host is; empty if neither it nor a domain above it is listed."""
        while name:
            if name in self._hosts:
                return self._hosts[name]
            name = name.partition(".")[2]
        return ""

    def by_address(self, addresses: list[str]) -> list[str]:
        """Return what each address is; empty where no prefix holds it."""
        if self._prefixes is None or not addresses:
            return [""] * len(addresses)
        keys, is_address = address_keys(addresses)
        found = np.where(is_address, self._prefixes.longest(keys), NOT_FOUND)
        return ["" if position == NOT_FOUND else self._names[position] for position in found.tolist()]


def load_applications(file: ApplicationFile, path: Path) -> Loaded[ApplicationTable]:
    """Return what a file says.

    Raises:
        ClusterflowError, OSError, ValueError: it is not such a file, or lists nothing.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise UserError(f"{path}: larger than {_MOST_BYTES >> 20} MiB", "no provider publishes as much")
    text = path.read_text(encoding="utf-8-sig")
    origin, dated = "", None
    if file.format is ApplicationFormat.PREFIXES:
        entries = _of_lines(text, file.application)
    else:
        document = _parsed(text, file.format, path)
        if not isinstance(document, dict):
            raise UserError(f"{path}: expected a mapping, as docs/enrichment.md shows it")
        origin, dated = _origin(document, file)
        entries = _READERS[file.format](document, file.application)
    try:
        return _gathered(entries, path, origin, dated)
    except (KeyError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"{path}: not of the format {file.format}: {what[:120]}") from None


def _parsed(text: str, form: ApplicationFormat, path: Path) -> object:
    try:
        if form is ApplicationFormat.LIST:
            return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader that knows less
        return json.loads(text)
    except yaml.YAMLError as error:
        raise UserError(f"{path}: {one_line(' '.join(str(error).split()))}") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply") from None


def _gathered(entries: Iterable[Entry], path: Path, origin: str, dated: float | None) -> Loaded[ApplicationTable]:
    hosts: dict[str, str] = {}
    prefixes: list[tuple[bytes, int, str, bool]] = []
    skipped, note = 0, ""
    for count, entry in enumerate(entries):
        if count == _MOST_ENTRIES:
            raise UserError(f"{path}: more than {_MOST_ENTRIES:,} entries")
        try:
            if entry.is_host:
                hosts.setdefault(_host(entry.text), entry.application)
            else:
                prefixes.append((*_prefix(entry.text), entry.application, entry.is_vague))
        except ValueError as error:
            skipped += 1
            note = note or f"{path}: {entry.place}: {entry.text[:60]!r}: {error}"
    if not hosts and not prefixes:
        raise UserError(note or f"{path}: lists nothing")
    # Of equal prefixes the first counts.
    prefixes.sort(key=lambda one: one[3])
    table = ApplicationTable(hosts, [(key, bits, name) for key, bits, name, _ in prefixes])
    return Loaded(table, len(hosts) + len(prefixes), dated, origin, skipped, note)


def _host(text: str) -> str:
    if not (host := host_name(text)):
        raise ValueError("expected a host name")
    return host


def _prefix(text: str) -> tuple[bytes, int]:
    key, bits = prefix_key(text)
    if text.endswith("/0"):
        raise ValueError("it holds every address")
    return key, bits


def _origin(document: dict[str, Any], file: ApplicationFile) -> tuple[str, float | None]:
    """Return what a document says of where it is from, and when it was made, epoch seconds; None if it does not."""
    if file.format is ApplicationFormat.LIST:
        given = document.get("dated")
        moment = datetime(given.year, given.month, given.day, tzinfo=UTC) if isinstance(given, date) else None
        source = document.get("source")
        return source[:200] if isinstance(source, str) else "", moment.timestamp() if moment else None
    told = document.get("createDate") or document.get("creationTime")
    version = document.get("changeNumber") or document.get("syncToken") or ""
    for form in ("%Y-%m-%d-%H-%M-%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S"):
        try:
            made = datetime.strptime(str(told), form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
        return f"{file.application} {version}".strip(), made
    return f"{file.application} {version}".strip(), None


# -- formats -------------------------------------------------------------------------------------------


def _of_lines(text: str, application: str) -> Iterator[Entry]:
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words:
            yield Entry(f"line {number}", words[0], application)


def _of_list(document: dict[str, Any], _: str) -> Iterator[Entry]:
    for number, group in enumerate(document["applications"], start=1):
        if not isinstance(group["application"], str):
            raise TypeError(f"entry {number}: expected a text as application")
        application = " ".join(group["application"].split())
        for is_host, key in ((True, "hosts"), (False, "prefixes")):
            for text in group.get(key) or ():
                # Never spelt out: by aliases, a list of a few lines holds itself a million times.
                shown = text if isinstance(text, str) else f"<{type(text).__name__}>"
                yield Entry(f"{key} of entry {number}", shown, application, is_host=is_host)


def _of_aws(document: dict[str, Any], application: str) -> Iterator[Entry]:
    for key, name in (("prefixes", "ip_prefix"), ("ipv6_prefixes", "ipv6_prefix")):
        for number, one in enumerate(document[key], start=1):
            yield _of_service(f"{key} {number}", one[name], application, one.get("service", ""))


def _of_google(document: dict[str, Any], application: str) -> Iterator[Entry]:
    for number, one in enumerate(document["prefixes"], start=1):
        yield Entry(f"prefixes {number}", str(one.get("ipv4Prefix") or one["ipv6Prefix"]), application)


def _of_azure(document: dict[str, Any], application: str) -> Iterator[Entry]:
    for tag in document["values"]:
        properties = tag["properties"]
        service = str(properties.get("systemService") or "").removeprefix("Azure")
        for number, prefix in enumerate(properties["addressPrefixes"], start=1):
            yield _of_service(f"{tag.get('name')} {number}", prefix, application, service)


def _of_fastly(document: dict[str, Any], application: str) -> Iterator[Entry]:
    for key in ("addresses", "ipv6_addresses"):
        for number, prefix in enumerate(document.get(key) or (), start=1):
            yield Entry(f"{key} {number}", str(prefix), application)


def _of_service(place: str, prefix: object, application: str, service: str) -> Entry:
    is_vague = service in _EVERYTHING
    return Entry(place, str(prefix), application if is_vague else f"{application} {service}", is_vague=is_vague)


_READERS = {
    ApplicationFormat.LIST: _of_list,
    ApplicationFormat.AWS: _of_aws,
    ApplicationFormat.GOOGLE: _of_google,
    ApplicationFormat.AZURE: _of_azure,
    ApplicationFormat.FASTLY: _of_fastly,
}
