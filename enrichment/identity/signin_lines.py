"""Sign-ins from logs of lines: OpenVPN's log, Cisco ASA's syslog, FreeRADIUS' detail files. What each line means.

A reader is given lines and gives marks: who was seen where, by the text of the export. It raises ValueError, without
repeating what the line says, where a line that matters cannot be read.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from enrichment.identity.log_times import Clock


@dataclass(frozen=True, slots=True)
class Mark:
    """A user at an address, as an export writes both; `user` is empty where a sign-out does not tell whose it is."""

    address: str
    user: str
    moment: int
    ends: bool = False


class LineReader(Protocol):
    """Reads one kind of log."""

    def begin(self) -> None:
        """Forget what only the lines of one file have in common: the file is read from its beginning."""

    def read(self, line: str, clock: Clock) -> Iterator[Mark]:
        """Yield what a line says."""


_MOST_SESSIONS = 100_000
"""The newest are remembered."""


class Sessions:
    """Which addresses a session was given: the lines that end one do not say it."""

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def give(self, session: str, address: str) -> None:
        """Remember an address of a session."""
        known = self._addresses.pop(session, ())
        self._addresses[session] = known if address in known else (*known, address)[-4:]
        if len(self._addresses) > _MOST_SESSIONS:
            self._addresses.popitem(last=False)

    def end(self, session: str) -> tuple[str, ...]:
        """Return the addresses of a session, and forget it."""
        return self._addresses.pop(session, ())


LONGEST = 1 << 14
"""Characters of a line of syslog: twice what its servers pass on. A pattern may take the square of a length."""


def _refuse_long(line: str) -> None:
    if len(line) > LONGEST:
        raise ValueError(f"longer than {LONGEST:,} characters")


_OVPN_ORIGIN = re.compile(
    r"^\s*(?:(?:[^\s/]+ )?(?:[^\s:/\[\]]+\[\d+\]|[^\s:/]*(?:openvpn|ovpn)[^\s:/]*): "
    r"|[^\s/]+ [^\s:/]+ (?:\d+|-) \S+ (?:-|\[[^\]]*\]) \ufeff?)?"
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:us=\d+ )?)?"
)
"""What may stand between the time and the message: host and tag of syslog (RFC 3164, 5424), OpenVPN's own time.

The message itself is matched from its beginning: what a client says of itself stands further on in its lines, and may
look like the line of another.
"""

_OVPN_CLIENT = r"(?P<session>(?P<user>\S+)/(?P<peer>[0-9a-fA-F.:\[\]]+))"
_OVPN_GIVEN = re.compile(
    _OVPN_CLIENT + r" (?:MULTI: primary virtual IPv?6? for \S+: (?P<primary>[0-9a-fA-F.:]+)"
    r"|MULTI_sva: pool returned IPv4=(?P<pool>[0-9.]+))"
)
_OVPN_LEARNT = re.compile(r"(?:\S+ )?MULTI: Learn: (?P<address>[0-9a-fA-F.:]+) -> " + _OVPN_CLIENT)
_OVPN_ENDED = re.compile(_OVPN_CLIENT + r" SIG(?:TERM|USR1)\[[^\]]*\] received, client-instance (?:exiting|restarting)")
_OVPN_MATTERS = re.compile("MULTI: (?:primary virtual|Learn)|MULTI_sva: pool returned|client-instance")


class OpenvpnLog:
    """OpenVPN's server log, its own file or syslog: the virtual address is the client's.

    Args:
        sessions: those under way.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def begin(self) -> None:
        """A session may outlive the file in which it began."""

    def read(self, line: str, clock: Clock) -> Iterator[Mark]:
        """Yield an address given, or that of a session that ends."""
        # Most lines say nothing of addresses, and not all of them begin with a time.
        if not _OVPN_MATTERS.search(line):
            return
        _refuse_long(line)
        moment, rest = clock.head(line)
        message = _OVPN_ORIGIN.sub("", rest, count=1)
        if ended := _OVPN_ENDED.match(message):
            for address in self._sessions.end(ended["session"]):
                yield Mark(address, ended["user"], moment, ends=True)
        elif given := _OVPN_GIVEN.match(message) or _OVPN_LEARNT.match(message):
            parts = given.groupdict()
            address = parts.get("primary") or parts.get("pool") or parts.get("address") or ""
            self._sessions.give(given["session"], address)
            yield Mark(address, given["user"], moment)


_ASA_TAG = re.compile(r"%(?:ASA|FTD)-(?:\w+-)?\d-(?P<number>\d{6}): (?P<text>.*)")
_ASA_ORIGIN = re.compile(r"^\s*(?:[^\s%\[\]]+\s+)?(?:[:-]\s*)*")
"""What may stand between a time and the message: a host, a colon. A relay puts its own time and host before both."""

_ASA_GIVEN = re.compile(
    r"Group <[^>]*> User <(?P<user>[^>]*)> IP <(?P<peer>[^>]*)> IPv4 Address <(?P<four>[^>]*)> "
    r"IPv6 address <(?P<six>[^>]*)> assigned to session(?!.*assigned to session)"
)
_ASA_ENDED = re.compile(r"(?:Group = .*?, )?Username = (?P<user>.*), IP = (?P<peer>[^,\s]+), Session disconnected")
_ASA_MAPPED = re.compile(
    r"user-identity: (?P<what>Add|Delete) IP-User mapping (?P<address>\S+) - (?P<user>.+) Succeeded"
)
_ASA_FREED = re.compile(r"IPAA: .*[Ff]reeing (?:local pool|DHCP|AAA)\b.*\baddress (?P<address>[0-9a-fA-F.:]+)")


class CiscoAsa:
    """Syslog of a Cisco ASA or FTD: AnyConnect's assignments, disconnects, identity mappings, addresses set free.

    Args:
        sessions: those under way.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def begin(self) -> None:
        """A session may outlive the file in which it began."""

    def read(self, line: str, clock: Clock) -> Iterator[Mark]:
        """Yield what 722051, 113019, 746012, 746013, 737016 and their like say."""
        moment, number, text = _asa_message(line, clock)
        if number == "722051" and (given := _ASA_GIVEN.match(text)):
            for address in (given["four"], given["six"]):
                if address not in {"", "::", "0.0.0.0"}:  # noqa: S104 - an address of a log, none to bind to
                    self._sessions.give(f"{given['user']}\n{given['peer']}", address)
                    yield Mark(address, given["user"], moment)
        elif number == "113019" and (ended := _ASA_ENDED.match(text)):
            addresses = self._sessions.end(f"{ended['user']}\n{ended['peer']}")
            # Of two sessions of a user from one place it does not tell which: their addresses are set free by others.
            if len({":" in address for address in addresses}) == len(addresses):
                for address in addresses:
                    yield Mark(address, ended["user"], moment, ends=True)
        elif number in {"746012", "746013"} and (mapped := _ASA_MAPPED.match(text)):
            yield Mark(mapped["address"], mapped["user"], moment, ends=mapped["what"] == "Delete")
        elif freed := _ASA_FREED.match(text):
            yield Mark(freed["address"], "", moment, ends=True)


def _asa_message(line: str, clock: Clock) -> tuple[int, str, str]:
    """Return the time of a line, number and text of its message, which has nothing but origins before it.

    Both are empty where there is none: further on in a line of anything, the text of a client may look like a message.
    """
    # Other lines of the same syslog need no time that can be read.
    if not _ASA_TAG.search(line):
        return 0, "", ""
    _refuse_long(line)
    moment, rest = clock.head(line)
    rest = _ASA_ORIGIN.sub("", rest, count=1)
    if not rest.startswith("%"):
        try:
            _, rest = clock.head(rest)
        except ValueError:
            return moment, "", ""
        rest = _ASA_ORIGIN.sub("", rest, count=1)
    message = _ASA_TAG.match(rest)
    return (moment, message["number"], message["text"]) if message else (moment, "", "")


_ATTRIBUTE = re.compile(r"\s+(?P<name>[A-Za-z0-9-]+)\s*(?::=|\+=|=)\s*(?P<value>.*)")
_MOST_ATTRIBUTES = 500
RADIUS_ADDRESSES = ("Framed-IP-Address", "Framed-IPv6-Address")
RADIUS_STARTS = frozenset({"start", "interim-update", "alive"})


class RadiusDetail:
    """FreeRADIUS' detail file: a record a block, its attributes indented."""

    def __init__(self) -> None:
        self._time = ""
        self._attributes: dict[str, str] = {}

    def begin(self) -> None:
        """Forget the block that was under way."""
        self._time, self._attributes = "", {}

    def read(self, line: str, clock: Clock) -> Iterator[Mark]:
        """Yield what a block says, at the empty line that ends it."""
        attribute = _ATTRIBUTE.match(line)
        if attribute:
            if len(self._attributes) < _MOST_ATTRIBUTES:
                self._attributes.setdefault(attribute["name"], attribute["value"].strip().strip('"'))
            return
        time, attributes = self._time, self._attributes
        self._time, self._attributes = line.strip(), {}
        if attributes:
            yield from radius_marks(attributes, time, clock)


def radius_marks(attributes: dict[str, str], time: str, clock: Clock) -> Iterator[Mark]:
    """Yield what an accounting record says.

    Args:
        attributes: by their names.
        time: when the server wrote it, where no attribute tells.
        clock: reads times.
    """
    status = attributes.get("Acct-Status-Type", "").casefold()
    if status not in RADIUS_STARTS and status != "stop":
        return
    addresses = [attributes[name] for name in RADIUS_ADDRESSES if attributes.get(name)]
    if not addresses:
        return
    delay = attributes.get("Acct-Delay-Time", "0")
    # The client tried for so long to report it.
    late = int(delay) if delay.isdecimal() else 0
    moment = clock.moment(attributes.get("Timestamp") or attributes.get("Event-Timestamp") or time) - late
    for address in addresses:
        yield Mark(address, attributes.get("User-Name", ""), moment, ends=status == "stop")
