"""nfacctd's file of templates tells which exporters count flows themselves."""

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock, PropertyMock

import pytest

from ingest.collect import template_file
from ingest.collect.template_file import TemplateFile
from store.schema import Unread

OCTETS, PACKETS, FLOWS = 1, 2, 3


def template(agent: str, *elements: int, kind: int = 0, number: int = 256) -> str:
    """Return a line as nfacctd 1.7.7 writes it."""
    fields: list[dict[str, Any]] = [
        {"type": 0, "otpl": {"off": 8 * i, "len": 8, "tpl_len": 8, "tpl_index": element}}
        for i, element in enumerate(elements)
    ]
    fields.append({"type": 1, "utpl": {"pen": 9, "type": 3, "off": 0, "len": 4, "tpl_len": 4, "repeat_id": 0}})
    head = {"agent": agent, "source_id": 1, "template_id": number, "template_type": kind, "num": len(fields)}
    return json.dumps({**head, "len": 80, "vlen": 0, "list": fields})


def write(folder: Path, *lines: str) -> None:
    (folder / template_file.NAME).write_text("".join(f"{line}\n" for line in lines))


def test_exporters_without_the_element_are_known(tmp_path: Path) -> None:
    write(
        tmp_path,
        template("127.0.0.11", OCTETS, PACKETS),
        template("127.0.0.12", OCTETS, FLOWS),
        template("2001:db8::1", OCTETS),
    )
    templates = TemplateFile(tmp_path)
    asked = ("127.0.0.11", "127.0.0.12", "2001:db8::1", "127.0.0.13", "")
    assert [templates.lacks_flow_count(exporter) for exporter in asked] == [True, False, True, False, False]


def test_one_template_of_several_with_the_element_is_enough(tmp_path: Path) -> None:
    write(tmp_path, *(template("127.0.0.11", *elements) for elements in ((OCTETS,), (FLOWS,), (PACKETS,))))
    assert not TemplateFile(tmp_path).lacks_flow_count("127.0.0.11")


def test_templates_of_options_say_nothing(tmp_path: Path) -> None:
    write(tmp_path, template("127.0.0.11", OCTETS, kind=1), template("127.0.0.12", FLOWS, kind=1))
    assert not TemplateFile(tmp_path).lacks_flow_count("127.0.0.11")
    assert not TemplateFile(tmp_path).lacks_flow_count("127.0.0.12")


def test_a_file_that_changes_is_read_again_and_an_exporter_that_counted_stays_believed(tmp_path: Path) -> None:
    templates = TemplateFile(tmp_path)
    assert not templates.lacks_flow_count("127.0.0.11"), "no file yet"
    write(tmp_path, template("127.0.0.11", OCTETS))
    assert templates.lacks_flow_count("127.0.0.11")
    write(tmp_path, template("127.0.0.11", OCTETS, FLOWS))
    assert not templates.lacks_flow_count("127.0.0.11")
    write(tmp_path, template("127.0.0.11", OCTETS))
    assert not templates.lacks_flow_count("127.0.0.11"), "what is read now may have come under the template before"
    (tmp_path / template_file.NAME).unlink()
    assert not templates.lacks_flow_count("127.0.0.11")


def test_what_cannot_be_taken_as_a_whole_changes_nothing_and_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, template("127.0.0.11", OCTETS))
    templates = TemplateFile(tmp_path)
    before = templates.unread()
    write(tmp_path, template("127.0.0.12", OCTETS), template("127.0.0.13", OCTETS))
    with monkeypatch.context() as meanwhile:
        taken = Mock(exporter="127.0.0.12", unread=Unread.TAGGED, samples=True, is_data=True, counts=True)
        type(taken).has_octets = PropertyMock(side_effect=MemoryError)
        meanwhile.setattr(template_file, "_of_line", lambda _: taken)
        with pytest.raises(MemoryError):
            templates.unread()
        assert (templates._unread, templates._counts) == (before, {"127.0.0.11": False})
        assert not templates._sampling
    templates._lines.clear()
    assert templates.unread().keys() == {"127.0.0.12", "127.0.0.13"}


def test_a_file_that_is_taken_away_says_nothing_any_more(tmp_path: Path) -> None:
    """Where templates are kept no more, nobody would hear of those that come."""
    write(tmp_path, template("127.0.0.11", OCTETS))
    templates = TemplateFile(tmp_path)
    assert templates.lacks_flow_count("127.0.0.11")
    (tmp_path / template_file.NAME).unlink()
    assert not templates.lacks_flow_count("127.0.0.11")
    write(tmp_path, template("127.0.0.12", OCTETS))
    assert not templates.lacks_flow_count("127.0.0.11")
    assert templates.lacks_flow_count("127.0.0.12")


@pytest.mark.parametrize(
    "line",
    ["", "{", "7", "[]", '{"template_type": 0}', '{"template_type": 0, "list": 7, "agent": "127.0.0.12"}',
     "[" * 100_000,
     '{"template_type": 0, "agent": "127.0.0.12", "list": [{"otpl": 7}]}', "\udcff"],
    ids=["empty", "cut", "number", "list", "no list", "list is none", "deep", "no field", "no text"],
)  # fmt: skip
def test_a_line_that_is_none_hides_no_other(line: str, tmp_path: Path) -> None:
    text = f"{line}\n{template('127.0.0.11', OCTETS)}\n"
    (tmp_path / template_file.NAME).write_bytes(text.encode(errors="surrogateescape"))
    assert TemplateFile(tmp_path).lacks_flow_count("127.0.0.11")
    assert not TemplateFile(tmp_path).lacks_flow_count("127.0.0.12")


def test_a_file_too_large_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, template("127.0.0.11", OCTETS))
    os.truncate(tmp_path / template_file.NAME, 1 << 40)
    assert not TemplateFile(tmp_path).lacks_flow_count("127.0.0.11")
