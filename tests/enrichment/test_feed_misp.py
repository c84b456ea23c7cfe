"""Feeds as MISP exports; the sample is what PyMISP writes (samples/make_misp_event.py)."""

import json
from pathlib import Path

import pytest
from feed_scene import DATED, listed, read

from app.errors import UserError
from cluster.model import FeedFormat

SAMPLE = Path(__file__).parent / "samples" / "misp-event.json"
LISTED_AT = 1_777_636_800.0
SEEN_AT = 1_776_672_000.0
EXPECTED = {
    "203.0.113.9": 75,
    "198.51.100.0/24": 75,
    "2001:db8:66::1": 75,
    "203.0.113.10": 75,
    "192.0.2.77": 100,
    "203.0.113.44": 75,
}


def test_addresses_that_are_meant_for_detection_are_taken(tmp_path: Path) -> None:
    """Not those without to_ids, not deleted ones, not domains; those of objects too. Tags tell the confidence."""
    loaded = read(tmp_path / "event.json", SAMPLE.read_text(), FeedFormat.MISP)
    feed = loaded.value
    assert listed(feed) == EXPECTED
    since = {feed.indicator(entry): float(feed.listed[entry]) for entry in range(len(feed))}
    assert since["203.0.113.9"] == LISTED_AT
    assert since["198.51.100.0/24"] == SEEN_AT
    assert since["192.0.2.77"] == DATED
    assert (loaded.skipped, loaded.note) == (0, "")


@pytest.mark.parametrize("shape", ["event", "bare", "list", "response", "attributes"])
def test_every_shape_of_an_export_is_read(shape: str, tmp_path: Path) -> None:
    """What is exported from the web pages, and what the API answers."""
    event = json.loads(SAMPLE.read_text())["Event"]
    document = {
        "event": {"Event": event},
        "bare": event,
        "list": [{"Event": event}],
        "response": {"response": [{"Event": event}, {"Event": {"Attribute": []}}]},
        "attributes": {"response": {"Attribute": event["Attribute"]}},
    }[shape]
    found = set(listed(read(tmp_path / "event.json", json.dumps(document), FeedFormat.MISP).value))
    assert found == set(EXPECTED) - ({"203.0.113.44"} if shape == "attributes" else set())


def test_a_deleted_object_takes_its_attributes_with_it(tmp_path: Path) -> None:
    event = json.loads(SAMPLE.read_text())["Event"]
    event["Object"][0]["deleted"] = True
    assert "203.0.113.44" not in listed(read(tmp_path / "e.json", json.dumps({"Event": event}), FeedFormat.MISP).value)


@pytest.mark.parametrize(
    ("attribute", "why"),
    [
        ({"type": "ip-dst", "value": "drop.example"}, "'drop.example': expected an address or a prefix"),
        ({"type": "ip-dst", "value": None}, "'None': expected an address or a prefix"),
        ({"type": "ip-dst", "value": "10.0.0.1"}, "'10.0.0.1': expected addresses outside"),
        ({"type": "ip-src", "value": "203.0.113.9", "timestamp": "now"}, "'203.0.113.9': expected a time"),
    ],
)
def test_an_attribute_with_a_fault_is_skipped_and_told(attribute: dict[str, object], why: str, tmp_path: Path) -> None:
    """The others stay; alone, the file is refused."""
    path = tmp_path / "event.json"
    good = {"type": "ip-dst", "value": "203.0.113.1", "to_ids": True}
    text = json.dumps({"Event": {"Attribute": [good, attribute | {"to_ids": True}]}})
    loaded = read(path, text, FeedFormat.MISP)
    assert (listed(loaded.value), loaded.skipped) == ({"203.0.113.1": 50}, 1)
    assert loaded.note.startswith(f"{path}: attribute 2: {why}")
    with pytest.raises(UserError, match="attribute 1"):
        read(path, json.dumps({"Event": {"Attribute": [attribute | {"to_ids": True}]}}), FeedFormat.MISP)


@pytest.mark.parametrize("text", ["[7]", "{}", '"text"', '{"response": 7}', '{"Event": []}', '{"type": "bundle"}'])
def test_what_is_no_export_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a MISP export"):
        read(tmp_path / "event.json", text, FeedFormat.MISP)


@pytest.mark.parametrize("kind", [["ip-dst"], {"ip-dst": 1}, None, 7])
def test_an_attribute_whose_type_is_no_text_is_passed_over(kind: object, tmp_path: Path) -> None:
    good = {"type": "ip-dst", "value": "203.0.113.1", "to_ids": True}
    text = json.dumps({"Event": {"Attribute": [good | {"type": kind, "value": "203.0.113.2"}, good]}})
    assert list(listed(read(tmp_path / "e.json", text, FeedFormat.MISP).value)) == ["203.0.113.1"]
