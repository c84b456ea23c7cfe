"""Grafana's HTTP API, and what it provisions by that only: the kiosk playlist."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import requests

from app.errors import ClusterflowError, UserError

NAME = "clusterflow"
_TIMEOUT_SECONDS = 15


class GrafanaError(ClusterflowError):
    """Grafana cannot be reached, or refused what was asked. Exit code 1."""


@dataclass(frozen=True, slots=True)
class Playlist:
    """What is now in Grafana: its uid, the address that plays it without menus, and whether anything was changed."""

    uid: str
    url: str
    changed: bool


class Grafana:
    """Grafana's HTTP API, as far as playlists and tests of contact points need it.

    Args:
        url: Grafana's address.
        token: token of a service account with the role Editor.
    """

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {token}"

    def ensure_playlist(self, uids: Sequence[str], interval: str) -> Playlist:
        """Make the playlist of these boards, or change it to them; asking twice changes nothing.

        Args:
            uids: boards in order; all must exist.
            interval: how long each board stays, such as ``1m``.

        Raises:
            UserError: the token is refused, or a board is missing.
            GrafanaError: Grafana is away or answers with an error.
        """
        for uid in uids:
            if self.request("GET", f"/api/dashboards/uid/{uid}", absent_ok=True) is None:
                raise UserError(f"Grafana at {self.url} has no board {uid}", "provision the boards first")
        wanted = {"name": NAME, "interval": interval, "items": [_item(uid) for uid in uids]}
        found = self._find()
        if found is None:
            made = self.request("POST", "/api/playlists", wanted)
            return self._result(str(made["uid"]), changed=True)
        if _same(found, wanted):
            return self._result(str(found["uid"]), changed=False)
        self.request("PUT", f"/api/playlists/{found['uid']}", wanted)
        return self._result(str(found["uid"]), changed=True)

    def _result(self, uid: str, *, changed: bool) -> Playlist:
        return Playlist(uid, f"{self.url}/playlists/play/{uid}?kiosk", changed)

    def _find(self) -> dict[str, Any] | None:
        listed = self.request("GET", "/api/playlists?limit=1000") or []
        for entry in listed:
            if entry.get("name") == NAME:
                found: dict[str, Any] = self.request("GET", f"/api/playlists/{entry['uid']}")
                return found
        return None

    def request(self, method: str, path: str, body: object = None, *, absent_ok: bool = False) -> Any:  # noqa: ANN401
        """Return the decoded answer; None where the object does not exist and that is all right."""
        try:
            response = self._session.request(method, self.url + path, json=body, timeout=_TIMEOUT_SECONDS)
        except requests.RequestException as error:
            hint = "is it running, and is `grafana.url` in cluster.yaml right?"
            raise GrafanaError(f"Grafana at {self.url} does not answer: {type(error).__name__}", hint) from error
        if response.status_code in (401, 403):
            hint = "give the token of a service account with the role Editor"
            raise UserError(f"Grafana at {self.url} refused the token ({response.status_code})", hint)
        if response.status_code == 404 and absent_ok:
            return None
        if not response.ok:
            words = " ".join(response.text.split())[:200]
            raise GrafanaError(f"Grafana at {self.url} answered {response.status_code} to {method} {path}: {words}")
        try:
            return response.json() if response.content else {}
        except requests.JSONDecodeError as error:
            raise GrafanaError(f"{self.url} does not answer like Grafana", "check `grafana.url`") from error


def _item(uid: str) -> dict[str, str]:
    return {"type": "dashboard_by_uid", "value": uid}


def _same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    items = [{"type": item.get("type"), "value": item.get("value")} for item in found.get("items", [])]
    return (items, found.get("interval")) == (wanted["items"], wanted["interval"])
