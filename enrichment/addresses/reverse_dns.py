"""Names of addresses by their PTR records: asked by threads of its own, remembered as long as the answers hold.

Whoever owns an address writes its PTR record, and may write anything there. A name that is no host name is none; one
that leads back to the address is marked as confirmed, which says that whoever owns the name agrees, and no more.
"""

import ipaddress
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rdatatype
import dns.resolver
import dns.reversename

from cluster.model import ReverseDns
from enrichment.addresses.host_files import host_name

_MOST_REMEMBERED = 100_000
_MOST_WAITING = 10_000
_THREADS = 4
_IDLE = 60.0
"""Seconds without a question after which a thread ends."""
_SHORTEST, _LONGEST = 60.0, 86_400.0
"""Limits of how long an answer holds, seconds: others set its TTL."""
_LONGEST_NOTHING = 3_600.0
_FAILED = 300.0
"""Seconds until an unanswered question is asked again."""
_PAUSE = 30.0
_TOLERATED = 8
"""Questions without an answer, one after another, after which all of them wait for _PAUSE."""
_MOST_ANSWERS = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of an address.

    Attributes:
        name: host name; empty if it has none.
        confirmed: whether the name leads back to the address.
        until: when to ask again, by the monotonic clock.
    """

    name: str
    confirmed: bool
    until: float


class ReverseNames:
    """Asks the configured name servers only. Nothing is asked before `of` meets an address.

    Args:
        settings: whom to ask, and how often.
    """

    def __init__(self, settings: ReverseDns) -> None:
        self._settings = settings
        self._known: OrderedDict[str, Answer] = OrderedDict()
        self._asked: set[str] = set()
        self._waiting: queue.Queue[str] = queue.Queue(_MOST_WAITING)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._next = 0.0
        self._failures = 0
        self._fresh: list[str] = []
        self._closed = threading.Event()

    def of(self, addresses: Sequence[str]) -> list[Answer | None]:
        """Return what is known now; None of addresses of which nothing is known yet. They are asked for meanwhile."""
        now = time.monotonic()
        found: list[Answer | None] = []
        with self._lock:
            for address in addresses:
                answer = self._known.get(address)
                found.append(answer)
                if answer is not None:
                    self._known.move_to_end(address)
                if (answer is None or answer.until <= now) and address not in self._asked:
                    self._ask_later(address)
        return found

    def fresh(self) -> list[str]:
        """Return confirmed names that were learnt since the last call."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
        return fresh

    def close(self) -> None:
        """Stop asking. A question on its way is not waited for; known names remain available."""
        with self._lock:
            self._closed.set()
            with suppress(queue.Empty):
                while True:
                    self._waiting.get_nowait()
            for _ in self._threads:
                self._waiting.put_nowait("")

    def _ask_later(self, address: str) -> None:
        if self._closed.is_set():
            return
        try:
            self._waiting.put_nowait(address)
        except queue.Full:
            return  # It is asked for when it is met again.
        self._asked.add(address)
        if len(self._threads) < _THREADS:
            # Daemons: a question on its way holds nobody up.
            thread = threading.Thread(target=self._work, name="reverse-dns", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        resolver = _resolver(self._settings)
        while (address := self._next_address()) is not None:
            self._wait_for_turn()
            if self._closed.is_set():
                return
            try:
                answer = _look_up(resolver, address, confirm=self._settings.confirm)
            except Exception:  # noqa: BLE001 - whatever a stranger's answer does to the parser, the thread goes on
                answer = None
            self._note(address, answer)

    def _next_address(self) -> str | None:
        """Return what to ask next; None where no address came for a while, or it is closed."""
        while True:
            try:
                return self._waiting.get(timeout=_IDLE) or None
            except queue.Empty:
                with self._lock:
                    if self._waiting.empty():
                        self._threads.remove(threading.current_thread())
                        return None

    def _wait_for_turn(self) -> None:
        with self._lock:
            now = time.monotonic()
            turn = max(self._next, now)
            self._next = turn + 1 / self._settings.rate
        self._closed.wait(turn - now)

    def _note(self, address: str, answer: Answer | None) -> None:
        now = time.monotonic()
        with self._lock:
            self._asked.discard(address)
            before = self._known.pop(address, None)
            self._failures = 0 if answer else self._failures + 1
            if self._failures >= _TOLERATED:
                self._next = max(self._next, now + _PAUSE)
            if answer is None:
                # What was known stays: that nobody answers is no news about the address.
                kept = before or Answer("", confirmed=False, until=0)
                answer = Answer(kept.name, kept.confirmed, now + _FAILED)
            elif answer.confirmed and (before is None or before.name != answer.name or not before.confirmed):
                self._fresh = [*self._fresh[-_MOST_WAITING:], answer.name]
            self._known[address] = answer
            while len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)


def _resolver(settings: ReverseDns) -> dns.resolver.Resolver:
    # Neither /etc/resolv.conf nor its search list: what is asked, and who is, stands in cluster.yaml.
    resolver = dns.resolver.Resolver(configure=False)
    resolver.nameservers = [str(address) for address in settings.resolvers]
    resolver.port = settings.port
    resolver.timeout = settings.timeout
    resolver.lifetime = settings.timeout * len(settings.resolvers)
    resolver.search = []
    return resolver


def _look_up(resolver: dns.resolver.Resolver, address: str, *, confirm: bool) -> Answer | None:
    """Return what a PTR record says; None without an answer."""
    question = dns.reversename.from_address(address)
    try:
        answer = resolver.resolve(question, dns.rdatatype.PTR, raise_on_no_answer=False)
    except dns.resolver.NXDOMAIN as error:
        nothing = error.response(question)  # type: ignore[no-untyped-call]
        return Answer("", confirmed=False, until=_until(_negative_ttl(nothing), _LONGEST_NOTHING))
    except (dns.exception.DNSException, OSError):
        return None
    if answer.rrset is None:
        return Answer("", confirmed=False, until=_until(_negative_ttl(answer.response), _LONGEST_NOTHING))
    # In a fixed order: servers turn theirs, and a name is not to change each time.
    names = sorted(filter(None, (_name(record.target) for record in list(answer.rrset)[:_MOST_ANSWERS])))
    if not names:
        return Answer("", confirmed=False, until=_until(answer.rrset.ttl, _LONGEST_NOTHING))
    confirmed = confirm and _leads_back(resolver, names[0], address)
    return Answer(names[0], confirmed, _until(answer.rrset.ttl, _LONGEST))


def _name(target: dns.name.Name) -> str:
    """Return a name as text; empty where a label holds what no host name does."""
    return host_name(b".".join(label for label in target.labels if label).decode("ascii", "replace")) if target else ""


def _leads_back(resolver: dns.resolver.Resolver, name: str, address: str) -> bool:
    kind = dns.rdatatype.AAAA if ":" in address else dns.rdatatype.A
    try:
        answer = resolver.resolve(f"{name}.", kind, raise_on_no_answer=False)
    except (dns.exception.DNSException, OSError):
        return False
    wanted = ipaddress.ip_address(address)
    records = list(answer.rrset or ())[:_MOST_ANSWERS]
    return any(ipaddress.ip_address(record.address) == wanted for record in records)


def _negative_ttl(response: dns.message.Message) -> float:
    """Return how long it holds that there is nothing (RFC 2308)."""
    for rrset in response.authority:
        if rrset.rdtype == dns.rdatatype.SOA:
            return float(min(rrset.ttl, rrset[0].minimum))
    return _FAILED


def _until(ttl: float, longest: float) -> float:
    return time.monotonic() + min(max(ttl, _SHORTEST), longest)
