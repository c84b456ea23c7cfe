"""The demo's Grafana: provisioned as in production, with a receiver of its notifications beside it, and no Internet."""

import json
import os
import shutil
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import requests

from app.errors import ClusterflowError
from dashboards.registry import BOARDS, HOME
from simulate.demo.demo_lists import INBOX_VARIABLE
from simulate.demo.stack import Part, command

_READY_SECONDS = 90.0
_BUILD_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Notification:
    """What Grafana sent, as a person reads it."""

    title: str
    text: str


class Inbox:
    """Receives notifications on the loopback interface. Use it as a context manager.

    Attributes:
        received: those that tell of alerts that fire, in the order in which they came.
        url: where it listens.
    """

    def __init__(self) -> None:
        received: list[Notification] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if body["status"] == "firing":
                    received.append(Notification(body["title"], body["message"]))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing: the terminal shows the notifications themselves."""

        self.received = received
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="inbox", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def find_grafana() -> Path | None:
    """Return the home of a Grafana: GRAFANA_HOME, or where the one on the PATH lives."""
    named = os.environ.get("GRAFANA_HOME")
    if named:
        return Path(named)
    for name in ("grafana-server", "grafana"):
        found = shutil.which(name)
        if found:
            home = Path("/usr/share/grafana")
            return home if home.is_dir() else Path(found).resolve().parent.parent
    return None


def wall(url: str) -> str:
    """Return the address of the wall as it hangs in a control room."""
    return f"{url}/d/{BOARDS[HOME].uid}?kiosk"


def start_grafana(home: Path, folder: Path, config: Path, url: str, inbox_url: str) -> Part:
    """Start a Grafana with everything provisioned; it answers when this returns.

    Args:
        home: of the Grafana.
        folder: of the run.
        config: its cluster.yaml.
        url: where it is to listen, on the loopback interface.
        inbox_url: where its notifications go.

    Raises:
        ClusterflowError: it does not start.
    """
    built = folder / "provisioning"
    provisioned = built / "grafana"
    arguments = ("--out", str(built), "--grafana-folder", str(provisioned))
    build = Part("build", command("build", config, *arguments), folder / "log" / "build.log")
    build.start()
    build.wait_until(lambda: build.exit_code == 0, _BUILD_SECONDS)
    data = folder / "grafana"
    # Everything else is in the settings that `clusterflow build` makes.
    environment = os.environ | {
        "GF_PATHS_PROVISIONING": str(provisioned),
        "GF_PATHS_DATA": str(data),
        "GF_PATHS_LOGS": str(data / "log"),
        "GF_PATHS_PLUGINS": str(data / "plugins"),
        # Contact points of a first start are taken up at the next look, a minute later by default: alerts are sooner.
        "GF_UNIFIED_ALERTING_ALERTMANAGER_CONFIG_POLL_INTERVAL": "5s",
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(urlsplit(url).port),
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
        INBOX_VARIABLE: inbox_url,
    }
    (data / "plugins").mkdir(parents=True)
    started = [str(_binary(home)), "server", "--homepath", str(home)]
    started += ["--config", str(provisioned / "clusterflow.ini")]
    server = Part("grafana", started, folder / "log" / "grafana.log")
    server.start(environment)

    def answers() -> bool:
        try:
            return requests.get(f"{url}/api/health", timeout=1).ok
        except requests.RequestException:
            return False

    try:
        server.wait_until(answers, _READY_SECONDS)
    except ClusterflowError:
        server.stop()
        raise
    return server


def _binary(home: Path) -> Path:
    found = (home / "bin" / "grafana", Path(shutil.which("grafana") or home / "bin" / "grafana"))
    return next((path for path in found if path.is_file()), found[0])
