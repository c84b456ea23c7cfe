"""Syslog over UDP (RFC 5426), TCP with octet counting (RFC 6587) and TLS (RFC 5425).

Syslog has no receipts. Over TCP and TLS each batch has a connection of its own that we close first: the receiver's own
close says that it read to the end, a reset that it did not, and then the batch goes out again. UDP tells nothing.
"""

import fcntl
import socket
import ssl
import struct
import termios
import time
from collections.abc import Sequence

from app.errors import UserError
from cluster.model import SyslogDestination, SyslogTransport
from delivery.event import Document
from delivery.formats.rfc5424 import message, own_name
from delivery.transports.destination import AwayError, Refusal, building

_CONNECT_SECONDS = 5.0
_SEND_SECONDS = 20.0
_CLOSE_SECONDS = 10.0
"""How long a receiver may take to read what it was sent, once we have closed."""

_SILENT_SECONDS = 0.2
"""How long one may that has not closed before."""

_ICMP_SECONDS = 0.02
"""How long a machine nearby may take to answer that nothing listens."""

_MOST_EVENTS = 500
_MOST_DATAGRAMS = 50


class Syslog:
    """One syslog receiver.

    Raises:
        UserError: a file with certificates cannot be used.
    """

    def __init__(self, settings: SyslogDestination) -> None:
        self._settings = settings
        host, _, port = settings.address.rpartition(":")
        self._place = host.strip("[]"), int(port)
        self._shown = f"syslog at {settings.address}"
        self._host = own_name()
        self._context = _context(settings) if settings.transport is SyslogTransport.TLS else None
        # Datagrams go out before anybody can refuse them: few at once, so that few are lost.
        self.most = _MOST_DATAGRAMS if settings.transport is SyslogTransport.UDP else _MOST_EVENTS
        self._ceiling = self.most
        self._closes = True

    def send(self, events: Sequence[Document]) -> list[Refusal]:
        """Deliver a batch."""
        with building():
            messages = [message(event, self._settings, self._host) for event in events]
        try:
            if self._settings.transport is SyslogTransport.UDP:
                self._send_datagrams(messages)
            else:
                self._send_stream(b"".join(b"%d %b" % (len(one), one) for one in messages), len(messages))
        except ssl.SSLCertVerificationError as error:
            why = f"its certificate is not trusted: {error.verify_message}"
            raise AwayError(f"{self._shown}: {why}", "set ca_file to the certificate of its authority") from error
        except UnicodeError as error:
            raise AwayError(f"{self._shown}: no name of a host", "check its address") from error
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            raise AwayError(f"{self._shown}: {why}") from error
        return []

    def _send_datagrams(self, messages: Sequence[bytes]) -> None:
        family, kind, protocol, _, address = socket.getaddrinfo(*self._place, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as out:
            out.connect(address)
            for one in messages:
                out.send(one)
            time.sleep(_ICMP_SECONDS)
            if code := out.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, "nothing listens there")

    def _send_stream(self, data: bytes, count: int) -> None:
        with socket.create_connection(self._place, _CONNECT_SECONDS) as plain:
            plain.settimeout(_SEND_SECONDS)
            if self._context is None:
                plain.sendall(data)
                self._finish(plain, count)
                return
            with self._context.wrap_socket(plain, server_hostname=self._place[0]) as out:
                out.sendall(data)
                self._finish(out, count)

    def _finish(self, out: socket.socket, count: int) -> None:
        """Say that nothing more comes, and learn whether the receiver has all of it; OSError if it has not."""
        try:
            _close(out, _CLOSE_SECONDS if self._closes else _SILENT_SECONDS)
        except TimeoutError:
            if self._closes and count > 1:
                self._ceiling, self.most = count // 2, 1
                raise AwayError(f"{self._shown}: has not closed in time: is it slow? It gets fewer at once") from None
            _await_acknowledgement(out)
            self._closes = False
            self.most = self._ceiling = _MOST_EVENTS
        else:
            self._closes = True
            self._ceiling = min(self._ceiling + 1, _MOST_EVENTS)
            self.most = min(2 * self.most, self._ceiling)

    def close(self) -> None:
        """Nothing is kept open."""


def _close(connection: socket.socket, seconds: float) -> None:
    """Say that nothing more comes, and wait for the receiver to have read all.

    Raises:
        TimeoutError: it has not closed its end within so many seconds.
        OSError: it has not read all.
    """
    connection.settimeout(seconds)
    if isinstance(connection, ssl.SSLSocket):
        # Our end first, then the receiver's, which need not say goodbye in TLS too.
        try:
            connection = connection.unwrap()
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return
        connection.settimeout(seconds)
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(4096):
        pass


def _await_acknowledgement(connection: socket.socket) -> None:
    """Wait until the receiver's machine has acknowledged every byte; TimeoutError if it does not."""
    ends = time.monotonic() + _CLOSE_SECONDS
    while struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0]:
        if time.monotonic() > ends:
            raise TimeoutError("does not acknowledge what it is sent")
        time.sleep(_ICMP_SECONDS)


def _context(settings: SyslogDestination) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if settings.ca_file:
            # Only that authority: not those of the system beside it.
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=settings.ca_file)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not settings.verify_tls:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if settings.certificate_file:
            context.load_cert_chain(settings.certificate_file, settings.key_file)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(one for one in (settings.ca_file, settings.certificate_file, settings.key_file) if one)
        raise UserError(
            f"delivery.destinations.{settings.name}: {files}: {error.strerror or error}",
            "expected certificates and a key in PEM that this user can read",
        ) from error
    return context
