"""Destinations behind HTTP: Splunk's HTTP Event Collector, Elasticsearch's _bulk, and webhooks."""

import base64
import hashlib
import hmac
import io
import re
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import requests
import urllib3

from cluster.model import ElasticDestination, SplunkDestination, WebhookDestination
from delivery.event import SCHEMA, Document, epoch, line
from delivery.formats.ecs import ecs
from delivery.transports.destination import AwayError, Refusal, RefusedBatchError, building
from store.influx import read_secret, seconds_until

_CONNECT_SECONDS, _ANSWER_SECONDS = 5.0, 30.0
_MOST_BYTES, _PIECE = 16 << 20, 1 << 16
"""Of an answer: the largest that is needed, of _bulk, has some hundred kilobytes."""

_MOST_EVENTS = 500
_MOST_WORDS = 300
_SHORTEST_SECRET = 4
_PASSING = frozenset({408, 425, 429})
"""Answers below 500 that may be another one later."""

_UNREADABLE = frozenset({400, 413, 422})
"""Answers about the body, not about who sends it or where to."""


class _Http:
    """Posts bodies; knows which answers pass and which do not."""

    def __init__(
        self,
        *,
        verify_tls: bool,
        ca_file: str | None,
        headers: Mapping[str, str],
        user: tuple[str, str] | None = None,
    ) -> None:
        self._session = requests.Session()
        # Nothing of the environment: a proxy or .netrc there is not part of the configuration.
        self._session.trust_env = False
        self._verify: bool | str = verify_tls and (ca_file or True)
        self._session.headers.update(headers)
        self._session.auth = user

    def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        shown: str,
        unreadable: frozenset[int] = _UNREADABLE,
    ) -> requests.Response:
        """Return an answer of 2xx, or one in `unreadable` that the caller must look at.

        Args:
            url: where to.
            body: encoded.
            headers: of this request.
            shown: how messages call the receiver; never a secret.
            unreadable: answers that are handed out.

        Raises:
            AwayError: for everything else.
        """
        try:
            answer = self._session.post(
                url,
                data=body,
                headers=dict(headers),
                timeout=(_CONNECT_SECONDS, _ANSWER_SECONDS),
                verify=self._verify,
                allow_redirects=False,
                # Read here: of requests' own reading each piece may take as long as all of it.
                stream=True,
            )
            answer.raw = io.BytesIO(_body(answer, shown))
        except requests.exceptions.SSLError as error:
            raise AwayError(
                f"{shown}: {_tls_words(error)}", "set ca_file to the certificate of its authority"
            ) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            # The error's own words may hold the URL, and that a secret.
            raise AwayError(f"{shown} does not answer ({type(error).__name__})") from None
        if 200 <= answer.status_code < 300 or answer.status_code in unreadable:
            return answer
        words = _words(answer)
        if answer.status_code >= 500 or answer.status_code in _PASSING:
            wait = seconds_until(answer.headers.get("Retry-After"))
            raise AwayError(f"{shown} answers {answer.status_code}: {words}", retry_after=wait)
        hint = "check its address, and the secret for it"
        raise AwayError(f"{shown} answers {answer.status_code}: {words}", hint)

    def close(self) -> None:
        self._session.close()


class Splunk:
    """Splunk's HTTP Event Collector, with indexer acknowledgement where the token asks for it."""

    most = _MOST_EVENTS

    def __init__(self, settings: SplunkDestination) -> None:
        self._settings = settings
        self._url = f"{settings.url}/services/collector"
        self._shown = f"Splunk at {settings.url}"
        self._channel = str(uuid.uuid4())
        self._host = socket.gethostname()
        self._http = _Http(
            verify_tls=settings.verify_tls,
            ca_file=settings.ca_file,
            headers={
                "Authorization": f"Splunk {_header(read_secret(settings.token))}",
                "X-Splunk-Request-Channel": self._channel,
                "Content-Type": "application/json",
            },
        )

    def send(self, events: Sequence[Document]) -> list[Refusal]:
        """Deliver a batch; an event that Splunk calls unreadable is refused, the others go out again."""
        left, refused = list(events), list[Refusal]()
        while left:
            with building():
                body = "".join(line(self._envelope(event)) for event in left).encode()
            answer = self._http.post(f"{self._url}/event", body, {}, shown=self._shown)
            told = _json_of(answer)
            if answer.ok:
                self._await_index(told.get("ackId"))
                break
            number = told.get("invalid-event-number")
            is_unreadable = told.get("code") in _HEC_UNREADABLE
            # It names an event for a wrong index too, which is no fault of the event's.
            if is_unreadable and isinstance(number, int) and 0 <= number < len(left):
                refused.append(Refusal(left.pop(number), _words(answer)))
            elif answer.status_code == 413 or is_unreadable:
                raise RefusedBatchError(f"{self._shown} answers {answer.status_code}: {_words(answer)}")
            else:
                hint = "check token and index"
                raise AwayError(f"{self._shown} answers {answer.status_code}: {_words(answer)}", hint)
        return refused

    def _envelope(self, event: Document) -> dict[str, Any]:
        index = {"index": self._settings.index} if self._settings.index else {}
        return {
            "time": epoch(event["time"]),
            "host": self._host,
            "source": "clusterflow",
            "sourcetype": self._settings.sourcetype,
            **index,
            "event": dict(event),
        }

    def _await_index(self, number: object) -> None:
        """Wait until indexers have what they acknowledge by number; at once where they do not."""
        if not isinstance(number, int):
            return
        ends = time.monotonic() + _ANSWER_SECONDS
        while time.monotonic() < ends:
            url = f"{self._url}/ack?channel={self._channel}"
            answer = self._http.post(url, line({"acks": [number]}).encode(), {}, shown=self._shown, unreadable=_NONE)
            acks = _json_of(answer).get("acks")
            if isinstance(acks, dict) and acks.get(str(number)) is True:
                return
            time.sleep(_ACK_SECONDS)
        raise AwayError(f"{self._shown} took a batch but does not say that it is indexed")

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


_NONE: frozenset[int] = frozenset()
_ACK_SECONDS = 0.5
_HEC_UNREADABLE = frozenset({5, 6, 12, 13, 15})
"""HEC's codes for: no data, invalid data format, event field missing, event field blank, indexed fields."""


class Elastic:
    """Elasticsearch or OpenSearch: documents are created under the event's id, so that repeats change nothing."""

    most = _MOST_EVENTS

    def __init__(self, settings: ElasticDestination) -> None:
        self._settings = settings
        self._shown = f"Elasticsearch at {settings.url}"
        headers = {"Content-Type": "application/x-ndjson"}
        if settings.api_key is not None:
            headers["Authorization"] = f"ApiKey {_header(read_secret(settings.api_key))}"
        user = None if settings.username is None else (settings.username, read_secret(settings.password))
        self._http = _Http(verify_tls=settings.verify_tls, ca_file=settings.ca_file, headers=headers, user=user)

    def send(self, events: Sequence[Document]) -> list[Refusal]:
        """Deliver a batch; of each document Elasticsearch says by itself what became of it."""
        action = {"_index": self._settings.index}
        with building():
            lines = [
                part
                for event in events
                for part in (line({"create": {**action, "_id": event["id"]}}), line(ecs(event)))
            ]
            body = ("\n".join(lines) + "\n").encode()
        answer = self._http.post(f"{self._settings.url}/_bulk", body, {}, shown=self._shown)
        if not answer.ok:
            raise RefusedBatchError(f"{self._shown} answers {answer.status_code}: {_words(answer)}")
        told = _json_of(answer)
        items = told.get("items")
        if not isinstance(items, list) or len(items) != len(events):
            raise AwayError(f"{self._shown} answers what _bulk does not say", "set url to Elasticsearch's own address")
        refused: list[Refusal] = []
        passing = ""
        for event, item in zip(events, items, strict=True):
            result = item.get("create", {})
            status = int(result.get("status", 0))
            if 200 <= status < 300 or status == _ALREADY_THERE:
                continue
            why = f"{status} {line(result.get('error', ''))}"[:_MOST_WORDS]
            if status in _UNREADABLE:
                refused.append(Refusal(event, why))
            else:
                passing = passing or why
        if passing:
            # What it took meanwhile it will call a conflict, which is as good.
            raise AwayError(f"{self._shown} does not take all documents: {passing}")
        return refused

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


_ALREADY_THERE = 409


class Webhook:
    """A URL that takes `{"schema": ..., "events": [...]}`; the body may be signed, with its time."""

    most = 100

    def __init__(self, settings: WebhookDestination) -> None:
        self._url = read_secret(settings.url).strip()
        self._key = read_secret(settings.signing_key).encode()
        headers = {"Content-Type": "application/json", "User-Agent": "clusterflow"}
        if settings.token is not None:
            headers["Authorization"] = f"Bearer {_header(read_secret(settings.token))}"
        self._shown = f"webhook {settings.name}"
        self._http = _Http(verify_tls=settings.verify_tls, ca_file=settings.ca_file, headers=headers)

    def send(self, events: Sequence[Document]) -> list[Refusal]:
        """Deliver a batch."""
        with building():
            body = line({"schema": SCHEMA, "events": [dict(event) for event in events]}).encode()
        answer = self._http.post(self._url, body, self._signed(body), shown=self._shown)
        if not answer.ok:
            raise RefusedBatchError(f"{self._shown} answers {answer.status_code}: {_words(answer)}")
        return []

    def _signed(self, body: bytes) -> dict[str, str]:
        if not self._key:
            return {}
        moment = str(int(time.time()))
        return {TIMESTAMP_HEADER: moment, SIGNATURE_HEADER: signature(self._key, moment, body)}

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


TIMESTAMP_HEADER = "X-Clusterflow-Timestamp"
SIGNATURE_HEADER = "X-Clusterflow-Signature"


def signature(key: bytes, moment: str, body: bytes) -> str:
    """Return what signs a body that was sent at an epoch second: HMAC-SHA256 over ``moment.body``."""
    return f"sha256={hmac.new(key, f'{moment}.'.encode() + body, hashlib.sha256).hexdigest()}"


def _body(answer: requests.Response, shown: str) -> bytes:
    """Return an answer's bytes; AwayError where it does not end in time, or at a size that any has."""
    until, body = time.monotonic() + _ANSWER_SECONDS, bytearray()
    while piece := answer.raw.read1(_PIECE, decode_content=True):
        body += piece
        if len(body) > _MOST_BYTES or time.monotonic() > until:
            answer.close()
            raise AwayError(f"{shown} does not end its answer: {len(body):,} bytes so far", "see what answers there")
    return bytes(body)


def _header(secret: str) -> str:
    """Return a secret as a header takes it; a line end in it would begin another header."""
    return re.sub(r"[^\x21-\x7e]", "", secret)


def _json_of(answer: requests.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _words(answer: requests.Response) -> str:
    """Return what a receiver says, without what it repeats of our secrets: these words go to a log."""
    text = answer.text
    for secret in sorted(_secrets_of(answer.request), key=len, reverse=True):
        text = text.replace(secret, "***")
    return " ".join(text.split())[:_MOST_WORDS]


def _secrets_of(request: requests.PreparedRequest) -> set[str]:
    """Return the secret parts of a request: the address behind the host, and its credentials."""
    place = urlsplit(request.url or "")
    scheme, _, credentials = str(request.headers.get("Authorization", "")).partition(" ")
    found = {request.path_url, place.path, place.query, credentials, *(value for _, value in parse_qsl(place.query))}
    if scheme == "Basic":
        found.add(base64.b64decode(credentials).decode("utf-8", "replace").partition(":")[2])
    return {secret for secret in found if len(secret) >= _SHORTEST_SECRET}


def _tls_words(error: Exception) -> str:
    verdict = re.search(r"certificate verify failed: ([^()\[\]]+)", str(error))
    return f"its certificate is not trusted: {verdict[1].strip()}" if verdict else "TLS failed"
