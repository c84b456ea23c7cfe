"""A name server on a port of its own, which answers what a test tells it to."""

import socketserver
import threading
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

Answers = Callable[[dns.message.Message], dns.message.Message | None]


class NameServer:
    """Answers by `records`: (name, type) -> (TTL, record texts); NXDOMAIN with a SOA for names it does not have.

    Attributes:
        asked: questions so far, by name and type.
        is_silent: answer nothing.
    """

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {}
        self.asked: Counter[tuple[str, str]] = Counter()
        self.is_silent = False
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                data, sock = self.request
                answer = outer.answer(dns.message.from_wire(data))
                if answer is not None:
                    sock.sendto(answer, self.client_address)

        self._server = socketserver.ThreadingUDPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def answer(self, question: dns.message.Message) -> bytes | None:
        (asked,) = question.question
        key = str(asked.name), dns.rdatatype.to_text(asked.rdtype)
        self.asked[key] += 1
        if self.is_silent:
            return None
        response = dns.message.make_response(question, recursion_available=True)
        if key in self.records:
            ttl, texts = self.records[key]
            response.answer.append(dns.rrset.from_text(asked.name, ttl, "IN", key[1], *texts))
        elif not any(name == key[0] for name, _ in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)
            soa = "ns.example. admin.example. 1 7200 900 1209600 120"
            response.authority.append(dns.rrset.from_text("example.", 3600, "IN", "SOA", soa))
        return response.to_wire()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
