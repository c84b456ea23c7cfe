"""The scalars of cluster.yaml that are more than numbers: names, addresses, times, places.

Names become tag values, file names and parts of queries, so each has a narrow alphabet; the words that the store
already uses for something else are refused.
"""

import ipaddress
import re
import shlex
from collections.abc import Callable
from datetime import date, datetime, time
from fractions import Fraction
from pathlib import PurePath
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from app import units
from cluster.scalars.kinds import Bad, Choice, Text, closest
from cluster.scalars.ranges import braced, ends, expand
from cluster.vocabulary import ANY, LOCAL_PREFIXES, RESERVED_GROUPS, Address, Network, Plane
from store import schema

RESERVED = frozenset({*RESERVED_GROUPS, schema.OTHER, "unknown", "unlisted"})
"""Tag values with a meaning of their own: groups, the rest beyond the largest, planes, exporters."""

PLANE = Choice(tuple(plane for plane in Plane if plane is not Plane.UNKNOWN))

MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
"""IPv4 addresses in IPv6 clothing; they are read as IPv4 everywhere."""


def _name(label: str, pattern: str, alphabet: str) -> Text[str]:
    compiled = re.compile(pattern)
    expected = f"a {label} of {alphabet}"

    def parse(text: str) -> str:
        if text in RESERVED:
            raise Bad(f"another {label}", f"`{text}` is reserved: the store uses it")
        if not compiled.fullmatch(text):
            raise Bad
        return text

    return Text(label, expected, parse)


GROUP_ID = _name("group id", r"[a-z][a-z0-9_]{0,31}", "lower case letters, digits and _, at most 32")
NAME = _name(
    "name",
    r"(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
    "letters (at least one), digits, dots, - and _, at most 63",
)
NODE_NAME = _name(
    "node name",
    r"(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
    "letters (at least one), digits, dots, - and _, at most 63",
)
COUNTRY = _name("country", r"[A-Z]{2}", "two upper case letters, such as NL")
SERVICE_NAME = _name("service name", r"[a-z][a-z0-9_-]{0,31}", "lower case letters, digits, - and _, at most 32")
JOB_ID = _name("job id", r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}", "letters, digits, dots, :, - and _, at most 63")
DATABASE = _name("database name", r"[A-Za-z][A-Za-z0-9_-]{0,62}", "letters, digits, - and _")
UID = _name("uid", r"[A-Za-z0-9_-]{1,40}", "letters, digits, - and _, at most 40")
TOPIC = _name("topic", r"(?=.*[A-Za-z0-9])[A-Za-z0-9._-]{1,200}", "letters, digits, dots, - and _, at most 200")
CONSUMER_GROUP = _name("consumer group", r"[A-Za-z0-9._-]{1,200}", "letters, digits, dots, - and _, at most 200")
SD_ID = _name("SD-ID", r"[A-Za-z0-9._-]{1,22}@[0-9]{1,9}", "a name, @ and an enterprise number, at most 32")
INDEX = _name("index", r"[a-z0-9][a-z0-9._-]{0,199}", "lower case letters, digits, dots, - and _, at most 200")
SHARD = _name("shard", r"[A-Za-z0-9_-]{1,16}", "letters, digits, - and _, at most 16")


def _group_reference(text: str) -> str:
    if text == ANY or text in RESERVED_GROUPS or re.fullmatch(r"[a-z][a-z0-9_]{0,31}", text):
        return text
    raise Bad


GROUP_REFERENCE = Text("group or `*`", 'a group id, external, local or "*"', _group_reference)


def _line_of_text(most: int) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if not text.strip() or not text.isprintable() or len(text) > most:
            raise Bad
        return text.strip()

    return parse


TITLE = Text("title", "one line of at most 60 characters", _line_of_text(60))
NODES = Text(
    "node name, glob or range", "a node name, a glob such as gpu-* or a range such as gpu-{01..08}", _line_of_text(200)
)
LINE = Text("text", "one line of text", _line_of_text(300))


def _path(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise Bad
    return str(PurePath(text.strip()))


PATH = Text("path", "a path", _path)
FILE = Text("path", "a path", _path, place=lambda folder, path: str(folder / path))
"""A path relative to the file's folder."""
LASTING_FILE = Text("path", "a path", _path, place=lambda folder, path: str((folder / path).absolute()))
"""The same where links stay as they are: whoever updates such files often turns one from the old to the new."""


def _range_of(kind: Text[str]) -> Text[str]:
    """Return the kind of names, and of ranges of them: ours, or Slurm's."""

    def parse(text: str) -> str:
        pattern = braced(text)
        try:
            first, last, _ = ends(pattern)
        except ValueError as error:
            raise Bad(str(error)) from None
        if "[" in pattern:
            raise Bad(hint="one range a key: gpu-[01-04], and gpu-07 as another")
        for name in (first, last):
            kind.parse(name)
        return text

    return Text(f"{kind.label} or range", kind.expected, parse)


NAME_PATTERN, NODE_PATTERN = _range_of(NAME), _range_of(NODE_NAME)


def parse_address(text: str) -> Address:
    """Return the address in `text`; Bad for anything else, a scope id or an IPv4-mapped IPv6 address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise Bad(hint="without the prefix length" if "/" in text else "") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise Bad(hint="without the zone after %")
        if address.ipv4_mapped is not None:
            raise Bad(hint=f"write {address.ipv4_mapped}")
    return address


ADDRESS = Text("address", "an IPv4 or IPv6 address", parse_address)


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except Bad:
        return False
    return True


def _address_pattern(text: str) -> str:
    try:
        first, last, _ = ends(text)
    except ValueError as error:
        raise Bad(str(error)) from None
    # Between two addresses all are: only where one of them is none, the first that is none is looked for.
    are_good = _is_address(first) and (last == first or _is_address(last))
    for address in () if are_good else expand(text):
        try:
            parse_address(address)
        except Bad as bad:
            raise Bad(bad.expected, bad.hint, shown=f"{address} (of {text})" if address != text else "") from None
    return text


ADDRESS_PATTERN = Text("address or range of addresses", ADDRESS.expected, _address_pattern)


def _prefix(text: str) -> Network:
    if "/" not in text:
        try:
            alone = ipaddress.ip_network(parse_address(text))
        except Bad:
            # Flow records have addresses alone, and those behind a name change.
            is_domain = re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}", text)
            why = "flow records know no names: write the addresses behind it, docs/enrichment.md names them on boards"
            raise Bad(hint=why if is_domain else _run_hint(text)) from None
        raise Bad(hint=f"write {alone}")
    network = _network(text, of_all="what is in no group is external by itself")
    for local in LOCAL_PREFIXES:
        if network.version == local.version and network.subnet_of(local):  # type: ignore[arg-type]
            raise Bad("a prefix of routable addresses", f"{local} is in the reserved group local")
    return network


def _network(text: str, *, of_all: str) -> Network:
    """Read a prefix; `of_all` is the hint to whoever names all addresses."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise Bad(hint=_host_bits_hint(text)) from None
    if network.prefixlen == 0:
        raise Bad("a prefix longer than /0", of_all)
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(MAPPED):
        inner = ipaddress.ip_network((int(network.network_address) & 0xFFFF_FFFF, network.prefixlen - 96))
        raise Bad(hint=f"write {inner}")
    return network


def _host_bits_hint(text: str) -> str:
    try:
        return f"host bits are set: write {ipaddress.ip_network(text, strict=False)}"
    except ValueError:
        return ""


def _run_hint(text: str) -> str:
    """Return the prefixes that "10.20.0.0-10.20.255.255" or "10.20.*.*" stands for, if they are few."""
    low, _, high = text.partition("-") if "-" in text else (text.replace("*", "0"), "", text.replace("*", "255"))
    try:
        first, last = ipaddress.IPv4Address(low.strip()), ipaddress.IPv4Address(high.strip())
        found = [str(one) for one in ipaddress.summarize_address_range(first, last)]
    except ValueError:
        return ""
    return f"write {', '.join(found)}" if len(found) <= _FEW_PREFIXES else ""


_FEW_PREFIXES = 4

PREFIX = Text("prefix", "an IPv4 or IPv6 prefix such as 10.20.0.0/16", _prefix)


def _source(text: str) -> Network:
    if "/" not in text:
        return ipaddress.ip_network(parse_address(text))
    return _network(text, of_all="where none is named, everybody's datagrams are taken")


def show_source(network: Network) -> str:
    """Return a prefix, or the address that it is: as cluster.yaml and pmacct's allow files write it."""
    return str(network.network_address if network.prefixlen == network.max_prefixlen else network)


SOURCE = Text("address or prefix", "an IPv4 or IPv6 address, or a prefix such as 10.60.0.0/24", _source, show_source)


_PLACES_OF_ZONES = {
    "CST6CDT": "America/Chicago",
    "EST5EDT": "America/New_York",
    "MST7MDT": "America/Denver",
    "PST8PDT": "America/Los_Angeles",
}
"""Rules by which some name a time zone; not every machine, nor Grafana, knows them: the place stands for them."""
_ABBREVIATED = {rule[at : at + 3]: place for rule, place in _PLACES_OF_ZONES.items() for at in (0, 4)}


_NOWHERE = ("localtime", "posixrules", "Factory")
"""Zones of the system's own, another one on each machine."""


def _time_zone(text: str) -> ZoneInfo:
    try:
        # EST and MST are zones as well, but never have daylight saving, which who writes them hardly means.
        is_known = text not in _ABBREVIATED and text not in _NOWHERE
        return ZoneInfo(_PLACES_OF_ZONES.get(text, text) if is_known else "")
    except (KeyError, ValueError, OSError):
        place = _PLACES_OF_ZONES.get(text[:7]) or _ABBREVIATED.get(text.upper())
        if offset := re.fullmatch(r"(?:UTC|GMT)?([+-])0?(\d{1,2})(?::?00)?", text, re.IGNORECASE):
            # By POSIX the sign is the other way round.
            place = f"Etc/GMT{'-' if offset[1] == '+' else '+'}{offset[2]}"
        # Not MST for JST: of names without a place, one says nothing of another.
        places = [zone for zone in available_timezones() if "/" in zone]
        raise Bad(hint=f"did you mean {place}?" if place else closest(text, [*places, "UTC"])) from None


TIME_ZONE = Text("time zone", "a time zone such as Europe/Amsterdam", _time_zone, lambda zone: zone.key)


def _time_of_day(text: str) -> time:
    if not re.fullmatch(r"([01]?[0-9]|2[0-3]):[0-5][0-9]", text):
        raise Bad(hint='midnight is "00:00"' if text == "24:00" else "")
    hour, minute = text.split(":")
    return time(int(hour), int(minute))


TIME_OF_DAY = Text("time of day", 'a time of day such as "23:00"', _time_of_day, lambda moment: f"{moment:%H:%M}")


def _date(text: str) -> date:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise Bad
    return date.fromisoformat(text)


DATE = Text("date", "a date such as 2026-12-25", _date, str)


def _instant(text: str) -> datetime:
    if not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:", text):
        raise Bad
    moment = datetime.fromisoformat(text)
    if not 1971 <= moment.year <= 2199 or moment.microsecond:
        raise Bad
    return moment


INSTANT = Text(
    "time",
    "a time such as 2026-03-01 08:00 (the site's time zone) or 2026-03-01T08:00:00Z",
    _instant,
    lambda moment: moment.isoformat(sep=" "),
)


def _size(low: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if text == "0":
            text = "0 B"
        try:
            size = units.parse_size(text)
        except ValueError:
            raise Bad(hint=_size_hint(text)) from None
        if not low <= size < 2**62:
            raise Bad("a byte size above zero, such as 50 GB" if low else "")
        return size

    return parse


def _size_hint(text: str) -> str:
    if re.fullmatch(r"[0-9]+", text):
        return f"with its unit: {text} B?"
    return "b is bits; bytes are B" if re.fullmatch(r"[0-9.]+ ?[kKMGTP]i?b", text) else ""


SIZE = Text("byte size", "a byte size such as 50 GB or 50 GiB", _size(1), units.format_size)
SIZE_OR_ZERO = Text("byte size", "a byte size such as 50 GB, 50 GiB or 0", _size(0), units.format_size)


_SCALES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
"""What people write behind a number of parameters: B is a billion here, as in 70B."""


def _parameters(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(?:e\+?([0-9]{1,2})| ?([KMBT]?))", text)
    if match is None:
        raise Bad
    number = Fraction(match[1]) * (10 ** int(match[2]) if match[2] else _SCALES[match[3] or ""])
    if number.denominator != 1 or not 1 <= number < 2**62:
        raise Bad
    return int(number)


def _write_parameters(number: int) -> object:
    for scale in ("T", "B", "M", "K"):
        if number % _SCALES[scale] == 0:
            return f"{number // _SCALES[scale]}{scale}"
    return number


PARAMETERS = Text(
    "number of parameters", "a number of parameters such as 70B, 405e9 or 7000000000", _parameters, _write_parameters
)

ALL = "all"
ALL_NODES = 0
"""The number of nodes that stands for all."""


def _writers(text: str) -> int:
    if text == ALL:
        return ALL_NODES
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 0
    if number < 1:
        raise Bad
    return number


WRITERS = Text(
    "number of nodes or `all`",
    "a number of nodes, or all",
    _writers,
    lambda number: ALL if number == ALL_NODES else number,
)


def _rate(text: str) -> int:
    if short := re.fullmatch(r"([0-9.]+) ?([KMGTkmgt])(?:be?|bps|bit|ig)?", text, re.IGNORECASE):
        raise Bad(hint=f"did you mean {short[1]} {short[2].upper().replace('K', 'k')}bit/s?")
    rate = units.parse_rate(text)
    if rate < 1:
        raise Bad
    return rate


BIT_RATE = Text("bit rate", "a bit rate such as 400 Gbit/s", _rate, units.format_rate)


def seconds(low: int, high: int) -> Text[int]:
    """Return the kind of durations of whole seconds from `low` to `high` seconds."""
    limits = f"{units.format_duration(low)} to {units.format_duration(high)}"

    def parse(text: str) -> int:
        try:
            length = units.parse_duration(text)
        except ValueError:
            raise Bad(hint=f"with its unit: {text}s?" if re.fullmatch(r"[0-9]+", text) else "") from None
        if length.denominator != 1:
            raise Bad("a duration of whole seconds")
        if not low <= length <= high:
            raise Bad(f"a duration from {limits}")
        return int(length)

    return Text("duration", "a duration such as 30s, 15m, 12h or 7d", parse, units.format_duration, limits)


def fractions(low: float, high: float) -> Text[float]:
    """Return the kind of durations, to the millisecond, from `low` to `high` seconds."""
    limits = f"{units.format_duration(low)} to {units.format_duration(high)}"

    def parse(text: str) -> float:
        length = float(units.parse_duration(text))
        if not low <= length <= high:
            raise Bad(f"a duration from {limits}")
        return length

    return Text("duration", "a duration such as 2s or 500ms", parse, units.format_duration, limits)


DAY = 86_400


def _minutes(low: int, high: int) -> Text[int]:
    length = seconds(low, high)

    def parse(text: str) -> int:
        if (found := length.parse(text)) % 60:
            raise Bad("a duration of whole minutes")
        return found

    return Text(length.label, length.expected, parse, length.show, length.limits)


WHOLE_MINUTES = _minutes(60, 3600)
MINUTES_OF_SILENCE = _minutes(120, DAY)


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not text.isprintable() or " " in text:
        raise Bad(hint=_scheme_hint(text))
    if parts.username is not None or parts.password is not None:
        raise Bad("an address without user and password", "they have keys of their own", shown="a URL with credentials")
    _ = parts.port  # ValueError where it is no port
    return text.rstrip("/")


def _scheme_hint(text: str) -> str:
    if "/" in text or "@" in text or text in {"http:", "https:"}:
        return ""
    try:
        return f"with its scheme: {_url(f'http://{text}')}?"
    except (Bad, ValueError):
        return ""


URL = Text("URL", "an http:// or https:// address", _url)


def _bucket(text: str) -> str:
    if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[\w./=-]*)?", text, re.ASCII):
        raise Bad
    return text.rstrip("/")


BUCKET = Text("bucket", "s3://NAME or s3://NAME/FOLDER", _bucket)


def _listen(text: str) -> str:
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65_535:
        raise Bad
    if bare != "localhost":
        parse_address(bare)
    # URLs are made of it, too.
    return f"[{bare}]:{port}" if ":" in bare else text


def _broker(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65_535:
        raise Bad
    if host.startswith("[") and host.endswith("]"):
        ipaddress.IPv6Address(host[1:-1])
    elif not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", host):
        raise Bad
    return text


BROKER = Text("host:port", "a broker and its port such as kafka-1.example.org:9092", _broker)
RECEIVER = Text("host and port", "a host and its port such as siem.example.org:6514", _broker)
LISTEN = Text("host:port", "an address and port such as 127.0.0.1:9105", _listen)
OFF = "off"


def _command_or_off(text: str) -> tuple[str, ...]:
    if not text.isprintable() or not (words := shlex.split(text)):
        raise Bad
    return () if words == [OFF] else tuple(words)


COMMAND_OR_OFF = Text(
    "command or `off`", "a command, or off", _command_or_off, lambda words: shlex.join(words) if words else OFF
)
NAMESPACE = _name("namespace", r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "lower case letters, digits and -, at most 63")
LABEL = _name(
    "label", r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", "letters, digits, dots, - and _"
)


def _listen_or_off(text: str) -> str:
    return OFF if text == OFF else _listen(text)


LISTEN_OR_OFF = Text("host:port or `off`", f"{LISTEN.expected}, or off", _listen_or_off, off=OFF)


def _mail_address(text: str) -> str:
    if not re.fullmatch(r"[^@\s;,<>]+@[^@\s;,<>]+", text):
        raise Bad
    return text


MAIL_ADDRESS = Text("e-mail address", "an e-mail address", _mail_address)

PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}
"""IP protocols with ports, by name."""


def _protocol(text: str) -> int:
    if text in PROTOCOLS:
        return PROTOCOLS[text]
    raise Bad


PROTOCOL = Text(
    "protocol", "tcp, udp or sctp", _protocol, lambda number: next(n for n, p in PROTOCOLS.items() if p == number)
)


def _ports(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text)
    if match is None:
        raise Bad
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last <= 65_535:
        raise Bad
    return first, last


def _write_ports(run: tuple[int, int]) -> object:
    first, last = run
    return first if first == last else f"{first}-{last}"


PORTS = Text("port or range of ports", "a port from 1 to 65535, or a range such as 6800-7300", _ports, _write_ports)
