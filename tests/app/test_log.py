"""Log lines: time, level, event, values; as text and as JSON."""

import json

import pytest

from app.log import Log


def test_a_line_has_its_level_before_its_event(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.line("list_read", entries=3)
    log.error("messages_expired", why="two words")
    first, second = capsys.readouterr().err.splitlines()
    assert first.partition(" ")[2] == "level=info event=list_read entries=3"
    assert second.partition(" ")[2] == 'level=error event=messages_expired why="two words"'


def test_repeated_trouble_is_one_warning_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log(as_json=True)
    log.sparse("store_failed", why="away")
    log.sparse("store_failed", why="away")
    log.sparse("tick", level="info")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["event"]) for line in lines] == [("warning", "store_failed"), ("info", "tick")]
