"""The kiosk playlist against an HTTP server that answers as Grafana 12 does: idempotent, with clear errors."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app.errors import UserError
from dashboards.cli import TOKEN_VARIABLE, playlist
from dashboards.playlist import Grafana, GrafanaError
from dashboards.provision import kiosk_uids

REPOSITORY = Path(__file__).resolve().parents[2]
TOKEN = "glsa_right"


class FakeGrafana(ThreadingHTTPServer):
    """What of Grafana's API playlists need: boards that exist, and stored playlists."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.boards = set(kiosk_uids())
        self.playlists: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.broken = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: FakeGrafana

    def _answer(self, code: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _handle(self) -> None:  # noqa: PLR0911 - an answer a case
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"message": "Invalid API key"})
        if self.server.broken:
            return self._answer(500, {"message": "database is locked"})
        parts = self.path.split("?")[0].strip("/").split("/")
        match (self.command, parts):
            case "GET", ["api", "dashboards", "uid", uid]:
                known = uid in self.server.boards
                return self._answer(200 if known else 404, {"meta": {}} if known else {"message": "not found"})
            case "GET", ["api", "playlists"]:
                short = [{"uid": uid, "name": one["name"]} for uid, one in self.server.playlists.items()]
                return self._answer(200, short)
            case "GET", ["api", "playlists", uid]:
                items = [item | {"title": item["value"]} for item in self.server.playlists[uid]["items"]]
                return self._answer(200, self.server.playlists[uid] | {"uid": uid, "items": items})
            case "POST", ["api", "playlists"]:
                uid = f"p{len(self.server.playlists)}"
            case "PUT", ["api", "playlists", uid]:
                pass
            case _:
                return self._answer(404, {})
        self.server.playlists[uid] = body or {}
        self.server.writes.append(self.command)
        return self._answer(200, {"uid": uid})

    do_GET = do_POST = do_PUT = _handle  # noqa: N815 - names that the server looks for

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    server = FakeGrafana()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_it_is_made_once_and_then_left_alone(grafana: FakeGrafana) -> None:
    client = Grafana(grafana.url + "/", TOKEN)
    first = client.ensure_playlist(kiosk_uids(), "1m")
    assert (first.changed, first.url) == (True, f"{grafana.url}/playlists/play/p0?kiosk")
    again = client.ensure_playlist(kiosk_uids(), "1m")
    assert (again.changed, again.url) == (False, first.url)
    assert grafana.writes == ["POST"]
    stored = grafana.playlists["p0"]
    assert stored["interval"] == "1m"
    assert stored["items"] == [{"type": "dashboard_by_uid", "value": uid} for uid in kiosk_uids()]


def test_a_change_is_written_into_the_same_playlist(grafana: FakeGrafana) -> None:
    client = Grafana(grafana.url, TOKEN)
    client.ensure_playlist(kiosk_uids(), "1m")
    changed = client.ensure_playlist(kiosk_uids()[:2], "30s")
    assert changed.changed
    assert grafana.writes == ["POST", "PUT"]
    assert len(grafana.playlists) == 1
    assert len(grafana.playlists["p0"]["items"]) == 2


def test_playlists_of_others_are_not_touched(grafana: FakeGrafana) -> None:
    grafana.playlists["p9"] = {"name": "lobby", "interval": "5m", "items": []}
    Grafana(grafana.url, TOKEN).ensure_playlist(kiosk_uids(), "1m")
    assert grafana.playlists["p9"] == {"name": "lobby", "interval": "5m", "items": []}


def test_a_refused_token_says_which_one_is_needed(grafana: FakeGrafana) -> None:
    with pytest.raises(UserError) as caught:
        Grafana(grafana.url, "wrong").ensure_playlist(kiosk_uids(), "1m")
    assert "refused the token (401)" in caught.value.message
    assert "role Editor" in caught.value.hint


def test_boards_come_first(grafana: FakeGrafana) -> None:
    grafana.boards.remove("cf-egress")
    with pytest.raises(UserError, match="has no board cf-egress"):
        Grafana(grafana.url, TOKEN).ensure_playlist(kiosk_uids(), "1m")
    assert grafana.playlists == {}


def test_grafanas_own_trouble_is_quoted(grafana: FakeGrafana) -> None:
    grafana.broken = True
    with pytest.raises(GrafanaError, match=r"answered 500 to GET .*database is locked"):
        Grafana(grafana.url, TOKEN).ensure_playlist(kiosk_uids(), "1m")


def test_nobody_there() -> None:
    with pytest.raises(GrafanaError, match="does not answer: ConnectionError") as caught:
        Grafana("http://127.0.0.1:9", TOKEN).ensure_playlist(kiosk_uids(), "1m")
    assert "is it running" in caught.value.hint


def test_the_command_takes_the_token_from_a_file(grafana: FakeGrafana, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    arguments = ["-c", str(REPOSITORY / "cluster.yaml"), "--token-file", str(token), "--grafana-url", grafana.url]
    result = CliRunner().invoke(playlist, arguments)
    assert result.output == f"playlist written: {grafana.url}/playlists/play/p0?kiosk\n"
    result = CliRunner().invoke(playlist, arguments)
    assert result.output == f"playlist unchanged: {grafana.url}/playlists/play/p0?kiosk\n"


def test_the_command_without_a_token_says_where_to_put_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    result = CliRunner().invoke(playlist, ["-c", str(REPOSITORY / "cluster.yaml")])
    assert isinstance(result.exception, UserError)
    assert result.exception.hint is not None
    assert TOKEN_VARIABLE in result.exception.hint
