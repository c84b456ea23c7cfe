"""The demo's receiver of notifications: what tells of firing alerts is shown as a person would get it."""

import io

import requests
from rich.console import Console

from simulate.demo import screen
from simulate.demo.demo_grafana import Inbox


def test_a_notification_is_shown_as_it_came() -> None:
    with Inbox() as inbox:
        for status, title in (("resolved", "over"), ("firing", "RED bulk [exfil]"), ("firing", "another")):
            body = {"status": status, "title": title, "message": "model-store-1 sent 65GB\nrunbook: …", "alerts": []}
            assert requests.post(inbox.url, json=body, timeout=5).ok
        assert [one.title for one in inbox.received] == ["RED bulk [exfil]", "another"]
    text = io.StringIO()
    Console(file=text, width=80).print(screen.message(inbox.received[0]))
    assert "RED bulk [exfil]" in text.getvalue()
    assert "model-store-1 sent 65GB" in text.getvalue()
