"""Feeds as STIX 2.1 bundles, most of them made by the library of those who wrote the standard."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest
import stix2
from feed_scene import listed, read

from app.errors import UserError
from cluster.model import FeedFormat
from enrichment.feeds.feed import Feed
from enrichment.feeds.feed_stix import pattern_addresses
from enrichment.watched import Loaded

SINCE = datetime(2026, 5, 1, 12, tzinfo=UTC)
UNTIL = datetime(2026, 6, 1, 12, tzinfo=UTC)


def _indicator(pattern: str, **more: object) -> stix2.Indicator:
    given = {"pattern_type": "stix", "valid_from": SINCE} | more
    return stix2.Indicator(pattern=pattern, **given)


def _read(path: Path, *objects: object, least_confidence: int = 0) -> Loaded[Feed]:
    text = stix2.Bundle(*objects, allow_custom=True).serialize(pretty=True)
    return read(path, text, FeedFormat.STIX, least_confidence=least_confidence)


def test_indicators_of_addresses_are_taken(tmp_path: Path) -> None:
    """With their validity and confidence; what else a bundle holds is no matter."""
    loaded = _read(
        tmp_path / "bundle.json",
        stix2.Identity(name="somebody", identity_class="organization"),
        _indicator("[ipv4-addr:value = '203.0.113.9']", confidence=80, valid_until=UNTIL),
        _indicator("[ipv4-addr:value ISSUBSET '198.51.100.0/24' OR ipv6-addr:value = '2001:db8:66::1']"),
        _indicator("[domain-name:value = 'drop.example']"),
        stix2.Malware(name="thief", is_family=False),
    )
    feed = loaded.value
    assert listed(feed) == {"203.0.113.9": 80, "198.51.100.0/24": 50, "2001:db8:66::1": 50}
    assert feed.start.tolist() == [SINCE.timestamp()] * 3
    assert feed.listed.tolist() == [SINCE.timestamp()] * 3
    assert feed.end.tolist() == [UNTIL.timestamp(), math.inf, math.inf]
    assert (loaded.skipped, loaded.note) == (0, "")


def test_what_was_revoked_is_left_out_and_the_newest_version_counts(tmp_path: Path) -> None:
    """In whichever order the versions stand."""
    first = _indicator("[ipv4-addr:value = '203.0.113.9']", confidence=80)
    second = stix2.new_version(first, confidence=20)
    gone = _indicator("[ipv4-addr:value = '203.0.113.10']")
    loaded = _read(tmp_path / "bundle.json", second, first, stix2.revoke(gone), gone)
    assert listed(loaded.value) == {"203.0.113.9": 20}
    assert loaded.skipped == 0
    assert _read(tmp_path / "bundle.json", stix2.revoke(gone)).entries == 0


@pytest.mark.parametrize(
    ("pattern", "addresses"),
    [
        ("[ipv4-addr:value = '203.0.113.9']", ["203.0.113.9"]),
        ("[ipv4-addr:value IN ('203.0.113.9', '203.0.113.10')]", ["203.0.113.9", "203.0.113.10"]),
        ("[ipv4-addr:value = '203.0.113.9'] OR [ipv6-addr:value = '2001:db8::1']", ["203.0.113.9", "2001:db8::1"]),
        ("[(ipv4-addr:value='203.0.113.9' OR domain-name:value='a AND b')]", ["203.0.113.9"]),
        ("[network-traffic:dst_ref.value = '203.0.113.9']", ["203.0.113.9"]),
        ("[domain-name:value = 'it\\'s' OR ipv4-addr:value = '203.0.113.9']", ["203.0.113.9"]),
        ("[file:hashes.'SHA-256' = '" + "ab" * 32 + "' OR ipv4-addr:value = '203.0.113.9']", ["203.0.113.9"]),
    ],
)
def test_any_address_that_makes_a_pattern_hold_is_found(pattern: str, addresses: list[str]) -> None:
    """The library takes the same patterns."""
    _indicator(pattern)
    assert list(pattern_addresses(pattern)) == addresses


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[ipv4-addr:value = '203.0.113.9' AND network-traffic:dst_port = 443]", "AND is not supported"),
        ("[ipv4-addr:value = '203.0.113.9'] FOLLOWEDBY [ipv4-addr:value = '203.0.113.10']", "FOLLOWEDBY is not"),
        ("[ipv4-addr:value = '203.0.113.9'] REPEATS 5 TIMES WITHIN 60 SECONDS", "REPEATS is not supported"),
        ("[ipv4-addr:value NOT = '203.0.113.9']", "NOT is not supported"),
        ("[ipv4-addr:value != '203.0.113.9']", "expected =, IN or ISSUBSET"),
        ("[ipv4-addr:value ISSUPERSET '203.0.113.9/32']", "expected =, IN or ISSUBSET"),
        ("[ipv4-addr:value LIKE '203.0.%']", "expected =, IN or ISSUBSET"),
    ],
)
def test_a_pattern_that_holds_for_less_than_its_addresses_is_skipped_and_told(
    pattern: str, why: str, tmp_path: Path
) -> None:
    """Taken as if the rest were not there, it would match machines that nobody called bad."""
    path = tmp_path / "bundle.json"
    loaded = _read(path, _indicator("[ipv4-addr:value = '203.0.113.1']"), _indicator(pattern))
    assert list(listed(loaded.value)) == ["203.0.113.1"]
    assert loaded.skipped == 1
    assert loaded.note.startswith(f"{path}: objects[1]: '[ipv4-addr:value")
    assert why in loaded.note


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"pattern": "[ipv4-addr:value = 'all'"}, "expected an address or a prefix"),
        ({"pattern": "[ipv4-addr:value = '0.0.0.0/0']"}, "expected a prefix of /8 or longer"),
        ({"pattern": "[ipv4-addr:value = "}, "expected =, IN or ISSUBSET"),
        ({"pattern": "[ipv4-addr:value = '203.0.113.9"}, "cannot be read at character 20"),
        ({"confidence": 101}, "expected a confidence from 0 to 100"),
        ({"confidence": "high"}, "expected a confidence from 0 to 100"),
        ({"valid_from": "yesterday"}, "valid_from: expected a time"),
        ({"valid_until": "2026-01-01T00:00:00Z"}, "expected an end of its validity after its beginning"),
    ],
)
def test_an_indicator_against_the_standard_is_skipped_and_told(
    change: dict[str, object], why: str, tmp_path: Path
) -> None:
    """The library would not write these; others do."""
    good = json.loads(_indicator("[ipv4-addr:value = '203.0.113.1']").serialize())
    bad = json.loads(_indicator("[ipv4-addr:value = '203.0.113.9']").serialize()) | change
    text = json.dumps({"type": "bundle", "id": "bundle--1", "objects": [good, bad, 7]})
    loaded = read(tmp_path / "bundle.json", text, FeedFormat.STIX)
    assert (list(listed(loaded.value)), loaded.skipped) == (["203.0.113.1"], 1)
    assert why in loaded.note


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deep"),
        ("[]", "not a STIX bundle"),
        ('{"type": "bundle"}', "not a STIX bundle"),
        ('{"Event": {"Attribute": []}}', "not a STIX bundle"),
    ],
)
def test_what_is_no_bundle_is_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "bundle.json"
    with pytest.raises(UserError, match=why) as refused:
        read(path, text, FeedFormat.STIX)
    assert refused.value.lines()[0].startswith(str(path))


def test_a_bundle_without_any_address_is_refused(tmp_path: Path) -> None:
    """It is a good bundle, and of no use here: whoever named it meant another one. One without indicators is empty."""
    with pytest.raises(UserError, match="1 indicators, and none of them names an address"):
        _read(tmp_path / "bundle.json", _indicator("[domain-name:value = 'drop.example']"))
    assert _read(tmp_path / "bundle.json", stix2.Malware(name="thief", is_family=False)).entries == 0


def test_little_confidence_is_left_out(tmp_path: Path) -> None:
    low, high = (_indicator(f"[ipv4-addr:value = '203.0.113.{level}']", confidence=level) for level in (20, 90))
    assert listed(_read(tmp_path / "bundle.json", low, high, least_confidence=50).value) == {"203.0.113.90": 90}
