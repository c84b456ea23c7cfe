"""`clusterflow notify`, as a user runs it; with a real Grafana (GRAFANA_HOME) also what it sends."""

import json
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import live_grafana
import pytest
from click.testing import CliRunner, Result

from cluster.load import load_cluster
from cluster.model import NotificationTarget, Secret
from clusterflow import main
from operations.build import write
from operations.generated import artefacts

CASES = Path(__file__).parent / "cluster.yaml"


def _notify(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["notify", "--config", str(CASES), *arguments], env=environment)


@pytest.mark.parametrize(
    ("form", "begins"),
    [
        (
            "mail",
            "Subject: CRITICAL: Exfiltration: more leaves the cluster than may: model-store-1 and others -> 203.0.113",
        ),
        ("slack", "▌ CRITICAL: Exfiltration: more leaves"),
        ("pagerduty", "action       trigger\nsummary      CRITICAL: Exfiltration"),
    ],
)
def test_a_preview_begins_with_what_happened(form: str, begins: str) -> None:
    result = _notify("--preview", form)
    assert result.exit_code == 0
    assert result.output.startswith(begins)


def test_a_preview_names_machines_of_this_cluster_alone(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: x\ngroups: {chat: {role: inference}}\n")
    result = CliRunner().invoke(main, ["notify", "--config", str(path), "--preview", "mail"])
    assert "Largest when it began: chat-1 -> 203.0.113.9 48 GB" in result.output


def test_a_preview_of_a_webhook_is_json() -> None:
    body = json.loads(_notify("--preview", "webhook", "--rule", "node_dropout", "--resolved").output)
    assert (body["status"], body["alerts"][0]["labels"]["rule"]) == ("resolved", "node_dropout")


def test_a_mail_as_a_page(tmp_path: Path) -> None:
    page = tmp_path / "mail.html"
    assert _notify("--preview", "mail", "--html", str(page)).exit_code == 0
    assert "<h1" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "expected either --preview or --test (--preview takes mail, slack, pagerduty, webhook)"),
        (("--preview", "mail", "--test", "noc"), "expected either --preview or --test"),
        (("--preview", "mail", "--rule", "exfil"), "--rule exfil: the cluster has no such rule"),
        (("--preview", "slack", "--html", "x"), "--html: only mail has a form in HTML"),
        (("--preview", "mail", "--html", "/no/such/folder/x"), "/no/such/folder/x: No such file or directory"),
        (("--test", "noc"), "no Grafana token"),
        (("--test", "noc", "--resolved"), "--resolved: Grafana sends tests that fire only"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], line: str) -> None:
    result = _notify(*arguments, CLUSTERFLOW_GRAFANA_TOKEN="")
    assert result.exit_code == 2
    assert line in result.output
    assert "Traceback" not in result.output


class _Grafana(BaseHTTPRequestHandler):
    """Answers as Grafana 12 does where its host does not know Slack's name."""

    def _answer(self, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        self._answer([{"uid": "u", "name": "chat", "type": "slack", "settings": {"url": "[REDACTED]"}}])

    def do_POST(self) -> None:
        why = (
            'failed to send slack message: failed to send request: Post "https://slack.example.org:444/services/T0/B0/'
            'Zq7secret": dial tcp: lookup slack.example.org: no such host'
        )
        failed = {"name": "chat", "uid": "u", "status": "failed", "error": why}
        self._answer({"receivers": [{"name": "chat", "grafana_managed_receiver_configs": [failed]}]})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def test_an_address_that_is_a_secret_is_not_in_what_grafana_could_not_do() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Grafana) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        done = _notify("--test", "chat", "--grafana-url", url, CLUSTERFLOW_GRAFANA_TOKEN="x")
        server.shutdown()
    assert done.exit_code == 1
    assert "Grafana could not send to chat: " in done.output
    assert '"https://slack.example.org:444/…": dial tcp: lookup slack.example.org: no such host' in done.output
    assert "services" not in done.output


@live_grafana.needs_grafana
@pytest.mark.timeout(600)
def test_grafana_sends_a_test_as_a_real_alert(tmp_path: Path) -> None:
    """To a contact point with a secret that only Grafana keeps, and told when there is no such point."""
    title = "CRITICAL: Exfiltration: more leaves the cluster than may: model-store-1 -> 203.0.113.9, 61.4GB, since "

    def ours(body: dict[str, Any]) -> bool:
        return bool(body.get("title", "").startswith(title))

    with live_grafana.webhook() as inbox:
        targets = (
            NotificationTarget("noc", "webhook", secrets=(("url", Secret(env="TEST_WEBHOOK")),)),
            NotificationTarget("chat", "slack", secrets=(("url", Secret(env="TEST_WEBHOOK")),)),
        )
        provisioned = tmp_path / "grafana"
        write(artefacts(replace(load_cluster(CASES), notify=targets), str(provisioned)), tmp_path)
        with live_grafana.running(tmp_path, provisioned, TEST_WEBHOOK=inbox.url) as grafana:
            account = grafana.post("/api/serviceaccounts", {"name": "test", "role": "Editor"})
            token = grafana.post(f"/api/serviceaccounts/{account['id']}/tokens", {"name": "test"})["key"]

            def sent(contact: str) -> Result:
                return _notify("--test", contact, "--grafana-url", grafana.url, CLUSTERFLOW_GRAFANA_TOKEN=token)

            # For a while after its start Grafana may send with its own template.
            deadline = time.monotonic() + 120
            while not any(ours(body) for body in inbox.bodies) and time.monotonic() < deadline:
                sent("noc")
            assert sent("noc").output == "sent to noc: an example of exfiltration\n"
            assert sent("chat").exit_code == 0
            wrong = sent("nco")
    assert (wrong.exit_code, wrong.output) == (2, "Grafana has no contact point 'nco' (did you mean noc?)\n")
    # Without a store, ingest_deadman is told too.
    posted = next(body for body in inbox.bodies if ours(body))
    every = [body for body in inbox.bodies if "attachments" in body]
    (slack,) = (body for body in every if body["attachments"][0]["title"].startswith(title))
    assert "\nPanel: http://127.0.0.1:3000/d/cf-egress?from=" in posted["message"]
    assert "|Panel> · <" in slack["attachments"][0]["text"]
