"""How inventory sources are reached: names resolved, APIs asked for JSON."""

import json
import re
import socket
import time
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

import requests
import urllib3

from app.errors import ClusterflowError
from app.words import one_line
from cluster.model import InventorySource, Secret
from cluster.vocabulary import Address
from store.influx import read_secret

MOST = 1 << 18
"""Objects of an answer: more than cluster.yaml may have, and an end for a server that never stops."""

Query = Mapping[str, str | int | list[str]]
"""Parameters of a question; a list gives one several values."""

_MOST_BYTES = 1 << 28
_TIMEOUTS = 5
"""A whole answer may take so many times what a server may be silent."""


def address_of(text: object) -> Address | None:
    """Return the address of a machine that a text is, without prefix length and scope; None if it is none."""
    try:
        found = ip_address(re.split("[/%]", str(text))[0].strip())
    except ValueError:
        return None
    found = (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
    # /etc/hosts has fe00::0 as ip6-localnet. Of IPv4, some clouds give machines reserved ones.
    if found.version == 6 and found.is_reserved:
        return None
    return None if found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified else found


def resolved(name: str) -> tuple[Address, ...]:
    """Return the addresses of a name, or the address that it is; nothing where it does not exist.

    Raises:
        ClusterflowError: the name servers are away: what was known before holds.
    """
    own = address_of(name)
    if own is not None:
        return (own,)
    try:
        answers = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise ClusterflowError(f"{name}: the name servers do not answer") from error
        return ()
    except UnicodeError:
        return ()
    found = (address_of(answer[4][0]) for answer in answers)
    return tuple(dict.fromkeys(one for one in found if one is not None))


def file_text(path: str) -> str:
    """Return a file that stands in place of an answer; ClusterflowError where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ClusterflowError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ClusterflowError(f"{path}: byte {error.start} is not UTF-8") from error


def token_of(one: InventorySource, secret: Secret | None) -> str:
    """Return the token that a source is asked with; ClusterflowError without it where no header can bear it."""
    token = read_secret(secret).strip()
    if not (token.isascii() and token.isprintable()):
        place = f"inventory.sources.{one.name}.token"
        raise ClusterflowError(f"{place}: expected one line of ASCII", "its file or variable holds more than a token")
    return token


def get_json(url: str, *, headers: Mapping[str, str], ca_file: str | None, timeout: int, query: Query) -> Any:  # noqa: ANN401 - somebody else's answer
    """Return what an API answers to a GET; ClusterflowError where that is no JSON."""
    try:
        with requests.Session() as session:
            # A .netrc would replace the token, a redirect could carry it elsewhere.
            session.trust_env = False
            with session.get(
                url, params=query, headers=headers, verify=ca_file or True, timeout=timeout, allow_redirects=False,
                stream=True,
            ) as answer:  # fmt: skip
                if answer.status_code != requests.codes.ok:
                    hint = "may the token list it?" if answer.status_code in (401, 403) else ""
                    reason = one_line(answer.reason or "", 60)
                    raise ClusterflowError(f"{url}: answers {answer.status_code} {reason}", hint)
                return json.loads(_body(answer, url, time.monotonic() + _TIMEOUTS * timeout))
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise ClusterflowError(f"{url}: no answer: {one_line(str(error), 160)}") from error
    except ValueError as error:
        raise ClusterflowError(f"{url}: answers something that is no JSON") from error


def _body(answer: requests.Response, url: str, until: float) -> bytes:
    """Return an answer's bytes; ClusterflowError where it does not end in time, or at a size that any has."""
    body = bytearray()
    # A piece is what has come: requests' own reading waits for all of one, however slowly it comes.
    while piece := answer.raw.read1(1 << 16, decode_content=True):
        body += piece
        if len(body) > _MOST_BYTES or time.monotonic() > until:
            raise ClusterflowError(f"{url}: its answer does not end: {len(body):,} bytes so far")
    return bytes(body)
