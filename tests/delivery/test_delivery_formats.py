"""Formats: what each part of an event becomes, and that no text of a stranger's breaks out of its place."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from receivers import event

from cluster.model import FileDestination, SyslogDestination, SyslogFormat
from delivery.event import Document, Event, at, event_id
from delivery.formats.cef import EXTENSION, LABELLED, cef
from delivery.formats.ecs import COPIED, ecs
from delivery.formats.rfc5424 import MOST_BYTES, PARAMETERS, message
from delivery.transports.file_transport import NdjsonFile

SYSLOG = SyslogDestination(name="siem", address="siem:514")
HOSTILE = st.text(alphabet=st.characters(), max_size=40) | st.text(alphabet='|=\\"]\n\r[ a', max_size=20)


def _with(document: Document, text: str) -> Document:
    """Put a text wherever strangers can put one."""
    ends = {end: {**document[end], "name": text, "organisation": text} for end in ("source", "destination")}
    return {**document, **ends, "summary": text, "title": text, "action": text, "threat": {"feeds": [text]}}


def _split_cef(line: str) -> tuple[list[str], dict[str, str]]:
    """Read CEF as its specification says."""
    header = re.split(r"(?<!\\)(?:\\\\)*\|", line, maxsplit=7)
    extension = line.split("|", 7)[7] if line.count("|") == 7 else re.match(r"(?:(?:[^|\\]|\\.)*\|){7}(.*)", line)[1]  # type: ignore[index]
    keys = list(re.finditer(r"(?:^| )(\w+)(?<!\\)=", extension))
    pairs = {}
    for key, following in zip(keys, [*keys[1:], None], strict=True):
        value = extension[key.end() : following.start() if following else len(extension)]
        pairs[key[1]] = re.sub(r"\\(.)", r"\1", value)
    return header, pairs


def test_cef_by_its_dictionary() -> None:
    header, pairs = _split_cef(cef(event(1)))
    assert header[0] == "CEF:0"
    assert header[4:7] == ["not_allowed", "Conversation that is not allowed", "6"]
    assert pairs["src"] == "10.30.0.3"
    assert pairs["rt"] == "1772352001000"
    assert (pairs["cs5"], pairs["cs5Label"]) == ("one,two", "threat.feeds")
    assert (pairs["deviceDirection"], pairs["out"], pairs["app"]) == ("1", "41000000000", "https")


def test_cef_has_places_of_their_own_for_ipv6() -> None:
    document = {**event(1), "destination": {"address": "2001:db8::9"}}
    _, pairs = _split_cef(cef(document))
    assert (pairs["c6a3"], pairs["c6a3Label"]) == ("2001:db8::9", "destination.address")
    assert "dst" not in pairs


@settings(deadline=None)
@given(HOSTILE)
def test_no_text_breaks_out_of_cef(text: str) -> None:
    line = cef(_with(event(1), text))
    assert "\n" not in line
    assert "\r" not in line
    pipes = re.findall(r"(?:[^|\\]|\\.)*\|", line)
    assert len(pipes) >= 7
    # All after the seventh pipe is keys and values, each key one of ours.
    extension = line[sum(map(len, pipes[:7])) :]
    keys = re.findall(r"(?:^| )(\w+)=", re.sub(r"\\.", "", extension))
    known = {name for name, _ in (*EXTENSION, *LABELLED)}
    known |= {f"{name}Label" for name, _ in LABELLED} | {"rt", "start", "end", "src", "dst", "deviceDirection"}
    assert set(keys) <= known


@settings(deadline=None)
@given(HOSTILE)
def test_no_text_breaks_out_of_rfc_5424(text: str) -> None:
    data = message(_with(event(1), text), SYSLOG, "host")
    assert len(data) <= MOST_BYTES
    whole = data.decode()
    assert not re.search(r"[\x00-\x1f\x7f]", whole)
    shape = r'<(\d+)>1 (\S+) host clusterflow - violation \[clusterflow@32473((?: \w+="(?:[^"\\\]]|\\["\\\]])*")*)\] .*'
    match = re.fullmatch(shape, whole)
    assert match is not None
    assert set(re.findall(r" (\w+)=\"(?:[^\"\\]|\\.)*\"", match[3])) <= {name for name, _ in PARAMETERS}


def test_a_long_message_keeps_its_frame() -> None:
    facts = {"address": "x" * 5000, "name": "y" * 5000, "country": "z" * 5000}
    long = {**event(1, summary="s" * 9000), "source": facts, "destination": facts, "fault": "ü" * 9000}
    data = message(long, SYSLOG, "host")
    assert len(data) <= MOST_BYTES
    assert data.decode().count("]") == 1
    short = message(long, SyslogDestination(name="s", address="s:1", format=SyslogFormat.CEF), "host")
    assert len(short) <= MOST_BYTES
    assert short.decode()


def test_ecs_by_its_fields() -> None:
    document = ecs(event(1))
    assert document["event"]["kind"] == "event"
    assert document["event"]["category"] == ["network"]
    assert document["event"]["duration"] == 720_000_000_000
    assert document["source"] | {"bytes": 0} == {
        "domain": "db-export-3", "address": "10.30.0.3", "ip": "10.30.0.3", "bytes": 0, "packets": 30_000_000,
    }  # fmt: skip
    assert document["threat"]["indicator"]["confidence"] == "High"
    assert document["network"]["type"] == "ipv4"


@pytest.mark.parametrize("mapped", [EXTENSION, LABELLED, PARAMETERS, COPIED], ids=["cef", "labels", "syslog", "ecs"])
def test_every_path_is_one_of_the_event(mapped: tuple[tuple[str, str], ...]) -> None:
    """A path that is misspelt would be empty for ever, and nobody would know."""
    wrong = []
    for _, path in mapped:
        owner: object = Event
        for name in path.split("."):
            hints = getattr(owner, "__annotations__", {"schema": str} if name == "schema" else {})
            if name != "schema" and name not in hints:
                wrong.append(path)
                break
            owner = hints.get(name)
    assert wrong == []
    assert len({name for name, _ in mapped}) == len(mapped)


def test_what_is_not_known_is_left_out() -> None:
    document = event(1)
    assert at(document, "job") is None
    assert at(document, "destination.name") is None
    assert at(document, "summary.nothing") is None


def test_ids_are_those_of_the_same_thing() -> None:
    assert event_id("a", {"x": "1", "y": "2"}) == event_id("a", {"y": "2", "x": "1"})
    assert event_id("a", {"x": "1"}) != event_id("a", {"x": "1", "y": ""})
    assert event_id("ab", "c") != event_id("a", "bc")
    # Stored ids must still be the same after an upgrade.
    assert event_id("contact", {"src": "gpu-01"}, 1_772_352_000) == "9d04333ab904b3436bd8608fa817da77"


def test_a_file_is_rotated_and_never_holds_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "out" / "events.ndjson"
    out = NdjsonFile(FileDestination(name="f", path=str(path), rotate=5_000, keep=2))
    out.send([event(0)])
    with path.open("ab") as file:
        file.write(b'{"half": ')
    for number in range(1, 30):
        out.send([event(number)])
    files = [path.with_name("events.ndjson.2"), path.with_name("events.ndjson.1"), path]
    assert sorted(one.name for one in path.parent.iterdir()) == sorted(one.name for one in files)
    assert all(one.stat().st_size <= 5_000 for one in files)
    found = [json.loads(line) for one in files for line in one.read_text().splitlines()]
    last = [int(one["summary"].split()[1]) for one in found]
    assert last == list(range(30 - len(last), 30))
