"""A small HTTP server for few and trusted clients, which strangers cannot hold up: limits on time, bytes, connections.

The server is the standard library's. What it serves is made by a handler class of the caller's.
"""

import base64
import binascii
import hmac
import io
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from app.errors import ClusterflowError, UserError

Tell = Callable[[BaseException | None], None]

_WAIT_SECONDS = 2.0
_STOP_SECONDS = 0.1
"""A server that is asked to stop notices it within this time."""
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"
GONE = (ConnectionError, TimeoutError)
"""Errors of a client that went away, or was too slow."""


def check_token(token: str, place: str) -> None:
    """Refuse a token that is not ASCII: an HTTP header could never match it.

    Args:
        token: what requests are to bear.
        place: what names it, for people; the token itself is never shown.

    Raises:
        UserError: it holds something else than printable ASCII.
    """
    for position, sign in enumerate(token, 1):
        if not (sign.isascii() and sign.isprintable()):
            raise UserError(
                f"{place}: character {position} of the token is not printable ASCII: expected nothing else",
                "make one with `openssl rand -hex 32`",
            )


def cannot_listen(place: str, listen: str, error: Exception) -> ClusterflowError:
    """Return why the address cannot be listened on.

    Args:
        place: what names the address, for people.
        listen: the address.
        error: what `GuardedServer` raised.

    Returns:
        UserError where it will never be: the value is no address, or the port is not for us. Else a ClusterflowError,
        so that whoever starts us tries again: an address may come up later than we do, and a port become free.
    """
    message = f"{place}: {listen}: cannot listen there: {error}"
    if isinstance(error, OSError) and not isinstance(error, PermissionError):
        return ClusterflowError(message, "bring the address up or free the port, or choose another host:port")
    return UserError(message, "choose another host:port")


def bears_token(authorization: str, token: bytes) -> bool:
    """Whether an Authorization header has the token; in constant time, so that it cannot be guessed sign by sign."""
    scheme, _, given = authorization.partition(" ")
    is_bearer = hmac.compare_digest(scheme.lower().encode(errors="replace"), b"bearer")
    return hmac.compare_digest(given.strip().encode(errors="replace"), token) and is_bearer


def may_enter(authorization: str, token: bytes) -> bool:
    """Whether a header bears the token, as a bearer or as the password of basic authentication; in constant time."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() != "basic":
        return bears_token(authorization, token)
    try:
        _, _, password = base64.b64decode(rest, validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(password, token)


class GuardedServer(ThreadingHTTPServer):
    """A server in a thread of its own, whose further threads are bounded.

    Args:
        listen: ``host:port``, an IPv6 host in brackets; port 0 takes a free one.
        handler: what answers.
        place: what names the address, for people.
        most: connections at once; a further one waits for two seconds, then it is told to come back.
        tell: gets what went wrong in a handler.

    Raises:
        ClusterflowError: nobody can listen there; a UserError where nobody ever will.
    """

    daemon_threads = True

    def __init__(
        self, listen: str, handler: type["GuardedHandler"], *, place: str, most: int, tell: Tell = lambda _: None
    ) -> None:
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._slots = threading.BoundedSemaphore(most)
        self._place, self._tell = place, tell
        try:
            super().__init__((host, int(port)), handler)
        except (OSError, ValueError, OverflowError) as error:
            raise cannot_listen(place, listen, error) from error

    @property
    def port(self) -> int:
        """The port in use."""
        return int(self.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        threading.Thread(target=self.serve_forever, args=(_STOP_SECONDS,), name=self._place, daemon=True).start()

    def stop(self) -> None:
        """Stop answering and free the port."""
        self.shutdown()
        self.server_close()

    def server_bind(self) -> None:
        """Bind, without the question to DNS that HTTPServer asks."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "clusterflow", int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's own signature
        """Answer in a thread, if there is one to spare."""
        if not self._slots.acquire(timeout=_WAIT_SECONDS):
            with suppress(OSError):
                request.settimeout(_WAIT_SECONDS)
                request.sendall(_BUSY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the same
        """Answer, then make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Log what went wrong, without a traceback on stderr; ignore a client that went away."""
        del request, client_address
        error = sys.exc_info()[1]
        if not isinstance(error, GONE):
            self._tell(error)


class GuardedHandler(BaseHTTPRequestHandler):
    """A handler that reads a request within limits.

    Attributes:
        seconds: for a request to arrive, however many bytes it comes in.
        most_bytes: of a request, headers included.
    """

    seconds = 20.0
    most_bytes = 64 * 1024
    timeout = 10.0
    server_version = "clusterflow"
    sys_version = ""
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def setup(self) -> None:
        """Put the limits around the socket."""
        super().setup()
        self._limited = _Limited(self.connection, self.timeout)
        self.rfile = io.BufferedReader(self._limited)

    def handle_one_request(self) -> None:
        """Answer one request; the next one of the same connection has limits of its own."""
        self._limited.renew(self.seconds, self.most_bytes)
        super().handle_one_request()

    def answer(
        self,
        status: int,
        body: bytes,
        content_type: str = "text/plain; charset=utf-8",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Answer a request; after a refusal the connection ends, for what is left of its body is no request."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers:
            self.send_header(name, text)
        if status != HTTPStatus.OK:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Stay silent: the caller gets the answer, and a scrape every few seconds is no news."""


class _Limited(io.RawIOBase):
    """A socket's bytes, until a moment and up to a number."""

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        self._connection, self._timeout = connection, timeout
        self._ends, self._left = 0.0, 0

    def renew(self, seconds: float, most: int) -> None:
        """Restart the count."""
        self._ends, self._left = time.monotonic() + seconds, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        """Fill a buffer with what has arrived.

        Raises:
            TimeoutError: it takes too long, or is too much.
        """
        seconds = self._ends - time.monotonic()
        if seconds <= 0 or self._left <= 0:
            raise TimeoutError("the request is too slow or too long")
        self._connection.settimeout(min(seconds, self._timeout))
        view = memoryview(buffer)[: self._left]
        try:
            count = self._connection.recv_into(view)
        finally:
            self._connection.settimeout(self._timeout)
        self._left -= count
        return count
